// SPDX-License-Identifier: Apache-2.0
/*
 * Does moving by a known future pay? Made-up programs whose period takes so long with moving and so long without.
 */
#include "shim/plan/governor.h"
#include "test/test.h"

#define PERIOD 100u

struct program {
	struct trial trial;
	uint64_t now, done;
	uint64_t with_ns, without_ns; /* a submission */
	uint64_t moved_ns;            /* time spent with moving allowed */
	uint64_t still_ns;            /* what the trial is told of without_ns */
	bool moves;
};

/* So many submissions, one by one; the trial is asked after each. */
static void run(struct program *program, unsigned submissions)
{
	for (unsigned i = 0; i < submissions; i++) {
		uint64_t took = program->moves ? program->with_ns : program->without_ns;

		program->now += took;
		program->moved_ns += program->moves ? took : 0;
		program->done++;
		program->moves = trial_moves(&program->trial, program->now, program->done, PERIOD, program->still_ns);
	}
}

static struct program start(uint64_t with_ns, uint64_t without_ns)
{
	struct program program = {.with_ns = with_ns, .without_ns = without_ns, .moves = true};

	trial_init(&program.trial);
	return program;
}

TEST(moving_that_pays_goes_on_and_asking_costs_little)
{
	struct program program = start(1000000, 8000000);

	run(&program, 400 * PERIOD);
	assert_true(program.trial.state == TRIAL_MOVE || program.trial.state == TRIAL_ASK_STAY);
	/* Against 400 periods that all move: each question costs a period at most, and they become rare. */
	assert_in_range(program.now, 400ull * PERIOD * 1000000, 408ull * PERIOD * 1000000);
}

TEST(moving_that_does_not_pay_stops)
{
	struct program program = start(3000000, 1000000);

	run(&program, 400 * PERIOD);
	assert_true(program.trial.state == TRIAL_STAY || program.trial.state == TRIAL_ASK_MOVE);
	/* At most a tenth more than never moving, and what the first stretches cost. */
	assert_true(program.now < 440ull * PERIOD * 1000000);
}

TEST(what_becomes_worth_it_is_taken_up_again)
{
	struct program program = start(3000000, 1000000);

	run(&program, 20 * PERIOD);
	assert_int_equal(program.trial.state, TRIAL_STAY);
	program.with_ns = 300000;
	run(&program, 200 * PERIOD);
	assert_true(program.trial.state == TRIAL_MOVE || program.trial.state == TRIAL_ASK_STAY);
}

/* The first periods of moving pin host memory and bring everything to its place: they say nothing about later ones. */
TEST(a_slow_beginning_is_not_judged)
{
	struct program program = start(20000000, 8000000);

	for (unsigned i = 0; i < 6; i++) {
		run(&program, PERIOD);
		assert_int_equal(program.trial.state, TRIAL_MOVE);
		program.with_ns = program.with_ns * 3 / 5;
	}
	program.with_ns = 2000000;
	run(&program, 40 * PERIOD);
	assert_true(program.trial.state == TRIAL_MOVE || program.trial.state == TRIAL_ASK_STAY);
	assert_true(program.moved_ns > 30 * PERIOD * 2000000);
}

/* But what never becomes steady is judged in the end. */
TEST(a_program_that_is_never_the_same_is_judged_all_the_same)
{
	struct program program = start(3000000, 1000000);

	for (unsigned i = 0; i < 60; i++) {
		program.with_ns = i % 2 ? 3000000 : 5000000;
		run(&program, PERIOD);
	}
	assert_true(program.trial.state == TRIAL_STAY || program.trial.state == TRIAL_ASK_MOVE);
}

/* Asking costs a period without moving. */
TEST(what_seems_clear_is_asked_late)
{
	struct program program = start(1000000, 8000000);

	program.still_ns = 4000000;
	run(&program, 30 * PERIOD);
	assert_int_equal(program.now, program.moved_ns);
	run(&program, 370 * PERIOD);
	assert_true(program.now > program.moved_ns);
	assert_in_range(program.now, 400ull * PERIOD * 1000000, 403ull * PERIOD * 1000000);
	/* It names much and touches little: found out all the same. */
	program = start(3000000, 1000000);
	program.still_ns = 12000000;
	run(&program, 400 * PERIOD);
	assert_true(program.trial.state == TRIAL_STAY || program.trial.state == TRIAL_ASK_MOVE);
}

TEST(a_period_of_another_length_does_not_confuse_it)
{
	struct program program = start(3000000, 1000000);

	for (unsigned i = 0; i < 40 * PERIOD; i++) {
		program.now += program.moves ? program.with_ns : program.without_ns;
		program.done++;
		program.moves = trial_moves(&program.trial, program.now, program.done, PERIOD + i % 7, 0);
	}
	assert_true(program.trial.state == TRIAL_STAY || program.trial.state == TRIAL_ASK_MOVE);
}

/*
 * One launch again and again, then two in turn; left where it is, the memory of one of them is quick and the other's
 * slow.
 */
TEST(a_longer_period_is_measured_anew)
{
	struct program program = start(30000000, 30000000);

	for (unsigned i = 0; i < 3; i++) {
		program.now += 30000000;
		program.moves = trial_moves(&program.trial, program.now, ++program.done, 1, 0);
	}
	uint64_t begin = program.now;
	for (unsigned i = 0; i < 400; i++) {
		program.now += program.moves ? 150000000 : i % 2 ? 800000000 : 5000000;
		program.moves = trial_moves(&program.trial, program.now, ++program.done, 2, 0);
	}
	assert_true(program.now - begin < UINT64_C(400) * 170000000);
}
