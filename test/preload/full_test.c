// SPDX-License-Identifier: Apache-2.0
/*
 * A device that others fill after the program has begun: the budget would allow more than the driver has. Memory moves
 * nevertheless, within what there is, and more of it comes in when the others have gone. In the mode of SPILL_MODE.
 */
#include "test/preload/scene.h"
#include "test/test.h"

/* Of SIM_MEMORY, which scene_run() sets. */
#define DEVICE  (512 * MIB)
#define THEIRS  (DEVICE - SCENE_BUDGET)
#define BUDGET  (256 * MIB)
#define RETURNS 100000 /* rounds, at most, until more has come: now and then moving is found not to pay */

static struct scene scene;

static CUdeviceptr others_come(void)
{
	CUresult (*native)(CUdeviceptr *, size_t) = driver_native("cuMemAlloc_v2");
	CUdeviceptr theirs;

	MUST(native(&theirs, THEIRS));
	return theirs;
}

static void others_go(CUdeviceptr theirs)
{
	CUresult (*native)(CUdeviceptr) = driver_native("cuMemFree_v2");

	MUST(native(theirs));
}

static void round_and_wait(void)
{
	MUST(scene_round(&scene, NULL, 0));
	MUST(cu.cuStreamSynchronize(NULL));
}

static size_t bytes_at(char place)
{
	size_t bytes = 0;

	for (unsigned i = 0; i < SCENE_BLOCKS; i++)
		for (size_t at = 0; at < SCENE_BYTES; at += MIB)
			bytes += sim_where(scene.block[i] + at) == place ? MIB : 0;
	return bytes;
}

PART_TEST(memory_moves_within_what_others_leave, assert_int_equal(scene_run(BUDGET, part), 0))
{
	scene_load(&scene, 0);
	CUdeviceptr theirs = others_come();
	scene_allocate(&scene);
	CHECK(bytes_at('H'));
	CHECK(scene_warm_up(&scene));
	for (int i = 0; i < 20; i++)
		round_and_wait();
	others_go(theirs);
	for (int i = 0; scene_moves() && bytes_at('D') <= SCENE_BUDGET && i < RETURNS; i++)
		round_and_wait();
	CHECK(!scene_moves() || bytes_at('D') > SCENE_BUDGET);
	CHECK(scene_holds(&scene));
	scene_close(&scene);
}
