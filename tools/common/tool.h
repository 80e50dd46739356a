// SPDX-License-Identifier: Apache-2.0
/*
 * tool.h: what all commands share: exit statuses and messages. Results go to stdout, everything else to stderr. Every
 * line on stderr begins with "spillway: " unless it names a place in a file.
 */
#ifndef TOOLS_TOOL_H
#define TOOLS_TOOL_H

#include <stdbool.h>
#include <stddef.h>

#include "policy/policy.h"

/* Exit statuses of the tool itself. `run` ends with the status of the program if it was started. */
enum {
	TOOL_OK = 0,
	TOOL_BROKEN = 1,  /* the tool could not do its work: no memory, output not written, a request refused */
	TOOL_BAD = 2,     /* error in usage, policy, or library: nothing was started */
	TOOL_PROBLEM = 3, /* `doctor` did its work, and found a problem that keeps Spillway from working */
	TOOL_NOT_EXECUTABLE = 126, /* as in a shell */
	TOOL_NOT_FOUND = 127,      /* as in a shell */
};

/* Prints "spillway: ..." and a line end to stderr. */
__attribute__((format(printf, 1, 2))) void tool_say(const char *format, ...);
/* The same, for the end of a function: an exit status, or false. */
#define tool_bad(...)    (tool_say(__VA_ARGS__), TOOL_BAD)
#define tool_broken(...) (tool_say(__VA_ARGS__), TOOL_BROKEN)
#define tool_fails(...)  (tool_say(__VA_ARGS__), false)

/* Prints every problem to stderr, one per line, and the number of problems beyond the list. */
void tool_print_errors(const struct policy_errors *errors);

#endif
