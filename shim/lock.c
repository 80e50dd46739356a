#include "shim/lock.h"

#include <stdlib.h>
#include <unistd.h>

#ifdef SPILLWAY_DEBUG
static __thread unsigned held;

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
	rank_taken(lock->rank);
	pthread_mutex_lock(&lock->mutex);
}

void lock_drop(struct lock *lock)
{
	pthread_mutex_unlock(&lock->mutex);
	rank_dropped(lock->rank);
}
