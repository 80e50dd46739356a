// SPDX-License-Identifier: Apache-2.0
/*
 * Programmatic dependent launch in the model: a kernel that may overlap with its predecessor does, and what is said to
 * be done is done. What an H200 answers is measured by test/gpu/pdl_check.cu.
 */
#include "model.h"

enum { N = 64 };

static CUdeviceptr words;
static CUstream stream;

static int set_up(void **state)
{
	int failed = model_set_up(state);

	words = model_alloc(N * 4);
	ok(cuMemsetD32(words, 0, N));
	ok(cuCtxSynchronize()); /* the stream does not wait for the set */
	stream = model_stream();
	return failed;
}

EACH_TEST(set_up, model_tear_down)

/* Both kernels are queued before the first one begins. The one that ran last is seen in memory. */
TEST(a_kernel_that_may_overlap_runs_before_its_predecessor)
{
	sim_hold();
	ok(model_launch_fill(words, 100, N, stream));
	ok(model_launch_overlapping_fill(words, 200, N, stream));
	sim_release();
	ok(cuStreamSynchronize(stream));
	model_expect(words, 100, N);
}

TEST(without_the_attribute_kernels_run_in_order)
{
	sim_hold();
	ok(model_launch_fill(words, 100, N, stream));
	ok(model_launch_fill(words, 200, N, stream));
	sim_release();
	ok(cuStreamSynchronize(stream));
	model_expect(words, 200, N);
}

TEST(only_a_kernel_is_overtaken)
{
	sim_hold();
	ok(cuMemsetD32Async(words, 7, N, stream));
	ok(model_launch_overlapping_fill(words, 200, N, stream));
	sim_release();
	ok(cuStreamSynchronize(stream));
	model_expect(words, 200, N);
}

static uint32_t first_word(void)
{
	return __atomic_load_n((uint32_t *)sim_pointer(words), __ATOMIC_ACQUIRE);
}

TEST(an_event_behind_both_waits_for_both)
{
	CUevent behind = model_event(CU_EVENT_DISABLE_TIMING);
	sim_hold();
	ok(model_launch_gate(stream));
	ok(model_launch_overlapping_fill(words, 200, N, stream));
	ok(cuEventRecord(behind, stream));
	sim_release();
	UNTIL(first_word() == 200);
	/* The successor has run, the kernel before it has not ended. */
	is(CUDA_ERROR_NOT_READY, cuEventQuery(behind));
	is(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
	atomic_store(&model_gate, true);
	ok(cuEventSynchronize(behind));
	ok(cuStreamQuery(stream));
}

TEST(several_may_overtake_one)
{
	sim_hold();
	ok(model_launch_fill(words, 100, N, stream));
	ok(model_launch_overlapping_fill(words, 200, N, stream));
	ok(model_launch_overlapping_fill(words, 300, N, stream));
	ok(model_launch_fill(words + N * 2, 400, N / 2, stream));
	sim_release();
	ok(cuStreamSynchronize(stream));
	model_expect(words, 100, N / 2);
	model_expect(words + N * 2, 400, N / 2);
}

static CUgraph capture(bool overlaps)
{
	ok(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	ok(model_launch_fill(words, 100, N, stream));
	ok((overlaps ? model_launch_overlapping_fill : model_launch_fill)(words, 200, N, stream));
	CUgraph graph = model_captured(stream);
	return graph;
}

static void run(CUgraph graph)
{
	CUgraphExec exec = model_instance(graph);

	ok(cuGraphLaunch(exec, stream));
	ok(cuStreamSynchronize(stream));
	ok(cuGraphExecDestroy(exec));
}

static CUgraphDependencyType type_of_edge(CUgraph graph)
{
	CUgraphNode from, to;
	CUgraphEdgeData edge;
	size_t n = 1;

	ok(cuGraphGetEdges_v2(graph, &from, &to, &edge, &n));
	assert_int_equal(n, 1);
	return edge.type;
}

TEST(a_capture_makes_the_overlap_an_edge)
{
	CUgraph plain, overlapping, clone;
	size_t n = 1;
	CUgraphNode from, to;

	plain = capture(false);
	overlapping = capture(true);
	assert_int_equal(type_of_edge(plain), CU_GRAPH_DEPENDENCY_TYPE_DEFAULT);
	assert_int_equal(type_of_edge(overlapping), CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
	is(CUDA_ERROR_LOSSY_QUERY, cuGraphGetEdges_v2(overlapping, &from, &to, NULL, &n));
	ok(cuGraphClone(&clone, overlapping));
	assert_int_equal(type_of_edge(clone), CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
	run(plain);
	model_expect(words, 200, N);
	run(overlapping);
	model_expect(words, 100, N);
}
