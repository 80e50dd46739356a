// SPDX-License-Identifier: Apache-2.0
/*
 * heap_unmapped_test.c: memory of the heap that has an address only where it is placed (block_unmapped.h): its contents
 * go along, each refusal of the driver leaves everything as it was, and nothing of it moves while it may not be
 * touched.
 */
#include "shim/heap/block.h"
#include "shim/heap/block_unmapped.h"
#include "test/core/core.h"

#define SPACE (64 * MIB)
#define LONG  (10 * MIB) /* pieces of 2 MiB at a budget of 64 */

static struct core_heap own;
static CUdeviceptr space;

static int open_heap(void **state)
{
	core_heap_open(&own, 64 * MIB, 64 * MIB, 64 * MIB);
	assert_true(heap_reserve(own.heap, SPACE, 0, &space));
	return 0;
}

static int close_heap(void **state)
{
	assert_true(heap_is_valid(own.heap));
	heap_unreserve(own.heap, space, SPACE);
	return core_heap_end(state);
}

EACH_TEST(open_heap, close_heap)

static struct block *make(size_t bytes)
{
	struct heap_grant grant;

	assert_ok(heap_make_unmapped(own.heap, bytes, CHUNK_MOVABLE, HEAP_DEVICE_FIRST, &grant));
	assert_int_equal(grant.bytes_on_device + grant.bytes_away, bytes);
	return grant.block;
}

static CUresult place(struct block *block, CUdeviceptr at)
{
	return heap_place(own.heap, block, at, space, SPACE);
}

static CUresult unplace(const struct block *block)
{
	return heap_unplace(own.heap, arena_address(heap_arena(own.heap), block->unit), heap_unmapped_bytes(block));
}

