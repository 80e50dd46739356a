// SPDX-License-Identifier: Apache-2.0
/*
 * serve_async_test.c: frees that cannot happen at once: during a stream capture, behind a stream, and both while other
 * threads work.
 */
#include "test/core/async_help.h"

#include "shim/context/context.h"
#include "shim/serve/deferred_free.h"
#include "shim/serve/serve.h"

EACH_TEST(NULL, core_check)

/* ---- captures ---- */

/* Another thread that captures in GLOBAL mode, the strictest: it begins, waits to be let go, and ends. */
struct capturing {
	CUcontext context;
	CUdeviceptr target;
	sem_t begun, may_end;
	CUresult result;
	pthread_t thread;
};

static void *capture_thread(void *argument)
{
	struct capturing *capturing = argument;
	CUgraph graph = NULL;

	CHECK(cuCtxSetCurrent(capturing->context) == CUDA_SUCCESS);
	CUstream stream = core_stream();
	CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
	CHECK(cuMemsetD8Async(capturing->target, 1, 512, stream) == CUDA_SUCCESS);
	sem_post(&capturing->begun);
	sem_wait(&capturing->may_end);
	CHECK(cuMemsetD8Async(capturing->target, 2, 512, stream) == CUDA_SUCCESS);
	capturing->result = cuStreamEndCapture(stream, &graph);
	if (graph)
		CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
	CHECK(cuStreamDestroy_v2(stream) == CUDA_SUCCESS);
	return NULL;
}

static void capture_begin(struct capturing *capturing, CUdeviceptr target)
{
	*capturing = (struct capturing){.target = target};
	assert_ok(cuCtxGetCurrent(&capturing->context));
	sem_init(&capturing->begun, 0, 0);
	sem_init(&capturing->may_end, 0, 0);
	assert_int_equal(pthread_create(&capturing->thread, NULL, capture_thread, capturing), 0);
	sem_wait(&capturing->begun);
}

static CUresult capture_end(struct capturing *capturing)
{
	sem_post(&capturing->may_end);
	pthread_join(capturing->thread, NULL);
	return capturing->result;
}

TEST(a_free_during_anothers_capture_harms_nothing_and_happens_later)
{
	CUdeviceptr target = core_block(MIB), gone = core_block(8 * MIB), last = core_block(4 * MIB);
	struct capturing capturing;
	struct ledger_row row;

	capture_begin(&capturing, target);
	assert_true(capture_is_open());
	assert_ok(cuMemFree_v2(gone));
	assert_true(deferred_free_any());
	/* For the program it is gone, though still mapped. */
	assert_int_equal(cuMemFree_v2(gone), CUDA_ERROR_INVALID_VALUE);
	assert_false(serve_find(gone, &row));
	assert_int_equal(sim_where(gone), 'D');
	assert_ok(capture_end(&capturing));
	assert_false(capture_is_open());
	assert_ok(cuMemFree_v2(last)); /* the next free waits, and takes the other with it */
	assert_false(deferred_free_any());
	assert_ok(cuMemFree_v2(target));
}

