// SPDX-License-Identifier: Apache-2.0
/*
 * What launches of graphs name (shim/submit/graph.h), with the entry points themselves: cuGraphInstantiate... in here
 * are ours, all else is the simulated driver's. The functions of submission.h are fakes of this file (CMakeLists.txt
 * renames them).
 */
#include "test/core/core.h"
#include "test/core/graph_help.h"

#include "shim/process/process.h"
#include "shim/submit/graph.h"
#include "shim/submit/pointer_arrays.h"

/* ---- node types ---- */

TEST(a_kernel_node_names_every_word_of_its_parameters_that_may_be_an_address)
{
	CUgraph graph = graph_new();
	struct mix_arguments a = mix_of(1);

	add_mix(graph, &a);
	CUgraphExec exec = instantiate(graph);
	EXPECT(exec, {a.first, 0}, {a.second, 0}, {a.inner.third, 0}, {a.inner.fourth, 0});
}

TEST(a_kernel_node_with_a_buffer_of_parameters_is_read_too)
{
	CUgraph graph = graph_new();
	struct mix_arguments a = mix_of(1);
	size_t bytes = sizeof(a);
	/* The driver hands the size back first, whatever the order was. */
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_BUFFER_POINTER, &a, CU_LAUNCH_PARAM_END};
	CUDA_KERNEL_NODE_PARAMS p = form_kernel(mix_function, NULL, NULL);
	CUgraphNode node;

	p.extra = extra;
	assert_ok(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &p));
	CUgraphExec exec = instantiate(graph);
	EXPECT(exec, {a.first, 0}, {a.second, 0}, {a.inner.third, 0}, {a.inner.fourth, 0});

	/* And when parameters are set that way. */
	struct mix_arguments b = mix_of(2);
	extra[3] = &b;
	assert_ok(cuGraphExecKernelNodeSetParams_v2(exec, node, &p));
	EXPECT(exec, {a.first, 0}, {a.second, 0}, {a.inner.third, 0}, {a.inner.fourth, 0}, {b.first, 0}, {b.second, 0},
	       {b.inner.third, 0}, {b.inner.fourth, 0});
}

TEST(a_kernel_of_a_library_and_one_without_parameters_are_read)
{
	CUDA_KERNEL_NODE_PARAMS p = form_kernel(NULL, NULL, NULL);
	struct mix_arguments a = mix_of(1);
	CUgraph graph = graph_new();
	void *params[4];
	CUgraphNode node;

	mix_params(&a, params);
	p.kern = mix_kernel;
	p.kernelParams = params;
	assert_ok(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &p));
	p = form_kernel(plain_function, NULL, NULL);
	assert_ok(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &p));
	CUgraphExec exec = instantiate(graph);
	EXPECT(exec, {a.first, 0}, {a.second, 0}, {a.inner.third, 0}, {a.inner.fourth, 0});
}

TEST(copies_name_both_sides_from_the_first_to_the_last_byte)
{
	CUgraph graph = graph_new();
	CUDA_MEMCPY3D copy = form_line(memory + 4096, memory, 1000);

	add_copy(graph, &copy);
	copy = (CUDA_MEMCPY3D){
	    .srcMemoryType = CU_MEMORYTYPE_DEVICE,
	    .srcDevice = memory + MIB,
	    .srcPitch = 512,
	    .srcHeight = 8,
	    .srcXInBytes = 16,
	    .srcY = 2,
	    .srcZ = 1,
	    .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
	    .dstDevice = memory + 2 * MIB,
	    .dstPitch = 128,
	    .dstY = 1,
	    .WidthInBytes = 64,
	    .Height = 4,
	    .Depth = 3,
	};
	copy.dstHeight = 5;
	add_copy(graph, &copy);
	CUgraphExec exec = instantiate(graph);
	EXPECT(exec, {memory, 1000}, {memory + 4096, 1000},
	       {memory + MIB + 512 * 8 + 2 * 512 + 16, 2 * 512 * 8 + 3 * 512 + 64},
	       {memory + 2 * MIB + 128, 2 * 128 * 5 + 3 * 128 + 64});
}

