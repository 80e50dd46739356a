// SPDX-License-Identifier: Apache-2.0
/*
 * async_pool_test.c: pools as the program sees them while their memory comes from the heap: what they say they have,
 * what trimming does, and which of them the driver serves all the same.
 */
#include "test/core/async_help.h"

static uint64_t number(CUmemoryPool pool, CUmemPool_attribute attribute)
{
	cuuint64_t value = ~0ull;

	CHECK(cuMemPoolGetAttribute(pool, attribute, &value) == CUDA_SUCCESS);
	return value;
}

static CUmemoryPool pool_new(CUmemAllocationHandleType type)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.handleTypes = type,
				.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemoryPool pool;

	CHECK(cuMemPoolCreate(&pool, &props) == CUDA_SUCCESS);
	return pool;
}

TEST(a_pool_says_what_of_it_is_in_the_heap)
{
	CUmemoryPool pool = pool_new(CU_MEM_HANDLE_TYPE_NONE);
	CUstream stream = core_stream();
	CUdeviceptr a, b;
	cuuint64_t zero = 0;

	assert_ok(cuMemAllocFromPoolAsync(&a, 4 * MIB, pool, stream));
	assert_ok(cuMemAllocFromPoolAsync(&b, 6 * MIB, pool, stream));
	assert_non_null(device_of(a));
	assert_int_equal(number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 10 * MIB);
	assert_int_equal(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 10 * MIB);
	async_hold(stream);
	assert_ok(cuMemFreeAsync(a, stream));
	assert_int_equal(number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 6 * MIB);
	assert_int_equal(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 10 * MIB);
	async_let_go(stream);
	assert_int_equal(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 6 * MIB);
	assert_int_equal(number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 10 * MIB);
	assert_ok(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
	assert_int_equal(number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 6 * MIB);
	assert_int_equal(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 10 * MIB);
	assert_int_equal(number(async_default_pool(), CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
	assert_ok(cuMemFree_v2(b));
	assert_int_equal(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
	assert_ok(cuMemPoolDestroy(pool));
}

TEST(a_pool_may_end_before_its_memory)
{
	CUmemoryPool pool = pool_new(CU_MEM_HANDLE_TYPE_NONE);
	CUdeviceptr address;

	assert_ok(cuMemAllocFromPoolAsync(&address, 4 * MIB, pool, NULL));
	assert_ok(cuMemPoolDestroy(pool));
	assert_ok(cuMemsetD8_v2(address, 1, 4 * MIB));
	assert_ok(cuMemFreeAsync(address, NULL));
}

TEST(trimming_a_pool_gives_back_what_the_heap_keeps_warm)
{
	CUstream stream = core_stream();
	CUdeviceptr address = async_get(8 * MIB, stream);
	struct heap *heap = atomic_load(&device_get(0)->heap);

	assert_ok(cuMemFreeAsync(address, stream));
	assert_ok(cuStreamSynchronize(stream));
	assert_ok(cuMemPoolTrimTo(async_default_pool(), 64 * MIB));
	assert_true(heap_idle(heap, CHUNK_DEVICE) >= 8 * MIB);
	assert_ok(cuMemPoolTrimTo(async_default_pool(), 0));
	assert_int_equal(heap_idle(heap, CHUNK_DEVICE), 0);
}

TEST(pools_that_can_be_exported_stay_with_the_driver)
{
	CUmemoryPool pool = pool_new(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	CUmemPoolPtrExportData data;
	CUdeviceptr theirs, ours = async_get(4 * MIB, NULL);

	assert_ok(cuMemAllocFromPoolAsync(&theirs, 4 * MIB, pool, NULL));
	assert_null(device_of(theirs));
	unsigned long calls = sim_calls("cuMemPoolExportPointer");
	cuMemPoolExportPointer(&data, theirs); /* the model has no such thing; it is asked */
	assert_int_equal(sim_calls("cuMemPoolExportPointer"), calls + 1);
	assert_int_equal(cuMemPoolExportPointer(&data, ours), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_calls("cuMemPoolExportPointer"), calls + 1);
	assert_ok(cuMemFreeAsync(theirs, NULL));
	assert_ok(cuMemPoolDestroy(pool));
}

/* Is memory of a pool with these properties the driver's? */
static bool is_drivers(CUmemAllocationType kind, unsigned short usage)
{
	CUmemPoolProps props = {.allocType = kind, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .usage = usage};
	struct budget *budget = &device_get(0)->budget;
	CUmemoryPool pool;
	CUdeviceptr at;

	assert_ok(cuMemPoolCreate(&pool, &props));
	uint64_t left = budget_left(budget);
	assert_ok(cuMemAllocFromPoolAsync(&at, 4 * MIB, pool, NULL));
	/* Managed memory is not charged to the device. */
	assert_true(kind != CU_MEM_ALLOCATION_TYPE_MANAGED || budget_left(budget) == left);
	bool is = !device_of(at);
	assert_ok(cuMemFreeAsync(at, NULL));
	assert_ok(cuMemPoolDestroy(pool));
	return is;
}

TEST(pools_that_the_heap_cannot_serve_stay_with_the_driver)
{
	assert_false(is_drivers(CU_MEM_ALLOCATION_TYPE_PINNED, 0));
	assert_true(is_drivers(CU_MEM_ALLOCATION_TYPE_MANAGED, 0));
	/* RMM's asynchronous resource asks for it on any device. */
	assert_false(is_drivers(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS));
	assert_true(is_drivers(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS | 1));
	sim_switch("DECOMPRESS", 1);
	assert_true(is_drivers(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS));
	sim_switch("DECOMPRESS", 0);
}

/* Work of another device on all of it, which needs access. */
static CUresult set_by_other(CUcontext other, CUdeviceptr at)
{
	CUcontext own;

	assert_ok(cuCtxPushCurrent_v2(other));
	CUresult result = REAL(cuMemsetD8_v2)(at, 7, 4 * MIB);
	cuCtxSynchronize();
	assert_ok(cuCtxPopCurrent_v2(&own));
	return result;
}

TEST(pools_open_what_they_have_in_the_heap_to_other_devices)
{
	CUmemAccessDesc peer = form_access(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CUmemoryPool pool = pool_new(CU_MEM_HANDLE_TYPE_NONE);
	CUdeviceptr before, after;
	CUcontext other;

	assert_ok(cuDevicePrimaryCtxRetain(&other, 1));
	assert_ok(cuMemAllocFromPoolAsync(&before, 4 * MIB, pool, NULL));
	assert_non_null(device_of(before));
	assert_int_equal(set_by_other(other, before), CUDA_ERROR_INVALID_VALUE);
	/* The driver fails when the heap is opened: the program is told, and asks again. */
	sim_fail("cuMemSetAccess", 1, CUDA_ERROR_UNKNOWN);
	assert_int_equal(cuMemPoolSetAccess(pool, &peer, 1), CUDA_ERROR_UNKNOWN);
	assert_ok(cuMemPoolSetAccess(pool, &peer, 1));
	assert_ok(cuMemAllocFromPoolAsync(&after, 4 * MIB, pool, NULL));
	assert_non_null(device_of(after));
	assert_ok(set_by_other(other, before));
	assert_ok(set_by_other(other, after));
	peer.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	assert_ok(cuMemPoolSetAccess(pool, &peer, 1));
	assert_int_equal(set_by_other(other, before), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(set_by_other(other, after), CUDA_ERROR_INVALID_VALUE);
	assert_ok(cuMemFreeAsync(before, NULL));
	assert_ok(cuMemFreeAsync(after, NULL));
	assert_ok(cuStreamSynchronize(NULL));
	assert_ok(cuMemPoolDestroy(pool));
	assert_ok(cuDevicePrimaryCtxRelease_v2(1));
}

/* Two owners otherwise: the program has it still. */
TEST(memory_of_pools_stays_over_a_reset_of_the_primary_context)
{
	CUdeviceptr kept[2] = {async_get(4 * MIB, NULL)}, next[4];
	CUmemoryPool pool = pool_new(CU_MEM_HANDLE_TYPE_NONE);
	CUdeviceptr own;
	CUcontext context;

	async_leave_to_pools(true);
	kept[1] = async_get(MIB, NULL);
	async_leave_to_pools(false);
	assert_ok(cuMemAllocFromPoolAsync(&own, 4 * MIB, pool, NULL));
	assert_true(async_in_heap(kept[0]) && !async_in_heap(kept[1]) && async_in_heap(own));
	CUdeviceptr gone = core_alloc(4 * MIB);
	core_fill(kept[0], 4 * MIB, 1);
	core_fill(kept[1], MIB, 2);
	core_fill(own, 4 * MIB, 3);
	assert_ok(cuDevicePrimaryCtxReset_v2(0));
	assert_ok(cuDevicePrimaryCtxRetain(&context, 0));
	assert_ok(cuCtxSetCurrent(context));
	assert_int_equal(cuMemFree_v2(gone), CUDA_ERROR_INVALID_VALUE);
	for (unsigned i = 0; i < 4; i++) {
		next[i] = async_get(4 * MIB, NULL);
		core_fill(next[i], 4 * MIB, 4);
	}
	assert_true(core_is_filled(kept[0], 4 * MIB, 1) && core_is_filled(kept[1], MIB, 2));
	assert_true(core_is_filled(own, 4 * MIB, 3));
	assert_int_equal(number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 4 * MIB);
	for (unsigned i = 0; i < 4; i++)
		assert_ok(cuMemFreeAsync(next[i], NULL));
	assert_ok(cuMemFreeAsync(kept[0], NULL));
	assert_ok(cuMemFreeAsync(kept[1], NULL));
	assert_ok(cuMemFreeAsync(own, NULL));
	assert_ok(cuStreamSynchronize(NULL));
	assert_int_equal(number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
	assert_ok(cuMemPoolDestroy(pool));
	assert_ok(cuDevicePrimaryCtxRelease_v2(0));
}

EACH_TEST(NULL, async_check)

START(core_start(ASYNC_SETTINGS))
