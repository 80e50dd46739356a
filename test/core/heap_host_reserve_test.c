// SPDX-License-Identifier: Apache-2.0
/*
 * heap_host_reserve_test.c: host memory that is pinned before something leaves for it: of which sizes, how much, and
 * when none is. Pieces of 4 MiB, but where a test says so.
 */
#include "shim/heap/block.h"
#include "test/core/core.h"

#define PIECE (4 * MIB)
#define STOCK (16 * MIB)

static struct core_heap own;

EACH_TEST(NULL, core_heap_end)

static struct heap_grant get(size_t bytes, enum heap_from from)
{
	return core_take(&own, bytes, CHUNK_MOVABLE, from);
}

/* How many chunks it pins until nothing is missing. */
static unsigned long stock(uint64_t bytes)
{
	unsigned long made = sim_calls("cuMemCreate");

	for (unsigned i = 0; heap_fill_host_reserve(own.heap, bytes) == SW_OK; i++)
		assert_true(i < 1000);
	assert_true(heap_is_valid(own.heap));
	return sim_calls("cuMemCreate") - made;
}

TEST(what_leaves_finds_memory_of_its_size)
{
	core_heap_open(&own, 64 * MIB, 256 * MIB, 256 * MIB);
	struct heap_grant large = get(2 * PIECE, HEAP_DEVICE), small = get(PIECE / 2, HEAP_DEVICE);
	assert_false(core_leaves(&own, large.address));
	assert_false(core_leaves(&own, small.address));
	assert_int_equal(stock(STOCK), 3);
	unsigned long made = sim_calls("cuMemCreate");
	assert_true(core_leaves(&own, small.address));
	assert_true(core_leaves(&own, large.address));
	assert_int_equal(sim_calls("cuMemCreate"), made);
}

/* Of 12 pieces of 4 MiB and 4 of 2, 56 MiB, the parts of 16 MiB: 12 / 56 of it in pieces of 4 MiB, and one begun. */
TEST(sizes_are_stocked_in_proportion)
{
	struct heap_grant grants[16];

	core_heap_open(&own, 64 * MIB, 256 * MIB, 256 * MIB);
	for (unsigned i = 0; i < 16; i++)
		grants[i] = get(i < 12 ? PIECE : PIECE / 2, HEAP_DEVICE);
	assert_int_equal(stock(STOCK), 4 + 2);
	assert_int_equal(heap_idle(own.heap, CHUNK_HOST), 4 * PIECE + 2 * PIECE / 2);
	assert_int_equal(stock(STOCK), 0);
	/* One has gone, one more is missing. */
	assert_true(core_leaves(&own, grants[0].address));
	assert_int_equal(stock(STOCK), 1);
}

/* Eight sizes, 72 MiB, in pieces of up to 16: 16, 14, and the one of 2 that still fits. */
TEST(many_sizes_do_not_make_it_more)
{
	core_heap_open(&own, 512 * MIB, 256 * MIB, 256 * MIB);
	for (unsigned i = 0; i < 8; i++)
		get((i + 1) * 2 * MIB, HEAP_DEVICE);
	assert_int_equal(stock(STOCK), 3);
	assert_int_equal(heap_idle(own.heap, CHUNK_HOST), 2 * STOCK);
}

/* What is kept for good is 8 MiB. */
TEST(no_more_is_pinned_than_is_kept)
{
	core_heap_open(&own, 64 * MIB, 256 * MIB, 2 * PIECE);
	for (unsigned i = 0; i < 4; i++)
		get(PIECE, HEAP_DEVICE);
	assert_int_equal(stock(STOCK), 2);
	assert_int_equal(stock(0), 0);
}

TEST(what_cannot_leave_needs_none)
{
	core_heap_open(&own, 64 * MIB, 256 * MIB, 256 * MIB);
	get(PIECE, HEAP_HOST);
	struct heap_grant pinned = get(PIECE, HEAP_DEVICE);
	core_take(&own, PIECE, CHUNK_FIXED, HEAP_DEVICE);
	assert_true(heap_pin(own.heap, pinned.address, 1));
	assert_int_equal(stock(STOCK), 0);
	heap_pin_end(own.heap, pinned.address, 1, PIN_OFF);
	assert_int_equal(stock(STOCK), 1);
}

