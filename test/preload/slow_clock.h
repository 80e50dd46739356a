// SPDX-License-Identifier: Apache-2.0
/*
 * slow_clock.h: for promises that must hold on a machine that stands still for seconds. Between slow_clock_begin() and
 * slow_clock_end() the clock by which the library measures its patience runs SLOW_CLOCK times slower: a standstill of 2
 * s is one of 31 ms, less than the least patience (50 ms), and what takes minutes is no reason to give up. What the
 * library does when its patience ends cannot be tested meanwhile. A program with slow_clock.c among its sources must
 * have ENABLE_EXPORTS.
 */
#ifndef PRELOAD_SLOW_CLOCK_H
#define PRELOAD_SLOW_CLOCK_H

enum { SLOW_CLOCK = 64 };

/* By one thread at a time. At first it is not slow. */
void slow_clock_begin(void);
void slow_clock_end(void);
/* For tests whose work lasts as long as they say: so much time has passed. Also as sim_pauses() takes it. */
void slow_clock_pass(unsigned us);

#endif
