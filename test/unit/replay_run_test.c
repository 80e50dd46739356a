// SPDX-License-Identifier: Apache-2.0
/*
 * What replay predicts: the library's planner in charge of a job stays within the budgets and ends, an allocation that
 * cannot be is named, and the GPT job comes out as measured.
 */
#include "test/test.h"
#include "test/unit/replay_help.h"
#include "test/unit/seed.h"

/* ---- runs ---- */

TEST(what_fits_takes_its_own_time)
{
	cycle(8, 64 * MIB, 100);
	for (enum policy_spill mode = POLICY_SPILL_OFF; mode < POLICY_SPILL_COUNT; mode++) {
		struct run_result result = run(mode, 512 * MIB, 1 << 30, 1000);

		assert_int_equal(result.end, RUN_DONE);
		assert_true(result.step_ms > 7.99 && result.step_ms < 8.1);
		assert_true(result.bytes_in == 0 && result.bytes_out == 0 && result.bytes_link == 0);
		assert_int_equal(result.peak_device, 512 * MIB);
		assert_int_equal(result.peak_host, 0);
	}
}

/* What the link carries beside kernels is one thing, in a gap it is another. */
TEST(each_mode_has_its_share_of_the_link)
{
	static const enum policy_spill modes[] = {POLICY_SPILL_FAST, POLICY_SPILL_EXACT};
	struct run_result all, less;

	cycle(8, 64 * MIB, 100);
	for (unsigned i = 0; i < 2; i++) {
		struct run_setting how = {
		    .mode = modes[i], .budget = 320 * MIB, .host_budget = 1 << 30, .costs = run_costs_default()};

		job_free(job);
		job = job_new(&model, &(struct job_setting){.budget = 320 * MIB});
		how.steps = replay_find_steps(job, REPLAY_STEPS);
		/* Copies alone: in gaps of so few pieces it is mapping that takes the time. */
		how.costs.map_host_busy = how.costs.unmap_host_busy = (struct run_map_cost){0, 0};
		run_job(job, &how, &all);
		*(i ? &how.costs.fast_share : &how.costs.share) /= 2; /* the other's */
		run_job(job, &how, &less);
		assert_true(less.step_ms == all.step_ms);
		*(i ? &how.costs.share : &how.costs.fast_share) /= 2;
		run_job(job, &how, &less);
		assert_true(less.step_ms > 1.3 * all.step_ms);
	}
}

/* In a gap one thread makes all mappings, one after the other: when they take long, the link waits for them. */
TEST(mappings_that_take_long_hold_up_a_gap)
{
	struct run_setting how = {
	    .mode = POLICY_SPILL_EXACT, .budget = 320 * MIB, .host_budget = 1 << 30, .costs = run_costs_default()};
	struct run_result result;

	cycle(8, 64 * MIB, 100);
	job_free(job);
	job = job_new(&model, &(struct job_setting){.budget = 320 * MIB});
	how.steps = replay_find_steps(job, REPLAY_STEPS);
	how.costs.map_host = how.costs.map_host_busy = (struct run_map_cost){0, 200};
	run_job(job, &how, &result);
	assert_true(result.bytes_out > 0);
	assert_true(result.step_ms >= 0.2 * result.bytes_out / MIB);
}

TEST(what_does_not_fit_takes_longer_than_the_least)
{
	static const enum policy_spill modes[] = {POLICY_SPILL_FAST, POLICY_SPILL_EXACT};
	cycle(16, 64 * MIB, 100);
	uint64_t budget = 640 * MIB;
	struct replay_point point = least_at(budget);
	for (unsigned i = 0; i < 2; i++) {
		struct run_result result = run(modes[i], budget, (uint64_t)4 << 30, 100);

		assert_int_equal(result.end, RUN_DONE);
		assert_true(result.bytes_in >= 0.9 * point.bytes_in && result.bytes_in <= 2 * point.bytes_in);
		assert_true(result.step_ms >= point.bytes_in / 50.6e6);
		assert_true(result.peak_device <= budget);
		assert_true(result.peak_host >= 384 * MIB);
		assert_true((result.gaps > 0) == (modes[i] == POLICY_SPILL_EXACT));
	}
}

