// SPDX-License-Identifier: Apache-2.0
/*
 * dead_context_test.c: once a context has died of what a kernel did, every call answers so: allocating and freeing,
 * too, where neither would need the driver. The error is of that context alone. Each in a process of its own.
 */
#include "test/core/child_alloc.h"
#include "test/ledger_check.h"

#define SETTINGS(...) ((const char *const[]){"SIM_MEMORY=256MiB", __VA_ARGS__, NULL})

static void assert_body(const struct sim_launch *launch, void **args)
{
	sim_assert_fails();
}

static void stray_body(const struct sim_launch *launch, void **args)
{
	**(volatile char **)args[0] = 1;
}

SIM_MODULE(image, SIM_KERNEL("asserts", assert_body), SIM_KERNEL("strays", stray_body, 8));

/* The current context dies; the address is one that is reserved and not mapped. */
static void die(const char *name)
{
	CUresult error = name[0] == 'a' ? CUDA_ERROR_ASSERT : CUDA_ERROR_ILLEGAL_ADDRESS;
	CUdeviceptr nowhere;
	CUmodule module;
	CUfunction function;
	void *args[] = {&nowhere};

	CHECK(cuMemAddressReserve(&nowhere, 2 * MIB, 0, 0, 0) == CUDA_SUCCESS);
	CHECK(cuModuleLoadData(&module, &image) == CUDA_SUCCESS);
	CHECK(cuModuleGetFunction(&function, module, name) == CUDA_SUCCESS);
	CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL) == CUDA_SUCCESS);
	CHECK(cuCtxSynchronize() == error);
}

static CUresult try_alloc(size_t bytes)
{
	CUdeviceptr address = 42;
	CUresult result = cuMemAlloc_v2(&address, bytes);

	CHECK(result == CUDA_SUCCESS || address == 42);
	return result;
}

/* From memory that lies warm, from a slab, with new memory, of rows, and in stream order. */
static int every_allocation_fails(void *name)
{
	CUresult error = *(char *)name == 'a' ? CUDA_ERROR_ASSERT : CUDA_ERROR_ILLEGAL_ADDRESS;
	CUdeviceptr pitched = 42, ordered = 42;
	size_t pitch = 42;

	start();
	CUdeviceptr small = alloc(1000), kept = alloc(4 * MIB);
	CHECK(cuMemFree_v2(kept) == CUDA_SUCCESS); /* it is warm now */
	die(name);
	size_t rows = ledger_n_rows();
	CHECK(try_alloc(4 * MIB) == error && try_alloc(1000) == error && try_alloc(20 * MIB) == error);
	CHECK(cuMemAllocPitch_v2(&pitched, &pitch, 1000, 100, 4) == error && pitched == 42 && pitch == 42);
	CHECK(cuMemAllocAsync(&ordered, 4 * MIB, NULL) == error && ordered == 42);
	CHECK(ledger_n_rows() == rows && ledger_is_valid());
	CHECK(cuMemFree_v2(small) == error);
	return 0;
}

TEST(in_a_context_that_died_of_an_assertion_every_allocation_fails_with_it)
{
	assert_ok(core_in_child(SETTINGS("SPILLWAY_SET=async.use=heap"), every_allocation_fails, "asserts"));
}

TEST(in_a_context_that_died_of_an_illegal_address_every_allocation_fails_with_it)
{
	assert_ok(core_in_child(SETTINGS("SPILLWAY_SET=async.use=heap"), every_allocation_fails, "strays"));
}

/* Nobody may wait for the GPU then, and the free is put off: it is not to look as if all were well. */
PART_TEST(a_free_during_a_capture_tells_that_the_context_is_dead,
	  assert_ok(core_in_child(SETTINGS("SPILLWAY_SET=device.budget=64MiB"), part, NULL)))
{
	CUgraph graph;

	start();
	CUdeviceptr first = alloc(4 * MIB), second = alloc(4 * MIB);
	CUstream stream = core_stream();
	CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
	CHECK(cuMemFree_v2(first) == CUDA_SUCCESS);
	/* Asked during a capture the question leaves it whole. */
	CHECK(try_alloc(4 * MIB) == CUDA_SUCCESS);
	CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
	CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
	CUmodule module;
	CUfunction function;
	CUstream beside = core_stream();
	CHECK(cuModuleLoadData(&module, &image) == CUDA_SUCCESS);
	CHECK(cuModuleGetFunction(&function, module, "asserts") == CUDA_SUCCESS);
	CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, beside, NULL, NULL) == CUDA_SUCCESS);
	while (cuStreamQuery(beside) == CUDA_ERROR_NOT_READY)
		;
	CHECK(cuMemFree_v2(second) == CUDA_ERROR_ASSERT);
	CHECK(try_alloc(4 * MIB) == CUDA_ERROR_ASSERT);
	return 0;
}

/* Another context of the device, and another device, live on, and so does their memory. */
PART_TEST(the_error_is_of_one_context_alone,
	  assert_ok(core_in_child(SETTINGS("SIM_DEVICES=2", "SPILLWAY_SET=device.budget=64MiB"), part, NULL)))
{
	CUcontext other;

	start();
	CUcontext first = core_current(), beside = core_new_context();
	CUdeviceptr there = alloc(4 * MIB);
	CHECK(cuDevicePrimaryCtxRetain(&other, 1) == CUDA_SUCCESS);
	CHECK(cuCtxSetCurrent(first) == CUDA_SUCCESS);
	die("asserts");
	CHECK(try_alloc(4 * MIB) == CUDA_ERROR_ASSERT);
	CHECK(cuCtxSetCurrent(beside) == CUDA_SUCCESS);
	CUdeviceptr here = alloc(4 * MIB);
	CHECK(cuMemFree_v2(here) == CUDA_SUCCESS && cuMemFree_v2(there) == CUDA_SUCCESS);
	CHECK(cuCtxSetCurrent(other) == CUDA_SUCCESS);
	here = alloc(4 * MIB);
	CHECK(device_of(here)->ordinal == 1 && cuMemFree_v2(here) == CUDA_SUCCESS);
	CHECK(cuCtxSetCurrent(first) == CUDA_SUCCESS && try_alloc(1000) == CUDA_ERROR_ASSERT);
	/* Made anew it is well again. */
	CHECK(cuDevicePrimaryCtxReset_v2(0) == CUDA_SUCCESS);
	CHECK(cuDevicePrimaryCtxRetain(&first, 0) == CUDA_SUCCESS && cuCtxSetCurrent(first) == CUDA_SUCCESS);
	CHECK(cuMemFree_v2(alloc(4 * MIB)) == CUDA_SUCCESS);
	return 0;
}

/* Nor is an error that comes but once. */
PART_TEST(no_memory_for_the_question_is_no_death,
	  assert_ok(core_in_child(SETTINGS("SPILLWAY_SET=device.budget=64MiB,spill.mode=off"), part, NULL)))
{
	start();
	CHECK(cuMemFree_v2(alloc(4 * MIB)) == CUDA_SUCCESS);
	sim_fail("cuCtxGetStreamPriorityRange", 1, CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(try_alloc(4 * MIB) == CUDA_SUCCESS && !sim_fail_pending());
	sim_fail("cuCtxGetStreamPriorityRange", 1, CUDA_ERROR_UNKNOWN);
	CHECK(try_alloc(4 * MIB) == CUDA_SUCCESS && !sim_fail_pending());
	CHECK(is_refused(128 * MIB));
	return 0;
}
