// SPDX-License-Identifier: Apache-2.0
/*
 * clock.h: reads the clocks, waits with a deadline, and limits how much of the time something takes. The launch path
 * must not read a clock while no device is short of memory (quiet_test).
 */
#ifndef SPILLWAY_CLOCK_H
#define SPILLWAY_CLOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* CLOCK_MONOTONIC, ns. */
uint64_t clock_now(void);
/* CLOCK_REALTIME, ns since 1970. */
uint64_t clock_wall(void);
/* The CPU time of this thread, ns: time in which it could not run does not count. Takes a system call. */
uint64_t clock_thread(void);
/* Returns the CLOCK_MONOTONIC time `ns` from now, a deadline for clock_wait(). */
struct timespec clock_in(uint64_t ns);
/* Sleeps for `ns`, which must be less than a second; a signal ends the sleep early. A cancellation point. */
void clock_sleep(uint64_t ns);

/*
 * A condition whose timed waits end by CLOCK_MONOTONIC. A plain pthread_cond_t waits by CLOCK_REALTIME: if that clock
 * is set back by 20 s (NTP, a resumed virtual machine), each wait in progress lasts 20 s longer. The clock can only be
 * chosen at run time, so the first wait prepares the condition; its initial value is all zeros.
 */
struct clock_cond {
	pthread_cond_t cond;
	atomic_bool ready; /* written under the mutex; read by who wakes without it */
};

/*
 * Waits until woken or until the deadline (clock_in()). Returns 0 or ETIMEDOUT. All waiters must use the same mutex. A
 * cancellation point. Locking: the caller must hold the mutex.
 */
int clock_wait(struct clock_cond *cond, pthread_mutex_t *mutex, const struct timespec *until);
/* Wakes all waiters. Locking: the caller need not hold the mutex. */
void clock_wake_all(struct clock_cond *cond);

/* ---- shares of time ---- */

/*
 * How long something may take, as a share of the time that passes. What is not used is saved, up to a limit, so a burst
 * is short, and over a longer time the share is never exceeded by more than one spending.
 *
 * What was spent is kept in one number, `paid`, 0 at first, when all is there that may be saved: the time up to which
 * the clock must have come for it. Pure: the caller gives the time, in ns. Locking: none; any thread may call these
 * functions at any time.
 */
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
