// SPDX-License-Identifier: Apache-2.0
/*
 * trouble_clock.c: a time of day that can be set for this process alone (trouble.h). The program exports these
 * functions, so that they come before the C library's for everybody in the process. A wait until a time of day ends
 * when the emulated clock has reached it, however often it was set meanwhile, as the kernel's waits do.
 */
#include "test/preload/trouble.h"

#include <dlfcn.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>

#define SECOND 1000000000ll
/*
 * Deadlines before this are none of the time of day: the program runs later than 2001, and no machine has run so long.
 */
#define FIRST_DAY 1000000000ll

static _Atomic int64_t offset;

/* The C library's, which is looked for once. */
#define FOUND(of, next)                                                                                                \
	({                                                                                                             \
		if (!atomic_load(&(next)))                                                                             \
			atomic_store(&(next), (__typeof__(&of))dlsym(RTLD_NEXT, #of));                                 \
		atomic_load(&(next));                                                                                  \
	})

void trouble_set_clock(int64_t by)
{
	atomic_fetch_add(&offset, by);
}

static struct timespec later(struct timespec time, int64_t ns)
{
	int64_t sum = time.tv_sec * SECOND + time.tv_nsec + ns;

	return (struct timespec){.tv_sec = sum / SECOND, .tv_nsec = sum % SECOND};
}

static bool is_over(const struct timespec *end)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec > end->tv_sec || (now.tv_sec == end->tv_sec && now.tv_nsec >= end->tv_nsec);
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
	static _Atomic(__typeof__(&clock_gettime)) next;
	/* Not by dlsym() while it has never been set: others ask for the time before there is a loader to ask. */
	__typeof__(&clock_gettime) call = atomic_load(&offset) ? FOUND(clock_gettime, next) : NULL;

	int result = call ? call(clock, ret) : (int)syscall(SYS_clock_gettime, clock, ret);
	if (!result && clock == CLOCK_REALTIME)
		*ret = later(*ret, atomic_load(&offset));
	return result;
}

int gettimeofday(struct timeval *restrict ret, void *restrict zone)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	*ret = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
	return 0;
}

time_t time(time_t *ret)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (ret)
		*ret = now.tv_sec;
	return now.tv_sec;
}

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
			   const struct timespec *restrict end)
{
	static _Atomic(__typeof__(&pthread_cond_timedwait)) next;
	__typeof__(&pthread_cond_timedwait) call = FOUND(pthread_cond_timedwait, next);
	int result;

	if (end->tv_sec < FIRST_DAY)
		return call(cond, mutex, end);
	do {
		struct timespec kernels = later(*end, -atomic_load(&offset));

		result = call(cond, mutex, &kernels);
	} while (result == ETIMEDOUT && !is_over(end));
	return result;
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict end)
{
	static _Atomic(__typeof__(&sem_timedwait)) next;
	__typeof__(&sem_timedwait) call = FOUND(sem_timedwait, next);
	int result;

	do {
		struct timespec kernels = later(*end, -atomic_load(&offset));

		result = call(semaphore, &kernels);
	} while (result && errno == ETIMEDOUT && !is_over(end));
	return result;
}
