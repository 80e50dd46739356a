/*
 * rules_graph_test.c: what drivers answer about graphs (rules.h), as far as reading them rests on it (graph_read.c).
 */
#include "rules.h"
#include <pthread.h>
#include <string.h>

static CUdeviceptr memory;
static CUstream stream;

static int begin(void **state)
{
	(void)state;
	ok(cu.cuMemAlloc(&memory, MIB));
	ok(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return 0;
}

static int end(void **state)
{
	(void)state;
	ok(cu.cuStreamDestroy(stream));
	ok(cu.cuMemFree(memory));
	return 0;
}

static CUgraph set_graph(void)
{
	CUDA_MEMSET_NODE_PARAMS set = {.dst = memory, .elementSize = 4, .width = 100, .height = 1};
	CUgraphNode node;
	CUgraph graph;

	ok(cu.cuGraphCreate(&graph, 0));
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

static void a_graph_without_nodes_refuses_an_array_for_them(void **state)
{
	CUgraphNode nodes[1];
	CUgraph graph;
	size_t n = 7;

	(void)state;
	ok(cu.cuGraphCreate(&graph, 0));
	ok(cu.cuGraphGetNodes(graph, NULL, &n));
	assert_int_equal(n, 0);
	is(CUDA_ERROR_INVALID_VALUE, cu.cuGraphGetNodes(graph, nodes, &n));
	ok(cu.cuGraphDestroy(graph));
}

static void captured_copies_and_sets_are_told(void **state)
{
	CUDA_MEMSET_NODE_PARAMS set;
	CUgraphNode nodes[3];
	CUgraphNodeType type;
	CUDA_MEMCPY3D copy;
	CUgraph graph;

	(void)state;
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

static void a_child_graph_is_a_copy_that_is_told(void **state)
{
	CUgraph inner = set_graph(), outer, told;
	CUDA_MEMSET_NODE_PARAMS set;
	CUgraphNode node, nodes[1];
	CUgraphNodeType type;

	(void)state;
	ok(cu.cuGraphCreate(&outer, 0));
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

static void the_bodies_of_a_condition_are_not_told(void **state)
{
	CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
	CUgraph graph, told;
	CUgraphNodeType type;
	CUgraphNode node;

	(void)state;
	ok(cu.cuGraphCreate(&graph, 0));
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

static void a_launch_of_a_graph_cannot_be_captured(void **state)
{
	CUgraph graph = set_graph(), captured;
	CUgraphExec exec;

	(void)state;
	ok(cu.cuGraphInstantiate(&exec, graph, 0));
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
	CUresult result = cu.cuGraphGetNodes(graph, NULL, &n);

	if (!result)
		result = cu.cuGraphGetNodes(graph, nodes, &n);
	if (!result)
		result = cu.cuGraphNodeGetType(nodes[0], &type);
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

static void asking_about_graphs_disturbs_no_capture(void **state)
{
	struct asking asking = {.graph = set_graph()};
	CUgraph captured;
	pthread_t thread;

	(void)state;
	ok(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ok(cu.cuMemsetD8Async(memory, 1, 100, stream));
	assert_int_equal(pthread_create(&thread, NULL, ask_elsewhere, &asking), 0);
	pthread_join(thread, NULL);
	ok(asking.asked);
	ok(ask_all(asking.graph));
	ok(cu.cuStreamEndCapture(stream, &captured));
	ok(cu.cuGraphDestroy(captured));
	ok(cu.cuGraphDestroy(asking.graph));
}

/* But instantiating is one of the calls that do. */
static void instantiating_invalidates_a_capture_of_the_thread(void **state)
{
	CUgraph graph = set_graph(), captured;
	CUgraphExec exec;

	(void)state;
	ok(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ok(cu.cuGraphInstantiate(&exec, graph, 0));
	ok(cu.cuMemsetD8Async(memory, 1, 100, stream));
	ok(cu.cuStreamEndCapture(stream, &captured));
	ok(cu.cuGraphDestroy(captured));
	ok(cu.cuGraphExecDestroy(exec));
	ok(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	is(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuGraphInstantiate(&exec, graph, 0));
	is(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(stream, &captured));
	ok(cu.cuGraphDestroy(graph));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_graph_without_nodes_refuses_an_array_for_them),
	    cmocka_unit_test(captured_copies_and_sets_are_told),
	    cmocka_unit_test(a_child_graph_is_a_copy_that_is_told),
	    cmocka_unit_test(the_bodies_of_a_condition_are_not_told),
	    cmocka_unit_test(a_launch_of_a_graph_cannot_be_captured),
	    cmocka_unit_test(asking_about_graphs_disturbs_no_capture),
	    cmocka_unit_test(instantiating_invalidates_a_capture_of_the_thread),
	};
	int failed = rules_init();

	if (failed)
		return failed;
	failed = cmocka_run_group_tests(tests, begin, end);
	rules_fini();
	return failed;
}
