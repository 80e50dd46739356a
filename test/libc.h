// SPDX-License-Identifier: Apache-2.0
/*
 * libc.h: what nearly every test needs of the C library, and units. test.h, check.h and sim.h include it.
 */
#ifndef TEST_LIBC_H
#define TEST_LIBC_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define MS  UINT64_C(1000000) /* in ns */

/* Callbacks and fakes of tests take what they have no use for. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* CLOCK_MONOTONIC, in ns. */
static inline uint64_t test_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Waits for what another thread or process does. If it never does, the test's time limit tells. */
#define UNTIL(condition)                                                                                               \
	do {                                                                                                           \
		while (!(condition))                                                                                   \
			usleep(100);                                                                                   \
	} while (0)

/* Begins a thread. */
static inline pthread_t test_thread(void *(*routine)(void *argument), void *argument)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, routine, argument))
		abort();
	return thread;
}

/* Runs it in a thread of its own, to its end. */
static inline void test_beside(void *(*routine)(void *argument), void *argument)
{
	if (pthread_join(test_thread(routine, argument), NULL))
		abort();
}

#endif
