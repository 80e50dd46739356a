// SPDX-License-Identifier: Apache-2.0
/*
 * Replay of a job whose allocator reports what is alive: a pointer means the tensor that it lies in, what is dead moves
 * without a copy, and the least that must move is that of tensors. What nobody reports is alive.
 */
#include "test/test.h"
#include "test/unit/replay_help.h"

/* ---- what a pointer means ---- */

static void cut(bool fast, uint64_t budget)
{
	job_free(job);
	job = job_new(&model, &(struct job_setting){.budget = budget, .fast = fast});
	assert_non_null(job);
}

static const struct job_event *last_launch(void)
{
	const struct job_event *found = NULL;

	for (size_t i = 0; i < job->n_events; i++)
		found = job->events[i].kind == JOB_LAUNCH ? &job->events[i] : found;
	assert_non_null(found);
	return found;
}

TEST(a_pointer_means_its_tensor)
{
	model.thread = 1;
	uint32_t large = block(1024 * MIB);
	report(REPLAY_KEPT, large, 0, 1024 * MIB);
	report(REPLAY_BORN, large, 100 * MIB, 64 * MIB);
	name(7, large, 132 * MIB);
	cut(true, 512 * MIB);
	const struct job_event *launch = last_launch();
	uint32_t first = job->named[launch->from].piece, each = job->units[0];
	/* Pieces of 16 MiB: the tensor begins in the one with number 6 and ends in that with number 10. */
	assert_int_equal(each, 8);
	assert_true(first == 6 && launch->n == 5);
	/* In `exact`, what lies before the pointer need not be there. */
	cut(false, 512 * MIB);
	launch = last_launch();
	assert_true(job->named[launch->from].piece == 132 / 16 && launch->n == 3);
	/* Nobody reports about it any more. */
	report(REPLAY_DOUBTED, large, 0, 1024 * MIB);
	name(7, large, 132 * MIB);
	cut(false, 512 * MIB);
	assert_int_equal(job->named[last_launch()->from].piece, 132 / 16);
	assert_true(job->events[job->n_events - 2].kind == JOB_DOUBTED);
}

TEST(a_launch_that_names_what_is_dead_brings_it_to_life)
{
	size_t revived = 0;

	model.thread = 1;
	uint32_t large = block(1024 * MIB);
	report(REPLAY_KEPT, large, 0, 1024 * MIB);
	report(REPLAY_BORN, large, 0, 512 * MIB);
	name(7, large, 0);
	report(REPLAY_DIED, large, 0, 512 * MIB);
	name(8, large, 256 * MIB);
	name(9, large, 256 * MIB);
	cut(false, 512 * MIB);
	for (size_t i = 0; i < job->n_events; i++)
		revived += job->events[i].kind == JOB_REVIVED;
	assert_int_equal(revived, 1);
}

/* ---- what moves ---- */

enum { LAYERS = 6 };
#define TENSOR (64 * MIB)

/*
 * Each layer's tensor is born, used twice, and dies when the next one has been born: two of six are alive at a time.
 * kept: the allocator reports.
 */
static void pass(bool kept, unsigned steps)
{
	uint32_t segment[LAYERS];

	model.thread = 1;
	for (unsigned i = 0; i < LAYERS; i++) {
		segment[i] = block(TENSOR);
		if (kept)
			report(REPLAY_KEPT, segment[i], 0, TENSOR);
	}
	for (unsigned step = 0; step < steps; step++)
		for (unsigned i = 0; i < LAYERS; i++) {
			uint32_t before = segment[(i + LAYERS - 1) % LAYERS];

			if (kept)
				report(REPLAY_BORN, segment[i], 0, TENSOR);
			launch(2 * i + 1, 1, &segment[i]);
			launch(2 * i + 2, 2, (uint32_t[]){before, segment[i]});
			if (kept && (i || step))
				report(REPLAY_DIED, before, 0, TENSOR);
		}
}

static struct replay_point least(uint64_t budget)
{
	struct replay_steps steps = replay_find_steps(job, REPLAY_STEPS);
	struct replay_point point;

	assert_true(replay_belady(job, budget, &steps, &point));
	return point;
}

TEST(what_is_dead_moves_without_a_copy)
{
	static const enum policy_spill modes[] = {POLICY_SPILL_EXACT, POLICY_SPILL_FAST};

	for (unsigned i = 0; i < 2; i++) {
		teardown(NULL);
		setup(NULL);
		pass(false, 40);
		struct run_result without = run(modes[i], 4 * TENSOR, UINT64_C(1) << 30, 3000);
		assert_int_equal(without.end, RUN_DONE);
		assert_true(without.dead_in == 0 && without.dead_out == 0 && without.bytes_out > TENSOR);
		teardown(NULL);
		setup(NULL);
		pass(true, 40);
		struct run_result with = run(modes[i], 4 * TENSOR, UINT64_C(1) << 30, 3000);
		assert_int_equal(with.end, RUN_DONE);
		assert_true(with.dead_in + with.dead_out > TENSOR);
		assert_true(with.bytes_in + with.bytes_out < 0.7 * (without.bytes_in + without.bytes_out));
	}
}

