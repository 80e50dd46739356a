// SPDX-License-Identifier: Apache-2.0
/*
 * model_work_test.c: what the simulated GPU promises (model.h) about work: kernels and their parameters, streams,
 * captures and graphs.
 */
#include "model.h"

/* ---- kernels ---- */

TEST(pointers_inside_struct_parameters_are_translated)
{
	unsigned char add = 3;
	struct model_pair pair;
	void *args[] = {&add, &pair};
	size_t offset, bytes;
	CUdeviceptr a = model_alloc(4000), b = model_alloc(4000);

	ok(model_launch_fill(a, 100, 1000, 0));
	pair = (struct model_pair){(uint32_t *)a, (uint32_t *)b, 1000};
	ok(cuLaunchKernel(model_pair, 1, 1, 1, 1, 1, 1, 0, 0, args, NULL));
	model_expect(b, 103, 1000);
	ok(cuFuncGetParamInfo(model_pair, 1, &offset, &bytes));
	assert_int_equal(offset, 8);
	assert_int_equal(bytes, sizeof(pair));
	is(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(model_pair, 2, &offset, &bytes));
}

TEST(pointer_read_from_device_memory_works_through_sim_pointer)
{
	CUdeviceptr table;
	void *args[] = {&table};
	uint32_t got;

	ok(cuMemAlloc(&table, 8));
	CUdeviceptr target = model_alloc(4);
	ok(cuMemcpyHtoD(table, &target, 8));
	ok(cuLaunchKernel(model_chase, 1, 1, 1, 1, 1, 1, 0, 0, args, NULL));
	ok(cuMemcpyDtoH(&got, target, 4));
	assert_int_equal(got, 77);
}

TEST(foreign_image_is_invalid)
{
	static const char ptx[] = ".version 8.0";
	CUmodule module;

	is(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, ptx));
}

/* ---- streams ---- */

TEST(work_is_asynchronous_and_in_order)
{
	CUstream one = model_stream(), two = model_stream();
	CUevent event = model_event(0);
	CUdeviceptr at = model_alloc(4096);

	ok(model_launch_gate(one));
	ok(model_launch_fill(at, 9, 1024, one));
	ok(cuEventRecord(event, one));
	ok(cuStreamWaitEvent(two, event, 0));
	ok(cuMemsetD8Async(at, 0, 4, two));
	is(CUDA_ERROR_NOT_READY, cuEventQuery(event));
	is(CUDA_ERROR_NOT_READY, cuStreamQuery(two));
	atomic_store(&model_gate, true);
	ok(cuStreamSynchronize(two));
	ok(cuEventQuery(event));
	model_expect(at + 4, 10, 1023);
}

TEST(legacy_stream_waits_for_blocking_streams_alone)
{
	CUstream blocking;
	CUdeviceptr at = model_alloc(4096);

	ok(cuStreamCreate(&blocking, 0));
	CUstream free_stream = model_stream();
	ok(model_launch_gate(blocking));
	ok(model_launch_fill(at, 1, 10, 0));
	ok(model_launch_fill(at + 2048, 1, 10, free_stream));
	ok(cuStreamSynchronize(free_stream));
	is(CUDA_ERROR_NOT_READY, cuStreamQuery(0));
	atomic_store(&model_gate, true);
	ok(cuStreamSynchronize(0));
}

static void *open_gate_later(void *argument)
{
	usleep(30000);
	atomic_store((atomic_bool *)argument, true);
	atomic_store(&model_gate, true);
	return NULL;
}

TEST(free_waits_for_submitted_work)
{
	atomic_bool opened = false;
	CUstream stream = model_stream();
	CUdeviceptr at = model_alloc(4096);

	ok(model_launch_gate(stream));
	pthread_t thread = test_thread(open_gate_later, &opened);
	ok(cuMemFree(at));
	assert_true(atomic_load(&opened));
	pthread_join(thread, NULL);
}

TEST(destroyed_stream_finishes_its_work)
{
	CUdeviceptr at = model_alloc(4096);

	CUstream stream = model_stream();
	ok(model_launch_gate(stream));
	ok(model_launch_fill(at, 3, 100, stream));
	ok(cuStreamDestroy(stream));
	is(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream));
	atomic_store(&model_gate, true);
	ok(cuCtxSynchronize());
	model_expect(at, 3, 100);
}

