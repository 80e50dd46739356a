/*
 * channel.h: what submissions tell the mover of one device, and what they wait for. Submissions write here and the mover
 * reads: neither calls the other.
 *
 * Locks: SPILL(device), for the list of submissions that wait and for what they are answered; WAKE(device). The tape has none (submission_log.h).
 */
#ifndef SPILLWAY_CHANNEL_H
#define SPILLWAY_CHANNEL_H

#include "shim/base/clock.h"
#include "shim/base/lock.h"
#include "shim/heap/arena.h"
#include "shim/submit/submission_log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A submission that waits for memory. Owned by its thread, on the list until it is answered or gives up. */
struct waiter {
	const struct named *named;
	unsigned n;
	bool answered;
	bool unknown;   /* it may touch anything: it waits until everything is mapped */
	bool had_gap;   /* exact mode: what could be done for it in a gap has been done */
	uint64_t since; /* ns */
	struct waiter *next;
};

/* Lives as long as the process: submissions may read it at any time. */
struct channel {
	const struct arena *arena;
	uint64_t device; /* a bit */
	struct submission_log tape;
	struct block_state
	    everything;         /* stands for all memory of the device: what submissions hold that may touch anything */
	_Atomic bool hungry;    /* the mover lacks proofs that submissions are done: an event is recorded behind each */
	_Atomic bool dead;      /* nothing moves any more, for good */

	struct lock lock;           /* waiters */
	struct clock_cond answered; /* a waiter, or an order to the mover */
	struct waiter *waiters;
	_Atomic unsigned n_waiters;

	struct lock wake_lock; /* for the mover's nap alone */
	struct clock_cond wake;
	_Atomic bool asleep; /* the mover naps */
};

/* Of memory that is all zeros. device: its ordinal. Returns false if there is no memory. */
bool channel_init(struct channel *channel, const struct arena *arena, int device);

/*
 * Writes a record for the mover; never waits for more than the copying. Returns false if there was no room for it, and the
 * mover does not know of the ticket. A mover that is dead takes nothing away, so it need not know.
 */
bool channel_post(struct channel *channel, uint64_t function, const struct named *named, unsigned n,
		  struct inflight_ticket ticket);

/*
 * Waits until the mover has done what it can for this submission. The caller must have raised the waits of its blocks.
 * Returns for how long the process was stopped meanwhile, ns, as far as it is known: that time is no wait.
 * Locking: takes SPILL.
 */
uint64_t channel_wait(struct channel *channel, const struct named *named, unsigned n, bool unknown);

/* The mover has something to do: it is woken if it naps. Locking: may be called with SPILL held. */
void channel_wake(struct channel *channel);

static inline bool channel_is_hungry(const struct channel *channel)
{
	return atomic_load_explicit(&channel->hungry, memory_order_relaxed);
}

#endif
