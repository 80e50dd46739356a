// SPDX-License-Identifier: Apache-2.0
/*
 * on_use_test.c: allocations with place: on-use, in all modes. A program reserves most of the device and uses a part of
 * it: that part alone takes memory. Where nobody knows how far a submission reaches, all of the allocation is taken,
 * and that is counted. Each part in a process of its own.
 */
#include "test/preload/on_use_help.h"

static size_t free_bytes(void)
{
	size_t bytes, total;

	MUST(cu.cuMemGetInfo_v2(&bytes, &total));
	return bytes;
}

static uint64_t device_peak(void)
{
	return page_there()->peak[PLACE_DEVICE];
}

/* ---- copies and sets ---- */

/* The host could not hold the rest. Pieces all over the allocation, a third of it in all. */
PART_TEST(what_is_not_used_takes_no_memory, on_use_run_as(on_use_mode(), "device.budget=50%,host.budget=16MiB", part))
{
	size_t before = free_bytes();
	CUdeviceptr block = child_alloc(RESERVED), base;
	size_t bytes, at, piece = 12 * MIB;
	unsigned i;

	CHECK(free_bytes() == before);
	CHECK(on_use_live(PLACE_UNUSED) >= RESERVED && on_use_live(PLACE_UNUSED) < RESERVED + 2 * MIB);
	CHECK(page_there()->live[PLACE_DEVICE] == 0);
	MUST(cu.cuMemGetAddressRange_v2(&base, &bytes, block + RESERVED - 1));
	CHECK(base == block && bytes == RESERVED);
	for (i = 0, at = 0; i < USED / piece; i++, at += 36 * MIB)
		on_use_set(block + at, 0x1000 + i, piece);
	for (i = 0, at = 0; i < USED / piece; i++, at += 36 * MIB)
		CHECK(on_use_is(block + at, 0x1000 + i, piece));
	/* What was never written may hold anything, and can be read. */
	on_use_is(block + RESERVED - 4, 0, 4);
	CHECK(on_use_counted(STAT_spilled_bytes) == 0 && on_use_counted(STAT_on_use_whole) == 0);
	CHECK(device_peak() <= USED + GRAIN && device_peak() >= USED - piece);
	CHECK(on_use_counted(STAT_on_use_bytes) == on_use_live(PLACE_DEVICE));
	CHECK(before - free_bytes() == on_use_live(PLACE_DEVICE));
	CHECK(on_use_live(PLACE_DEVICE) + on_use_live(PLACE_UNUSED) ==
	      (RESERVED + 2 * MIB - 1) / (2 * MIB) * (2 * MIB));
	/* What the program needed is what it used. */
	CHECK(page_there()->backend[0].figure[FIGURE_live] == on_use_live(PLACE_DEVICE));
	CHECK(page_there()->backend[0].figure[FIGURE_peak] <= device_peak());
	MUST(cu.cuMemFree_v2(block));
	CHECK(page_there()->backend[0].figure[FIGURE_live] == 0);
	CHECK(free_bytes() == before);
	/* Its addresses are nobody's. */
	CHECK(cu.cuMemGetAddressRange_v2(&base, &bytes, block) != CUDA_SUCCESS);
	CHECK(cu.cuMemFree_v2(block) == CUDA_ERROR_INVALID_VALUE);
}

/* A block that is copied into, out of, and within, across parts that have memory and parts that have none. */
PART_TEST(copies_reach_what_they_name, on_use_run(part))
{
	static uint32_t words[8 * MIB / 4];

	CUdeviceptr block = child_alloc(64 * MIB), other = child_alloc(64 * MIB);

	for (size_t i = 0; i < sizeof(words) / 4; i++)
		words[i] = (uint32_t)i;
	on_use_set(block + 6 * MIB, 5, 2 * MIB);
	MUST(cu.cuMemcpyHtoD_v2(block + 4 * MIB + 12, words, sizeof(words)));
	MUST(cu.cuMemcpyDtoD_v2(other + 30 * MIB, block + 4 * MIB + 12, sizeof(words)));
	memset(words, 0, sizeof(words));
	MUST(cu.cuMemcpyDtoH_v2(words, other + 30 * MIB, sizeof(words)));
	for (size_t i = 0; i < sizeof(words) / 4; i++)
		CHECK(words[i] == (uint32_t)i);
	CHECK(on_use_live(PLACE_DEVICE) <= 2 * (sizeof(words) + 2 * GRAIN));
	MUST(cu.cuMemFree_v2(other));
	MUST(cu.cuMemFree_v2(block));
}

