/*
 * on_use_test.c: allocations with place: on-use, in all modes. A program reserves most of the device and uses a part of
 * it: that part alone takes memory. Where nobody knows how far a submission reaches, all of the allocation is taken, and
 * that is counted. Each part in a process of its own.
 */
#include "shim/spillway.h"
#include "test/preload/figures_help.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The device has 256 MiB, and the budget is half of it. */
#define RESERVED (230 * MIB)
#define USED     (76 * MIB)
/* Memory is taken in such multiples: the largest piece, for this budget. */
#define GRAIN (4 * MIB)

static uint64_t counted(enum stats_counter counter)
{
	return page_there()->counter[counter];
}

static uint64_t live(enum place place)
{
	return page_there()->live[place];
}

static uint64_t device_peak(void)
{
	return page_there()->peak[PLACE_DEVICE];
}

static size_t free_bytes(void)
{
	size_t bytes, total;

	MUST(cu.cuMemGetInfo_v2(&bytes, &total));
	return bytes;
}

static void set(CUdeviceptr at, unsigned value, size_t bytes)
{
	MUST(cu.cuMemsetD32_v2(at, value, bytes / 4));
}

/* By copies to the host, whose ranges are known. */
static bool is(CUdeviceptr at, unsigned value, size_t bytes)
{
	uint32_t *words = malloc(bytes);
	bool is = true;

	CHECK(words);
	MUST(cu.cuMemcpyDtoH_v2(words, at, bytes));
	for (size_t i = 0; i < bytes / 4; i++)
		is &= words[i] == value;
	free(words);
	return is;
}

static const char *mode(void)
{
	return getenv("SPILL_MODE");
}

static int run_with(const char *budgets, int (*part)(void))
{
	static char settings[256];

	snprintf(settings, sizeof(settings), "SPILLWAY_SET=spill.mode=%s,%s,report.summary=no", mode(), budgets);
	return child_run((const char *const[]){"SIM_MEMORY=256MiB", "SIM_HOST_MEMORY=512MiB", "SIM_FILL=0", runtime,
					       "SPILLWAY_POLICY=" ON_USE_POLICY, settings, NULL},
			 part);
}

static int run_part(int (*part)(void))
{
	return run_with("device.budget=50%,host.budget=384MiB", part);
}

/* Nothing is left of what the program has freed. */
static int end(void)
{
	CHECK(live(PLACE_UNUSED) == 0);
	CHECK(sim_broken_rules() == 0);
	return 0;
}

/* ---- copies and sets ---- */

/* Pieces all over the allocation, a third of it in all. */
static int uses_a_third(void)
{
	driver_start(0);
	size_t before = free_bytes();
	CUdeviceptr block = child_alloc(RESERVED), base;
	size_t bytes, at, piece = 12 * MIB;
	unsigned i;

	CHECK(free_bytes() == before);
	CHECK(live(PLACE_UNUSED) >= RESERVED && live(PLACE_UNUSED) < RESERVED + 2 * MIB);
	CHECK(page_there()->live[PLACE_DEVICE] == 0);
	MUST(cu.cuMemGetAddressRange_v2(&base, &bytes, block + RESERVED - 1));
	CHECK(base == block && bytes == RESERVED);
	for (i = 0, at = 0; i < USED / piece; i++, at += 36 * MIB)
		set(block + at, 0x1000 + i, piece);
	for (i = 0, at = 0; i < USED / piece; i++, at += 36 * MIB)
		CHECK(is(block + at, 0x1000 + i, piece));
	/* What was never written may hold anything, and can be read. */
	is(block + RESERVED - 4, 0, 4);
	CHECK(counted(STAT_spilled_bytes) == 0 && counted(STAT_on_use_whole) == 0);
	CHECK(device_peak() <= USED + GRAIN && device_peak() >= USED - piece);
	CHECK(counted(STAT_on_use_bytes) == live(PLACE_DEVICE));
	CHECK(before - free_bytes() == live(PLACE_DEVICE));
	CHECK(live(PLACE_DEVICE) + live(PLACE_UNUSED) == (RESERVED + 2 * MIB - 1) / (2 * MIB) * (2 * MIB));
	MUST(cu.cuMemFree_v2(block));
	CHECK(free_bytes() == before);
	/* Its addresses are nobody's. */
	CHECK(cu.cuMemGetAddressRange_v2(&base, &bytes, block) != CUDA_SUCCESS);
	CHECK(cu.cuMemFree_v2(block) == CUDA_ERROR_INVALID_VALUE);
	return end();
}

static void what_is_not_used_takes_no_memory(void **state)
{
	(void)state;
	assert_int_equal(run_part(uses_a_third), 0);
}

/* A block that is copied into, out of, and within, across parts that have memory and parts that have none. */
static int copies_around(void)
{
	static uint32_t words[8 * MIB / 4];

	driver_start(0);
	CUdeviceptr block = child_alloc(64 * MIB), other = child_alloc(64 * MIB);

	for (size_t i = 0; i < sizeof(words) / 4; i++)
		words[i] = (uint32_t)i;
	set(block + 6 * MIB, 5, 2 * MIB);
	MUST(cu.cuMemcpyHtoD_v2(block + 4 * MIB + 12, words, sizeof(words)));
	MUST(cu.cuMemcpyDtoD_v2(other + 30 * MIB, block + 4 * MIB + 12, sizeof(words)));
	memset(words, 0, sizeof(words));
	MUST(cu.cuMemcpyDtoH_v2(words, other + 30 * MIB, sizeof(words)));
	for (size_t i = 0; i < sizeof(words) / 4; i++)
		CHECK(words[i] == (uint32_t)i);
	CHECK(live(PLACE_DEVICE) <= 2 * (sizeof(words) + 2 * GRAIN));
	MUST(cu.cuMemFree_v2(other));
	MUST(cu.cuMemFree_v2(block));
	return end();
}