TEST(without_time_of_its_own_a_step_takes_that_of_the_link)
{
	cycle(16, 64 * MIB, 100);
	struct run_result result = run(POLICY_SPILL_FAST, 640 * MIB, (uint64_t)4 << 30, 0);
	assert_int_equal(result.end, RUN_DONE);
	assert_true(result.step_ms > 0);
}

TEST(what_lies_on_the_host_is_read_over_the_link_in_static)
{
	cycle(4, 64 * MIB, 50);
	struct run_result result = run(POLICY_SPILL_STATIC, 192 * MIB, 1 << 30, 100);
	assert_int_equal(result.end, RUN_DONE);
	assert_true(result.bytes_link == 64.0 * MIB);
	assert_true(result.bytes_in == 0);
	assert_int_equal(result.peak_host, 64 * MIB);
}

TEST(the_allocation_that_does_not_fit_is_named)
{
	cycle(8, 64 * MIB, 10);
	struct run_result result = run(POLICY_SPILL_OFF, 300 * MIB, 1 << 30, 10);
	assert_int_equal(result.end, RUN_NO_DEVICE);
	assert_int_equal(model.blocks[result.block].order, 5);
	assert_int_equal(result.device_used, 256 * MIB);
	result = run(POLICY_SPILL_FAST, 300 * MIB, 130 * MIB, 10);
	assert_int_equal(result.end, RUN_NO_MEMORY);
	assert_int_equal(model.blocks[result.block].order, 7);
	/* Pieces are of 8 MiB with that budget, and 40 MiB of the fifth block were still on the device. */
	assert_int_equal(result.host_used, 88 * MIB);
	assert_true(result.step_ms == 0);
}

TEST(memory_that_must_not_move_stays)
{
	char name[] = "/tmp/replay_run_test.XXXXXX.yaml";
	struct policy *policy =
	    policy_of("version: 1\nrules:\n  - {match: {order: \"first 4\"}, use: heap, movable: no}\n", name);
	struct run_setting how = {
	    .mode = POLICY_SPILL_FAST, .budget = 320 * MIB, .host_budget = 1 << 30, .costs = run_costs_default()};
	struct run_result result;

	cycle(8, 64 * MIB, 40);
	job = job_new(&model, &(struct job_setting){.budget = 320 * MIB, .policy = policy});
	how.steps = replay_find_steps(job, 4);
	run_job(job, &how, &result);
	assert_int_equal(result.end, RUN_DONE);
	/* One place is left for four: each comes in each time. */
	assert_true(result.bytes_in > 3.5 * 64 * MIB && result.bytes_in < 4.5 * 64 * MIB);
	policy_free(policy);
}

/* A step makes all it needs beside 16 blocks that are kept, uses what it made twice, and frees it. */
static void make_anew(unsigned times)
{
	uint32_t kept[16], made[8];

	for (unsigned i = 0; i < 16; i++)
		kept[i] = block(32 * MIB);
	for (unsigned t = 0; t < times; t++) {
		for (unsigned i = 0; i < 8; i++) {
			made[i] = block(32 * MIB);
			launch(1, 2, (uint32_t[]){made[i], kept[i]});
		}
		for (unsigned i = 8; i-- > 0;) {
			launch(2, 2, (uint32_t[]){made[i], kept[8 + i]});
			assert_true(replay_add_end(&model, made[i], 0));
		}
	}
}

/* Nothing of it is worth being copied in: room is made for it first. */
TEST(what_is_made_in_each_step_begins_on_the_device)
{
	make_anew(60);
	for (enum policy_spill mode = POLICY_SPILL_EXACT; mode <= POLICY_SPILL_FAST; mode++) {
		struct run_result result = run(mode, 512 * MIB, (uint64_t)4 << 30, 100);

		assert_int_equal(result.end, RUN_DONE);
		print_message("%.0f MiB in, %.0f out, %.1f gaps a step\n", result.bytes_in / MIB,
			      result.bytes_out / MIB, result.gaps);
		/* In `fast` what comes ahead may leave again. */
		double most = mode == POLICY_SPILL_EXACT ? result.bytes_out : 1.1 * result.bytes_out;
		assert_true(result.bytes_out > 0 && result.bytes_in <= most);
	}
}

