// SPDX-License-Identifier: Apache-2.0
/*
 * model_peer_work_test.c: what the simulated GPU promises (model.h) about copies and graphs of several devices: who
 * makes a copy, and for which device what a graph holds runs.
 */
#include "model_peer.h"

/* ---- copies ---- */

/* A copy from `from` to `to` by every form that has no contexts in it; each must say `expected`. */
static void copy_by_all(CUdeviceptr to, CUdeviceptr from, CUresult expected)
{
	CUDA_MEMCPY2D two = form_rows(to, from, 4096, 4096, BLOCK / 4096);
	CUDA_MEMCPY3D three = form_box(to, from, 4096, 4096, 64, BLOCK / 4096 / 64);
	CUmemcpyAttributes in_order = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	size_t bytes = BLOCK, first = 0;

	two.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
	is(expected, cuMemcpyDtoD(to, from, BLOCK));
	is(expected, cuMemcpyDtoDAsync(to, from, BLOCK, 0));
	is(expected, cuMemcpy(to, from, BLOCK));
	is(expected, cuMemcpyAsync(to, from, BLOCK, 0));
	is(expected, cuMemcpy2D(&two));
	is(expected, cuMemcpy2DAsync(&two, 0));
	is(expected, cuMemcpy3D(&three));
	is(expected, cuMemcpy3DAsync(&three, 0));
	is(expected, cuMemcpyBatchAsync(&to, &from, &bytes, 1, &in_order, &first, 1, CU_STREAM_PER_THREAD));
	ok(cuCtxSynchronize());
}

TEST(allocated_memory_is_copied_from_anywhere_to_anywhere)
{
	CUdeviceptr one = peer_alloc(1), two = peer_alloc(2);

	ok(peer_touch(1, one, 10));
	ok(peer_touch(2, two, 90));
	for (int device = 0; device < DEVICES; device++) {
		peer_be(device);
		copy_by_all(two, one, CUDA_SUCCESS);
		assert_true(peer_holds(two, 10));
	}
	ok(peer_touch(2, two, 50));
	ok(cuMemcpyPeer(one, peer_context[1], two, peer_context[2], BLOCK));
	ok(cuCtxSynchronize());
	assert_true(peer_holds(one, 50));
	is(CUDA_ERROR_INVALID_CONTEXT, cuMemcpyPeer(one, NULL, two, peer_context[2], BLOCK));
}

TEST(mapped_memory_is_copied_by_who_may_touch_it)
{
	struct mapped one = peer_map_for(1), two = peer_map_for(2);
	CUDA_MEMCPY3D_PEER peer = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
				   .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				   .srcDevice = two.at,
				   .dstDevice = one.at,
				   .srcContext = peer_context[2],
				   .dstContext = peer_context[1],
				   .WidthInBytes = BLOCK,
				   .Height = 1,
				   .Depth = 1};
	uint32_t word = 0;

	ok(peer_touch(1, one.at, 10));
	for (int device = 0; device < DEVICES; device++) {
		peer_be(device);
		copy_by_all(two.at, one.at, CUDA_ERROR_INVALID_VALUE);
		is(device == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(&word, one.at, 4));
		is(device == 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(two.at, &word, 4));
	}
	peer_be(3);
	ok(cuMemcpyPeerAsync(two.at, peer_context[2], one.at, peer_context[1], BLOCK, 0));
	ok(cuCtxSynchronize());
	assert_true(peer_holds(two.at, 10));
	is(CUDA_ERROR_INVALID_VALUE, cuMemcpyPeer(two.at, peer_context[1], one.at, peer_context[1], BLOCK));
	ok(peer_touch(2, two.at, 70));
	ok(cuMemcpy3DPeer(&peer));
	ok(cuCtxSynchronize());
	assert_true(peer_holds(one.at, 70));
	ok(peer_set_access(two.at, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	ok(peer_set_access(one.at, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
	ok(peer_touch(1, one.at, 30));
	peer_be(0);
	copy_by_all(two.at, one.at, CUDA_SUCCESS);
	assert_true(peer_holds(two.at, 30));
	is(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD(one.at, two.at, BLOCK));
	peer_unmap(one);
	peer_unmap(two);
}

/* What was captured from the stream of another device runs for that device. */
TEST(nodes_belong_to_the_device_of_their_stream)
{
	CUdeviceptr at = peer_alloc(1);
	CUstream there = model_stream();
	CUevent join = model_event(0);

	peer_be(0);
	CUstream here = model_stream();
	CUevent fork_event = model_event(0);
	ok(cuStreamBeginCapture(here, CU_STREAM_CAPTURE_MODE_RELAXED));
	ok(cuEventRecord(fork_event, here));
	ok(cuStreamWaitEvent(there, fork_event, 0));
	ok(model_launch_fill(at, 12, WORDS, there));
	peer_be(1);
	ok(cuEventRecord(join, there));
	peer_be(0);
	ok(cuStreamWaitEvent(here, join, 0));
	CUgraph graph = model_captured(here);
	CUgraphExec instance = model_instance(graph);
	ok(cuGraphLaunch(instance, here));
	ok(cuStreamSynchronize(here));
	assert_true(peer_holds(at, 12));
}

/* Added by hand, they reach what that context does, whatever stream the graph is launched in. */
TEST(kernel_nodes_run_in_the_context_of_their_function)
{
	CUdeviceptr at = peer_alloc(0);
	unsigned char add = 13;
	struct model_pair pair = {(uint32_t *)at, (uint32_t *)(at + MIB), 1};
	void *params[] = {&add, &pair};
	CUDA_KERNEL_NODE_PARAMS node = form_kernel(model_pair, params, NULL);
	CUgraphNode added;
	CUstream there;
	uint32_t got;

	ok(peer_touch(0, at, 40));
	CUgraph graph = model_graph();
	ok(cuGraphAddKernelNode(&added, graph, NULL, 0, &node));
	CUgraphExec instance = model_instance(graph);
	for (int change = 0; change < 2; change++) {
		peer_be(1);
		ok(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
		ok(cuGraphLaunch(instance, there));
		ok(cuStreamSynchronize(there));
		ok(cuStreamDestroy(there));
		assert_true(sim_peek(at + MIB, &got, 4));
		assert_int_equal(got, 40 + add);
		add = 14;
		peer_be(0);
		ok(cuGraphExecKernelNodeSetParams(instance, added, &node));
	}
}

EACH_TEST(peer_set_up, peer_tear_down)
