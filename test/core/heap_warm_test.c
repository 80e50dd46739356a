// SPDX-License-Identifier: Apache-2.0
/*
 * heap_warm_test.c: host memory that lies in free blocks is used before more is pinned, which takes a hundred times as
 * long as unmapping it: for what leaves the device, and for blocks of other lengths. And
 * what is taken down where there is no room. Pieces of 4 MiB, but where a test says so.
 */
#include "test/core/core.h"

#define PIECE (4 * MIB)

static struct core_heap own;

EACH_TEST(NULL, core_heap_end)

static struct heap_grant get(size_t bytes, enum heap_from from)
{
	struct heap_grant grant = core_take(&own, bytes, CHUNK_MOVABLE, from);

	core_fill(grant.address, bytes, bytes / MIB);
	return grant;
}

static void leave(const struct heap_grant *grant)
{
	uint64_t bytes = heap_block_bytes(own.heap);
	struct migration transit = core_begin_move(own.heap, grant->address, CHUNK_HOST, true);

	assert_true(bytes >= PIECE && heap_block_bytes(own.heap) == bytes); /* what is moving counts once */
	core_copy(&transit);
	assert_ok(migration_unmap(&transit));
	migration_exchange(own.heap, &transit, false);
	assert_ok(migration_map(own.heap, &transit, false));
	migration_end(own.heap, &transit);
	assert_true(heap_block_bytes(own.heap) == bytes);
	assert_int_equal(sim_where(grant->address), 'H');
	assert_true(core_is_filled(grant->address, PIECE, PIECE / MIB));
}

static void open_heap(void)
{
	core_heap_open(&own, 64 * MIB, 64 * MIB, 64 * MIB);
}

TEST(what_leaves_takes_what_free_blocks_have)
{
	open_heap();
	struct heap_grant host = get(2 * PIECE, HEAP_HOST), device = get(PIECE, HEAP_DEVICE_FIRST);
	core_give(&own, &host);
	unsigned long made = sim_calls("cuMemCreate");
	leave(&device);
	assert_int_equal(sim_calls("cuMemCreate"), made);
}

TEST(a_program_that_allocates_anew_each_time_pins_once)
{
	unsigned long made = 0;

	open_heap();
	for (unsigned i = 0; i < 10; i++) {
		struct heap_grant grant = get(PIECE, HEAP_DEVICE_FIRST);

		leave(&grant);
		core_give(&own, &grant);
		if (!i)
			made = sim_calls("cuMemCreate");
	}
	/* The device's chunk went to the warm ones. */
	assert_int_equal(sim_calls("cuMemCreate"), made);
	assert_int_equal(heap_idle(own.heap, CHUNK_HOST), PIECE);
}

TEST(a_block_of_another_length_is_built_of_free_ones)
{
	open_heap();
	struct heap_grant first = get(PIECE, HEAP_HOST), second = get(2 * PIECE, HEAP_HOST);
	core_give(&own, &first);
	core_give(&own, &second);
	unsigned long made = sim_calls("cuMemCreate");
	struct heap_grant all = get(3 * PIECE, HEAP_HOST);
	assert_int_equal(sim_calls("cuMemCreate"), made);
	assert_true(core_is_filled(all.address, 3 * PIECE, 12));
}

/* Device memory is made in no time; a warm block is worth more. */
TEST(on_the_device_a_free_block_stays_while_there_is_room)
{
	open_heap();
	struct heap_grant first = get(PIECE, HEAP_DEVICE);
	core_give(&own, &first);
	get(3 * PIECE, HEAP_DEVICE);
	assert_int_equal(heap_idle(own.heap, CHUNK_DEVICE), PIECE);
}

/*
 * Of 1024 MiB, in pieces of 32: four free blocks of 24 MiB are all there is, and two of them have room for one of 30.
 */
TEST(no_more_blocks_are_taken_down_than_it_takes)
{
	struct heap_grant small[4];

	core_heap_open(&own, 1024 * MIB, 0, 1024 * MIB);
	core_take(&own, 928 * MIB, CHUNK_MOVABLE, HEAP_DEVICE);
	for (unsigned i = 0; i < 4; i++)
		small[i] = core_take(&own, 24 * MIB, CHUNK_MOVABLE, HEAP_DEVICE);
	for (unsigned i = 0; i < 4; i++)
		core_give(&own, &small[i]);
	core_take(&own, 30 * MIB, CHUNK_MOVABLE, HEAP_DEVICE);
	assert_int_equal(heap_idle(own.heap, CHUNK_DEVICE), 48 * MIB);
	for (unsigned i = 0; i < 2; i++) {
		small[i] = core_take(&own, 24 * MIB, CHUNK_MOVABLE, HEAP_DEVICE);
		assert_true(small[i].reused);
	}
	assert_int_equal(core_try(&own, 24 * MIB, CHUNK_MOVABLE, HEAP_DEVICE, &small[2]), SW_NO_MEMORY);
}

/* What one block has in one chunk is had by taking that block down, and none before it. */
TEST(the_block_that_has_such_a_chunk_is_taken_down)
{
	core_heap_open(&own, 1024 * MIB, 0, 1024 * MIB);
	core_take(&own, 952 * MIB, CHUNK_MOVABLE, HEAP_DEVICE);
	struct heap_grant old = core_take(&own, 24 * MIB, CHUNK_MOVABLE, HEAP_DEVICE);
	struct heap_grant right = core_take(&own, 46 * MIB, CHUNK_MOVABLE, HEAP_DEVICE); /* 32 and 14 */
	core_give(&own, &old);
	core_give(&own, &right);
	unsigned long made = sim_calls("cuMemCreate");
	core_take(&own, 14 * MIB, CHUNK_MOVABLE, HEAP_DEVICE);
	assert_int_equal(sim_calls("cuMemCreate"), made);
	old = core_take(&own, 24 * MIB, CHUNK_MOVABLE, HEAP_DEVICE);
	assert_true(old.reused);
}

int main(void)
{
	sim_switch("MEMORY", 2048 * MIB);
	core_driver();
	return test_run();
}
