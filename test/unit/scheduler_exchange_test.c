// SPDX-License-Identifier: Apache-2.0
/*
 * What a submission that names more than fits has on the device, beside kernels. Nothing here takes time.
 */
#include "test/test.h"
#include "test/unit/scheduler_help.h"

static enum scheduler_wait one_round(const struct scheduler_named *named, uint64_t waited)
{
	scheduler.starving = false;
	enum scheduler_wait answer = scheduler_wait(&scheduler, named, waited);
	scheduler_ahead(&scheduler);
	if (answer == SCHEDULER_RUNS)
		scheduler_exchange_end(&scheduler, named);
	return answer;
}

/* Returns how many pieces it has moved. */
static unsigned run_named(const struct scheduler_named *named)
{
	unsigned before = n_fetched + n_exchanged;

	plan_note(scheduler.plan, 7, named->pieces, named->n);
	for (unsigned rounds = 0; one_round(named, 0) != SCHEDULER_RUNS; rounds++) {
		assert_true(rounds < 1000);
		finish();
	}
	finish();
	assert_int_equal(n_evicted, 0);
	return n_fetched + n_exchanged - before;
}

static unsigned run(const struct graph *of)
{
	return run_named(names_of(of, &names));
}

/* ---- what is exchanged ---- */

TEST(what_is_used_most_comes_and_stays)
{
	lay(FIT, 10);
	graph_uses(&graph, 0, FIT, 2);
	graph_uses(&graph, FIT, FIT + 10, 12);
	graph_uses(&graph, 3, 5, 1);
	assert_int_equal(run(&graph), 20);
	assert_int_equal(n_at(FIT, FIT + 10, PLAN_DEVICE), 10);
	/* Of the others those that are used least are away. */
	assert_int_equal(n_at(3, 5, PLAN_HOST), 2);
	assert_int_equal(n_at(0, FIT, PLAN_DEVICE), 10);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(run(&graph), 0);
}

/* ---- what runs ---- */

/* ---- two that take turns ---- */

/* Two must leave for one, and the second stays in use: the first, which comes back, does not leave again and again. */
TEST(what_began_half_way_is_not_begun_again)
{
	lay(FIT, 1);
	sizes[FIT] = 2 * UNITS;
	put(FIT, PLAN_HOST);
	graph_uses(&graph, 0, FIT + 1, 12);
	graph_uses(&graph, 0, 1, 1);
	graph_uses(&graph, 1, 2, 2);
	running[1] = true;
	names_of(&graph, &names);
	names.named.age = 40000000;
	for (unsigned i = 0; i < 10; i++)
		run_named(&names.named);
	assert_true(there[FIT]);
	assert_int_equal(n_exchanged, 1);
	assert_int_equal(n_fetched, 1);
}

/* A kernel that names what has left for a graph, and whose uses are not known, brings it back. */
TEST(a_graph_and_a_kernel_in_turn_move_less_and_less)
{
	struct graph kernel = {.who = 2};
	unsigned moved[2] = {0};

	lay(FIT, 10);
	graph_uses(&graph, 0, 10, 2);
	graph_uses(&graph, 10, FIT + 10, 3);
	graph_uses(&kernel, 0, 10, 1);
	names_of(&kernel, &names);
	names.named.uses = NULL;
	for (unsigned i = 0; i < 200; i++) {
		unsigned before = n_fetched;

		run(&graph);
		names_all = false;
		plan_note(scheduler.plan, 8, names.pieces, names.named.n);
		for (unsigned rounds = 0; scheduler_wait(&scheduler, &names.named, 0) != SCHEDULER_RUNS; rounds++) {
			assert_true(rounds < 1000);
			finish();
			scheduler.starving = false;
		}
		finish();
		names_all = true;
		n_evicted = 0;
		moved[i >= 100] += n_fetched - before;
	}
	assert_in_range(moved[0], 1, 200);
	assert_true(moved[1] <= moved[0] / 2);
}

TEST(the_link_has_more_than_one_to_do)
{
	lay(FIT, 10);
	for (uint32_t i = 0; i < FIT + 10; i++) {
		sizes[i] = 1;
		put(i, places[i]);
	}
	sizes[FIT + 10] = (FIT * UNITS) - FIT; /* what else the device holds */
	put(FIT + 10, PLAN_DEVICE);
	plan_set(scheduler.plan, FIT + 10, sizes[FIT + 10], PLAN_PINNED);
	graph_uses(&graph, 0, FIT, 1);
	graph_uses(&graph, FIT, FIT + 10, 12);
	one_round(names_of(&graph, &names), 0);
	assert_true(n_exchanged > 1);
	/* No more leave than come. */
	finish();
	run(&graph);
	assert_int_equal(n_exchanged, 10);
	assert_int_equal(n_at(FIT, FIT + 10, PLAN_DEVICE), 10);
}

TEST(without_uses_nothing_leaves)
{
	lay(FIT, 10);
	graph_uses(&graph, 0, FIT, 1);
	graph_uses(&graph, FIT, FIT + 10, 12);
	names_of(&graph, &names);
	names.named.uses = NULL;
	assert_int_equal(run_named(&names.named), 0);
	for (uint32_t i = FIT; i < FIT + 10; i++)
		assert_true(there[i]);
}

