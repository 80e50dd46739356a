// SPDX-License-Identifier: Apache-2.0
/*
 * What replay makes of a record before it runs: its steps, the least that must move where that can be counted by hand,
 * and the pieces that memory is cut into.
 */
#include "test/test.h"
#include "test/unit/replay_help.h"
#include "test/unit/seed.h"

/* ---- steps and the least ---- */

/* The last so many steps of the model. */
static struct replay_steps steps_of(unsigned n)
{
	job = job_new(&model, &(struct job_setting){.budget = 1 << 30});
	return replay_find_steps(job, n);
}

static void launch_one(uint64_t function, uint32_t of)
{
	launch(function, 1, &of);
}

TEST(a_step_is_found)
{
	cycle(8, 32 * MIB, 60);
	struct replay_steps steps = steps_of(3);
	assert_int_equal(steps.period, 8);
	assert_true(steps.n == 3);
	assert_int_equal(steps.from, 480 - 24);
}

/* A step of four like layers, forth and back, and something before them; free lists take turns from step to step. */
TEST(steps_in_other_memory_are_steps_still)
{
	uint32_t block_of[3][4];

	for (unsigned turn = 0; turn < 3; turn++)
		for (unsigned i = 0; i < 4; i++)
			block_of[turn][i] = block(32 * MIB);
	for (unsigned t = 0; t < 60; t++) {
		launch_one(1, block_of[t % 3][0]);
		for (unsigned i = 0; i < 8; i++)
			for (unsigned k = 0; k < 5; k++)
				launch_one((i < 4 ? 10 : 20) + k, block_of[t % 3][i < 4 ? i : 7 - i]);
		for (unsigned k = 0; k < 8; k++)
			launch_one(30 + k, block_of[t % 3][1]);
		/* One of the three does something more. */
		if (t % 3 == 1)
			launch_one(2, block_of[1][2]);
	}
	struct replay_steps steps = steps_of(4);
	assert_int_equal(steps.period, 49);
	assert_true(steps.n == 3);
	assert_int_equal(steps.from, job->n_launches - 148);
}

/*
 * Small calls in every tenth step and in every twentieth, and an evaluation before the end: as the demo's job has them.
 */
TEST(steps_that_do_more_now_and_then_are_steps_still)
{
	enum { FUNCTIONS = 9, LAYERS = 3, BLOCKS = 8 };
	uint32_t block_of[BLOCKS];

	for (unsigned i = 0; i < BLOCKS; i++)
		block_of[i] = block(32 * MIB);
	for (unsigned t = 1; t <= 100; t++) {
		launch_one(1, block_of[0]);
		for (unsigned f = 0; f < FUNCTIONS; f++)
			for (unsigned i = 0; i < LAYERS; i++)
				launch(10 + f, 2, &block_of[(f + i) % (BLOCKS - 1)]);
		for (unsigned i = 0; t % 10 == 0 && i < 12; i++)
			launch_one(2, block_of[i % BLOCKS]);
		if (t % 20 == 0)
			launch_one(3, block_of[1]);
	}
	launch_one(1, block_of[0]);
	for (unsigned i = 0; i < LAYERS; i++)
		launch(10, 2, &block_of[i]);
	struct replay_steps steps = steps_of(4);
	assert_int_equal(steps.period, (20 * 28 + 24 + 1) / 20);
	assert_true(steps.marked);
	assert_int_equal(steps.marker, 1);
	assert_true(replay_step_begins(&steps, 0, 1));
	assert_false(replay_step_begins(&steps, 0, 2));
}

TEST(what_a_job_does_once_before_its_end_begins_no_step)
{
	cycle(8, 32 * MIB, 60);
	launch_one(UINT32_MAX, block(4 * MIB));
	struct replay_steps steps = steps_of(3);
	assert_int_equal(steps.period, 8);
	assert_true(steps.marked);
	assert_int_not_equal(steps.marker, UINT32_MAX);
}

/*
 * Sixteen like layers at even distances, each with weights of its own, are one step of a network that only goes forth.
 */
