// SPDX-License-Identifier: Apache-2.0
#include "test/preload/regraph_help.h"
#include "test/test.h"

struct scene scene;
CUdeviceptr block[N_BLOCKS];
CUstream stream;

bool is_static(void)
{
	return !strcmp(scene_mode(), "static");
}

/* "DD", "DH" ... */
static void expect_at(int which, const char *expected)
{
	char found[] = {sim_where(block[which]), sim_where(block[which] + BYTES - 1), 0};

	if (strcmp(found, expected))
		printf("block %d is %s\n", which, found);
	CHECK(!strcmp(found, expected));
}

void open_blocks(void)
{
	scene_load(&scene, 0);
	driver_kernel("fill");
	for (int i = 0; i < N_BLOCKS; i++) {
		/* So that there is room for half of the next one. */
		if (i == MIXED)
			child_alloc(2 * MIB);
		block[i] = child_alloc(BYTES);
	}
	stream = child_stream();
	if (!is_static())
		return;
	expect_at(DEVICE, "DD");
	expect_at(DEVICE_TOO, "DD");
	expect_at(MIXED, "DH");
	expect_at(HOST, "HH");
	expect_at(HOST_TOO, "HH");
}

/* ---- graphs ---- */

CUgraph capture_copies(const struct copy *copy, unsigned n, CUdeviceptr word, unsigned value)
{
	CUgraph graph;

	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	for (unsigned i = 0; i < n; i++)
		MUST(cuMemcpyDtoDAsync_v2(block[copy[i].to], block[copy[i].from], BYTES, stream));
	MUST(cuMemsetD32Async(word, value, 1, stream));
	MUST(cu.cuStreamEndCapture(stream, &graph));
	return graph;
}

CUgraph in_another(CUgraph graph)
{
	CUgraphNode node;
	CUgraph outer;

	MUST(cuGraphCreate(&outer, 0));
	MUST(cuGraphAddChildGraphNode(&node, outer, NULL, 0, graph));
	MUST(cu.cuGraphDestroy(graph));
	return outer;
}

CUgraphNode first_node(CUgraph graph)
{
	CUgraphNode node;
	size_t one = 1;

	MUST(cuGraphGetNodes(graph, &node, &one));
	return node;
}

CUgraphExec instantiate(CUgraph graph)
{
	CUgraphExec exec = driver_instance(graph);

	return exec;
}

void run_graph(CUgraphExec exec)
{
	MUST(cu.cuCtxSynchronize());
	MUST(cu.cuGraphLaunch(exec, stream));
	MUST(cu.cuStreamSynchronize(stream));
}

CUDA_MEMCPY3D copy_of(struct copy copy)
{
	return form_line(block[copy.to], block[copy.from], BYTES);
}

/* ---- the ways to change one ---- */

CUresult update_graph(CUgraphExec exec, CUgraph graph, enum way way)
{
	CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR};
	CUgraphNode node = NULL;
	CUresult result = way == UPDATE_V1 ? cuGraphExecUpdate(exec, graph, &node, &info.result)
					   : cuGraphExecUpdate_v2(exec, graph, &info);

	CHECK((result == CUDA_SUCCESS) == (info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS));
	CHECK((result == CUDA_SUCCESS) == (way == UPDATE_V1 ? !node : !info.errorNode));
	return result;
}

CUresult change_copy(CUgraphExec exec, CUgraphNode node, struct copy copy, enum way way, CUdeviceptr word)
{
	CUDA_MEMCPY3D plain = copy_of(copy);
	CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};

	if (way == SET)
		return cuGraphExecMemcpyNodeSetParams(exec, node, &plain, scene.context);
	if (way == SET_ANY) {
		any.memcpy.copyCtx = scene.context;
		any.memcpy.copyParams = plain;
		return cuGraphExecNodeSetParams(exec, node, &any);
	}
	CUgraph graph = capture_copies(&copy, 1, word, 0);
	CUresult result = update_graph(exec, graph, way);
	MUST(cu.cuGraphDestroy(graph));
	return result;
}

void fill_block(int which, unsigned value)
{
	MUST(driver_fill(NULL, block[which], value, WORDS));
}

void graph_part(void (*program)(void))
{
	assert_int_equal(scene_run(BUDGET, program), 0);
}
