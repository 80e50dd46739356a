// SPDX-License-Identifier: Apache-2.0
/*
 * Frees that cannot happen at once: those of a capture are made up for when it has ended, those behind a stream cost
 * each call little however many there are, and a capture ends with the context of its stream, whichever is current.
 */
#include "test/preload/child.h"
#include "test/test.h"

CHILD_FRAME(child_start, NULL)

#define SETTINGS(...) ((const char *const[]){"SIM_FILL=0", "SIM_MEMORY=128MiB", __VA_ARGS__, NULL})
#define BUDGETS                                                                                                        \
	SETTINGS("SPILLWAY_SET=device.budget=32MiB,host.budget=64MiB,heap.release_threshold=8MiB,report.summary=no")
#define LARGE SETTINGS("SPILLWAY_SET=device.budget=100MiB,host.budget=16MiB,async.use=driver,report.summary=no")

static size_t free_now(void)
{
	size_t free = 0;

	MUST(cu.cuMemGetInfo_v2(&free, NULL));
	return free;
}

/* ---- what was freed in a capture ---- */

CHILD_TEST(a_block_freed_in_a_capture_is_free_when_the_capture_has_ended_and_the_context_is_idle, LARGE)
{
	CUdeviceptr block = child_alloc(20 * MIB);
	size_t before = free_now();

	child_free_in_a_capture(block, child_stream());
	MUST(cu.cuCtxSynchronize());
	CHECK(free_now() == before + 20 * MIB);
}

CHILD_TEST(all_of_the_device_can_be_had_after_a_free_in_a_capture, LARGE)
{
	CUdeviceptr block;

	child_free_in_a_capture(child_alloc(90 * MIB), child_stream());
	MUST(cu.cuCtxSynchronize());
	MUST(cu.cuMemAllocAsync(&block, 120 * MIB, NULL));
	MUST(cu.cuMemFreeAsync(block, NULL));
}

#define MAY_BE_WARM (8 * MIB) /* the threshold of BUDGETS */

CHILD_TEST(a_free_that_waits_makes_up_for_one_in_a_capture, BUDGETS)
{
	CUdeviceptr block = child_alloc(20 * MIB);

	/* Whoever marks the context's work now finds it undone: the free that waits for all of it must do. */
	sim_hold();
	child_free_in_a_capture(block, child_stream());
	block = child_alloc(2 * MIB);
	sim_release();
	MUST(cu.cuMemFree_v2(block));
	CHECK(sim_live().device_bytes <= MAY_BE_WARM);
}

/* ---- many frees behind a stream ---- */

#define N_FREES     2000u
#define MOST_A_CALL 2u /* events asked about: one for each stream that is not done */

CHILD_TEST(frees_behind_a_held_stream_ask_about_few_events_each, BUDGETS)
{
	static CUdeviceptr blocks[N_FREES];

	CUstream stream = child_stream();
	for (unsigned i = 0; i < N_FREES; i++)
		blocks[i] = child_alloc(4096);
	unsigned *word = child_hold(stream);
	unsigned long queries = sim_calls("cuEventQuery");
	for (unsigned i = 0; i < N_FREES; i++)
		MUST(cu.cuMemFreeAsync(blocks[i], stream));
	CHECK(sim_calls("cuEventQuery") - queries <= MOST_A_CALL * N_FREES);
	child_release(word);
	MUST(cu.cuStreamSynchronize(stream));
	/* What has passed is freed all at once. */
	CUdeviceptr block = child_alloc(32 * MIB);
	CHECK(child_on_device(block, 32 * MIB));
	MUST(cu.cuMemFree_v2(block));
	CHECK(sim_live().mappings == 0 && sim_broken_rules() == 0);
}

/* Behind a stream that is held, and one behind a stream that is done: that one must be found at once. */
CHILD_TEST(frees_behind_a_held_stream_do_not_hide_those_behind_a_finished_one, BUDGETS)
{
	CUdeviceptr small[40];

	CUstream held = child_stream(), finished = child_stream();
	for (int i = 0; i < 40; i++)
		small[i] = child_alloc(4096);
	CUdeviceptr large = child_alloc(24 * MIB);
	unsigned *word = child_hold(held);
	for (int i = 0; i < 40; i++)
		MUST(cu.cuMemFreeAsync(small[i], held));
	MUST(cu.cuMemFreeAsync(large, finished));
	MUST(cu.cuStreamSynchronize(finished));
	CUdeviceptr again = child_alloc(24 * MIB);
	CHECK(child_on_device(again, 24 * MIB));
	child_release(word);
}

/* ---- captures and contexts ---- */

CHILD_TEST(a_capture_ends_with_the_context_of_its_stream_whichever_is_current, BUDGETS)
{
	CUcontext first = driver_current(), second = child_context();
	CUstream stream = child_stream();

	MUST(cu.cuCtxSetCurrent(first));
	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	MUST(cu.cuCtxDestroy_v2(second));
	for (int i = 0; i < 3; i++) {
		unsigned long waits = sim_calls("cuCtxSynchronize");
		CUdeviceptr block = child_alloc(20 * MIB);

		CHECK(child_on_device(block, 20 * MIB));
		MUST(cu.cuMemFree_v2(block));
		CHECK(sim_calls("cuCtxSynchronize") > waits && sim_live().mappings == 0);
	}
}
