/*
 * clock.h: the time, and the ends of waits. Not for the launch path where nothing is under pressure: there no clock is
 * asked (quiet_test).
 */
#ifndef SPILLWAY_CLOCK_H
#define SPILLWAY_CLOCK_H

#include <stdint.h>
#include <time.h>

/* ns, CLOCK_MONOTONIC. */
uint64_t clock_now(void);
/* ns since 1970. */
uint64_t clock_wall(void);
/* So many ns from now, as pthread_cond_timedwait() has it: CLOCK_REALTIME. */
struct timespec clock_in(uint64_t ns);
/* Less than a second; sooner where a signal comes. A cancellation point. */
void clock_sleep(uint64_t ns);

#endif
