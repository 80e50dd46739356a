// SPDX-License-Identifier: Apache-2.0
/*
 * async_auto_test.c: with async.use: auto the driver's pools serve memory in stream order while they can and the device
 * budget has room, and the heap what is left. 64 MiB of budget on either side, on devices of 256 MiB; nothing moves.
 */
#include "test/core/async_help.h"

#include "shim/stats/stats.h"

#define BUDGET ASYNC_BUDGET
#define BLOCK  (8 * MIB)
#define N_MOST 16

static CUmemoryPool pool_new(CUmemAllocationHandleType type, CUdevice device)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.handleTypes = type,
				.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
	CUmemoryPool pool;

	CHECK(cuMemPoolCreate(&pool, &props) == CUDA_SUCCESS);
	return pool;
}

static CUdeviceptr get_from(CUmemoryPool pool, size_t bytes)
{
	CUdeviceptr address = 0;

	CHECK(cuMemAllocFromPoolAsync(&address, bytes, pool, NULL) == CUDA_SUCCESS);
	return address;
}

/* Until that many bytes are the driver's, in blocks of 8 MiB; all of them fit. */
static unsigned fill_pools(CUdeviceptr *block, size_t bytes)
{
	unsigned n = 0;

	for (; n < bytes / BLOCK; n++) {
		block[n] = async_get(BLOCK, NULL);
		CHECK(!async_in_heap(block[n]));
	}
	return n;
}

static void give_all(const CUdeviceptr *block, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		assert_ok(cuMemFreeAsync(block[i], NULL));
	assert_ok(cuStreamSynchronize(NULL));
}

/* The heap has nothing that it could give back to the driver. */
static void empty_heap(void)
{
	core_drain();
	heap_trim(atomic_load(&device_get(0)->heap), 0, 0);
}

/* ---- the budget ---- */

TEST(what_fits_is_the_drivers_and_no_driver_is_asked_far_below_the_limit)
{
	uint64_t served = stats_get(STAT_stream_allocations);
	CUdeviceptr block[N_MOST];

	block[0] = async_get(BLOCK, NULL); /* from the first one on the pool is known */
	unsigned long calls = sim_calls("cuMemPoolGetAttribute") + sim_calls("cuDeviceGetMemPool") +
			      sim_calls("cuMemGetInfo") + sim_calls("cuMemGetInfo_v2");
	for (unsigned i = 1; i < 6; i++)
		block[i] = async_get(BLOCK, NULL);
	for (unsigned i = 0; i < 100; i++)
		assert_ok(cuMemFreeAsync(async_get(1000, NULL), NULL));
	assert_int_equal(sim_calls("cuMemPoolGetAttribute") + sim_calls("cuDeviceGetMemPool") +
			     sim_calls("cuMemGetInfo") + sim_calls("cuMemGetInfo_v2"),
			 calls);
	for (unsigned i = 6; i < 8; i++)
		block[i] = async_get(BLOCK, NULL);
	for (unsigned i = 0; i < 8; i++)
		assert_false(async_in_heap(block[i]));
	assert_int_equal(stats_get(STAT_stream_allocations), served);
	assert_int_equal(device_get(0)->budget.used, BUDGET);
}

TEST(what_is_over_the_budget_is_in_the_heap_with_every_byte_right)
{
	uint64_t served = stats_get(STAT_stream_allocations);
	CUstream stream = core_stream();
	CUdeviceptr block[N_MOST];

	for (unsigned i = 0; i < N_MOST; i++) {
		assert_ok(i % 2 ? cuMemAllocAsync_ptsz(&block[i], BLOCK, stream)
				: cuMemAllocAsync(&block[i], BLOCK, stream));
		assert_int_equal(async_in_heap(block[i]), i >= 8);
	}
	assert_int_equal(stats_get(STAT_stream_allocations), served + 8);
	assert_int_equal(device_get(0)->budget.used, BUDGET);
	assert_int_equal(host_budget.used, 8 * BLOCK);
	for (unsigned i = 0; i < N_MOST; i++)
		core_fill(block[i], BLOCK, i);
	for (unsigned i = 0; i < N_MOST; i++)
		assert_true(core_is_filled(block[i], BLOCK, i));
	for (unsigned i = 0; i < N_MOST; i++)
		assert_ok(cuMemFreeAsync(block[i], stream));
}

