// SPDX-License-Identifier: Apache-2.0
/*
 * heap_pin_test.c: blocks that must stay where they are, against a mover that is this test (heap.h, migration.h). Each
 * promise on a heap of its own.
 */
#include "test/core/core.h"

static struct core_heap own;

EACH_TEST(NULL, core_heap_end)

static struct heap_grant take(size_t bytes, enum chunk_kind kind)
{
	return core_take(&own, bytes, kind, true);
}

static uint32_t piece_of(const struct heap_grant *grant)
{
	return arena_unit(heap_arena(own.heap), grant->address);
}

static enum block_state_where where(uint32_t piece)
{
	return atomic_load(&heap_arena(own.heap)->states[piece].where);
}

static uint32_t away(uint32_t piece)
{
	return atomic_load(&heap_arena(own.heap)->block_states[piece].away);
}

static enum sw_status begin(uint32_t piece, enum chunk_place to, struct migration *transit)
{
	heap_make_spare(own.heap, to, heap_arena(own.heap)->states[piece].units_of_piece, true);
	return migration_begin(own.heap, piece, to, false, transit);
}

/* As the mover does it: the piece goes to the other place. */
static void move(struct migration *transit)
{
	assert_ok(migration_unmap(transit));
	assert_ok(migration_map(own.heap, transit, true));
	migration_exchange(own.heap, transit, false);
	arena_mark_where(heap_arena(own.heap), transit->block_unit, transit->piece,
			 transit->to == CHUNK_HOST ? BLOCK_STATE_HOST : BLOCK_STATE_DEVICE);
	migration_end(own.heap, transit);
}

TEST(a_pinned_block_does_not_begin_to_move_until_all_its_pins_have_ended)
{
	struct migration transit;

	core_heap_open(&own, 64 * MIB, 64 * MIB, 64 * MIB);
	struct heap_grant grant = take(4 * MIB, CHUNK_MOVABLE);
	uint32_t piece = piece_of(&grant);
	assert_true(heap_pin(own.heap, grant.address + MIB, 1));
	assert_true(heap_pin(own.heap, grant.address, 4 * MIB));
	assert_int_equal(where(piece), BLOCK_STATE_PINNED);
	assert_int_equal(begin(piece, CHUNK_HOST, &transit), SW_INVALID);
	heap_pin_end(own.heap, grant.address, 1, PIN_OFF);
	assert_int_equal(begin(piece, CHUNK_HOST, &transit), SW_INVALID);
	heap_pin_end(own.heap, grant.address, 1, PIN_OFF);
	assert_int_equal(where(piece), BLOCK_STATE_DEVICE);
	assert_ok(begin(piece, CHUNK_HOST, &transit));
	move(&transit);
	assert_int_equal(away(piece), 1);
	/* On the host nobody waits for a piece that will not come. */
	assert_true(heap_pin(own.heap, grant.address, 1));
	heap_pin_end(own.heap, grant.address, 1, PIN_STAYS);
	assert_int_equal(where(piece), BLOCK_STATE_PINNED);
	assert_int_equal(away(piece), 0);
	assert_int_equal(begin(piece, CHUNK_DEVICE, &transit), SW_INVALID);
	assert_int_equal(heap_pinned_device(own.heap), 0);
	/* What takes the place of a freed block, the device being full, is not pinned with it. */
	struct heap_grant all = take(64 * MIB, CHUNK_MOVABLE);
	core_give(&own, &grant);
	assert_int_equal(away(piece), 1);
	struct heap_grant next = take(4 * MIB, CHUNK_MOVABLE);
	assert_true(next.reused && next.address == grant.address);
	core_give(&own, &all);
	assert_ok(begin(piece, CHUNK_DEVICE, &transit));
	move(&transit);
}

TEST(every_block_that_a_range_touches_is_pinned_and_no_other)
{
	struct heap_grant grants[4];

	core_heap_open(&own, 64 * MIB, 0, 0);
	for (unsigned i = 0; i < 4; i++)
		grants[i] = take(6 * MIB, CHUNK_MOVABLE);
	assert_true(grants[3].address - grants[0].address == 24 * MIB); /* with what lies between them */
	assert_true(heap_pin(own.heap, grants[1].address + 5 * MIB, 4 * MIB));
	heap_pin_end(own.heap, grants[1].address + 5 * MIB, 4 * MIB, PIN_STAYS);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(where(piece_of(&grants[i])),
				 i == 1 || i == 2 ? BLOCK_STATE_PINNED : BLOCK_STATE_DEVICE);
	assert_int_equal(heap_pinned_device(own.heap), 12 * MIB);
	/* Beyond all ends, and where nothing lies. */
	assert_true(heap_pin(own.heap, grants[3].address, SIZE_MAX));
	heap_pin_end(own.heap, grants[3].address, SIZE_MAX, PIN_OFF);
	assert_int_equal(where(piece_of(&grants[3])), BLOCK_STATE_DEVICE);
	for (unsigned i = 0; i < 4; i++)
		core_give(&own, &grants[i]);
	assert_true(heap_pin(own.heap, grants[0].address, 30 * MIB));
	heap_pin_end(own.heap, grants[0].address, 30 * MIB, PIN_STAYS);
	assert_int_equal(heap_pinned_device(own.heap), 0);
}

