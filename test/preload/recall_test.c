// SPDX-License-Identifier: Apache-2.0
/*
 * What programs do while memory that one device has lent to another comes back to it: nothing of that is lost, nothing
 * hangs, and what is lent comes back in the end. Each part in a process of its own (child.h).
 *
 * Device 1 has half of its blocks in its own memory and half in all that device 0 may have; then device 0 begins to
 * work.
 */
#include "test/preload/figures_help.h"
#include "test/preload/folder.h"
#include "test/preload/scene.h"
#include "test/test.h"

#include <stdatomic.h>

#include "shim/spillway.h"
#include "test/slow.h"

enum { LENDER, BORROWER, OWN = 8, BORROWED = 16, IN_TIME_S = 40 };
#define EACH_BYTES (8 * MIB)
#define WORDS      (EACH_BYTES / 4)
#define ALL_MIB    ((size_t)64)

static CUdeviceptr own[OWN], borrowed[BORROWED];
static unsigned own_value[OWN], borrowed_value[BORROWED];
static CUcontext context[2];

static size_t on_own_device(const CUdeviceptr *these, unsigned n)
{
	struct spillway_place place;
	size_t sum = 0;

	for (unsigned i = 0; i < n; i++) {
		if (!these[i])
			continue;
		CHECK(spillway_where((const void *)(uintptr_t)these[i], &place) == 0);
		sum += place.bytes_on_device;
	}
	return sum / MIB;
}

static void be(int device)
{
	MUST(cu.cuCtxSetCurrent(context[device]));
}

static void borrow_everything(void)
{
	context[LENDER] = driver_start(LENDER);
	context[BORROWER] = driver_start(BORROWER);
	for (unsigned i = 0; i < BORROWED; i++) {
		borrowed[i] = child_alloc(EACH_BYTES);
		borrowed_value[i] = 100 + i;
		MUST(driver_fill(NULL, borrowed[i], borrowed_value[i], WORDS));
	}
	MUST(cu.cuCtxSynchronize());
	/* Some of it may have moved on to the host, where calls fail or the machine is slow. */
	CHECK(sim_live().device_bytes > ALL_MIB * MIB);
	be(LENDER);
	for (unsigned i = 0; i < OWN; i++)
		own[i] = child_alloc(EACH_BYTES);
	CHECK(on_own_device(own, OWN) < ALL_MIB);
}

static void work_of_lender(unsigned value)
{
	be(LENDER);
	for (unsigned i = 0; i < OWN; i++) {
		own_value[i] = value + i;
		MUST(driver_fill(NULL, own[i], own_value[i], WORDS));
	}
	MUST(cu.cuCtxSynchronize());
}

static bool are_right(const CUdeviceptr *these, const unsigned *values, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (these[i] && !driver_holds(these[i], values[i], WORDS))
			return false;
	return true;
}

/* Rounds of the lender until it has its memory back, and something else in each. */
static void rounds_until_back(void (*beside)(unsigned round), unsigned least)
{
	time_t until = time(NULL) + IN_TIME_S;
	size_t there = 0;

	for (unsigned round = 0; (there < ALL_MIB || round < least) && time(NULL) < until; round++) {
		if (beside)
			beside(round);
		work_of_lender(1000 * (round + 1));
		there = on_own_device(own, OWN);
	}
	if (there != ALL_MIB)
		print_message("%zu MiB of the lender's are back\n", there);
	CHECK(there == ALL_MIB);
}

static void end(void)
{
	be(LENDER);
	CHECK(are_right(own, own_value, OWN));
	be(BORROWER);
	CHECK(are_right(borrowed, borrowed_value, BORROWED));
}

CHILD_FRAME(borrow_everything, end)

static int run_with(void (*program)(void), const char *more)
{
	char set[240];

	folder_clear();
	snprintf(set, sizeof(set),
		 "SPILLWAY_SET=spill.mode=%s,spill.peers=0 .. 1,device.budget=64MiB,spill.peer_budget=64MiB,"
		 "host.budget=192MiB,heap.chunk=2MiB,report.summary=no",
		 scene_mode());
	return child_run(((const char *const[]){"SIM_FILL=0", "SIM_MEMORY=128MiB", "SIM_HOST_MEMORY=512MiB",
						"SIM_DEVICES=2", "SIM_PIECE_US=5", set, runtime, more, NULL}),
			 program);
}

