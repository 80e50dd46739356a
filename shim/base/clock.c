// SPDX-License-Identifier: Apache-2.0
/*
 * The clocks, and conditions whose waits end by CLOCK_MONOTONIC.
 */
#include "shim/base/clock.h"

#define SECOND 1000000000ull

static uint64_t read_clock(clockid_t which)
{
	struct timespec now;

	clock_gettime(which, &now);
	return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

uint64_t clock_now(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

uint64_t clock_wall(void)
{
	return read_clock(CLOCK_REALTIME);
}

uint64_t clock_thread(void)
{
	return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

struct timespec clock_in(uint64_t ns)
{
	uint64_t then = clock_now() + ns;

	return (struct timespec){.tv_sec = (time_t)(then / SECOND), .tv_nsec = (long)(then % SECOND)};
}

void clock_sleep(uint64_t ns)
{
	nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

/*
 * Uses pthread_condattr_setclock(), since glibc 2.28 has no pthread_cond_clockwait(). One thread at a time prepares the
 * condition: the caller holds the mutex.
 */
int clock_wait(struct clock_cond *cond, pthread_mutex_t *mutex, const struct timespec *until)
{
	pthread_condattr_t attributes;

	if (!atomic_load_explicit(&cond->ready, memory_order_relaxed)) {
		pthread_condattr_init(&attributes);
		pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
		pthread_cond_init(&cond->cond, &attributes);
		pthread_condattr_destroy(&attributes);
		atomic_store_explicit(&cond->ready, true, memory_order_release);
	}
	return pthread_cond_timedwait(&cond->cond, mutex, until);
}

/* Before the first wait no thread can be waiting. */
void clock_wake_all(struct clock_cond *cond)
{
	if (atomic_load_explicit(&cond->ready, memory_order_acquire))
		pthread_cond_broadcast(&cond->cond);
}