/* Whether memory moves beside what runs may change: what is kept elsewhere is known by then. */
TEST(what_is_kept_elsewhere_stays_from_when_memory_moves_beside_what_runs)
{
	struct heap_grant grants[3];
	struct migration transit;

	core_heap_open(&own, 64 * MIB, 64 * MIB, 0);
	for (unsigned i = 0; i < 3; i++)
		grants[i] = take(4 * MIB, CHUNK_MOVABLE);
	assert_true(heap_stay_beside(own.heap, grants[0].address + MIB, 1));
	assert_true(heap_stay_beside(own.heap, grants[1].address, 1));
	assert_int_equal(where(piece_of(&grants[0])), BLOCK_STATE_DEVICE);
	assert_ok(begin(piece_of(&grants[0]), CHUNK_HOST, &transit));
	move(&transit);
	/* What is freed before is not kept any more. */
	core_give(&own, &grants[1]);
	grants[1] = take(4 * MIB, CHUNK_MOVABLE);
	heap_set_beside(own.heap, true, 0);
	assert_int_equal(where(piece_of(&grants[0])), BLOCK_STATE_PINNED);
	assert_int_equal(begin(piece_of(&grants[0]), CHUNK_DEVICE, &transit), SW_INVALID);
	assert_int_equal(where(piece_of(&grants[1])), BLOCK_STATE_DEVICE);
	assert_true(heap_stay_beside(own.heap, grants[2].address, 1));
	assert_int_equal(where(piece_of(&grants[2])), BLOCK_STATE_PINNED);
	/* What was pinned when it was named is so in every mode; what had been named before moves again. */
	heap_set_beside(own.heap, false, 0);
	assert_int_equal(where(piece_of(&grants[2])), BLOCK_STATE_PINNED);
	assert_int_equal(where(piece_of(&grants[0])), BLOCK_STATE_HOST);
	heap_set_beside(own.heap, true, 0);
	assert_int_equal(where(piece_of(&grants[0])), BLOCK_STATE_PINNED);
}

/* As when the block that was pinned was freed, and another one took its place, before the pin was written down. */
TEST(the_end_of_a_pin_that_was_never_counted_leaves_nothing_pinned)
{
	struct migration transit;

	core_heap_open(&own, 64 * MIB, 64 * MIB, 64 * MIB);
	struct heap_grant grant = take(4 * MIB, CHUNK_MOVABLE);
	assert_ok(heap_pin_asked(own.heap, grant.address));
	heap_pin_end(own.heap, grant.address, 1, PIN_OFF);
	assert_ok(heap_unpin_asked(own.heap, grant.address));
	assert_int_equal(heap_pinned_device(own.heap), 0);
	assert_ok(begin(piece_of(&grant), CHUNK_HOST, &transit));
	move(&transit);
}

/* ---- a piece on its way ---- */

struct pinner {
	pthread_t thread;
	CUdeviceptr address;
	_Atomic bool back, pinned;
};

static void *pin_it(void *argument)
{
	struct pinner *pinner = argument;

	pinner->pinned = heap_pin(own.heap, pinner->address, 1);
	pinner->back = true;
	return NULL;
}

TEST(a_pin_waits_until_what_is_on_its_way_has_arrived)
{
	struct migration transit;

	core_heap_open(&own, 64 * MIB, 64 * MIB, 64 * MIB);
	for (int turn = 0; turn < 2; turn++) {
		struct heap_grant grant = take(4 * MIB, CHUNK_MOVABLE);
		struct pinner pinner = {.address = grant.address};
		uint32_t piece = piece_of(&grant);

		assert_ok(begin(piece, CHUNK_HOST, &transit));
		assert_int_equal(pthread_create(&pinner.thread, NULL, pin_it, &pinner), 0);
		UNTIL(heap_is_awaited(own.heap));
		assert_false(pinner.back);
		if (turn) /* given up: it is where it was, and stays there */
			migration_end(own.heap, &transit);
		else
			move(&transit);
		pthread_join(pinner.thread, NULL);
		assert_true(pinner.pinned && !heap_is_awaited(own.heap));
		assert_int_equal(where(piece), BLOCK_STATE_PINNED);
		assert_int_equal(away(piece), 0);
		assert_int_equal(begin(piece, turn ? CHUNK_HOST : CHUNK_DEVICE, &transit), SW_INVALID);
		heap_pin_end(own.heap, grant.address, 1, PIN_OFF);
		assert_int_equal(where(piece), turn ? BLOCK_STATE_DEVICE : BLOCK_STATE_HOST);
		core_give(&own, &grant);
		heap_trim(own.heap, 0, 0);
	}
}