TEST(sets_name_their_rows)
{
	CUgraph graph = graph_new();

	add_set(graph, (CUDA_MEMSET_NODE_PARAMS){.dst = memory, .elementSize = 4, .width = 100, .height = 1});
	add_set(graph, (CUDA_MEMSET_NODE_PARAMS){
			   .dst = memory + MIB, .elementSize = 2, .width = 10, .height = 6, .pitch = 512});
	CUgraphExec exec = instantiate(graph);
	EXPECT(exec, {memory, 400}, {memory + MIB, 5 * 512 + 20});
}

TEST(waits_for_values_and_writes_of_them_name_them)
{
	CUstreamBatchMemOpParams ops[4] = {
	    {.waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, memory, .flags = CU_STREAM_WAIT_VALUE_GEQ}},
	    {.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_64, memory + 64, .value64 = 3}},
	    {.memoryBarrier = {CU_STREAM_MEM_OP_BARRIER, 0}},
	    {.flushRemoteWrites = {CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES, 0}},
	};
	CUDA_BATCH_MEM_OP_NODE_PARAMS p = {.ctx = context, .count = 4, .paramArray = ops};
	CUgraph graph = graph_new();
	CUgraphNode node;

	assert_ok(cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, &p));
	CUgraphExec exec = instantiate(graph);
	EXPECT(exec, {memory, 4}, {memory + 64, 8});
	ops[0].waitValue.address = memory + 128;
	assert_ok(cuGraphExecBatchMemOpNodeSetParams(exec, node, &p));
	EXPECT(exec, {memory, 4}, {memory + 64, 8}, {memory + 128, 4});
}

TEST(nodes_that_touch_no_memory_of_ours_name_nothing)
{
	CUDA_HOST_NODE_PARAMS host = {.fn = do_nothing, .userData = (void *)(uintptr_t)memory};
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = {.bytesize = 4096};
	CUgraph graph = graph_new(), empty = graph_new();
	CUgraphNode node;

	assert_ok(cuGraphAddHostNode(&node, graph, NULL, 0, &host));
	assert_ok(cuGraphAddEmptyNode(&node, graph, NULL, 0));
	assert_ok(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &alloc));
	assert_ok(cuGraphAddMemFreeNode(&node, graph, &node, 1, alloc.dptr));
	CUgraphExec exec = instantiate(graph), of_empty = instantiate(empty);
	EXPECT_NOTHING(exec);
	EXPECT_NOTHING(of_empty);
}

TEST(an_address_is_named_once_with_its_farthest_reach)
{
	CUgraph graph = graph_new();
	struct mix_arguments a = {.first = memory, .second = memory};

	for (size_t i = 0; i < 3; i++) {
		CUDA_MEMCPY3D copy = form_line(memory + MIB, memory, 1000 + 100 * (i == 1));

		add_copy(graph, &copy);
		add_mix(graph, &a);
	}
	CUgraphExec exec = instantiate(graph);
	/* A pointer of unknown reach is another name than a copy's. */
	EXPECT(exec, {memory, 1100}, {memory + MIB, 1100}, {memory, 0});
}

/* ---- graphs in graphs ---- */

TEST(nodes_that_use_a_name_are_counted)
{
	CUgraph graph = graph_new(), child = graph_new();
	struct mix_arguments a = mix_of(1), b = mix_of(2);
	CUDA_MEMCPY3D copy = form_line(a.first, b.first, 64);
	CUgraphNode node;

	/* However often a node names it, it is one. */
	b.inner.third = b.second = b.first;
	for (int i = 0; i < 3; i++)
		add_mix(graph, &a);
	add_mix(graph, &b);
	add_mix(child, &b);
	assert_ok(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
	add_copy(graph, &copy);
	CUgraphExec exec = instantiate(graph);
	assert_int_equal(uses_of(exec, a.second), 3);
	assert_int_equal(uses_of(exec, a.inner.fourth), 3);
	assert_int_equal(uses_of(exec, b.first), 2);
	assert_int_equal(uses_of(exec, b.inner.fourth), 2);
	assert_int_equal(uses_of(exec, a.first + 8), 0);
	assert_ok(cuGraphDestroy(child));

	/* Also where the set has grown meanwhile: each of these nodes names more than there was room for. */
	struct wide wide;
	void *params[] = {&wide};
	CUDA_KERNEL_NODE_PARAMS p = form_kernel(wide_function, params, NULL);
	graph = graph_new();
	for (size_t i = 0; i < 3; i++) {
		wide_of(&wide, i * (WIDE - 1));
		wide.at[WIDE - 1] = wide.at[0] = memory;
		assert_ok(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &p));
	}
	exec = instantiate(graph);
	assert_int_equal(uses_of(exec, memory), 3);
	assert_int_equal(uses_of(exec, memory + 8), 1);
}