TEST(the_least_is_that_of_tensors)
{
	pass(false, 40);
	cut(false, 4 * TENSOR);
	assert_true(least(4 * TENSOR).bytes_in > TENSOR);
	teardown(NULL);
	setup(NULL);
	pass(true, 40);
	cut(false, 4 * TENSOR);
	assert_true(least(4 * TENSOR).bytes_in == 0 && least(4 * TENSOR).bytes_out == 0);
	assert_int_equal(least(4 * TENSOR).over, 0);
	/* Two are alive, but only one fits. */
	assert_true(least(TENSOR + MIB).over > 0);
}

/* Memory that dies and of which nothing is submitted before the next birth may be restored: it is alive. */
TEST(a_death_counts_once_its_thread_has_submitted_something)
{
	model.thread = 1;
	uint32_t a = block(TENSOR), b = block(TENSOR), c = block(TENSOR);
	report(REPLAY_KEPT, a, 0, TENSOR);
	report(REPLAY_BORN, a, 0, TENSOR);
	for (unsigned i = 0; i < 40; i++) {
		launch(1, 1, &a);
		launch(2, 1, &b);
		launch(3, 1, &c);
		/* By a thread that never submits anything. */
		model.thread = 2;
		report(REPLAY_DIED, a, 0, TENSOR);
		report(REPLAY_BORN, a, 0, TENSOR);
		model.thread = 1;
	}
	struct run_result result = run(POLICY_SPILL_EXACT, 2 * TENSOR, UINT64_C(1) << 30, 3000);
	assert_int_equal(result.end, RUN_DONE);
	assert_true(result.bytes_out > 0 && result.dead_out == 0 && result.dead_in == 0);
}

/* As where a program begins to report about a block that it has used (spillway_born). */
TEST(a_birth_within_another_leaves_the_rest_alive)
{
	model.thread = 1;
	uint32_t a = block(4 * TENSOR), b = block(4 * TENSOR);
	report(REPLAY_KEPT, a, 0, 4 * TENSOR);
	report(REPLAY_BORN, a, 0, 4 * TENSOR);
	for (unsigned i = 0; i < 40; i++) {
		report(REPLAY_BORN, a, TENSOR, TENSOR);
		name(1, a, 0);
		name(2, a, TENSOR);
		name(3, a, 2 * TENSOR);
		report(REPLAY_DIED, a, TENSOR, TENSOR);
		launch(4, 1, &b);
	}
	struct run_result result = run(POLICY_SPILL_EXACT, 6 * TENSOR, UINT64_C(1) << 30, 3000);
	assert_int_equal(result.end, RUN_DONE);
	assert_true(result.bytes_in > 0 && result.dead_in + result.dead_out <= 2 * TENSOR);
	/* What is before it, it, and what is behind it are a tensor each. */
	for (size_t i = 0; i < job->n_tensors; i++)
		assert_true(job->tensor_bytes[i] <= 2 * TENSOR || i == 0);
	struct replay_point point = least(6 * TENSOR);
	/* One of the seven does not fit; the pieces of the other block are of 12 MiB. */
	assert_true(point.bytes_in > TENSOR / 2 && point.bytes_in < 3 * TENSOR);
}

TEST(what_is_freed_with_tensors_in_it_is_forgotten)
{
	model.thread = 1;
	for (unsigned i = 0; i < 20; i++) {
		uint32_t a = block(TENSOR);

		report(REPLAY_KEPT, a, 0, TENSOR);
		report(REPLAY_BORN, a, 0, TENSOR);
		launch(1, 1, &a);
		assert_true(replay_add_end(&model, a, model.n_events * 1000));
		/* At the same place, of somebody who reports nothing. */
		uint32_t b = block(TENSOR);
		launch(2, 1, &b);
		assert_true(replay_add_end(&model, b, model.n_events * 1000));
	}
	struct run_result result = run(POLICY_SPILL_EXACT, TENSOR, UINT64_C(1) << 30, 3000);
	assert_int_equal(result.end, RUN_DONE);
	assert_true(least(TENSOR).bytes_in == 0);
	/* The first names one tensor, the second the pieces. */
	for (size_t i = 0; i < job->n_events; i++) {
		const struct job_event *event = &job->events[i];

		if (event->kind == JOB_LAUNCH)
			assert_int_equal(event->n_tensors, event->function == 1 ? 1 : job->n_pieces);
	}
}

EACH_TEST(setup, teardown)
