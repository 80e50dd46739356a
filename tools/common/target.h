/*
 * target.h: determines whether LD_PRELOAD will take effect in a program to start.
 */
#ifndef TOOLS_TARGET_H
#define TOOLS_TARGET_H

#include <limits.h>
#include <stdbool.h>

/* Finds program as execvp() would. Returns false if it would not be found. */
bool target_find(const char *program, char ret_path[PATH_MAX]);

enum { TARGET_REASON_BYTES = 160 };

/*
 * Returns true, with the reason, if the program starts others in an environment without the library (sudo, a
 * container, Slurm with certain options), so that Spillway will not take effect in them. argv holds the program and
 * its arguments and ends with NULL.
 */
bool target_launcher(char *const argv[], char ret_reason[TARGET_REASON_BYTES]);
/* Like target_launcher(), but prints the reason to stderr in one line. */
bool target_warn_launcher(char *const argv[]);

/*
 * Examines the file at path, and the interpreter if it is a script. Returns why the loader will not load the library
 * into it, and in ret_file which of the two is meant. Returns NULL if the loader will, or if the file cannot be read.
 */
const char *target_reason(const char *path, char ret_file[PATH_MAX]);
/* Like target_reason(), but prints the reason to stderr in one line. */
void target_warn(const char *path);

#endif
