// SPDX-License-Identifier: Apache-2.0
/*
 * compound_test.c: host memory of several parts, for pieces that move beside what runs. No mover: the test moves the
 * pieces itself, and copies between the addresses that it would copy between.
 */
#include "shim/heap/chunk.h"
#include "shim/heap/block.h"
#include "test/core/core.h"

static struct core_heap own;

EACH_TEST(NULL, core_heap_end)

static void open_heap(bool beside)
{
	core_heap_open(&own, 4096 * MIB, 1024 * MIB, 1024 * MIB);
	heap_set_beside(own.heap, beside, 0);
}

static struct heap_grant get(size_t bytes)
{
	struct heap_grant grant = core_take(&own, bytes, CHUNK_MOVABLE, HEAP_DEVICE);

	core_fill(grant.address, bytes, bytes);
	return grant;
}

static uint64_t pinned(void)
{
	return own.heap->store.chunks.made_bytes[CHUNK_HOST];
}

static const struct chunk *chunk_at(const struct heap_grant *grant)
{
	const struct arena *arena = heap_arena(own.heap);

	return arena->states[arena_unit(arena, grant->address)].chunk;
}

/* Moves the only piece of a block, with its contents. */
static void move(const struct heap_grant *grant, enum chunk_place to)
{
	core_move(own.heap, grant->address, to);
}

/* The only piece of a block of 14 MiB is copied to parts of 8, 4 and 2, and mapped nowhere. */
static struct migration begin_to_leave(const struct heap_grant *grant)
{
	struct migration transit = core_begin_move(own.heap, grant->address, CHUNK_HOST, false);

	assert_ok(migration_unmap(&transit));
	core_copy(&transit);
	return transit;
}

TEST(what_was_pinned_for_one_length_serves_others)
{
	open_heap(true);
	struct heap_grant a = get(40 * MIB), b = get(36 * MIB), c = get(14 * MIB);
	move(&a, CHUNK_HOST);
	assert_int_equal(pinned(), 40 * MIB); /* 32 and 8 */
	assert_non_null(chunk_at(&a)->parts);
	assert_true(core_is_filled(a.address, 40 * MIB, 40 * MIB));
	move(&a, CHUNK_DEVICE);
	assert_null(chunk_at(&a)->parts);
	assert_true(core_is_filled(a.address, 40 * MIB, 40 * MIB));
	move(&b, CHUNK_HOST);
	assert_int_equal(pinned(), 44 * MIB); /* and 4 */
	move(&c, CHUNK_HOST);
	assert_int_equal(pinned(), 50 * MIB); /* and 4 and 2 */
	move(&b, CHUNK_DEVICE);
	move(&a, CHUNK_HOST);
	assert_int_equal(pinned(), 58 * MIB);
	move(&c, CHUNK_DEVICE);
	move(&b, CHUNK_HOST);
	assert_int_equal(pinned(), 90 * MIB);
	assert_true(core_is_filled(a.address, 40 * MIB, 40 * MIB));
	assert_true(core_is_filled(b.address, 36 * MIB, 36 * MIB));
	assert_true(core_is_filled(c.address, 14 * MIB, 14 * MIB));
}

TEST(in_gaps_a_chunk_of_its_own_is_mapped_by_one_call)
{
	open_heap(false);
	struct heap_grant a = get(12 * MIB);
	move(&a, CHUNK_HOST);
	assert_null(chunk_at(&a)->parts);
	move(&a, CHUNK_DEVICE);
	/* What is there is taken before parts are. */
	heap_set_beside(own.heap, true, 0);
	move(&a, CHUNK_HOST);
	assert_null(chunk_at(&a)->parts);
	assert_int_equal(pinned(), 12 * MIB);
}

/* What others are to know has one handle. */
TEST(where_memory_is_shared_there_are_none)
{
	core_heap_open_shared(&own, 4096 * MIB, 1024 * MIB, 1024 * MIB);
	heap_set_beside(own.heap, true, 0);
	struct heap_grant a = get(12 * MIB);
	move(&a, CHUNK_HOST);
	assert_null(chunk_at(&a)->parts);
}

/* A free block keeps its memory, until some is wanted of which there is no other. */
TEST(parts_of_free_blocks_serve_too)
{
	open_heap(true);
	struct heap_grant a = get(12 * MIB), b = get(20 * MIB);
	move(&a, CHUNK_HOST);
	core_give(&own, &a);
	assert_int_equal(pinned(), 12 * MIB);
	move(&b, CHUNK_HOST); /* 16 and 4 */
	assert_int_equal(pinned(), 12 * MIB + 16 * MIB);
	assert_true(core_is_filled(b.address, 20 * MIB, 20 * MIB));
}