TEST(a_budget_smaller_than_one_submission_still_ends)
{
	uint32_t three[] = {block(64 * MIB), block(64 * MIB), block(64 * MIB)};
	for (unsigned i = 0; i < 30; i++)
		launch(i % 3, 3, three);
	for (enum policy_spill mode = POLICY_SPILL_STATIC; mode < POLICY_SPILL_COUNT; mode++) {
		struct run_result result = run(mode, 100 * MIB, 1 << 30, 10);

		assert_int_equal(result.end, RUN_DONE);
		assert_true(result.bytes_link > 0);
	}
}

/* A job of random blocks that come and go, and random submissions, some of them again and again. */
static void make_random(struct seed *seed)
{
	uint32_t live[64];
	unsigned n = 0;

	for (unsigned e = 0; e < 600; e++) {
		uint64_t what = seed_below(seed, 10);

		if (n < 3 || (what == 0 && n < 64)) {
			live[n++] = block(seed_size(seed, 300 * MIB));
		} else if (what == 1) {
			uint64_t which = seed_below(seed, n);

			assert_true(replay_add_end(&model, live[which], 0));
			live[which] = live[--n];
		} else {
			uint32_t named[4];
			unsigned k = (unsigned)seed_below(seed, 4);

			for (unsigned i = 0; i < k; i++)
				named[i] = live[(e / 3 + i) % n];
			launch(e / 3 % 7, k, named);
		}
	}
}

static void run_random(struct seed *seed)
{
	for (unsigned round = 0; round < 60; round++) {
		replay_model_free(&model);
		make_random(seed);
		uint64_t budget = (seed_below(seed, 1000) + 2) * 2 * MIB;

		for (enum policy_spill mode = POLICY_SPILL_STATIC; mode < POLICY_SPILL_COUNT; mode++) {
			uint64_t host = seed_below(seed, 4) ? (uint64_t)64 << 30 : seed_below(seed, 4096) * MIB;
			struct run_result one = run(mode, budget, host, 10), two = run(mode, budget, host, 10);

			assert_true(one.end == RUN_DONE || one.end == RUN_NO_MEMORY);
			assert_true(one.peak_device <= budget && one.peak_host <= host);
			assert_memory_equal(&one, &two, sizeof(one));
		}
	}
}

TEST(any_job_ends_within_its_budgets_and_always_alike)
{
	struct seed seed = seed_start(__func__);

	run_random(&seed);
}

/* While the mover listened to the last submission, all that it would have waited for came about. */
TEST(a_job_ends_whose_mover_listened_for_too_long)
{
	run_random(&(struct seed){.state = 12});
	run_random(&(struct seed){.state = 18});
}

/* ---- the job that was measured ---- */

/*
 * One H200, driver 580: middle of the steps measured, ms (docs/lab/2026-11-27-measurements.md); 14754 MiB, 70 ms a step
 * with all in device memory.
 */
TEST(the_gpt_job_comes_out_as_measured)
{
	static const struct {
		enum policy_spill mode;
		double ratio, ms;
	} measured[] = {
	    {POLICY_SPILL_FAST, 1.25, 145},  {POLICY_SPILL_FAST, 1.5, 232},  {POLICY_SPILL_FAST, 2, 383},
	    {POLICY_SPILL_EXACT, 1.25, 232}, {POLICY_SPILL_EXACT, 1.5, 362}, {POLICY_SPILL_EXACT, 2, 560},
	};

	assert_int_equal(replay_model_read(&model, TRACE), 0);
	for (unsigned i = 0; i < sizeof(measured) / sizeof(*measured); i++) {
		uint64_t budget = (uint64_t)((double)(14754 * MIB) / measured[i].ratio);
		struct run_result result = run(measured[i].mode, budget, (uint64_t)64 << 30, 70e3 / 1099);
		double off = result.step_ms / measured[i].ms - 1;

		assert_int_equal(result.end, RUN_DONE);
		print_message("%s %.2f: %.1f ms, measured %.0f (%+.1f %%)\n", policy_spill_name(measured[i].mode),
			      measured[i].ratio, result.step_ms, measured[i].ms, off * 100);
		assert_true(off > -0.15 && off < 0.15);
	}
}

EACH_TEST(setup, teardown)
