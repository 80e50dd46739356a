// SPDX-License-Identifier: Apache-2.0
/*
 * The scheduler with copies that end when the test says so: what it begins, in which order, and when it waits no more.
 * Nothing here takes time.
 */
#include "test/test.h"
#include "test/unit/scheduler_help.h"

static int begin(void **state)
{
	if (setup(state))
		return -1;
	names_all = false;
	unit_ns = 40000;
	return 0;
}

EACH_TEST(begin, teardown)

static void name(uint32_t piece)
{
	plan_note(scheduler.plan, 100 + piece, &piece, 1);
}

/* The first `n` pieces are on the device, the next `more` on the host; the latest submission names none of them. */
static void lay_unnamed(uint32_t n, uint32_t more)
{
	lay(n, more);
	name(PIECES - 1);
}

static enum scheduler_wait want(uint32_t piece, uint64_t waited)
{
	return scheduler_wait(&scheduler, &(struct scheduler_named){.pieces = &piece, .n = 1}, waited);
}

/* ---- waiting submissions ---- */

/* What the GPU still uses late is worth waiting for while the GPU goes on, but not for ever: others may use it. */
TEST(a_better_victim_is_waited_for_a_short_time)
{
	static const struct {
		uint64_t waited, age; /* ns */
		bool idle, evicts;
	} cases[] = {
	    {0, 0, false, false}, {6000000, 6000000, false, true}, {0, 40000000, false, true}, {0, 0, true, true}};

	for (unsigned i = 0; i <= 20; i++)
		put(i, i ? PLAN_DEVICE : PLAN_HOST);
	for (unsigned step = 0; step < 3; step++)
		for (uint32_t i = 0; i <= 20; i++)
			name(i);
	for (unsigned i = 9; i <= 20; i++)
		busy[i] = true;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		idle = cases[i].idle;
		n_orders = 0;
		scheduler_wait(&scheduler,
			       &(struct scheduler_named){.pieces = &(uint32_t){0}, .n = 1, .age = cases[i].age},
			       cases[i].waited);
		assert_int_equal(n_orders > 0 && orders[0] == OUT + 8, cases[i].evicts);
		for (unsigned k = 0; k < n_orders; k++)
			put(orders[k] - OUT, PLAN_DEVICE);
	}
}

TEST(a_piece_comes_and_room_is_made_behind_it)
{
	lay_unnamed(19, 2); /* room for one */
	assert_int_equal(want(19, 0), SCHEDULER_WAITS);
	assert_int_equal(orders[0], 19);
	/* Evictions until the reserve is free, or enough is in flight. */
	assert_true(n_orders > 1);
	for (unsigned i = 1; i < n_orders; i++)
		assert_true(orders[i] >= OUT);
	assert_true((n_moving(false) - 1) * UNITS * PLAN_UNIT < move_limits_under_way(BUDGET, UNITS * PLAN_UNIT));
	/* It is on its way: nothing is begun twice. */
	unsigned before = n_orders;
	assert_int_equal(want(19, 0), SCHEDULER_WAITS);
	assert_int_equal(n_orders, before);
	finish();
	assert_int_equal(want(19, 0), SCHEDULER_RUNS);
}

TEST(nothing_leaves_for_the_last_piece_that_is_away)
{
	lay_unnamed(19, 1);
	assert_int_equal(want(19, 0), SCHEDULER_WAITS);
	finish();
	assert_int_equal(want(19, 0), SCHEDULER_RUNS);
	scheduler_ahead(&scheduler);
	assert_int_equal(n_orders, 1);
	assert_int_equal(orders[0], 19);
}

TEST(without_room_an_eviction_comes_first)
{
	lay_unnamed(20, 1);
	assert_int_equal(want(20, 0), SCHEDULER_WAITS);
	assert_true(n_moving(false) > 0 && n_moving(true) == 0);
	assert_true(scheduler.starving);
	/* No prefetch takes the room before it. */
	unsigned before = n_orders;
	scheduler_ahead(&scheduler);
	assert_int_equal(n_orders, before);
	finish();
	scheduler.starving = false;
	before = n_orders;
	assert_int_equal(want(20, 0), SCHEDULER_WAITS);
	assert_int_equal(orders[before], 20);
	assert_false(scheduler.starving);
}

TEST(what_nothing_can_leave_for_is_used_where_it_is)
{
	lay_unnamed(20, 1);
	memset(busy, true, sizeof(busy));
	/* Something runs: it may end. */
	assert_int_equal(want(20, 0), SCHEDULER_WAITS);
	assert_false(there[20]);
	/* Nothing runs: all wait for each other. */
	idle = true;
	scheduler.starving = false;
	assert_int_equal(want(20, 0), SCHEDULER_RUNS);
	assert_true(there[20]);
	assert_false(scheduler.starving);
	/* There is no host memory. */
	memset(busy, false, sizeof(busy));
	memset(there, false, sizeof(there));
	idle = false;
	host_free = 0;
	assert_int_equal(want(20, 0), SCHEDULER_RUNS);
	assert_true(there[20]);
	assert_int_equal(n_orders, 0);
}

