// SPDX-License-Identifier: Apache-2.0
/*
 * A graph that names more than the budget: what most of its nodes use comes to the device for what few of them use,
 * after some launches nothing moves any more, and no word is wrong. Each part in a process of its own (child.h).
 */
#include "test/preload/scene.h"
#include "test/test.h"

#include <stdatomic.h>

enum { PAIRS = 12, SETS = 6, IN_TIME_S = 40 };
#define EACH_BYTES (4 * MIB)
#define WORDS      (EACH_BYTES / 4)
/* 48 MiB of each kind. */
#define BUDGET        (64 * MIB)
#define BUDGET_OF_ONE (96 * MIB)

/* Each is read by one node, and the other one of its pair written by many. */
static CUdeviceptr seldom[PAIRS], often[PAIRS];
static CUstream stream;

/* What is seldom used is there first, and on the device. */
static void open_pairs(void)
{
	driver_start(0);
	driver_kernel("fill");
	for (unsigned i = 0; i < PAIRS; i++)
		seldom[i] = child_alloc(EACH_BYTES);
	for (unsigned i = 0; i < PAIRS; i++)
		often[i] = child_alloc(EACH_BYTES);
	stream = child_stream();
	for (unsigned i = 0; i < PAIRS; i++)
		MUST(driver_fill(stream, seldom[i], 1000 + i, WORDS));
	MUST(cu.cuStreamSynchronize(stream));
}

static CUgraphExec capture(const CUdeviceptr *from, const CUdeviceptr *to)
{
	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	for (unsigned i = 0; i < PAIRS; i++) {
		for (unsigned set = 0; set < SETS; set++)
			MUST(cuMemsetD32Async(to[i], set, WORDS, stream));
		MUST(cuMemcpyDtoDAsync_v2(to[i], from[i], EACH_BYTES, stream));
	}
	return driver_captured(stream);
}

static void run(CUgraphExec exec)
{
	MUST(cu.cuGraphLaunch(exec, stream));
	MUST(cu.cuStreamSynchronize(stream));
}

/* MiB on the device; words: "D" or "H" of each MiB. */
static unsigned on_device(const CUdeviceptr *blocks, char *words)
{
	unsigned sum = 0;

	for (unsigned i = 0; i < PAIRS; i++)
		for (size_t at = 0; at < EACH_BYTES; at += MIB) {
			*words = sim_where(blocks[i] + at);
			sum += *words++ == 'D';
		}
	return sum;
}

static bool all_hold(const CUdeviceptr *blocks)
{
	for (unsigned i = 0; i < PAIRS; i++)
		if (!driver_holds(blocks[i], 1000 + i, WORDS))
			return false;
	return true;
}

static void what_most_nodes_use_comes(void)
{
	char before[2][PAIRS * EACH_BYTES / MIB], after[2][sizeof(before[0])];
	time_t until = time(NULL) + IN_TIME_S;
	unsigned there = 0;

	open_pairs();
	CHECK(on_device(seldom, before[0]) == sizeof(before[0]));
	CHECK(on_device(often, before[1]) < sizeof(before[1]) / 2);
	CUgraphExec exec = capture(seldom, often);
	while (there < sizeof(before[1]) && time(NULL) < until) {
		run(exec);
		there = on_device(often, before[1]);
	}
	if (there < sizeof(before[1]))
		print_message("%u of %zu MiB are there\n", there, sizeof(before[1]));
	CHECK(there == sizeof(before[1]));
	/* Then that is all: nothing leaves any more. */
	run(exec);
	on_device(seldom, before[0]);
	for (unsigned i = 0; i < 5; i++) {
		run(exec);
		CHECK(on_device(often, after[1]) == there);
		on_device(seldom, after[0]);
		for (size_t at = 0; at < sizeof(after[0]); at++)
			CHECK(before[0][at] == 'H' || after[0][at] == 'D');
	}
	CHECK(all_hold(seldom) && all_hold(often));
}

/* Each is used often by one of them: for the other it is in the way. */
static void graphs_that_take_turns_are_right(void)
{
	open_pairs();
	CUgraphExec there = capture(seldom, often), back = capture(often, seldom);
	for (unsigned i = 0; i < 20; i++) {
		MUST(cu.cuGraphLaunch(there, stream));
		/* Now and then without a pause, so that what is to leave is in use. */
		if (i % 2)
			MUST(cu.cuStreamSynchronize(stream));
		run(back);
	}
	CHECK(all_hold(seldom) && all_hold(often));
}

