// SPDX-License-Identifier: Apache-2.0
/*
 * async_close_test.c: with async.use: auto, where memory moves, the heap serves all memory in stream order once the
 * pools could not serve something, and they give back what is freed of them. 64 MiB of budget on either side, `exact`;
 * nothing is launched, so nothing does move.
 */
#include "test/core/async_help.h"

#define BLOCK  (8 * MIB)
#define FILL   (ASYNC_BUDGET / BLOCK)
#define N_MOST 16

static CUdeviceptr block[N_MOST];

static void fill(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		block[i] = async_get(BLOCK, NULL);
}

static void give(unsigned first, unsigned n)
{
	for (unsigned i = first; i < first + n; i++)
		assert_ok(cuMemFreeAsync(block[i], NULL));
	assert_ok(cuStreamSynchronize(NULL));
}

/* Each test begins with pools that are open. */
FIXTURE(open_pools)
{
	async_keep_in(async_default_pool(), ~0ull); /* as PyTorch has it */
	atomic_store(&device_get(0)->pools_closed, false);
	device_get(0)->pools_trimmed = 0;
}

static uint64_t reserved(void)
{
	cuuint64_t bytes = 0;

	/* As the program sees it the heap's part is in it, too. */
	pool_refresh(device_get(0), false);
	CHECK(cuMemPoolGetAttribute(async_default_pool(), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes) ==
	      CUDA_SUCCESS);
	return bytes - pool_heap_bytes(async_default_pool(), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
}

/* The clock of the library, which can be made to stand still: five calls may take 10 ms on a slow machine. */
uint64_t __real_clock_now(void);
uint64_t __wrap_clock_now(void);
static _Atomic uint64_t stopped_at; /* others tell the time, too */
uint64_t __wrap_clock_now(void)
{
	uint64_t at = stopped_at;

	return at ? at : __real_clock_now();
}

/* What the pools are told to give back they are told at most every 10 ms. */
static void wait_for_next_trim(void)
{
	device_get(0)->pools_trimmed = 0;
}

TEST_WITH(once_something_did_not_fit_the_heap_serves_and_the_pools_shrink, open_pools, async_check_pools)
{
	fill(FILL + 1);
	assert_true(!async_in_heap(block[FILL - 1]) && async_in_heap(block[FILL]));
	give(2, FILL - 2);
	wait_for_next_trim();
	block[2] = async_get(BLOCK, NULL);
	assert_true(async_in_heap(block[2]));
	assert_int_equal(reserved(), 2 * BLOCK);
	assert_int_equal(core_pages_at(block[2], BLOCK, 'D'), BLOCK / HEAP_UNIT);
	/* Also when all is free again. */
	give(0, 3);
	give(FILL, 1);
	block[0] = async_get(BLOCK, NULL);
	assert_true(async_in_heap(block[0]));
}

TEST_WITH(memory_of_any_kind_finds_the_room_that_pools_give_back, open_pools, async_check_pools)
{
	fill(FILL + 1);
	give(0, FILL);
	wait_for_next_trim();
	CUdeviceptr plain = core_alloc(7 * BLOCK);
	assert_int_equal(core_pages_at(plain, 7 * BLOCK, 'D'), 7 * BLOCK / HEAP_UNIT);
	assert_ok(cuMemFree_v2(plain));
}

TEST_WITH(the_driver_is_told_to_give_back_now_and_then_and_not_in_a_capture, open_pools, async_check_pools)
{
	CUstream stream = core_stream();
	CUgraph graph;

	fill(FILL + 1);
	give(0, FILL);
	assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	wait_for_next_trim();
	unsigned long calls = sim_calls("cuMemPoolTrimTo");
	pool_refresh(device_get(0), false);
	assert_int_equal(sim_calls("cuMemPoolTrimTo"), calls);
	assert_ok(cuStreamEndCapture(stream, &graph));
	assert_ok(cuGraphDestroy(graph));
	wait_for_next_trim();
	stopped_at = clock_now();
	for (unsigned i = 0; i < 5; i++)
		pool_refresh(device_get(0), false);
	stopped_at = 0;
	assert_int_equal(sim_calls("cuMemPoolTrimTo"), calls + 1);
	/* And not at all when there is nothing to give. */
	wait_for_next_trim();
	pool_refresh(device_get(0), false);
	assert_int_equal(sim_calls("cuMemPoolTrimTo"), calls + 1);
}

/* Both budgets are full, and the pool cannot give back what the stream has not passed; but it can use it again. */
TEST_WITH(a_closed_pool_serves_where_the_heap_cannot, open_pools, async_check_pools)
{
	CUstream stream = core_stream();

	for (unsigned i = 0; i < N_MOST; i++)
		block[i] = async_get(BLOCK, stream);
	assert_true(!async_in_heap(block[2]) && async_in_heap(block[N_MOST - 1]));
	async_hold(stream);
	assert_ok(cuMemFreeAsync(block[2], stream));
	block[2] = async_get(BLOCK, stream);
	assert_false(async_in_heap(block[2]));
}

/* However lately it gave something back. */
TEST_WITH(a_pool_gives_back_before_memory_is_refused, open_pools, async_check_pools)
{
	CUdeviceptr plain[2];

	fill(N_MOST);
	give(0, 1);
	assert_ok(cuMemAlloc_v2(&plain[0], BLOCK));
	give(1, 1);
	device_get(0)->pools_trimmed = clock_now();
	assert_ok(cuMemAlloc_v2(&plain[1], BLOCK));
	device_get(0)->pools_trimmed = 0;
	assert_int_equal(core_pages_at(plain[1], BLOCK, 'D'), BLOCK / HEAP_UNIT);
	for (unsigned i = 0; i < 2; i++)
		assert_ok(cuMemFree_v2(plain[i]));
}

TEST_WITH(what_nobody_can_serve_closes_nothing, open_pools, async_check_pools)
{
	CUdeviceptr address;

	assert_int_equal(cuMemAllocAsync(&address, 100 * ASYNC_BUDGET, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	block[0] = async_get(BLOCK, NULL);
	assert_false(async_in_heap(block[0]));
}

TEST_WITH(a_rule_still_keeps_its_memory_with_the_driver, open_pools, async_check_pools)
{
	fill(FILL + 1);
	CUdeviceptr theirs = async_get(5 * MIB, NULL);
	assert_false(async_in_heap(theirs));
}

TEST_WITH(a_driver_without_memory_closes_them_too, open_pools, NULL)
{
	sim_switch("MEMORY", 3 * BLOCK);
	fill(4);
	assert_true(!async_in_heap(block[2]) && async_in_heap(block[3]));
	sim_switch("MEMORY", 256 * MIB);
	block[4] = async_get(BLOCK, NULL);
	assert_true(async_in_heap(block[4]));
	give(0, 5);
}

START(core_start(ASYNC_MOVING_SETTINGS))
