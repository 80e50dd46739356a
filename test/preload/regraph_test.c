// SPDX-License-Identifier: Apache-2.0
/*
 * Instances of graphs whose copies are given other memory, while some of that is on the device, some on the host and
 * some partly on both: natively that is all one, so no program expects to be refused. Where memory moves none is; in
 * static, where it is known where the blocks are, and where a block must stay on the host, the driver's refusal changes
 * nothing. Each part in a process of its own, in each mode. Beside memory that moves: regraph_moves_test.c.
 */
#include "test/preload/regraph_help.h"
#include "test/test.h"

#include "shim/spillway.h"

CHILD_FRAME(open_blocks, NULL)

/* In static the driver would refuse. */
static void moving_graph_part(void (*program)(void))
{
	if (is_static())
		skip();
	graph_part(program);
}

/* ---- one copy, from every kind to every other ---- */

static void from_one_to_the_other(struct copy was, struct copy will, enum way way, CUdeviceptr word)
{
	CUgraph graph = capture_copies(&was, 1, word, 0);
	CUgraphExec exec = instantiate(graph);

	fill_block(will.from, 0x1234);
	fill_block(will.to, 0);
	MUST(change_copy(exec, first_node(graph), will, way, word));
	run_graph(exec);
	CHECK(driver_holds(block[will.to], 0x1234, WORDS));
	/* And back again. */
	fill_block(was.from, 0x4321);
	fill_block(was.to, 0);
	MUST(change_copy(exec, first_node(graph), was, way, word));
	run_graph(exec);
	CHECK(driver_holds(block[was.to], 0x4321, WORDS));
	MUST(cu.cuGraphExecDestroy(exec));
	MUST(cu.cuGraphDestroy(graph));
}

static int place(int which)
{
	return which < MIXED ? DEVICE : which == MIXED ? MIXED : HOST;
}

static bool is_alike(struct copy a, struct copy b)
{
	return place(a.to) == place(b.to) && place(a.from) == place(b.from);
}

static void is_refused(struct copy was, struct copy will, enum way way, CUdeviceptr word)
{
	CUgraph graph = capture_copies(&was, 1, word, 0);
	CUgraphExec exec = instantiate(graph);

	fill_block(was.from, 0x1234);
	fill_block(was.to, 0);
	CHECK(change_copy(exec, first_node(graph), will, way, word) ==
	      (way < UPDATE ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE));
	run_graph(exec);
	CHECK(driver_holds(block[was.to], 0x1234, WORDS));
	MUST(cu.cuGraphExecDestroy(exec));
	MUST(cu.cuGraphDestroy(graph));
}

PART_TEST(a_copy_of_an_instance_is_given_memory_of_every_kind, graph_part(part))
{
	static const struct copy copy[] = {{DEVICE, DEVICE_TOO}, {DEVICE, HOST}, {HOST, DEVICE},  {HOST, HOST_TOO},
					   {MIXED, DEVICE},      {MIXED, HOST},  {DEVICE, MIXED}, {HOST, MIXED}};
	unsigned n = sizeof(copy) / sizeof(copy[0]);

	CUdeviceptr word = child_alloc(4096);
	for (unsigned was = 0; was < n; was++)
		for (unsigned will = 0; will < n; will++) {
			enum way way = (was * n + will) % WAYS;

			if (is_static() && !is_alike(copy[was], copy[will]))
				is_refused(copy[was], copy[will], way, word);
			else
				from_one_to_the_other(copy[was], copy[will], way, word);
		}
}

/* The device is full of what must stay, or the block must: the program's own pins. */
PART_TEST(what_must_stay_on_the_host_is_refused_and_changes_nothing, graph_part(part))
{
	CUdeviceptr word = child_alloc(4096);
	CHECK(spillway_pin((void *)(uintptr_t)block[HOST]) == 0);
	if (sim_where(block[HOST]) == 'D')
		return; /* it was fetched meanwhile */
	for (int way = 0; way < WAYS; way++)
		is_refused((struct copy){DEVICE, DEVICE_TOO}, (struct copy){HOST, DEVICE}, way, word);
}

/* ---- many copies ---- */

static CUgraph many(const struct copy *copy, CUdeviceptr word, unsigned value, bool inside)
{
	CUgraph graph = capture_copies(copy, 3, word, value);

	return inside ? in_another(graph) : graph;
}

