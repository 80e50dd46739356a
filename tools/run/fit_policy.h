// SPDX-License-Identifier: Apache-2.0
/*
 * fit_policy.h: the policy that `spillway run --fit` would write after a run, and what it says once a minute. Both are
 * made of the figures alone (stats_page.h): no clock, no files, no CUDA.
 */
#ifndef TOOLS_FIT_POLICY_H
#define TOOLS_FIT_POLICY_H

#include "shim/stats/stats_page.h"

#include <stdbool.h>
#include <stdio.h>

/*
 * The keys that --fit sets, unless --set does: a mode that never stops a job, and moves whatever the program makes; and
 * the events that tell what the CPU does with managed memory.
 */
#define FIT_SET "spill.mode=exact,vmm.spill=move,faults=events"

struct fit_facts {
	const struct stats_page *page; /* of the process that lost most */
	uint64_t now;                  /* CLOCK_MONOTONIC: its end, or the last time it was known to live */
	const char *program;  /* its name, as page_program() makes it: without arguments, which may hold secrets */
	const char *set;      /* what the user set, as --set has it; NULL: nothing */
	unsigned n_processes; /* that used CUDA memory in the run */
	uint64_t host_memory; /* of the machine, bytes; 0: not known */
};

/*
 * Writes the policy: every key follows a comment that begins "# because" and says which figure speaks for it. What the
 * figures do not show is no key. Returns false if what the user set has characters that no policy can contain.
 */
bool fit_policy_put(FILE *file, const struct fit_facts *facts);

/* What one or more running processes have in all, at one moment. */
struct fit_moment {
	uint64_t away, held; /* bytes of the heaps beside the device, and in all */
	uint64_t budget;     /* device bytes that the heaps may use */
	double lost;         /* s, of the process that lost most: summary_lost() */
	unsigned n;          /* processes */
};

/* Adds a process to the moment. */
void fit_moment_add(struct fit_moment *moment, const struct stats_page *page, uint64_t now);
/* Writes the line for the time since the previous moment. */
#define FIT_LINE 240
void fit_line(const struct fit_moment *now, const struct fit_moment *before, double seconds, char room[FIT_LINE]);

#endif