static void run_where_it_moves(void (*program)(void))
{
	if (!scene_moves())
		skip();
	assert_int_equal(run_with(program, NULL), 0);
}

/* ---- calls that fail ---- */

static void fails_by_chance(void)
{
	rounds_until_back(NULL, 0);
}

TEST(calls_that_fail_do_not_end_it)
{
	char seed[40];
	int failed = 0;
	unsigned first = getenv("TEST_SEED") ? (unsigned)atoi(getenv("TEST_SEED")) : 1;

	if (!scene_moves())
		skip();
	setenv("SIM_FAIL_THREAD", "spillway-mover:100", 1);
	for (unsigned i = 0; i < 4; i++) {
		snprintf(seed, sizeof(seed), "SIM_SEED=%u", first + i);
		print_message("%s\n", seed);
		failed |= run_with(fails_by_chance, seed);
	}
	unsetenv("SIM_FAIL_THREAD");
	assert_int_equal(failed, 0);
}

/* ---- captures ---- */

static CUstream captured;

static void capture(unsigned round)
{
	CUgraph graph;
	struct timespec moment = {.tv_nsec = 2000000};

	if (round % 4 != 1)
		return;
	be(BORROWER);
	MUST(cu.cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
	MUST(driver_fill(captured, borrowed[round % BORROWED], borrowed_value[round % BORROWED], WORDS));
	/* What was under way when it began ends meanwhile. */
	nanosleep(&moment, NULL);
	MUST(cu.cuStreamEndCapture(captured, &graph));
	CUgraphExec exec = driver_instance(graph);
	MUST(cu.cuGraphLaunch(exec, captured));
	MUST(cu.cuStreamSynchronize(captured));
	MUST(cu.cuGraphExecDestroy(exec));
	MUST(cu.cuGraphDestroy(graph));
}

PART_TEST(captures_stay_whole_and_it_goes_on_behind_them, run_where_it_moves(part))
{
	be(BORROWER);
	captured = child_stream();
	rounds_until_back(capture, 12);
}

/* ---- forks ---- */

static void fork_one(unsigned round)
{
	int status;

	if (round >= 12)
		return;
	fflush(NULL);
	pid_t pid = fork();
	if (!pid) {
		CUdeviceptr block;

		alarm(20 * TEST_SLOWNESS);
		/* CUDA is lost to it; that must be said, not hung in. */
		if (round % 2 && cu.cuMemAlloc_v2(&block, MIB) == CUDA_SUCCESS)
			_exit(1);
		if (round % 3 == 0)
			exit(0);
		_exit(0);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

PART_TEST(children_of_forks_end_and_it_goes_on, run_where_it_moves(part))
{
	rounds_until_back(fork_one, 12);
}

/* ---- who may reach whose memory ---- */

static void switch_peers(unsigned round)
{
	/* Each of the two opens its memory to the other and shuts it, at its own pace. */
	for (int device = 0; device < 2; device++) {
		unsigned phase = round + 2 * (unsigned)device;

		be(device);
		if (phase % 4 == 1)
			MUST(cuCtxEnablePeerAccess(context[!device], 0));
		if (phase % 4 == 3 && round > 2)
			MUST(cuCtxDisablePeerAccess(context[!device]));
	}
	/* While the lender may reach it, its kernels read what the borrower has anywhere. */
	if (round % 4 == 2) {
		be(LENDER);
		MUST(driver_copy(NULL, own[round % OWN], borrowed[round % BORROWED], WORDS));
		MUST(cu.cuCtxSynchronize());
		CHECK(driver_holds(own[round % OWN], borrowed_value[round % BORROWED], WORDS));
	}
}

PART_TEST(peers_are_switched_on_and_off_beside_it, run_where_it_moves(part))
{
	rounds_until_back(switch_peers, 24);
}

/* ---- what the borrower does with its blocks ---- */

static void change_blocks(unsigned round)
{
	unsigned i = round % BORROWED;

	be(BORROWER);
	void *at = (void *)(uintptr_t)borrowed[i];
	switch (round % 5) {
	case 0:
		MUST(cu.cuMemFree_v2(borrowed[i]));
		borrowed[i] = child_alloc(EACH_BYTES);
		break;
	case 1:
		if (spillway_pin(at) == 0)
			CHECK(spillway_unpin(at) == 0);
		return;
	case 2:
		spillway_grow(at, EACH_BYTES + 2 * MIB);
		return;
	case 3:
		MUST(cu.cuMemFreeAsync(borrowed[i], NULL));
		MUST(cu.cuMemAllocAsync(&borrowed[i], EACH_BYTES, NULL));
		break;
	default:
		break;
	}
	borrowed_value[i] += 1000;
	MUST(driver_fill(NULL, borrowed[i], borrowed_value[i], WORDS));
}

PART_TEST(blocks_are_freed_grown_and_pinned_beside_it, run_where_it_moves(part))
{
	rounds_until_back(change_blocks, 60);
	be(BORROWER);
	MUST(cu.cuCtxSynchronize());
}

/* ---- contexts that end ---- */

/* All that the borrower has goes with its context, wherever it lies, and the lender has its memory. */
PART_TEST(a_borrower_whose_context_ends_gives_all_back, run_where_it_moves(part))
{
	work_of_lender(7);
	be(BORROWER);
	MUST(cu.cuDevicePrimaryCtxReset_v2(BORROWER));
	memset(borrowed, 0, sizeof(borrowed));
	rounds_until_back(NULL, 3);
	be(LENDER);
	CHECK(are_right(own, own_value, OWN));
	for (unsigned i = 0; i < OWN; i++)
		MUST(cu.cuMemFree_v2(own[i]));
	MUST(cu.cuDevicePrimaryCtxReset_v2(LENDER));
	CHECK(sim_live().allocations == 0 && sim_broken_rules() == 0);
	exit(0); /* nothing is left for end() */
}

/* What it has lent is not its own: it stays, and is right. */
PART_TEST(what_a_lender_whose_context_ends_has_lent_stays, run_where_it_moves(part))
{
	work_of_lender(7);
	MUST(cu.cuDevicePrimaryCtxReset_v2(LENDER));
	be(BORROWER);
	CHECK(are_right(borrowed, borrowed_value, BORROWED));
	for (unsigned i = 0; i < BORROWED; i++)
		MUST(driver_fill(NULL, borrowed[i], borrowed_value[i] += 5, WORDS));
	context[LENDER] = driver_start(LENDER);
	for (unsigned i = 0; i < OWN; i++)
		own[i] = child_alloc(EACH_BYTES);
	rounds_until_back(NULL, 3);
}

/* ---- pins that last ---- */

/* It cannot come back, so nobody stops the GPU for it again and again. */
PART_TEST(what_its_borrower_has_pinned_is_not_fetched_in_vain, run_where_it_moves(part))
{
	for (unsigned i = 0; i < BORROWED; i++)
		CHECK(spillway_pin((const void *)(uintptr_t)borrowed[i]) == 0);
	work_of_lender(7);
	uint64_t before = page_there()->counter[STAT_gaps];
	for (unsigned round = 0; round < 20; round++) {
		usleep(20000);
		work_of_lender(100 * round);
	}
	uint64_t gaps = page_there()->counter[STAT_gaps] - before;
	CHECK(gaps < 20);
	for (unsigned i = 0; i < BORROWED; i++)
		CHECK(spillway_unpin((const void *)(uintptr_t)borrowed[i]) == 0);
	rounds_until_back(NULL, 0);
}

/* ---- suspend ---- */

static void suspend_and_resume(unsigned round)
{
	if (round % 3 != 1)
		return;
	CHECK(spillway_suspend() == 0);
	/* All of it is away, also what was on its way from one to the other. */
	CHECK(sim_live().device_bytes == 0);
	CHECK(spillway_resume() == 0);
}

PART_TEST(a_suspended_process_has_nothing_on_either, run_where_it_moves(part))
{
	rounds_until_back(suspend_and_resume, 10);
}

/* ---- the end of the process ---- */

PART_TEST(a_process_ends_in_the_middle_of_it, run_where_it_moves(part))
{
	work_of_lender(3);
	work_of_lender(4);
	be(LENDER);
	for (unsigned i = 0; i < OWN; i++)
		MUST(driver_fill(NULL, own[i], i, WORDS));
	exit(0);
}

EACH_TEST(folder_make, folder_remove)
