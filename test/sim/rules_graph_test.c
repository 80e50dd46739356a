// SPDX-License-Identifier: Apache-2.0
/*
 * rules_graph_test.c: what drivers answer about graphs (rules.h), as far as reading them rests on it (graph.c).
 */
#include "rules.h"

static CUdeviceptr memory;
static CUstream stream;

static int begin(void **state)
{
	ok(cu.cuMemAlloc(&memory, MIB));
	ok(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return 0;
}

static int end(void **state)
{
	ok(cu.cuStreamDestroy(stream));
	ok(cu.cuMemFree(memory));
	return 0;
}

static CUgraph set_graph(void)
{
	CUDA_MEMSET_NODE_PARAMS set = {.dst = memory, .elementSize = 4, .width = 100, .height = 1};
	CUgraphNode node;
	CUgraph graph = rules_graph();

	ok(cu.cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, rules_context));
	return graph;
}

/* The nodes of a graph that has this many. */
static void nodes_of(CUgraph graph, CUgraphNode *ret_nodes, size_t n)
{
	size_t there = 0;

	ok(cu.cuGraphGetNodes(graph, NULL, &there));
	assert_int_equal(there, n);
	ok(cu.cuGraphGetNodes(graph, ret_nodes, &there));
	assert_int_equal(there, n);
}

TEST(a_graph_without_nodes_refuses_an_array_for_them)
{
	CUgraphNode nodes[1];
	size_t n = 7;
	CUgraph graph = rules_graph();

	ok(cu.cuGraphGetNodes(graph, NULL, &n));
	assert_int_equal(n, 0);
	is(CUDA_ERROR_INVALID_VALUE, cu.cuGraphGetNodes(graph, nodes, &n));
	ok(cu.cuGraphDestroy(graph));
}

