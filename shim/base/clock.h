/*
 * clock.h: the time, and the ends of waits. Not for the launch path where nothing is under pressure: there no clock is
 * asked (quiet_test).
 */
#ifndef SPILLWAY_CLOCK_H
#define SPILLWAY_CLOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* ns, CLOCK_MONOTONIC. */
uint64_t clock_now(void);
/* ns since 1970. */
uint64_t clock_wall(void);
/* The time on CLOCK_MONOTONIC in ns nanoseconds: what clock_wait() takes. */
struct timespec clock_in(uint64_t ns);
/* Less than a second; sooner where a signal comes. A cancellation point. */
void clock_sleep(uint64_t ns);

/*
 * A condition whose timed waits end by CLOCK_MONOTONIC. A plain pthread_cond_t waits by CLOCK_REALTIME: where somebody
 * sets that clock back by 20 s (NTP, a resumed virtual machine), each wait under way lasts 20 s longer. The clock can
 * only be chosen at run time, so the first wait prepares the condition; zeros are its initial value.
 */
struct clock_cond {
	pthread_cond_t cond;
	atomic_bool ready;
};

/*
 * Wait until woken, or until the time clock_in() gave: 0 or ETIMEDOUT. All waiters must use the same mutex. A
 * cancellation point. Locking: the caller holds the mutex.
 */
int clock_wait(struct clock_cond *cond, pthread_mutex_t *mutex, const struct timespec *until);
/* Wake all that wait, or one of them. Locking: none needed. */
void clock_wake_all(struct clock_cond *cond);
void clock_wake_one(struct clock_cond *cond);

#endif
