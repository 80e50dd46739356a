// SPDX-License-Identifier: Apache-2.0
/*
 * How much memory there is, and where an address belongs. Started with device.budget=32MiB, host.budget=64MiB on a
 * device of 128 MiB, once for each report.capacity (CAPACITY), and through every door.
 */
#include "test/preload/driver.h"
#include "test/test.h"

static size_t expected_total, expected_room;

BEFORE_ALL
{
	const char *capacity = getenv("CAPACITY");

	driver_start(0);
	expected_total = 128 * MIB;
	expected_room = 96 * MIB; /* what may be allocated, and is not more than the total */
	if (capacity && !strcmp(capacity, "budget"))
		expected_total = expected_room = 32 * MIB;
	if (capacity && !strcmp(capacity, "device+host"))
		expected_total = 96 * MIB;
}

static size_t free_now(void)
{
	size_t free, total;

	assert_int_equal(cu.cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
	assert_int_equal(total, expected_total);
	assert_true(free <= total);
	return free;
}

TEST(total_and_free_are_what_the_policy_says)
{
	size_t total = 0;

	assert_int_equal(free_now(), expected_room);
	assert_int_equal(cu.cuDeviceTotalMem_v2(&total, 0), CUDA_SUCCESS);
	assert_int_equal(total, expected_total);
}

TEST(null_is_accepted_for_either_figure)
{
	size_t free = 0, total = 0;

	assert_int_equal(cu.cuMemGetInfo_v2(&free, NULL), CUDA_SUCCESS);
	assert_int_equal(free, expected_room);
	assert_int_equal(cu.cuMemGetInfo_v2(NULL, &total), CUDA_SUCCESS);
	assert_int_equal(total, expected_total);
	assert_int_equal(cu.cuMemGetInfo_v2(NULL, NULL), CUDA_SUCCESS);
	assert_int_equal(cu.cuDeviceTotalMem_v2(NULL, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cu.cuDeviceTotalMem_v2(&total, 99), CUDA_ERROR_INVALID_DEVICE);
	assert_int_equal(cu.cuDeviceTotalMem_v2(&total, -1), CUDA_ERROR_INVALID_DEVICE);
}

/* Down with every allocation, never below zero nor above the total, and back when everything is freed. */
TEST(free_moves_with_every_allocation)
{
	CUdeviceptr block[12];
	size_t before = free_now();

	for (int i = 0; i < 12; i++) {
		assert_int_equal(cu.cuMemAlloc_v2(&block[i], 8 * MIB), CUDA_SUCCESS);
		size_t now = free_now();
		assert_int_equal(now, before >= 8 * MIB ? before - 8 * MIB : 0);
		before = now;
	}
	CUdeviceptr more = 4711;
	assert_int_equal(cu.cuMemAlloc_v2(&more, 8 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(more, 4711);
	for (int i = 0; i < 12; i++) {
		assert_int_equal(cu.cuMemFree_v2(block[i]), CUDA_SUCCESS);
		assert_true(free_now() >= before);
		before = free_now();
	}
	assert_int_equal(before, expected_room);
}

/* The program's own cuMemCreate and pools take from the same device. */
TEST(free_moves_with_what_goes_round_the_heap)
{
	CUmemAllocationProp prop = form_memory(0);
	CUmemGenericAllocationHandle handle;
	CUdeviceptr block;

	assert_int_equal(cu.cuMemCreate(&handle, 16 * MIB, &prop, 0), CUDA_SUCCESS);
	assert_int_equal(free_now(), expected_room - 16 * MIB);
	assert_int_equal(cu.cuMemRelease(handle), CUDA_SUCCESS);
	assert_int_equal(free_now(), expected_room);
	/* A pool reserves what it takes in pieces of its own size, 32 MiB with driver 580. */
	assert_int_equal(cu.cuMemAllocAsync(&block, 16 * MIB, NULL), CUDA_SUCCESS);
	assert_true(free_now() <= expected_room - 16 * MIB);
	assert_int_equal(cu.cuMemFreeAsync(block, NULL), CUDA_SUCCESS);
	assert_int_equal(cu.cuCtxSynchronize(), CUDA_SUCCESS);
	assert_int_equal(free_now(), expected_room);
}

static void must_range(CUdeviceptr address, CUdeviceptr block, size_t bytes)
{
	CUdeviceptr base = 0;
	size_t size = 0;

	assert_int_equal(cu.cuMemGetAddressRange_v2(&base, &size, address), CUDA_SUCCESS);
	assert_int_equal(base, block);
	assert_int_equal(size, bytes);
	assert_int_equal(cu.cuMemGetAddressRange_v2(NULL, &size, address), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemGetAddressRange_v2(&base, NULL, address), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemGetAddressRange_v2(NULL, NULL, address), CUDA_SUCCESS);
}

static void must_have_no_range(CUdeviceptr address)
{
	CUdeviceptr base = 4711;
	size_t size = 4712;

	assert_int_equal(cu.cuMemGetAddressRange_v2(&base, &size, address), CUDA_ERROR_NOT_FOUND);
	assert_int_equal(base, 4711);
	assert_int_equal(size, 4712);
}

/* Blocks of several chunks, half on the host, and small ones that share a slab. */
TEST(an_address_range_is_the_block)
{
	static const size_t sizes[] = {1, 511, 4096, 100 * 1024 + 3, MIB, MIB + 1, 7 * MIB, 40 * MIB + 12345};
	CUdeviceptr block[8];

	for (int i = 0; i < 8; i++)
		assert_int_equal(cu.cuMemAlloc_v2(&block[i], sizes[i]), CUDA_SUCCESS);
	for (int i = 0; i < 8; i++) {
		must_range(block[i], block[i], sizes[i]);
		must_range(block[i] + sizes[i] / 2, block[i], sizes[i]);
		must_range(block[i] + sizes[i] - 1, block[i], sizes[i]);
	}
	for (int i = 0; i < 8; i++)
		assert_int_equal(cu.cuMemFree_v2(block[i]), CUDA_SUCCESS);
	for (int i = 0; i < 8; i++) {
		must_have_no_range(block[i]);
		must_have_no_range(block[i] + sizes[i] / 2);
	}
	/* Not in the heap: the driver answers, and a real one clears what it has no answer for. */
	CUdeviceptr base;
	size_t size;
	assert_int_equal(cu.cuMemGetAddressRange_v2(&base, &size, 0), CUDA_ERROR_NOT_FOUND);
	assert_int_equal(cu.cuMemGetAddressRange_v2(&base, &size, 12345), CUDA_ERROR_NOT_FOUND);
}

TEST(a_pitched_block_is_pitch_times_height)
{
	CUdeviceptr block;
	size_t pitch = 0;

	assert_int_equal(cu.cuMemAllocPitch_v2(&block, &pitch, 1000, 77, 4), CUDA_SUCCESS);
	assert_int_equal(pitch, 1024);
	must_range(block + 5, block, 1024 * 77);
	assert_int_equal(cu.cuMemFree_v2(block), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemAllocPitch_v2(&block, &pitch, 512, 3, 16), CUDA_SUCCESS);
	assert_int_equal(pitch, 512);
	assert_int_equal(cu.cuMemFree_v2(block), CUDA_SUCCESS);
	pitch = 4711;
	assert_int_equal(cu.cuMemAllocPitch_v2(&block, &pitch, 512, 3, 5), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cu.cuMemAllocPitch_v2(&block, &pitch, 0, 3, 4), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cu.cuMemAllocPitch_v2(&block, &pitch, 512, 0, 4), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cu.cuMemAllocPitch_v2(NULL, &pitch, 512, 3, 4), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cu.cuMemAllocPitch_v2(&block, NULL, 512, 3, 4), CUDA_ERROR_INVALID_VALUE);
	assert_int_not_equal(cu.cuMemAllocPitch_v2(&block, &pitch, SIZE_MAX, SIZE_MAX, 4), CUDA_SUCCESS);
	assert_int_not_equal(cu.cuMemAllocPitch_v2(&block, &pitch, SIZE_MAX / 4, 8, 4), CUDA_SUCCESS);
	assert_int_equal(pitch, 4711);
}
