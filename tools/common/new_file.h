// SPDX-License-Identifier: Apache-2.0
/*
 * new_file.h: writes files that must not exist yet: nothing of the user's is overwritten, and no link is followed.
 */
#ifndef TOOLS_NEW_FILE_H
#define TOOLS_NEW_FILE_H

#include <stdbool.h>
#include <stdio.h>

/*
 * Returns true, after printing an error, if the file exists. It is called before the long work is done. path may be
 * NULL.
 */
bool new_file_is_taken(const char *path);
/* Creates the file, for the owner alone. Returns NULL after printing an error. */
FILE *new_file_create(const char *path);
/*
 * Closes that file and returns TOOL_OK, or TOOL_BROKEN after printing an error. If good is false or not everything
 * could be written, the file is removed, so that its name is free.
 */
int new_file_close(FILE *file, const char *path, bool good);
/*
 * Creates the file, which everybody may read, with what print(what) writes to standard output. Returns TOOL_OK, or
 * TOOL_BROKEN after printing an error.
 */
int new_file_print(const char *path, void (*print)(const void *what), const void *what);

#endif
