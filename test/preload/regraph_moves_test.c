/*
 * Graphs that are made, and instances whose copies are given other memory, while that memory moves: no program expects
 * a refusal, and every copy is right. Each part in a process of its own, in each mode; the order is random, its seed
 * printed.
 */
#include "test/preload/regraph_help.h"
#include "test/test.h"

#include <stdlib.h>
#include <string.h>

/* ---- beside memory that moves ---- */

enum { STEPS = 120 };

static int beside_moves(void)
{
	unsigned seed = getenv("TEST_SEED") ? (unsigned)atoi(getenv("TEST_SEED")) : 1;
	struct copy copy = {0, 1};
	CUdeviceptr word;
	CUgraphExec exec;
	CUgraph graph;

	printf("seed %u\n", seed);
	open_blocks();
	word = child_alloc(4096);
	scene_allocate(&scene);
	CHECK(scene_warm_up(&scene));
	graph = capture_copies(&copy, 1, word, 0);
	exec = instantiate(graph);
	for (unsigned i = 0; i < STEPS; i++) {
		copy.to = rand_r(&seed) % N_BLOCKS;
		copy.from = (copy.to + 1 + rand_r(&seed) % (N_BLOCKS - 1)) % N_BLOCKS;
		fill_block(copy.from, 0x9000 + i);
		MUST(scene_round(&scene, NULL, 0));
		MUST(change_copy(exec, first_node(graph), copy, rand_r(&seed) % WAYS, word));
		run_graph(exec);
		CHECK(driver_holds(block[copy.to], 0x9000 + i, WORDS));
	}
	MUST(cu.cuCtxSynchronize());
	CHECK(scene_holds(&scene));
	return sim_broken_rules() != 0;
}

/* By hand, of memory that is unmapped at times. Natively nothing of that can fail. */
static CUgraph by_hand(CUgraph *ret_inner, const struct copy *copy, unsigned value)
{
	CUDA_MEMSET_NODE_PARAMS set = {
	    .dst = block[copy->from], .elementSize = 4, .width = WORDS, .height = 1, .value = value};
	CUDA_MEMCPY3D params = copy_of(*copy);
	CUgraphNode node[2];

	MUST(cuGraphCreate(ret_inner, 0));
	MUST(cuGraphAddMemsetNode(&node[0], *ret_inner, NULL, 0, &set, scene.context));
	MUST(cuGraphAddMemcpyNode(&node[1], *ret_inner, node, 1, &params, scene.context));
	MUST(cuGraphMemsetNodeSetParams(node[0], &set));
	MUST(cuGraphMemcpyNodeSetParams(node[1], &params));
	CUgraph outer, inner = *ret_inner;
	MUST(cuGraphCreate(&outer, 0));
	MUST(cuGraphAddChildGraphNode(&node[1], outer, NULL, 0, inner));
	return outer;
}

static int made_beside_moves(void)
{
	unsigned seed = getenv("TEST_SEED") ? (unsigned)atoi(getenv("TEST_SEED")) : 1;
	CUgraph inner;

	printf("seed %u\n", seed);
	open_blocks();
	scene_allocate(&scene);
	CHECK(scene_warm_up(&scene));
	for (unsigned i = 0; i < STEPS; i++) {
		struct copy copy = {.to = (int)(rand_r(&seed) % N_BLOCKS)};

		copy.from = (copy.to + 1 + (int)(rand_r(&seed) % (N_BLOCKS - 1))) % N_BLOCKS;
		fill_block(copy.from, 1);
		MUST(scene_round(&scene, NULL, 0));
		CUgraph outer = by_hand(&inner, &copy, 0xa000 + i);
		CUgraphExec exec = instantiate(outer);
		run_graph(exec);
		CHECK(driver_holds(block[copy.to], 0xa000 + i, WORDS));
		MUST(cu.cuGraphExecDestroy(exec));
		MUST(cu.cuGraphDestroy(outer));
		MUST(cu.cuGraphDestroy(inner));
	}
	MUST(cu.cuCtxSynchronize());
	CHECK(scene_holds(&scene));
	return sim_broken_rules() != 0;
}

/* ---- */

TEST(changes_are_right_beside_memory_that_moves)
{
	graph_part(beside_moves);
}

TEST(graphs_are_made_beside_memory_that_moves)
{
	graph_part(made_beside_moves);
}
