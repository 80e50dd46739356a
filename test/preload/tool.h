// SPDX-License-Identifier: Apache-2.0
/*
 * tool.h: the `spillway` tool as from another terminal: it is not preloaded, and finds the test's own folder (folder.h).
 */
#ifndef PRELOAD_TOOL_H
#define PRELOAD_TOOL_H

#include <stdbool.h>

/*
 * Runs it with these arguments, which a shell reads. Returns what it says on both outputs, until the next call.
 * *ret_status: its exit status; ret_status may be NULL.
 */
char *tool(int *ret_status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Runs it. Returns whether it succeeds and says these words. */
bool tool_tells(const char *words, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
