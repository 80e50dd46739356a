/*
 * clock.h: reads the clocks and waits with a deadline. The launch path must not read a clock while no device is short
 * of memory (quiet_test).
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
	atomic_bool ready;
};

/*
 * Waits until woken or until the deadline (clock_in()). Returns 0 or ETIMEDOUT. All waiters must use the same mutex. A
 * cancellation point. Locking: the caller must hold the mutex.
 */
int clock_wait(struct clock_cond *cond, pthread_mutex_t *mutex, const struct timespec *until);
/* Wake all waiters, or one of them. Locking: the caller need not hold the mutex. */
void clock_wake_all(struct clock_cond *cond);
void clock_wake_one(struct clock_cond *cond);

#endif
