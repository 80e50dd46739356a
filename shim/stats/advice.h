/*
 * advice.h: decides what to change about a run, by its figures. The summary at the end of a run, `spillway run --fit`
 * and `spillway report` ask here, so that they agree; each has sentences of its own. Pure.
 */
#ifndef SPILLWAY_ADVICE_H
#define SPILLWAY_ADVICE_H

#include <stdbool.h>
#include <stdint.h>

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
	double lost, stopped;   /* of it, at least one submission waited or the GPU was stopped; the GPU was stopped */
	bool over, moved;       /* memory requested on the device was elsewhere; and came to it */
	bool refused, by_total; /* requests ended in out of memory; because of host.total */
	uint64_t need, budget, total;   /* bytes of devices; total: what they have, 0: not known */
	uint64_t vmm;                   /* bytes of the program's own cuMemCreate */
	uint64_t dead;                  /* bytes that its allocator keeps and does not use, at any time; 0: not known */
	uint64_t moved_in, worst_in;    /* bytes; worst: the group that is waited for longest */
	bool worst_by_rule, worst_born; /* a rule can be about it; it is tensors */
};

/* Stores what applies, the cheapest change first, at least one. Returns how many. */
unsigned advice_find(const struct advice_figures *figures, enum advice ret[ADVICES]);

#endif
