// SPDX-License-Identifier: Apache-2.0
/*
 * A program that allocates in stream order and needs twice what it may have, under the policy for training: what the
 * driver's pools cannot serve comes into the heap, and every word of it is right. In every mode (scene.h).
 */
#include "test/preload/scene.h"
#include "test/test.h"

static struct scene scene;

enum { ROUNDS = 60 };

/* Beside the scene: comes and goes every round, in the order of the stream. */
#define PASSING (4 * MIB)

static unsigned n_in_heap(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < SCENE_BLOCKS; i++)
		n += driver_is_heap(scene.block[i]);
	return n;
}

static void allocate(CUstream stream)
{
	for (unsigned i = 0; i < SCENE_BLOCKS; i++) {
		MUST(cu.cuMemAllocAsync(&scene.block[i], SCENE_BYTES, stream));
		MUST(driver_fill(stream, scene.block[i], 0, SCENE_BYTES / 4));
	}
	MUST(cu.cuStreamSynchronize(stream));
}

/* Another block of the scene each time: freed and allocated again, at the driver or in the heap. */
static void renew(CUstream stream, unsigned i)
{
	MUST(cu.cuMemFreeAsync(scene.block[i], stream));
	MUST(cu.cuMemAllocAsync(&scene.block[i], SCENE_BYTES, stream));
	MUST(driver_fill(stream, scene.block[i], 0, SCENE_BYTES / 4));
	memset(scene.count[i], 0, sizeof(scene.count[i]));
}

static void run(CUstream stream)
{
	CUdeviceptr passing;

	for (unsigned round = 1; round <= ROUNDS; round++) {
		MUST(cu.cuMemAllocAsync(&passing, PASSING, stream));
		MUST(driver_fill(stream, passing, round, PASSING / 4));
		MUST(scene_round(&scene, stream, 0));
		if (round % 10) {
			MUST(cu.cuMemFreeAsync(passing, stream));
			continue;
		}
		MUST(cu.cuStreamSynchronize(stream));
		CHECK(driver_holds(passing, round, PASSING / 4) && scene_holds(&scene));
		MUST(cu.cuMemFreeAsync(passing, stream));
		renew(stream, round / 10 % SCENE_BLOCKS);
	}
	MUST(cu.cuStreamSynchronize(stream));
	CHECK(scene_holds(&scene));
}

static void end(CUstream stream)
{
	for (unsigned i = 0; i < SCENE_BLOCKS; i++)
		MUST(cu.cuMemFreeAsync(scene.block[i], stream));
	MUST(cu.cuStreamSynchronize(stream));
	MUST(cu.cuStreamDestroy_v2(stream));
	CHECK(sim_broken_rules() == 0);
}

/* 34 MiB of 16 MiB. */
CHILD_TEST(a_program_on_pools_may_need_twice_its_budget, SCENE_SETTINGS("SPILLWAY_POLICY=training"))
{
	scene_load(&scene, 0);
	CUstream stream = child_stream();

	allocate(stream);
	CHECK(n_in_heap() == SCENE_BLOCKS - SCENE_BUDGET / SCENE_BYTES);
	run(stream);
	CHECK(n_in_heap() > 0);
	end(stream);
}

/* The budget is more than there is: the driver says when there is no more. */
static void needs_twice_the_device(void)
{
	scene_load(&scene, 0);
	CUstream stream = child_stream();

	sim_switch("MEMORY", SCENE_BUDGET);
	allocate(stream);
	CHECK(n_in_heap() > 0);
	run(stream);
	end(stream);
}

TEST(a_program_on_pools_may_need_twice_the_device)
{
	char set[160];

	snprintf(set, sizeof(set),
		 "SPILLWAY_SET=spill.mode=%s,device.budget=200MiB,host.budget=96MiB,report.summary=no", scene_mode());
	const char *const settings[] = {"SIM_FILL=0", "SIM_MEMORY=256MiB",        "SIM_HOST_MEMORY=512MiB",
					set,          "SPILLWAY_POLICY=training", NULL};
	assert_int_equal(child_run(settings, needs_twice_the_device), 0);
}

/* Without the library, and where the policy leaves the pools to the driver, it is out of memory. */
PART_TEST(without_it_the_program_is_out_of_memory, assert_int_equal(child_run(SCENE_SETTINGS("SPILLWAY=0"), part), 0);
	  assert_int_equal(child_run(SCENE_SETTINGS("SPILLWAY_POLICY=passthrough"), part), 0))
{
	CUdeviceptr block;

	scene_load(&scene, 0);
	sim_switch("MEMORY", SCENE_BUDGET);
	CUresult result = CUDA_SUCCESS;
	for (unsigned i = 0; i < SCENE_BLOCKS && result == CUDA_SUCCESS; i++)
		result = cu.cuMemAllocAsync(&block, SCENE_BYTES, NULL);
	CHECK(result == CUDA_ERROR_OUT_OF_MEMORY);
}