TEST(a_named_pool_is_served_likewise)
{
	CUmemoryPool pool = pool_new(CU_MEM_HANDLE_TYPE_NONE, 0);
	CUdeviceptr block[N_MOST];

	for (unsigned i = 0; i < N_MOST; i++) {
		assert_ok(i % 2 ? cuMemAllocFromPoolAsync_ptsz(&block[i], BLOCK, pool, NULL)
				: cuMemAllocFromPoolAsync(&block[i], BLOCK, pool, NULL));
		assert_int_equal(async_in_heap(block[i]), i >= 8);
	}
	give_all(block, N_MOST);
	assert_ok(cuMemPoolDestroy(pool));
}

TEST(freed_memory_at_the_driver_is_used_again_first)
{
	CUdeviceptr block[N_MOST];
	CUstream stream = core_stream();

	for (unsigned i = 0; i < 10; i++)
		block[i] = async_get(BLOCK, stream);
	assert_true(!async_in_heap(block[7]) && async_in_heap(block[8]));
	/* Also where the stream has not passed the free. */
	async_hold(stream);
	assert_ok(cuMemFreeAsync(block[2], stream));
	CUdeviceptr again = async_get(BLOCK, stream);
	assert_false(async_in_heap(again));
	async_let_go(stream);
	block[2] = again;
	assert_ok(cuMemFreeAsync(block[3], stream));
	assert_ok(cuMemFree_v2(block[4]));
	assert_ok(cuStreamSynchronize(stream));
	for (unsigned i = 3; i < 5; i++) {
		block[i] = async_get(BLOCK, stream);
		assert_false(async_in_heap(block[i]));
	}
	again = async_get(BLOCK, stream);
	assert_true(async_in_heap(again));
}

TEST(what_a_pool_has_unused_is_room_for_it_and_for_nobody_else)
{
	CUmemoryPool other = pool_new(CU_MEM_HANDLE_TYPE_NONE, 0);
	CUdeviceptr block[N_MOST], plain;

	async_keep_in(async_default_pool(), ~0ull);
	give_all(block, fill_pools(block, BUDGET));
	assert_ok(cuMemAlloc_v2(&plain, BLOCK)); /* finds the pool full of nothing */
	assert_int_equal(core_pages_at(plain, BLOCK, 'H'), 4);
	CUdeviceptr elsewhere = get_from(other, BLOCK);
	assert_true(async_in_heap(elsewhere));
	give_all(block, fill_pools(block, BUDGET));
	async_give(elsewhere);
	/* What the pool has given back is anybody's. */
	assert_ok(cuMemPoolTrimTo(async_default_pool(), 0));
	elsewhere = get_from(other, 6 * BLOCK);
	assert_false(async_in_heap(elsewhere));
	async_give(elsewhere);
	assert_ok(cuMemFree_v2(plain));
	assert_ok(cuMemPoolDestroy(other));
}

TEST(what_others_have_is_no_room_and_what_the_heap_keeps_warm_is)
{
	CUdeviceptr block[N_MOST];
	CUdeviceptr plain = core_alloc(4 * BLOCK);

	unsigned n = fill_pools(block, 4 * BLOCK);
	CUdeviceptr more = async_get(BLOCK, NULL);
	assert_true(async_in_heap(more));
	async_give(more);
	assert_ok(cuMemFree_v2(plain));
	assert_true(heap_idle(atomic_load(&device_get(0)->heap), CHUNK_DEVICE) > 0);
	n += fill_pools(block + n, 4 * BLOCK);
	assert_int_equal(heap_idle(atomic_load(&device_get(0)->heap), CHUNK_DEVICE), 0);
}

