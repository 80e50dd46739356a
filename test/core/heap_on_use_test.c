// SPDX-License-Identifier: Apache-2.0
/*
 * heap_on_use_test.c: allocations that are backed on use, as the heap has them: memory is taken for what is asked for
 * and nothing else, from where there is room; what was taken is found, moves and goes back like that of any block, and
 * the address space with it, also while a piece of it moves.
 */
#include "shim/stats/stats.h"
#include "test/core/core.h"

#define BYTES (64 * MIB)
#define UNIT  (2 * MIB)

static struct core_heap own;
static CUdeviceptr base;

static void open_heap(uint64_t device, uint64_t host)
{
	core_heap_open(&own, device, host, 256 * MIB);
	assert_ok(heap_on_use_reserve(own.heap, BYTES, false, &base));
}

EACH_TEST(NULL, core_heap_end)

static enum sw_status take(uint64_t at, uint64_t bytes, enum heap_from from, struct heap_grant *grant)
{
	grant->address = base + at;
	return heap_on_use_take(own.heap, bytes, CHUNK_MOVABLE, from, grant);
}

/* Returns the bytes of the allocation that have no memory. */
static uint64_t left(void)
{
	const struct arena *arena = heap_arena(own.heap);

	return atomic_load(&arena->states[arena_unit(arena, base)].on_use_left) * UNIT;
}

TEST(reserved_memory_costs_nothing)
{
	uint64_t bytes[CHUNK_PLACES];
	CUdeviceptr found;
	bool stays;

	open_heap(32 * MIB, 64 * MIB);
	assert_int_equal(heap_made_device(own.heap), 0);
	assert_int_equal(left(), BYTES);
	assert_true(heap_base_of(own.heap, base + BYTES - 1, &found) && found == base);
	assert_ok(heap_on_use_where(own.heap, base, bytes, &stays));
	assert_int_equal(bytes[CHUNK_DEVICE] + bytes[CHUNK_HOST], 0);
	assert_int_equal(heap_on_use_reserve(own.heap, UINT64_MAX, false, &found), SW_NO_MEMORY);
	assert_int_equal(heap_on_use_reserve(own.heap, 0, false, &found), SW_NO_MEMORY);
	heap_on_use_free(own.heap, base);
	assert_int_equal(left(), 0);
	assert_false(heap_base_of(own.heap, base, &found));
}

/* Two units in the middle, then all that is around them. */
TEST(memory_is_taken_for_what_is_asked_for)
{
	uint64_t bytes[CHUNK_PLACES];
	struct heap_grant grant = {0};
	bool stays;

	open_heap(128 * MIB, 64 * MIB);
	assert_ok(take(3 * UNIT + 5, UNIT, HEAP_DEVICE_FIRST, &grant));
	assert_int_equal(grant.bytes_on_device, 2 * UNIT);
	assert_int_equal(left(), BYTES - 2 * UNIT);
	core_fill(base + 3 * UNIT, 2 * UNIT, 7);
	/* Again: nothing is left to take. */
	assert_ok(take(4 * UNIT, 1, HEAP_DEVICE_FIRST, &grant));
	assert_int_equal(grant.bytes_on_device, 2 * UNIT);
	assert_ok(take(0, UINT64_MAX, HEAP_DEVICE_FIRST, &grant));
	assert_int_equal(grant.bytes_on_device, BYTES);
	assert_int_equal(left(), 0);
	assert_true(core_is_filled(base + 3 * UNIT, 2 * UNIT, 7));
	core_fill(base, BYTES, 9);
	assert_true(core_is_filled(base, BYTES, 9));
	assert_true(heap_spread(own.heap, base, BYTES, bytes));
	assert_int_equal(bytes[CHUNK_DEVICE], BYTES);
	assert_ok(heap_on_use_where(own.heap, base, bytes, &stays));
	assert_int_equal(bytes[CHUNK_DEVICE], BYTES);
	assert_false(stays);
	heap_on_use_free(own.heap, base);
}

TEST(what_the_device_has_no_room_for_is_on_the_host)
{
	struct heap_grant grant = {0};

	core_heap_open(&own, 16 * MIB, 32 * MIB, 256 * MIB);
	assert_ok(heap_on_use_reserve(own.heap, 48 * MIB, false, &base));
	assert_ok(take(0, 8 * MIB, HEAP_DEVICE_FIRST, &grant));
	assert_int_equal(grant.bytes_away, 0);
	assert_ok(take(8 * MIB, 32 * MIB, HEAP_DEVICE_FIRST, &grant));
	assert_int_equal(grant.bytes_on_device, 16 * MIB);
	assert_int_equal(grant.bytes_away, 24 * MIB);
	/* Another block takes the rest: then there is no memory, what was taken stays, and a later try goes on. */
	struct heap_grant other = core_take(&own, 8 * MIB, CHUNK_MOVABLE, HEAP_HOST);
	assert_int_equal(take(0, 48 * MIB, HEAP_DEVICE_FIRST, &grant), SW_NO_MEMORY);
	assert_int_equal(left(), 8 * MIB);
	assert_true(heap_is_valid(own.heap));
	core_give(&own, &other);
	assert_ok(take(0, 48 * MIB, HEAP_DEVICE_FIRST, &grant));
	assert_int_equal(left(), 0);
	core_fill(base, 48 * MIB, 1);
	assert_true(core_is_filled(base, 48 * MIB, 1));
	heap_on_use_free(own.heap, base);
}

