// SPDX-License-Identifier: Apache-2.0
/*
 * Programs whose device memory is pages of the process by policy: where the device reaches them by itself (HMM, ATS),
 * where they are registered, and where there are none. On a device of 64 MiB.
 */
#include "test/preload/home.h"
#include "test/test.h"

#include "shim/spillway.h"

#include <sys/mman.h>

CHILD_FRAME(child_start, NULL)

static bool is_mapped(CUdeviceptr address)
{
	CUdeviceptr page = (CUdeviceptr)sysconf(_SC_PAGESIZE);
	unsigned char in_core;

	return mincore((void *)(uintptr_t)(address & ~(page - 1)), page, &in_core) == 0;
}

/* Neither in the heap nor of the driver's making, and memory of the process. */
static bool is_system(CUdeviceptr block)
{
	struct spillway_place place;

	return spillway_where((void *)(uintptr_t)block, &place) == 0 && place.backend == SPILLWAY_SYSTEM &&
	       is_mapped(block);
}

static bool is_managed(CUdeviceptr block)
{
	struct spillway_place place;

	return spillway_where((void *)(uintptr_t)block, &place) == 0 && place.backend == SPILLWAY_MANAGED;
}

static CUdeviceptr pages(size_t bytes)
{
	CUdeviceptr block = child_alloc(bytes);

	CHECK(is_system(block));
	return block;
}

static void serves_both_sides(void)
{
	CUdeviceptr block = pages(3 * MIB), small = child_alloc(4096), pitched;
	size_t pitch;

	CHECK(driver_is_heap(small));
	home_serves_both_sides(block, 3 * MIB);
	home_copies_and_sets(block, 3 * MIB);
	MUST(cu.cuMemAllocPitch_v2(&pitched, &pitch, 5000, 300, 4));
	CHECK(is_system(pitched) && pitch == 5120);
	MUST(cu.cuMemFree_v2(pitched));
	home_answers(block, 3 * MIB, false);
	MUST(cu.cuMemFree_v2(block));
	CHECK(!is_mapped(block));
	MUST(cu.cuMemFree_v2(small));
	/* More than the device has. */
	block = pages(100 * MIB);
	MUST(driver_fill(NULL, block, 6, 100 * MIB / 4));
	MUST(cu.cuCtxSynchronize());
	CHECK(home_words(block)[0] == 6 && home_words(block)[25 * MIB - 1] == 6);
	MUST(cu.cuMemFree_v2(block));
}

static void serves_without_registering(void)
{
	serves_both_sides();
	CHECK(sim_calls("cuMemHostRegister_v2") == 0 && sim_calls("cuMemAllocManaged") == 0);
}

#define LARGE_BUDGETS "SPILLWAY_SET=report.summary=no,device.budget=32MiB,host.budget=256MiB"

TEST(a_device_that_reaches_pages_uses_them)
{
	/* Pages that nobody pins count against no budget. */
	assert_int_equal(child_run(HOME_SETTINGS("system", HOME_BUDGETS, "SIM_PAGEABLE=1"), serves_without_registering),
			 0);
	assert_int_equal(child_run(HOME_SETTINGS("system", HOME_BUDGETS ",system.register=no", "SIM_PAGEABLE=1"),
				   serves_without_registering),
			 0);
}

CHILD_TEST(elsewhere_they_are_registered, HOME_SETTINGS("system", LARGE_BUDGETS))
{
	serves_both_sides();
	CHECK(sim_calls("cuMemHostRegister_v2") == sim_calls("cuMemHostUnregister"));
	CHECK(sim_calls("cuMemHostRegister_v2") > 0 && sim_calls("cuMemAllocManaged") == 0);
}

CHILD_TEST(registered_pages_count_against_the_host_budget, HOME_SETTINGS("system", HOME_BUDGETS))
{
	uint64_t host, used;

	CUdeviceptr first = pages(40 * MIB), second = child_alloc(40 * MIB), third = pages(20 * MIB);

	/* 64 MiB: the second is managed memory. */
	CHECK(is_managed(second));
	CHECK(spillway_budget(0, NULL, &host, NULL, &used) == 0 && host == 64 * MIB && used == 60 * MIB);
	MUST(cu.cuMemFree_v2(first));
	MUST(cu.cuMemFree_v2(second));
	second = pages(40 * MIB);
	MUST(cu.cuMemFree_v2(second));
	MUST(cu.cuMemFree_v2(third));
	CHECK(spillway_budget(0, NULL, NULL, NULL, &used) == 0 && used == 0);
}

