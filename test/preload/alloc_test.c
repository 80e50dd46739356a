// SPDX-License-Identifier: Apache-2.0
/*
 * Allocating and freeing as a program sees it: codes, contents, and that nothing else changes by it. Budgets: 32 MiB of
 * the device, 64 MiB of the host.
 */
#include "test/preload/driver.h"
#include "test/test.h"

static CUcontext context;

BEFORE_ALL
{
	context = driver_start(0);
}

/* Everything that was allocated is free again, however it was laid out: the whole budget can be had in one piece. */
AFTER_EACH
{
	assert_int_equal(cu.cuCtxSynchronize(), CUDA_SUCCESS); /* the driver's pools give back what they reserved */
	driver_free_rest();
	assert_int_equal(cu.cuMemFree_v2(driver_alloc(96 * MIB)), CUDA_SUCCESS);
	assert_int_equal(sim_broken_rules(), 0);
}

TEST(memory_holds_what_is_written_on_both_sides_of_the_budget)
{
	CUdeviceptr block[4];

	for (unsigned i = 0; i < 4; i++) {
		block[i] = driver_alloc(20 * MIB);
		assert_true(driver_is_heap(block[i]));
		assert_int_equal(driver_fill(NULL, block[i], i + 1, 20 * MIB / 4), CUDA_SUCCESS);
	}
	assert_int_equal(sim_where(block[0]), 'D');
	assert_int_equal(sim_where(block[3]), 'H');
	for (unsigned i = 0; i < 4; i++)
		assert_true(driver_holds(block[i], i + 1, 20 * MIB / 4));
	assert_int_equal(cu.cuMemcpyDtoD_v2(block[3], block[0], 20 * MIB), CUDA_SUCCESS);
	assert_true(driver_holds(block[3], 1, 20 * MIB / 4));
}

/* The program gets its error, goes on, and what it had is as it was. */
TEST(a_program_goes_on_after_out_of_memory)
{
	CUdeviceptr block = driver_alloc(90 * MIB), more = 4711;

	assert_int_equal(driver_fill(NULL, block, 99, 90 * MIB / 4), CUDA_SUCCESS);
	for (int i = 0; i < 20; i++)
		assert_int_equal(cu.cuMemAlloc_v2(&more, 10 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(more, 4711);
	assert_true(driver_holds(block, 99, 90 * MIB / 4));
	more = driver_alloc(6 * MIB);
}

TEST(odd_sizes_give_the_drivers_codes)
{
	CUdeviceptr block = 4711;

	assert_int_equal(cu.cuMemAlloc_v2(&block, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cu.cuMemAlloc_v2(NULL, 4096), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cu.cuMemAlloc_v2(NULL, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cu.cuMemAlloc_v2(&block, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(cu.cuMemAlloc_v2(&block, SIZE_MAX - 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(cu.cuMemAlloc_v2(&block, (size_t)1 << 62), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(block, 4711);
	block = driver_alloc(1);
	assert_int_equal(block % 512, 0);
	assert_int_equal(cu.cuMemsetD32_v2(block, 1, 0), CUDA_SUCCESS);
}

TEST(a_block_is_freed_once)
{
	CUdeviceptr small = driver_alloc(5000), large = driver_alloc(9 * MIB);

	assert_int_equal(cu.cuMemFree_v2(small), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemFree_v2(large), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemFree_v2(small), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cu.cuMemFree_v2(large), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cu.cuMemFreeAsync(large, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cu.cuMemFreeAsync(small, NULL), CUDA_ERROR_INVALID_VALUE);
}

TEST(an_address_inside_a_block_frees_nothing)
{
	CUdeviceptr small = driver_alloc(5000), large = driver_alloc(9 * MIB);

	assert_int_equal(driver_fill(NULL, large, 5, 9 * MIB / 4), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemFree_v2(small + 512), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cu.cuMemFree_v2(large + 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cu.cuMemFree_v2(large + 2 * MIB), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cu.cuMemFree_v2(large + 9 * MIB), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cu.cuMemFreeAsync(large + 2 * MIB, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_true(driver_holds(large, 5, 9 * MIB / 4));
}

TEST(what_the_driver_gave_is_freed_by_the_driver)
{
	CUdeviceptr managed, pooled;
	void *host;

	assert_int_equal(cu.cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemAllocAsync(&pooled, 4096, NULL), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemHostAlloc(&host, 4096, 0), CUDA_SUCCESS);
	assert_false(driver_is_heap(managed));
	assert_false(driver_is_heap(pooled));
	assert_int_equal(cu.cuMemFree_v2(managed), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemFree_v2(pooled), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemFreeHost(host), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemFree_v2(managed), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cu.cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_hundred_thousand_small_blocks_do_not_overlap)
{
	enum { MANY = 100000 };
	CUdeviceptr *block = malloc(MANY * sizeof(*block));

	for (unsigned i = 0; i < MANY; i++) {
		assert_int_equal(cu.cuMemAlloc_v2(&block[i], 16 + i % 600), CUDA_SUCCESS);
		unsigned *word = sim_pointer(block[i]);
		word[0] = i;
	}
	for (unsigned i = 0; i < MANY; i++) {
		unsigned seen;

		assert_true(sim_peek(block[i], &seen, sizeof(seen)));
		assert_int_equal(seen, i);
	}
	/* Every other first: slabs go through every state. */
	for (unsigned i = 0; i < MANY; i += 2)
		assert_int_equal(cu.cuMemFree_v2(block[i]), CUDA_SUCCESS);
	for (unsigned i = 1; i < MANY; i += 2)
		assert_int_equal(cu.cuMemFree_v2(block[i]), CUDA_SUCCESS);
	free(block);
}

/* errno and the current context are the program's. */
static void must_change_nothing(CUresult result, CUresult expected)
{
	CUcontext now;

	assert_int_equal(errno, 4711);
	assert_int_equal(result, expected);
	assert_int_equal(cu.cuCtxGetCurrent(&now), CUDA_SUCCESS);
	assert_ptr_equal(now, context);
	errno = 4711;
}

TEST(errno_and_the_current_context_stay_as_they_were)
{
	CUdeviceptr block, other;
	size_t pitch, free, total;
	unsigned word;

	errno = 4711;
	must_change_nothing(cu.cuMemAlloc_v2(&block, 50 * MIB), CUDA_SUCCESS);
	must_change_nothing(cu.cuMemAlloc_v2(&other, 50 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	must_change_nothing(cu.cuMemAllocPitch_v2(&other, &pitch, 1000, 10, 4), CUDA_SUCCESS);
	must_change_nothing(cu.cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
	must_change_nothing(cu.cuDeviceTotalMem_v2(&total, 0), CUDA_SUCCESS);
	must_change_nothing(cu.cuMemGetAddressRange_v2(NULL, NULL, block), CUDA_SUCCESS);
	must_change_nothing(cu.cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_MAPPED, block), CUDA_SUCCESS);
	must_change_nothing(cu.cuMemsetD32_v2(block, 0, 10), CUDA_SUCCESS);
	must_change_nothing(cu.cuMemFreeAsync(block, NULL), CUDA_SUCCESS);
	must_change_nothing(cu.cuMemFree_v2(other), CUDA_SUCCESS);
	must_change_nothing(cu.cuMemFree_v2(other), CUDA_ERROR_INVALID_VALUE);
	must_change_nothing(cu.cuCtxSynchronize(), CUDA_SUCCESS);
}
