/*
 * What replay predicts: the least that must move is right where it can be counted by hand, the library's planner in charge of
 * a job stays within the budgets and ends, an allocation that cannot be is named, and the GPT job comes out as measured.
 */
#include "test/unit/seed.h"
#include "tools/replay_curve.h"
#include "tools/replay_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB UINT64_C(1048576)

static struct replay_model model;
static struct job *job;

static int setup(void **state)
{
	(void)state;
	model = (struct replay_model){.kind = "made by hand"};
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	job_free(job);
	job = NULL;
	replay_model_free(&model);
	return 0;
}

static uint32_t block(uint64_t bytes)
{
	struct replay_block made = {.bytes = bytes, .place = model.n_events + 1, .site = REPLAY_NONE};
	uint32_t which;

	assert_true(replay_add_block(&model, &made, 0, &which));
	return which;
}

static void launch(uint64_t function, unsigned n, const uint32_t *blocks)
{
	uint32_t submit;

	for (unsigned i = 0; i < n; i++)
		assert_true(replay_add_named(&model, &(struct replay_named){.block = blocks[i]}));
	assert_true(replay_add_submit(&model, function, &submit));
	assert_true(replay_add_launch(&model, submit, model.n_events * 1000));
}

/* n blocks of that size, named one after the other, so many times. */
static void cycle(unsigned n, uint64_t bytes, unsigned times)
{
	uint32_t blocks[64];

	for (unsigned i = 0; i < n; i++)
		blocks[i] = block(bytes);
	for (unsigned t = 0; t < times; t++)
		for (unsigned i = 0; i < n; i++)
			launch(100 + i, 1, &blocks[i]);
}

static struct run_result run(enum policy_spill mode, uint64_t budget, uint64_t host, double launch_us)
{
	struct job_setting setting = {.budget = budget};
	struct run_setting how = {.mode = mode, .budget = budget, .host_budget = host, .costs = run_costs_default()};
	struct run_result result;

	job_free(job);
	job = job_new(&model, &setting);
	assert_non_null(job);
	how.steps = replay_find_steps(job, REPLAY_STEPS);
	how.costs.launch_us = launch_us;
	run_job(job, &how, &result);
	return result;
}

/* ---- steps and the least ---- */

static void a_step_is_found(void **state)
{
	(void)state;
	cycle(8, 32 * MIB, 60);
	job = job_new(&model, &(struct job_setting){.budget = 1 << 30});
	struct replay_steps steps = replay_find_steps(job, 3);
	assert_int_equal(steps.period, 8);
	assert_true(steps.n == 3);
	assert_int_equal(steps.from, 480 - 24);
}

/* A step of four like layers, forth and back, and something before them; free lists take turns from step to step. */
static void steps_in_other_memory_are_steps_still(void **state)
{
	uint32_t block_of[3][4];

	(void)state;
	for (unsigned turn = 0; turn < 3; turn++)
		for (unsigned i = 0; i < 4; i++)
			block_of[turn][i] = block(32 * MIB);
	for (unsigned t = 0; t < 60; t++) {
		launch(1, 1, &block_of[t % 3][0]);
		for (unsigned i = 0; i < 8; i++)
			for (unsigned k = 0; k < 5; k++)
				launch((i < 4 ? 10 : 20) + k, 1, &block_of[t % 3][i < 4 ? i : 7 - i]);
		for (unsigned k = 0; k < 8; k++)
			launch(30 + k, 1, &block_of[t % 3][1]);
		/* One of the three does something more. */
		if (t % 3 == 1)
			launch(2, 1, &block_of[1][2]);
	}
	job = job_new(&model, &(struct job_setting){.budget = 1 << 30});
	struct replay_steps steps = replay_find_steps(job, 4);
	assert_int_equal(steps.period, 49);
	assert_true(steps.n == 3);
	assert_int_equal(steps.from, job->n_launches - 148);
}

static void a_job_that_does_not_repeat_is_one_step(void **state)
{
	struct seed seed = seed_start(__func__);
	(void)state;

	for (unsigned i = 0; i < 200; i++) {
		uint32_t one = block(4 * MIB);

		launch(seed_next(&seed), 1, &one);
	}
	job = job_new(&model, &(struct job_setting){.budget = 1 << 30});
	struct replay_steps steps = replay_find_steps(job, 3);
	assert_int_equal(steps.period, 0);
	assert_int_equal(steps.from, 0);
	assert_true(steps.n == 1);
}