/* ---- kernels ---- */

/* A kernel gets the beginning of the block and may walk over all of it: it is taken, and what is too much spills. */
PART_TEST(where_the_reach_is_unknown_all_is_taken, on_use_run(part))
{
	CUdeviceptr block = child_alloc(RESERVED);

	on_use_set(block + 100 * MIB, 7, 4 * MIB);
	CHECK(on_use_live(PLACE_DEVICE) <= 2 * GRAIN);
	MUST(driver_fill(NULL, block, 3, RESERVED / 4));
	MUST(cu.cuCtxSynchronize());
	CHECK(on_use_live(PLACE_UNUSED) == 0);
	CHECK(on_use_counted(STAT_on_use_whole) == 1 &&
	      on_use_counted(STAT_on_use_whole_bytes) >= RESERVED - 2 * GRAIN);
	CHECK(on_use_counted(STAT_spilled_bytes) > 0);
	CHECK(on_use_is(block, 3, RESERVED));
	for (unsigned i = 0; i < 20; i++) {
		MUST(driver_fill(NULL, block + i * 11 * MIB, 100 + i, 11 * MIB / 4));
		CHECK(on_use_is(block + i * 11 * MIB, 100 + i, 11 * MIB));
	}
	for (unsigned i = 0; i < 20; i++)
		CHECK(on_use_is(block + i * 11 * MIB, 100 + i, 11 * MIB));
	CHECK(on_use_counted(STAT_on_use_whole) == 1);
	MUST(cu.cuMemFree_v2(block));
}

/* ---- births ---- */

/*
 * A pool of nine tenths of the device, which says what it hands out, and hands out a third in all: kernels get pointers
 * to the beginning of parts, and into them. Half of the device is enough, and nothing spills.
 */
PART_TEST(a_pool_that_says_what_is_born_takes_no_more, on_use_run(part))
{
	CUdeviceptr block = child_alloc(RESERVED);
	/* One is within a unit, the others cross many. */
	const struct {
		size_t at, bytes;
	} part[] = {{0, 20 * MIB}, {45 * MIB + 512, MIB}, {60 * MIB, 30 * MIB + 1024}, {200 * MIB, 20 * MIB}};

	for (unsigned i = 0; i < 4; i++)
		on_use_born(block + part[i].at, part[i].bytes);
	CHECK(on_use_live(PLACE_DEVICE) == 0);
	for (unsigned i = 0; i < 4; i++)
		MUST(driver_fill(NULL, block + part[i].at, 50 + i, part[i].bytes / 4));
	for (unsigned i = 0; i < 4; i++)
		MUST(driver_fill(NULL, block + part[i].at + part[i].bytes / 2, 60 + i, part[i].bytes / 8));
	MUST(driver_copy(NULL, block + part[2].at, block + part[3].at, 5 * MIB / 4));
	MUST(cu.cuCtxSynchronize());
	for (unsigned i = 0; i < 4; i++) {
		size_t half = part[i].bytes / 2, from = i == 2 ? 5 * MIB : 0;

		CHECK(on_use_is(block + part[i].at + from, 50 + i, half - from));
		CHECK(on_use_is(block + part[i].at + half, 60 + i, half / 4 * 4));
	}
	CHECK(on_use_is(block + part[2].at, 53, 5 * MIB));
	CHECK(on_use_counted(STAT_on_use_whole) == 0 && on_use_counted(STAT_spilled_bytes) == 0);
	CHECK(device_peak() <= 72 * MIB + 8 * GRAIN);
	/* What died and is used again without a birth has an unknown reach. */
	on_use_discard(block + part[0].at, part[0].bytes);
	on_use_born(block + part[0].at, MIB);
	MUST(driver_fill(NULL, block + part[0].at, 70, MIB / 4));
	CHECK(on_use_is(block + part[0].at, 70, MIB));
	CHECK(on_use_counted(STAT_on_use_whole) == 0);
	MUST(driver_fill(NULL, block + part[0].at + MIB, 71, 120 * MIB / 4));
	CHECK(on_use_is(block + part[0].at + MIB, 71, 120 * MIB));
	CHECK(on_use_counted(STAT_on_use_whole) == 1 && on_use_live(PLACE_UNUSED) == 0);
	CHECK(on_use_is(block + part[3].at, 53, part[3].bytes / 2));
	MUST(cu.cuMemFree_v2(block));
	/* The next allocation there has no births. */
	block = child_alloc(RESERVED);
	MUST(driver_fill(NULL, block, 1, 1));
	CHECK(on_use_counted(STAT_on_use_whole) == 2);
	MUST(cu.cuMemFree_v2(block));
}

