// SPDX-License-Identifier: Apache-2.0
/*
 * A program for torch_trace_test.c: works with the simulated allocator (torch_help.h) as PyTorch does, and prints what
 * a trace of it must hold. Weights live as long as the program. Arguments: "train", where what a step computes is born
 * on the way forward and dies on the way back, or "pass", where it dies once the next layer has read it; and the number
 * of steps.
 */
#include "test/preload/torch_help.h"

enum { LAYERS = 6 };
#define WEIGHTS     (2 * MIB)
#define ACTIVATIONS (6 * MIB) /* in a segment of its own */

static unsigned long births, deaths;

static struct tensor born(size_t bytes)
{
	births++;
	return tensor_new(bytes, NULL);
}

static void die(const struct tensor *tensor)
{
	deaths++;
	tensor_free(tensor);
}

/* Keeps 52 MiB, all of which is alive at the end of the way forward. */
static void train(struct tensor weights[LAYERS])
{
	struct tensor made[LAYERS];

	for (unsigned i = 0; i < LAYERS; i++) {
		made[i] = born(ACTIVATIONS);
		tensor_copy_late(&made[i], &made[i ? i - 1 : 0], 0, NULL);
		tensor_copy_late(&weights[i], &made[i], 0, NULL);
	}
	for (unsigned i = LAYERS; i-- > 0;) {
		tensor_copy_late(&weights[i], &made[i], 0, NULL);
		die(&made[i]);
	}
	tensor_fill(&weights[0], NULL); /* by another kernel, so that a step is known by it */
	MUST(cu.cuStreamSynchronize(NULL));
}

/*
 * Each layer reads what the one before has computed, which dies then. The next layer's output is larger, so that it
 * cannot have the same place. Of the 82 MiB that this keeps, at most 46 are alive at a time.
 */
static void pass(struct tensor weights[LAYERS])
{
	struct tensor before = {0}, now;

	for (unsigned i = 0; i < LAYERS; i++) {
		now = born(ACTIVATIONS + i * 2 * MIB);
		tensor_fill(&now, NULL);
		tensor_copy_late(&weights[i], i ? &before : &now, 0, NULL);
		if (i)
			die(&before);
		before = now;
	}
	die(&before);
	tensor_copy_late(&weights[0], &weights[1], 0, NULL);
	MUST(cu.cuStreamSynchronize(NULL));
}

int main(int argc, char **argv)
{
	void (*one)(struct tensor weights[LAYERS]) = argc > 1 && !strcmp(argv[1], "train") ? train : pass;
	unsigned long steps = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
	struct tensor weights[LAYERS];

	torch_begin();
	for (unsigned i = 0; i < LAYERS; i++) {
		weights[i] = born(WEIGHTS);
		tensor_fill(&weights[i], NULL);
	}
	for (unsigned long i = 0; i < steps; i++)
		one(weights);
	printf("births %lu\ndeaths %lu\nkept %zu\n", births, deaths, torch->reserved(torch_cache));
	return 0;
}
