// SPDX-License-Identifier: Apache-2.0
/*
 * How far a pointer reaches: two tensors that take turns, each most of the budget. All of one is brought before it is
 * read, however long that takes; and when the blocks were cut into small tensors while the job started, what was seen
 * in their midst then does not leave the rest of them on the host for ever.
 */
#include "test/preload/scene.h"
#include "test/preload/slow_clock.h"
#include "test/test.h"

#include <limits.h>

#include "shim/plan/tensors.h"

/* Two of these do not fit, and they are too large to be wanted whole without a reason. */
#define LARGE  (208 * MIB)
#define BUDGET (256 * MIB)
#define TENSOR (16 * MIB)
/* Submissions after which what was seen at the beginning is forgotten: two ages, the longest, and some. */
#define QUIET (2 * TENSOR_EXTENTS_AGE_BLIND + 256)
/*
 * Time is this program's own (slow_clock.h): reading 2 MiB over the link takes longer than bringing it, as on a real
 * GPU, however busy the machine is. Bringing 2 MiB takes 32 pauses of 60 us (scene_run()), and that much of a tensor
 * longer than the library's patience with the GPU (50 ms).
 */
#define REMOTE_US 40000
/* Of everybody's time meanwhile: in it the mover can do what it would do while the GPU reads. */
#define MEANWHILE_US 2000
#define ROUNDS       16
#define COUNT        4 /* the last ones count */

static CUfunction look;
static unsigned n_remote, n_looks;

/* Is what the kernel reads on the device? Its first parameter is for the library to see; it comes here translated. */
static void look_body(const struct sim_launch *launch, void **args)
{
	CUdeviceptr block = ~*(CUdeviceptr *)args[2], end = block + *(uint64_t *)args[1];

	for (; block < end; block += 2 * MIB) {
		bool remote = sim_where(block) != 'D';

		n_remote += remote;
		n_looks++;
		if (remote) {
			slow_clock_pass(REMOTE_US);
			usleep(MEANWHILE_US);
		}
	}
}

SIM_MODULE(image, SIM_KERNEL("look", look_body, 8, 8, 8));

static void launch(CUdeviceptr block, uint64_t bytes)
{
	CUdeviceptr hidden = ~block;
	void *args[] = {&block, &bytes, &hidden};

	MUST(cu.cuLaunchKernel(look, 4, 1, 1, 64, 1, 1, 0, NULL, args, NULL));
}

static CUdeviceptr large[2], small;

static void start(void)
{
	driver_start(0);
	slow_clock_begin();
	sim_pauses(slow_clock_pass);
	look = driver_function(&image, "look");
	small = child_alloc(4 * MIB);
	for (int i = 0; i < 2; i++)
		large[i] = child_alloc(LARGE);
}

static void take_turns(void)
{
	unsigned least = UINT_MAX;

	for (int round = scene_moves() ? 0 : ROUNDS - 1; round < ROUNDS; round++) {
		n_remote = n_looks = 0;
		for (int i = 0; i < 2; i++) {
			launch(large[i], LARGE);
			MUST(cu.cuCtxSynchronize());
		}
		if (round >= ROUNDS - COUNT && n_remote < least)
			least = n_remote;
	}
	/*
	 * Now and then nothing is moved for a while, to see whether moving pays; so it is the best of them that counts.
	 */
	printf("%u of %u looks at memory of the host\n", least, n_looks);
	CHECK(!scene_moves() || least < n_looks / 8);
}

PART_TEST(a_tensor_as_large_as_the_budget, assert_int_equal(scene_run(BUDGET, part), 0))
{
	start();
	take_turns();
}

PART_TEST(a_block_that_was_cut_once, assert_int_equal(scene_run(BUDGET, part), 0))
{
	start();
	for (int i = 0; i < 2; i++)
		for (uint64_t at = 0; at < LARGE; at += TENSOR)
			launch(large[i] + at, TENSOR);
	MUST(cu.cuCtxSynchronize());
	for (int i = 0; i < QUIET; i++) {
		launch(small, 2 * MIB);
		if (i % 64 == 63)
			MUST(cu.cuCtxSynchronize());
	}
	take_turns();
}
