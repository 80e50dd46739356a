// SPDX-License-Identifier: Apache-2.0
/*
 * summary.h: makes the summary at the end of a run. Three lines come first: what was spilled, what it cost, and what to
 * change. The others are figures: where the bytes are, what moved, which allocations cost most. It uses only the
 * figures (stats_page.h) and makes no CUDA call.
 */
#ifndef SPILLWAY_SUMMARY_H
#define SPILLWAY_SUMMARY_H

#include "shim/stats/stats_page.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- advice ---- */

/*
 * What to change about a run, by its figures. The summary at the end of a run, `spillway run --fit` and `spillway
 * report` ask here, so that they agree; each has sentences of its own. Pure.
 */

/* Share of the run below which what memory cost is no reason for advice. */
#define ADVICE_WORTH_IT 0.02

enum advice {
	ADVICE_VMM,     /* vmm.spill: most memory is of the program's own cuMemCreate, and the device was short */
	ADVICE_REFUSED, /* memory ran out: host.total, or with nothing spilled, or nothing else is known */
	ADVICE_NOTHING, /* nothing was spilled */
	ADVICE_CHEAP,   /* what was spilled cost next to nothing */
	ADVICE_BUDGET,  /* device.budget: the device has room for all of it */
	ADVICE_CACHE,   /* the program's allocator keeps more than it uses */
	ADVICE_MOVE,    /* spill.mode, which is static */
	ADVICE_FAST,    /* spill.mode, which is exact: the GPU stood still */
	ADVICE_SITE,    /* a rule for the allocations that move most */
	ADVICE_LINE,    /* the tensors of the line that moves most */
	ADVICE_UNKNOWN, /* the figures do not show what */
};
#define ADVICES (ADVICE_UNKNOWN + 1)

struct advice_figures {
	const char *mode;       /* spill.mode */
	double run;             /* s */
	double lost, stopped;   /* of it: a submission waited or the GPU was stopped, whichever is more; the latter */
	bool over, moved;       /* memory requested on the device was elsewhere; and pieces came to it */
	bool refused, by_total; /* requests ended in out of memory; because of host.total */
	uint64_t need, budget, total;   /* bytes of devices; total: what they have, 0: not known */
	uint64_t vmm;                   /* bytes of the program's own cuMemCreate */
	uint64_t dead;                  /* bytes that its allocator keeps and does not use, at any time; 0: not known */
	uint64_t moved_in, worst_in;    /* bytes; worst: the group that is waited for longest */
	bool worst_by_rule, worst_born; /* a rule can be about it; it is tensors */
};

/* Stores what applies, the cheapest change first, at least one. Returns how many. */
unsigned advice_find(const struct advice_figures *figures, enum advice ret[ADVICES]);

/* ---- the summary ---- */

#define SUMMARY_SHORT 3 /* lines that always come, first */
/* Most lines with the figures; if there are more, the least important ones are left out. */
#define SUMMARY_LINES 14
#define SUMMARY_LINE  400 /* bytes */

/* Advice if memory that the program maps itself, which the heap cannot move, is too much. */
#define SUMMARY_VMM_REMEDY                                                                                             \
	"with vmm.spill: move it is memory of the heap, and does (spill.mode: exact; in fast, what PyTorch reports)"

struct summary {
	unsigned n;
	struct summary_line {
		unsigned rank; /* lines with the largest rank are left out first */
		char text[SUMMARY_LINE];
	} line[SUMMARY_LINES + 15];
};

/* Returns what the third line says to change. */
enum advice summary_change(const struct stats_page *page, uint64_t now);
/*
 * Returns the seconds for which a submission waited or the GPU was stopped, whichever is more: the cost of the run, as
 * far as it is counted.
 */
double summary_lost(const struct stats_page *page, uint64_t now);
/* Returns whether memory that was asked for on the device lay elsewhere at any time. */
bool summary_is_over(const struct stats_page *page);
/* Returns the site that submissions waited for longest; NULL if nothing of any site was moved to the device. */
const struct stats_site *summary_costliest(const struct stats_page *page);
/*
 * Whether the CPU touched what a site has of the program's own managed memory after the GPU's first use, as far as the
 * driver tells. It does not tell of what the GPU leaves with the CPU.
 */
enum summary_touch {
	SUMMARY_UNUSED, /* no GPU used it, or it is no such memory */
	SUMMARY_UNTOUCHED,
	SUMMARY_TOUCHED,
	SUMMARY_TOUCH_UNKNOWN, /* events were lost or not read, or the process has not ended by itself */
	SUMMARY_TOUCHES,       /* must be last */
};
enum summary_touch summary_touch(const struct stats_page *page, const struct stats_site *site);
/* Returns whether the site is a line at which tensors were born, about which no rule can be. */
bool summary_is_of_tensors(const struct stats_site *site);
/*
 * Writes "12 allocations of 64 MiB to 128 MiB under rule optim, asked for at train.py:57 in forward", or "tensors under
 * rule optim born at train.py:57 in forward".
 */
void summary_describe(const struct stats_page *page, const struct stats_site *site, char *room, size_t bytes);

/*
 * Makes the first three lines for a process with these figures at time `now` (CLOCK_MONOTONIC, ns). Has no side
 * effects.
 */
void summary_make_short(const struct stats_page *page, uint64_t now, struct summary *ret_summary);
/* The same, followed by the figures. trace: the trace file, or NULL. */
void summary_make(const struct stats_page *page, uint64_t now, const char *trace, struct summary *ret_summary);

#endif