static void times_say_how_long_a_step_takes(void **state)
{
	(void)state;
	cycle(8, 32 * MIB, 60);
	model.timed = true;
	job = job_new(&model, &(struct job_setting){.budget = 1 << 30});
	struct replay_steps steps = replay_find_steps(job, 4);
	double ms = replay_step_ms(job, &steps);
	assert_true(ms > 0.0079 && ms < 0.0081);
	model.timed = false;
	assert_true(replay_step_ms(job, &steps) == 0);
}

static void the_least_of_a_cycle_is_as_counted_by_hand(void **state)
{
	struct replay_point points[3];
	(void)state;

	/*
	 * Of n in turn with room for k Belady keeps k - 1 and lets the rest pass through one place: of n uses (n - k) / (n -
	 * 1) miss. Here 8 and 5 of 64 MiB: 3/7 of 8 x 64 MiB.
	 */
	cycle(8, 64 * MIB, 100);
	assert_true(replay_curve(&model, NULL, (uint64_t[]){512 * MIB, 320 * MIB, 128 * MIB}, 3, points));
	assert_true(points[0].bytes_in == 0 && points[0].bytes_out == 0);
	double expected = 8.0 * 64 * (double)MIB * 3 / 7;
	assert_true(points[1].bytes_in > 0.7 * expected && points[1].bytes_in < 1.3 * expected);
	assert_true(points[2].bytes_in > points[1].bytes_in);
	assert_int_equal(points[1].over, 0);
}

static void what_names_more_than_fits_is_counted(void **state)
{
	struct replay_point point;
	(void)state;

	uint32_t two[] = {block(64 * MIB), block(64 * MIB)};
	for (unsigned i = 0; i < 20; i++)
		launch(1, 2, two);
	assert_true(replay_curve(&model, NULL, (uint64_t[]){100 * MIB}, 1, &point));
	assert_true(point.over > 0);
}

static void without_submissions_there_is_no_curve(void **state)
{
	struct replay_point point;
	(void)state;

	block(MIB);
	assert_false(replay_curve(&model, NULL, (uint64_t[]){MIB}, 1, &point));
}

/* ---- how it is cut ---- */

static void small_allocations_share_a_piece(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4096; i++)
		block(512);
	block(3 * MIB);
	job = job_new(&model, &(struct job_setting){.budget = 1 << 30});
	assert_int_equal(job->n_pieces, 2);
	assert_int_equal(job->peak_bytes, 6 * MIB);
}

static void freed_memory_is_taken_again(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		uint32_t one = block(300 * MIB), small = block(1000);

		launch(7, 1, &one);
		assert_true(replay_add_end(&model, one, 0));
		assert_true(replay_add_end(&model, small, 0));
	}
	job = job_new(&model, &(struct job_setting){.budget = (uint64_t)8 << 30});
	assert_int_equal(job->n_pieces, 4); /* 128 + 128 + 44 MiB, and one for the small ones */
	assert_int_equal(job->peak_bytes, 302 * MIB);
}

static void a_job_that_is_too_large_is_refused(void **state)
{
	(void)state;
	/* With so small a budget pieces are of 4 MiB: 4 Mi of them for each block. */
	block(REPLAY_BYTES_MOST);
	job = job_new(&model, &(struct job_setting){.budget = 64 * MIB});
	assert_non_null(job);
	block(REPLAY_BYTES_MOST);
	block(REPLAY_BYTES_MOST);
	job_free(job);
	job = job_new(&model, &(struct job_setting){.budget = 64 * MIB});
	assert_null(job);
}

static struct policy *policy_of(const char *text, char *name)
{
	struct policy_errors errors;
	FILE *file;
	int fd = mkstemps(name, 5);

	assert_true(fd >= 0);
	file = fdopen(fd, "w");
	fputs(text, file);
	fclose(file);
	struct policy *policy = policy_read(name, NULL, &errors);
	policy_errors_free(&errors);
	unlink(name);
	assert_non_null(policy);
	return policy;
}

