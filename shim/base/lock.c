#include "shim/base/lock.h"

#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef SPILLWAY_DEBUG
static __thread unsigned held __attribute__((tls_model("initial-exec")));

static void wrong(const char *text, size_t bytes)
{
	/* A debug build for our own tests: the one place where the library stops its process. */
	ssize_t ignored = write(2, text, bytes);
	(void)ignored;
	abort();
}

static void rank_taken(enum lock_rank rank)
{
	static const char text[] = "spillway: lock taken against its rank\n";
	if (held >> rank)
		wrong(text, sizeof(text) - 1);
	held |= 1u << rank;
}

static void rank_dropped(enum lock_rank rank)
{
	held &= ~(1u << rank);
}

static void rank_waits(enum lock_rank rank)
{
	static const char text[] = "spillway: waits with a lock that is not the last it took\n";
	if (held >> rank != 1)
		wrong(text, sizeof(text) - 1);
}

void lock_assert_held(enum lock_rank rank)
{
	static const char text[] = "spillway: called without the lock it needs\n";
	if (!(held & 1u << rank))
		wrong(text, sizeof(text) - 1);
}
#else
static void rank_taken(enum lock_rank rank)
{
	(void)rank;
}

static void rank_dropped(enum lock_rank rank)
{
	(void)rank;
}

static void rank_waits(enum lock_rank rank)
{
	(void)rank;
}

void lock_assert_held(enum lock_rank rank)
{
	(void)rank;
}
#endif

void lock_init(struct lock *lock, enum lock_rank rank)
{
	pthread_mutex_init(&lock->mutex, NULL);
	lock->rank = rank;
}

void lock_take(struct lock *lock)
{
	int before = PTHREAD_CANCEL_ENABLE;

	rank_taken(lock->rank);
	if (lock->rank != LOCK_LEDGER)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	pthread_mutex_lock(&lock->mutex);
	if (lock->rank != LOCK_LEDGER)
		lock->cancel = before;
}

void lock_drop(struct lock *lock)
{
	bool cancellable = lock->rank != LOCK_LEDGER && lock->cancel == PTHREAD_CANCEL_ENABLE;

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
