/*
 * plan_jobs_test.c: the plan in charge of whole jobs, recorded on a real GPU (test/data) and made up, against Belady's
 * rule. The records are of test/gpu: gpt.py, and of spill_jobs.py conv (ResNet-50) and lengths.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "test/unit/plan_sim.h"
#include "test/unit/seed.h"

#define IN_FLIGHT 6
#define CAP       16u /* units: 32 MiB */

static struct sim_setting setting(const struct sim_trace *trace, double ratio, uint32_t from)
{
	return (struct sim_setting){
	    .budget_units = (uint64_t)((double)trace->need_units / ratio),
	    .ahead_units = 128,
	    .in_flight = IN_FLIGHT,
	    .launch_us = 63,
	    .submit_us = 10,
	    .gb_per_s = 50.85,
	    .latency_us = 100,
	    .run_ahead = 1000,
	    .from = from,
	};
}

/* Bytes brought in, over Belady's with the room that transfers take set aside. */
static double over_belady(const struct sim_trace *trace, double ratio, uint32_t from, struct sim_result *result)
{
	struct sim_setting s = setting(trace, ratio, from);

	assert_true(sim_run(trace, &s, result));
	uint64_t least = sim_belady(trace, s.budget_units - 2 * IN_FLIGHT * CAP, from);
	double over = (double)result->bytes_in / (double)least;
	printf("  ratio %.2f: %.2f GB in, %.3f x Belady, %.0f ms simulated, %.3f foreseen\n", ratio,
	       (double)result->bytes_in / 1e9, over, result->ms, result->foreseen / (double)(trace->n_launches - from));
	return over;
}

static void a_real_job_moves_little_more_than_belady(void **state)
{
	(void)state;
	struct sim_trace trace;
	struct sim_result result;
	const double ratios[] = {1.25, 1.5, 2.0};

	assert_true(sim_load(&trace, TRACE, CAP));
	for (int i = 0; i < 3; i++) {
		assert_true(over_belady(&trace, ratios[i], trace.n_launches - 4 * 1099, &result) <= 1.10);
		assert_int_equal(result.foreseen, 4 * 1099);
		/* The first two steps differ, as memory is still being allocated; the third is foreseen. */
		struct sim_setting s = setting(&trace, ratios[i], trace.n_launches - 6 * 1099);
		assert_true(sim_run(&trace, &s, &result));
		assert_true(result.foreseen > 6 * 1099 * 98 / 100);
	}
	sim_unload(&trace);
}

/* 19 steps each, of which the last half counts, as for the bars on a real GPU. */
static void a_job_of_other_layers_moves_no_more_either(void **state)
{
	const double ratios[] = {1.25, 1.5, 2.0};
	struct sim_result result;
	struct sim_trace trace;

	(void)state;
	assert_true(sim_load(&trace, RESNET_TRACE, CAP));
	for (int i = 0; i < 3; i++)
		assert_true(over_belady(&trace, ratios[i], trace.n_launches / 2, &result) <= 1.10);
	sim_unload(&trace);
}

/*
 * A GPT whose sequences are of another length in each step: of two steps of the same length 10 to 48 % of the launches
 * name the same memory, so what comes next is a guess. 1.10, as for the others, is missed; these hold what is reached
 * (1.67, 1.33, 1.22).
 */
static void a_job_whose_steps_differ_moves_no_more_than_it_did(void **state)
{
	const double ratios[] = {1.25, 1.5, 2.0}, most[] = {1.75, 1.4, 1.28};
	struct sim_result result;
	struct sim_trace trace;

	(void)state;
	assert_true(sim_load(&trace, LENGTHS_TRACE, CAP));
	for (int i = 0; i < 3; i++)
		assert_true(over_belady(&trace, ratios[i], trace.n_launches / 2, &result) <= most[i]);
	sim_unload(&trace);
}

enum odd {
	SKIPS,     /* the end of a step is left out now and then */
	VALIDATES, /* another pass comes in between */
	VARIES,    /* a third of the pieces is another one in each step */
	WANDERS,   /* each step has its memory in another order, and other kernels for some of the work */
	ODDS,      /* must be last */
};