TEST(free_blocks_are_stock)
{
	core_heap_open(&own, 64 * MIB, 256 * MIB, 256 * MIB);
	get(2 * PIECE, HEAP_DEVICE);
	struct heap_grant host = get(2 * PIECE, HEAP_HOST);
	core_give(&own, &host);
	assert_int_equal(stock(STOCK), 0);
}

/* Room is left for the program, and peers come first. */
TEST(not_where_there_is_little_room_or_none_is_needed)
{
	core_heap_open(&own, 64 * MIB, 4 * STOCK, 256 * MIB);
	struct heap_grant device = get(PIECE, HEAP_DEVICE), host = get(PIECE, HEAP_HOST);
	assert_int_equal(stock(STOCK), 0);
	core_give(&own, &host);
	assert_int_equal(stock(STOCK / 2), 0); /* of the free block */
	core_give(&own, &device);
	core_heap_close(&own);
	core_heap_open_lent(&own, 64 * MIB, 256 * MIB, 256 * MIB, 1, 32 * MIB);
	device = get(PIECE, HEAP_DEVICE);
	assert_int_equal(stock(STOCK), 0);
	heap_lend(own.heap, false);
	assert_int_equal(stock(STOCK), 1);
}

/* The driver has none: nothing is lost. */
TEST(what_cannot_be_had_is_not_stocked)
{
	core_heap_open(&own, 64 * MIB, 256 * MIB, 256 * MIB);
	struct heap_grant device = get(PIECE, HEAP_DEVICE);
	sim_fail("cuMemCreate", 1, CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(heap_fill_host_reserve(own.heap, STOCK), SW_NO_MEMORY);
	assert_false(heap_has_soon(own.heap));
	assert_int_equal(heap_idle(own.heap, CHUNK_HOST), 0);
	/* Without an alias it is as good: that is made when it is taken. */
	sim_fail("cuMemMap", 1, CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(stock(STOCK), 1);
	assert_false(sim_fail_pending());
	assert_true(core_leaves(&own, device.address));
}

/* It is mapped at the alias for good, or is released: never released and still mapped. */
TEST(an_alias_that_cannot_be_had_nor_go_is_tried_again)
{
	for (int used = 0; used < 2; used++) {
		core_heap_open(&own, 64 * MIB, 256 * MIB, 256 * MIB);
		struct heap_grant device = get(PIECE, HEAP_DEVICE);
		sim_fail("cuMemSetAccess", 1, CUDA_ERROR_UNKNOWN);
		sim_fail("cuMemUnmap", 1, CUDA_ERROR_UNKNOWN);
		assert_int_equal(stock(STOCK), 1);
		assert_false(sim_fail_pending());
		unsigned long mapped = sim_calls("cuMemMap");
		assert_true(!used || core_leaves(&own, device.address));
		/* At its own address alone: at the alias it is mapped. */
		assert_int_equal(sim_calls("cuMemMap") - mapped, used);
		core_give(&own, &device);
		core_heap_close(&own);
	}
}

/* ---- pinned ahead for all that may leave ---- */

/* How many chunks it makes, and gives back, until nothing is missing. */
static unsigned long pin_ahead(uint64_t most, unsigned long *ret_released)
{
	unsigned long made = sim_calls("cuMemCreate"), released = sim_calls("cuMemRelease");

	for (unsigned i = 0; heap_pin_ahead(own.heap, most) == SW_OK; i++)
		assert_true(i < 1000);
	assert_true(heap_is_valid(own.heap));
	if (ret_released)
		*ret_released = sim_calls("cuMemRelease") - released;
	return sim_calls("cuMemCreate") - made;
}

/* 8 MiB are kept without it, and the budget has less than four times what is pinned. */
TEST(all_that_may_leave_finds_memory_of_its_size)
{
	struct heap_grant grants[6];

	core_heap_open(&own, 64 * MIB, 24 * MIB, 2 * PIECE);
	for (unsigned i = 0; i < 6; i++)
		grants[i] = get(i < 4 ? PIECE : PIECE / 2, HEAP_DEVICE);
	assert_int_equal(pin_ahead(UINT64_MAX, NULL), 6);
	assert_int_equal(heap_idle(own.heap, CHUNK_HOST), 5 * PIECE);
	unsigned long made = sim_calls("cuMemCreate");
	for (unsigned i = 0; i < 6; i++)
		assert_true(core_leaves(&own, grants[i].address));
	assert_int_equal(sim_calls("cuMemCreate"), made);
	assert_int_equal(heap_idle(own.heap, CHUNK_HOST), 0);
	assert_int_equal(pin_ahead(UINT64_MAX, NULL), 0);
}

TEST(no_more_is_pinned_ahead_than_wanted_nor_than_the_budget_has)
{
	core_heap_open(&own, 64 * MIB, 3 * PIECE, 256 * MIB);
	for (unsigned i = 0; i < 4; i++)
		get(PIECE, HEAP_DEVICE);
	assert_int_equal(pin_ahead(0, NULL), 0);
	assert_int_equal(pin_ahead(PIECE - 1, NULL), 0);
	assert_int_equal(pin_ahead(2 * PIECE, NULL), 2);
	assert_int_equal(pin_ahead(UINT64_MAX, NULL), 1);
	/* It is as good as free for what the program asks for. */
	get(3 * PIECE, HEAP_HOST);
	assert_int_equal(pin_ahead(UINT64_MAX, NULL), 0);
}

TEST(what_is_pinned_ahead_follows_the_sizes_on_the_device)
{
	unsigned long released;

	core_heap_open(&own, 64 * MIB, 256 * MIB, 256 * MIB);
	struct heap_grant small[4], large = get(2 * PIECE, HEAP_DEVICE);
	assert_int_equal(pin_ahead(UINT64_MAX, NULL), 2);
	core_give(&own, &large);
	for (unsigned i = 0; i < 4; i++)
		small[i] = get(PIECE / 2, HEAP_DEVICE);
	assert_int_equal(pin_ahead(UINT64_MAX, &released), 4);
	assert_int_equal(released, 2);
	assert_int_equal(heap_idle(own.heap, CHUNK_HOST), 2 * PIECE);
	/* The driver does not take it back: nothing more is pinned. */
	for (unsigned i = 0; i < 4; i++)
		core_give(&own, &small[i]);
	large = get(2 * PIECE, HEAP_DEVICE);
	sim_fail("cuMemRelease", 1, CUDA_ERROR_UNKNOWN);
	assert_int_equal(pin_ahead(UINT64_MAX, NULL), 0);
	assert_false(sim_fail_pending());
	assert_int_equal(heap_idle(own.heap, CHUNK_HOST), 2 * PIECE);
}

/* Ticks in the span after which idle host memory goes back (heap.c). */
#define HOST_SPAN 20

/* 4 MiB are kept without it. */
TEST(what_is_pinned_ahead_is_kept_as_long_as_it_is_for_something)
{
	struct heap_grant grants[4];

	core_heap_open(&own, 64 * MIB, 256 * MIB, PIECE);
	for (unsigned i = 0; i < 4; i++)
		grants[i] = get(PIECE, HEAP_DEVICE);
	assert_int_equal(pin_ahead(UINT64_MAX, NULL), 4);
	for (unsigned i = 0; i < 3 * HOST_SPAN; i++)
		heap_tick(own.heap);
	assert_int_equal(heap_idle(own.heap, CHUNK_HOST), 4 * PIECE);
	for (unsigned i = 0; i < 2; i++)
		core_give(&own, &grants[i]);
	assert_int_equal(pin_ahead(UINT64_MAX, NULL), 0);
	for (unsigned i = 0; i < 3 * HOST_SPAN; i++)
		heap_tick(own.heap);
	assert_int_equal(heap_idle(own.heap, CHUNK_HOST), 2 * PIECE);
}

TEST(what_cannot_be_had_is_not_pinned_ahead)
{
	core_heap_open(&own, 64 * MIB, 256 * MIB, 256 * MIB);
	get(PIECE, HEAP_DEVICE);
	sim_fail("cuMemCreate", 1, CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(heap_pin_ahead(own.heap, UINT64_MAX), SW_NO_MEMORY);
	assert_false(heap_has_soon(own.heap));
	assert_int_equal(pin_ahead(UINT64_MAX, NULL), 1);
}

int main(void)
{
	setenv("SIM_DEVICES", "2", 1);
	setenv("SIM_MEMORY", "2GiB", 1);
	core_driver();
	return test_run();
}
