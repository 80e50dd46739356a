// SPDX-License-Identifier: Apache-2.0
/*
 * Graphs that are made, and instances whose copies are given other memory, while that memory moves: no program expects
 * a refusal, and every copy is right. Each part in a process of its own, in each mode; the order is random, its seed
 * printed.
 */
#include "test/preload/regraph_help.h"
#include "test/test.h"

/* ---- beside memory that moves ---- */

enum { STEPS = 120 };

PART_TEST(changes_are_right_beside_memory_that_moves, graph_part(part))
{
	unsigned seed = getenv("TEST_SEED") ? (unsigned)atoi(getenv("TEST_SEED")) : 1;
	struct copy copy = {0, 1};

	printf("seed %u\n", seed);
	open_blocks();
	CUdeviceptr word = child_alloc(4096);
	scene_allocate(&scene);
	CHECK(scene_warm_up(&scene));
	CUgraph graph = capture_copies(&copy, 1, word, 0);
	CUgraphExec exec = instantiate(graph);
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

PART_TEST(graphs_are_made_beside_memory_that_moves, graph_part(part))
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
}

/* ---- where there is room for what a copy names ---- */

/* Blocks of several pieces, half as many again as the device has room for, each larger than what is kept as small. */
enum { MANY = 12, ROUNDS = 12 };
#define LARGE ((size_t)16 * MIB)

static CUdeviceptr large[MANY];
static unsigned char value[MANY];

static void set_large(int which, unsigned char byte)
{
	MUST(cuMemsetD8Async(large[which], byte, LARGE, stream));
	value[which] = byte;
}

static void check_large(int which)
{
	static unsigned char host[LARGE];

	MUST(cu.cuStreamSynchronize(stream));
	MUST(cuMemcpyDtoH_v2(host, large[which], LARGE));
	for (size_t at = 0; at < LARGE; at += 4093)
		CHECK(host[at] == value[which]);
}

static CUDA_MEMCPY3D large_copy(int from, int to)
{
	return form_line(large[to], large[from], LARGE);
}

/* Captured in every other round, else made by hand. */
static CUgraph one_copy(int from, int to, bool by_capture, CUgraphNode *ret_node)
{
	CUDA_MEMCPY3D copy = large_copy(from, to);
	CUgraph graph;

	if (by_capture) {
		MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
		MUST(cuMemcpyDtoDAsync_v2(large[to], large[from], LARGE, stream));
		MUST(cu.cuStreamEndCapture(stream, &graph));
		*ret_node = first_node(graph);
	} else {
		MUST(cuGraphCreate(&graph, 0));
		MUST(cuGraphAddMemcpyNode(ret_node, graph, NULL, 0, &copy, scene.context));
	}
	return graph;
}

static void launch_copy(CUgraphExec exec, int from, int to)
{
	MUST(cu.cuGraphLaunch(exec, stream));
	value[to] = value[from];
}

/* What is named in turn is each time what the plan would rather let leave, so one part of it must not push out another. */
static void round_of_changes(int round)
{
	int a = round % MANY, b = (round * 5 + 3) % MANY, c = (round * 7 + 5) % MANY, d = (round * 11 + 1) % MANY;
	CUDA_MEMCPY3D second = large_copy(c, d);
	CUgraphExecUpdateResultInfo info;
	CUgraphNode node, other_node;

	if (a == b || c == d)
		return;
	for (int i = 0; i < MANY; i++)
		if ((i + round) % 3)
			set_large(i, value[i]);
	CUgraph graph = one_copy(a, b, round % 2 == 0, &node), other = one_copy(b, a, false, &other_node);
	CUgraphExec exec = instantiate(graph);
	launch_copy(exec, a, b);
	for (int i = 0; i < MANY; i++)
		if ((i + round) % 2)
			set_large(i, (unsigned char)(value[i] + 1));
	MUST(cuGraphExecMemcpyNodeSetParams(exec, node, &second, scene.context));
	launch_copy(exec, c, d);
	MUST(cuGraphExecUpdate_v2(exec, other, &info));
	launch_copy(exec, b, a);
	check_large(a);
	check_large(b);
	check_large(d);
	MUST(cu.cuGraphExecDestroy(exec));
	MUST(cu.cuGraphDestroy(graph));
	MUST(cu.cuGraphDestroy(other));
}

