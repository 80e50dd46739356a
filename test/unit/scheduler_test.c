/*
 * The scheduler with copies that end when the test says so: what it begins, in which order, and when it waits no more.
 * Nothing here takes time.
 */
#include "shim/plan/governor.h"
#include "shim/plan/scheduler.h"
#include "test/test.h"
#include "test/unit/plan_check.h"

#define UNITS  8 /* of each piece: 16 MiB */
#define PIECES 40
#define BUDGET (UNITS * PLAN_UNIT * 20)

/* The pieces, and what was ordered, in order: fetches as the piece, evictions as the piece + OUT. */
enum { OUT = 1000, LOG = 256 };
static struct scheduler scheduler;
static enum plan_place places[PIECES];
static bool coming[PIECES], busy[PIECES], aside[PIECES], there[PIECES];
static unsigned orders[LOG], n_orders, n_ahead, n_in, n_out;
static uint64_t host_free, unit_ns, quiet_ns;
static bool idle, refuses;

static void put(uint32_t piece, enum plan_place place)
{
	places[piece] = place;
	plan_set(scheduler.plan, piece, UNITS, place);
}

static uint64_t device_free(void)
{
	uint64_t bytes = BUDGET;

	for (unsigned i = 0; i < PIECES; i++)
		bytes -= places[i] == PLAN_DEVICE || places[i] == PLAN_MOVING ? UNITS * PLAN_UNIT : 0;
	return bytes;
}

static void look(void *hand, struct scheduler_view *ret_view)
{
	*ret_view = (struct scheduler_view){
	    .budget = BUDGET,
	    .largest = UNITS * PLAN_UNIT,
	    .free = device_free(),
	    .in = {.n = n_in, .bytes = n_in * UNITS * PLAN_UNIT, .unit_ns = unit_ns},
	    .out = {.n = n_out, .bytes = n_out * UNITS * PLAN_UNIT, .unit_ns = unit_ns},
	    .quiet_ns = quiet_ns,
	};
}

static uint32_t units(void *hand, uint32_t piece)
{
	(void)hand, (void)piece;
	return UNITS;
}

static enum plan_place where(void *hand, uint32_t piece)
{
	return places[piece];
}

static enum migrate_answer begin(uint32_t piece, bool in)
{
	assert_int_equal(places[piece], in ? PLAN_HOST : PLAN_DEVICE);
	assert_true(n_orders < LOG);
	orders[n_orders++] = piece + (in ? 0 : OUT);
	put(piece, PLAN_MOVING);
	coming[piece] = in;
	*(in ? &n_in : &n_out) += 1;
	return MIGRATE_BEGUN;
}

static enum migrate_answer fetch(void *hand, uint32_t piece, bool ahead, bool gap)
{
	(void)hand, (void)gap;
	if (device_free() < UNITS * PLAN_UNIT)
		return MIGRATE_NO_ROOM;
	n_ahead += ahead;
	return begin(piece, true);
}

static enum migrate_answer evict(void *hand, uint32_t piece, bool gap)
{
	(void)hand, (void)gap;
	if (refuses)
		return MIGRATE_FAILED;
	if (host_free < UNITS * PLAN_UNIT)
		return MIGRATE_NO_ROOM;
	host_free -= UNITS * PLAN_UNIT;
	return begin(piece, false);
}

static bool is_idle(void *hand)
{
	return idle;
}

static void put_aside(void *hand, uint32_t piece)
{
	aside[piece] = true;
	plan_set(scheduler.plan, piece, UNITS, PLAN_PINNED);
}

static void use_there(void *hand, uint32_t piece)
{
	there[piece] = true;
}

static void tell_plan(void *hand, uint32_t piece)
{
	put(piece, places[piece]);
}

static bool is_busy(void *hand, uint32_t piece)
{
	return busy[piece];
}

/* Ends all copies in flight. */
static void finish(void)
{
	n_in = n_out = 0;
	for (uint32_t i = 0; i < PIECES; i++)
		if (places[i] == PLAN_MOVING)
			put(i, coming[i] ? PLAN_DEVICE : PLAN_HOST);
}

static int setup(void **state)
{
	static const struct scheduler_ops ops = {
	    .look = look,
	    .units = units,
	    .where = where,
	    .fetch = fetch,
	    .evict = evict,
	    .is_idle = is_idle,
	    .put_aside = put_aside,
	    .use_there = use_there,
	    .tell_plan = tell_plan,
	    .is_busy = is_busy,
	    .is_in_use = is_busy,
	};

	memset(&scheduler, 0, sizeof(scheduler));
	memset(places, 0, sizeof(places));
	memset(busy, 0, sizeof(busy));
	memset(aside, 0, sizeof(aside));
	memset(there, 0, sizeof(there));
	n_orders = n_ahead = n_in = n_out = 0;
	host_free = UINT64_C(1) << 40;
	unit_ns = 40000;
	quiet_ns = 0;
	idle = refuses = false;
	scheduler.ops = &ops;
	scheduler.plan = plan_new(PLAN_BESIDE_KERNELS);
	return scheduler.plan ? 0 : -1;
}

FIXTURE(teardown)
{
	assert_true(plan_is_valid(scheduler.plan));
	plan_free(scheduler.plan);
}

EACH_TEST(setup, teardown)

static void name(uint32_t piece)
{
	plan_note(scheduler.plan, 100 + piece, &piece, 1);
}