TEST(allocating_during_anothers_capture_harms_nothing)
{
	CUdeviceptr target = core_block(MIB), more[3];
	struct capturing capturing;
	CUdeviceptr unused;

	capture_begin(&capturing, target);
	more[0] = core_block(40 * MIB);
	more[1] = core_block(30 * MIB); /* spilled */
	more[2] = core_block(3000);
	assert_ok(cuMemFree_v2(more[2]));
	/* Not even out of memory is a reason to wait now. */
	assert_int_equal(cuMemAlloc_v2(&unused, 200 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	assert_ok(capture_end(&capturing));
	assert_ok(cuMemFree_v2(more[0]));
	assert_ok(cuMemFree_v2(more[1]));
	assert_ok(cuMemFree_v2(target));
}

TEST(an_async_free_during_anothers_capture_harms_nothing)
{
	CUdeviceptr target = core_block(MIB), gone = core_block(8 * MIB);
	CUstream stream = core_stream();
	struct capturing capturing;

	capture_begin(&capturing, target);
	assert_ok(cuMemsetD8Async(gone, 3, 8 * MIB, stream));
	assert_ok(cuMemFreeAsync(gone, stream));
	assert_ok(capture_end(&capturing));
	assert_ok(cuStreamSynchronize(stream));
	assert_ok(cuMemFree_v2(target));
}

TEST(a_stream_destroyed_in_its_capture_ends_it_for_us_too)
{
	CUdeviceptr address = core_block(3 * MIB);
	CUstream stream = core_stream();

	assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	assert_true(capture_is_open());
	assert_ok(cuMemFree_v2(address));
	assert_true(deferred_free_any());
	CUresult result = cuStreamDestroy_v2(stream);
	if (result != CUDA_SUCCESS) {
		CUgraph graph = NULL;

		assert_true(capture_is_open());
		cuStreamEndCapture(stream, &graph);
		assert_ok(cuStreamDestroy_v2(stream));
	}
	assert_false(capture_is_open());
}

TEST(a_free_during_a_recapture_does_not_end_it)
{
	CUdeviceptr address = core_block(3 * MIB);
	CUstream stream = core_stream();
	CUgraph graph, same;

	assert_ok(cuGraphCreate(&graph, 0));
	assert_ok(cuStreamBeginRecaptureToGraph(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, graph, NULL, NULL));
	assert_ok(cuMemFree_v2(address));
	assert_ok(cuStreamEndCapture(stream, &same));
	assert_ptr_equal(same, graph);
	assert_ok(cuGraphDestroy(graph));
}

TEST(a_capture_that_did_not_begin_is_not_open)
{
	CUstream stream = core_stream();
	CUgraph graph, none;

	sim_fail("cuStreamBeginCapture_v2", 1, CUDA_ERROR_UNKNOWN);
	assert_int_equal(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_UNKNOWN);
	assert_false(capture_is_open());
	assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	assert_true(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) != CUDA_SUCCESS);
	assert_true(capture_is_open());
	assert_ok(cuStreamEndCapture(stream, &graph));
	assert_false(capture_is_open());
	assert_true(cuStreamEndCapture(stream, &none) != CUDA_SUCCESS);
	assert_false(capture_is_open());
	assert_ok(cuGraphDestroy(graph));
}

/* ---- behind a stream ---- */

TEST(an_async_free_returns_at_once_and_happens_behind_its_stream)
{
	CUdeviceptr address = core_block(8 * MIB);
	CUstream stream = core_stream();

	sim_hold();
	assert_ok(cuMemsetD8Async(address, 7, 8 * MIB, stream));
	unsigned long waits = sim_calls("cuCtxSynchronize");
	assert_ok(cuMemFreeAsync(address, stream));
	assert_true(deferred_free_any());
	assert_int_equal(cuMemFreeAsync(address, stream), CUDA_ERROR_INVALID_VALUE);
	/* Nobody gets this memory while the stream has not passed. */
	CUdeviceptr other = core_block(8 * MIB);
	assert_true(other != address);
	assert_true(deferred_free_any());
	assert_int_equal(sim_calls("cuCtxSynchronize"), waits);
	sim_release();
	assert_ok(cuStreamSynchronize(stream));
	CUdeviceptr third = core_block(8 * MIB); /* looks at what has passed, and takes it */
	assert_false(deferred_free_any());
	assert_int_equal(third, address);
	assert_ok(cuMemFree_v2(other));
	assert_ok(cuMemFree_v2(third));
}

/* Making and ending an event costs more than all the rest of a free. */
TEST(events_of_frees_are_used_again)
{
	CUstream stream = core_stream();
	CUdeviceptr blocks[8];

	unsigned long before = sim_calls("cuEventCreate");
	for (unsigned turn = 0; turn < 20; turn++) {
		for (unsigned i = 0; i < 8; i++)
			blocks[i] = core_block(3 * MIB);
		for (unsigned i = 0; i < 8; i++)
			assert_ok(cuMemFreeAsync(blocks[i], stream));
		assert_ok(cuStreamSynchronize(stream));
	}
	assert_true(sim_calls("cuEventCreate") - before <= 32);
}

/* ---- a wait that began earlier proves nothing ---- */

static void *free_first(void *argument)
{
	const CUdeviceptr *address = argument;
	CUcontext context;

	CHECK(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS && cuCtxSetCurrent(context) == CUDA_SUCCESS);
	CHECK(cuMemFree_v2(*address) == CUDA_SUCCESS);
	CHECK(cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS);
	return NULL;
}

/*
 * One thread waits for the context in its free. Meanwhile another submits work on a block and frees it in a capture, so
 * that it is put off. When the first wait ends, the second block may still be in use.
 */
TEST(a_block_put_off_during_a_wait_is_not_freed_by_that_wait)
{
	CUdeviceptr first = core_block(4 * MIB), second = core_block(6 * MIB), target = core_block(512);
	CUstream one = core_stream(), two = core_stream(), captured = core_stream();
	unsigned long waits = sim_calls("cuCtxSynchronize");
	CUgraph graph;

	async_hold(one);
	pthread_t thread = test_thread(free_first, &first);
	UNTIL(sim_calls("cuCtxSynchronize") != waits);
	/* The wait has begun. This work comes after it. */
	async_hold(two);
	assert_ok(cuMemsetD8Async(second, 1, 6 * MIB, two));
	assert_ok(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
	assert_ok(cuMemsetD8Async(target, 1, 512, captured));
	assert_ok(cuMemFree_v2(second));
	assert_ok(cuStreamEndCapture(captured, &graph));
	async_open(one);
	pthread_join(thread, NULL);
	assert_true(deferred_free_any());
	async_open(two);
	assert_ok(cuStreamSynchronize(two));
	assert_ok(cuGraphDestroy(graph));
	assert_ok(cuMemFree_v2(target));
}

CORE_START("SIM_MEMORY=256MiB", "SPILLWAY_SET=device.budget=64MiB,host.budget=64MiB,report.summary=no")
