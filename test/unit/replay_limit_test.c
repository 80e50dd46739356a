// SPDX-License-Identifier: Apache-2.0
/*
 * The limit of a step (replay_limit): whatever the job, the policy, the mode, the budget and the link, no step that
 * replay predicts takes less.
 */
#include "test/test.h"
#include "test/unit/replay_help.h"
#include "test/unit/seed.h"

enum { BLOCKS = 10, TENSORS = 4, STEPS = 8, ROUNDS = 300 };

static struct {
	uint32_t block;
	uint64_t bytes;
	bool kept, alive[TENSORS];
} all[BLOCKS];

/* Half of the names are of the beginning of what they mean. */
static uint64_t within(struct seed *seed, uint64_t begin, uint64_t bytes)
{
	return begin + (seed_below(seed, 2) ? 0 : seed_below(seed, bytes));
}

/* Brings a tensor to life or to death, now and then, or a whole block. */
static void change(struct seed *seed, unsigned b)
{
	uint64_t each = all[b].bytes / TENSORS / 512 * 512;
	unsigned t = (unsigned)seed_below(seed, TENSORS);

	if (seed_below(seed, 40) == 0) {
		assert_true(replay_add_end(&model, all[b].block, model.n_events * 1000));
		all[b].block = block(all[b].bytes);
		memset(all[b].alive, 0, sizeof(all[b].alive));
		if (all[b].kept)
			report(REPLAY_KEPT, all[b].block, 0, all[b].bytes);
	} else if (all[b].kept && seed_below(seed, 40) == 0) {
		report(seed_below(seed, 2) ? REPLAY_DOUBTED : REPLAY_KEPT, all[b].block, 0,
		       seed_below(seed, 2) ? all[b].bytes : 1);
		memset(all[b].alive, 0, sizeof(all[b].alive));
	} else if (all[b].kept && each) {
		report(all[b].alive[t] ? REPLAY_DIED : REPLAY_BORN, all[b].block, t * each, each);
		all[b].alive[t] = !all[b].alive[t];
	}
}

static void launch_some(struct seed *seed, uint64_t function)
{
	uint32_t submit;

	for (unsigned n = 1 + (unsigned)seed_below(seed, 3); n; n--) {
		unsigned b = (unsigned)seed_below(seed, BLOCKS);
		uint64_t offset = within(seed, 0, all[b].bytes);
		struct replay_named named = {.block = all[b].block, .offset = offset};

		if (seed_below(seed, 4) == 0)
			named.bytes = 1 + seed_below(seed, all[b].bytes - offset);
		assert_true(replay_add_named(&model, &named));
	}
	assert_true(replay_add_submit(&model, function, &submit));
	assert_true(replay_add_launch(&model, submit, model.n_events * 1000));
}

/* Steps that do the same, but for a few. */
static void make_job(struct seed *seed, bool reports)
{
	unsigned n = 4 + (unsigned)seed_below(seed, 60);
	uint64_t same = seed_next(seed);

	model.thread = 1;
	for (unsigned b = 0; b < BLOCKS; b++) {
		all[b].bytes = seed_below(seed, 3) ? seed_size(seed, 96 * MIB) : 64 * MIB;
		all[b].kept = reports && seed_below(seed, 4);
		memset(all[b].alive, 0, sizeof(all[b].alive));
		all[b].block = block(all[b].bytes);
		if (all[b].kept)
			report(REPLAY_KEPT, all[b].block, 0, all[b].bytes);
	}
	for (unsigned step = 0; step < STEPS; step++) {
		struct seed its = {.state = seed_below(seed, 6) ? same : seed_next(seed)};

		for (unsigned i = 0; i < n; i++) {
			if (seed_below(&its, 2))
				change(&its, (unsigned)seed_below(&its, BLOCKS));
			launch_some(&its, i + 1);
		}
	}
}

static struct policy *some_policy(struct seed *seed)
{
	static const char *const texts[] = {
	    "version: 1\nrules:\n  - {match: {order: \"first 3\"}, use: heap, movable: no}\n",
	    "version: 1\nrules:\n  - {match: {size: \">= 40MiB\"}, use: heap, place: host, movable: no}\n",
	    "version: 1\nrules:\n  - {match: {size: \">= 60MiB\"}, use: heap, place: host}\n",
	    "version: 1\nrules:\n  - {match: {order: \"first 2\"}, use: driver}\n",
	};
	char name[] = "/tmp/replay_limit_test.XXXXXX.yaml";
	uint64_t which = seed_below(seed, 8);

	return which < 4 ? policy_of(texts[which], name) : NULL;
}

static bool run_once(struct seed *seed)
{
	static const double links[] = {5, 27, 50.6, 400};
	enum policy_spill mode = (enum policy_spill)(POLICY_SPILL_STATIC + seed_below(seed, 3));
	struct policy *policy = some_policy(seed);
	struct job_setting cut = {.policy = policy,
				  .budget = 16 * MIB + seed_below(seed, 600 * MIB),
				  .fast = mode == POLICY_SPILL_FAST,
				  .moves = mode >= POLICY_SPILL_EXACT};
	struct run_setting how = {
	    .mode = mode, .budget = cut.budget, .host_budget = UINT64_C(1) << 40, .costs = run_costs_default()};
	struct run_result result;
	double limit;

	make_job(seed, seed_below(seed, 3));
	job = job_new(&model, &cut);
	assert_non_null(job);
	how.steps = replay_find_steps(job, REPLAY_STEPS);
	how.costs.gb_per_s = links[seed_below(seed, 4)];
	how.costs.launch_us = (double)seed_below(seed, 2) * (double)seed_size(seed, 10000);
	run_job(job, &how, &result);
	assert_true(replay_limit(job, &how, &result, &limit));
	policy_free(policy);
	if (result.end == RUN_DONE && result.step_ms < limit * (1 - 1e-9))
		fail_msg("mode %s, budget %.1f MiB, link %.1f: step %.3f ms, limit %.3f ms", policy_spill_name(mode),
			 (double)cut.budget / MIB, how.costs.gb_per_s, result.step_ms, limit);
	return result.end == RUN_DONE &&
	       limit > how.costs.launch_us * (double)(job->n_launches - how.steps.from) / how.steps.n / 1e3;
}

TEST(no_step_takes_less_than_its_limit)
{
	struct seed seed = seed_start("no_step_takes_less_than_its_limit");
	unsigned by_link = 0;

	for (unsigned i = 0; i < ROUNDS; i++) {
		setup(state);
		by_link += run_once(&seed);
		teardown(state);
	}
	/* Often enough it was the link that set it. */
	assert_true(by_link > ROUNDS / 20);
}
