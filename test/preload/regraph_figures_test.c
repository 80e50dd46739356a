// SPDX-License-Identifier: Apache-2.0
/*
 * What the figures say of copies in instances of graphs that are given memory of another place. In static some of the
 * blocks are on the device, the last one is on the host, and nothing moves.
 */
#include "test/preload/figures_help.h"
#include "test/test.h"

enum { ON_DEVICE = 0, ON_DEVICE_TOO = 1, ON_HOST = N_BLOCKS - 1 };

/* With memory: allocation nodes, for which no driver clones a graph. */
static CUgraph copy_graph(int to, int from, bool memory)
{
	CUDA_MEMCPY3D copy = form_line(blocks[to], blocks[from], BLOCK);
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = {.poolProps = form_pool(0, 0), .bytesize = 4096};
	CUgraphNode node, made;
	CUgraph graph;

	CUcontext context = driver_current();
	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context));
	if (memory) {
		MUST(cuGraphAddMemAllocNode(&made, graph, NULL, 0, &alloc));
		MUST(cuGraphAddMemFreeNode(&node, graph, &made, 1, alloc.dptr));
	}
	return graph;
}

static CUgraphExec instance_of(CUgraph graph)
{
	CUgraphExec exec = driver_instance(graph);

	MUST(cu.cuGraphDestroy(graph));
	return exec;
}

static CUresult update(CUgraphExec exec, CUgraph graph)
{
	CUgraphExecUpdateResultInfo info;
	CUresult result = cuGraphExecUpdate_v2(exec, graph, &info);

	MUST(cu.cuGraphDestroy(graph));
	return result;
}

static void expect(uint64_t refusals)
{
	CHECK(page_there()->counter[STAT_graph_refusals] == refusals);
}

/* With allocation nodes no driver clones a graph; its copies can be given again all the same. */
static void fetched(void)
{
	for (int memory = 0; memory < 2; memory++) {
		if (!memory)
			work();
		CUgraphExec exec = instance_of(copy_graph(0, 1, memory));
		for (int i = 1; i < N_BLOCKS; i++)
			MUST(update(exec, copy_graph(i, i - 1, memory)));
		MUST(cu.cuGraphExecDestroy(exec));
	}
	expect(0);
	CHECK(page_there()->counter[STAT_graph_fetches] > 0);
}

CHILD_TEST(changes_that_are_refused_are_counted_also_where_the_graph_cannot_be_cloned, SETTINGS(",spill.mode=static"))
{
	work();
	CHECK(child_on_device(blocks[ON_DEVICE], BLOCK) && child_on_device(blocks[ON_DEVICE_TOO], BLOCK));
	CHECK(sim_where(blocks[ON_HOST]) == 'H');
	CUgraphExec exec = instance_of(copy_graph(ON_DEVICE, ON_DEVICE_TOO, false));
	MUST(update(exec, copy_graph(ON_DEVICE_TOO, ON_DEVICE, false)));
	expect(0);
	/* What natively is refused, too, is no refusal for memory that moved. */
	CHECK(update(exec, copy_graph(ON_DEVICE, ON_HOST, true)) == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	expect(0);
	CHECK(update(exec, copy_graph(ON_HOST, ON_DEVICE, false)) == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	expect(1);
	MUST(cu.cuGraphExecDestroy(exec));
	exec = instance_of(copy_graph(ON_DEVICE, ON_DEVICE_TOO, true));
	CHECK(update(exec, copy_graph(ON_HOST, ON_DEVICE, true)) == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	expect(2);
	/* The instance is what it was. */
	MUST(driver_fill(NULL, blocks[ON_DEVICE_TOO], 77, N_WORDS));
	MUST(cu.cuGraphLaunch(exec, NULL));
	MUST(cu.cuCtxSynchronize());
	CHECK(driver_holds(blocks[ON_DEVICE], 77, N_WORDS));
	CHECK(sim_broken_rules() == 0);
}

TEST(what_copies_name_is_fetched_and_none_is_refused_in_exact)
{
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), fetched), 0);
}

TEST(what_copies_name_is_fetched_and_none_is_refused_in_fast)
{
	assert_int_equal(child_run(SETTINGS(",spill.mode=fast"), fetched), 0);
}

EACH_TEST(folder_make, folder_remove)
