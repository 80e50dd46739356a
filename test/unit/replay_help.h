// SPDX-License-Identifier: Apache-2.0
/*
 * replay_help.h: a job for replay, made by hand: blocks and launches into a model, and a run of it. One of each, for
 * tests that begin with setup() and end with teardown(). Include before cmocka.h.
 */
#ifndef UNIT_REPLAY_HELP_H
#define UNIT_REPLAY_HELP_H

#include "test/libc.h"
#include "policy/policy.h"
#include "tools/replay/replay_run.h"

extern struct replay_model model;
extern struct job *job; /* made by run(), or by the test; ended by teardown() */

int setup(void **state);
int teardown(void **state);

uint32_t block(uint64_t bytes);
void launch(uint64_t function, unsigned n, const uint32_t *blocks);
/* What the allocator reports of a part of a block, and a launch that names one byte of a block. */
void report(enum replay_kind kind, uint32_t of, uint64_t offset, uint64_t bytes);
void name(uint64_t function, uint32_t of, uint64_t offset);
/* n blocks of that size, named one after the other, so many times. */
void cycle(unsigned n, uint64_t bytes, unsigned times);
/* The model under that mode and those budgets, each submission taking so long. */
struct run_result run(enum policy_spill mode, uint64_t budget, uint64_t host, double launch_us);

/* The least that a step of the model moves at that budget, by Belady's rule. */
struct replay_point least_at(uint64_t budget);

/*
 * A policy of that text, in a file whose name is written over `name`, which must end in XXXXXX and five more
 * characters.
 */
struct policy *policy_of(const char *text, char *name);

#endif
