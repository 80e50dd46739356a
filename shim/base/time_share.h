/*
 * time_share.h: how long something may take, as a share of the time that passes. What is not used is saved, up to a
 * limit, so a burst is short, and over a longer time the share is never exceeded by more than one spending.
 *
 * What was spent is kept in one number, `paid`, 0 at first, when all is there that may be saved: the time up to which
 * the clock must have come for it. Pure: the caller gives the time, in ns. Locking: none; any thread may call these
 * functions at any time.
 */
#ifndef SPILLWAY_TIME_SHARE_H
#define SPILLWAY_TIME_SHARE_H

#include <stdatomic.h>
#include <stdint.h>

struct time_share {
	uint32_t one_in; /* the share is 1 / one_in */
	uint32_t most;   /* ns that may be saved */
};

/* Returns how many ns may be spent at the time `now`; 0: none. */
static inline uint64_t time_share_left(struct time_share share, const _Atomic uint64_t *paid, uint64_t now)
{
	uint64_t until = atomic_load_explicit(paid, memory_order_relaxed);
	uint64_t left = now > until ? (now - until) / share.one_in : 0;

	return left < share.most ? left : share.most;
}

/* Records that `ns` were spent, perhaps more than were left: the rest is owed. */
static inline void time_share_spend(struct time_share share, _Atomic uint64_t *paid, uint64_t now, uint64_t ns)
{
	uint64_t saved = (uint64_t)share.most * share.one_in, full = now > saved ? now - saved : 0;
	uint64_t until = atomic_load_explicit(paid, memory_order_relaxed), from;

	do {
		from = until > full ? until : full;
	} while (!atomic_compare_exchange_weak_explicit(paid, &until, from + ns * share.one_in, memory_order_relaxed,
							memory_order_relaxed));
}

#endif