TEST(what_is_used_a_little_more_does_not_come)
{
	lay(FIT, 10);
	graph_uses(&graph, 0, FIT, 9);
	graph_uses(&graph, FIT, FIT + 10, 13);
	assert_int_equal(run(&graph), 0);
	assert_true(there[FIT]);
	/* Half as much again. */
	graph_uses(&graph, FIT, FIT + 1, 14);
	assert_int_equal(run(&graph), 2);
	/* It must pay within eight launches, too: these are hardly used at all. */
	for (uint32_t i = 0; i < FIT + 10; i++)
		graph.uses[i] = i < FIT ? 1 : 8;
	assert_int_equal(run(&graph), 0);
	graph.uses[FIT + 1] = 9;
	assert_int_equal(run(&graph), 2);
}

/* It would not be worth it: 64 units that are used 4 times for one that is used 12 times. */
TEST(a_large_piece_does_not_leave_for_a_small_one)
{
	sizes[0] = 64;
	sizes[1] = FIT * UNITS - 64;
	put(0, PLAN_DEVICE);
	put(1, PLAN_DEVICE);
	graph_uses(&graph, 0, 1, 4);
	graph_uses(&graph, 1, 2, 12);
	for (uint32_t i = 2; i < 34; i++) {
		sizes[i] = 1;
		put(i, PLAN_HOST);
	}
	graph_uses(&graph, 2, 33, 12);
	assert_int_equal(run(&graph), 0);
	/* But for so many that they are used half as much again. */
	graph_uses(&graph, 33, 34, 12);
	assert_int_equal(run(&graph), 33);
	assert_int_equal(places[0], PLAN_HOST);
	assert_int_equal(run(&graph), 0);
}

/* What the plan has pinned must stay. */
TEST(what_must_stay_is_not_exchanged)
{
	lay(FIT, 2);
	for (uint32_t i = 0; i < FIT - 1; i++)
		plan_set(scheduler.plan, i, UNITS, PLAN_PINNED);
	graph_uses(&graph, 0, FIT, 1);
	graph_uses(&graph, FIT, FIT + 2, 12);
	assert_int_equal(run(&graph), 2);
	assert_int_equal(places[FIT - 1], PLAN_HOST);
	assert_int_equal(places[FIT], PLAN_DEVICE);
}

/* Room comes bit by bit. It is not for pieces that need less of it and are used less. */
TEST(the_room_is_for_what_is_used_most)
{
	lay(FIT, 3);
	sizes[FIT] = 3 * UNITS;
	put(FIT, PLAN_HOST);
	graph_uses(&graph, 0, FIT, 2);
	graph_uses(&graph, FIT, FIT + 1, 12);
	graph_uses(&graph, FIT + 1, FIT + 3, 11);
	run(&graph);
	assert_int_equal(first_fetched, FIT);
	assert_int_equal(n_at(FIT, FIT + 3, PLAN_DEVICE), 3);
	assert_int_equal(n_exchanged, 5);
}

TEST(what_runs_is_waited_for_as_long_as_patience_lasts)
{
	lay(FIT, 1);
	memset(running, true, sizeof(running));
	graph_uses(&graph, 0, FIT, 1);
	graph_uses(&graph, FIT, FIT + 1, 12);
	names_of(&graph, &names);
	plan_note(scheduler.plan, 7, names.pieces, names.named.n);
	assert_int_equal(one_round(&names.named, 0), SCHEDULER_WAITS);
	assert_false(there[FIT]);
	/* Nothing runs, and yet they are busy: they would stay so. */
	idle = true;
	assert_int_equal(one_round(&names.named, 0), SCHEDULER_RUNS);
	assert_true(there[FIT]);
	idle = false;
	/* Others may use them all the time: progress does not make it wait for longer. */
	there[FIT] = false;
	names.named.age = 39999999;
	assert_int_equal(one_round(&names.named, 0), SCHEDULER_WAITS);
	names.named.age++;
	assert_int_equal(one_round(&names.named, 0), SCHEDULER_RUNS);
	assert_true(there[FIT]);
	assert_false(scheduler.stalled);
	assert_int_equal(n_exchanged, 0);
	memset(running, false, sizeof(running));
	assert_int_equal(run(&graph), 2);
}

/* What has left may come back: it must not leave for the same piece again and again. */
TEST(a_piece_that_is_refused_is_exchanged_once)
{
	refused_once(run, 0);
}

TEST(graphs_that_take_turns_do_not_undo_each_other)
{
	turns_undo_nothing(run);
}

/* Copies each way at each launch cost less than what the launch saves. */
TEST(an_exchange_that_pays_at_once_is_made_in_each_turn)
{
	struct graph one = {.who = 1}, other = {.who = 2};

	lay(FIT, 10);
	graph_uses(&one, 0, FIT, 1);
	graph_uses(&one, FIT, FIT + 10, 5);
	graph_uses(&other, 0, FIT + 10, 1);
	graph_uses(&other, 10, FIT, 5);
	run(&one);
	run(&other);
	assert_int_equal(n_at(10, FIT, PLAN_DEVICE), 10);
	run(&one);
	assert_int_equal(n_at(FIT, FIT + 10, PLAN_DEVICE), 10);
}

EACH_TEST(setup, teardown)