/* Its address space is given once, when the piece has arrived. */
TEST(a_free_while_a_piece_moves)
{
	struct heap_grant grant = {0};
	CUdeviceptr again;

	open_heap(64 * MIB, 64 * MIB);
	assert_ok(take(0, 2 * MIB, HEAP_DEVICE_FIRST, &grant));
	assert_ok(take(8 * MIB, 2 * MIB, HEAP_DEVICE_FIRST, &grant));
	core_fill(base, 2 * MIB, 3);
	struct migration migration = core_begin_move(own.heap, base, CHUNK_HOST, false);
	heap_on_use_free(own.heap, base);
	assert_true(heap_has_given(own.heap));
	assert_ok(heap_on_use_reserve(own.heap, BYTES, false, &again));
	assert_int_not_equal(again, base);
	migration_end(own.heap, &migration);
	heap_on_use_free(own.heap, again);
	assert_ok(heap_on_use_reserve(own.heap, BYTES, false, &again));
	assert_int_equal(again, base);
	heap_on_use_free(own.heap, again);
}

/* Rounded: to 4 MiB, the largest piece of such a small budget, within the allocation. */
TEST(what_is_missing_is_found)
{
	struct heap_grant grant = {0};
	CUdeviceptr address, other, found;
	uint64_t bytes = 1;

	open_heap(64 * MIB, 64 * MIB);
	address = base + 6 * MIB + 3;
	assert_true(heap_on_use_missing(own.heap, false, &address, &bytes));
	assert_int_equal(address, base + 6 * MIB);
	assert_int_equal(bytes, 2 * MIB);
	assert_true(heap_on_use_missing(own.heap, true, &address, &bytes));
	assert_int_equal(address, base + 4 * MIB);
	assert_int_equal(bytes, 4 * MIB);
	assert_ok(take(4 * MIB, 4 * MIB, HEAP_DEVICE_FIRST, &grant));
	assert_false(heap_on_use_missing(own.heap, true, &address, &bytes));
	address = base + 5 * MIB;
	bytes = UINT64_MAX;
	assert_true(heap_on_use_missing(own.heap, false, &address, &bytes));
	assert_int_equal(address, base + 8 * MIB);
	assert_int_equal(bytes, BYTES - 8 * MIB);
	/* The allocations that have not all their memory, by address. */
	assert_ok(heap_on_use_reserve(own.heap, 3 * MIB, false, &other));
	assert_true(heap_on_use_next(own.heap, 0, &found, &bytes) && found == base && bytes == BYTES);
	assert_true(heap_on_use_next(own.heap, found + bytes, &found, &bytes) && found == other && bytes == 4 * MIB);
	assert_false(heap_on_use_next(own.heap, found + bytes, &found, &bytes));
	assert_ok(take(0, BYTES, HEAP_DEVICE_FIRST, &grant));
	assert_true(heap_on_use_next(own.heap, 0, &found, &bytes) && found == other);
	address = other + 3 * MIB;
	bytes = 1;
	assert_true(heap_on_use_missing(own.heap, true, &address, &bytes));
	assert_true(address == other && bytes == 4 * MIB);
	heap_on_use_free(own.heap, other);
	assert_false(heap_on_use_next(own.heap, 0, &found, &bytes));
	heap_on_use_free(own.heap, base);
}

/* The driver refuses access to a part that is mapped, then to unmap it. The next try takes it down first. */
TEST(a_part_that_got_stuck_is_taken_again)
{
	struct heap_grant grant = {0};

	open_heap(64 * MIB, 64 * MIB);
	sim_fail_then("cuMemSetAccess", 1, CUDA_ERROR_UNKNOWN, "cuMemUnmap", 1);
	assert_int_not_equal(take(4 * MIB, 4 * MIB, HEAP_DEVICE, &grant), 0);
	assert_false(sim_fail_pending());
	assert_ok(take(4 * MIB, 4 * MIB, HEAP_DEVICE, &grant));
	core_fill(base + 4 * MIB, 4 * MIB, 3);
	assert_true(core_is_filled(base + 4 * MIB, 4 * MIB, 3));
	heap_on_use_free(own.heap, base);
}

static uint64_t live_of(unsigned site)
{
	return atomic_load(&stats.site[stats_site_place(site)].figures.figure[FIGURE_live]);
}

/* Another thread may have taken memory for all such allocations before this one has its site. */
TEST(what_was_taken_before_the_site_is_known_counts_for_it)
{
	uint64_t before = atomic_load(&stats.site[STATS_SMALL].figures.figure[FIGURE_live]);
	unsigned site = stats_site(0, 0, 0, NULL, BYTES);
	struct heap_grant grant = {0};

	open_heap(64 * MIB, 64 * MIB);
	assert_ok(take(0, 4 * MIB, HEAP_DEVICE_FIRST, &grant));
	heap_on_use_set_site(own.heap, base, site);
	assert_int_equal(live_of(site), 4 * MIB);
	assert_int_equal(atomic_load(&stats.site[STATS_SMALL].figures.figure[FIGURE_live]), before);
	assert_ok(take(0, BYTES, HEAP_DEVICE_FIRST, &grant));
	assert_int_equal(live_of(site), BYTES);
	stats_gone(site, heap_on_use_free(own.heap, base));
	assert_int_equal(live_of(site), 0);
}

START(core_driver())
