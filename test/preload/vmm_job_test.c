// SPDX-License-Identifier: Apache-2.0
/*
 * Memory that a program makes itself and that moves (vmm.spill: move): a training job with one expandable segment of
 * twice the budget. In `exact` it moves as any block does, and leaves when the job is suspended; in `fast` and
 * `static`, and with any other vmm.spill, it stays where it was placed. The figures say so. Under the library alone, in
 * each mode.
 */
#include "shim/spillway.h"
#include "test/preload/figures_help.h"
#include "test/preload/vmm_help.h"
#include "test/test.h"

enum { HANDLES = 15, TOUCHED = 4096, MOST_ROUNDS = 3000, STILL_MS = 200, AFTER_MS = 20000 };
#define PIECE (4 * MIB) /* 60 MiB in all, and the host holds one more */

static CUdeviceptr segment;
static unsigned rounds;

static bool is_moved(void)
{
	return !strcmp(vmm_spill(), "move") && !strcmp(vmm_mode(), "exact");
}

static uint64_t moved(void)
{
	return page_there()->counter[STAT_moved_in_bytes];
}

static void one_round(void)
{
	rounds++;
	for (unsigned i = 0; i < HANDLES; i++)
		vmm_count(NULL, segment + i * PIECE + MIB, rounds * 100 + i, TOUCHED);
	MUST(cu.cuStreamSynchronize(NULL));
}

static void check_segment(void)
{
	for (unsigned i = 0; i < HANDLES; i++) {
		CHECK(vmm_counts(segment + i * PIECE + MIB, rounds * 100 + i, TOUCHED));
		CHECK(vmm_counts(segment + i * PIECE, i << 24, MIB / 4));
		CHECK(vmm_counts(segment + i * PIECE + 2 * MIB, (i << 24) + 2 * MIB / 4, 2 * MIB / 4));
	}
}

/* Until something has moved, where it may: the library takes its time to be sure that it pays. */
static void train(void)
{
	uint64_t before = moved();
	unsigned most = is_moved() ? MOST_ROUNDS : 100;

	for (unsigned i = 0; i < most && (!is_moved() || moved() == before); i++)
		one_round();
}

static size_t on_device(void)
{
	size_t bytes = 0;

	for (size_t at = 0; at < HANDLES * PIECE; at += GRANULE)
		bytes += sim_where(segment + at) == 'D' ? GRANULE : 0;
	return bytes;
}

static void make_segment(void)
{
	rounds = 0;
	segment = vmm_reserve(HANDLES * PIECE * 2);
	for (unsigned i = 0; i < HANDLES; i++) {
		vmm_map_new(segment + i * PIECE, PIECE);
		vmm_write(segment + i * PIECE, i << 24, PIECE / 4);
	}
}

PART_TEST(moves_in_exact_and_nowhere_else, vmm_run_with(runtime, "", part))
{
	make_segment();
	size_t there = on_device();
	train();
	check_segment();
	CHECK((moved() > 0) == is_moved());
	if (!is_moved())
		CHECK(on_device() == there && page_there()->counter[STAT_moved_out_bytes] == 0);
	if (strcmp(vmm_spill(), "no"))
		CHECK(on_device() <= VMM_BUDGET && on_device() > 0);
	/* Grown and shrunk, it goes on. */
	vmm_unmap(segment + 3 * PIECE, 2 * PIECE);
	for (unsigned i = 3; i < 5; i++) {
		vmm_map_new(segment + i * PIECE, PIECE);
		vmm_write(segment + i * PIECE, i << 24, PIECE / 4);
	}
	train();
	check_segment();
	vmm_unmap_and_free(segment, HANDLES * PIECE, HANDLES * PIECE * 2);
}

/* ---- suspended ---- */

static CUcontext context;
static _Atomic bool begun, done;

static void *go_on(void *unused)
{
	MUST(cu.cuCtxSetCurrent(context));
	begun = true;
	one_round();
	done = true;
	return unused;
}

static void gives_memory_back(void)
{
	pthread_t thread;
	int ms;

	context = driver_current();
	vmm_kernel();
	size_t without = sim_live().device_bytes;
	make_segment();
	CHECK(on_device() > 0);
	for (int turn = 0; turn < 3; turn++) {
		train();
		begun = done = false;
		CHECK(spillway_suspend() == 0);
		CHECK(on_device() == 0 && sim_live().device_bytes == without);
		CHECK(pthread_create(&thread, NULL, go_on, NULL) == 0);
		usleep(STILL_MS * 1000);
		CHECK(!done && on_device() == 0);
		/* What is made now, too, lies on the host. */
		CUdeviceptr at = segment + HANDLES * PIECE;
		vmm_map_new(at, PIECE);
		CHECK(sim_where(at) == 'H');
		CHECK(sim_live().device_bytes == without);
		CHECK(spillway_resume() == 0);
		for (ms = 0; !done && ms < AFTER_MS; ms++)
			usleep(1000);
		CHECK(done && pthread_join(thread, NULL) == 0);
		check_segment();
		vmm_write(at, 77, PIECE / 4);
		CHECK(vmm_counts(at, 77, PIECE / 4));
		vmm_unmap(at, PIECE);
	}
	train();
	check_segment();
	vmm_unmap_and_free(segment, HANDLES * PIECE, HANDLES * PIECE * 2);
}

TEST(suspended_it_gives_its_memory_back_and_goes_on)
{
	if (!is_moved())
		skip();
	vmm_run_with(runtime, "", gives_memory_back);
}

EACH_TEST(folder_make, folder_remove)
