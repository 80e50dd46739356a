// SPDX-License-Identifier: Apache-2.0
/*
 * on_use_help.h: what the tests of place: on-use share: a program on a device of 256 MiB, in a process of its own
 * (child.h) under on_use.yaml, and what its figures say.
 */
#ifndef PRELOAD_ON_USE_HELP_H
#define PRELOAD_ON_USE_HELP_H

#include "shim/spillway.h"
#include "test/preload/figures_help.h"
#include "test/test.h"

/* Nine tenths of the device, and a third of that; the budget of on_use_run() is half of the device. */
#define RESERVED (230 * MIB)
#define USED     (76 * MIB)
/* Memory is taken in such multiples: the largest piece, for this budget. */
#define GRAIN (4 * MIB)

/* What the program's figures say now. */
uint64_t on_use_counted(enum stats_counter counter);
uint64_t on_use_live(enum place place);

/* By sets and by copies to the host, whose ranges are known: words of a value; are they? */
void on_use_set(CUdeviceptr at, unsigned value, size_t bytes);
bool on_use_is(CUdeviceptr at, unsigned value, size_t bytes);
/* What the program says of parts of a block. */
void on_use_born(CUdeviceptr at, size_t bytes);
void on_use_discard(CUdeviceptr at, size_t bytes);

/* The mode that the test is for. A part of a test as a program: in that mode or another one, with these budgets. */
const char *on_use_mode(void);
void on_use_run_as(const char *mode, const char *budgets, void (*part)(void));
void on_use_run(void (*part)(void));
/* How such a part ends, which begins with device 0: nothing is left of what it has freed. */
void on_use_end(void);

#endif