static void copies_reach_what_they_name(void **state)
{
	(void)state;
	assert_int_equal(run_part(copies_around), 0);
}

/* ---- kernels ---- */

/* A kernel gets the beginning of the block and may walk over all of it: it is taken, and what is too much spills. */
static int launches(void)
{
	driver_start(0);
	CUdeviceptr block = child_alloc(RESERVED);

	set(block + 100 * MIB, 7, 4 * MIB);
	CHECK(live(PLACE_DEVICE) <= 2 * GRAIN);
	MUST(driver_fill(NULL, block, 3, RESERVED / 4));
	MUST(cu.cuCtxSynchronize());
	CHECK(live(PLACE_UNUSED) == 0);
	CHECK(counted(STAT_on_use_whole) == 1 && counted(STAT_on_use_whole_bytes) >= RESERVED - 2 * GRAIN);
	CHECK(counted(STAT_spilled_bytes) > 0);
	CHECK(is(block, 3, RESERVED));
	for (unsigned i = 0; i < 20; i++) {
		MUST(driver_fill(NULL, block + i * 11 * MIB, 100 + i, 11 * MIB / 4));
		CHECK(is(block + i * 11 * MIB, 100 + i, 11 * MIB));
	}
	for (unsigned i = 0; i < 20; i++)
		CHECK(is(block + i * 11 * MIB, 100 + i, 11 * MIB));
	CHECK(counted(STAT_on_use_whole) == 1);
	MUST(cu.cuMemFree_v2(block));
	return end();
}

static void where_the_reach_is_unknown_all_is_taken(void **state)
{
	(void)state;
	assert_int_equal(run_part(launches), 0);
}

/* ---- births ---- */

static void born(CUdeviceptr at, size_t bytes)
{
	CHECK(spillway_born((const void *)(uintptr_t)at, bytes) == 0);
}

static void discard(CUdeviceptr at, size_t bytes)
{
	CHECK(spillway_discard((const void *)(uintptr_t)at, bytes) == 0);
}

/*
 * A pool of nine tenths of the device, which says what it hands out, and hands out a third in all: kernels get pointers
 * to the beginning of parts, and into them. Half of the device is enough, and nothing spills.
 */
static int pools(void)
{
	driver_start(0);
	CUdeviceptr block = child_alloc(RESERVED);
	/* One is within a unit, the others cross many. */
	const struct {
		size_t at, bytes;
	} part[] = {{0, 20 * MIB}, {45 * MIB + 512, MIB}, {60 * MIB, 30 * MIB + 1024}, {200 * MIB, 20 * MIB}};

	for (unsigned i = 0; i < 4; i++)
		born(block + part[i].at, part[i].bytes);
	CHECK(live(PLACE_DEVICE) == 0);
	for (unsigned i = 0; i < 4; i++)
		MUST(driver_fill(NULL, block + part[i].at, 50 + i, part[i].bytes / 4));
	for (unsigned i = 0; i < 4; i++)
		MUST(driver_fill(NULL, block + part[i].at + part[i].bytes / 2, 60 + i, part[i].bytes / 8));
	MUST(driver_copy(NULL, block + part[2].at, block + part[3].at, 5 * MIB / 4));
	MUST(cu.cuCtxSynchronize());
	for (unsigned i = 0; i < 4; i++) {
		size_t half = part[i].bytes / 2, from = i == 2 ? 5 * MIB : 0;

		CHECK(is(block + part[i].at + from, 50 + i, half - from));
		CHECK(is(block + part[i].at + half, 60 + i, half / 4 * 4));
	}
	CHECK(is(block + part[2].at, 53, 5 * MIB));
	CHECK(counted(STAT_on_use_whole) == 0 && counted(STAT_spilled_bytes) == 0);
	CHECK(device_peak() <= 72 * MIB + 8 * GRAIN);
	/* What died and is used again without a birth has an unknown reach. */
	discard(block + part[0].at, part[0].bytes);
	born(block + part[0].at, MIB);
	MUST(driver_fill(NULL, block + part[0].at, 70, MIB / 4));
	CHECK(is(block + part[0].at, 70, MIB));
	CHECK(counted(STAT_on_use_whole) == 0);
	MUST(driver_fill(NULL, block + part[0].at + MIB, 71, 120 * MIB / 4));
	CHECK(is(block + part[0].at + MIB, 71, 120 * MIB));
	CHECK(counted(STAT_on_use_whole) == 1 && live(PLACE_UNUSED) == 0);
	CHECK(is(block + part[3].at, 53, part[3].bytes / 2));
	MUST(cu.cuMemFree_v2(block));
	/* The next allocation there has no births. */
	block = child_alloc(RESERVED);
	MUST(driver_fill(NULL, block, 1, 1));
	CHECK(counted(STAT_on_use_whole) == 2);
	MUST(cu.cuMemFree_v2(block));
	return end();
}

static void a_pool_that_says_what_is_born_takes_no_more(void **state)
{
	(void)state;
	assert_int_equal(run_part(pools), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(what_is_not_used_takes_no_memory, folder_make, folder_remove),
	    cmocka_unit_test_setup_teardown(copies_reach_what_they_name, folder_make, folder_remove),
	    cmocka_unit_test_setup_teardown(where_the_reach_is_unknown_all_is_taken, folder_make, folder_remove),
	    cmocka_unit_test_setup_teardown(a_pool_that_says_what_is_born_takes_no_more, folder_make, folder_remove),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
