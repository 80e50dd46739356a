// SPDX-License-Identifier: Apache-2.0
/*
 * Which controller decides whether memory may move: none in the first second, the trial where the future is known, else
 * the rate. Programs are made up; nothing here takes time.
 */
#include "shim/plan/governor.h"
#include "test/test.h"

enum { PIECES = 20 };

static struct move_governor governor;
static struct move_work work;
static struct plan *plan;
static uint64_t now;

BEFORE_EACH
{
	move_governor_init(&governor);
	work = (struct move_work){0};
	now = 5000 * MS;
	plan = plan_new(PLAN_BESIDE_KERNELS);
	for (uint32_t i = 0; i < PIECES; i++)
		plan_set(plan, i, 1, i % 2 ? PLAN_DEVICE : PLAN_HOST);
}

AFTER_EACH
{
	plan_free(plan);
}

/* One submission, which takes so long. Returns whether moving was switched on or off. */
static bool submit(uint64_t function, uint32_t piece, uint64_t ns)
{
	plan_note(plan, function, &piece, 1);
	work.n_submissions++;
	work.done++;
	now += ns;
	return move_governor_update(&governor, plan, now, &work);
}

/* Steps that name each piece once; a submission takes `with` ns with moving and `without` else. */
static void repeat(unsigned steps, uint64_t with, uint64_t without)
{
	for (unsigned i = 0; i < steps * PIECES; i++)
		submit(i % PIECES, i % PIECES, governor.allows ? with : without);
}

TEST(nothing_moves_in_the_first_second)
{
	uint32_t submissions = 0; /* no two alike */

	assert_true(governor.allows); /* until it is asked */
	for (; submissions < 200; submissions++) {
		/* It is no cost that moving is switched off for. */
		assert_false(submit(submissions, PIECES + submissions, 5 * MS));
		assert_false(governor.allows);
	}
	/* Then by the rate, of which the one without moving is measured first. */
	assert_int_equal(governor.by_rate.state, GOVERNOR_STAY);
	for (; submissions < 600 && !governor.allows; submissions++)
		submit(submissions, PIECES + submissions, 5 * MS);
	assert_false(plan_knows(plan));
	assert_int_equal(governor.by_rate.state, GOVERNOR_TRY);
}

TEST(once_most_is_foreseen_it_moves_before_that)
{
	uint64_t begun = now;

	repeat(6, MS / 10, MS / 10);
	assert_true(plan_knows(plan));
	assert_true(governor.allows);
	assert_true(now - begun < 1000 * MS);
}

TEST(a_known_period_that_loses_stays)
{
	repeat(200, 3 * MS, MS);
	assert_false(governor.allows);
	assert_true(governor.trial.state == TRIAL_STAY || governor.trial.state == TRIAL_ASK_MOVE);
	/* Memory lies elsewhere: what was measured is void. */
	trial_init(&governor.trial);
	assert_true(submit(0, 0, MS));
	assert_true(governor.allows);
}

TEST(what_names_much_on_the_host_is_asked_late)
{
	/* Each submission names 2 units, half of all lies on the host, and a unit takes 8 ms: at least 8 ms. */
	work.unit_ns = 8 * MS;
	for (unsigned i = 0; i < 12 * PIECES; i++) {
		work.named_bytes += 2 * PLAN_UNIT;
		submit(i % PIECES, i % PIECES, MS);
	}
	assert_in_range(governor.trial.still_ns, 7 * MS, 8 * MS);
	assert_int_equal(governor.trial.wait, 32);
}

/*
 * Submissions of which no two are alike, so that the plan loses its place, until it has been lost for n of them.
 * Returns for how many of those memory may move.
 */
static unsigned lose_place(unsigned n, uint64_t with, uint64_t without)
{
	static uint32_t unlike = 1000;
	unsigned moves = 0, lost = 0;

	for (unsigned tries = 0; lost < n; tries++, unlike++) {
		assert_true(tries < 10 * n + 100);
		submit(unlike, unlike, governor.allows ? with : without);
		if (plan_knows(plan))
			continue;
		lost++;
		moves += governor.allows;
	}
	return moves;
}

TEST(what_was_found_goes_on_where_the_place_is_lost)
{
	repeat(50, MS, 3 * MS);
	assert_true(governor.allows);
	/* By the rate nothing would move now, as it measures that first. */
	governor_init(&governor.by_rate);
	assert_int_equal(lose_place(20, MS, 3 * MS), 20);
	/* Found again, it is the same program. */
	repeat(4, MS, 3 * MS);
	assert_true(plan_knows(plan));
	assert_true(governor.allows);
}

TEST(a_place_lost_during_a_question_is_no_answer)
{
	repeat(20, MS, 3 * MS);
	for (unsigned i = 0; governor.trial.state != TRIAL_ASK_STAY && i < 100 * PIECES; i++)
		submit(i % PIECES, i % PIECES, governor.allows ? MS : 3 * MS);
	assert_int_equal(governor.trial.state, TRIAL_ASK_STAY);
	assert_false(governor.allows);
	assert_int_equal(lose_place(20, MS, 3 * MS), 20);
}

TEST(what_lost_stays_where_the_place_is_lost)
{
	repeat(200, 3 * MS, MS);
	while (governor.trial.state != TRIAL_STAY)
		repeat(1, 3 * MS, MS);
	assert_int_equal(lose_place(20, 3 * MS, MS), 0);
}

static bool by_rate_moves(void)
{
	return governor.by_rate.state == GOVERNOR_TRY || governor.by_rate.state == GOVERNOR_MOVE;
}

TEST(where_it_stays_lost_the_rate_decides)
{
	repeat(50, MS, 3 * MS);
	/* 50 s with moving, 10 s without. */
	unsigned moves = lose_place(10000, 5 * MS, MS);
	assert_false(governor.allows);
	assert_in_range(moves, 0, 1000);
	for (unsigned i = 0; i < 500; i++) {
		lose_place(1, 5 * MS, MS);
		assert_int_equal(governor.allows, by_rate_moves());
	}
}

TEST(a_place_that_was_held_for_a_moment_tells_nothing)
{
	lose_place(2000, 3 * MS, MS);
	for (unsigned i = 0; i < 20; i++) {
		/* 12 ms at most. */
		repeat(6, MS / 10, MS / 10);
		for (unsigned n = 0; n < 50; n++) {
			lose_place(1, 3 * MS, MS);
			assert_int_equal(governor.allows, by_rate_moves());
		}
	}
}
