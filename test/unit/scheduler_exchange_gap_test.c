// SPDX-License-Identifier: Apache-2.0
/*
 * Exchanges in gaps: what a submission that names more than fits has on the device. Nothing here takes time.
 */
#include "test/test.h"
#include "test/unit/scheduler_help.h"

/* Returns how many pieces the gap has moved; 0: there was none. */
static unsigned run_in_gap(const struct graph *of)
{
	unsigned before = n_fetched + n_exchanged;

	names_of(of, &names);
	plan_note(scheduler.plan, 7, names.pieces, names.named.n);
	scheduler_wish_named(&scheduler, &names.named);
	bool pays = scheduler_gap_pays(&scheduler);
	for (unsigned rounds = 0; pays && scheduler_has_wishes(&scheduler); rounds++) {
		assert_true(rounds < 1000);
		scheduler_gap_round(&scheduler);
		finish();
	}
	finish();
	scheduler_gap_end(&scheduler);
	scheduler_forget_wishes(&scheduler);
	assert_null(scheduler.named.uses);
	assert_int_equal(n_evicted, 0);
	assert_int_equal(plan_units(scheduler.plan, PLAN_MOVING), 0);
	/* It pays whenever there is something to do, and only then. */
	assert_int_equal(pays, n_fetched + n_exchanged > before);
	return n_fetched + n_exchanged - before;
}

TEST(in_a_gap_what_is_used_most_comes_and_stays)
{
	lay(FIT, 14);
	graph_uses(&graph, 0, FIT, 2);
	graph_uses(&graph, FIT, FIT + 10, 12);
	graph_uses(&graph, FIT + 10, FIT + 14, 1);
	graph_uses(&graph, 3, 5, 1);
	assert_int_equal(run_in_gap(&graph), 20);
	assert_int_equal(n_at(FIT, FIT + 10, PLAN_DEVICE), 10);
	assert_int_equal(n_at(3, 5, PLAN_HOST), 2);
	assert_int_equal(n_at(0, FIT, PLAN_DEVICE), 10);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(run_in_gap(&graph), 0);
}

TEST(in_a_gap_a_piece_may_be_exchanged_for_several)
{
	lay(FIT, 2);
	sizes[FIT] = 3 * UNITS;
	put(FIT, PLAN_HOST);
	graph_uses(&graph, 0, FIT, 2);
	graph_uses(&graph, FIT, FIT + 1, 12);
	graph_uses(&graph, FIT + 1, FIT + 2, 11);
	run_in_gap(&graph);
	assert_int_equal(first_fetched, FIT);
	assert_int_equal(n_at(FIT, FIT + 2, PLAN_DEVICE), 2);
	assert_int_equal(n_exchanged, 4);
	assert_int_equal(run_in_gap(&graph), 0);
}

/* Nothing comes back in the gap in which it leaves. So it is not counted with what comes for a large piece. */
TEST(what_has_left_does_not_fill_the_rest_of_a_large_piece)
{
	enum { OTHERS, LARGE, LEAVES, MOST, SMALL };
	static const uint32_t units[] = {
	    [OTHERS] = FIT * UNITS - 31, [LARGE] = 16, [LEAVES] = 15, [MOST] = 15, [SMALL] = 1};

	for (uint32_t i = OTHERS; i <= SMALL; i++) {
		sizes[i] = units[i];
		put(i, i < MOST ? PLAN_DEVICE : PLAN_HOST);
	}
	graph_uses(&graph, OTHERS, LARGE, 20);
	graph_uses(&graph, LARGE, MOST, 1);
	graph_uses(&graph, MOST, SMALL, 13);
	graph_uses(&graph, SMALL, SMALL + 1, 12);
	assert_int_equal(run_in_gap(&graph), 2);
	assert_int_equal(places[LEAVES], PLAN_HOST);
	assert_int_equal(places[MOST], PLAN_DEVICE);
	assert_int_equal(places[LARGE], PLAN_DEVICE);
}

TEST(no_gap_is_made_for_what_is_not_exchanged)
{
	lay(FIT, 10);
	graph_uses(&graph, 0, FIT, 9);
	graph_uses(&graph, FIT, FIT + 10, 13);
	assert_int_equal(run_in_gap(&graph), 0);
	graph_uses(&graph, 0, FIT, 1);
	names_of(&graph, &names);
	names.named.uses = NULL;
	scheduler_wish_named(&scheduler, &names.named);
	assert_int_equal(scheduler.wishes.n, 10);
	assert_false(scheduler_gap_pays(&scheduler));
	scheduler_forget_wishes(&scheduler);
}

/* A submission at the gate has pinned them. The gap ends all the same. */
TEST(what_is_pinned_at_the_gate_stays)
{
	lay(FIT, 3);
	memset(running, true, sizeof(running));
	graph_uses(&graph, 0, FIT, 1);
	graph_uses(&graph, FIT, FIT + 3, 12);
	names_of(&graph, &names);
	plan_note(scheduler.plan, 7, names.pieces, names.named.n);
	scheduler_wish_named(&scheduler, &names.named);
	assert_true(scheduler_gap_pays(&scheduler));
	for (unsigned rounds = 0; scheduler_has_wishes(&scheduler); rounds++) {
		assert_true(rounds < 10);
		scheduler_gap_round(&scheduler);
	}
	scheduler_gap_end(&scheduler);
	scheduler_forget_wishes(&scheduler);
	assert_int_equal(n_fetched + n_exchanged, 0);
	/* Each gap stops the device, so there is none for the next launches. */
	memset(running, false, sizeof(running));
	unsigned waits = 0;
	while (!run_in_gap(&graph))
		assert_true(waits++ < 70);
	assert_true(waits > 50);
	assert_int_equal(n_exchanged, 3);
}

TEST(in_gaps_a_piece_that_is_refused_is_exchanged_once)
{
	refused_once(run_in_gap, 1);
}

TEST(in_gaps_graphs_that_take_turns_do_not_undo_each_other)
{
	turns_undo_nothing(run_in_gap);
}

EACH_TEST(setup, teardown)