TEST(captured_copies_and_sets_are_told)
{
	CUDA_MEMSET_NODE_PARAMS set;
	CUgraphNode nodes[3];
	CUgraphNodeType type;
	CUDA_MEMCPY3D copy;
	CUgraph graph;

	ok(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ok(cu.cuMemcpyDtoDAsync(memory, memory + 4096, 1000, stream));
	ok(cu.cuMemsetD8Async(memory + 8192, 1, 100, stream));
	ok(cu.cuMemsetD2D32Async(memory + 16384, 512, 1, 10, 6, stream));
	ok(cu.cuStreamEndCapture(stream, &graph));
	nodes_of(graph, nodes, 3);
	ok(cu.cuGraphNodeGetType(nodes[0], &type));
	assert_int_equal(type, CU_GRAPH_NODE_TYPE_MEMCPY);
	ok(cu.cuGraphMemcpyNodeGetParams(nodes[0], &copy));
	assert_int_equal(copy.dstDevice + copy.dstXInBytes, memory);
	assert_int_equal(copy.srcDevice + copy.srcXInBytes, memory + 4096);
	assert_int_equal(copy.WidthInBytes, 1000);
	assert_true(copy.Height == 1 && copy.Depth == 1 && !copy.dstY && !copy.dstZ && !copy.srcY && !copy.srcZ);
	ok(cu.cuGraphMemsetNodeGetParams(nodes[1], &set));
	assert_true(set.dst == memory + 8192 && set.elementSize * set.width == 100 && set.height == 1);
	ok(cu.cuGraphMemsetNodeGetParams(nodes[2], &set));
	assert_true(set.dst == memory + 16384 && set.elementSize * set.width == 40 && set.height == 6 &&
		    set.pitch == 512);
	ok(cu.cuGraphDestroy(graph));
}

TEST(a_child_graph_is_a_copy_that_is_told)
{
	CUgraph inner = set_graph(), told;
	CUDA_MEMSET_NODE_PARAMS set;
	CUgraphNode node, nodes[1];
	CUgraphNodeType type;
	CUgraph outer = rules_graph();

	ok(cu.cuGraphAddChildGraphNode(&node, outer, NULL, 0, inner));
	ok(cu.cuGraphDestroy(inner));
	ok(cu.cuGraphNodeGetType(node, &type));
	assert_int_equal(type, CU_GRAPH_NODE_TYPE_GRAPH);
	ok(cu.cuGraphChildGraphNodeGetGraph(node, &told));
	nodes_of(told, nodes, 1);
	ok(cu.cuGraphMemsetNodeGetParams(nodes[0], &set));
	assert_int_equal(set.dst, memory);
	ok(cu.cuGraphDestroy(outer));
}

TEST(the_bodies_of_a_condition_are_not_told)
{
	CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
	CUgraph told;
	CUgraphNodeType type;
	CUgraphNode node;
	CUgraph graph = rules_graph();

	ok(cu.cuGraphConditionalHandleCreate(&p.conditional.handle, graph, rules_context, 1,
					     CU_GRAPH_COND_ASSIGN_DEFAULT));
	p.conditional.type = CU_GRAPH_COND_TYPE_IF;
	p.conditional.size = 1;
	p.conditional.ctx = rules_context;
	ok(cu.cuGraphAddNode(&node, graph, NULL, NULL, 0, &p));
	assert_non_null(p.conditional.phGraph_out);
	ok(cu.cuGraphNodeGetType(node, &type));
	assert_int_equal(type, CU_GRAPH_NODE_TYPE_CONDITIONAL);
	is(CUDA_ERROR_INVALID_VALUE, cu.cuGraphChildGraphNodeGetGraph(node, &told));
	ok(cu.cuGraphDestroy(graph));
}

TEST(a_launch_of_a_graph_cannot_be_captured)
{
	CUgraph graph = set_graph(), captured;
	CUgraphExec exec = rules_instance(graph);

	ok(cu.cuGraphLaunch(exec, stream));
	ok(cu.cuStreamSynchronize(stream));
	ok(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	is(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuGraphLaunch(exec, stream));
	is(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(stream, &captured));
	ok(cu.cuGraphExecDestroy(exec));
	ok(cu.cuGraphDestroy(graph));
}

static CUresult ask_all(CUgraph graph)
{
	CUDA_MEMSET_NODE_PARAMS set;
	CUgraphNode nodes[1];
	CUgraphNodeType type;
	size_t n = 0;
	CUresult result = cu.cuGraphGetNodes(graph, NULL, &n) ?: cu.cuGraphGetNodes(graph, nodes, &n);

	result = result ?: cu.cuGraphNodeGetType(nodes[0], &type);
	return result ? result : cu.cuGraphMemsetNodeGetParams(nodes[0], &set);
}

/* No assertions: they belong to the main thread. */
struct asking {
	CUgraph graph;
	CUresult asked;
};

static void *ask_elsewhere(void *argument)
{
	struct asking *asking = argument;

	asking->asked = cu.cuCtxSetCurrent(rules_context);
	if (!asking->asked)
		asking->asked = ask_all(asking->graph);
	return NULL;
}

TEST(asking_about_graphs_disturbs_no_capture)
{
	struct asking asking = {.graph = set_graph()};
	CUgraph captured;

	ok(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ok(cu.cuMemsetD8Async(memory, 1, 100, stream));
	test_beside(ask_elsewhere, &asking);
	ok(asking.asked);
	ok(ask_all(asking.graph));
	ok(cu.cuStreamEndCapture(stream, &captured));
	ok(cu.cuGraphDestroy(captured));
	ok(cu.cuGraphDestroy(asking.graph));
}

/* But instantiating is one of the calls that do. */
TEST(instantiating_invalidates_a_capture_of_the_thread)
{
	CUgraph graph = set_graph(), captured;

	ok(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CUgraphExec exec = rules_instance(graph);
	ok(cu.cuMemsetD8Async(memory, 1, 100, stream));
	ok(cu.cuStreamEndCapture(stream, &captured));
	ok(cu.cuGraphDestroy(captured));
	ok(cu.cuGraphExecDestroy(exec));
	ok(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	is(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuGraphInstantiate(&exec, graph, 0));
	is(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(stream, &captured));
	ok(cu.cuGraphDestroy(graph));
}

/* ---- changing the copies of an instance ---- */

/* Two units each; what is copied is so long that it reaches into both. */
enum { HERE, HERE_TOO, AWAY, AWAY_TOO, BOTH, BOTH_TOO, BLOCK, N_OPERANDS };
#define REACH (3 * MIB)
static CUdeviceptr operand[N_OPERANDS];

static bool is_alike(int a, int b)
{
	return a / 2 == b / 2;
}

/* Maps what one of the kinds has; the addresses have nothing mapped. */
static void map_as(CUdeviceptr at, int kind)
{
	static const CUmemLocationType type[][2] = {
	    [HERE] = {CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE},
	    [HERE_TOO] = {CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE},
	    [AWAY] = {CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_LOCATION_TYPE_HOST_NUMA},
	    [AWAY_TOO] = {CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_LOCATION_TYPE_HOST_NUMA},
	    [BOTH] = {CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_HOST_NUMA},
	    [BOTH_TOO] = {CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_LOCATION_TYPE_DEVICE}};

	rules_map_new(at, CHUNK, type[kind][0]);
	rules_map_new(at + CHUNK, CHUNK, type[kind][1]);
}

static void unmap(CUdeviceptr at)
{
	ok(cu.cuMemUnmap(at, CHUNK));
	ok(cu.cuMemUnmap(at + CHUNK, CHUNK));
}

static int begin_operands(void **state)
{
	begin(state);
	if (!rules_host_vmm)
		return 0;
	for (int i = 0; i < BLOCK; i++) {
		operand[i] = rules_reserve(2 * CHUNK);
		map_as(operand[i], i);
	}
	ok(cu.cuMemAlloc(&operand[BLOCK], 2 * CHUNK));
	return 0;
}

static int end_operands(void **state)
{
	for (int i = 0; i < BLOCK && rules_host_vmm; i++) {
		unmap(operand[i]);
		ok(cu.cuMemAddressFree(operand[i], 2 * CHUNK));
	}
	if (rules_host_vmm)
		ok(cu.cuMemFree(operand[BLOCK]));
	return end(state);
}

GROUP(begin_operands, end_operands)

static void add_copy(CUgraph graph, CUdeviceptr to, CUdeviceptr from, CUgraphNode *ret_node)
{
	CUDA_MEMCPY3D copy = form_line(to, from, REACH);

	ok(cu.cuGraphAddMemcpyNode(ret_node, graph, NULL, 0, &copy, rules_context));
}

static CUgraph copy_graph(CUdeviceptr to, CUdeviceptr from, CUgraphNode *ret_node)
{
	CUgraph graph = rules_graph();

	add_copy(graph, to, from, ret_node);
	return graph;
}

static CUgraphExec copy_instance(CUdeviceptr to, CUdeviceptr from, CUgraph *ret_graph, CUgraphNode *ret_node)
{
	CUgraphExec exec;

	*ret_graph = copy_graph(to, from, ret_node);
	ok(cu.cuGraphInstantiate(&exec, *ret_graph, 0));
	return exec;
}

static CUresult set_copy(CUgraphExec exec, CUgraphNode node, CUdeviceptr to, CUdeviceptr from)
{
	CUDA_MEMCPY3D copy = form_line(to, from, REACH);

	return cu.cuGraphExecMemcpyNodeSetParams(exec, node, &copy, rules_context);
}

/* With what is found there now, or with the graph as it was made. */
static CUresult update_with(CUgraphExec exec, CUgraph graph, CUgraphNode node)
{
	CUgraphExecUpdateResultInfo info;
	CUresult result = cu.cuGraphExecUpdate(exec, graph, &info);

	if (result) {
		is(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, result);
		assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
		assert_ptr_equal(info.errorNode, node);
	}
	return result;
}

static CUresult update_to(CUgraphExec exec, CUdeviceptr to, CUdeviceptr from)
{
	CUgraphNode node;
	CUgraph graph = copy_graph(to, from, &node);
	CUresult result = update_with(exec, graph, node);

	ok(cu.cuGraphDestroy(graph));
	return result;
}

TEST(a_copy_of_an_instance_becomes_one_between_memory_of_the_same_kinds)
{
	if (!rules_host_vmm)
		skip();
	CUdeviceptr from = rules_alloc(2 * CHUNK);
	for (int a = 0; a < N_OPERANDS; a++) {
		for (int b = 0; b < N_OPERANDS; b++) {
			CUgraphNode node;
			CUgraph graph;
			CUgraphExec exec = copy_instance(operand[a], from, &graph, &node);

			is(is_alike(a, b) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE,
			   set_copy(exec, node, operand[b], from));
			ok(set_copy(exec, node, operand[a], from));
			is(is_alike(a, b) ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
			   update_to(exec, operand[b], from));
			ok(update_to(exec, operand[a], from));
			ok(cu.cuGraphExecDestroy(exec));
			ok(cu.cuGraphDestroy(graph));
		}
	}
	ok(cu.cuMemFree(from));
}

TEST(what_kind_it_is_is_noted_when_a_copy_is_given)
{
	CUdeviceptr at, from = operand[HERE_TOO];
	CUgraph graph, late, clone;
	CUgraphNode node, late_node, cloned;
	size_t one = 1;

	if (!rules_host_vmm)
		skip();
	at = rules_reserve(2 * CHUNK);
	map_as(at, HERE);
	CUgraphExec exec = copy_instance(at, from, &graph, &node);
	unmap(at);
	map_as(at, AWAY);
	/* Of the instance, of the graph, and of its clone. */
	is(CUDA_ERROR_INVALID_VALUE, set_copy(exec, node, operand[AWAY], from));
	ok(set_copy(exec, node, operand[HERE], from));
	ok(update_with(exec, graph, node));
	ok(cu.cuGraphClone(&clone, graph));
	ok(cu.cuGraphGetNodes(clone, &cloned, &one));
	ok(set_copy(exec, node, operand[HERE], from));
	ok(update_with(exec, clone, cloned));
	late = copy_graph(at, operand[HERE], &late_node);
	is(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, update_with(exec, late, late_node));
	/* The very same copy is taken, and noted as it is now. */
	ok(set_copy(exec, node, at, from));
	is(CUDA_ERROR_INVALID_VALUE, set_copy(exec, node, operand[HERE], from));
	ok(update_with(exec, late, late_node));
	/* Set in a graph as it is, too. */
	is(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, update_with(exec, clone, cloned));
	CUDA_MEMCPY3D copy = form_line(at, from, REACH);
	ok(cu.cuGraphMemcpyNodeSetParams(cloned, &copy));
	ok(update_with(exec, clone, cloned));
	ok(cu.cuGraphExecDestroy(exec));
	ok(cu.cuGraphDestroy(graph));
	ok(cu.cuGraphDestroy(late));
	ok(cu.cuGraphDestroy(clone));
	unmap(at);
	ok(cu.cuMemAddressFree(at, 2 * CHUNK));
}

/* Copies in a child graph, which are named by the child's own nodes. */
static CUgraph two_copies(CUdeviceptr first, CUdeviceptr second, CUdeviceptr from, CUgraphNode *ret_second)
{
	CUgraph told;
	CUgraphNode node, nodes[2];
	CUgraph outer = rules_graph(), inner = rules_graph();

	add_copy(inner, first, from, &node);
	add_copy(inner, second, from, &node);
	ok(cu.cuGraphAddChildGraphNode(&node, outer, NULL, 0, inner));
	ok(cu.cuGraphDestroy(inner));
	ok(cu.cuGraphChildGraphNodeGetGraph(node, &told));
	nodes_of(told, nodes, 2);
	*ret_second = nodes[1];
	return outer;
}

TEST(an_update_that_is_refused_changes_nothing_and_names_the_node)
{
	CUgraphNode node;
	unsigned char byte;

	if (!rules_host_vmm)
		skip();
	ok(cu.cuMemsetD8(operand[HERE], 0, 2 * CHUNK));
	ok(cu.cuMemsetD8(operand[BLOCK], 7, 2 * CHUNK));
	CUgraph graph = two_copies(operand[BOTH], operand[BOTH_TOO], operand[BLOCK], &node);
	CUgraph other = two_copies(operand[BOTH_TOO], operand[HERE], operand[BLOCK], &node);
	CUgraphExec exec = rules_instance(graph);
	is(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, update_with(exec, other, node));
	ok(cu.cuMemsetD8(operand[BOTH], 0, REACH));
	ok(cu.cuMemsetD8(operand[BOTH_TOO], 0, REACH));
	ok(cu.cuCtxSynchronize());
	ok(cu.cuGraphLaunch(exec, stream));
	ok(cu.cuStreamSynchronize(stream));
	for (int i = 0; i < 3; i++) {
		ok(cu.cuMemcpyDtoH(&byte, operand[(int[]){BOTH, BOTH_TOO, HERE}[i]], 1));
		assert_int_equal(byte, i < 2 ? 7 : 0);
	}
	ok(cu.cuGraphExecDestroy(exec));
	ok(cu.cuGraphDestroy(graph));
	ok(cu.cuGraphDestroy(other));
}

/* Looked at when a node is given it; and sets, but not copies, when an instance is made. */
TEST(copies_and_sets_are_of_memory_that_is_mapped)
{
	CUdeviceptr at = rules_reserve(CHUNK);
	CUDA_MEMSET_NODE_PARAMS set = {.dst = at, .elementSize = 4, .width = 100, .height = 1};
	CUDA_MEMCPY3D copy = form_line(memory, at, 1000);
	CUgraphNode node[2], child;
	CUgraphExec exec;

	CUgraph with_set = rules_graph(), with_copy = rules_graph(), outer = rules_graph();
	is(CUDA_ERROR_INVALID_VALUE, cu.cuGraphAddMemsetNode(&node[0], with_set, NULL, 0, &set, rules_context));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuGraphAddMemcpyNode(&node[1], with_copy, NULL, 0, &copy, rules_context));
	rules_map_new(at, CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	ok(cu.cuGraphAddMemsetNode(&node[0], with_set, NULL, 0, &set, rules_context));
	ok(cu.cuGraphAddMemcpyNode(&node[1], with_copy, NULL, 0, &copy, rules_context));
	ok(cu.cuGraphAddChildGraphNode(&child, outer, NULL, 0, with_set));
	ok(cu.cuMemUnmap(at, CHUNK));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuGraphInstantiate(&exec, with_set, 0));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuGraphInstantiate(&exec, outer, 0));
	ok(cu.cuGraphInstantiate(&exec, with_copy, 0));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuGraphExecMemcpyNodeSetParams(exec, node[1], &copy, rules_context));
	ok(cu.cuGraphExecDestroy(exec));
	ok(cu.cuGraphDestroy(with_set));
	ok(cu.cuGraphDestroy(with_copy));
	ok(cu.cuGraphDestroy(outer));
	ok(cu.cuMemAddressFree(at, CHUNK));
}
