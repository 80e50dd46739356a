// SPDX-License-Identifier: Apache-2.0
/*
 * heap_peer_test.c: memory that other devices lend (spill.peers): when it is used, how much of it, and that what moves
 * goes there first. Devices 1 and 2 lend; what they have of their own is charged.
 */
#include "shim/heap/block.h"
#include "test/core/core.h"

static struct core_heap own;
static struct heap_grant grants[8];

static enum sw_status take(unsigned i, size_t bytes, enum chunk_kind kind, enum heap_from from)
{
	return core_try(&own, bytes, kind, from, &grants[i]);
}

static void get(unsigned i, size_t bytes)
{
	assert_ok(take(i, bytes, CHUNK_MOVABLE, HEAP_DEVICE_FIRST));
}

/* The first n, of 4 MiB each. */
static void get_filled(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		get(i, 4 * MIB);
		core_fill(grants[i].address, 4 * MIB, i);
	}
}

/* A heap of pieces of 4 MiB with four filled blocks, and so many peers that lend `lent` each. */
static void open_filled(uint64_t device, uint64_t host, unsigned n_peers, uint64_t lent)
{
	core_heap_open_lent(&own, device, host, 0, n_peers, lent);
	own.heap->store.most_units = 2;
	get_filled(4);
}

static bool are_filled(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (!core_is_filled(grants[i].address, 4 * MIB, i))
			return false;
	return true;
}

EACH_TEST(NULL, core_heap_end)

static uint64_t in_mib(uint64_t bytes)
{
	assert_int_equal(bytes % MIB, 0);
	return bytes / MIB;
}

#define assert_used(DEVICE, PEER1, PEER2, HOST)                                                                        \
	do {                                                                                                           \
		assert_int_equal(in_mib(own.device.used), DEVICE);                                                     \
		assert_int_equal(in_mib(own.peer[0].used), PEER1);                                                     \
		assert_int_equal(in_mib(own.peer[1].used), PEER2);                                                     \
		assert_int_equal(in_mib(own.host.used), HOST);                                                         \
	} while (0)

/* ---- where it is taken from ---- */

TEST(peers_lend_in_their_order_before_the_host)
{
	uint64_t used, left;

	core_heap_open_lent(&own, 32 * MIB, 64 * MIB, 0, 2, 16 * MIB);
	get(0, 40 * MIB);
	assert_used(32, 8, 0, 0);
	assert_int_equal(grants[0].bytes_away, 8 * MIB);
	get(1, 16 * MIB);
	assert_used(32, 16, 8, 0);
	assert_int_equal(heap_lent(own.heap, &used, &left), 32 * MIB);
	assert_int_equal(used, 24 * MIB);
	get(2, 16 * MIB);
	assert_used(32, 16, 16, 8);
	core_fill(grants[0].address, 40 * MIB, 1);
	core_fill(grants[2].address, 16 * MIB, 2);
	assert_true(core_is_filled(grants[0].address, 40 * MIB, 1) && core_is_filled(grants[2].address, 16 * MIB, 2));
	uint64_t bytes[CHUNK_PLACES];
	bool stays;
	assert_ok(heap_where(own.heap, grants[2].address, 16 * MIB, bytes, &stays));
	assert_true(bytes[CHUNK_DEVICE] == 0 && bytes[CHUNK_PEER] == 8 * MIB && bytes[CHUNK_HOST] == 8 * MIB);
	core_give(&own, &grants[1]);
	assert_used(32, 8, 8, 8);
}

TEST(what_must_stay_or_lie_on_the_host_is_not_lent)
{
	core_heap_open_lent(&own, 8 * MIB, 32 * MIB, 0, 1, 16 * MIB);
	assert_ok(take(0, 16 * MIB, CHUNK_FIXED, HEAP_DEVICE_FIRST));
	assert_used(8, 0, 0, 8);
	assert_ok(take(1, 8 * MIB, CHUNK_MOVABLE, HEAP_HOST));
	assert_used(8, 0, 0, 16);
	assert_int_equal(take(2, 8 * MIB, CHUNK_MOVABLE, HEAP_DEVICE), SW_NO_MEMORY);
}

TEST(small_allocations_fill_slabs_there_before_those_on_the_host)
{
	core_heap_open_lent(&own, 2 * MIB, 4 * MIB, 0, 1, 2 * MIB);
	for (unsigned i = 0; i < 6; i++)
		get(i, MIB);
	assert_used(2, 2, 0, 2);
	core_give(&own, &grants[2]);
	get(2, MIB);
	assert_used(2, 2, 0, 2);
	assert_int_equal(grants[2].address / (2 * MIB), grants[3].address / (2 * MIB));
}

TEST(a_warm_block_is_not_given_where_it_may_not_begin)
{
	core_heap_open_lent(&own, 8 * MIB, 32 * MIB, 64 * MIB, 1, 16 * MIB);
	get(0, 8 * MIB);
	get(1, 8 * MIB);
	core_give(&own, &grants[1]);
	assert_used(8, 8, 0, 0);
	assert_ok(take(1, 8 * MIB, CHUNK_MOVABLE, HEAP_HOST));
	assert_false(grants[1].reused);
	assert_used(8, 8, 0, 8);
	get(2, 8 * MIB);
	assert_true(grants[2].reused);
	core_give(&own, &grants[2]);
	heap_trim(own.heap, 0, 64 * MIB);
	assert_used(8, 0, 0, 8);
}

