/*
 * A program for torch_trace_test.c: trains on the simulated allocator (torch_help.h) as PyTorch does, and prints what a
 * trace of it must hold. What a step computes is born on the way forward, and dies on the way back; weights live as long
 * as the program. Its first argument is the number of steps.
 */
#include "test/preload/torch_help.h"

#include <stdlib.h>
#include <string.h>

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

static void step(struct tensor weights[LAYERS])
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
	MUST(cu.cuStreamSynchronize(NULL));
}

int main(int argc, char **argv)
{
	unsigned long steps = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
	struct tensor weights[LAYERS];

	(void)argv;
	torch_begin(false);
	for (unsigned i = 0; i < LAYERS; i++) {
		weights[i] = born(WEIGHTS);
		tensor_fill(&weights[i], NULL);
	}
	for (unsigned long i = 0; i < steps; i++)
		step(weights);
	printf("births %lu\ndeaths %lu\nkept %zu\n", births, deaths, torch->reserved(torch_cache));
	return 0;
}
