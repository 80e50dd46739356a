/*
 * tool.h: what all commands share: exit statuses, and what goes to stderr. Results go to stdout, everything else to stderr, every line of the latter with
 * "spillway: " in front unless it names a place in a file.
 */
#ifndef TOOLS_TOOL_H
#define TOOLS_TOOL_H

#include <stdbool.h>
#include <stddef.h>

#include "policy/policy.h"

/* Exit statuses of the tool itself; `run` otherwise ends with the status of the program. */
enum {
	TOOL_OK = 0,
	TOOL_BROKEN = 1,           /* the tool could not do its work: no memory, output not written, a refusal */
	TOOL_BAD = 2,              /* usage, policy, or library: nothing was started */
	TOOL_PROBLEM = 3,          /* `doctor` did its work, and found something that keeps Spillway from working */
	TOOL_NOT_EXECUTABLE = 126, /* as in a shell */
	TOOL_NOT_FOUND = 127,      /* as in a shell */
};

/* "spillway: ..." and a line end, to stderr. */
__attribute__((format(printf, 1, 2))) void tool_say(const char *format, ...);

/* Every problem, one a line, to stderr, and how many more there were. */
void tool_print_errors(const struct policy_errors *errors);

#endif
