/*
 * target.h: will LD_PRELOAD take effect in the program to start?
 */
#ifndef TOOLS_TARGET_H
#define TOOLS_TARGET_H

#include <limits.h>
#include <stdbool.h>

/* Find program as execvp() would. False: it would not be found. */
bool target_find(const char *program, char ret_path[PATH_MAX]);

/*
 * Is the program one that starts others in an environment without ours (sudo, a container, Slurm told so)? Then say so on
 * stderr in one line. argv: the program and its arguments, NULL at the end.
 */
bool target_warn_launcher(char *const argv[]);

/*
 * Look at the file at path, and at the interpreter if it is a script, and say on stderr in one line if the loader will
 * not load our library into it. Says nothing about what it cannot read.
 */
void target_warn(const char *path);

#endif