TEST(child_graphs_are_read_with_their_parents)
{
	CUgraph inner = graph_new(), middle = graph_new(), outer = graph_new();
	struct mix_arguments a = mix_of(1);
	CUgraphNode node;

	add_mix(inner, &a);
	assert_ok(cuGraphAddChildGraphNode(&node, middle, NULL, 0, inner));
	assert_ok(cuGraphAddChildGraphNode(&node, outer, NULL, 0, middle));
	add_set(outer, (CUDA_MEMSET_NODE_PARAMS){.dst = memory, .elementSize = 1, .width = 10, .height = 1});
	CUgraphExec exec = instantiate(outer);
	EXPECT(exec, {a.first, 0}, {a.second, 0}, {a.inner.third, 0}, {a.inner.fourth, 0}, {memory, 10});

	/* Another child in its place. */
	CUgraph other = graph_new();
	add_set(other, (CUDA_MEMSET_NODE_PARAMS){.dst = memory + MIB, .elementSize = 1, .width = 20, .height = 1});
	assert_ok(cuGraphExecChildGraphNodeSetParams(exec, node, other));
	EXPECT(exec, {a.first, 0}, {a.second, 0}, {a.inner.third, 0}, {a.inner.fourth, 0}, {memory, 10},
	       {memory + MIB, 20});
}

TEST(graphs_nested_without_end_are_unknown)
{
	CUgraph graph = graph_new();

	for (int i = 0; i < 17; i++) {
		CUgraph around = graph_new();
		CUgraphExec exec = instantiate(graph);
		CUgraphNode node;

		EXPECT_NOTHING(exec);
		assert_ok(cuGraphExecDestroy(exec));
		assert_ok(cuGraphAddChildGraphNode(&node, around, NULL, 0, graph));
		assert_ok(cuGraphDestroy(graph));
		graph = around;
	}
	CUgraphExec exec = instantiate(graph);
	expect_unknown(exec);
}

/* ---- what cannot be known ---- */

TEST(a_conditional_node_makes_its_graph_unknown)
{
	CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
	CUgraph graph = graph_new();
	CUgraphNode node;

	assert_ok(cuGraphConditionalHandleCreate(&p.conditional.handle, graph, context, 1, 1));
	p.conditional.type = CU_GRAPH_COND_TYPE_IF;
	p.conditional.size = 1;
	p.conditional.ctx = context;
	assert_ok(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &p));
	add_set(p.conditional.phGraph_out[0],
		(CUDA_MEMSET_NODE_PARAMS){.dst = memory, .elementSize = 1, .width = 10, .height = 1});
	CUgraphExec exec = instantiate(graph);
	expect_unknown(exec);
	assert_int_equal(graph_n_unknown(), 1);
	assert_ok(cuGraphLaunch(exec, NULL));
	assert_ok(cuCtxSynchronize());
}

TEST(a_kernel_that_the_device_may_update_makes_its_graph_unknown)
{
	CUkernelNodeAttrValue value = {.deviceUpdatableKernelNode.deviceUpdatable = 1};
	struct mix_arguments a = mix_of(1);
	CUgraph graph = graph_new();
	CUgraphNode node = add_mix(graph, &a);

	assert_ok(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value));
	CUgraphExec exec = instantiate(graph);
	expect_unknown(exec);
}

static CUgraphExec instantiate_for_device(CUgraph graph)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS p = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH};
	CUgraphExec exec;

	assert_ok(cuGraphInstantiateWithParams(&exec, graph, &p));
	return exec;
}

TEST(an_instance_for_launches_from_the_device_stays_unknown)
{
	struct mix_arguments a = mix_of(1);
	CUgraph graph = graph_new();

	add_mix(graph, &a);
	CUgraphExec exec = instantiate_for_device(graph);
	expect_unknown(exec);
	assert_ok(cuGraphExecUpdate_v2(exec, graph, NULL));
	expect_unknown(exec);
	assert_int_equal(graph_n_unknown(), 1);
	assert_ok(cuGraphExecDestroy(exec));
}

