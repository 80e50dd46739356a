// SPDX-License-Identifier: Apache-2.0
/*
 * heap_keep_test.c: free memory that the program takes again before long stays with the heap, beyond what it keeps for
 * good; what has been idle through a span of ticks goes back to the driver. 16 MiB are kept for good.
 */
#include "test/core/core.h"

#include "shim/heap/block.h"

#define KEEP  (16 * MIB)
#define BLOCK (32 * MIB)
#define N     4

/* Ticks in a span, as in heap.c. */
enum { DEVICE_SPAN = 2, HOST_SPAN = 20 };

static struct core_heap own;
static struct heap_grant grants[N];

EACH_TEST(NULL, core_heap_end)

static void open_heap(void)
{
	core_heap_open(&own, 1024 * MIB, 2048 * MIB, KEEP);
}

static void get_all(enum heap_from from)
{
	for (unsigned i = 0; i < N; i++)
		grants[i] = core_take(&own, BLOCK, CHUNK_MOVABLE, from);
}

/* The last tick was a moment ago, if there was any, however long the machine takes. */
static void give(const struct heap_grant *grant)
{
	if (own.heap->ticked)
		own.heap->ticked = clock_now();
	core_give(&own, grant);
}

static void give_all(void)
{
	for (unsigned i = 0; i < N; i++)
		give(&grants[i]);
}

static void tick(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		heap_tick(own.heap);
	assert_true(heap_is_valid(own.heap));
}

TEST(a_program_of_steps_makes_its_memory_once)
{
	static const enum heap_from from[] = {HEAP_DEVICE, HEAP_HOST};

	for (unsigned place = 0; place < 2; place++) {
		open_heap();
		tick(1);
		get_all(from[place]);
		unsigned long made = sim_calls("cuMemCreate");
		for (unsigned step = 0; step < 3 * HOST_SPAN; step++) {
			give_all();
			tick(1);
			get_all(from[place]);
		}
		assert_int_equal(sim_calls("cuMemCreate"), made);
		give_all();
		core_heap_close(&own);
	}
}

TEST(what_nobody_needs_for_a_span_goes_back)
{
	open_heap();
	tick(DEVICE_SPAN); /* in it nothing was idle */
	get_all(HEAP_DEVICE);
	give_all();
	tick(DEVICE_SPAN);
	assert_int_equal(heap_idle(own.heap, CHUNK_DEVICE), N * BLOCK);
	tick(DEVICE_SPAN);
	assert_in_range(heap_idle(own.heap, CHUNK_DEVICE), 0, KEEP);
	assert_int_equal(sim_live().device_bytes, heap_idle(own.heap, CHUNK_DEVICE));
}

TEST(host_memory_is_kept_for_longer)
{
	open_heap();
	tick(HOST_SPAN);
	get_all(HEAP_HOST);
	give_all();
	tick(2 * HOST_SPAN - 1);
	assert_int_equal(heap_idle(own.heap, CHUNK_HOST), N * BLOCK);
	tick(1);
	assert_in_range(heap_idle(own.heap, CHUNK_HOST), 0, KEEP);
}

/* In one tick 512 MiB are unpinned, or a block more. */
TEST(much_host_memory_goes_back_by_and_by)
{
	struct heap_grant many[10];

	open_heap();
	tick(1);
	for (unsigned i = 0; i < 10; i++)
		many[i] = core_take(&own, 4 * BLOCK, CHUNK_MOVABLE, HEAP_HOST);
	for (unsigned i = 0; i < 10; i++)
		give(&many[i]);
	tick(2 * HOST_SPAN - 1);
	assert_int_equal(heap_idle(own.heap, CHUNK_HOST), 6 * 4 * BLOCK);
	tick(1);
	assert_int_equal(heap_idle(own.heap, CHUNK_HOST), 2 * 4 * BLOCK);
	tick(1);
	assert_in_range(heap_idle(own.heap, CHUNK_HOST), 0, KEEP);
}

/* Only what lay idle all the time: half of it was in use at some moment of the span. */
TEST(what_was_in_use_in_between_stays)
{
	open_heap();
	tick(DEVICE_SPAN);
	get_all(HEAP_DEVICE);
	give_all();
	tick(DEVICE_SPAN);
	for (unsigned i = 0; i < 2; i++)
		grants[i] = core_take(&own, BLOCK, CHUNK_MOVABLE, HEAP_DEVICE);
	for (unsigned i = 0; i < 2; i++)
		give(&grants[i]);
	tick(DEVICE_SPAN);
	assert_in_range(heap_idle(own.heap, CHUNK_DEVICE), 2 * BLOCK, 2 * BLOCK + KEEP);
}

TEST(without_ticks_it_goes_back_at_once)
{
	open_heap();
	get_all(HEAP_DEVICE);
	give_all();
	assert_in_range(heap_idle(own.heap, CHUNK_DEVICE), 0, KEEP);
	tick(1);
	get_all(HEAP_DEVICE);
	give_all();
	assert_int_equal(heap_idle(own.heap, CHUNK_DEVICE), N * BLOCK);
	/* They have ended. */
	get_all(HEAP_DEVICE);
	own.heap->ticked = clock_now() - 4000000000u;
	for (unsigned i = 0; i < N; i++)
		core_give(&own, &grants[i]);
	assert_in_range(heap_idle(own.heap, CHUNK_DEVICE), 0, KEEP);
}

TEST(where_the_policy_gives_a_size_it_goes_back_at_once)
{
	open_heap();
	own.heap->at_once[CHUNK_DEVICE] = true;
	tick(1);
	get_all(HEAP_DEVICE);
	give_all();
	assert_in_range(heap_idle(own.heap, CHUNK_DEVICE), 0, KEEP);
}

/* What is kept for the next allocation is somebody else's, and goes back as well when none comes. */
TEST(what_peers_lent_goes_back_at_once_or_before_long)
{
	core_heap_open_lent(&own, 0, 0, KEEP, 1, 1024 * MIB);
	tick(1);
	get_all(HEAP_DEVICE_FIRST);
	assert_int_equal(own.peer[0].used, N * BLOCK);
	give_all();
	assert_in_range(own.peer[0].used, 1, KEEP);
	tick(2 * DEVICE_SPAN);
	assert_int_equal(own.peer[0].used, 0);
}

int main(void)
{
	setenv("SIM_DEVICES", "2", 1);
	sim_switch("MEMORY", 4096 * MIB);
	sim_switch("HOST_MEMORY", 4096 * MIB);
	core_driver();
	return test_run();
}
