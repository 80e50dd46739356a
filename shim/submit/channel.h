/*
 * channel.h: what submissions and the mover of one device share: the submission log, and the list of submissions that
 * wait for memory. Submissions write and the mover reads; neither calls the other.
 *
 * Locks: SPILL(device) for the list of waiting submissions and their answers; WAKE(device) for the mover's nap. The
 * submission log takes no lock (submission_log.h).
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

struct graph_names;

/*
 * A submission that waits for memory. Its thread owns it; it is listed until it is answered or gives up. Under SPILL.
 */
struct waiter {
	const struct named *named;
	unsigned n;
	const struct graph_names
	    *graph; /* of the graph that it launches; NULL: it launches none, or one that is unknown */
	bool answered;
	bool unknown;   /* it may touch anything, so it waits until everything is mapped */
	bool had_gap;   /* exact mode: a quiesce has already done what it could for it */
	uint64_t since; /* ns */
	struct waiter *next;
};

/* Lives as long as the process: submissions may read it at any time. */
struct channel {
	const struct arena *arena;
	uint64_t device; /* a bit */
	struct submission_log tape;
	/* Stands for all memory of the device; pinned by submissions that may touch anything. */
	struct block_state everything;
	_Atomic bool hungry; /* the mover needs completions: an event is recorded behind each submission */
	_Atomic bool dead;   /* the mover has stopped moving memory, for good */

	struct lock lock;           /* SPILL; for the waiters */
	struct clock_cond answered; /* signalled if a waiter, or an order to the mover, is answered */
	struct waiter *waiters;
	_Atomic unsigned n_waiters;

	struct lock wake_lock; /* WAKE; only for the mover's nap */
	struct clock_cond wake;
	_Atomic bool asleep; /* the mover naps */
};

/* Initializes a channel whose memory is all zeros. device: the ordinal. Returns false if memory is short. */
bool channel_init(struct channel *channel, const struct arena *arena, int device);

/*
 * Writes a record to the submission log; never waits. Returns false if there was no room, so that the mover does not
 * know of the ticket. Returns true without a record if the mover is dead: it evicts nothing, so it need not know.
 */
bool channel_post(struct channel *channel, uint64_t function, const struct named *named, unsigned n,
		  struct inflight_ticket ticket);

/*
 * Waits until the mover has done what it can for this submission, or for 2 s at most. The caller must have raised
 * `waits` of its blocks. Returns the known time, in ns, for which the process was stopped meanwhile; it does not count
 * as waiting. graph: as in struct waiter. Locking: takes SPILL.
 */
uint64_t channel_wait(struct channel *channel, const struct named *named, unsigned n, bool unknown,
		      const struct graph_names *graph);

/* Wakes the mover if it naps. Locking: takes WAKE; may be called with SPILL held. */
void channel_wake(struct channel *channel);

static inline bool channel_is_hungry(const struct channel *channel)
{
	return atomic_load_explicit(&channel->hungry, memory_order_relaxed);
}

#endif