TEST(patience_ends_when_neither_gpu_nor_link_does_anything)
{
	lay_unnamed(20, 1);
	memset(busy, true, sizeof(busy));
	assert_int_equal(want(20, 50000000), SCHEDULER_WAITS);
	/* What the named pieces take on the link, twice: 2 * 8 units * 80 us. */
	assert_int_equal(want(20, 50000000 + 1280000), SCHEDULER_WAITS);
	assert_false(scheduler.stalled);
	others_in = 1;
	assert_int_equal(want(20, 60000000), SCHEDULER_WAITS);
	others_in = 0;
	assert_int_equal(want(20, 50000000 + 1280001), SCHEDULER_GIVEN_UP);
	assert_true(scheduler.stalled);
}

/* Submissions leave after 2 s: with a longer patience each of them would wait that long, one after another. */
TEST(a_link_that_was_slow_once_does_not_make_patience_endless)
{
	lay_unnamed(20, 1);
	memset(busy, true, sizeof(busy));
	unit_ns = 500000000;
	quiet_ns = 50000000;
	assert_int_equal(want(20, 50000001), SCHEDULER_WAITS);
	quiet_ns = 50000001;
	assert_int_equal(want(20, 50000000), SCHEDULER_WAITS);
	assert_false(scheduler.stalled);
	others_out = 1;
	assert_int_equal(want(20, 50000001), SCHEDULER_WAITS);
	others_out = 0;
	assert_int_equal(want(20, 50000001), SCHEDULER_GIVEN_UP);
	assert_true(scheduler.stalled);
}

TEST(a_victim_that_the_driver_refuses_is_put_aside)
{
	lay_unnamed(20, 1);
	refuses = true;
	assert_int_equal(want(20, 0), SCHEDULER_WAITS);
	unsigned n = 0;
	for (uint32_t i = 0; i < PIECES; i++)
		n += aside[i];
	assert_int_equal(n, 1);
	assert_int_equal(n_orders, 0);
}

TEST(new_blocks_find_room_or_hear_that_there_is_none)
{
	lay_unnamed(20, 0);
	assert_true(scheduler_for_new(&scheduler, 16 * MIB));
	assert_true(n_moving(false) > 0);
	finish();
	memset(busy, true, sizeof(busy));
	assert_true(scheduler_for_new(&scheduler, BUDGET));
	idle = true;
	assert_false(scheduler_for_new(&scheduler, BUDGET));
}

/* ---- ahead ---- */

/* Names the first n pieces in turn, several times, so that the future is known. */
static void repeat(uint32_t n)
{
	for (unsigned t = 0; t < 8; t++)
		for (uint32_t i = 0; i < n; i++)
			name(i);
	assert_true(plan_knows(scheduler.plan));
}

TEST(what_is_foreseen_comes_as_far_as_the_limits_go)
{
	for (uint32_t i = 0; i < 24; i++)
		put(i, i < 4 ? PLAN_HOST : PLAN_DEVICE);
	for (uint32_t i = 4; i < 12; i++)
		put(i, PLAN_HOST);
	repeat(24);
	scheduler_ahead(&scheduler);
	assert_int_equal(orders[0], 0);
	assert_true(n_moving(true) > 0 && n_moving(true) == n_ahead);
	/* With this much in flight no other begins, and no more than the limit ahead. */
	assert_true((n_moving(true) - 1) * UNITS * PLAN_UNIT < move_limits_under_way(BUDGET, UNITS * PLAN_UNIT));
	for (unsigned round = 0; round < 20; round++) {
		finish();
		scheduler_ahead(&scheduler);
	}
	assert_true(n_ahead * UNITS * PLAN_UNIT <= move_limits_ahead(BUDGET, false) + UNITS * PLAN_UNIT);
}

/* There is no memory to remember what the driver refuses to move: that is tried a bounded number of times. */
TEST(what_cannot_be_put_aside_is_not_tried_for_ever)
{
	enum { EACH = 20, ALL = FIT + 4 };

	names_all = false;
	for (uint32_t i = 0; i < ALL; i++)
		put(i, i < FIT ? PLAN_DEVICE : PLAN_HOST);
	/* Half of them are dead for half of the period, and for a moment more: then more is needed than there is. */
	for (unsigned t = 0; t < 6; t++)
		for (uint32_t i = 0; i < EACH * ALL; i++) {
			for (uint32_t j = ALL / 2; j < ALL && (i == EACH || i == EACH * ALL / 2); j++)
				plan_set_dead(scheduler.plan, j, i == EACH ? 0 : PLAN_DEAD);
			name(i / EACH);
		}
	refuses = forgets_aside = true;
	scheduler_ahead(&scheduler);
	assert_in_range(n_aside, 2, 200);
}

