// SPDX-License-Identifier: Apache-2.0
/*
 * turns_soak.h: what the processes of a soak of turns (turns_soak.c) share with the one that watches them: a page of
 * memory, which outlives each of them.
 */
#ifndef PRELOAD_TURNS_SOAK_H
#define PRELOAD_TURNS_SOAK_H

#include "test/libc.h"

#include <stdatomic.h>

#define SOAK_MOST 16

/* What a job is to do (ends). */
enum { SOAK_RUNS, SOAK_CHECKS_AND_ENDS, SOAK_ENDS_AT_ONCE };

/* Times are ns of CLOCK_MONOTONIC. */
struct soak_job {
	_Atomic uint64_t operations, checks, kernels, troubles;
	_Atomic uint64_t disturbed; /* when it was last stopped, or went on */
	_Atomic unsigned ends;
};

struct soak {
	_Atomic bool calm;        /* no trouble from now on */
	_Atomic uint64_t damaged; /* when the account was last damaged */
	struct soak_job jobs[SOAK_MOST];
};

#endif