TEST(what_cannot_be_mapped_as_a_whole_is_not_mapped)
{
	open_heap(true);
	struct heap_grant a = get(14 * MIB);
	struct migration transit = begin_to_leave(&a);
	sim_fail("cuMemMap", 2, CUDA_ERROR_OUT_OF_MEMORY);
	/* It is tried once more, when nothing of the first try is left. */
	assert_int_not_equal(migration_map(own.heap, &transit, true), CUDA_SUCCESS);
	assert_false(sim_fail_pending());
	assert_int_equal(core_pages_at(a.address, 14 * MIB, 0), 7);
	assert_ok(migration_map(own.heap, &transit, true));
	assert_true(core_is_filled(a.address, 14 * MIB, 14 * MIB));
	migration_exchange(own.heap, &transit, false);
	migration_end(own.heap, &transit);
}

/* The driver has no address for a part: nothing is lost, and the next try finds it. */
TEST(a_part_without_an_alias_stays_in_the_store)
{
	struct migration transit;

	open_heap(true);
	struct heap_grant a = get(12 * MIB);
	sim_fail("cuMemMap", 1, CUDA_ERROR_OUT_OF_MEMORY);
	assert_ok(heap_make_spare(own.heap, CHUNK_HOST, 6, true));
	assert_false(sim_fail_pending());
	sim_fail("cuMemMap", 1, CUDA_ERROR_OUT_OF_MEMORY);
	uint32_t piece = arena_unit(heap_arena(own.heap), a.address);
	assert_int_not_equal(migration_begin(own.heap, piece, CHUNK_HOST, true, &transit), SW_OK);
	assert_false(sim_fail_pending());
	assert_true(heap_is_valid(own.heap));
	assert_int_equal(heap_idle(own.heap, CHUNK_HOST), 12 * MIB);
	move(&a, CHUNK_HOST);
	assert_int_equal(pinned(), 12 * MIB);
}

/* Of 12, 20 and 8 MiB parts of 16, 8 and 4 are missing, each in its proportion. */
TEST(parts_are_pinned_ahead)
{
	open_heap(true);
	struct heap_grant a = get(12 * MIB), b = get(20 * MIB), c = get(8 * MIB);
	for (unsigned i = 0; heap_fill_host_reserve(own.heap, 64 * MIB) == SW_OK; i++)
		assert_true(i < 100);
	assert_int_equal(pinned(), 40 * MIB);
	move(&a, CHUNK_HOST);
	move(&b, CHUNK_HOST);
	move(&c, CHUNK_HOST);
	assert_int_equal(pinned(), 40 * MIB);
	/* What is free in a block counts as ready by its parts. */
	core_give(&own, &a);
	a = get(8 * MIB);
	assert_int_equal(heap_fill_host_reserve(own.heap, 8 * MIB), SW_INVALID);
}

/* There is no memory for all parts: what there is of other lengths is given up for a chunk of its own. */
TEST(where_parts_do_not_fit_into_the_budget_other_lengths_make_way)
{
	core_heap_open(&own, 4096 * MIB, 16 * MIB, 1024 * MIB);
	heap_set_beside(own.heap, true, 0);
	struct heap_grant a = get(12 * MIB), b = get(16 * MIB);
	move(&a, CHUNK_HOST);
	move(&a, CHUNK_DEVICE);
	move(&b, CHUNK_HOST);
	assert_int_equal(pinned(), 16 * MIB);
	move(&b, CHUNK_DEVICE);
	move(&a, CHUNK_HOST);
	assert_true(pinned() <= 16 * MIB);
	assert_true(core_is_filled(a.address, 12 * MIB, 12 * MIB));
}

/* The mode has changed: what is freed had parts, and a chunk of its own is wanted. */
TEST(a_free_block_of_parts_is_not_taken_down_for_a_chunk_of_its_own)
{
	open_heap(true);
	struct heap_grant a = get(14 * MIB), b = get(14 * MIB);
	move(&a, CHUNK_HOST);
	assert_non_null(chunk_at(&a)->parts);
	heap_set_beside(own.heap, false, 0);
	core_give(&own, &a);
	move(&b, CHUNK_HOST);
	assert_null(chunk_at(&b)->parts);
}