/* What it lends is a promise of the user's, not of the driver's; who filled it may go away again. */
TEST(a_peer_that_has_less_is_left_alone_for_a_while)
{
	uint64_t used, left;

	core_heap_open_lent(&own, 8 * MIB, 32 * MIB, 0, 1, 16 * MIB);
	get(0, 8 * MIB);
	sim_fail("cuMemCreate", 1, CUDA_ERROR_OUT_OF_MEMORY);
	get(1, 4 * MIB);
	assert_used(8, 0, 0, 4);
	assert_true(own.lender[0].full_until);
	own.lender[0].full_until = UINT64_MAX; /* as long as this test takes */
	assert_int_equal(heap_lent(own.heap, &used, &left), 16 * MIB);
	assert_int_equal(left, 0);
	unsigned long calls = sim_calls("cuMemCreate");
	get(2, 4 * MIB);
	assert_int_equal(sim_calls("cuMemCreate") - calls, 1);
	assert_used(8, 0, 0, 8);
	own.lender[0].full_until = 1; /* long ago */
	get(3, 4 * MIB);
	assert_used(8, 4, 0, 8);
}

TEST(a_striped_block_lies_on_all_devices_in_turn)
{
	core_heap_open_lent(&own, 64 * MIB, 64 * MIB, 64 * MIB, 2, 32 * MIB);
	assert_ok(take(0, 18 * MIB, CHUNK_FIXED, HEAP_STRIPE));
	assert_used(8, 6, 4, 0);
	core_fill(grants[0].address, 18 * MIB, 3);
	assert_ok(take(1, MIB, CHUNK_FIXED, HEAP_STRIPE));
	assert_used(10, 6, 4, 0);
	/* One that has no more is left out; what the host has is not used. */
	assert_ok(take(2, 90 * MIB, CHUNK_FIXED, HEAP_STRIPE));
	assert_used(46, 32, 32, 0);
	assert_int_equal(take(3, 20 * MIB, CHUNK_FIXED, HEAP_STRIPE), SW_NO_MEMORY);
	assert_true(heap_is_valid(own.heap));
	assert_true(core_is_filled(grants[0].address, 18 * MIB, 3));
	/* It is not kept warm: nobody else would expect to lie there. */
	core_give(&own, &grants[2]);
	assert_used(10, 6, 4, 0);
}

/* ---- moving ---- */

/* One piece out or in, as the mover does it. */
static void move(const struct heap_grant *grant, enum chunk_place to)
{
	core_move(own.heap, grant->address, to);
}

TEST(what_goes_out_goes_to_a_peer_and_then_to_the_host)
{
	open_filled(16 * MIB, 32 * MIB, 1, 6 * MIB);
	move(&grants[0], CHUNK_HOST);
	heap_trim(own.heap, 0, 0);
	assert_used(12, 4, 0, 0);
	move(&grants[1], CHUNK_HOST); /* 2 MiB are left there, a piece has 4 */
	assert_int_equal(in_mib(own.host.used), 4);
	move(&grants[1], CHUNK_DEVICE);
	move(&grants[0], CHUNK_DEVICE);
	/* There is warm memory on both sides now: the peer's comes first, as long as it is lent. */
	move(&grants[2], CHUNK_HOST);
	assert_int_equal(heap_idle(own.heap, CHUNK_HOST), 4 * MIB);
	move(&grants[2], CHUNK_DEVICE);
	heap_lend(own.heap, false);
	move(&grants[2], CHUNK_HOST);
	assert_int_equal(heap_idle(own.heap, CHUNK_HOST), 0);
	heap_lend(own.heap, true);
	assert_true(are_filled(4));
}

/* Also from the peer where it lies already; what lies on the host stays. */
TEST(what_is_wanted_on_the_host_goes_past_a_peer_while_there_is_room)
{
	struct migration transit;

	open_filled(8 * MIB, 8 * MIB, 1, 16 * MIB);
	assert_used(8, 8, 0, 0);
	for (unsigned i = 0; i < 3; i++)
		assert_ok(heap_to_host(own.heap, grants[i].address));
	move(&grants[0], CHUNK_HOST);
	assert_used(8, 8, 0, 4);
	assert_int_equal(migration_begin(own.heap, arena_unit(heap_arena(own.heap), grants[0].address), CHUNK_DEVICE,
					 false, &transit),
			 SW_INVALID);
	move(&grants[2], CHUNK_DEVICE);
	move(&grants[2], CHUNK_HOST);
	assert_int_equal(grants[2].block->bytes[CHUNK_HOST], 4 * MIB);
	/* The host is full: rather there than in the way. */
	move(&grants[1], CHUNK_HOST);
	assert_int_equal(grants[1].block->bytes[CHUNK_PEER], 4 * MIB);
	assert_true(are_filled(4));
}

