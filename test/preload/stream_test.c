// SPDX-License-Identifier: Apache-2.0
/*
 * Frees while the GPU works and while streams capture. Budgets: 32 MiB of the device, 64 MiB of the host.
 */
#include "test/preload/driver.h"
#include "test/test.h"

static CUcontext context;
static CUfunction copy;
static CUstream stream;

BEFORE_ALL
{
	context = driver_start(0);
	copy = driver_kernel("copy");
	assert_int_equal(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
}

static CUresult launch_copy(CUdeviceptr to, CUdeviceptr from, size_t words)
{
	void *params[] = {&to, &from, &words};

	return cu.cuLaunchKernel(copy, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

FIXTURE(nothing_is_lost)
{
	driver_free_rest();
	assert_int_equal(cu.cuMemFree_v2(driver_alloc(96 * MIB)), CUDA_SUCCESS);
	assert_int_equal(sim_broken_rules(), 0);
}

EACH_TEST(NULL, nothing_is_lost)

TEST(cu_mem_alloc_memory_can_be_freed_asynchronously)
{
	for (int i = 0; i < 50; i++)
		assert_int_equal(cu.cuMemFreeAsync(driver_alloc(20 * MIB), i % 2 ? stream : NULL), CUDA_SUCCESS);
	assert_int_equal(cu.cuCtxSynchronize(), CUDA_SUCCESS);
}

static void end_and_run(void)
{
	CUgraphExec exec = driver_captured(stream);

	assert_int_equal(cu.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
	assert_int_equal(cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
	assert_int_equal(cu.cuGraphExecDestroy(exec), CUDA_SUCCESS);
}

static void must_be_capturing(void)
{
	CUstreamCaptureStatus status;

	assert_int_equal(cu.cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
}

/* Measured on an H200: INVALID_VALUE, and the capture goes on. */
TEST(an_asynchronous_free_into_a_capturing_stream_is_refused)
{
	CUdeviceptr block = driver_alloc(4 * MIB), from = driver_alloc(MIB), to = driver_alloc(MIB);

	assert_int_equal(driver_fill(stream, from, 31, MIB / 4), CUDA_SUCCESS);
	assert_int_equal(cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
	assert_int_equal(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
	assert_int_equal(launch_copy(to, from, MIB / 4), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemFreeAsync(block, stream), CUDA_ERROR_INVALID_VALUE);
	must_be_capturing();
	end_and_run();
	assert_true(driver_holds(to, 31, MIB / 4));
}

struct freer {
	CUdeviceptr block;
	CUresult result;
};

static void *free_and_allocate(void *argument)
{
	struct freer *freer = argument;
	CUdeviceptr other = 0;

	freer->result = cu.cuCtxSetCurrent(context)
				?: cu.cuMemFree_v2(freer->block)
				?: cu.cuMemAlloc_v2(&other, 6 * MIB)
				?: cu.cuMemFree_v2(other)
				?: cu.cuMemAlloc_v2(&other, 100)
				?: cu.cuMemFreeAsync(other, NULL);
	return NULL;
}

/* In every mode, from the capturing thread's point of view nothing happened; the memory comes back afterwards. */
TEST(frees_of_another_thread_leave_a_capture_alone)
{
	static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
						    CU_STREAM_CAPTURE_MODE_RELAXED};

	for (size_t i = 0; i < 3; i++) {
		struct freer freer = {.block = driver_alloc(30 * MIB), .result = CUDA_ERROR_UNKNOWN};
		CUdeviceptr from = driver_alloc(MIB), to = driver_alloc(MIB);

		assert_int_equal(driver_fill(stream, from, 8, MIB / 4), CUDA_SUCCESS);
		assert_int_equal(cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
		assert_int_equal(cu.cuStreamBeginCapture_v2(stream, modes[i]), CUDA_SUCCESS);
		assert_int_equal(launch_copy(to, from, MIB / 4), CUDA_SUCCESS);
		test_beside(free_and_allocate, &freer);
		assert_int_equal(freer.result, CUDA_SUCCESS);
		must_be_capturing();
		end_and_run();
		assert_true(driver_holds(to, 8, MIB / 4));
		assert_int_equal(cu.cuMemFree_v2(from), CUDA_SUCCESS);
		assert_int_equal(cu.cuMemFree_v2(to), CUDA_SUCCESS);
		nothing_is_lost(NULL);
	}
}

/* A graph that was captured before a block was freed and allocated again still copies what is at its addresses. */
TEST(a_captured_graph_runs_again_and_again)
{
	CUdeviceptr from = driver_alloc(3 * MIB), to = driver_alloc(3 * MIB);

	assert_int_equal(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
	assert_int_equal(launch_copy(to, from, 3 * MIB / 4), CUDA_SUCCESS);
	CUgraphExec exec = driver_captured(stream);
	for (unsigned i = 0; i < 5; i++) {
		CUdeviceptr churn = driver_alloc(40 * MIB);

		assert_int_equal(driver_fill(stream, from, i, 3 * MIB / 4), CUDA_SUCCESS);
		assert_int_equal(cu.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
		assert_int_equal(cu.cuMemFree_v2(churn), CUDA_SUCCESS);
		assert_true(driver_holds(to, i, 3 * MIB / 4));
	}
	cu.cuGraphExecDestroy(exec);
}