/* It came out and is not mapped yet: that is done, and it does not turn back. */
TEST(a_piece_at_rest_does_not_turn_once_it_is_pinned)
{
	struct migration transit;

	core_heap_open(&own, 64 * MIB, 64 * MIB, 64 * MIB);
	struct heap_grant grant = take(4 * MIB, CHUNK_MOVABLE);
	struct pinner pinner = {.address = grant.address};
	uint32_t piece = piece_of(&grant);
	assert_ok(begin(piece, CHUNK_HOST, &transit));
	assert_ok(migration_unmap(&transit));
	migration_exchange(own.heap, &transit, false);
	assert_int_equal(pthread_create(&pinner.thread, NULL, pin_it, &pinner), 0);
	UNTIL(heap_is_awaited(own.heap));
	heap_make_spare(own.heap, CHUNK_DEVICE, 2, true);
	assert_int_equal(migration_turn(own.heap, false, &transit), SW_INVALID);
	assert_ok(migration_map(own.heap, &transit, false));
	migration_end(own.heap, &transit);
	pthread_join(pinner.thread, NULL);
	assert_true(pinner.pinned);
	assert_int_equal(sim_where(grant.address), 'H');
	heap_pin_end(own.heap, grant.address, 1, PIN_OFF);
}

TEST(a_pin_that_waits_too_long_is_none)
{
	struct migration transit;

	core_heap_open(&own, 64 * MIB, 64 * MIB, 64 * MIB);
	struct heap_grant grant = take(4 * MIB, CHUNK_MOVABLE);
	assert_ok(begin(piece_of(&grant), CHUNK_HOST, &transit));
	assert_false(heap_pin(own.heap, grant.address, 1));
	move(&transit);
	assert_int_equal(where(piece_of(&grant)), BLOCK_STATE_HOST);
	assert_ok(begin(piece_of(&grant), CHUNK_DEVICE, &transit));
	move(&transit);
}

/* The texture exists by then, and nobody asks again. */
TEST(what_is_kept_elsewhere_stays_also_if_it_arrives_too_late)
{
	struct migration transit;

	core_heap_open(&own, 64 * MIB, 64 * MIB, 64 * MIB);
	heap_set_beside(own.heap, true, 0);
	struct heap_grant grant = take(4 * MIB, CHUNK_MOVABLE);
	assert_ok(begin(piece_of(&grant), CHUNK_HOST, &transit));
	assert_false(heap_stay_beside(own.heap, grant.address, 1));
	move(&transit);
	assert_int_equal(where(piece_of(&grant)), BLOCK_STATE_PINNED);
	assert_int_equal(begin(piece_of(&grant), CHUNK_DEVICE, &transit), SW_INVALID);
}

/* ---- memory that others know ---- */

TEST(memory_that_others_know_goes_back_to_the_driver_with_its_block)
{
	core_heap_open(&own, 64 * MIB, 64 * MIB, 64 * MIB);
	struct heap_grant grant = take(4 * MIB, CHUNK_MOVABLE), small = take(1000, CHUNK_MOVABLE);
	assert_true(heap_pin(own.heap, grant.address, 1) && heap_pin(own.heap, small.address, 1));
	heap_pin_end(own.heap, grant.address, 1, PIN_LEFT);
	heap_pin_end(own.heap, small.address, 1, PIN_LEFT);
	core_give(&own, &grant);
	assert_int_equal(own.device.used, 2 * MIB);
	assert_int_equal(heap_idle(own.heap, CHUNK_DEVICE), 0);
	core_give(&own, &small);
	heap_trim(own.heap, 0, 0);
	assert_true(heap_is_valid(own.heap));
	assert_int_equal(own.device.used, 0);
}

TEST(kinds_take_nothing_of_each_other_but_room)
{
	struct heap_grant fixed[2], movable[2];

	core_heap_open(&own, 8 * MIB, 0, 8 * MIB);
	fixed[0] = take(4 * MIB, CHUNK_FIXED);
	movable[0] = take(4 * MIB, CHUNK_MOVABLE);
	assert_int_equal(where(piece_of(&fixed[0])), BLOCK_STATE_PINNED);
	assert_int_equal(heap_pinned_device(own.heap), 4 * MIB);
	core_give(&own, &fixed[0]);
	core_give(&own, &movable[0]);
	/* All of the budget is kept warm; half of it has the wrong kind. */
	for (int i = 0; i < 2; i++) {
		movable[i] = take(4 * MIB, CHUNK_MOVABLE);
		assert_int_equal(where(piece_of(&movable[i])), BLOCK_STATE_DEVICE);
		assert_true(heap_is_valid(own.heap));
	}
	for (int i = 0; i < 2; i++)
		core_give(&own, &movable[i]);
	for (int i = 0; i < 2; i++) {
		fixed[i] = take(i ? MIB : 6 * MIB, CHUNK_FIXED);
		assert_int_equal(where(piece_of(&fixed[i])), BLOCK_STATE_PINNED);
		assert_true(heap_is_valid(own.heap));
	}
}

START(core_driver())
