/*
 * trace_name.h: checks the file name pattern of `run --trace`.
 */
#ifndef TOOLS_TRACE_NAME_H
#define TOOLS_TRACE_NAME_H

#include <stdbool.h>
#include <limits.h>

/*
 * Makes the pattern that the library gets in SPILLWAY_TRACE. Its folder is made absolute, because programs change
 * their current folder. Returns false after printing an error if the folder does not exist or a % conversion is not
 * known.
 */
bool trace_name_make(const char *pattern, char ret_name[PATH_MAX]);

#endif