static void rules_decide_where_memory_lives(void **state)
{
	char name[] = "/tmp/replay_run_test.XXXXXX.yaml";
	struct policy *policy =
	    policy_of("version: 1\nrules:\n"
		      "  - {match: {size: \"== 3MiB\"}, use: driver}\n"
		      "  - {match: {size: \"== 5MiB\"}, use: managed}\n"
		      "  - {match: {size: \"== 7MiB\"}, use: heap, movable: no, cap: 10MiB, fallback: driver}\n"
		      "  - {match: {order: \"after 5\"}, use: deny}\n",
		      name);
	(void)state;

	block(3 * MIB);
	block(5 * MIB);
	block(7 * MIB);
	block(7 * MIB); /* over the cap: the driver */
	block(9 * MIB);
	block(9 * MIB); /* the sixth */
	job = job_new(&model, &(struct job_setting){.budget = 1 << 30, .policy = policy});
	assert_non_null(job);
	const uint32_t kinds[] = {JOB_CHARGE, JOB_NEW, JOB_CHARGE, JOB_NEW, JOB_DENIED};
	assert_int_equal(job->n_events, 5);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(job->events[i].kind, kinds[i]);
	assert_false(job->events[1].movable);
	assert_true(job->events[3].movable);
	assert_int_equal(job->elsewhere, 1);
	assert_int_equal(job->peak_outside, 10 * MIB);
	assert_int_equal(job->peak_bytes, 28 * MIB);
	struct run_result result = {0};
	struct run_setting how = {.mode = POLICY_SPILL_FAST,
				  .budget = 1 << 30,
				  .host_budget = 1 << 30,
				  .costs = run_costs_default(),
				  .steps = {.n = 1}};
	run_job(job, &how, &result);
	assert_int_equal(result.end, RUN_DENIED);
	assert_int_equal(model.blocks[result.block].order, 6);
	assert_int_equal(result.rule, 3);
	policy_free(policy);
}

/* 64 MiB: what fits is the driver's, what does not is heap memory, and what the driver's pool had once fits again. */
static void stream_order_fills_the_pools_first_where_the_policy_says_auto(void **state)
{
	static const struct {
		const char *text;
		uint32_t kinds[5];
	} rows[] = {
	    {"async.use: auto\n", {JOB_CHARGE, JOB_NEW, JOB_RELEASE, JOB_CHARGE, JOB_NEW}},
	    {"async.use: heap\n", {JOB_NEW, JOB_NEW, JOB_GONE, JOB_NEW, JOB_NEW}},
	    {"async.use: driver\n", {JOB_CHARGE, JOB_CHARGE, JOB_RELEASE, JOB_CHARGE, JOB_CHARGE}},
	};

	(void)state;
	uint32_t first = block(40 * MIB);
	block(40 * MIB);
	assert_true(replay_add_end(&model, first, 0));
	block(40 * MIB);
	block(8 * MIB);
	for (uint32_t i = 0; i < model.n_blocks; i++)
		model.blocks[i].api = POLICY_API_ASYNC;
	for (unsigned row = 0; row < 3; row++) {
		char name[] = "/tmp/replay_run_test.XXXXXX.yaml";
		struct policy *policy = policy_of(rows[row].text, name);

		job = job_new(&model, &(struct job_setting){.budget = 64 * MIB, .policy = policy});
		assert_non_null(job);
		assert_int_equal(job->n_events, 5);
		for (unsigned i = 0; i < 5; i++)
			assert_int_equal(job->events[i].kind, rows[row].kinds[i]);
		job_free(job);
		job = NULL;
		policy_free(policy);
	}
}

/* ---- runs ---- */