/* As the program's cuMemSetAccess, by whom it is opened. */
static void open_it(struct block *block, CUdeviceptr at)
{
	CUmemAccessDesc desc = form_access(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

	assert_true(heap_pin(own.heap, at, heap_unmapped_bytes(block)));
	assert_ok(cuMemSetAccess(at, heap_unmapped_bytes(block), &desc, 1));
	heap_open(own.heap, at, true);
	heap_pin_end(own.heap, at, heap_unmapped_bytes(block), PIN_OFF);
}

static bool may_leave(CUdeviceptr at)
{
	uint32_t piece = arena_unit(heap_arena(own.heap), at), block_unit, units;
	enum chunk_place where;
	struct migration transit;

	assert_true(heap_piece(own.heap, piece, &units, &where, &block_unit));
	if (migration_begin(own.heap, piece, CHUNK_HOST, true, &transit) == SW_NO_MEMORY) {
		assert_ok(heap_make_spare(own.heap, CHUNK_HOST, units, true));
		assert_ok(migration_begin(own.heap, piece, CHUNK_HOST, true, &transit));
	} else if (atomic_load(&heap_arena(own.heap)->states[piece].where) == BLOCK_STATE_PINNED) {
		return false;
	}
	migration_end(own.heap, &transit);
	return true;
}

TEST(contents_go_along)
{
	struct block *block = make(LONG), *other = make(LONG);
	CUdeviceptr there = space + 20 * MIB;

	assert_ok(place(block, space));
	assert_ok(place(other, space + LONG));
	open_it(block, space);
	open_it(other, space + LONG);
	core_fill(space, LONG, 1);
	core_fill(space + LONG, LONG, 2);
	for (int i = 0; i < 3; i++) {
		assert_ok(unplace(block));
		assert_true(heap_is_vacant(own.heap, space, LONG));
		assert_ok(place(block, there));
		open_it(block, there);
		assert_true(core_is_filled(there, LONG, 1));
		assert_ok(unplace(block));
		assert_ok(place(block, space));
		open_it(block, space);
		assert_true(core_is_filled(space, LONG, 1) && core_is_filled(space + LONG, LONG, 2));
		assert_true(heap_is_valid(own.heap));
	}
	assert_ok(unplace(block));
	heap_end_unmapped(own.heap, block);
	/* What is next has its memory. */
	unsigned long made = sim_calls("cuMemCreate");
	block = make(LONG);
	assert_int_equal(sim_calls("cuMemCreate"), made);
	heap_end_unmapped(own.heap, block);
	assert_ok(unplace(other));
	heap_end_unmapped(own.heap, other);
}

TEST(closed_it_stays_and_open_it_leaves_with_what_it_holds)
{
	struct block *block = make(4 * MIB);

	assert_ok(place(block, space));
	assert_false(may_leave(space));
	open_it(block, space);
	core_fill(space, 4 * MIB, 3);
	assert_true(may_leave(space));
	assert_true(heap_pin(own.heap, space, 1));
	heap_open(own.heap, space, false);
	heap_pin_end(own.heap, space, 1, PIN_OFF);
	assert_false(may_leave(space));
	assert_true(core_is_filled(space, 4 * MIB, 3));
	assert_ok(unplace(block));
	heap_end_unmapped(own.heap, block);
}

static struct migration slow;

static void *arrive_late(void *unused)
{
	for (int naps = 0; naps < 1500; naps++) /* a pin is waited for through 1000 of them */
		usleep(1000);
	migration_end(own.heap, &slow);
	return unused;
}

/* Longer than a pin is waited for. */
TEST(what_is_on_its_way_is_unmapped_when_it_has_arrived)
{
	struct block *block = make(2 * MIB);

	assert_ok(place(block, space));
	open_it(block, space);
	slow = core_begin_move(own.heap, space, CHUNK_HOST, true);
	pthread_t thread = test_thread(arrive_late, NULL);
	assert_ok(unplace(block));
	assert_int_equal(pthread_join(thread, NULL), 0);
	heap_end_unmapped(own.heap, block);
}

TEST(what_others_know_is_never_used_again)
{
	CUmemGenericAllocationHandle handle;

	struct block *one = make(2 * MIB), *many = make(LONG);

	assert_false(heap_was_placed(own.heap, one));
	assert_int_equal(heap_fix_unmapped(own.heap, many, &handle), SW_INVALID);
	assert_ok(heap_fix_unmapped(own.heap, one, &handle));
	assert_ok(place(one, space));
	open_it(one, space);
	assert_false(may_leave(space));
	assert_ok(heap_map_again(own.heap, many, space + 40 * MIB));
	assert_true(heap_was_placed(own.heap, many));
	unsigned long released = sim_calls("cuMemRelease");
	assert_ok(unplace(one));
	heap_end_unmapped(own.heap, one);
	assert_int_equal(sim_calls("cuMemRelease"), released + 1);
	assert_ok(cuMemUnmap(space + 40 * MIB, LONG));
	heap_end_unmapped(own.heap, many);
	assert_int_equal(own.device.used + own.host.used, 0);
}

/* Each call that placing makes fails once: nothing is mapped then, and the next try is good. */
TEST(refusals_leave_everything_as_it_was)
{
	struct block *block = make(LONG), *other = make(2 * MIB);

	assert_ok(place(other, space + LONG));
	assert_int_equal(place(block, space + 2 * MIB), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(place(other, space), CUDA_ERROR_NOT_READY);
	for (unsigned n = 1;; n++) {
		sim_fail("cuMemMap", n, CUDA_ERROR_UNKNOWN);
		CUresult result = place(block, space);
		assert_true(heap_is_valid(own.heap));
		if (result == CUDA_SUCCESS) {
			assert_true(n > 1);
			break;
		}
		assert_int_equal(result, CUDA_ERROR_UNKNOWN);
		assert_true(heap_is_vacant(own.heap, space, LONG));
	}
	sim_fail("cuMemMap", 0, CUDA_SUCCESS);
	open_it(block, space);
	core_fill(space, LONG, 4);
	assert_ok(cuCtxSynchronize());
	sim_fail("cuMemUnmap", 1, CUDA_ERROR_UNKNOWN);
	assert_int_equal(unplace(block), CUDA_ERROR_UNKNOWN);
	assert_true(core_is_filled(space, LONG, 4) && may_leave(space));
	assert_ok(unplace(block));
	assert_ok(unplace(other));
	heap_end_unmapped(own.heap, block);
	heap_end_unmapped(own.heap, other);
}

TEST(making_it_ends_where_the_budgets_do)
{
	struct heap_grant grant;

	struct block *block = make(40 * MIB), *more = make(40 * MIB);

	assert_int_equal(own.device.used, 64 * MIB);
	assert_int_equal(own.host.used, 16 * MIB);
	assert_int_equal(heap_make_unmapped(own.heap, 60 * MIB, CHUNK_MOVABLE, HEAP_DEVICE_FIRST, &grant),
			 SW_NO_MEMORY);
	assert_int_equal(heap_make_whole(own.heap, 60 * MIB, CHUNK_MOVABLE, HEAP_DEVICE_FIRST, &grant), SW_NO_MEMORY);
	assert_int_equal(heap_make_whole(own.heap, 130 * MIB, CHUNK_MOVABLE, HEAP_DEVICE_FIRST, &grant),
			 SW_NOT_SUPPORTED);
	/* What was collected in vain is free for whoever comes next. */
	assert_int_equal(own.device.used + own.host.used - heap_idle(own.heap, CHUNK_DEVICE) -
			     heap_idle(own.heap, CHUNK_HOST),
			 80 * MIB);
	heap_end_unmapped(own.heap, block);
	heap_end_unmapped(own.heap, more);
}

TEST(hint_is_followed_where_it_is_free)
{
	CUdeviceptr next, again;

	assert_true(heap_reserve(own.heap, 4 * MIB, space + SPACE, &next));
	assert_int_equal(next, space + SPACE);
	assert_true(heap_reserve(own.heap, 4 * MIB, space + 2 * MIB, &again));
	assert_true(again >= space + SPACE + 4 * MIB || again + 4 * MIB <= space);
	heap_unreserve(own.heap, next, 4 * MIB);
	heap_unreserve(own.heap, again, 4 * MIB);
	assert_false(heap_reserve(own.heap, (uint64_t)1 << 60, 0, &next));
}

/* What it is that reaches into such memory is reported only where births are (extent_test); here nobody reports. */
TEST(it_stays_as_long_as_memory_moves_beside_what_runs)
{
	struct block *block = make(LONG), *later = make(LONG);

	assert_ok(place(block, space));
	open_it(block, space);
	assert_true(may_leave(space));
	heap_set_beside(own.heap, true, 0);
	assert_false(may_leave(space));
	assert_true(atomic_load(&heap_arena(own.heap)->any_unreported));
	assert_ok(place(later, space + LONG));
	open_it(later, space + LONG);
	assert_false(may_leave(space + LONG));
	heap_set_beside(own.heap, false, 0);
	assert_true(may_leave(space) && may_leave(space + LONG));
	assert_false(atomic_load(&heap_arena(own.heap)->any_unreported));
	assert_ok(unplace(block));
	heap_end_unmapped(own.heap, block);
	assert_ok(unplace(later));
	heap_end_unmapped(own.heap, later);
}

START(core_driver())