/* ---- several threads ---- */

static CUdeviceptr shared;

enum { THREADS = 4, TURNS = 24 };
#define SHARE (40 * MIB)

static void *use_a_share(void *argument)
{
	unsigned which = *(unsigned *)argument;
	CUdeviceptr at = shared + which * SHARE;

	driver_start(0);
	CUstream stream = child_stream();
	on_use_born(at, SHARE);
	for (unsigned i = 0; i < TURNS; i++) {
		size_t from = (i * 7 + which) % 10 * 4 * MIB;

		MUST(driver_fill(stream, at + from, which * 100 + i, MIB));
		MUST(cu.cuStreamSynchronize(stream));
		CHECK(on_use_is(at + from, which * 100 + i, 4 * MIB));
	}
	MUST(cu.cuStreamDestroy_v2(stream));
	return NULL;
}

/* They take parts of one allocation at the same time, of which not all fit. */
PART_TEST(threads_take_parts_of_one_allocation,
	  on_use_run_as(on_use_mode(), "device.budget=64MiB,host.budget=256MiB", part))
{
	pthread_t thread[THREADS];
	unsigned which[THREADS];

	shared = child_alloc(THREADS * SHARE);
	for (unsigned i = 0; i < THREADS; i++) {
		which[i] = i;
		CHECK(!pthread_create(&thread[i], NULL, use_a_share, &which[i]));
	}
	for (unsigned i = 0; i < THREADS; i++)
		CHECK(!pthread_join(thread[i], NULL));
	for (unsigned i = 0; i < THREADS; i++)
		for (unsigned turn = TURNS - 10; turn < TURNS; turn++)
			CHECK(on_use_is(shared + i * SHARE + (turn * 7 + i) % 10 * 4 * MIB, i * 100 + turn, 4 * MIB));
	CHECK(on_use_counted(STAT_on_use_whole) == 0);
	MUST(cu.cuMemFree_v2(shared));
}

/* ---- questions ---- */

/* About what has memory and what has none the answers are the same; what needs one block is refused. */
PART_TEST(questions_are_answered_for_all_of_it, on_use_run(part))
{
	struct spillway_place place;
	CUipcMemHandle handle;

	CUdeviceptr block = child_alloc(33 * MIB), at[2] = {block, block + 20 * MIB};
	const void *pointer = (const void *)(uintptr_t)block;

	on_use_set(block, 1, 4 * MIB);
	for (unsigned i = 0; i < 2; i++) {
		CUdeviceptr address = 0;
		size_t bytes = 0;

		CHECK(driver_attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at[i]) == CU_MEMORYTYPE_DEVICE);
		CHECK(driver_attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at[i]) == at[i]);
		CHECK(driver_attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, at[i]) == 33 * MIB);
		MUST(cu.cuMemGetAddressRange_v2(&address, &bytes, at[i]));
		CHECK(address == block && bytes == 33 * MIB);
	}
	CHECK(spillway_where(pointer, &place) == 0);
	CHECK(place.backend == SPILLWAY_HEAP && place.bytes == 33 * MIB && place.bytes_on_device >= 4 * MIB &&
	      place.bytes_on_device <= 4 * MIB + GRAIN && !place.bytes_on_host);
	CHECK(spillway_pin(pointer) == -ENOTSUP && spillway_unpin(pointer) == -ENOTSUP);
	CHECK(spillway_grow(pointer, 40 * MIB) == -ENOTSUP && spillway_prefer_host(pointer) == -ENOTSUP);
	CHECK(cu.cuIpcGetMemHandle(&handle, block) != CUDA_SUCCESS);
	CHECK(on_use_counted(STAT_on_use_bytes) <= 4 * MIB + GRAIN);
	on_use_set(block, 2, 33 * MIB);
	CHECK(spillway_where(pointer, &place) == 0 && place.bytes_on_device + place.bytes_on_host == 33 * MIB);
	/* In stream order, too, and what is small is served at once. */
	MUST(cu.cuMemFreeAsync(block, NULL));
	MUST(cu.cuCtxSynchronize());
	block = child_alloc(3 * MIB);
	CHECK(on_use_live(PLACE_UNUSED) == 0 && on_use_live(PLACE_DEVICE) >= 3 * MIB);
	MUST(cu.cuMemFree_v2(block));
}

EACH_TEST(folder_make, folder_remove)
