// SPDX-License-Identifier: Apache-2.0
/*
 * Switched off (SPILLWAY=0): once a thread has submitted something, what it submits goes to the driver by one look and
 * one jump; nothing is counted.
 */
#include "shim/process/process.h"
#include "shim/stats/stats.h"
#include "test/core/core.h"

static uint64_t calls_of_sets(void)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < STATS_STRIPES; i++)
		sum += atomic_load(&stats_stripes[i].calls[HOOK_cuMemsetD8_v2]);
	return sum;
}

TEST(a_submission_goes_straight_to_the_driver)
{
	core_driver();
	CUdeviceptr block = core_alloc(4096);
	assert_int_equal(cuMemsetD8_v2(block, 1, 4096), CUDA_SUCCESS);
	assert_int_equal(process_stage(), STAGE_OFF);
	uint64_t before = calls_of_sets();
	for (int i = 0; i < 10; i++)
		assert_int_equal(cuMemsetD8_v2(block, 1, 4096), CUDA_SUCCESS);
	assert_int_equal(calls_of_sets(), before);
	assert_int_equal(cuMemFree_v2(block), CUDA_SUCCESS);
}

START(setenv("SPILLWAY", "0", 1))
