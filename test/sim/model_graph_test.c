// SPDX-License-Identifier: Apache-2.0
/*
 * model_graph_test.c: what the simulated GPU promises (model.h) about graphs built by hand: every type of node does its
 * work, in instances, in child graphs, and after its parameters were set.
 */
#include "model.h"

static CUdeviceptr memory;
static CUstream stream;

/* The stream does not wait for what the default stream does. */
static void clear(void)
{
	ok(cuMemsetD8(memory, 0, MIB));
	ok(cuCtxSynchronize());
}

static int begin(void **state)
{
	int failed = model_set_up(state);

	memory = model_alloc(MIB);
	clear();
	stream = model_stream();
	return failed;
}

EACH_TEST(begin, model_tear_down)

static CUgraphNode add_set(CUgraph graph, CUdeviceptr at, unsigned value)
{
	CUDA_MEMSET_NODE_PARAMS set = {.dst = at, .value = value, .elementSize = 4, .width = 1, .height = 1};
	CUgraphNode node;

	ok(cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, model_context));
	return node;
}

static CUgraph set_graph(CUdeviceptr at, unsigned value)
{
	CUgraph graph = model_graph();

	add_set(graph, at, value);
	return graph;
}

static void run(CUgraphExec exec)
{
	ok(cuGraphLaunch(exec, stream));
	ok(cuStreamSynchronize(stream));
}

static void run_and_end(CUgraph graph)
{
	CUgraphExec exec = model_instance(graph);

	run(exec);
	ok(cuGraphExecDestroy(exec));
	ok(cuGraphDestroy(graph));
}

TEST(values_are_waited_for_and_written_in_order)
{
	CUstreamBatchMemOpParams ops[3] = {
	    {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .value = 5}},
	    {.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32, .value = 5, .flags = CU_STREAM_WAIT_VALUE_EQ}},
	    {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64, .value64 = 1ull << 32 | 6}}};
	CUDA_BATCH_MEM_OP_NODE_PARAMS p = {.count = 3, .paramArray = ops}, told;
	CUgraphNode node;

	p.ctx = model_context;
	ops[0].writeValue.address = ops[1].waitValue.address = memory;
	ops[2].writeValue.address = memory + 8;
	CUgraph graph = model_graph();
	ok(cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, &p));
	ok(cuGraphBatchMemOpNodeGetParams(node, &told));
	assert_int_equal(told.count, 3);
	assert_memory_equal(told.paramArray, ops, sizeof(ops));
	run_and_end(graph);
	model_expect(memory, 5, 1);
	model_expect(memory + 8, 6, 1);
	model_expect(memory + 12, 1, 1);
}

TEST(child_graphs_run_with_their_parents_and_can_be_replaced)
{
	CUgraphNode node;

	CUgraph inner = set_graph(memory, 1), middle = set_graph(memory + 4, 2);
	CUgraph outer = set_graph(memory + 8, 3), other = set_graph(memory + 12, 4);
	ok(cuGraphAddChildGraphNode(&node, middle, NULL, 0, inner));
	ok(cuGraphDestroy(inner));
	ok(cuGraphAddChildGraphNode(&node, outer, NULL, 0, middle));
	ok(cuGraphDestroy(middle));
	CUgraphExec exec = model_instance(outer);
	run(exec);
	model_expect(memory, 1, 3);
	clear();
	ok(cuGraphExecChildGraphNodeSetParams(exec, node, other));
	run(exec);
	model_expect(memory, 0, 1);
	model_expect(memory + 4, 0, 1);
	model_expect(memory + 8, 3, 2);
}

TEST(a_condition_runs_the_body_its_first_value_chooses)
{
	for (unsigned value = 0; value < 2; value++) {
		CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
		CUgraphNode node;
		CUgraph graph;

		ok(cuGraphCreate(&graph, 0));
		ok(cuGraphConditionalHandleCreate(&p.conditional.handle, graph, model_context, value,
						  CU_GRAPH_COND_ASSIGN_DEFAULT));
		p.conditional.type = CU_GRAPH_COND_TYPE_IF;
		p.conditional.size = 2;
		p.conditional.ctx = model_context;
		ok(cuGraphAddNode(&node, graph, NULL, NULL, 0, &p));
		add_set(p.conditional.phGraph_out[0], memory, 10);
		add_set(p.conditional.phGraph_out[1], memory, 20);
		run_and_end(graph);
		model_expect(memory, value ? 10 : 20, 1);
	}
}

TEST(memory_of_a_graph_is_there_until_it_ends)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = {.bytesize = MIB};
	struct sim_live before, after;
	CUgraphNode node, setting;
	cuuint64_t bytes;

	before = sim_live();
	alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	CUgraph graph = model_graph();
	ok(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &alloc));
	setting = add_set(graph, alloc.dptr, 7);
	ok(cuGraphAddMemFreeNode(&node, graph, &setting, 1, alloc.dptr));
	run_and_end(graph);
	/* Kept for other graphs until it is asked back. */
	ok(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &bytes));
	assert_int_equal(bytes, 0);
	ok(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &bytes));
	assert_int_equal(bytes, MIB);
	ok(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes));
	assert_int_equal(bytes, MIB);
	ok(cuDeviceGraphMemTrim(0));
	after = sim_live();
	assert_memory_equal(&before, &after, sizeof(before));
}

TEST(a_node_of_an_instance_does_what_it_was_set_to)
{
	CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_MEMSET};

	CUgraph graph = model_graph();
	CUgraphNode node = add_set(graph, memory, 1);
	CUgraphExec exec = model_instance(graph);
	p.memset = (CUDA_MEMSET_NODE_PARAMS_v2){
	    .dst = memory + 4, .value = 2, .elementSize = 4, .width = 1, .height = 1, .ctx = model_context};
	ok(cuGraphExecNodeSetParams(exec, node, &p));
	run(exec);
	model_expect(memory, 0, 1);
	model_expect(memory + 4, 2, 1);
	/* The graph itself was not changed; now it is. */
	ok(cuGraphNodeSetParams(node, &p));
	p.type = CU_GRAPH_NODE_TYPE_MEMCPY;
	is(CUDA_ERROR_INVALID_VALUE, cuGraphExecNodeSetParams(exec, node, &p));
	clear();
	run_and_end(graph);
	model_expect(memory, 0, 1);
	model_expect(memory + 4, 2, 1);
}