static void what_fits_takes_its_own_time(void **state)
{
	(void)state;
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
static void each_mode_has_its_share_of_the_link(void **state)
{
	static const enum policy_spill modes[] = {POLICY_SPILL_FAST, POLICY_SPILL_EXACT};
	struct run_result all, less;

	(void)state;
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
static void mappings_that_take_long_hold_up_a_gap(void **state)
{
	struct run_setting how = {
	    .mode = POLICY_SPILL_EXACT, .budget = 320 * MIB, .host_budget = 1 << 30, .costs = run_costs_default()};
	struct run_result result;

	(void)state;
	cycle(8, 64 * MIB, 100);
	job_free(job);
	job = job_new(&model, &(struct job_setting){.budget = 320 * MIB});
	how.steps = replay_find_steps(job, REPLAY_STEPS);
	how.costs.map_host = how.costs.map_host_busy = (struct run_map_cost){0, 200};
	run_job(job, &how, &result);
	assert_true(result.bytes_out > 0);
	assert_true(result.step_ms >= 0.2 * result.bytes_out / MIB);
}

static void what_does_not_fit_takes_longer_than_the_least(void **state)
{
	static const enum policy_spill modes[] = {POLICY_SPILL_FAST, POLICY_SPILL_EXACT};
	struct replay_point point;
	(void)state;

	cycle(16, 64 * MIB, 100);
	uint64_t budget = 640 * MIB;
	assert_true(replay_curve(&model, NULL, &budget, 1, &point));
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

static void without_time_of_its_own_a_step_takes_that_of_the_link(void **state)
{
	(void)state;
	cycle(16, 64 * MIB, 100);
	struct run_result result = run(POLICY_SPILL_FAST, 640 * MIB, (uint64_t)4 << 30, 0);
	assert_int_equal(result.end, RUN_DONE);
	assert_true(result.step_ms > 0);
}

static void what_lies_on_the_host_is_read_over_the_link_in_static(void **state)
{
	(void)state;
	cycle(4, 64 * MIB, 50);
	struct run_result result = run(POLICY_SPILL_STATIC, 192 * MIB, 1 << 30, 100);
	assert_int_equal(result.end, RUN_DONE);
	assert_true(result.bytes_link == 64.0 * MIB);
	assert_true(result.bytes_in == 0);
	assert_int_equal(result.peak_host, 64 * MIB);
}

static void the_allocation_that_does_not_fit_is_named(void **state)
{
	(void)state;
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

static void memory_that_must_not_move_stays(void **state)
{
	char name[] = "/tmp/replay_run_test.XXXXXX.yaml";
	struct policy *policy =
	    policy_of("version: 1\nrules:\n  - {match: {order: \"first 4\"}, use: heap, movable: no}\n", name);
	struct run_setting how = {
	    .mode = POLICY_SPILL_FAST, .budget = 320 * MIB, .host_budget = 1 << 30, .costs = run_costs_default()};
	struct run_result result;
	(void)state;

	cycle(8, 64 * MIB, 40);
	job = job_new(&model, &(struct job_setting){.budget = 320 * MIB, .policy = policy});
	how.steps = replay_find_steps(job, 4);
	run_job(job, &how, &result);
	assert_int_equal(result.end, RUN_DONE);
	/* One place is left for four: each comes in each time. */
	assert_true(result.bytes_in > 3.5 * 64 * MIB && result.bytes_in < 4.5 * 64 * MIB);
	policy_free(policy);
}

static void a_budget_smaller_than_one_submission_still_ends(void **state)
{
	(void)state;
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

static void any_job_ends_within_its_budgets_and_always_alike(void **state)
{
	struct seed seed = seed_start(__func__);
	(void)state;

	run_random(&seed);
}

/* While the mover listened to the last submission, all that it would have waited for came about. */
static void a_job_ends_whose_mover_listened_for_too_long(void **state)
{
	(void)state;
	run_random(&(struct seed){.state = 12});
	run_random(&(struct seed){.state = 18});
}

/* ---- the job that was measured ---- */

/* One H200, driver 580: middle of the steps measured, ms; 14754 MiB, 70 ms a step with all in device memory. */
static void the_gpt_job_comes_out_as_measured(void **state)
{
	static const struct {
		enum policy_spill mode;
		double ratio, ms;
	} measured[] = {
	    {POLICY_SPILL_FAST, 1.25, 163},  {POLICY_SPILL_FAST, 1.5, 268},  {POLICY_SPILL_FAST, 2, 439},
	    {POLICY_SPILL_EXACT, 1.25, 235}, {POLICY_SPILL_EXACT, 1.5, 374}, {POLICY_SPILL_EXACT, 2, 576},
	};
	(void)state;

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

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	    TEST(a_step_is_found),
	    TEST(steps_in_other_memory_are_steps_still),
	    TEST(a_job_that_does_not_repeat_is_one_step),
	    TEST(times_say_how_long_a_step_takes),
	    TEST(the_least_of_a_cycle_is_as_counted_by_hand),
	    TEST(what_names_more_than_fits_is_counted),
	    TEST(without_submissions_there_is_no_curve),
	    TEST(small_allocations_share_a_piece),
	    TEST(freed_memory_is_taken_again),
	    TEST(a_job_that_is_too_large_is_refused),
	    TEST(rules_decide_where_memory_lives),
	    TEST(stream_order_fills_the_pools_first_where_the_policy_says_auto),
	    TEST(what_fits_takes_its_own_time),
	    TEST(each_mode_has_its_share_of_the_link),
	    TEST(mappings_that_take_long_hold_up_a_gap),
	    TEST(what_does_not_fit_takes_longer_than_the_least),
	    TEST(without_time_of_its_own_a_step_takes_that_of_the_link),
	    TEST(what_lies_on_the_host_is_read_over_the_link_in_static),
	    TEST(the_allocation_that_does_not_fit_is_named),
	    TEST(memory_that_must_not_move_stays),
	    TEST(a_budget_smaller_than_one_submission_still_ends),
	    TEST(any_job_ends_within_its_budgets_and_always_alike),
	    TEST(a_job_ends_whose_mover_listened_for_too_long),
	    TEST(the_gpt_job_comes_out_as_measured),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