/*
 * Of submissions that take turns one names more than fits. What the others use does not leave for it, beside kernels or
 * in a gap: it would come back at each turn. others: how many there are.
 */
enum { MANY = FIT + 4, OTHER = 40 };
static uint32_t many[MANY];

static void take_turns(unsigned others)
{
	memset(busy, true, MANY * sizeof(busy[0]));
	for (uint32_t i = 0; i < MANY; i++)
		put(many[i] = i, i < FIT - 1 ? PLAN_DEVICE : PLAN_HOST);
	put(OTHER, PLAN_DEVICE);
	for (unsigned turn = 0; turn < 8; turn++) {
		for (unsigned i = 0; i < others; i++)
			plan_note(scheduler.plan, 100 + i % 1000, &(uint32_t){OTHER}, 1);
		plan_note(scheduler.plan, 1, many, MANY);
	}
	assert_int_equal(plan_period(scheduler.plan), others + 1);
	n_orders = 0;
}

static const struct scheduler_named names_many = {.pieces = many, .n = MANY};

TEST(what_is_used_before_it_comes_again_stays_for_one_that_names_more_than_fits)
{
	const unsigned counts[] = {1, 2, 3, 4, 5, 6, 7, 8, PLAN_SPAN_MOST + 1};

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		teardown(NULL);
		begin(NULL);
		take_turns(counts[i]);
		assert_int_equal(scheduler_wait(&scheduler, &names_many, 0), SCHEDULER_RUNS);
		assert_false(scheduler.starving);
		scheduler_wish_named(&scheduler, &names_many);
		assert_false(scheduler_gap_pays(&scheduler));
		scheduler_forget_wishes(&scheduler);
		assert_int_equal(n_orders, 0);
		assert_true(there[FIT]);
	}
}

static void has_the_room(const struct scheduler_named *named)
{
	scheduler_wish_named(&scheduler, named);
	assert_true(scheduler_gap_pays(&scheduler));
	scheduler_forget_wishes(&scheduler);
	scheduler_wait(&scheduler, named, 0);
	assert_int_equal(orders[0], OTHER + OUT);
}

TEST(what_others_use_leaves_for_one_that_fits)
{
	take_turns(2);
	has_the_room(&(struct scheduler_named){.pieces = many + 4, .n = FIT});
}

/* What is on the host for good takes no room. */
TEST(what_others_use_leaves_for_one_that_fits_beside_what_is_pinned)
{
	take_turns(2);
	for (uint32_t i = MANY - 4; i < MANY; i++)
		put(i, PLAN_PINNED);
	has_the_room(&names_many);
}

/* A graph that uses a byte twenty times takes it over the link as often. */
TEST(what_others_use_leaves_for_a_graph_that_names_more_than_fits)
{
	static uint32_t uses[MANY];

	for (uint32_t i = 0; i < MANY; i++)
		uses[i] = 20 * SCHEDULER_USE;
	take_turns(2);
	has_the_room(&(struct scheduler_named){.pieces = many, .uses = uses, .n = MANY, .who = 1});
}

/* ---- gaps ---- */

static void run_gap(void)
{
	while (scheduler_has_wishes(&scheduler)) {
		scheduler_gap_round(&scheduler);
		finish();
	}
}

static void run_gap_for_new(uint64_t bytes)
{
	bool can = true;

	while (scheduler_gap_round_for_new(&scheduler, bytes, &can))
		finish();
}

TEST(a_gap_fetches_what_was_wished_for_in_order)
{
	unsigned fetched[4], n = 0;

	lay_unnamed(20, 4);
	for (uint32_t i = 20; i < 24; i++)
		scheduler_wish(&scheduler, i, plan_now(scheduler.plan));
	assert_true(scheduler_gap_pays(&scheduler));
	run_gap();
	scheduler_gap_end(&scheduler);
	scheduler_forget_wishes(&scheduler);
	for (unsigned i = 0; i < n_orders; i++)
		if (orders[i] < OUT)
			fetched[n++] = orders[i];
	assert_int_equal(n, 4);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(fetched[i], 20 + i);
		assert_int_equal(places[20 + i], PLAN_DEVICE);
	}
	assert_int_equal(scheduler.wishes.n, 0);
	assert_int_equal(n_ahead, 0);
}