/* The first `n` pieces are on the device, the next `more` on the host; the latest submission names none of them. */
static void lay(uint32_t n, uint32_t more)
{
	for (uint32_t i = 0; i < n + more; i++)
		put(i, i < n ? PLAN_DEVICE : PLAN_HOST);
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
		n_out = 0;
	}
}

TEST(a_piece_comes_and_room_is_made_behind_it)
{
	lay(19, 2); /* room for one */
	assert_int_equal(want(19, 0), SCHEDULER_WAITS);
	assert_int_equal(orders[0], 19);
	/* Evictions until the reserve is free, or enough is in flight. */
	assert_true(n_orders > 1);
	for (unsigned i = 1; i < n_orders; i++)
		assert_true(orders[i] >= OUT);
	assert_true((n_out - 1) * UNITS * PLAN_UNIT < move_limits_under_way(BUDGET, UNITS * PLAN_UNIT));
	/* It is on its way: nothing is begun twice. */
	unsigned before = n_orders;
	assert_int_equal(want(19, 0), SCHEDULER_WAITS);
	assert_int_equal(n_orders, before);
	finish();
	assert_int_equal(want(19, 0), SCHEDULER_RUNS);
}

TEST(nothing_leaves_for_the_last_piece_that_is_away)
{
	lay(19, 1);
	assert_int_equal(want(19, 0), SCHEDULER_WAITS);
	finish();
	assert_int_equal(want(19, 0), SCHEDULER_RUNS);
	scheduler_ahead(&scheduler);
	assert_int_equal(n_orders, 1);
	assert_int_equal(orders[0], 19);
}

TEST(without_room_an_eviction_comes_first)
{
	lay(20, 1);
	assert_int_equal(want(20, 0), SCHEDULER_WAITS);
	assert_true(n_out > 0 && n_in == 0);
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
	lay(20, 1);
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
	lay(20, 1);
	memset(busy, true, sizeof(busy));
	assert_int_equal(want(20, 50000000), SCHEDULER_WAITS);
	/* What the named pieces take on the link, twice: 2 * 8 units * 80 us. */
	assert_int_equal(want(20, 50000000 + 1280000), SCHEDULER_WAITS);
	assert_false(scheduler.stalled);
	n_in = 1;
	assert_int_equal(want(20, 60000000), SCHEDULER_WAITS);
	n_in = 0;
	assert_int_equal(want(20, 50000000 + 1280001), SCHEDULER_GIVEN_UP);
	assert_true(scheduler.stalled);
}

/* Submissions leave after 2 s: with a longer patience each of them would wait that long, one after another. */
TEST(a_link_that_was_slow_once_does_not_make_patience_endless)
{
	lay(20, 1);
	memset(busy, true, sizeof(busy));
	unit_ns = 500000000;
	quiet_ns = 50000000;
	assert_int_equal(want(20, 50000001), SCHEDULER_WAITS);
	quiet_ns = 50000001;
	assert_int_equal(want(20, 50000000), SCHEDULER_WAITS);
	assert_false(scheduler.stalled);
	n_out = 1;
	assert_int_equal(want(20, 50000001), SCHEDULER_WAITS);
	n_out = 0;
	assert_int_equal(want(20, 50000001), SCHEDULER_GIVEN_UP);
	assert_true(scheduler.stalled);
}

TEST(a_victim_that_the_driver_refuses_is_put_aside)
{
	lay(20, 1);
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
	lay(20, 0);
	assert_true(scheduler_for_new(&scheduler, 16 * MIB));
	assert_true(n_out > 0);
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
	assert_true(n_in > 0 && n_in == n_ahead);
	/* With this much in flight no other begins, and no more than the limit ahead. */
	assert_true((n_in - 1) * UNITS * PLAN_UNIT < move_limits_under_way(BUDGET, UNITS * PLAN_UNIT));
	for (unsigned round = 0; round < 20; round++) {
		finish();
		scheduler_ahead(&scheduler);
	}
	assert_true(n_ahead * UNITS * PLAN_UNIT <= move_limits_ahead(BUDGET, false) + UNITS * PLAN_UNIT);
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

	lay(20, 4);
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

	lay(20, 6);
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

TEST(a_gap_without_victims_is_not_worth_it)
{
	lay(20, 1);
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
	lay(20, 1);
	refuses = true;
	scheduler_wish(&scheduler, 20, plan_now(scheduler.plan));
	run_gap();
	assert_int_equal(scheduler.n_refused, 20);
	assert_int_equal(plan_units(scheduler.plan, PLAN_DEVICE), 0);
	scheduler_gap_end(&scheduler);
	scheduler_forget_wishes(&scheduler);
	assert_int_equal(plan_units(scheduler.plan, PLAN_DEVICE), 20 * UNITS);
}

TEST(a_gap_for_a_new_block_makes_room_for_more)
{
	lay(20, 0);
	assert_true(scheduler_gap_pays_for_new(&scheduler));
	run_gap_for_new(16 * MIB);
	assert_true(device_free() >= 16 * MIB + move_limits_ahead(BUDGET, true));
	assert_true(device_free() < 16 * MIB + move_limits_ahead(BUDGET, true) + UNITS * PLAN_UNIT);
	assert_int_equal(n_out, 0);
	memset(busy, true, sizeof(busy));
	unsigned before = n_orders;
	run_gap_for_new(BUDGET);
	assert_int_equal(n_orders, before);
}