PART_TEST(an_update_gives_all_copies_other_memory_also_in_child_graphs, moving_graph_part(part))
{
	static const struct copy copy[][3] = {{{DEVICE, DEVICE_TOO}, {HOST, DEVICE}, {MIXED, HOST}},
					      {{HOST, MIXED}, {HOST_TOO, HOST}, {DEVICE_TOO, HOST_TOO}},
					      {{DEVICE, HOST}, {DEVICE_TOO, DEVICE}, {MIXED, DEVICE_TOO}}};

	CUdeviceptr word = child_alloc(4096);
	for (int inside = 0; inside < 2; inside++) {
		CUgraph graph = many(copy[0], word, 7, inside);
		CUgraphExec exec = instantiate(graph);

		/* Nothing of what it was made from is needed. */
		MUST(cu.cuGraphDestroy(graph));
		for (unsigned i = 1; i < 7; i++) {
			const struct copy *now = copy[i % 3];

			graph = many(now, word, i, inside);
			MUST(update_graph(exec, graph, UPDATE));
			MUST(cu.cuGraphDestroy(graph));
			fill_block(now[0].from, 0x5000 + i);
			run_graph(exec);
			for (int j = 0; j < 3; j++)
				CHECK(driver_holds(block[now[j].to], 0x5000 + i, WORDS));
			CHECK(driver_holds(word, i, 1));
		}
		MUST(cu.cuGraphExecDestroy(exec));
	}
}

/* ---- copies from and to the host, and of a part ---- */

PART_TEST(copies_between_the_host_and_other_memory_are_changed_too, moving_graph_part(part))
{
	CUDA_MEMCPY3D copy = form_line(0, 0, 1);
	unsigned char *page = malloc(BYTES), byte;
	CUgraphNode node;
	CUgraph graph;

	memset(page, 0x55, BYTES);
	MUST(cuGraphCreate(&graph, 0));
	copy.srcMemoryType = CU_MEMORYTYPE_HOST;
	copy.srcHost = page;
	copy.dstDevice = block[DEVICE];
	MUST(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, scene.context));
	CUgraphExec exec = instantiate(graph);
	for (int i = 0; i < N_BLOCKS; i++) {
		int which = i % 2 ? HOST : DEVICE;

		page[i] = (unsigned char)(0x60 + i);
		copy.srcHost = page + i;
		copy.dstDevice = block[which];
		copy.dstXInBytes = 1000;
		MUST(cuGraphExecMemcpyNodeSetParams(exec, node, &copy, scene.context));
		run_graph(exec);
		MUST(cu.cuMemcpyDtoH_v2(&byte, block[which] + 1000, 1));
		CHECK(byte == 0x60 + i);
	}
	/* What the driver would not have anywhere is refused, and the instance does what it did. */
	copy.dstDevice = block[DEVICE];
	copy.WidthInBytes = BYTES;
	CHECK(cuGraphExecMemcpyNodeSetParams(exec, node, &copy, scene.context) == CUDA_ERROR_INVALID_VALUE);
	fill_block(HOST, 0);
	run_graph(exec);
	MUST(cu.cuMemcpyDtoH_v2(&byte, block[HOST] + 1000, 1));
	CHECK(byte == 0x60 + N_BLOCKS - 1);
	MUST(cu.cuGraphExecDestroy(exec));
	MUST(cu.cuGraphDestroy(graph));
	free(page);
}

/* ---- between the heap and what the program has mapped itself, in several pieces side by side ---- */

enum { PIECES = 4 };

static CUdeviceptr map_pieces(void)
{
	CUmemLocation here = form_location(0);
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here};
	CUmemAccessDesc access = {.location = here, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;

	MUST(cu.cuMemAddressReserve(&at, PIECES * 2 * MIB, 0, 0, 0));
	for (int i = 0; i < PIECES - 1; i++) {
		MUST(cu.cuMemCreate(&handle, 2 * MIB, &prop, 0));
		MUST(cu.cuMemMap(at + i * 2 * MIB, 2 * MIB, 0, handle, 0));
		MUST(cu.cuMemRelease(handle));
		MUST(cu.cuMemSetAccess(at + i * 2 * MIB, 2 * MIB, &access, 1));
	}
	return at;
}