/* What is unmapped and does not come must be mapped again, which takes longer than what was saved. */
TEST(only_what_has_room_is_unmapped_early)
{
	uint32_t piece;

	lay_unnamed(20, 6);
	memset(busy, true, sizeof(busy));
	busy[3] = busy[7] = false;
	for (uint32_t i = 20; i < 26; i++)
		scheduler_wish(&scheduler, i, plan_now(scheduler.plan));
	assert_false(scheduler_gap_early(&scheduler, &piece));
	scheduler_gap_round(&scheduler);
	for (uint32_t i = 20; i < 22; i++) {
		assert_true(scheduler_gap_early(&scheduler, &piece));
		assert_int_equal(piece, i);
	}
	assert_false(scheduler_gap_early(&scheduler, &piece));
	while (scheduler_has_wishes(&scheduler)) {
		finish();
		scheduler_gap_round(&scheduler);
		assert_false(scheduler_gap_early(&scheduler, &piece));
	}
	finish();
	assert_int_equal(places[21], PLAN_DEVICE);
	assert_int_equal(places[22], PLAN_HOST);
	scheduler_gap_end(&scheduler);
	scheduler_forget_wishes(&scheduler);
}

/* Many small pieces: then the list is full before what comes ahead is much. */
TEST(a_full_list_of_wishes_ends_the_look_ahead)
{
	for (uint32_t i = 0; i < 24; i++)
		put(i, i < 4 ? PLAN_HOST : PLAN_DEVICE);
	repeat(24);
	sizes[PIECES - 1] = 0;
	for (unsigned i = 0; i < WISHES; i++)
		scheduler_wish(&scheduler, PIECES - 1, plan_now(scheduler.plan));
	scheduler_wish_ahead(&scheduler);
	assert_int_equal(scheduler.wishes.n, WISHES);
	scheduler_forget_wishes(&scheduler);
}

TEST(a_gap_without_victims_is_not_worth_it)
{
	lay_unnamed(20, 1);
	assert_false(scheduler_gap_pays(&scheduler));
	memset(busy, true, sizeof(busy));
	scheduler_wish(&scheduler, 20, plan_now(scheduler.plan));
	assert_false(scheduler_gap_pays(&scheduler));
	/* Even so it ends, and the plan learns that the piece is still on the host. */
	run_gap();
	scheduler_gap_end(&scheduler);
	scheduler_forget_wishes(&scheduler);
	assert_int_equal(n_orders, 0);
	assert_int_equal(plan_units(scheduler.plan, PLAN_HOST), UNITS);
	assert_int_equal(plan_units(scheduler.plan, PLAN_MOVING), 0);
}

TEST(victims_refused_in_a_gap_may_be_chosen_in_the_next)
{
	lay_unnamed(20, 1);
	refuses = true;
	scheduler_wish(&scheduler, 20, plan_now(scheduler.plan));
	run_gap();
	assert_int_equal(scheduler.n_refused, 20);
	assert_int_equal(plan_units(scheduler.plan, PLAN_DEVICE), 0);
	scheduler_gap_end(&scheduler);
	scheduler_forget_wishes(&scheduler);
	assert_int_equal(plan_units(scheduler.plan, PLAN_DEVICE), 20 * UNITS);
}

/* More than a gap keeps a list of. Each try of the next piece finds one more. */
TEST(of_many_refused_victims_none_is_lost)
{
	enum { SMALL = 70 };

	for (uint32_t i = 0; i < PIECES; i++)
		sizes[i] = 2;
	for (uint32_t i = 0; i < SMALL + 8; i++)
		put(i, i < SMALL ? PLAN_DEVICE : PLAN_HOST);
	sizes[PIECES - 1] = UNITS * FIT - 2 * SMALL;
	put(PIECES - 1, PLAN_DEVICE);
	name(PIECES - 2);
	busy[PIECES - 1] = true;
	assert_int_equal(device_free(), 0);
	refuses = true;
	for (uint32_t i = SMALL; i < SMALL + 8; i++)
		scheduler_wish(&scheduler, i, plan_now(scheduler.plan));
	run_gap();
	scheduler_gap_end(&scheduler);
	scheduler_forget_wishes(&scheduler);
	assert_int_equal(plan_units(scheduler.plan, PLAN_PINNED), 0);
	assert_int_equal(plan_units(scheduler.plan, PLAN_DEVICE), UNITS * FIT);
}

TEST(a_gap_for_a_new_block_makes_room_for_more)
{
	lay_unnamed(20, 0);
	assert_true(scheduler_gap_pays_for_new(&scheduler));
	run_gap_for_new(16 * MIB);
	assert_true(device_free() >= 16 * MIB + move_limits_ahead(BUDGET, true));
	assert_true(device_free() < 16 * MIB + move_limits_ahead(BUDGET, true) + UNITS * PLAN_UNIT);
	assert_int_equal(n_moving(false), 0);
	memset(busy, true, sizeof(busy));
	unsigned before = n_orders;
	run_gap_for_new(BUDGET);
	assert_int_equal(n_orders, before);
}
