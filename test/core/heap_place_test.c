// SPDX-License-Identifier: Apache-2.0
/*
 * heap_place_test.c: pieces that move while nothing runs (migration.h, "in place"), against a mover that is this test:
 * what moves is all there, device memory needs no second address, and what is away can be held, to come in or to stay.
 */
#include "test/core/core.h"

#define BYTES (4 * MIB)

static struct core_heap own;
static struct heap_grant grant;
static uint32_t piece;

static int open_heap(void **state)
{
	core_heap_open(&own, 64 * MIB, 64 * MIB, 64 * MIB);
	grant = core_take(&own, BYTES, CHUNK_MOVABLE, HEAP_DEVICE_FIRST);
	piece = arena_unit(heap_arena(own.heap), grant.address);
	core_fill(grant.address, BYTES, 1);
	return 0;
}

EACH_TEST(open_heap, core_heap_end)

static struct migration begin(enum chunk_place to)
{
	return core_begin_move(own.heap, grant.address, to, true);
}

static void end(struct migration *transit)
{
	migration_end(own.heap, transit);
	assert_true(heap_is_valid(own.heap));
	assert_true(core_is_filled(grant.address, BYTES, 1));
}

static void go_out(void)
{
	struct migration transit = begin(CHUNK_HOST);

	assert_int_equal(transit.alias, grant.address);
	assert_int_not_equal(transit.spare_alias, grant.address);
	core_copy(&transit);
	assert_ok(migration_unmap(&transit));
	migration_exchange(own.heap, &transit, false);
	assert_ok(migration_map(own.heap, &transit, false));
	end(&transit);
	assert_int_equal(sim_where(grant.address), 'H');
}

/* The new memory takes the place first, and is filled there. */
static void fill_in_place(struct migration *transit)
{
	assert_int_equal(transit->spare_alias, grant.address);
	assert_int_not_equal(transit->alias, grant.address);
	assert_ok(migration_map(own.heap, transit, true));
	core_copy(transit);
	migration_exchange(own.heap, transit, false);
	end(transit);
	assert_int_equal(sim_where(grant.address), 'D');
}

static void go_in(void)
{
	struct migration transit = begin(CHUNK_DEVICE);

	assert_ok(migration_unmap(&transit));
	fill_in_place(&transit);
}

TEST(a_piece_moves_in_place_both_ways)
{
	go_out();
	go_in();
	/* The host's second address is there now, and the device needs none: one unmapping and one mapping each way. */
	for (int i = 0; i < 3; i++) {
		unsigned long before = core_vmm_calls();

		go_out();
		go_in();
		assert_int_equal(core_vmm_calls() - before, 6); /* cuMemUnmap, cuMemMap, cuMemSetAccess, twice */
	}
}

TEST(what_moved_in_place_moves_by_aliases_and_the_other_way_round)
{
	struct migration transit;

	go_out();
	for (int in_place = 0; in_place < 2; in_place++) {
		assert_ok(migration_begin(own.heap, piece, CHUNK_DEVICE, false, &transit));
		assert_int_not_equal(transit.spare_alias, grant.address);
		assert_ok(migration_unmap(&transit));
		core_copy(&transit);
		assert_ok(migration_map(own.heap, &transit, true));
		migration_exchange(own.heap, &transit, false);
		end(&transit);
		go_out();
	}
}

TEST(a_piece_that_is_held_comes_in_or_stays)
{
	struct migration transit, other;

	assert_int_equal(migration_pin(own.heap, piece, false, &transit), SW_INVALID); /* it is on the device */
	go_out();
	assert_ok(migration_pin(own.heap, piece, false, &transit));
	assert_int_equal(migration_pin(own.heap, piece, false, &other), SW_INVALID);
	assert_int_equal(migration_begin(own.heap, piece, CHUNK_DEVICE, true, &other), SW_INVALID);
	assert_ok(migration_unmap(&transit));
	assert_ok(migration_map(own.heap, &transit, false));
	end(&transit);
	assert_int_equal(sim_where(grant.address), 'H');
	assert_ok(migration_pin(own.heap, piece, false, &transit));
	assert_ok(migration_unmap(&transit));
	assert_ok(migration_turn(own.heap, true, &transit));
	fill_in_place(&transit);
}

/* The block goes when it is let go of. */
TEST(a_block_may_be_freed_while_a_piece_is_held)
{
	struct migration transit;

	go_out();
	assert_ok(migration_pin(own.heap, piece, false, &transit));
	assert_ok(migration_unmap(&transit));
	core_give(&own, &grant);
	assert_true(heap_has_given(own.heap));
	assert_ok(migration_map(own.heap, &transit, false));
	migration_end(own.heap, &transit);
	assert_false(heap_has_given(own.heap));
	assert_true(heap_is_valid(own.heap));
}

START(core_driver())
