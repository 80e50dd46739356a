// SPDX-License-Identifier: Apache-2.0
/*
 * heap_share_test.c: whether a block can be shared with other processes is a question of the memory that it has now,
 * not of what it had before something moved. And memory that others know gets no next owner, whatever the driver
 * refuses.
 */
#include "shim/heap/block.h"
#include "test/core/core.h"

#define PIECE (4 * MIB)

static struct core_heap own;

EACH_TEST(NULL, core_heap_end)

static enum sw_status share(const struct heap_grant *grant)
{
	uint64_t offset;

	assert_true(heap_pin(own.heap, grant->address, 1));
	return heap_share_begin(own.heap, grant->address, &offset);
}

/* The one that has left has the host's memory, the one that is made afterwards the memory that the first one had. */
static void who_can_be_shared(bool host_can)
{
	core_heap_open_shared(&own, PIECE, 64 * MIB, 64 * MIB);
	struct heap_grant first = core_take(&own, PIECE, CHUNK_MOVABLE, HEAP_DEVICE);
	if (!host_can)
		sim_fail("cuMemCreate", 1, CUDA_ERROR_NOT_SUPPORTED);
	assert_ok(heap_make_spare(own.heap, CHUNK_HOST, PIECE / HEAP_UNIT, true));
	assert_true(core_leaves(&own, first.address));
	assert_int_equal(sim_where(first.address), 'H');
	struct heap_grant second = core_take(&own, PIECE, CHUNK_MOVABLE, HEAP_DEVICE);
	assert_int_equal(sim_where(second.address), 'D');
	assert_int_equal(share(&first), host_can ? SW_OK : SW_NOT_SUPPORTED);
	assert_int_equal(share(&second), SW_OK);
}

TEST(what_has_moved_can_be_shared)
{
	who_can_be_shared(true);
}

TEST(a_host_that_cannot_share_keeps_nobody_else_from_it)
{
	who_can_be_shared(false);
}

/* ---- memory that others know ---- */

/* Another mapping of the memory at an address, as another process may have it, until `forget`. */
struct stranger {
	CUdeviceptr at;
	size_t bytes;
};

