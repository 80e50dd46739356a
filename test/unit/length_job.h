// SPDX-License-Identifier: Apache-2.0
/*
 * length_job.h: a program for tests that trains with sequences of any length, and keeps what the step before has put
 * out, so that its tensors rarely lie where they lay before. Its allocator is that of naive_fit.h, or one without
 * any rule.
 */
#ifndef SPILLWAY_TEST_LENGTH_JOB_H
#define SPILLWAY_TEST_LENGTH_JOB_H

#include "test/unit/naive_fit.h"
#include "test/unit/seed.h"

#define LENGTH_LAYERS   40u
#define LENGTH_LAUNCHES (LENGTH_LAYERS * 4 + 1) /* of a step */
#define LENGTH_NAMES    4u                      /* the most that a launch names */

struct length_tensor {
	uint64_t begin, bytes;
};

/* What the program does. They may be NULL. */
struct length_calls {
	void (*birth)(uint64_t begin, uint64_t end);
	void (*death)(uint64_t begin, uint64_t end);
	void (*launch)(uint64_t function, const struct length_tensor *named, unsigned n);
};

struct length_job {
	struct naive_fit fit;
	struct length_calls calls;
	struct length_tensor weight[LENGTH_LAYERS], state[LENGTH_LAYERS], out;
	struct seed *anywhere; /* tensors are put where this says, not by the rule; NULL: by the rule */
};

/* Begins with blocks of these sizes, one after the other from address 0, and the weights. */
void length_begin(struct length_job *job, struct length_calls calls, const uint64_t *blocks, unsigned n);
/* Runs a step. length: from 1; sizes of activations are multiples of it. */
void length_step(struct length_job *job, unsigned length);

#endif