/* Copies what the graph seldom uses, in a stream of its own: what is to leave is in use, and others wait, too. */
static CUdeviceptr copies[PAIRS];
static atomic_bool over;
static void *copy_all_the_time(void *argument)
{
	driver_start(0);
	CUstream mine = child_stream();

	for (unsigned i = 0; !atomic_load(&over); i++) {
		MUST(driver_copy(mine, copies[i % PAIRS], seldom[(i + 5) % PAIRS], WORDS));
		if (i % 4 == 0)
			MUST(cu.cuStreamSynchronize(mine));
	}
	for (unsigned i = 0; i < PAIRS; i++)
		MUST(driver_copy(mine, copies[i], seldom[i], WORDS));
	MUST(cu.cuStreamSynchronize(mine));
	return argument;
}

static void what_others_use_is_right(void)
{
	open_pairs();
	for (unsigned i = 0; i < PAIRS; i++)
		copies[i] = child_alloc(EACH_BYTES);
	CUgraphExec there = capture(seldom, often);
	pthread_t thread = test_thread(copy_all_the_time, NULL);
	for (unsigned i = 0; i < 20; i++)
		run(there);
	atomic_store(&over, true);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(all_hold(seldom) && all_hold(often) && all_hold(copies));
}

/*
 * All in one block, larger than what is wanted whole, and named only by kernels: where a tensor ends is known from
 * where the next begins, also of a graph with more names than are read of each submission. What is used often is in the
 * middle, and only most of it is on the device.
 */
enum { PARTS = 24, NAMES = 1100 };
#define PART_BYTES (6 * MIB)

static void one_block_is_told_apart(void)
{
	CUdeviceptr block, others, parts[PARTS];
	time_t until = time(NULL) + IN_TIME_S;
	unsigned there = 0, launches = 0;

	driver_start(0);
	driver_kernel("fill");
	others = child_alloc(4 * MIB);
	block = child_alloc(PARTS * PART_BYTES);
	stream = child_stream();
	for (unsigned i = 0; i < PARTS; i++)
		parts[i] = block + i * PART_BYTES;
	MUST(driver_fill(stream, block, 1000, PARTS * PART_BYTES / 4));
	MUST(cu.cuStreamSynchronize(stream));
	CHECK(sim_where(parts[PARTS / 4]) == 'D' && sim_where(parts[3 * PARTS / 4 - 1]) == 'H');

	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	for (unsigned i = 0; i < NAMES; i++)
		MUST(driver_fill(stream, others + i * 1024, i, 1));
	for (unsigned i = 0; i < PARTS / 2; i++) {
		CUdeviceptr to = parts[PARTS / 4 + i], from = parts[i < PARTS / 4 ? i : PARTS / 2 + i];

		for (unsigned set = 0; set < SETS; set++)
			MUST(driver_fill(stream, to, set, PART_BYTES / 4));
		MUST(driver_copy(stream, to, from, PART_BYTES / 4));
	}
	for (unsigned i = 0; i < NAMES; i++)
		MUST(driver_fill(stream, others + (NAMES + i) * 1024, i, 1));
	CUgraphExec exec = driver_captured(stream);
	/* What the capture has shown is forgotten (tensors.h). */
	for (unsigned i = 0; i < 3 * 2048; i++)
		MUST(driver_fill(stream, others, i, 1));
	while ((there < PARTS / 2 * PART_BYTES / MIB || launches < 10) && time(NULL) < until) {
		run(exec);
		launches++;
		there = 0;
		for (size_t at = 0; at < PARTS / 2 * PART_BYTES; at += MIB)
			there += sim_where(parts[PARTS / 4] + at) == 'D';
	}
	if (there < PARTS / 2 * PART_BYTES / MIB)
		print_message("%u MiB are there\n", there);
	CHECK(there == PARTS / 2 * PART_BYTES / MIB);
	CHECK(driver_holds(block, 1000, PARTS * PART_BYTES / 4));
}

static void part(void (*program)(void), size_t budget)
{
	char set[160];

	snprintf(set, sizeof(set),
		 "SPILLWAY_SET=spill.mode=%s,device.budget=%zuMiB,host.budget=256MiB,heap.chunk=2MiB,report.summary=no",
		 scene_mode(), budget / MIB);
	assert_int_equal(child_run(((const char *const[]){"SIM_FILL=0", "SIM_MEMORY=256MiB", "SIM_HOST_MEMORY=512MiB",
							  "SIM_PIECE_US=5", set, NULL}),
				   program),
			 0);
}

#define PART(name)                                                                                                     \
	TEST(test_##name)                                                                                              \
	{                                                                                                              \
		part(name, name == one_block_is_told_apart ? BUDGET_OF_ONE : BUDGET);                                  \
	}

PART(what_most_nodes_use_comes)
PART(graphs_that_take_turns_are_right)
PART(what_others_use_is_right)
PART(one_block_is_told_apart)