static void falls_back_to_managed(void)
{
	CUdeviceptr block = child_alloc(3 * MIB);

	CHECK(is_managed(block));
	home_serves_both_sides(block, 3 * MIB);
	home_answers(block, 3 * MIB, true);
	MUST(cu.cuMemFree_v2(block));
}

static void falls_back_to_the_heap(void)
{
	CUdeviceptr block = child_alloc(3 * MIB);

	CHECK(driver_is_heap(block));
	MUST(driver_fill(NULL, block, 9, 3 * MIB / 4));
	CHECK(driver_holds(block, 9, 3 * MIB / 4));
	MUST(cu.cuMemFree_v2(block));
}

TEST(without_either_the_next_choice_is_taken)
{
	assert_int_equal(child_run(HOME_SETTINGS("system", HOME_BUDGETS ",system.register=no"), falls_back_to_managed),
			 0);
	assert_int_equal(child_run(HOME_SETTINGS("system", HOME_BUDGETS, "SIM_SAME_POINTER=0"), falls_back_to_managed),
			 0);
	assert_int_equal(child_run(HOME_SETTINGS("system", HOME_BUDGETS, "SIM_FAIL=cuMemHostRegister_v2:1:800"),
				   falls_back_to_managed),
			 0);
	assert_int_equal(child_run(HOME_SETTINGS("system", HOME_BUDGETS, "SIM_FAIL=cuMemHostRegister_v2:1:2"),
				   falls_back_to_managed),
			 0);
	assert_int_equal(
	    child_run(HOME_SETTINGS("system", HOME_BUDGETS ",system.register=no", "SIM_CONCURRENT_MANAGED=0"),
		      falls_back_to_the_heap),
	    0);
}

PART_TEST(a_block_is_freed_in_every_way_and_once,
	  assert_int_equal(child_run(HOME_SETTINGS("system", HOME_BUDGETS, "SIM_PAGEABLE=1"), part), 0);
	  assert_int_equal(child_run(HOME_SETTINGS("system", HOME_BUDGETS), part), 0))
{
	home_frees(3 * MIB, is_system);
}

static int where(uint64_t on_host)
{
	struct spillway_place place;

	CUdeviceptr block = pages(3 * MIB);
	CHECK(spillway_where((void *)(uintptr_t)(block + 100), &place) == 0);
	CHECK(place.backend == SPILLWAY_SYSTEM && place.bytes == 3 * MIB && place.bytes_on_device == 0);
	CHECK(place.bytes_on_host == on_host && !place.movable);
	CHECK(spillway_discard((void *)(uintptr_t)block, MIB) == -ENOTSUP);
	void *torch = spillway_torch_alloc(3 << 20, 0, NULL);
	CHECK(is_system((CUdeviceptr)(uintptr_t)torch));
	spillway_torch_free(torch, 3 << 20, 0, NULL);
	MUST(cu.cuCtxSynchronize());
	MUST(cu.cuMemFree_v2(block));
	CHECK(!is_mapped(block) && !is_mapped((CUdeviceptr)(uintptr_t)torch));
	return 0;
}

static void where_registered(void)
{
	where(3 * MIB);
}

static void where_reached(void)
{
	where(0);
}

TEST(programs_that_ask_are_told)
{
	assert_int_equal(child_run(HOME_SETTINGS("system", HOME_BUDGETS), where_registered), 0);
	assert_int_equal(child_run(HOME_SETTINGS("system", HOME_BUDGETS, "SIM_PAGEABLE=1"), where_reached), 0);
}

/*
 * The child of a fork has no device memory natively, and must not make the parent's pages be copied under the device.
 */
CHILD_TEST(the_child_of_a_fork_has_none_of_it, HOME_SETTINGS("system", HOME_BUDGETS))
{
	int status;

	CUdeviceptr block = pages(3 * MIB);
	home_words(block)[0] = 1;
	pid_t pid = fork();
	if (!pid)
		_exit(is_mapped(block) ? 1 : 0);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(home_words(block)[0] == 1);
	MUST(cu.cuMemFree_v2(block));
}
