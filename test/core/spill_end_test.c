// SPDX-License-Identifier: Apache-2.0
/*
 * spill_end_test.c: the end of the process while memory is in between. What has to be waited for is told by how often
 * the mover is asked to stop, not by time.
 */
#include "shim/heap/block.h"
#include "shim/mover/mover.h"
#include "shim/mover/types.h"
#include "shim/mover/spill.h"
#include "shim/submit/submission.h"
#include "test/core/core.h"

#define BYTES (4 * MIB)

static struct core_heap own;
static struct device device;
static struct engine *engine;
static struct heap_grant grant;

static bool has_mover;
static _Atomic unsigned n_stops; /* how often the mover was asked to stop */
static void (*at_third)(void);

enum sw_status __real_engine_ask(struct engine *asked, const struct order *order, unsigned patience_ms,
				 const struct order_watch *watch, uint64_t *ret_bytes);
enum sw_status __wrap_engine_ask(struct engine *asked, const struct order *order, unsigned patience_ms,
				 const struct order_watch *watch, uint64_t *ret_bytes);
enum sw_status __wrap_engine_ask(struct engine *asked, const struct order *order, unsigned patience_ms,
				 const struct order_watch *watch, uint64_t *ret_bytes)
{
	if (order->what == ORDER_STOP) {
		patience_ms = 20;
		if (++n_stops == 3 && at_third)
			at_third();
	}
	return has_mover ? __real_engine_ask(asked, order, patience_ms, watch, ret_bytes) : SW_BUSY;
}

static int begin_as(bool exact)
{
	core_heap_open(&own, 64 * MIB, 64 * MIB, 64 * MIB);
	engine = core_engine(&own, &device, exact);
	atomic_store(&mover_state.spill.engines[0], engine);
	grant = core_take(&own, BYTES, CHUNK_MOVABLE, HEAP_DEVICE);
	assert_ok(heap_make_spare(own.heap, CHUNK_HOST, BYTES / HEAP_UNIT, false));
	has_mover = false;
	n_stops = 0;
	at_third = NULL;
	return 0;
}

static int begin_exact(void **state)
{
	return begin_as(true);
}

static int begin_fast(void **state)
{
	return begin_as(false);
}

FIXTURE(end)
{
	atomic_store(&mover_state.spill.ending, false);
	atomic_store(&mover_state.spill.engines[0], NULL);
	core_heap_close(&own);
}

static void *make_room(void *unused)
{
	__real_engine_ask(engine, &(struct order){.what = ORDER_ROOM, .bytes = BYTES}, 60000, NULL, NULL);
	return NULL;
}

static bool is_closed(void)
{
	return atomic_load(&submission_state) & SUBMISSION_CLOSED;
}

/* Else threads that go on would write to what is being copied. */
TEST_WITH(the_gate_stays_closed_until_an_open_gap_has_ended, begin_exact, end)
{
	has_mover = true;
	at_third = sim_release;
	assert_true(mover_start(engine));
	sim_hold_at("cuMemcpyDtoDAsync_v2", 1);
	pthread_t thread = test_thread(make_room, NULL);
	while (!sim_is_held() || !is_closed())
		sched_yield();
	spill_end();
	assert_false(sim_is_held());
	assert_true(atomic_load(&engine->channel.dead));
	assert_false(is_closed());
	assert_ok(pthread_join(thread, NULL));
}

static void lower(void)
{
	atomic_store(&engine->channel.everything.unmapped, 0);
	atomic_store(&engine->channel.dead, true);
}

TEST_WITH(what_is_unmapped_is_waited_for, begin_fast, end)
{
	at_third = lower;
	atomic_store(&engine->channel.everything.unmapped, 1);
	spill_end();
	assert_int_equal(n_stops, 3);
}

/* A mover whose engine has died in a gap, and that has not put everything in its place yet. */
static atomic_bool is_in_its_place;

static void *put_in_place(void *unused)
{
	usleep(100000);
	atomic_store(&is_in_its_place, true);
	gate_open();
	atomic_store(&engine->loop.left, true);
	return NULL;
}

TEST_WITH(the_gate_stays_closed_while_a_dead_engine_puts_things_in_their_place, begin_exact, end)
{
	atomic_store(&engine->channel.dead, true);
	engine->loop.has_thread = true;
	gate_drain();
	assert_true(gate_close());
	pthread_t thread = test_thread(put_in_place, NULL);
	spill_end();
	bool is = atomic_load(&is_in_its_place);
	assert_ok(pthread_join(thread, NULL));
	assert_true(is);
	assert_false(is_closed());
}

TEST_WITH(nothing_is_waited_for_for_ever, begin_fast, end)
{
	atomic_store(&engine->channel.everything.unmapped, 1);
	spill_end();
	assert_in_range(n_stops, 4, 20);
	atomic_store(&engine->channel.everything.unmapped, 0);
}

TEST_WITH(a_mover_that_leaves_all_in_its_place_is_asked_once, begin_fast, end)
{
	spill_end();
	assert_int_equal(n_stops, 1);
}

/* It may have looked before the process said that it ends. */
TEST_WITH(nothing_begins_to_move_when_the_process_ends, begin_fast, end)
{
	assert_true(link_open(engine));
	atomic_store(&mover_state.spill.ending, true);
	assert_int_equal(migrate_begin(engine, arena_unit(heap_arena(own.heap), grant.address), CHUNK_HOST, false),
			 MIGRATE_BUSY);
	assert_int_equal(atomic_load(&engine->channel.everything.unmapped), 0);
	assert_int_equal(sim_where(grant.address), 'D');
	assert_false(quiesce_close(engine, true));
	assert_false(is_closed());
	link_close(engine);
}

BEFORE_ALL
{
	core_driver();
	core_context();
}