TEST(over_both_budgets_it_is_out_of_memory)
{
	uint64_t refused = stats_get(STAT_refused);
	CUdeviceptr block[N_MOST], more = 42;

	unsigned n = fill_pools(block, BUDGET);
	for (; n < N_MOST; n++)
		block[n] = async_get(BLOCK, NULL);
	assert_int_equal(cuMemAllocAsync(&more, BLOCK, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	assert_true(more == 42 && stats_get(STAT_refused) == refused + 1);
	/* Unless the rule has somebody else to ask. */
	more = async_get(7 * MIB, NULL);
	assert_false(async_in_heap(more));
	async_give(more);
	assert_int_equal(cuMemAllocAsync(&more, SIZE_MAX, NULL), CUDA_ERROR_OUT_OF_MEMORY);
}

/* Another thread's heap may look at the pools between a claim and the driver's answer. */
TEST(what_is_claimed_counts_before_the_driver_is_asked)
{
	struct device *device = device_get(0);
	uint64_t first, second = 42;

	assert_true(pool_claim(device, NULL, 7 * BLOCK, POOL_OPEN, &first));
	pool_refresh(device, false);
	assert_int_equal(device->budget.used, 7 * BLOCK);
	assert_false(pool_claim(device, NULL, BLOCK + 1, POOL_OPEN, &second));
	assert_int_equal(second, 0);
	assert_true(pool_claim(device, NULL, BLOCK + 1, POOL_OVER, &second));
	assert_int_equal(second, first);
	pool_unclaim(first, 7 * BLOCK);
	pool_unclaim(second, BLOCK + 1);
	pool_unclaim(0, BLOCK);
	pool_refresh(device, false);
	assert_int_equal(device->budget.used, 0);
}

/* ---- the driver's memory ---- */

TEST(where_the_driver_has_no_memory_the_heap_serves)
{
	static const char *const asked[] = {"cuMemAllocAsync", "cuMemAllocAsync_ptsz", "cuMemAllocFromPoolAsync",
					    "cuMemAllocFromPoolAsync_ptsz"};
	CUmemoryPool pool = async_default_pool();
	CUdeviceptr address;

	for (unsigned i = 0; i < 4; i++) {
		sim_fail(asked[i], 1, CUDA_ERROR_OUT_OF_MEMORY);
		CUresult result = i == 0   ? cuMemAllocAsync(&address, BLOCK, NULL)
				  : i == 1 ? cuMemAllocAsync_ptsz(&address, BLOCK, NULL)
				  : i == 2 ? cuMemAllocFromPoolAsync(&address, BLOCK, pool, NULL)
					   : cuMemAllocFromPoolAsync_ptsz(&address, BLOCK, pool, NULL);
		assert_int_equal(result, CUDA_SUCCESS);
		assert_false(sim_fail_pending());
		assert_true(async_in_heap(address));
		core_fill(address, BLOCK, i);
		assert_true(core_is_filled(address, BLOCK, i));
		async_give(address);
		empty_heap();
	}
	/* Any other failure is the program's to see. */
	sim_fail("cuMemAllocAsync", 1, CUDA_ERROR_UNKNOWN);
	assert_int_equal(cuMemAllocAsync(&address, BLOCK, NULL), CUDA_ERROR_UNKNOWN);
}

TEST(a_device_smaller_than_its_budget_is_filled_and_then_the_heap)
{
	CUdeviceptr block[N_MOST];

	sim_switch("MEMORY", 3 * BLOCK);
	for (unsigned i = 0; i < 6; i++) {
		block[i] = async_get(BLOCK, NULL);
		assert_int_equal(async_in_heap(block[i]), i >= 3);
		core_fill(block[i], BLOCK, i);
	}
	for (unsigned i = 0; i < 6; i++)
		assert_true(core_is_filled(block[i], BLOCK, i));
	sim_switch("MEMORY", 256 * MIB);
}

/* What the heap keeps warm is given back before anything is put there. */
TEST(room_is_made_at_the_driver_before_the_heap_is_asked)
{
	CUdeviceptr plain = core_alloc(4 * BLOCK);

	assert_ok(cuMemFree_v2(plain));
	sim_fail("cuMemAllocAsync", 1, CUDA_ERROR_OUT_OF_MEMORY);
	CUdeviceptr address = async_get(BLOCK, NULL);
	assert_false(sim_fail_pending() || async_in_heap(address));
}

/* ---- rules ---- */

TEST(a_rule_for_the_driver_keeps_it_there)
{
	static const size_t bytes[] = {5 * MIB, 9 * MIB};
	CUdeviceptr block[N_MOST], address;

	for (unsigned i = 0; i < 12; i++)
		block[i] = async_get(bytes[0], NULL);
	address = async_get(BLOCK, NULL); /* what the rule has there counts */
	assert_true(async_in_heap(address));
	async_give(address);
	give_all(block, 12);
	empty_heap();
	fill_pools(block, BUDGET);
	for (unsigned i = 0; i < 2; i++) {
		address = async_get(bytes[i], NULL);
		assert_false(async_in_heap(address)); /* over the budget */
		async_give(address);
		sim_fail("cuMemAllocAsync", 1, CUDA_ERROR_OUT_OF_MEMORY);
		assert_int_equal(cuMemAllocAsync(&address, bytes[i], NULL), CUDA_ERROR_OUT_OF_MEMORY);
		assert_false(sim_fail_pending());
	}
}

TEST(a_rule_that_denies_is_heard_with_room_and_without)
{
	CUdeviceptr block[N_MOST], address;

	assert_int_equal(cuMemAllocAsync(&address, 6 * MIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	fill_pools(block, BUDGET);
	assert_int_equal(cuMemAllocAsync(&address, 6 * MIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(cuMemAllocFromPoolAsync(&address, 6 * MIB, async_default_pool(), NULL),
			 CUDA_ERROR_OUT_OF_MEMORY);
}

/* What cannot serve in stream order is passed over; a cap is about the heap. */
TEST(the_other_words_of_a_rule_hold_once_the_heap_is_asked)
{
	CUdeviceptr block[N_MOST];
	CUdeviceptr first = async_get(10 * MIB, NULL);

	assert_false(async_in_heap(first));
	async_give(first);
	first = async_get(11 * MIB, NULL);
	CUdeviceptr second = async_get(11 * MIB, NULL);
	assert_false(async_in_heap(first) || async_in_heap(second));
	async_give(first);
	async_give(second);
	fill_pools(block, BUDGET);
	first = async_get(10 * MIB, NULL);
	assert_true(async_in_heap(first));
	async_give(first);
	first = async_get(11 * MIB, NULL);
	assert_true(async_in_heap(first));
	assert_int_equal(cuMemAllocAsync(&second, 11 * MIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
}

/* ---- what the heap cannot serve ---- */

TEST(a_pool_that_can_be_exported_stays_with_the_driver)
{
	CUmemoryPool pool = pool_new(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	CUdeviceptr block[N_MOST], more;

	fill_pools(block, 6 * BLOCK);
	CUdeviceptr theirs = get_from(pool, 4 * BLOCK);
	assert_false(async_in_heap(theirs));
	assert_int_equal(device_get(0)->budget.used, 10 * BLOCK);
	more = async_get(BLOCK, NULL); /* what it has counts */
	assert_true(async_in_heap(more));
	async_give(more);
	async_give(theirs);
	empty_heap();
	sim_fail("cuMemAllocFromPoolAsync", 1, CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(cuMemAllocFromPoolAsync(&theirs, BLOCK, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	/* The same as the current pool of the device. */
	assert_ok(cuDeviceSetMemPool(0, pool));
	theirs = async_get(4 * BLOCK, NULL);
	assert_false(async_in_heap(theirs));
	async_give(theirs);
	assert_ok(cuDeviceSetMemPool(0, async_default_pool()));
	assert_ok(cuMemPoolDestroy(pool));
}

TEST(the_current_pool_of_the_device_is_the_one_that_counts)
{
	CUmemoryPool pool = pool_new(CU_MEM_HANDLE_TYPE_NONE, 0);
	CUdeviceptr block[N_MOST];

	async_keep_in(pool, ~0ull);
	async_keep_in(async_default_pool(), ~0ull);
	assert_ok(cuDeviceSetMemPool(0, pool));
	give_all(block, fill_pools(block, BUDGET)); /* the pool keeps it */
	give_all(block, fill_pools(block, BUDGET));
	assert_ok(cuDeviceSetMemPool(0, async_default_pool()));
	CUdeviceptr more = async_get(BLOCK, NULL);
	assert_true(async_in_heap(more));
	async_give(more);
	assert_ok(cuMemPoolDestroy(pool));
	give_all(block, fill_pools(block, BUDGET));
}

TEST(a_pool_of_another_device_stays_with_the_driver_and_is_charged_there)
{
	CUmemoryPool pool = pool_new(CU_MEM_HANDLE_TYPE_NONE, 1);
	CUdeviceptr address = get_from(pool, 10 * BLOCK);

	assert_false(async_in_heap(address));
	assert_int_equal(device_get(1)->budget.used, 10 * BLOCK);
	assert_int_equal(device_get(0)->budget.used, 0);
	async_give(address);
	assert_ok(cuMemPoolTrimTo(pool, 0));
	pool_refresh(device_get(1), false);
	assert_int_equal(device_get(1)->budget.used, 0);
	assert_ok(cuMemPoolDestroy(pool));
}

TEST(what_a_capture_allocates_is_a_node_of_the_driver)
{
	uint64_t nodes = stats_get(STAT_graph_allocations);
	CUdeviceptr block[N_MOST], refused;
	CUstream stream = core_stream();
	CUgraph graph;

	fill_pools(block, BUDGET);
	assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CUdeviceptr node = async_get(BLOCK, stream);
	assert_false(async_in_heap(node));
	assert_int_equal(stats_get(STAT_graph_allocations), nodes + 1);
	sim_fail("cuMemAllocAsync", 1, CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(cuMemAllocAsync(&refused, BLOCK, stream), CUDA_ERROR_OUT_OF_MEMORY);
	assert_ok(cuMemFreeAsync(node, stream));
	assert_ok(cuStreamEndCapture(stream, &graph));
	assert_ok(cuGraphDestroy(graph));
	assert_ok(cuDeviceGraphMemTrim(0));
}

/* ---- what pools say and do ---- */

TEST(a_pool_says_what_both_have_of_it)
{
	CUdeviceptr block[N_MOST];
	cuuint64_t used, reserved;

	fill_pools(block, BUDGET);
	async_get(BLOCK, NULL);
	assert_ok(cuMemPoolGetAttribute(async_default_pool(), CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	assert_ok(cuMemPoolGetAttribute(async_default_pool(), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
	assert_true(used == 9 * BLOCK && reserved == 9 * BLOCK);
}

TEST(trimming_a_pool_trims_the_heap)
{
	CUdeviceptr address = async_get(BLOCK, NULL);

	async_keep_in(async_default_pool(), ~0ull);
	async_give(address);
	CUdeviceptr plain = core_alloc(BLOCK);
	assert_ok(cuMemFree_v2(plain));
	struct heap *heap = atomic_load(&device_get(0)->heap);
	assert_true(heap_idle(heap, CHUNK_DEVICE) >= BLOCK);
	assert_ok(cuMemPoolTrimTo(async_default_pool(), 2 * BLOCK)); /* one there, one here */
	assert_int_equal(heap_idle(heap, CHUNK_DEVICE), BLOCK);
	assert_ok(cuMemPoolTrimTo(async_default_pool(), BLOCK)); /* the driver's */
	assert_int_equal(heap_idle(heap, CHUNK_DEVICE), 0);
}

TEST(a_pool_opens_what_it_has_in_the_heap_to_other_devices)
{
	CUmemAccessDesc peer = form_access(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CUmemoryPool pool = pool_new(CU_MEM_HANDLE_TYPE_NONE, 0);
	CUdeviceptr block[N_MOST];
	CUcontext other, own;

	assert_ok(cuDevicePrimaryCtxRetain(&other, 1));
	unsigned n = fill_pools(block, BUDGET);
	CUdeviceptr more = get_from(pool, BLOCK);
	assert_true(async_in_heap(more));
	assert_ok(cuMemPoolSetAccess(pool, &peer, 1));
	assert_ok(cuCtxPushCurrent_v2(other));
	assert_ok(REAL(cuMemsetD8_v2)(more, 7, BLOCK));
	assert_ok(cuCtxSynchronize());
	assert_ok(cuCtxPopCurrent_v2(&own));
	async_give(more);
	give_all(block, n);
	assert_ok(cuMemPoolDestroy(pool));
	assert_ok(cuDevicePrimaryCtxRelease_v2(1));
}

EACH_TEST(NULL, async_check_pools)

START(core_start(ASYNC_AUTO_SETTINGS))
