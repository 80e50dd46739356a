// SPDX-License-Identifier: Apache-2.0
/*
 * run.h: what `spillway run` does beside starting a program: --fit, programs that are known, and the watcher of what
 * it leaves.
 */
#ifndef TOOLS_RUN_H
#define TOOLS_RUN_H

#include "policy/policy.h"
#include "shim/stats/stats_page.h"

#include <stdbool.h>
#include <sys/types.h>

/* ---- --fit (fit.c) ----
 *
 * Stays the parent of the program, says once a minute what is spilled and what that costs,
 * and ends with the policy that it would now write.
 */

/* The command line, as far as it concerns --fit. */
struct fit_request {
	const char *set;   /* what the user set, as --set has it; NULL: nothing */
	const char *write; /* where to write the policy; NULL: nowhere */
	enum policy_report report;
	int (*start)(char **program); /* replaces the process by the program; returns the exit status if it cannot */
	char **program;
};

/*
 * Runs the program to its end. Returns its exit status; if it ended by a signal, this process ends by the same one.
 * Signals that others send to this process are passed on; those of the terminal reach the program by themselves. If
 * this process is killed, so is the program, as if it were the program.
 */
int fit_run(const struct fit_request *request);

/* ---- programs that are known (known.c) ---- */

struct known_program {
	const char *name;
	const char *policy;      /* a built-in one */
	const char *set;         /* keys on top of it; "": none */
	const char *patterns[3]; /* of fnmatch(), of the words by which it is known; ends with NULL */
	const char *because;
};

/* Prints their names. */
void known_print(void);
/* Returns NULL after printing an error if there is none of that name. */
const struct known_program *known_find(const char *name);
/* Returns NULL if the program is not one of those that are known by their arguments. */
const struct known_program *known_by_arguments(char **program);

/* ---- the watcher (watcher.c) ----
 *
 * Prints the summary of a program that ended without printing it: by a signal, or by _exit(). And names a
 * process of it that was seen with CUDA and without the library.
 *
 * The library installs no signal handler for this: a program must not see one that it did not install, and a handler
 * may do next to nothing. But the figures lie in a file that outlives the process (stats_page.h), so a process outside
 * can print them. `spillway run` starts the watcher before the program takes the tool's place.
 */

/*
 * Starts a process that waits until this one, whatever program it has become by then, has ended. If that has used CUDA
 * memory and left its figures, the process prints the summary to standard error; full: with all figures. It is no child
 * of this process, is in a session of its own, and of its files it keeps standard error only. Nothing is started where
 * the program would become its parent (process 1, a subreaper), or where the kernel cannot wait for a process that is
 * no child (before Linux 5.3).
 */
void watcher_start(bool full);

/* Prints the summary of a process that has ended without printing it, if it has left figures. */
void watcher_print_left(pid_t pid);

/* Prints the summary of a process with these figures to standard error; waits for a slow reader, but not for long. */
void watcher_print(const struct stats_page *page, uint64_t now, bool full);

#endif
