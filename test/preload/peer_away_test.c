// SPDX-License-Identifier: Apache-2.0
/*
 * Copies that go another way because the device that would make them has no access to a heap block (copy.c): in default
 * streams, which are of the context that is current, and with memory of pools, which is of none. No peer access at all.
 */
#include "test/preload/gpus.h"
#include "test/test.h"

#define DEVICES 2
#define BYTES   ((size_t)2 << 20)
#define WORDS   (BYTES / 4)

static unsigned *pinned;

BEFORE_ALL
{
	gpus_start(DEVICES, BYTES);
	assert_true(gpus_are_heap());
	ok(cu.cuMemHostAlloc((void **)&pinned, BYTES, CU_MEMHOSTALLOC_PORTABLE));
}

static void fill(int device, unsigned value)
{
	gpus_be(device);
	ok(driver_fill(gpus.stream[device], gpus.block[device], value, WORDS));
	ok(cu.cuStreamSynchronize(gpus.stream[device]));
}

/* The copy takes a while: a stream that does not wait for it is done long before. */
TEST(default_streams_wait_for_copies_with_the_host)
{
	const CUstream defaults[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};

	for (unsigned i = 0; i < 3; i++) {
		fill(1, 100 + i);
		memset(pinned, 0, BYTES);
		gpus_be(0);
		sim_switch("PIECE_US", 2000);
		ok(cu.cuMemcpyDtoHAsync_v2(pinned, gpus.block[1], BYTES, defaults[i]));
		ok(cu.cuStreamSynchronize(defaults[i]));
		sim_switch("PIECE_US", 0);
		for (size_t word = 0; word < WORDS; word++)
			assert_int_equal(pinned[word], 100 + i);
	}
	fill(1, 200);
	memset(pinned, 0, BYTES);
	gpus_be(0);
	sim_switch("PIECE_US", 2000);
	ok(cuMemcpyDtoHAsync_v2_ptsz(pinned, gpus.block[1], BYTES, NULL));
	ok(cuStreamSynchronize_ptsz(NULL));
	sim_switch("PIECE_US", 0);
	for (size_t word = 0; word < WORDS; word++)
		assert_int_equal(pinned[word], 200);
}

/* The driver may refuse to give the context back for a moment. */
TEST(the_program_goes_on_in_its_own_context)
{
	fill(1, 300);
	gpus_be(0);
	sim_fail("cuCtxPopCurrent_v2", 1, CUDA_ERROR_UNKNOWN);
	ok(cu.cuMemcpyDtoHAsync_v2(pinned, gpus.block[1], BYTES, gpus.stream[0]));
	assert_false(sim_fail_pending());
	CUcontext current = driver_current();
	assert_ptr_equal(current, gpus.context[0]);
	ok(cu.cuStreamSynchronize(gpus.stream[0]));
	for (size_t word = 0; word < WORDS; word++)
		assert_int_equal(pinned[word], 300);
}

/* Taken from a pool of device 0 in the order of a stream of device 1, whose context is not to touch it. */
TEST(memory_of_pools_is_touched_by_the_device_of_the_copy)
{
	CUmemoryPool pool;
	CUdeviceptr pooled;

	ok(cuDeviceGetDefaultMemPool(&pool, 0));
	gpus_be(1);
	ok(cuMemAllocFromPoolAsync(&pooled, BYTES, pool, gpus.stream[1]));
	ok(cu.cuStreamSynchronize(gpus.stream[1]));
	assert_false(driver_is_heap(pooled));
	fill(1, 7);
	gpus_be(0);
	ok(cuMemcpyDtoDAsync_v2(pooled, gpus.block[1], BYTES, gpus.stream[0]));
	ok(cu.cuStreamSynchronize(gpus.stream[0]));
	fill(1, 8);
	gpus_be(0);
	ok(cuMemcpyDtoDAsync_v2(gpus.block[1], pooled, BYTES, gpus.stream[0]));
	ok(cu.cuStreamSynchronize(gpus.stream[0]));
	gpus_be(1);
	assert_true(driver_holds(gpus.block[1], 7, WORDS));
	gpus_be(0);
	ok(cu.cuMemFreeAsync(pooled, gpus.stream[0]));
	ok(cu.cuStreamSynchronize(gpus.stream[0]));
}
