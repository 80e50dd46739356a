// SPDX-License-Identifier: Apache-2.0
#include "test/test.h"
#include "test/unit/replay_help.h"

struct replay_model model;
struct job *job;

int setup(void **state)
{
	model = (struct replay_model){0};
	return 0;
}

int teardown(void **state)
{
	job_free(job);
	job = NULL;
	replay_model_free(&model);
	return 0;
}

uint32_t block(uint64_t bytes)
{
	struct replay_block made = {.bytes = bytes, .place = model.n_events + 1, .site = REPLAY_NONE};
	uint32_t which;

	assert_true(replay_add_block(&model, &made, 0, &which));
	return which;
}

void launch(uint64_t function, unsigned n, const uint32_t *blocks)
{
	uint32_t submit;

	for (unsigned i = 0; i < n; i++)
		assert_true(replay_add_named(&model, &(struct replay_named){.block = blocks[i]}));
	assert_true(replay_add_submit(&model, function, &submit));
	assert_true(replay_add_launch(&model, submit, model.n_events * 1000));
}

void report(enum replay_kind kind, uint32_t of, uint64_t offset, uint64_t bytes)
{
	assert_true(replay_add_part(&model, kind, &(struct replay_part){offset, bytes, of}, model.n_events * 1000));
}

void name(uint64_t function, uint32_t of, uint64_t offset)
{
	uint32_t submit;

	assert_true(replay_add_named(&model, &(struct replay_named){.offset = offset, .block = of}));
	assert_true(replay_add_submit(&model, function, &submit));
	assert_true(replay_add_launch(&model, submit, model.n_events * 1000));
}

void cycle(unsigned n, uint64_t bytes, unsigned times)
{
	uint32_t blocks[64];

	for (unsigned i = 0; i < n; i++)
		blocks[i] = block(bytes);
	for (unsigned t = 0; t < times; t++)
		for (unsigned i = 0; i < n; i++)
			launch(100 + i, 1, &blocks[i]);
}

struct replay_point least_at(uint64_t budget)
{
	struct job *cut = job_new(&model, &(struct job_setting){.budget = budget});
	struct replay_point point;

	assert_non_null(cut);
	struct replay_steps steps = replay_find_steps(cut, REPLAY_STEPS);
	assert_true(replay_belady(cut, budget, &steps, &point));
	job_free(cut);
	return point;
}

struct run_result run(enum policy_spill mode, uint64_t budget, uint64_t host, double launch_us)
{
	struct job_setting setting = {.budget = budget, .fast = mode == POLICY_SPILL_FAST};
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

struct policy *policy_of(const char *text, char *name)
{
	struct policy_errors errors;
	int fd = mkstemps(name, 5);

	assert_true(fd >= 0);
	FILE *file = fdopen(fd, "w");
	fputs(text, file);
	fclose(file);
	struct policy *policy = policy_read(name, NULL, &errors);
	policy_errors_free(&errors);
	unlink(name);
	assert_non_null(policy);
	return policy;
}