/* It may be what launches the other one. */
TEST(while_the_device_may_launch_one_no_other_is_known)
{
	struct mix_arguments a = mix_of(1);
	CUgraph graph = graph_new();

	add_mix(graph, &a);
	CUgraphExec exec = instantiate(graph);
	assert_false(names_of(exec)->unknown);
	CUgraphExec sealed = instantiate_for_device(graph);
	assert_true(names_of(exec)->unknown);
	assert_true(names_of(exec)->n > 0);
	assert_ok(cuGraphExecDestroy(sealed));
	assert_false(names_of(exec)->unknown);
}

TEST(an_instance_that_was_made_behind_our_back_is_unknown)
{
	struct mix_arguments a = mix_of(1);
	CUgraph graph = graph_new();
	CUgraphNode node = add_mix(graph, &a);
	CUgraphExec exec;

	assert_ok(REAL(cuGraphInstantiateWithFlags)(&exec, graph, 0));
	expect_unknown(exec);
	assert_int_equal(graph_n_unknown(), 0);
	set_mix(exec, node, &a);
	expect_unknown(exec);
	assert_ok(cuGraphExecUpdate_v2(exec, graph, NULL));
	expect_unknown(exec);
	assert_ok(cuGraphExecDestroy(exec));
}

/* ---- captures ---- */

