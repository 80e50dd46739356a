/*
 * trace_name.h: the file of `run --trace`.
 */
#ifndef TOOLS_TRACE_NAME_H
#define TOOLS_TRACE_NAME_H

#include <stdbool.h>
#include <limits.h>

/*
 * The pattern as the library is to get it (SPILLWAY_TRACE): its folder absolute, as programs change theirs. False: it
 * cannot be one, which has been said: the folder is not there, or what follows a % is not known.
 */
bool trace_name_make(const char *pattern, char ret_name[PATH_MAX]);

#endif
