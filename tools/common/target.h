/*
 * target.h: will LD_PRELOAD take effect in the program to start?
 */
#ifndef TOOLS_TARGET_H
#define TOOLS_TARGET_H

#include <limits.h>
#include <stdbool.h>

/* Find program as execvp() would. False: it would not be found. */
bool target_find(const char *program, char ret_path[PATH_MAX]);

enum { TARGET_REASON_BYTES = 160 };

/*
 * Is the program one that starts others in an environment without ours (sudo, a container, Slurm told so)? Then why
 * Spillway will not take effect in those. argv: the program and its arguments, NULL at the end.
 */
bool target_launcher(char *const argv[], char ret_reason[TARGET_REASON_BYTES]);
/* The same, said on stderr in one line. */
bool target_warn_launcher(char *const argv[]);

/*
 * Look at the file at path, and at the interpreter if it is a script: why the loader will not load our library into it,
 * and into which of both. NULL: it will, or that cannot be read.
 */
const char *target_reason(const char *path, char ret_file[PATH_MAX]);
/* The same, said on stderr in one line. */
void target_warn(const char *path);

#endif
