// SPDX-License-Identifier: Apache-2.0
/*
 * library.h: finds libspillway.so, and determines whether LD_PRELOAD will take effect in a program to start.
 */
#ifndef TOOLS_LIBRARY_H
#define TOOLS_LIBRARY_H

#include <stdbool.h>
#include <limits.h>

/* Returns the folder of the tool's file. Returns false, after an error on stderr, if it cannot be found out. */
bool library_tool_folder(char ret_path[PATH_MAX]);

/*
 * Finds the absolute path of the library: `given` if it is set, otherwise the first one found beside the tool, in
 * ../lib, ../lib64 and ../lib/<multiarch>. Returns false if it does not exist or is not usable, after an error on
 * stderr that lists the places searched.
 */
bool library_find(const char *given, char ret_path[PATH_MAX]);

/*
 * Finds the library for LD_AUDIT, which lies beside `library`. Returns false if it does not, after an error on stderr.
 */
bool library_find_audit(const char *library, char ret_path[PATH_MAX]);

/* Returns whether the file is libspillway.so, judged by the symbols that it defines. The file is read, not loaded. */
bool library_is_ours(const char *path);

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
