/*
 * live_budget.h: a device budget that follows what the driver has free (`device.budget: auto`): it shrinks at once when
 * others need the memory, and grows back slowly. Pure: no clock, no driver; the caller passes the time and the figures.
 *
 * Rules, with F the free bytes of the device, R the reserve:
 *  - F below R: the limit falls at once to what the process uses less the missing bytes.
 *  - The limit never promises more than what is used and F - R.
 *  - Growth: by an eighth of what is free beyond 2 R at most, below that in small steps (a piece at least, if two fit),
 *    and only to what is used plus the step; not within GROW_AFTER of a shrink, and then about once a second. Both times
 *    have jitter, so that processes that do not know of each other do not act at the same moment. Each of up to 8 of
 *    them takes a part of what is free that leaves enough for the others, so together they never go below R by growing.
 *  - Growth ends an eighth of R above R, but for who has less than that eighth: it takes it from there, or it could be
 *    left with nothing for good. Simulated: without this rule one of four processes had less than 30 MiB, of 80 GiB, in
 *    8 of 5,000 runs.
 *  - A new process on the GPU shows as memory that others suddenly hold. R is doubled for a while then, because a process
 *    that starts takes more than its context.
 */
#ifndef SPILLWAY_LIVE_BUDGET_H
#define SPILLWAY_LIVE_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

struct live_budget_figures {
	uint64_t now;         /* ns, of any monotonic clock */
	uint64_t total, free; /* bytes of the device, as the driver reports */
	uint64_t used;        /* bytes that this process has under its budget */
	uint64_t reserve;     /* bytes that are to stay free */
	uint64_t piece;       /* bytes of the largest piece that the heap moves */
};

struct live_budget {
	uint64_t limit;
	uint64_t others[2];  /* bytes that others held at the last two looks */
	uint64_t grow_from;  /* ns: no growth before this time */
	uint64_t wary_until; /* ns: until then the reserve is doubled */
	uint64_t random;
};

enum live_budget_change { LIVE_BUDGET_KEEPS, LIVE_BUDGET_SHRINKS, LIVE_BUDGET_GROWS };

/* The first limit: what is used, and what is free beyond the reserve. seed: differs between processes. */
void live_budget_begin(struct live_budget *budget, const struct live_budget_figures *figures, uint64_t seed);
/*
 * Sets the limit anew. To be called some ten times a second. Returns LIVE_BUDGET_SHRINKS if the limit fell because too
 * little is free; what is above it should then leave the device.
 */
enum live_budget_change live_budget_look(struct live_budget *budget, const struct live_budget_figures *figures);

#endif