PART_TEST(copies_to_several_mappings_of_the_program_are_changed_too, moving_graph_part(part))
{
	static const int from[] = {HOST, DEVICE, MIXED, HOST_TOO};
	CUDA_MEMCPY3D copy;
	CUgraphNode node;
	CUgraph graph;

	CUdeviceptr at = map_pieces();
	copy = copy_of((struct copy){DEVICE_TOO, DEVICE});
	copy.dstDevice = at + MIB;
	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, scene.context));
	CUgraphExec exec = instantiate(graph);
	for (unsigned i = 0; i < 4; i++) {
		copy.srcDevice = block[from[i]];
		copy.dstDevice = at + MIB / 2 * i;
		MUST(cuGraphExecMemcpyNodeSetParams(exec, node, &copy, scene.context));
		fill_block(from[i], 0x100 + i);
		run_graph(exec);
		CHECK(driver_holds(copy.dstDevice, 0x100 + i, WORDS));
	}
	/* It reaches into the last piece, where nothing is mapped. */
	copy.srcDevice = block[HOST];
	copy.dstDevice = at + 3 * MIB;
	CHECK(cuGraphExecMemcpyNodeSetParams(exec, node, &copy, scene.context) == CUDA_ERROR_INVALID_VALUE);
	MUST(cu.cuGraphExecDestroy(exec));
	MUST(cu.cuGraphDestroy(graph));
	MUST(cu.cuMemUnmap(at, (PIECES - 1) * 2 * MIB));
	MUST(cu.cuMemAddressFree(at, PIECES * 2 * MIB));
}

/* ---- while the thread captures ---- */

PART_TEST(a_change_disturbs_no_capture_of_its_thread, graph_part(part))
{
	CUgraph graph, other, captured;
	CUDA_MEMCPY3D copy = copy_of((struct copy){HOST, HOST_TOO});
	struct copy first = {DEVICE, DEVICE_TOO}, second = {MIXED, HOST};

	copy = copy_of((struct copy){HOST, HOST_TOO});
	CUdeviceptr word = child_alloc(4096);
	graph = capture_copies(&first, 1, word, 0);
	other = capture_copies(&second, 1, word, 0);
	CUgraphExec exec = instantiate(graph);
	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	MUST(cuMemcpyDtoDAsync_v2(block[DEVICE_TOO], block[HOST], BYTES, stream));
	/* Nothing moves meanwhile. What is not on the device is refused. */
	CUresult set = cuGraphExecMemcpyNodeSetParams(exec, first_node(graph), &copy, scene.context);
	CHECK(set == CUDA_SUCCESS || set == CUDA_ERROR_INVALID_VALUE);
	CUresult updated = update_graph(exec, other, UPDATE);
	CHECK(updated == CUDA_SUCCESS || updated == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	MUST(cuMemcpyDtoDAsync_v2(block[DEVICE], block[DEVICE_TOO], BYTES, stream));
	MUST(cu.cuStreamEndCapture(stream, &captured));
	fill_block(HOST, 0x77);
	fill_block(HOST_TOO, 0x77);
	fill_block(DEVICE_TOO, 0x77);
	run_graph(exec);
	CHECK(driver_holds(block[updated == CUDA_SUCCESS ? MIXED : set == CUDA_SUCCESS ? HOST : DEVICE], 0x77, WORDS));
	MUST(cu.cuGraphExecDestroy(exec));
	exec = instantiate(captured);
	run_graph(exec);
	CHECK(driver_holds(block[DEVICE], 0x77, WORDS));
}

/* ---- when something fails ---- */

/* Returns whether the failure has happened: of a call that makes, maps or unmaps memory. */
static bool one_failure(enum way way, unsigned n, CUdeviceptr word)
{
	struct copy was = {DEVICE, DEVICE_TOO}, will = {HOST, MIXED};
	CUgraph graph = capture_copies(&was, 1, word, 0);
	CUgraphExec exec = instantiate(graph);

	fill_block(was.from, 0x11);
	fill_block(was.to, 0);
	fill_block(will.from, 0x22);
	fill_block(will.to, 0);
	MUST(cu.cuCtxSynchronize());
	sim_fail_any(n, CUDA_ERROR_UNKNOWN);
	CUresult result = change_copy(exec, first_node(graph), will, way, word);
	bool happened = !sim_fail_pending();
	sim_fail_any(0, CUDA_SUCCESS);
	run_graph(exec);
	CHECK(driver_holds(block[was.to], result ? 0x11 : 0, WORDS));
	CHECK(driver_holds(block[will.to], result ? 0 : 0x22, WORDS));
	MUST(cu.cuGraphExecDestroy(exec));
	MUST(cu.cuGraphDestroy(graph));
	return happened;
}

enum { FAILURES = 10 };

PART_TEST(a_failure_leaves_the_instance_as_it_was, graph_part(part))
{
	unsigned happened = 0;

	CUdeviceptr word = child_alloc(4096);
	for (int way = 0; way < WAYS; way++)
		for (unsigned n = 1; n <= FAILURES; n++)
			happened += one_failure(way, n, word);
	CHECK(is_static() || happened);
}

/* ---- */
