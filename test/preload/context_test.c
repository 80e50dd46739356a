// SPDX-License-Identifier: Apache-2.0
/*
 * Several contexts, and contexts that end with memory in them. Budgets: 32 MiB of the device, 64 MiB of the host.
 */
#include "test/preload/driver.h"
#include "test/test.h"

BEFORE_ALL
{
	driver_start(0);
}

AFTER_EACH
{
	driver_free_rest();
}

static size_t free_now(void)
{
	size_t free = 0;

	assert_int_equal(cu.cuMemGetInfo_v2(&free, NULL), CUDA_SUCCESS);
	return free;
}

TEST(memory_of_one_context_is_usable_and_freeable_in_another)
{
	CUcontext primary, second, now;

	assert_int_equal(cu.cuCtxGetCurrent(&primary), CUDA_SUCCESS);
	CUdeviceptr block = driver_alloc(8 * MIB);
	assert_int_equal(cu.cuCtxCreate_v2(&second, 0, 0), CUDA_SUCCESS);
	assert_int_equal(driver_fill(NULL, block, 6, 2 * MIB), CUDA_SUCCESS);
	assert_true(driver_holds(block, 6, 2 * MIB));
	assert_int_equal(cu.cuMemFree_v2(block), CUDA_SUCCESS);
	assert_int_equal(cu.cuCtxGetCurrent(&now), CUDA_SUCCESS);
	assert_ptr_equal(now, second);
	assert_int_equal(cu.cuCtxDestroy_v2(second), CUDA_SUCCESS);
	assert_int_equal(cu.cuCtxSetCurrent(primary), CUDA_SUCCESS);
}

TEST(a_destroyed_context_takes_its_memory_along)
{
	CUcontext primary, second;
	size_t before = free_now();

	assert_int_equal(cu.cuCtxGetCurrent(&primary), CUDA_SUCCESS);
	CUdeviceptr kept = driver_alloc(4 * MIB);
	assert_int_equal(driver_fill(NULL, kept, 3, MIB), CUDA_SUCCESS);
	assert_int_equal(cu.cuCtxCreate_v2(&second, 0, 0), CUDA_SUCCESS);
	CUdeviceptr lost = driver_alloc(30 * MIB), small = driver_alloc(100);
	assert_int_equal(cu.cuCtxDestroy_v2(second), CUDA_SUCCESS);
	assert_int_equal(cu.cuCtxSetCurrent(primary), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemGetAddressRange_v2(NULL, NULL, lost), CUDA_ERROR_NOT_FOUND);
	assert_int_equal(cu.cuMemFree_v2(lost), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cu.cuMemFree_v2(small), CUDA_ERROR_INVALID_VALUE);
	assert_true(driver_holds(kept, 3, MIB));
	assert_int_equal(cu.cuMemFree_v2(kept), CUDA_SUCCESS);
	assert_int_equal(free_now(), before);
	assert_int_equal(cu.cuMemFree_v2(driver_alloc(90 * MIB)), CUDA_SUCCESS);
}

/* A context that ends while asynchronous frees are on their way. */
TEST(a_destroyed_context_ends_its_pending_frees)
{
	CUcontext primary, second;
	CUstream stream;
	size_t before = free_now();

	assert_int_equal(cu.cuCtxGetCurrent(&primary), CUDA_SUCCESS);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(cu.cuCtxCreate_v2(&second, 0, 0), CUDA_SUCCESS);
		assert_int_equal(cu.cuStreamCreate(&stream, 0), CUDA_SUCCESS);
		CUdeviceptr block = driver_alloc(30 * MIB);
		assert_int_equal(driver_fill(stream, block, 1, 100), CUDA_SUCCESS);
		assert_int_equal(cu.cuMemFreeAsync(block, stream), CUDA_SUCCESS);
		assert_int_equal(cu.cuCtxDestroy_v2(second), CUDA_SUCCESS);
	}
	assert_int_equal(cu.cuCtxSetCurrent(primary), CUDA_SUCCESS);
	assert_int_equal(free_now(), before);
}

TEST(a_reset_primary_context_starts_again)
{
	CUdeviceptr block = driver_alloc(30 * MIB), small = driver_alloc(10);

	assert_int_equal(cu.cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	driver_start(0);
	assert_int_equal(cu.cuMemFree_v2(block), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cu.cuMemFree_v2(small), CUDA_ERROR_INVALID_VALUE);
	block = driver_alloc(90 * MIB);
	assert_int_equal(driver_fill(NULL, block, 12, 90 * MIB / 4), CUDA_SUCCESS);
	assert_true(driver_holds(block, 12, 90 * MIB / 4));
}

TEST(without_a_context_calls_answer_as_the_driver)
{
	CUcontext before;
	CUdeviceptr block = 4711;
	size_t free, total;

	assert_int_equal(cu.cuCtxGetCurrent(&before), CUDA_SUCCESS);
	driver_alloc(MIB); /* so that there is a heap */
	assert_int_equal(cu.cuCtxSetCurrent(NULL), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemAlloc_v2(&block, 4096), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(cu.cuMemGetInfo_v2(&free, &total), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(block, 4711);
	assert_int_equal(cu.cuCtxSetCurrent(before), CUDA_SUCCESS);
}
