// SPDX-License-Identifier: Apache-2.0
/*
 * Frees while the GPU works and while streams capture. Budgets: 32 MiB of the device, 64 MiB of the host.
 */
#include "test/preload/driver.h"
#include "test/test.h"

#include <stdatomic.h>

static CUcontext context;
static CUfunction copy;
static CUstream stream;

FIXTURE(set_up)
{
	context = driver_start(0);
	copy = driver_kernel("copy");
	assert_int_equal(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
}

GROUP(set_up, NULL)

static CUdeviceptr alloc(size_t bytes)
{
	CUdeviceptr block = 0;

	assert_int_equal(cu.cuMemAlloc_v2(&block, bytes), CUDA_SUCCESS);
	return block;
}

static CUresult launch_copy(CUdeviceptr to, CUdeviceptr from, size_t words)
{
	void *params[] = {&to, &from, &words};

	return cu.cuLaunchKernel(copy, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

FIXTURE(nothing_is_lost)
{
	assert_int_equal(cu.cuMemFree_v2(alloc(96 * MIB)), CUDA_SUCCESS);
	assert_int_equal(sim_broken_rules(), 0);
}

EACH_TEST(NULL, nothing_is_lost)

struct freer {
	CUdeviceptr block;
	CUresult result;
	atomic_bool returned;
};

static void *free_it(void *argument)
{
	struct freer *freer = argument;

	if (cu.cuCtxSetCurrent(context) == CUDA_SUCCESS)
		freer->result = cu.cuMemFree_v2(freer->block);
	atomic_store(&freer->returned, true);
	return NULL;
}

/* cudaFree's promise: what was submitted before is done when it returns. */
TEST(a_free_waits_for_the_kernel_that_reads_the_block)
{
	CUdeviceptr from = alloc(10 * MIB), to = alloc(10 * MIB);
	struct freer freer = {.block = from, .result = CUDA_ERROR_UNKNOWN};
	unsigned long waits = sim_calls("cuCtxSynchronize");

	assert_int_equal(driver_fill(stream, from, 1234, 10 * MIB / 4), CUDA_SUCCESS);
	assert_int_equal(cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
	sim_hold();
	assert_int_equal(launch_copy(to, from, 10 * MIB / 4), CUDA_SUCCESS);
	pthread_t thread = test_thread(free_it, &freer);
	while (sim_calls("cuCtxSynchronize") == waits && !atomic_load(&freer.returned))
		sched_yield();
	assert_false(atomic_load(&freer.returned));
	assert_int_not_equal(sim_where(from), 0);
	sim_release();
	pthread_join(thread, NULL);
	assert_int_equal(freer.result, CUDA_SUCCESS);
	assert_true(driver_holds(to, 1234, 10 * MIB / 4));
	assert_int_equal(cu.cuMemFree_v2(to), CUDA_SUCCESS);
}

/* Freed behind the stream at once; nobody gets the memory before the kernel has read it. */
TEST(an_asynchronous_free_keeps_the_memory_until_the_stream_has_passed)
{
	CUdeviceptr from = alloc(10 * MIB), to = alloc(10 * MIB), next;

	assert_int_equal(driver_fill(stream, from, 77, 10 * MIB / 4), CUDA_SUCCESS);
	assert_int_equal(cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
	sim_hold();
	assert_int_equal(launch_copy(to, from, 10 * MIB / 4), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemFreeAsync(from, stream), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemGetAddressRange_v2(NULL, NULL, from), CUDA_ERROR_NOT_FOUND);
	next = alloc(10 * MIB);
	assert_true(next != from);
	assert_int_not_equal(sim_where(from), 0);
	memset(sim_pointer(next), 0xff, 10 * MIB);
	sim_release();
	assert_int_equal(cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
	assert_true(driver_holds(to, 77, 10 * MIB / 4));
	assert_int_equal(cu.cuMemFree_v2(to), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemFree_v2(next), CUDA_SUCCESS);
}

TEST(cu_mem_alloc_memory_can_be_freed_asynchronously)
{
	for (int i = 0; i < 50; i++)
		assert_int_equal(cu.cuMemFreeAsync(alloc(20 * MIB), i % 2 ? stream : NULL), CUDA_SUCCESS);
	assert_int_equal(cu.cuCtxSynchronize(), CUDA_SUCCESS);
}

static CUresult end_and_run(void)
{
	CUgraphExec exec;
	CUgraph graph = NULL;
	CUresult result = cu.cuStreamEndCapture(stream, &graph);

	if (result != CUDA_SUCCESS)
		return result;
	result = cu.cuGraphInstantiateWithFlags(&exec, graph, 0);
	if (result != CUDA_SUCCESS)
		return result;
	result = cu.cuGraphLaunch(exec, stream);
	if (result == CUDA_SUCCESS)
		result = cu.cuStreamSynchronize(stream);
	cu.cuGraphExecDestroy(exec);
	cu.cuGraphDestroy(graph);
	return result;
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
	CUdeviceptr block = alloc(4 * MIB), from = alloc(MIB), to = alloc(MIB);

	assert_int_equal(driver_fill(stream, from, 31, MIB / 4), CUDA_SUCCESS);
	assert_int_equal(cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
	assert_int_equal(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
	assert_int_equal(launch_copy(to, from, MIB / 4), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemFreeAsync(block, stream), CUDA_ERROR_INVALID_VALUE);
	must_be_capturing();
	assert_int_equal(end_and_run(), CUDA_SUCCESS);
	assert_true(driver_holds(to, 31, MIB / 4));
	assert_int_equal(cu.cuMemFree_v2(block), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemFree_v2(from), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemFree_v2(to), CUDA_SUCCESS);
}

static void *free_and_allocate(void *argument)
{
	struct freer *freer = argument;
	CUdeviceptr other = 0;

	free_it(freer);
	if (freer->result == CUDA_SUCCESS)
		freer->result = cu.cuMemAlloc_v2(&other, 6 * MIB);
	if (freer->result == CUDA_SUCCESS)
		freer->result = cu.cuMemFree_v2(other);
	if (freer->result == CUDA_SUCCESS)
		freer->result = cu.cuMemAlloc_v2(&other, 100);
	if (freer->result == CUDA_SUCCESS)
		freer->result = cu.cuMemFreeAsync(other, NULL);
	return NULL;
}

/* In every mode, from the capturing thread's point of view nothing happened; the memory comes back afterwards. */
TEST(frees_of_another_thread_leave_a_capture_alone)
{
	static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
						    CU_STREAM_CAPTURE_MODE_RELAXED};

	for (size_t i = 0; i < 3; i++) {
		struct freer freer = {.block = alloc(30 * MIB), .result = CUDA_ERROR_UNKNOWN};
		CUdeviceptr from = alloc(MIB), to = alloc(MIB);

		assert_int_equal(driver_fill(stream, from, 8, MIB / 4), CUDA_SUCCESS);
		assert_int_equal(cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
		assert_int_equal(cu.cuStreamBeginCapture_v2(stream, modes[i]), CUDA_SUCCESS);
		assert_int_equal(launch_copy(to, from, MIB / 4), CUDA_SUCCESS);
		test_beside(free_and_allocate, &freer);
		assert_int_equal(freer.result, CUDA_SUCCESS);
		must_be_capturing();
		assert_int_equal(end_and_run(), CUDA_SUCCESS);
		assert_true(driver_holds(to, 8, MIB / 4));
		assert_int_equal(cu.cuMemFree_v2(from), CUDA_SUCCESS);
		assert_int_equal(cu.cuMemFree_v2(to), CUDA_SUCCESS);
		nothing_is_lost(NULL);
	}
}

/* A graph that was captured before a block was freed and allocated again still copies what is at its addresses. */
TEST(a_captured_graph_runs_again_and_again)
{
	CUdeviceptr from = alloc(3 * MIB), to = alloc(3 * MIB);
	CUgraphExec exec;
	CUgraph graph;

	assert_int_equal(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
	assert_int_equal(launch_copy(to, from, 3 * MIB / 4), CUDA_SUCCESS);
	assert_int_equal(cu.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
	assert_int_equal(cu.cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
	for (unsigned i = 0; i < 5; i++) {
		CUdeviceptr churn = alloc(40 * MIB);

		assert_int_equal(driver_fill(stream, from, i, 3 * MIB / 4), CUDA_SUCCESS);
		assert_int_equal(cu.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
		assert_int_equal(cu.cuMemFree_v2(churn), CUDA_SUCCESS);
		assert_true(driver_holds(to, i, 3 * MIB / 4));
	}
	cu.cuGraphExecDestroy(exec);
	cu.cuGraphDestroy(graph);
	assert_int_equal(cu.cuMemFree_v2(from), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemFree_v2(to), CUDA_SUCCESS);
}
