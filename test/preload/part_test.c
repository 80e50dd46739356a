// SPDX-License-Identifier: Apache-2.0
/*
 * A program that cuts one large block itself: kernels take turns on its parts, and each names one of two other blocks
 * that are used all the time. Room for a part is made by another part of the block, not by what the next kernel names.
 */
#include "test/preload/scene.h"
#include "test/test.h"

#define BUDGET  (128 * MIB)
#define PART    (20 * MIB)
#define PARTS   8u
#define ROUNDS  10u
#define WARM_UP 4u

static CUfunction add;

static void add_body(const struct sim_launch *launch, void **args)
{
	(void)launch;
	for (unsigned i = 0; i < 2; i++) {
		uint32_t *part = sim_pointer(*(CUdeviceptr *)args[i]);

		for (size_t k = 0; k < PART / 4; k += SCENE_STRIDE)
			part[k]++;
	}
}

SIM_MODULE(image, SIM_KERNEL("add", add_body, 8, 8));

static bool holds(CUdeviceptr part, uint32_t value)
{
	for (size_t at = 0; at < PART; at += SCENE_STRIDE * 4) {
		uint32_t word;

		MUST(cu.cuMemcpyDtoH_v2(&word, part + at, sizeof(word)));
		if (word != value)
			return false;
	}
	return true;
}

static unsigned pages_away(CUdeviceptr part)
{
	unsigned n = 0;

	for (size_t at = 0; at < PART; at += 2 * MIB)
		n += sim_where(part + at) != 'D';
	return n;
}

PART_TEST(what_each_kernel_names_stays_while_parts_of_a_block_take_turns, assert_int_equal(scene_run(BUDGET, part), 0))
{
	CUdeviceptr whole, other[2];
	unsigned away = 0, looks = 0;

	driver_start(0);
	add = driver_function(&image, "add");
	whole = child_alloc(PARTS * PART);
	MUST(cu.cuMemsetD32_v2(whole, 0, PARTS * PART / 4));
	for (unsigned i = 0; i < 2; i++) {
		other[i] = child_alloc(PART);
		MUST(cu.cuMemsetD32_v2(other[i], 0, PART / 4));
	}
	for (unsigned round = 0; round < ROUNDS; round++)
		for (unsigned i = 0; i < PARTS * 2; i++) {
			CUdeviceptr part = whole + i / 2 * PART;
			void *args[] = {&part, &other[i % 2]};

			MUST(cu.cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
			MUST(cu.cuStreamSynchronize(NULL));
			looks += round >= WARM_UP ? 2 * PART / (2 * MIB) : 0;
			away += round >= WARM_UP ? pages_away(other[0]) + pages_away(other[1]) : 0;
		}
	for (unsigned i = 0; i < PARTS; i++)
		CHECK(holds(whole + i * PART, 2 * ROUNDS));
	for (unsigned i = 0; i < 2; i++)
		CHECK(holds(other[i], PARTS * ROUNDS));
	CHECK(away <= looks / 10);
	CHECK(sim_broken_rules() == 0);
}
