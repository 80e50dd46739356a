// SPDX-License-Identifier: Apache-2.0
/*
 * replay_lengths_test.c: replay of a job with another length of sequences in each step, whose plan foresees where the
 * allocator will put tensors.
 */
#include "test/test.h"
#include "test/unit/length_job.h"
#include "test/unit/replay_help.h"

#define BLOCKS 12u

static const uint64_t sizes[BLOCKS] = {300 * MIB, 120 * MIB, 60 * MIB,  200 * MIB, 90 * MIB,  100 * MIB,
				       156 * MIB, 200 * MIB, 100 * MIB, 200 * MIB, 100 * MIB, 300 * MIB};
static uint32_t blocks[BLOCKS];
static uint64_t begins[BLOCKS];

/* Returns the number of the block that has the address. */
static unsigned block_of(uint64_t address)
{
	unsigned i = 0;

	while (address >= begins[i] + sizes[i])
		i++;
	return i;
}

static void report_range(enum replay_kind kind, uint64_t begin, uint64_t end)
{
	unsigned i = block_of(begin);

	report(kind, blocks[i], begin - begins[i], end - begin);
}

static void hear_birth(uint64_t begin, uint64_t end)
{
	report_range(REPLAY_BORN, begin, end);
}

static void hear_death(uint64_t begin, uint64_t end)
{
	report_range(REPLAY_DIED, begin, end);
}

static void hear_launch(uint64_t function, const struct length_tensor *named, unsigned n)
{
	uint32_t submit;

	for (unsigned k = 0; k < n; k++) {
		unsigned i = block_of(named[k].begin);

		assert_true(replay_add_named(
		    &model, &(struct replay_named){.offset = named[k].begin - begins[i], .block = blocks[i]}));
	}
	assert_true(replay_add_submit(&model, function, &submit));
	assert_true(replay_add_launch(&model, submit, model.n_events * 1000));
}

#define STEPS   60u
#define COUNTED 40u /* the last ones */

static void make_job(void)
{
	static struct length_job program;
	struct seed seed = {.state = 1};
	uint64_t at = 0;

	model.thread = 1;
	for (unsigned i = 0; i < BLOCKS; at += sizes[i++]) {
		begins[i] = at;
		blocks[i] = block(sizes[i]);
		report_range(REPLAY_KEPT, at, at + sizes[i]);
	}
	length_begin(&program, (struct length_calls){hear_birth, hear_death, hear_launch}, sizes, BLOCKS);
	for (unsigned i = 0; i < STEPS; i++)
		length_step(&program, 4 + (unsigned)seed_below(&seed, 9));
}

static struct run_result run_job_in(enum policy_spill mode, uint64_t budget)
{
	struct job_setting setting = {.budget = budget, .fast = mode == POLICY_SPILL_FAST};
	struct run_setting how = {
	    .mode = mode, .budget = budget, .host_budget = UINT64_C(4) << 30, .costs = run_costs_default()};
	struct run_result result;

	job_free(job);
	job = job_new(&model, &setting);
	assert_non_null(job);
	how.steps.from = (STEPS - COUNTED) * LENGTH_LAUNCHES;
	how.steps.n = COUNTED;
	how.costs.launch_us = 300;
	run_job(job, &how, &result);
	return result;
}

/* Without that, 277 MiB a step come. */
TEST(what_comes_is_what_is_used_next)
{
	make_job();
	struct run_result result = run_job_in(POLICY_SPILL_EXACT, 640 * MIB);
	assert_int_equal(result.end, RUN_DONE);
	print_message("%.0f MiB come a step\n", result.bytes_in / MIB);
	assert_true(result.bytes_in < 255 * MIB);
}

EACH_TEST(setup, teardown)
