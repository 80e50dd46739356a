// SPDX-License-Identifier: Apache-2.0
/*
 * serve_limits_test.c: what is counted where everything passes through, budgets of every form, a heap for each device.
 * Each in a process of its own. What a program sees of such settings: settings_test.c.
 */
#include "test/core/child_alloc.h"
#include "test/ledger_check.h"

#include "shim/stats/stats.h"

#define SETTINGS(...) ((const char *const[]){"SIM_MEMORY=256MiB", __VA_ARGS__, NULL})

/* Everything goes to the driver, is counted there, and comes back. */
static int passes_through(void *argument)
{
	size_t pitch = 0;
	CUdeviceptr plain, pitched;

	start();
	plain = alloc(10 * MIB);
	CHECK(cuMemAllocPitch_v2(&pitched, &pitch, 1000, 100, 4) == CUDA_SUCCESS && pitch >= 1000);
	CHECK(!device_of(plain) && !device_of(pitched));
	CHECK(sim_calls("cuMemCreate") == 0);
	CHECK(stats_get(STAT_passed) == 2 && stats_get(STAT_allocations) == 2);
	CHECK(stats_live(PLACE_DRIVER) >= 10 * MIB + 100000 && stats_live(PLACE_DEVICE) == 0);
	CHECK(device_get(0)->budget.used == stats_live(PLACE_DRIVER));
	CHECK(is_refused(1024 * MIB)); /* the driver's own answer */
	CHECK(cuMemFree_v2(plain + 512) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuMemFree_v2(plain) == CUDA_SUCCESS && cuMemFree_v2(pitched) == CUDA_SUCCESS);
	CHECK(cuMemFree_v2(plain) == CUDA_ERROR_INVALID_VALUE);
	CHECK(ledger_n_rows() == 0 && stats_live(PLACE_DRIVER) == 0 && device_get(0)->budget.used == 0);
	CHECK(stats_get(STAT_frees) == 2);
	return 0;
}

TEST(without_vmm_everything_passes_through)
{
	assert_ok(core_in_child(SETTINGS("SIM_VMM=0"), passes_through, NULL));
}

TEST(by_policy_everything_passes_through)
{
	assert_ok(core_in_child(SETTINGS("SPILLWAY_SET=default=driver"), passes_through, NULL));
}

static int has_budgets(void *argument)
{
	const uint64_t *expected = argument;

	start();
	CHECK(cuMemFree_v2(alloc(1)) == CUDA_SUCCESS);
	CHECK(device_get(0)->budget.limit == expected[0]);
	CHECK(!expected[1] || host_budget.limit == expected[1]);
	return 0;
}

TEST(budgets_are_bytes_shares_or_what_is_free)
{
	uint64_t bytes[] = {100 * MIB, 7 * MIB}, share[] = {64 * MIB, 0}, half[] = {128 * MIB, 0},
		 less[] = {3072 * MIB, 0};

	assert_ok(core_in_child(SETTINGS("SPILLWAY_SET=device.budget=100MiB,host.budget=7MiB"), has_budgets, bytes));
	assert_ok(core_in_child(SETTINGS("SPILLWAY_SET=device.budget=25%"), has_budgets, share));
	/* Left to us: a GiB less than is free, of a small device half. */
	assert_ok(core_in_child(SETTINGS("SIM_HOST_MEMORY=1GiB"), has_budgets, half));
	assert_ok(core_in_child(SETTINGS("SIM_MEMORY=4GiB"), has_budgets, less));
}

PART_TEST(each_device_has_a_heap_and_a_budget_of_its_own,
	  assert_ok(core_in_child(SETTINGS("SIM_DEVICES=2", "SPILLWAY_SET=device.budget=32MiB"), part, NULL)))
{
	CUcontext second;

	start();
	CUdeviceptr here = alloc(8 * MIB);
	CHECK(cuCtxCreate_v2(&second, 0, 1) == CUDA_SUCCESS);
	CUdeviceptr there = alloc(8 * MIB);
	CHECK(device_of(here) == device_get(0) && device_of(there) == device_get(1));
	CHECK(device_get(0)->budget.used == 8 * MIB && device_get(1)->budget.used == 8 * MIB);
	/* Freed from the other device's context. */
	CHECK(cuMemFree_v2(here) == CUDA_SUCCESS && cuMemFree_v2(here) == CUDA_ERROR_INVALID_VALUE);
	CHECK(device_get(0)->ordinal == 0 && !device_get(2) && !device_get(-1));
	CHECK(cuMemFree_v2(there) == CUDA_SUCCESS && ledger_n_rows() == 0);
	return 0;
}