TEST(held_work_stands_until_released)
{
	CUdeviceptr at = model_alloc(4096);

	CUstream stream = model_stream();
	sim_hold();
	ok(model_launch_fill(at, 3, 100, stream));
	is(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
	sim_release();
	ok(cuStreamSynchronize(stream));
}

TEST(stream_waits_for_a_value)
{
	CUdeviceptr device;
	uint32_t *flag;

	ok(cuMemHostAlloc((void **)&flag, 4096, 0));
	__atomic_store_n(flag, 0, __ATOMIC_RELEASE);
	ok(cuMemHostGetDevicePointer(&device, flag, 0));
	CUstream stream = model_stream();
	ok(cuStreamWaitValue32(stream, device, 1, CU_STREAM_WAIT_VALUE_GEQ));
	ok(cuStreamWriteValue32(stream, device + 4, 5, 0));
	is(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
	ok(cuStreamSynchronize(stream));
	assert_int_equal(flag[1], 5);
}

TEST(stream_ordered_free_returns_memory_in_its_turn)
{
	CUdeviceptr at;
	char byte;
	CUstream stream = model_stream();

	ok(cuMemAllocAsync(&at, 8 * MIB, stream));
	ok(model_launch_gate(stream));
	ok(model_launch_fill(at, 1, 100, stream));
	ok(cuMemFreeAsync(at, stream));
	is(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(at, stream));
	assert_true(sim_peek(at, &byte, 1));
	atomic_store(&model_gate, true);
	ok(cuStreamSynchronize(stream));
	assert_false(sim_peek(at, &byte, 1));
	assert_int_equal(sim_live().device_bytes, 0);
	ok(cuMemAlloc(&at, 100));
	ok(cuMemFreeAsync(at, stream));
	ok(cuStreamDestroy(stream));
	ok(cuCtxSynchronize());
}

/* ---- capture and graphs ---- */

TEST(captured_work_runs_at_each_launch)
{
	size_t n = 0;
	CUdeviceptr at = model_alloc(4096);

	ok(cuMemsetD8(at, 0, 4096));
	CUstream stream = model_stream(), side = model_stream();
	CUevent fork_event = model_event(0), join_event = model_event(0);
	ok(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ok(model_launch_fill(at, 8, 100, stream));
	ok(cuEventRecord(fork_event, stream));
	ok(cuStreamWaitEvent(side, fork_event, 0));
	ok(model_launch_fill(at + 2048, 9, 100, side));
	ok(cuEventRecord(join_event, side));
	ok(cuStreamWaitEvent(stream, join_event, 0));
	CUgraph graph = model_captured(stream);
	ok(cuGraphGetNodes(graph, NULL, &n));
	assert_int_equal(n, 2);
	CUgraphExec exec = model_instance(graph);
	ok(cuGraphDestroy(graph));
	for (int i = 0; i < 2; i++) {
		ok(cuMemsetD8(at, 0, 4096));
		ok(cuCtxSynchronize());
		ok(cuGraphLaunch(exec, stream));
		ok(cuStreamSynchronize(stream));
		model_expect(at, 8, 100);
		model_expect(at + 2048, 9, 100);
	}
}

/* ---- lists of copies ---- */

/* Of pinned and of pageable memory, changed after the call and before its turn, by every order. */
TEST(a_list_reads_its_sources_when_it_says)
{
	static const CUmemcpySrcAccessOrder orders[] = {CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL,
							CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	CUmemcpyAttributes attributes[2] = {{.srcAccessOrder = orders[0]}, {.srcAccessOrder = orders[1]}};
	unsigned pageable[4] = {1, 1, 1, 1}, *pinned, got[8];
	size_t sizes[4] = {4, 4, 4, 4}, first[2] = {0, 2};
	CUdeviceptr dsts[4], srcs[4];
	CUstream stream = model_stream();

	CUdeviceptr at = model_alloc(32);
	ok(cuMemHostAlloc((void **)&pinned, 16, 0));
	for (int i = 0; i < 4; i++) {
		pinned[i] = 1;
		dsts[i] = at + 4 * (unsigned)i;
		srcs[i] = (CUdeviceptr)(i % 2 ? &pageable[i] : &pinned[i]);
	}
	ok(model_launch_gate(stream));
	ok(cuMemcpyBatchAsync(dsts, srcs, sizes, 4, attributes, first, 2, stream));
	for (int i = 0; i < 4; i++) {
		CUDA_MEMCPY3D_BATCH_OP op = {
		    .src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = srcs[i]},
		    .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = dsts[i] + 16},
		    .extent = {4, 1, 1},
		    .srcAccessOrder = orders[i / 2]};

		ok(cuMemcpy3DBatchAsync(1, &op, 0, stream));
		op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
		is(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(1, &op, 0, stream));
	}
	for (int i = 0; i < 4; i++)
		pinned[i] = pageable[i] = 2;
	atomic_store(&model_gate, true);
	ok(cuStreamSynchronize(stream));
	ok(cuMemcpyDtoH(got, at, 32));
	for (int i = 0; i < 8; i++)
		assert_int_equal(got[i], i % 4 < 2 ? 1 : 2);
	is(CUDA_ERROR_INVALID_VALUE, cuMemcpyBatchAsync(dsts, srcs, sizes, 4, NULL, NULL, 0, stream));
	is(CUDA_ERROR_INVALID_VALUE, cuMemcpyBatchAsync(dsts, srcs, sizes, 4, attributes, first, 2, CU_STREAM_LEGACY));
}

EACH_TEST(model_set_up, model_tear_down)