TEST(layers_are_no_steps)
{
	enum { LAYERS = 16 };
	uint32_t weights[LAYERS], activation;

	activation = block(4 * MIB);
	for (unsigned i = 0; i < LAYERS; i++)
		weights[i] = block(32 * MIB);
	for (unsigned t = 0; t < 40; t++) {
		launch(1, 1, &activation);
		for (unsigned i = 0; i < LAYERS; i++)
			for (unsigned f = 0; f < 8; f++)
				launch(10 + f, 2, (uint32_t[]){weights[i], activation});
		launch(2, 1, &activation);
	}
	struct replay_steps steps = steps_of(4);
	assert_int_equal(steps.period, LAYERS * 8 + 2);
}

/* The last steps are what the first were, long ago, and what lies between repeats itself at once. */
TEST(what_comes_again_only_after_most_of_the_job_is_no_step)
{
	enum { FIRST = 24, BETWEEN = 16, LAUNCHES = 10 };
	uint32_t block_of[FIRST + 1];

	for (unsigned i = 0; i <= FIRST; i++)
		block_of[i] = block(16 * MIB);
	for (unsigned t = 0; t < 2 * FIRST + BETWEEN; t++)
		for (unsigned i = 0; i < LAUNCHES; i++)
			launch_one(i, block_of[t < FIRST ? t : t < FIRST + BETWEEN ? FIRST : t - FIRST - BETWEEN]);
	struct replay_steps steps = steps_of(4);
	assert_int_equal(steps.period, LAUNCHES);
	assert_true(steps.n == 4);
}

TEST(a_job_that_does_not_repeat_is_one_step)
{
	struct seed seed = seed_start(__func__);

	for (unsigned i = 0; i < 200; i++) {
		launch_one(seed_next(&seed), block(4 * MIB));
	}
	struct replay_steps steps = steps_of(3);
	assert_int_equal(steps.period, 0);
	assert_int_equal(steps.from, 0);
	assert_true(steps.n == 1);
}

TEST(times_say_how_long_a_step_takes)
{
	cycle(8, 32 * MIB, 60);
	struct replay_steps steps = steps_of(4);
	double ms = replay_step_ms(job, &steps);
	assert_true(ms > 0.0079 && ms < 0.0081);
	/* What steps took that waited for memory, or read it over the link, is not what they take without. */
	model.spilled = true;
	assert_true(replay_step_ms(job, &steps) == 0);
}

TEST(the_least_of_a_cycle_is_as_counted_by_hand)
{
	/*
	 * Of n in turn with room for k Belady keeps k - 1 and lets the rest pass through one place: of n uses (n - k) /
	 * (n - 1) miss. Here 8 and 5 of 64 MiB: 3/7 of 8 x 64 MiB.
	 */
	cycle(8, 64 * MIB, 100);
	struct replay_point points[] = {least_at(512 * MIB), least_at(320 * MIB), least_at(128 * MIB)};
	assert_true(points[0].bytes_in == 0 && points[0].bytes_out == 0);
	double expected = 8.0 * 64 * (double)MIB * 3 / 7;
	assert_true(points[1].bytes_in > 0.7 * expected && points[1].bytes_in < 1.3 * expected);
	assert_true(points[2].bytes_in > points[1].bytes_in);
	assert_int_equal(points[1].over, 0);
}

TEST(what_names_more_than_fits_is_counted)
{
	uint32_t two[] = {block(64 * MIB), block(64 * MIB)};
	for (unsigned i = 0; i < 20; i++)
		launch(1, 2, two);
	assert_true(least_at(100 * MIB).over > 0);
}

TEST(what_is_freed_gives_its_room_back_and_is_not_brought_in)
{
	for (unsigned i = 0; i < 20; i++) {
		uint32_t one = block(64 * MIB);

		launch(1, 1, &one);
		assert_true(replay_add_end(&model, one, 0));
	}
	struct replay_point point = least_at(100 * MIB);
	assert_true(point.bytes_in == 0 && point.over == 0);
}

/* ---- how it is cut ---- */

TEST(small_allocations_share_a_piece)
{
	for (unsigned i = 0; i < 4096; i++)
		block(512);
	block(3 * MIB);
	job = job_new(&model, &(struct job_setting){.budget = 1 << 30});
	assert_int_equal(job->n_pieces, 2);
	assert_int_equal(job->peak_bytes, 6 * MIB);
}