TEST(a_part_that_cannot_be_unmapped_is_no_longer_in_the_way)
{
	for (int undone = 0; undone < 2; undone++) {
		open_heap(true);
		struct heap_grant a = get(14 * MIB);
		struct migration transit = begin_to_leave(&a);
		/*
		 * The first part stays, for neither the second can be mapped nor that one unmapped, however it is
		 * tried.
		 */
		sim_fail_then("cuMemMap", 2, CUDA_ERROR_OUT_OF_MEMORY, "cuMemUnmap", 3);
		assert_int_not_equal(migration_map(own.heap, &transit, true), CUDA_SUCCESS);
		assert_false(sim_fail_pending());
		assert_int_equal(core_pages_at(a.address, 14 * MIB, 0), 3);
		assert_ok(migration_map(own.heap, &transit, !undone));
		assert_true(core_is_filled(a.address, 14 * MIB, 14 * MIB));
		if (!undone)
			migration_exchange(own.heap, &transit, false);
		migration_end(own.heap, &transit);
		core_give(&own, &a);
		core_heap_close(&own);
	}
}

/* Lengths of 2 to 24 MiB that change in each round; nearly as much is away at once as the budget has. */
TEST(with_a_full_budget_parts_are_made_of_others)
{
	enum { AWAY = 12, ROUNDS = 24 };
	struct heap_grant grants[AWAY];

	core_heap_open(&own, 4096 * MIB, 96 * MIB, 1024 * MIB);
	heap_set_beside(own.heap, true, 0);
	for (unsigned round = 0; round < ROUNDS; round++) {
		uint64_t away = 0;

		for (unsigned i = 0; i < AWAY; i++) {
			size_t bytes = (1 + (round * 5 + i * 7) % 12) * 2 * MIB;

			grants[i] = get(bytes);
			if (away + bytes > 88 * MIB)
				continue;
			move(&grants[i], CHUNK_HOST);
			assert_true(core_is_filled(grants[i].address, bytes, bytes));
			const struct chunk *chunk = chunk_at(&grants[i]);
			assert_true(chunk->parts || compound_part(chunk->units) == chunk->units);
			away += bytes;
		}
		for (unsigned i = 0; i < AWAY; i++) {
			if (chunk_at(&grants[i])->place == CHUNK_HOST)
				move(&grants[i], CHUNK_DEVICE);
			core_give(&own, &grants[i]);
		}
	}
}

/* Nothing is pinned in vain. */
TEST(what_does_not_fit_into_the_budget_is_not_begun)
{
	core_heap_open(&own, 4096 * MIB, 12 * MIB, 1024 * MIB);
	heap_set_beside(own.heap, true, 0);
	get(14 * MIB);
	assert_int_equal(heap_make_spare(own.heap, CHUNK_HOST, 7, true), SW_NO_MEMORY);
	assert_int_equal(pinned(), 0);
}

TEST(a_block_that_begins_on_the_host_is_made_of_parts)
{
	open_heap(true);
	struct heap_grant a = get(40 * MIB);
	move(&a, CHUNK_HOST);
	move(&a, CHUNK_DEVICE);
	struct heap_grant host = core_take(&own, 36 * MIB, CHUNK_MOVABLE, HEAP_HOST);
	assert_int_equal(pinned(), 44 * MIB); /* 32 of them were there */
	assert_non_null(chunk_at(&host)->parts);
	core_fill(host.address, 36 * MIB, 1);
	move(&host, CHUNK_DEVICE);
	assert_true(core_is_filled(host.address, 36 * MIB, 1));
	core_give(&own, &host);
	/* The driver refuses to make a part: warm memory of another length makes way for it. */
	sim_fail("cuMemCreate", 1, CUDA_ERROR_OUT_OF_MEMORY);
	core_take(&own, 34 * MIB, CHUNK_MOVABLE, HEAP_HOST);
	assert_false(sim_fail_pending());
}

/* What was pinned while the mode was another is as good. */
TEST(chunks_of_the_length_of_a_piece_count_as_ready_for_it)
{
	open_heap(false);
	for (unsigned i = 0; i < 4; i++)
		get(14 * MIB);
	for (unsigned i = 0; heap_pin_ahead(own.heap, UINT64_MAX) == SW_OK; i++)
		assert_true(i < 100);
	assert_int_equal(pinned(), 56 * MIB);
	heap_set_beside(own.heap, true, 0);
	unsigned long made = sim_calls("cuMemCreate"), released = sim_calls("cuMemRelease");
	assert_int_equal(heap_pin_ahead(own.heap, UINT64_MAX), SW_INVALID);
	assert_int_equal(sim_calls("cuMemCreate"), made);
	assert_int_equal(sim_calls("cuMemRelease"), released);
}

int main(void)
{
	setenv("SIM_DEVICES", "1", 1);
	setenv("SIM_MEMORY", "4GiB", 1);
	core_driver();
	return test_run();
}
