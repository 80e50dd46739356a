/*
 * graph_mend_test.c: what is known of an instance whose update was made half (graph_mend.c): the driver has taken the new
 * graph with scratch operands, and the way from there to what the program wants has failed for good.
 */
#include "test/core/core.h"

#include "shim/serve/graph_mend.h"
#include "shim/submit/graph.h"

#define BYTES (4 * MIB)

static CUdeviceptr get(char place)
{
	CUdeviceptr block;

	assert_ok(cuMemAlloc_v2(&block, BYTES));
	assert_int_equal(sim_where(block), place);
	return block;
}

static CUgraph graph_of_copy(CUdeviceptr to, CUdeviceptr from)
{
	const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
				    .srcDevice = from,
				    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				    .dstDevice = to,
				    .WidthInBytes = BYTES,
				    .Height = 1,
				    .Depth = 1};
	CUgraphNode node;
	CUgraph graph;

	assert_ok(cuGraphCreate(&graph, 0));
	assert_ok(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, core_context()));
	return graph;
}

static void an_update_that_was_made_half_leaves_the_instance_unknown(void **state)
{
	CUdeviceptr device[2] = {get('D'), get('D')}, host[2] = {get('H'), get('H')};
	CUgraph graph = graph_of_copy(device[0], device[1]), other = graph_of_copy(host[0], host[1]);
	CUgraphExecUpdateResultInfo info;
	CUgraphExec exec;

	(void)state;
	assert_ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
	graph_instantiated(exec, graph, 0);
	assert_int_equal(graph_n_unknown(), 0);
	CUresult refused = cuGraphExecUpdate_v2(exec, other, &info);
	assert_int_equal(refused, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	/* Without a step that was taken the names stay. */
	sim_fail("cuMemMap", 1, CUDA_ERROR_UNKNOWN);
	assert_int_equal(mend_update(refused, exec, other, info.result), refused);
	assert_int_equal(graph_n_unknown(), 0);
	/* The first trial fits; from there, nothing more can be mapped. */
	sim_fail_then("cuMemUnmap", 1, CUDA_ERROR_UNKNOWN, "cuMemMap", 1000);
	assert_int_equal(mend_update(refused, exec, other, info.result), refused);
	sim_fail("cuMemMap", 0, CUDA_SUCCESS);
	assert_int_equal(graph_n_unknown(), 1);
	/* An update that succeeds makes it known again. */
	assert_ok(cuGraphDestroy(other));
	graph_updated(exec, graph);
	assert_int_equal(graph_n_unknown(), 0);
	graph_ended(graph_ending(exec), true);
	assert_ok(cuGraphExecDestroy(exec));
	assert_ok(cuGraphDestroy(graph));
	for (unsigned i = 0; i < 2; i++) {
		assert_ok(cuMemFree_v2(device[i]));
		assert_ok(cuMemFree_v2(host[i]));
	}
}

int main(void)
{
	static const char *const settings[] = {
	    "SIM_MEMORY=128MiB", "SPILLWAY_SET=device.budget=8MiB,host.budget=64MiB,spill.mode=static", NULL};
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(an_update_that_was_made_half_leaves_the_instance_unknown),
	};
	core_start(settings);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