static struct stranger make_known(CUdeviceptr address, size_t bytes)
{
	const CUmemAccessDesc desc = form_access(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	struct stranger stranger = {.bytes = bytes};
	CUmemGenericAllocationHandle handle;

	assert_true(heap_pin(own.heap, address, 1));
	assert_ok(REAL(cuMemRetainAllocationHandle)(&handle, (void *)(uintptr_t)address));
	heap_pin_end(own.heap, address, 1, PIN_LEFT);
	assert_ok(REAL(cuMemAddressReserve)(&stranger.at, bytes, 0, 0, 0));
	assert_ok(REAL(cuMemMap)(stranger.at, bytes, 0, handle, 0));
	assert_ok(REAL(cuMemRelease)(handle));
	assert_ok(REAL(cuMemSetAccess)(stranger.at, bytes, &desc, 1));
	return stranger;
}

static void forget(const struct stranger *stranger)
{
	assert_ok(REAL(cuMemUnmap)(stranger->at, stranger->bytes));
	assert_ok(REAL(cuMemAddressFree)(stranger->at, stranger->bytes));
}

/* What the stranger writes does not reach this allocation. */
static void is_another(const struct heap_grant *next, size_t bytes, const struct stranger *stranger)
{
	core_fill(next->address, bytes, 1);
	core_fill(stranger->at, stranger->bytes, 2);
	assert_true(core_is_filled(next->address, bytes, 1));
}

static uint64_t made(enum chunk_place place)
{
	return own.heap->store.chunks.made_bytes[place];
}

TEST(what_others_know_gets_no_next_owner_though_its_release_is_refused)
{
	core_heap_open(&own, 64 * MIB, 64 * MIB, 64 * MIB);
	struct heap_grant known = core_take(&own, 2 * PIECE, CHUNK_FIXED, HEAP_DEVICE);
	struct stranger stranger = make_known(known.address, 2 * PIECE);
	sim_fail("cuMemRelease", 1, CUDA_ERROR_UNKNOWN);
	core_give(&own, &known);
	assert_false(sim_fail_pending());
	struct heap_grant next = core_take(&own, 2 * PIECE, CHUNK_FIXED, HEAP_DEVICE);
	is_another(&next, 2 * PIECE, &stranger);
	forget(&stranger);
}

/* Host memory of two parts, 8 and 4 MiB: others know the first. */
TEST(nor_do_the_parts_of_what_others_know)
{
	struct heap_grant next[2];

	core_heap_open(&own, 2048 * MIB, 64 * MIB, 64 * MIB);
	heap_set_beside(own.heap, true, 0);
	struct heap_grant known = core_take(&own, 3 * PIECE, CHUNK_MOVABLE, HEAP_HOST);
	assert_non_null(known.block->chunks->parts);
	struct stranger stranger = make_known(known.address, 2 * PIECE);
	sim_fail_next("cuMemRelease", 1, CUDA_ERROR_UNKNOWN, CUDA_ERROR_UNKNOWN);
	core_give(&own, &known);
	assert_false(sim_fail_pending());
	for (unsigned i = 0; i < 2; i++) {
		next[i] = core_take(&own, 2 * PIECE, CHUNK_MOVABLE, HEAP_HOST);
		is_another(&next[i], 2 * PIECE, &stranger);
	}
	forget(&stranger);
}

TEST(a_refused_release_is_tried_again_until_it_succeeds)
{
	core_heap_open(&own, 64 * MIB, 64 * MIB, 64 * MIB);
	struct heap_grant known = core_take(&own, 2 * PIECE, CHUNK_FIXED, HEAP_DEVICE);
	struct stranger stranger = make_known(known.address, 2 * PIECE);
	uint64_t before = made(CHUNK_DEVICE);
	sim_fail_next("cuMemRelease", 1, CUDA_ERROR_UNKNOWN, CUDA_ERROR_UNKNOWN);
	core_give(&own, &known);
	assert_int_equal(made(CHUNK_DEVICE), before);
	heap_tick(own.heap);
	assert_false(sim_fail_pending());
	assert_int_equal(made(CHUNK_DEVICE), before);
	assert_int_equal(heap_trim(own.heap, 64 * MIB, 64 * MIB), 0);
	assert_int_equal(made(CHUNK_DEVICE), before - 2 * PIECE);
	forget(&stranger);
}

TEST(an_allocation_that_needs_memory_takes_back_what_was_refused)
{
	core_heap_open(&own, 2 * PIECE, 64 * MIB, 64 * MIB);
	struct heap_grant known = core_take(&own, 2 * PIECE, CHUNK_FIXED, HEAP_DEVICE);
	struct stranger stranger = make_known(known.address, 2 * PIECE);
	sim_fail("cuMemRelease", 1, CUDA_ERROR_UNKNOWN);
	core_give(&own, &known);
	struct heap_grant next = core_take(&own, 2 * PIECE, CHUNK_FIXED, HEAP_DEVICE);
	is_another(&next, 2 * PIECE, &stranger);
	forget(&stranger);
}

/* ---- slabs that others know ---- */

#define SMALL (64u << 10)

static CUdeviceptr unit_of(CUdeviceptr address)
{
	return address / HEAP_UNIT * HEAP_UNIT;
}

/* Three lie in one slab, of which others get to know the second. */
TEST(a_slab_that_others_know_takes_no_more_allocations)
{
	struct heap_grant grants[3], later[HEAP_UNIT / SMALL];

	core_heap_open(&own, 64 * MIB, 64 * MIB, 64 * MIB);
	for (unsigned i = 0; i < 3; i++)
		grants[i] = core_take(&own, SMALL, CHUNK_MOVABLE, HEAP_DEVICE);
	CUdeviceptr known = unit_of(grants[1].address);
	assert_int_equal(unit_of(grants[2].address), known);
	struct stranger stranger = make_known(known, HEAP_UNIT);
	assert_true(heap_is_valid(own.heap));
	core_give(&own, &grants[1]);
	for (unsigned i = 0; i < HEAP_UNIT / SMALL; i++) {
		later[i] = core_take(&own, SMALL, CHUNK_MOVABLE, HEAP_DEVICE);
		assert_int_not_equal(unit_of(later[i].address), known);
	}
	is_another(&later[0], SMALL, &stranger);
	core_give(&own, &grants[0]);
	/* With the last of them its memory goes back. */
	uint64_t before = made(CHUNK_DEVICE);
	core_give(&own, &grants[2]);
	assert_int_equal(made(CHUNK_DEVICE), before - HEAP_UNIT);
	forget(&stranger);
}

TEST(nor_does_one_that_was_full_when_others_got_to_know_it)
{
	struct heap_grant grants[2];

	core_heap_open(&own, 64 * MIB, 64 * MIB, 64 * MIB);
	for (unsigned i = 0; i < 2; i++)
		grants[i] = core_take(&own, MIB, CHUNK_MOVABLE, HEAP_DEVICE);
	CUdeviceptr known = unit_of(grants[0].address);
	assert_int_equal(unit_of(grants[1].address), known);
	struct stranger stranger = make_known(known, HEAP_UNIT);
	core_give(&own, &grants[0]);
	grants[0] = core_take(&own, MIB, CHUNK_MOVABLE, HEAP_DEVICE);
	assert_int_not_equal(unit_of(grants[0].address), known);
	is_another(&grants[0], MIB, &stranger);
	forget(&stranger);
}

/* A program may export the address of memory that it has freed. */
TEST(nor_does_one_that_was_empty_then)
{
	core_heap_open(&own, 64 * MIB, 64 * MIB, 64 * MIB);
	struct heap_grant first = core_take(&own, SMALL, CHUNK_MOVABLE, HEAP_DEVICE);
	CUdeviceptr known = unit_of(first.address);
	core_give(&own, &first);
	struct stranger stranger = make_known(known, HEAP_UNIT);
	assert_true(heap_is_valid(own.heap));
	struct heap_grant next = core_take(&own, SMALL, CHUNK_MOVABLE, HEAP_DEVICE);
	is_another(&next, SMALL, &stranger);
	forget(&stranger);
}

START(core_driver())
