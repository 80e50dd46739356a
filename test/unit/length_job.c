// SPDX-License-Identifier: Apache-2.0
#include "test/test.h"
#include "test/unit/length_job.h"

/* Sizes in grains. Those of activations are for each unit of length. */
#define WEIGHT     13u
#define STATE      14u
#define ACTIVATION 5u
#define SCRATCH    7u
#define OUT        9u

/* Returns a range of that length that is free, any one. */
static uint64_t length_anywhere(struct length_job *job, uint64_t grains)
{
	const struct naive_fit *fit = &job->fit;

	for (;;) {
		uint64_t at = seed_below(job->anywhere, NAIVE_GRAINS - grains), i = 0;

		while (i < grains && fit->state[at + i] == NAIVE_FREE && fit->block[at + i] == fit->block[at])
			i++;
		if (i == grains)
			return at * NAIVE_GRAIN;
	}
}

static struct length_tensor length_birth(struct length_job *job, uint64_t grains)
{
	struct length_tensor tensor = {.bytes = grains * NAIVE_GRAIN};

	if (job->anywhere) {
		tensor.begin = length_anywhere(job, grains);
		memset(job->fit.state + tensor.begin / NAIVE_GRAIN, NAIVE_USED, grains);
	} else {
		assert_true(naive_take(&job->fit, tensor.bytes, &tensor.begin, &tensor.bytes));
	}
	if (job->calls.birth)
		job->calls.birth(tensor.begin, tensor.begin + tensor.bytes);
	return tensor;
}

static void length_death(struct length_job *job, struct length_tensor tensor)
{
	if (!tensor.bytes)
		return;
	naive_give(&job->fit, tensor.begin, tensor.bytes);
	if (job->calls.death)
		job->calls.death(tensor.begin, tensor.begin + tensor.bytes);
}

static void length_launch(struct length_job *job, uint64_t function, const struct length_tensor *named, unsigned n)
{
	if (job->calls.launch)
		job->calls.launch(function, named, n);
}

void length_begin(struct length_job *job, struct length_calls calls, const uint64_t *blocks, unsigned n)
{
	uint64_t at = 0;

	*job = (struct length_job){.calls = calls, .anywhere = job->anywhere};
	for (unsigned i = 0; i < n; at += blocks[i++])
		naive_block(&job->fit, at, at + blocks[i]);
	for (unsigned i = 0; i < LENGTH_LAYERS; i++) {
		job->weight[i] = length_birth(job, WEIGHT);
		job->state[i] = length_birth(job, STATE);
	}
}

void length_step(struct length_job *job, unsigned length)
{
	struct length_tensor activation[LENGTH_LAYERS], gradient[LENGTH_LAYERS], back = {0}, before = job->out;

	for (unsigned i = 0; i < LENGTH_LAYERS; i++) {
		struct length_tensor scratch = length_birth(job, SCRATCH * length);

		activation[i] = length_birth(job, ACTIVATION * length);
		length_launch(job, 1, (struct length_tensor[]){job->weight[i], activation[i ? i - 1 : 0], scratch}, 3);
		length_launch(job, 2, (struct length_tensor[]){scratch, activation[i]}, 2);
		length_death(job, scratch);
	}
	job->out = length_birth(job, OUT * length);
	length_launch(job, 3, (struct length_tensor[]){activation[LENGTH_LAYERS - 1], job->out}, 2);
	length_death(job, before);
	for (unsigned i = LENGTH_LAYERS; i-- > 0;) {
		struct length_tensor next = length_birth(job, ACTIVATION * length);

		gradient[i] = length_birth(job, WEIGHT);
		length_launch(job, 4, (struct length_tensor[]){job->weight[i], activation[i], next, gradient[i]}, 4);
		length_death(job, activation[i]);
		length_death(job, back);
		back = next;
	}
	length_death(job, back);
	for (unsigned i = 0; i < LENGTH_LAYERS; i++) {
		length_launch(job, 5, (struct length_tensor[]){job->weight[i], job->state[i], gradient[i]}, 3);
		length_death(job, gradient[i]);
	}
}