/* It stays until there is room: from peer to peer it would go for ever. */
TEST(what_is_wanted_on_the_host_does_not_go_round_on_a_peer)
{
	struct migration transit;

	open_filled(8 * MIB, 4 * MIB, 1, 16 * MIB);
	assert_used(8, 8, 0, 0);
	assert_ok(heap_make_spare(own.heap, CHUNK_HOST, 2, true));
	assert_used(8, 12, 0, 0);
	struct heap_grant small = core_take(&own, 2 * MIB, CHUNK_MOVABLE, HEAP_HOST);
	assert_used(8, 12, 0, 2);
	assert_ok(heap_to_host(own.heap, grants[3].address));
	uint32_t piece = arena_unit(heap_arena(own.heap), grants[3].address);
	assert_int_equal(migration_begin(own.heap, piece, CHUNK_HOST, false, &transit), SW_NO_MEMORY);
	core_give(&own, &small);
	assert_ok(heap_make_spare(own.heap, CHUNK_HOST, 2, false));
	move(&grants[3], CHUNK_HOST);
	assert_int_equal(grants[3].block->bytes[CHUNK_HOST], 4 * MIB);
	assert_true(core_is_filled(grants[3].address, 4 * MIB, 3));
}

/* As much as it has, but nowhere in one piece. */
TEST(what_no_peer_has_room_for_goes_to_the_host)
{
	core_heap_open_lent(&own, 4 * MIB, 32 * MIB, 0, 2, 6 * MIB);
	own.heap->store.most_units = 2;
	for (unsigned i = 0; i < 3; i++)
		get(i, 4 * MIB);
	assert_used(4, 4, 4, 0);
	core_fill(grants[0].address, 4 * MIB, 1);
	move(&grants[0], CHUNK_HOST);
	assert_used(4, 4, 4, 4);
	assert_true(core_is_filled(grants[0].address, 4 * MIB, 1));
}

/* However full the device is, and though the program wants it away from there. */
TEST(what_is_no_longer_lent_goes_to_the_host_from_where_it_is)
{
	struct migration transit;

	open_filled(4 * MIB, 32 * MIB, 1, 16 * MIB);
	assert_used(4, 12, 0, 0);
	uint32_t piece = arena_unit(heap_arena(own.heap), grants[1].address);
	assert_int_equal(migration_begin(own.heap, piece, CHUNK_HOST, true, &transit), SW_INVALID);
	assert_ok(heap_to_host(own.heap, grants[2].address));
	assert_true(heap_pin(own.heap, grants[3].address, 4 * MIB));
	heap_lend(own.heap, false);
	move(&grants[1], CHUNK_HOST);
	move(&grants[2], CHUNK_HOST);
	piece = arena_unit(heap_arena(own.heap), grants[3].address);
	assert_int_equal(migration_begin(own.heap, piece, CHUNK_HOST, true, &transit), SW_INVALID);
	assert_int_equal(heap_pinned_device(own.heap), 4 * MIB);
	heap_pin_end(own.heap, grants[3].address, 4 * MIB, PIN_OFF);
	heap_trim(own.heap, 0, 0);
	assert_used(4, 4, 0, 8);
	assert_true(are_filled(4));
}

/* To another peer that has room, else to the host; and it is not kept warm where it was. */
TEST(what_a_peer_wants_back_leaves_it)
{
	struct migration transit;

	open_filled(4 * MIB, 32 * MIB, 2, 8 * MIB);
	assert_used(4, 8, 4, 0);
	struct lender *first = own.heap->store.chunks.lenders[0];
	lender_want(first, 8 * MIB);
	assert_int_equal(heap_wanted(own.heap), 8 * MIB);
	move(&grants[1], CHUNK_HOST);
	assert_used(4, 4, 8, 0);
	move(&grants[2], CHUNK_HOST);
	assert_used(4, 0, 8, 4);
	assert_int_equal(heap_wanted(own.heap), 0);
	/* What has gone stays away, wherever it is. */
	uint32_t piece = arena_unit(heap_arena(own.heap), grants[1].address);
	assert_int_equal(migration_begin(own.heap, piece, CHUNK_HOST, true, &transit), SW_INVALID);
	assert_true(are_filled(4));
}

/* What the peer still lends comes before what the host has warm. */
TEST(warm_host_memory_does_not_keep_a_peer_from_lending)
{
	core_heap_open_lent(&own, 16 * MIB, 32 * MIB, 64 * MIB, 1, 16 * MIB);
	own.heap->store.most_units = 2;
	get(0, 4 * MIB);
	get(1, 4 * MIB);
	heap_lend(own.heap, false);
	move(&grants[0], CHUNK_HOST);
	move(&grants[0], CHUNK_DEVICE);
	heap_lend(own.heap, true);
	assert_int_equal(heap_idle(own.heap, CHUNK_HOST), 4 * MIB);
	move(&grants[1], CHUNK_HOST);
	assert_int_equal(in_mib(own.peer[0].used), 4);
}

BEFORE_ALL
{
	setenv("SIM_DEVICES", "3", 1);
	core_driver();
}