TEST(a_captured_graph_is_read_and_another_capture_is_not_disturbed)
{
	struct mix_arguments a = mix_of(1);
	void *params[4];
	CUgraph graph, captured;

	mix_params(&a, params);
	CUstream stream = core_stream(), busy = core_stream();
	assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	assert_ok(cuLaunchKernel(mix_function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
	assert_ok(cuMemcpyDtoDAsync_v2(memory + MIB, memory, 1000, stream));
	assert_ok(cuMemsetD8Async(memory + 8192, 1, 100, stream));
	assert_ok(cuMemsetD2D32Async(memory + 2 * MIB, 512, 1, 10, 6, stream));
	assert_ok(cuStreamWriteValue32_v2(stream, memory + 64, 3, 0));
	assert_ok(cuStreamEndCapture(stream, &graph));
	/* In another mode instantiating would itself disturb it. */
	assert_ok(cuStreamBeginCapture_v2(busy, CU_STREAM_CAPTURE_MODE_RELAXED));
	CUgraphExec exec = instantiate(graph);
	assert_ok(cuMemsetD8Async(memory, 1, 100, busy));
	assert_ok(cuStreamEndCapture(busy, &captured));
	assert_ok(cuGraphDestroy(captured));
	assert_ok(cuStreamBeginCapture_v2(busy, CU_STREAM_CAPTURE_MODE_GLOBAL));
	assert_ok(cuGraphExecUpdate_v2(exec, graph, NULL));
	EXPECT(exec, {a.first, 0}, {a.second, 0}, {a.inner.third, 0}, {a.inner.fourth, 0}, {memory, 1000},
	       {memory + MIB, 1000}, {memory + 8192, 100}, {memory + 2 * MIB, 5 * 512 + 40}, {memory + 64, 4});
	assert_ok(cuMemsetD8Async(memory, 1, 100, busy));
	assert_ok(cuStreamEndCapture(busy, &captured));
	assert_ok(cuGraphDestroy(captured));
	assert_ok(cuGraphDestroy(graph));
}

TEST(every_spelling_of_instantiate_is_seen)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS p = {.flags = 0};
	struct mix_arguments a = {.first = memory};
	CUgraph graph = graph_new();
	CUgraphExec exec[5], none;

	add_mix(graph, &a);
	assert_ok(cuGraphInstantiate(&exec[0], graph, NULL, NULL, 0));
	assert_ok(cuGraphInstantiate_v2(&exec[1], graph, NULL, NULL, 0));
	assert_ok(cuGraphInstantiateWithFlags(&exec[2], graph, 0));
	assert_ok(cuGraphInstantiateWithParams(&exec[3], graph, &p));
	assert_ok(cuGraphInstantiateWithParams_ptsz(&exec[4], graph, &p));
	/* What the driver refuses is not looked at. */
	assert_int_equal(cuGraphInstantiateWithParams(&none, graph, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuGraphInstantiateWithParams_ptsz(&none, graph, NULL), CUDA_ERROR_INVALID_VALUE);
	for (int i = 0; i < 5; i++) {
		EXPECT(exec[i], {memory, 0});
		assert_ok(cuGraphExecDestroy(exec[i]));
	}
	sim_fail("cuGraphInstantiateWithFlags", 1, CUDA_ERROR_UNKNOWN);
	assert_int_equal(cuGraphInstantiateWithFlags(&exec[0], graph, 0), CUDA_ERROR_UNKNOWN);
}

/* ---- arrays of pointers ---- */

static void copy_array(uint64_t function, CUdeviceptr dst, const CUdeviceptr *words, size_t bytes)
{
	static struct submission use;

	use.function = function;
	use.n = 0;
	if (words)
		pointer_arrays_copied(&use, dst, (uintptr_t)words, bytes);
	else
		pointer_arrays_look(&use, dst, NULL);
}

/* Kernels that were launched with it before take nothing away from the graph. */
TEST(what_an_array_points_to_is_named)
{
	CUdeviceptr array = memory + 7 * MIB, words[2] = {memory + 5 * MIB, memory + 6 * MIB};
	CUgraph graph = graph_new();
	struct mix_arguments a = mix_of(1);

	a.second = array;
	add_mix(graph, &a);
	CUgraphExec exec = instantiate(graph);
	EXPECT(exec, {a.first, 0}, {array, 0}, {a.inner.third, 0}, {a.inner.fourth, 0});
	copy_array(0, array, words, sizeof(words));
	for (uint64_t function = 1; function < 4; function++)
		copy_array(function, array, NULL, 0);
	for (int i = 0; i < 3; i++)
		EXPECT(exec, {a.first, 0}, {array, 0}, {a.inner.third, 0}, {a.inner.fourth, 0}, {words[0], 0},
		       {words[1], 0});
	words[0] = 0;
	copy_array(0, array, words, sizeof(words[0]));
	EXPECT(exec, {a.first, 0}, {array, 0}, {a.inner.third, 0}, {a.inner.fourth, 0});
}

/* The copy is a node, and the host writes other pointers between launches. Kernels may come before it in the list. */
TEST(an_array_that_the_graph_copies_is_read_at_each_launch)
{
	CUdeviceptr array = memory + 7 * MIB, words[2] = {memory + 5 * MIB, 0};
	CUgraph graph = graph_new();
	struct mix_arguments a = mix_of(1);
	CUDA_MEMCPY3D copy = form_line(array, 0, sizeof(words));

	copy.srcMemoryType = CU_MEMORYTYPE_HOST;
	copy.srcHost = words;
	a.second = array;
	add_mix(graph, &a);
	add_copy(graph, &copy);
	CUgraphExec exec = instantiate(graph);
	for (unsigned i = 3; i < 6; i++) {
		words[0] = memory + i * MIB;
		EXPECT(exec, {a.first, 0}, {array, 0}, {a.inner.third, 0}, {a.inner.fourth, 0},
		       {(uintptr_t)words, sizeof(words)}, {array, sizeof(words)}, {words[0], 0});
		assert_int_equal(names_of(exec)->n_stored, 1);
	}
	words[0] = 0;
	EXPECT(exec, {a.first, 0}, {array, 0}, {a.inner.third, 0}, {a.inner.fourth, 0},
	       {(uintptr_t)words, sizeof(words)}, {array, sizeof(words)});
}

/* ---- switched off ---- */

static int run_switched_off(void *argument)
{
	graph_test_start();
	struct mix_arguments a = mix_of(1);
	CUgraph graph = graph_new();
	CUgraphNode node = add_mix(graph, &a);
	CUgraphExec exec = instantiate(graph);
	set_mix(exec, node, &a);
	CHECK(cuGraphExecUpdate_v2(exec, graph, NULL) == CUDA_SUCCESS);
	CHECK(names_of(exec)->unknown && !graph_n_unknown());
	CHECK(sim_calls("cuGraphGetNodes") == 0);
	CHECK(cuGraphExecDestroy(exec) == CUDA_SUCCESS);
	return 0;
}

static int switched_off;

TEST(switched_off_nothing_is_asked)
{
	assert_int_equal(switched_off, 0);
}

FIXTURE(start)
{
	static const char *const settings[] = {"SPILLWAY=0", NULL};

	/* First, as its child must not find a driver in use. */
	switched_off = core_in_child(settings, run_switched_off, NULL);
	graph_test_start();
}

EACH_TEST(NULL, graph_check)
GROUP(start, graph_test_stop)
