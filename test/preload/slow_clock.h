/*
 * slow_clock.h: for programs whose promises must hold on a machine that stands still for seconds. The clock by which the
 * library measures its patience runs SLOW_CLOCK times slower: a standstill of 2 s is one of 31 ms, less than the least
 * patience (50 ms), and what takes minutes is no reason to give up. A program that has slow_clock.c among its sources
 * must have ENABLE_EXPORTS. It cannot test what the library does when its patience ends.
 */
#ifndef PRELOAD_SLOW_CLOCK_H
#define PRELOAD_SLOW_CLOCK_H

enum { SLOW_CLOCK = 64 };

/* For tests whose work lasts as long as they say: so much time has passed. Also as sim_pauses() takes it. */
void slow_clock_pass(unsigned us);

#endif