PART_TEST(no_change_is_refused_where_there_is_room_for_what_it_names, assert_int_equal(scene_run(8 * LARGE, part), 0))
{
	scene_load(&scene, 0);
	stream = child_stream();
	for (int i = 0; i < MANY; i++) {
		large[i] = child_alloc(LARGE);
		set_large(i, (unsigned char)(i + 1));
	}
	for (int round = 0; round < ROUNDS; round++)
		round_of_changes(round);
	for (int i = 0; i < MANY; i++)
		check_large(i);
}

/* ---- two threads, each with a copy from the same memory ---- */

static struct {
	CUgraphExec exec;
	CUgraphNode node;
	bool refused;
} changer[2];
static pthread_barrier_t both_begin;

static void *change_to_shared(void *argument)
{
	unsigned i = (unsigned)(uintptr_t)argument;
	CUDA_MEMCPY3D copy = large_copy(0, 10 + (int)i);

	cu.cuCtxSetCurrent(scene.context);
	pthread_barrier_wait(&both_begin);
	changer[i].refused |= cuGraphExecMemcpyNodeSetParams(changer[i].exec, changer[i].node, &copy, scene.context);
	return NULL;
}

/* What one of them pins on the host meanwhile does not come for the other: it must look again. */
PART_TEST(two_threads_that_change_copies_of_the_same_memory_are_not_refused,
	  assert_int_equal(scene_run(8 * LARGE, part), 0))
{
	CUgraph graph[2];
	pthread_t thread[2];

	scene_load(&scene, 0);
	stream = child_stream();
	pthread_barrier_init(&both_begin, NULL, 2);
	for (int i = 0; i < MANY; i++) {
		large[i] = child_alloc(LARGE);
		set_large(i, (unsigned char)(i + 1));
	}
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 2; i++) {
			graph[i] = one_copy(4 + i, 6 + i, false, &changer[i].node);
			changer[i].exec = instantiate(graph[i]);
		}
		for (int i = 3; i < MANY; i++)
			set_large(i, value[i]);
		MUST(cu.cuStreamSynchronize(stream));
		for (uintptr_t i = 0; i < 2; i++)
			pthread_create(&thread[i], NULL, change_to_shared, (void *)i);
		for (int i = 0; i < 2; i++) {
			pthread_join(thread[i], NULL);
			launch_copy(changer[i].exec, 0, 10 + i);
			check_large(10 + i);
			MUST(cu.cuGraphExecDestroy(changer[i].exec));
			MUST(cu.cuGraphDestroy(graph[i]));
		}
	}
	CHECK(!changer[0].refused && !changer[1].refused);
}

/* The first copy of the graph has no room on the device, which says nothing about the second one. */
PART_TEST(a_copy_without_room_does_not_keep_others_from_being_changed, assert_int_equal(scene_run(8 * LARGE, part), 0))
{
	const size_t bytes = 5 * LARGE;
	CUgraphNode node[2];
	CUgraph graph;
	size_t two = 2;

	scene_load(&scene, 0);
	stream = child_stream();
	for (int i = 0; i < 4; i++) {
		large[i] = child_alloc(LARGE);
		set_large(i, (unsigned char)(i + 1));
	}
	CUdeviceptr to = child_alloc(bytes), from = child_alloc(bytes);
	MUST(cuMemsetD8Async(from, 1, bytes, stream));
	MUST(cuMemsetD8Async(to, 2, bytes, stream));
	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	MUST(cuMemcpyDtoDAsync_v2(to, from, bytes, stream));
	MUST(cuMemcpyDtoDAsync_v2(large[0], large[1], LARGE, stream));
	MUST(cu.cuStreamEndCapture(stream, &graph));
	MUST(cuGraphGetNodes(graph, node, &two));
	CUgraphExec exec = instantiate(graph);
	CUDA_MEMCPY3D copy = large_copy(3, 2);
	MUST(cuGraphExecMemcpyNodeSetParams(exec, node[1], &copy, scene.context));
	launch_copy(exec, 3, 2);
	for (int i = 0; i < 4; i++)
		check_large(i);
}

/* ---- */
