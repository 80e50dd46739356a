// SPDX-License-Identifier: Apache-2.0
/*
 * Ranked mutexes. Debug builds check the order; locks marked HOLDS disable cancellation while they are held.
 */
#include "shim/base/lock.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

_Static_assert(LOCK_RANK_COUNT <= 64, "a mask has a bit for each");

/* Whether a thread is not cancelled under the rank. */
#define HOLDS                                  1
#define BRIEF                                  0
#define CANCEL(rank, cancel, protects, driver) [LOCK_##rank] = (cancel),
static const bool not_cancelled[] = {LOCK_RANKS(CANCEL)};

#ifdef SPILLWAY_DEBUG
static __thread uint64_t held __attribute__((tls_model("initial-exec")));

#define NAME(rank, cancel, protects, driver) #rank,
static const char *const names[] = {LOCK_RANKS(NAME)};

/* Debug builds are for tests only: this is the only place where the library stops its process. */
static void lock_wrong(const char *what, enum lock_rank rank)
{
	dprintf(STDERR_FILENO, "spillway: %s: %s; held:", what, names[rank]);
	for (unsigned i = 0; i < LOCK_RANK_COUNT; i++)
		if (held >> i & 1)
			dprintf(STDERR_FILENO, " %s", names[i]);
	dprintf(STDERR_FILENO, "\n");
	abort();
}

/* tried: it did not wait, so the order does not matter. */
static void rank_taken(enum lock_rank rank, bool tried)
{
	if (tried ? held >> rank & 1 : held >> rank)
		lock_wrong(tried ? "two locks of one rank" : "lock taken against its rank", rank);
	held |= UINT64_C(1) << rank;
}

static void rank_dropped(enum lock_rank rank)
{
	if (!(held >> rank & 1))
		lock_wrong("lock dropped that is not held", rank);
	held &= ~(UINT64_C(1) << rank);
}

static void rank_waits(enum lock_rank rank)
{
	if (held >> rank != 1)
		lock_wrong("wait with a lock that is not the last that was taken", rank);
}

void lock_assert_held(enum lock_rank rank)
{
	if (!(held >> rank & 1))
		lock_wrong("called without the lock it needs", rank);
}
#else
#define rank_taken(rank, tried) ((void)(rank))
#define rank_dropped(rank)      ((void)(rank))
#define rank_waits(rank)        ((void)(rank))
#endif

void lock_init(struct lock *lock, enum lock_rank rank)
{
	pthread_mutex_init(&lock->mutex, NULL);
	lock->rank = rank;
}

void lock_take(struct lock *lock)
{
	int before = PTHREAD_CANCEL_ENABLE;

	rank_taken(lock->rank, false);
	if (not_cancelled[lock->rank])
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	pthread_mutex_lock(&lock->mutex);
	if (not_cancelled[lock->rank])
		lock->cancel = before;
}

bool lock_try(struct lock *lock)
{
	if (pthread_mutex_trylock(&lock->mutex))
		return false;
	rank_taken(lock->rank, true);
	if (not_cancelled[lock->rank])
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &lock->cancel);
	return true;
}

void lock_drop(struct lock *lock)
{
	bool cancellable = not_cancelled[lock->rank] && lock->cancel == PTHREAD_CANCEL_ENABLE;

	pthread_mutex_unlock(&lock->mutex);
	if (cancellable)
		pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	rank_dropped(lock->rank);
}

int lock_wait(struct lock *lock, struct clock_cond *cond, const struct timespec *until)
{
	int before = lock->cancel;

	rank_waits(lock->rank);
	int error = clock_wait(cond, &lock->mutex, until);
	lock->cancel = before;
	return error;
}
