// SPDX-License-Identifier: Apache-2.0
/*
 * slow_clock.c: a monotonic clock that can run slower for this process alone (slow_clock.h). The program exports these
 * functions, so that they come before the C library's for everybody in the process.
 */
#include "test/preload/slow_clock.h"
#include "test/libc.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#define SECOND 1000000000ll
/* Deadlines after this are of the time of day: no machine has run so long, and the program runs later than 2001. */
#define FIRST_DAY 1000000000ll
/* ns: waits that shall last no longer than this are naps of those who look again and again; they last as ever. */
#define NAP_NS 20000000ll

/*
 * At `kernels` it was `ours`, and since then our clock runs so many times slower. Readers may hold an old one: none
 * goes.
 */
struct rate {
	int64_t kernels, ours, slower;
};
static const struct rate as_ever = {0, 0, 1};
static const struct rate *_Atomic rate = &as_ever;
static _Atomic int64_t passed;

static int64_t kernels_now(void)
{
	struct timespec now;

	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
	return now.tv_sec * SECOND + now.tv_nsec;
}

static int64_t by(const struct rate *which, int64_t kernels)
{
	return which->ours + (kernels - which->kernels) / which->slower;
}

static void change(int64_t slower)
{
	struct rate *next = malloc(sizeof(*next));

	next->kernels = kernels_now();
	next->ours = by(rate, next->kernels);
	next->slower = slower;
	rate = next;
}

void slow_clock_begin(void)
{
	change(SLOW_CLOCK);
}

void slow_clock_end(void)
{
	change(1);
}

void slow_clock_pass(unsigned us)
{
	atomic_fetch_add(&passed, (int64_t)us * 1000);
}

static struct timespec time_of(int64_t ns)
{
	return (struct timespec){.tv_sec = ns / SECOND, .tv_nsec = ns % SECOND};
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
	if (clock != CLOCK_MONOTONIC)
		return (int)syscall(SYS_clock_gettime, clock, ret);
	*ret = time_of(by(rate, kernels_now()) + passed);
	return 0;
}

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
			   const struct timespec *restrict end)
{
	static _Atomic(int (*)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *)) next;
	int (*call)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *) = next;

	if (!call) {
		call = (int (*)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *))dlsym(
		    RTLD_NEXT, "pthread_cond_timedwait");
		next = call;
	}
	if (end->tv_sec >= FIRST_DAY)
		return call(cond, mutex, end);
	const struct rate *now_by = rate;
	int64_t now = kernels_now(), left = end->tv_sec * SECOND + end->tv_nsec - by(now_by, now) - passed;
	struct timespec until = time_of(now + (left > NAP_NS ? left * now_by->slower : left > 0 ? left : 0));
	return call(cond, mutex, &until);
}
