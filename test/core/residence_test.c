// SPDX-License-Identifier: Apache-2.0
/*
 * residence_test.c: where the memory of a device is when the user and turns ask for different things, one after the
 * other: what shim/plan/residence.h has in its table.
 */
#include "shim/heap/block.h"
#include "shim/mover/mover.h"
#include "shim/mover/types.h"
#include "shim/mover/spill.h"
#include "shim/submit/submission.h"
#include "test/core/core.h"

#define BYTES (8 * MIB)

static struct core_heap own;
static struct device device;
static struct engine *engine;
static struct heap_grant grant;

static void begin_with(uint64_t host_bytes)
{
	core_heap_open(&own, 64 * MIB, host_bytes, 0);
	engine = core_engine(&own, &device, true);
	atomic_store(&mover_state.spill.engines[0], engine);
	grant = core_take(&own, BYTES, CHUNK_MOVABLE, HEAP_DEVICE);
	assert_true(mover_start(engine));
}

FIXTURE(begin)
{
	begin_with(64 * MIB);
}

FIXTURE(begin_without_host)
{
	begin_with(0);
}

FIXTURE(begin_with_little_host)
{
	begin_with(BYTES);
}

FIXTURE(end)
{
	if (!atomic_load(&engine->channel.dead))
		engine_ask(engine, &(struct order){.what = ORDER_STOP}, 60000, NULL, NULL);
	assert_int_equal(spill_residence(&device), RESIDENCE_RUNS);
	assert_int_equal(spill_held_by(NULL), 0);
	assert_false(spill_any_held());
	assert_false(atomic_load(&submission_state) & SUBMISSION_CLOSED);
	atomic_store(&mover_state.spill.engines[0], NULL);
	core_heap_close(&own);
}

static enum sw_status ask(enum residence to, enum residence_reason reason)
{
	const struct order order = {.what = ORDER_RESIDE, .to = to, .reason = reason};

	return engine_ask(engine, &order, 60000, NULL, NULL);
}

static void assert_is(enum residence residence, unsigned reasons)
{
	assert_int_equal(spill_residence(&device), residence);
	assert_int_equal(spill_held_by(&device), reasons);
	assert_int_equal(spill_any_held(), residence != RESIDENCE_RUNS);
}

TEST_WITH(it_stops_leaves_comes_back_and_goes_on, begin, end)
{
	assert_ok(ask(RESIDENCE_STOPPED, RESIDENCE_TURN));
	assert_is(RESIDENCE_STOPPED, RESIDENCE_TURN);
	assert_int_equal(heap_made_device(own.heap), BYTES);
	assert_ok(ask(RESIDENCE_AWAY, RESIDENCE_TURN));
	assert_is(RESIDENCE_AWAY, RESIDENCE_TURN);
	assert_int_equal(heap_made_device(own.heap), 0);
	assert_ok(ask(RESIDENCE_BACK, RESIDENCE_TURN));
	assert_is(RESIDENCE_BACK, RESIDENCE_TURN);
	assert_int_equal(heap_made_device(own.heap), BYTES);
	assert_ok(ask(RESIDENCE_RUNS, RESIDENCE_TURN));
	assert_is(RESIDENCE_RUNS, 0);
}

TEST_WITH(what_the_user_holds_does_not_come_back_for_its_turn, begin, end)
{
	assert_ok(ask(RESIDENCE_STOPPED, RESIDENCE_TURN));
	assert_ok(ask(RESIDENCE_AWAY, RESIDENCE_USER));
	assert_is(RESIDENCE_AWAY, RESIDENCE_TURN | RESIDENCE_USER);
	assert_int_equal(ask(RESIDENCE_BACK, RESIDENCE_TURN), SW_BUSY);
	assert_int_equal(ask(RESIDENCE_RUNS, RESIDENCE_TURN), SW_BUSY);
	assert_is(RESIDENCE_AWAY, RESIDENCE_TURN | RESIDENCE_USER);
	assert_ok(ask(RESIDENCE_RUNS, RESIDENCE_USER));
	assert_ok(ask(RESIDENCE_RUNS, RESIDENCE_TURN));
	assert_is(RESIDENCE_RUNS, 0);
}

TEST_WITH(what_the_user_releases_waits_for_its_turn, begin, end)
{
	assert_ok(ask(RESIDENCE_AWAY, RESIDENCE_USER));
	assert_ok(ask(RESIDENCE_AWAY, RESIDENCE_TURN));
	assert_ok(ask(RESIDENCE_RUNS, RESIDENCE_USER));
	assert_is(RESIDENCE_AWAY, RESIDENCE_TURN);
	assert_ok(ask(RESIDENCE_RUNS, RESIDENCE_TURN));
	assert_is(RESIDENCE_RUNS, 0);
}

TEST_WITH(what_runs_is_released_by_nobody, begin, end)
{
	assert_ok(ask(RESIDENCE_RUNS, RESIDENCE_TURN));
	assert_ok(ask(RESIDENCE_BACK, RESIDENCE_TURN));
	assert_ok(ask(RESIDENCE_RUNS, RESIDENCE_USER));
	assert_is(RESIDENCE_RUNS, 0);
	assert_int_equal(heap_made_device(own.heap), BYTES);
}

TEST_WITH(a_leave_for_the_user_that_fails_holds_nothing, begin_without_host, end)
{
	assert_int_equal(ask(RESIDENCE_AWAY, RESIDENCE_USER), SW_NO_MEMORY);
	assert_is(RESIDENCE_RUNS, 0);
}

/* What was made while it was held cannot leave. */
TEST_WITH(a_second_leave_for_the_user_that_fails_leaves_it_held, begin_with_little_host, end)
{
	assert_ok(ask(RESIDENCE_AWAY, RESIDENCE_USER));
	core_take(&own, BYTES, CHUNK_MOVABLE, HEAP_DEVICE);
	assert_int_equal(ask(RESIDENCE_AWAY, RESIDENCE_USER), SW_NO_MEMORY);
	assert_is(RESIDENCE_AWAY, RESIDENCE_USER);
	assert_ok(ask(RESIDENCE_RUNS, RESIDENCE_USER));
	assert_is(RESIDENCE_RUNS, 0);
}

TEST_WITH(a_leave_for_a_turn_holds_also_what_cannot_leave, begin_without_host, end)
{
	assert_int_equal(ask(RESIDENCE_AWAY, RESIDENCE_TURN), SW_NO_MEMORY);
	assert_is(RESIDENCE_AWAY, RESIDENCE_TURN);
	assert_int_equal(ask(RESIDENCE_AWAY, RESIDENCE_USER), SW_NO_MEMORY);
	assert_is(RESIDENCE_AWAY, RESIDENCE_TURN);
	assert_ok(ask(RESIDENCE_RUNS, RESIDENCE_USER));
	assert_is(RESIDENCE_AWAY, RESIDENCE_TURN);
	assert_ok(ask(RESIDENCE_RUNS, RESIDENCE_TURN));
	assert_is(RESIDENCE_RUNS, 0);
}

/* end() sees that nothing holds it. */
TEST_WITH(nobody_holds_what_a_dead_mover_had, begin, end)
{
	assert_ok(ask(RESIDENCE_AWAY, RESIDENCE_USER));
	assert_ok(ask(RESIDENCE_AWAY, RESIDENCE_TURN));
}

BEFORE_ALL
{
	core_driver();
	core_context();
}
