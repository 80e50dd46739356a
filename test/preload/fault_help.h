// SPDX-License-Identifier: Apache-2.0
/*
 * fault_help.h: what the tests of failures in the middle of moves share: a job of two streams that needs twice its
 * budget (scene.h). Called in child processes (child.h), of which each has one scene; a CHECK that fails ends them.
 */
#ifndef PRELOAD_FAULT_HELP_H
#define PRELOAD_FAULT_HELP_H

#include "test/preload/scene.h"

/* The status NEVER_REACHED: the job made fewer calls of that name than it took to fail. */
enum { NEVER_REACHED = 2, ROUNDS = 14, MOST_ROUNDS = 250 };
/* Host memory that the mover has for itself, beside the budget: a word. */
#define OWN 64

extern struct scene scene;

CUstream own_stream(void);
/* The scene and two streams. */
void begin_job(CUstream *ret_one, CUstream *ret_two);
/* n rounds on each stream, in lanes 1 and 2. */
void run_rounds(CUstream one, CUstream two, int n);
/*
 * At the end: all bytes, all blocks given back, as much memory as ever can be had again, within the budgets, and when
 * the context goes everything goes.
 */
void finish_job(CUstream one, CUstream two);

#endif
