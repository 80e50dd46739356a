// SPDX-License-Identifier: Apache-2.0
/*
 * async_test.c: memory allocated and freed in stream order, in the heap: where it comes from, who gets it next, and in
 * mixture with everything else. Pools: async_pool_test.c.
 */
#include "test/core/async_help.h"
#include "test/ledger_check.h"

#include "shim/serve/deferred_free.h"
#include "shim/serve/serve.h"
#include "shim/stats/stats.h"

/* ---- where it comes from ---- */

TEST(what_a_rule_leaves_to_it_the_drivers_pool_serves)
{
	CUstream stream = core_stream();

	async_leave_to_pools(true);
	CUdeviceptr address = async_get(4 * MIB, stream);
	assert_null(device_of(address));
}

TEST(memory_comes_from_the_heap_and_says_it_is_of_its_pool)
{
	uint64_t before = stats_get(STAT_stream_allocations);
	CUstream stream = core_stream();
	CUdeviceptr address = async_get(4 * MIB, stream);
	CUmemoryPool pool = NULL;

	assert_non_null(device_of(address));
	assert_int_equal(stats_get(STAT_stream_allocations), before + 1);
	assert_ok(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
	assert_ptr_equal(pool, async_default_pool());
	assert_ok(cuMemsetD8Async(address, 1, 4 * MIB, stream)); /* good on its stream at once */
}

TEST(what_the_driver_would_refuse_it_refuses)
{
	CUstream gone = core_stream();
	CUdeviceptr address = 0;

	assert_int_equal(cuMemAllocAsync(NULL, 512, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemAllocAsync(&address, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_ok(cuStreamDestroy_v2(gone));
	sim_switch("DEAD_HANDLES", 1);
	assert_int_equal(cuMemAllocAsync(&address, 512, gone), CUDA_ERROR_INVALID_HANDLE);
	sim_switch("DEAD_HANDLES", 0);
	assert_int_equal(cuMemAllocAsync(&address, 4096 * MIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(cuMemAllocAsync(&address, SIZE_MAX, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(address, 0);
}

TEST(the_device_is_that_of_the_stream_not_the_current_one)
{
	CUcontext other;
	CUcontext own = core_current();

	assert_ok(cuCtxCreate_v2(&other, 0, 1));
	CUstream stream = core_stream();
	assert_ok(cuCtxSetCurrent(own));
	CUdeviceptr address = async_get(4 * MIB, stream);
	assert_ptr_equal(device_of(address), device_get(1));
	assert_ok(cuMemFreeAsync(address, stream));
	CUcontext current = core_current();
	assert_ptr_equal(current, own);
	assert_ok(cuCtxDestroy_v2(other));
	heap_trim(atomic_load(&device_get(1)->heap), 0, 0);
}

/* ---- used again ---- */

TEST(memory_freed_on_a_stream_is_at_once_there_for_the_same_stream)
{
	uint64_t before = stats_get(STAT_stream_reuses);
	const size_t sizes[] = {24 * MIB, 5 * MIB, 40000, 512};
	CUstream stream = core_stream();

	async_hold(stream);
	for (unsigned i = 0; i < 4; i++) {
		CUdeviceptr first = async_get(sizes[i], stream);

		assert_ok(cuMemsetD8Async(first, 1, sizes[i], stream));
		assert_ok(cuMemFreeAsync(first, stream));
		CUdeviceptr second = async_get(sizes[i] - 8, stream);
		assert_int_equal(first, second);
		assert_ok(cuMemsetD8Async(second, 2, 512 - 8, stream));
		assert_ok(cuMemFreeAsync(second, stream));
	}
	assert_int_equal(stats_get(STAT_stream_reuses), before + 4);
}

TEST(a_block_that_is_much_too_large_is_not_used)
{
	CUstream stream = core_stream();
	CUdeviceptr large = async_get(32 * MIB, stream);

	async_hold(stream);
	assert_ok(cuMemFreeAsync(large, stream));
	CUdeviceptr small = async_get(4 * MIB, stream);
	assert_true(small != large);
	assert_ok(cuMemFreeAsync(small, stream));
}

TEST(another_stream_does_not_get_it_before_the_free_has_passed)
{
	CUstream one = core_stream(), two = core_stream();
	CUdeviceptr first = async_get(8 * MIB, one);

	async_hold(one);
	assert_ok(cuMemFreeAsync(first, one));
	CUdeviceptr second = async_get(8 * MIB, two);
	assert_true(second != first);
	assert_ok(cuStreamSynchronize(two)); /* it waits for nobody */
	async_let_go(one);
	CUdeviceptr third = async_get(8 * MIB, two);
	assert_int_equal(third, first);
}

TEST(where_room_is_short_another_stream_waits_for_it_on_the_gpu)
{
	CUstream one = core_stream(), two = core_stream();
	unsigned long waits = sim_calls("cuStreamWaitEvent");
	unsigned char found = 0;
	CUdeviceptr first = async_get(60 * MIB, one);

	async_hold(one);
	assert_ok(cuMemsetD8Async(first, 0x11, 60 * MIB, one));
	assert_ok(cuMemFreeAsync(first, one));
	CUdeviceptr second = async_get(60 * MIB, two);
	assert_int_equal(second, first);
	assert_int_equal(sim_calls("cuStreamWaitEvent"), waits + 1);
	assert_ok(cuMemsetD8Async(second, 0x22, 60 * MIB, two));
	assert_int_equal(cuStreamQuery(two), CUDA_ERROR_NOT_READY);
	async_let_go(one);
	assert_ok(cuStreamSynchronize(two));
	assert_ok(cuMemcpyDtoH_v2(&found, second + 59 * MIB, 1));
	assert_int_equal(found, 0x22);
}

/* Spilled instead: because the pool forbids it, then because the driver refuses. */
TEST(a_stream_is_not_made_to_wait_where_that_may_not_be)
{
	CUstream one = core_stream(), two = core_stream();
	int off = 0, on = 1;
	CUdeviceptr first = async_get(60 * MIB, one);

	async_hold(one);
	assert_ok(cuMemFreeAsync(first, one));
	for (unsigned i = 0; i < 2; i++) {
		unsigned long waits = sim_calls("cuStreamWaitEvent");

		if (i)
			sim_fail("cuStreamWaitEvent", 1, CUDA_ERROR_UNKNOWN);
		else
			assert_ok(cuMemPoolSetAttribute(async_default_pool(),
							CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &off));
		CUdeviceptr second = async_get(60 * MIB, two);
		assert_true(second != first);
		assert_true(core_pages_at(second, 60 * MIB, 'H') > 0);
		assert_int_equal(sim_calls("cuStreamWaitEvent"), waits + i);
		assert_ok(cuMemPoolSetAttribute(async_default_pool(), CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
						&on));
		assert_ok(cuMemFreeAsync(second, two));
		assert_ok(cuStreamSynchronize(two));
		deferred_free_reap(0);
	}
	assert_false(sim_fail_pending());
}

/*
 * Its handle may come again, for a stream that is not behind it. The model never does that, so the question is asked.
 */
TEST(what_was_freed_on_a_destroyed_stream_is_no_streams_own)
{
	CUstream one = core_stream(), two = core_stream();
	struct deferred_free_want want = {.bytes = 8 * MIB, .most = 8 * MIB, .order = (uintptr_t)one};
	CUevent event;

	assert_ok(cuCtxGetCurrent(&want.context));
	CUdeviceptr address = async_get(8 * MIB, one);
	async_hold(two);
	assert_ok(cuEventCreate(&event, 0));
	assert_ok(cuEventRecord(event, two));
	assert_ok(cuStreamWaitEvent(one, event, 0));
	assert_ok(cuMemFreeAsync(address, one));
	struct ledger_row *row = deferred_free_take_behind(&want);
	assert_non_null(row);
	CHECK(row->key == address && !row->pending.event);
	row->pending.order = 0;
	ledger_commit(row);
	assert_ok(cuMemFreeAsync(address, one));
	assert_ok(cuStreamDestroy_v2(one));
	assert_null(deferred_free_take_behind(&want));
	assert_true(deferred_free_any());
	async_let_go(two);
	assert_ok(cuEventDestroy_v2(event));
}

static void *alloc_on_own_stream(void *argument)
{
	CUdeviceptr *address = argument;
	CUcontext context;

	CHECK(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS && cuCtxSetCurrent(context) == CUDA_SUCCESS);
	*address = async_get(8 * MIB, CU_STREAM_PER_THREAD);
	CHECK(cuMemFreeAsync(*address, CU_STREAM_PER_THREAD) == CUDA_SUCCESS);
	CHECK(cuStreamSynchronize(CU_STREAM_PER_THREAD) == CUDA_SUCCESS);
	CHECK(cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS);
	return NULL;
}

TEST(default_streams_of_threads_are_streams_of_their_own)
{
	CUdeviceptr mine = async_get(8 * MIB, CU_STREAM_PER_THREAD), others = 0, again = 0;

	async_hold(CU_STREAM_PER_THREAD);
	assert_ok(cuMemFreeAsync(mine, CU_STREAM_PER_THREAD));
	test_beside(alloc_on_own_stream, &others);
	assert_true(others && others != mine);
	assert_ok(cuMemAllocAsync_ptsz(&again, 8 * MIB, NULL)); /* the same stream by another name */
	assert_int_equal(again, mine);
	assert_ok(cuMemFreeAsync_ptsz(again, NULL));
}

TEST(the_legacy_stream_has_two_names)
{
	CUdeviceptr first = async_get(8 * MIB, NULL);

	async_hold(NULL);
	assert_ok(cuMemFreeAsync(first, NULL));
	CUdeviceptr second = async_get(8 * MIB, CU_STREAM_LEGACY);
	assert_int_equal(second, first);
	assert_ok(cuMemFreeAsync(second, CU_STREAM_LEGACY));
}

/* The default stream is one for each context, though it has one handle for all. */
TEST(the_legacy_streams_of_contexts_are_streams_of_their_own)
{
	CUcontext own = core_current();
	CUdeviceptr first = async_get(8 * MIB, NULL);

	async_hold(NULL);
	assert_ok(cuMemFreeAsync(first, NULL));
	CUcontext other = core_new_context();
	CUdeviceptr second = async_get(8 * MIB, NULL);
	assert_true(second != first);
	assert_ok(cuMemFreeAsync(second, NULL));
	assert_ok(cuCtxDestroy_v2(other));
	assert_ok(cuCtxSetCurrent(own));
}

/* Somebody else knows its physical memory: it goes back to the driver, whoever comes next on the stream. */
TEST(memory_that_left_the_process_is_not_used_again)
{
	CUstream stream = core_stream();
	CUdeviceptr first = async_get(8 * MIB, stream);

	struct heap *heap = atomic_load(&device_get(0)->heap);
	assert_true(heap_pin(heap, first, 1));
	heap_pin_end(heap, first, 1, PIN_LEFT);
	async_hold(stream);
	assert_ok(cuMemFreeAsync(first, stream));
	CUdeviceptr second = async_get(8 * MIB, stream);
	assert_true(second != first);
	assert_ok(cuMemFreeAsync(second, stream));
}

TEST(a_call_that_fails_is_out_of_memory_or_left_to_the_driver)
{
	static const char *const asked[] = {"cuStreamGetCtx", "cuDeviceGetMemPool"};
	CUstream stream = core_stream();
	CUdeviceptr address;
	bool failed = true;

	for (unsigned i = 0; i < 2; i++) {
		sim_fail(asked[i], 1, CUDA_ERROR_UNKNOWN);
		address = async_get(8 * MIB, stream);
		assert_false(sim_fail_pending());
		assert_null(device_of(address));
		assert_ok(cuMemFreeAsync(address, stream));
	}
	for (unsigned n = 1; failed && n < 100; n++) {
		sim_fail_any(n, CUDA_ERROR_OUT_OF_MEMORY);
		CUresult result = cuMemAllocAsync(&address, 12 * MIB, stream);
		failed = !sim_fail_pending();
		sim_fail_any(0, 0);
		assert_true(result == CUDA_SUCCESS || (failed && result == CUDA_ERROR_OUT_OF_MEMORY));
		if (result == CUDA_SUCCESS)
			assert_ok(cuMemFreeAsync(address, stream));
		assert_ok(cuStreamSynchronize(stream));
		deferred_free_reap(0);
		assert_int_equal(ledger_n_rows(), 0);
		heap_trim(atomic_load(&device_get(0)->heap), 0, 0);
		assert_int_equal(device_get(0)->budget.used - device_get(0)->pools_charged, 0);
	}
	assert_false(failed);
}

/* ---- mixtures ---- */

TEST(every_kind_of_free_takes_every_kind_of_block)
{
	CUstream stream = core_stream();
	CUdeviceptr ours = async_get(8 * MIB, stream);

	assert_ok(cuMemsetD8Async(ours, 1, 8 * MIB, stream));
	assert_ok(cuMemFree_v2(ours)); /* waits for the stream */
	assert_int_equal(cuMemFreeAsync(ours, stream), CUDA_ERROR_INVALID_VALUE);
	CUdeviceptr plain = core_alloc(8 * MIB);
	assert_ok(cuMemFreeAsync(plain, stream));
	assert_int_equal(cuMemFree_v2(plain), CUDA_ERROR_INVALID_VALUE);
	async_leave_to_pools(true);
	CUdeviceptr drivers = async_get(8 * MIB, stream);
	async_leave_to_pools(false);
	assert_null(device_of(drivers));
	assert_ok(cuMemFree_v2(drivers));
}

TEST(what_a_capturing_stream_allocates_is_a_node_of_the_driver)
{
	uint64_t nodes = stats_get(STAT_graph_allocations);
	CUstream stream = core_stream(), other = core_stream();
	CUdeviceptr ours = async_get(8 * MIB, other);
	cuuint64_t reserved = 0;
	CUgraph graph;

	assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CUdeviceptr node = async_get(8 * MIB, stream);
	assert_null(device_of(node));
	assert_int_equal(stats_get(STAT_graph_allocations), nodes + 1);
	assert_ok(cuMemsetD8Async(node, 3, 8 * MIB, stream));
	/* The heap's is not the graph's to free; a stream that does not capture frees and gets as ever. */
	assert_int_equal(cuMemFreeAsync(ours, stream), CUDA_ERROR_INVALID_VALUE);
	assert_ok(cuMemFreeAsync(ours, other));
	CUdeviceptr again = async_get(8 * MIB, other);
	assert_non_null(device_of(again));
	assert_ok(cuMemFreeAsync(node, stream));
	assert_ok(cuStreamEndCapture(stream, &graph));
	CUgraphExec exec = core_instance(graph);
	assert_ok(cuGraphDestroy(graph));
	for (unsigned i = 0; i < 3; i++)
		assert_ok(cuGraphLaunch(exec, stream));
	assert_ok(cuStreamSynchronize(stream));
	/* What graphs reserve is charged. */
	assert_ok(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
	assert_int_equal(reserved, 8 * MIB);
	CUdeviceptr more = async_get(512, other);
	assert_int_equal(device_get(0)->pools_charged, reserved);
	assert_ok(cuGraphExecDestroy(exec));
	assert_ok(cuDeviceGraphMemTrim(0));
	assert_ok(cuMemFreeAsync(again, other));
	assert_ok(cuMemFreeAsync(more, other));
	assert_ok(cuMemAlloc_v2(&more, 4 * MIB));
	assert_int_equal(device_get(0)->pools_charged, 0);
	assert_ok(cuMemFree_v2(more));
}

TEST(a_free_of_a_node_that_the_graph_does_not_free_goes_to_the_driver)
{
	CUstream stream = core_stream();
	CUgraph graph;

	assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CUdeviceptr node = async_get(4 * MIB, stream);
	assert_ok(cuMemsetD8Async(node, 3, 4 * MIB, stream));
	assert_ok(cuStreamEndCapture(stream, &graph));
	CUgraphExec exec = core_instance(graph);
	for (unsigned i = 0; i < 2; i++) {
		assert_ok(cuGraphLaunch(exec, stream));
		assert_ok(i ? cuMemFree_v2(node) : cuMemFreeAsync(node, stream));
	}
	assert_ok(cuGraphExecDestroy(exec));
	assert_ok(cuGraphDestroy(graph));
	assert_ok(cuDeviceGraphMemTrim(0));
}

EACH_TEST(NULL, async_check)

START(core_start(ASYNC_SETTINGS))