enum { LAYERS = 24, STEPS = 14 };

static void shuffle(struct seed *seed, uint32_t *blocks)
{
	for (unsigned i = LAYERS - 1; i; i--) {
		unsigned k = (unsigned)seed_below(seed, i + 1);
		uint32_t block = blocks[i];

		blocks[i] = blocks[k];
		blocks[k] = block;
	}
}

/* A product of another size is done by another kernel, with or without one before it that clears the result. */
static void add_product(struct sim_trace *trace, int step, uint64_t function, const uint32_t *pieces, uint32_t n)
{
	if (step % 3 == 1)
		sim_add_event(trace, SIM_LAUNCH, 5000, &pieces[1], 1);
	sim_add_event(trace, SIM_LAUNCH, function + 300 * (uint64_t)(1 + step % 5), pieces, n);
}

/* Blocks for weights, their states and activations; forth, back, and an update of everything. */
static void make_job(struct sim_trace *trace, enum odd odd)
{
	uint32_t weight[LAYERS], moment[LAYERS], act[3][LAYERS];
	struct seed seed = {.state = 7};

	*trace = (struct sim_trace){0};
	for (int i = 0; i < LAYERS; i++) {
		weight[i] = sim_add_block(trace, 16, CAP);
		moment[i] = sim_add_block(trace, 32, CAP);
		for (int v = 0; v < (odd == VARIES ? 3 : 1); v++)
			act[v][i] = sim_add_block(trace, 32, CAP);
	}
	for (int step = 0; step < STEPS; step++) {
		uint32_t *now = act[odd == VARIES ? step % 3 : 0];

		if (odd == WANDERS)
			shuffle(&seed, now);

		for (int k = 0; k < LAYERS * 12; k++) {
			int i = k / 12;
			uint32_t pieces[4] = {weight[i], now[i], now[i] + CAP, now[i ? i - 1 : 0]};

			if (odd == WANDERS && k % 4 == 1)
				add_product(trace, step, (uint64_t)(k % 12), pieces, 4);
			else
				sim_add_event(trace, SIM_LAUNCH, (uint64_t)(k % 12), pieces, 4);
		}
		for (int k = LAYERS * 24 - 1; k >= 0; k--) {
			int i = k / 24;
			uint32_t pieces[3] = {weight[i], now[i], now[i] + CAP};

			if (odd == WANDERS && k % 4 == 2)
				add_product(trace, step, (uint64_t)(100 + k % 24), pieces, 3);
			else
				sim_add_event(trace, SIM_LAUNCH, (uint64_t)(100 + k % 24), pieces, 3);
		}
		for (int i = 0; i < LAYERS && !(odd == SKIPS && step % 4 == 3); i++) {
			uint32_t pieces[3] = {weight[i], moment[i], moment[i] + CAP};

			sim_add_event(trace, SIM_LAUNCH, (uint64_t)(1000 + i), pieces, 3);
		}
		for (int k = 0; k < LAYERS * 6 && odd == VALIDATES && step % 3 == 2; k++)
			sim_add_event(trace, SIM_LAUNCH, (uint64_t)(2000 + k % 6), (uint32_t[]){weight[k / 6], now[0]},
				      2);
	}
}

static void odd_steps_cost_little(void **state)
{
	(void)state;
	const double most[] = {[SKIPS] = 1.4, [VALIDATES] = 1.5, [VARIES] = 1.5, [WANDERS] = 1.7};

	for (int odd = 0; odd < ODDS; odd++) {
		struct sim_trace trace;
		struct sim_result result;

		make_job(&trace, (enum odd)odd);
		assert_true(over_belady(&trace, 1.5, trace.n_launches / 2, &result) <= most[odd]);
		assert_true(result.foreseen > 0.8 * (trace.n_launches - trace.n_launches / 2));
		sim_unload(&trace);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_real_job_moves_little_more_than_belady),
	    cmocka_unit_test(a_job_of_other_layers_moves_no_more_either),
	    cmocka_unit_test(a_job_whose_steps_differ_moves_no_more_than_it_did),
	    cmocka_unit_test(odd_steps_cost_little),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