TEST(freed_memory_is_taken_again)
{
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

TEST(a_job_that_is_too_large_is_refused)
{
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

TEST(rules_decide_where_memory_lives)
{
	char name[] = "/tmp/replay_run_test.XXXXXX.yaml";
	struct policy *policy =
	    policy_of("version: 1\nrules:\n"
		      "  - {match: {size: \"== 3MiB\"}, use: driver}\n"
		      "  - {match: {size: \"== 5MiB\"}, use: managed}\n"
		      "  - {match: {size: \"== 7MiB\"}, use: heap, movable: no, cap: 10MiB, fallback: driver}\n"
		      "  - {match: {order: \"after 5\"}, use: deny}\n",
		      name);

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

/* The trace says the place that asked, and in brackets the library that called the driver. */
TEST(rules_may_look_at_who_asked)
{
	static const struct {
		const char *site;
		bool denied;
	} rows[] = {
	    {"libmodel.so+0x12", false},
	    {"libnccl.so.2+0x12", true},
	    {"libnccl.so.2:ncclMemAlloc+0x12", true},
	    {"train.py:3 in libnccl.so.2", false},
	    {"train.py:3 in f [libnccl.so.2]", true},
	    {"train.py:4 in f [libcublas.so.13]", true},
	    {"train.py:4 in f", true},
	    {"train.py:40 in f", false},
	    {"backward", false},
	};
	char name[] = "/tmp/replay_run_test.XXXXXX.yaml";
	struct policy *policy = policy_of("version: 1\nrules:\n"
					  "  - {match: {library: libnccl*}, use: deny}\n"
					  "  - {match: {caller: \"train.py:4 in ?\"}, use: deny}\n",
					  name);
	uint32_t text;

	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		uint32_t made = block(3 * MIB);

		assert_true(replay_add_text(&model, rows[i].site, &text));
		model.blocks[made].site = text;
	}
	job = job_new(&model, &(struct job_setting){.budget = 1 << 30, .policy = policy});
	assert_non_null(job);
	assert_int_equal(job->n_events, sizeof(rows) / sizeof(*rows));
	for (unsigned i = 0; i < job->n_events; i++)
		if ((job->events[i].kind == JOB_DENIED) != rows[i].denied)
			fail_msg("%s", rows[i].site);
	policy_free(policy);
}

/*
 * 64 MiB: what fits is the driver's, what does not is heap memory, and what the driver's pool had once fits again;
 * unless memory moves.
 */
TEST(stream_order_fills_the_pools_first_where_the_policy_says_auto)
{
	static const struct {
		const char *text;
		bool moves;
		uint32_t kinds[5];
	} rows[] = {
	    {"async.use: auto\n", false, {JOB_CHARGE, JOB_NEW, JOB_RELEASE, JOB_CHARGE, JOB_NEW}},
	    {"async.use: auto\n", true, {JOB_CHARGE, JOB_NEW, JOB_RELEASE, JOB_NEW, JOB_NEW}},
	    {"async.use: heap\n", true, {JOB_NEW, JOB_NEW, JOB_GONE, JOB_NEW, JOB_NEW}},
	    {"async.use: driver\n", true, {JOB_CHARGE, JOB_CHARGE, JOB_RELEASE, JOB_CHARGE, JOB_CHARGE}},
	};

	uint32_t first = block(40 * MIB);
	block(40 * MIB);
	assert_true(replay_add_end(&model, first, 0));
	block(40 * MIB);
	block(8 * MIB);
	for (uint32_t i = 0; i < model.n_blocks; i++)
		model.blocks[i].api = POLICY_API_ASYNC;
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		char name[] = "/tmp/replay_run_test.XXXXXX.yaml";
		struct policy *policy = policy_of(rows[row].text, name);
		struct job_setting setting = {.budget = 64 * MIB, .policy = policy, .moves = rows[row].moves};

		job = job_new(&model, &setting);
		assert_non_null(job);
		assert_int_equal(job->n_events, 5);
		for (unsigned i = 0; i < 5; i++)
			assert_int_equal(job->events[i].kind, rows[row].kinds[i]);
		job_free(job);
		job = NULL;
		policy_free(policy);
	}
}

EACH_TEST(setup, teardown)
