// SPDX-License-Identifier: Apache-2.0
/*
 * A program that cuts a block into parts itself, and says which are born (spillway_born) and which are no longer needed
 * (spillway_discard): what is dead is not copied, wherever it begins, and all else survives; where it may not say so,
 * everything does. Each part in a process of its own, beside a job whose memory moves (scene.h).
 */
#include "test/preload/figures_help.h"
#include "test/preload/typed_alloc_help.h"
#include "test/unit/seed.h"

#define POOL (24 * MIB)

static CUdeviceptr pool;

static void begin(void)
{
	scene_load(&own_scene, 0);
	pool = child_alloc(POOL);
	MUST(driver_fill(NULL, pool, 0x1111, POOL / 4));
	scene_allocate(&own_scene);
	CHECK(scene_warm_up(&own_scene));
}

/* Bytes so far that were not copied on their way in, and out. */
static uint64_t dead_in(void)
{
	return page_there()->counter[STAT_dead_in_bytes];
}

static uint64_t dead_out(void)
{
	return page_there()->counter[STAT_dead_bytes] - dead_in();
}

static void born(size_t at, size_t bytes)
{
	CHECK(spillway_born(own_pointer(pool + at), bytes) == 0);
}

static void discard(size_t at, size_t bytes)
{
	CHECK(spillway_discard(own_pointer(pool + at), bytes) == 0);
}

static void fill(size_t at, unsigned value, size_t bytes)
{
	MUST(driver_fill(NULL, pool + at, value, bytes / 4));
}

static bool holds(size_t at, unsigned value, size_t bytes)
{
	return driver_holds(pool + at, value, bytes / 4);
}

static void evict(void)
{
	MUST(cu.cuCtxSynchronize());
	own_empty_device();
}

static void settle(void)
{
	own_rounds(2);
	MUST(cu.cuCtxSynchronize());
}

/* ---- what is dead ---- */

/* It begins and ends within pieces, which are of 2 MiB and more. Its neighbours were there before, or are born, too. */
CHILD_TEST(what_is_dead_is_not_copied_wherever_it_begins, SCENE_SETTINGS(runtime))
{
	begin();
	born(3 * MIB, 6 * MIB + 512);
	born(9 * MIB + 512, MIB);
	fill(3 * MIB, 0x2222, 6 * MIB + 512);
	fill(9 * MIB + 512, 0x3333, MIB);
	evict();
	CHECK(dead_out() == 0);
	for (unsigned i = 0; i < 5; i++) {
		/* All of it is there, and may leave. */
		for (int turn = 0; turn < 300 && own_place(pool).bytes_on_device < POOL / 2; turn++) {
			fill(0, 0x1111, 3 * MIB);
			fill(11 * MIB, 0x1111, POOL - 11 * MIB);
			own_rounds(1);
		}
		discard(3 * MIB, 6 * MIB + 512);
		settle();
		evict();
		CHECK(holds(0, 0x1111, 3 * MIB) && holds(9 * MIB + 512, 0x3333, MIB));
		CHECK(holds(11 * MIB, 0x1111, POOL - 11 * MIB));
		born(3 * MIB, 6 * MIB + 512);
		fill(3 * MIB, 0x4000 + i, 6 * MIB + 512);
		evict();
		CHECK(holds(3 * MIB, 0x4000 + i, 6 * MIB + 512));
	}
	CHECK(dead_out() >= 2 * MIB);
	own_end();
}

/* ---- what is born ---- */

/* What was there, and is said to be empty, is not copied in for the first submission to use it; its neighbours are. */
CHILD_TEST(what_is_born_is_not_copied_in, SCENE_SETTINGS(runtime))
{
	begin();
	for (unsigned i = 0; i < 100 && !dead_in(); i++) {
		evict();
		born(MIB, 9 * MIB);
		fill(MIB, 0x5000 + i, 9 * MIB);
		own_rounds(1);
		CHECK(holds(MIB, 0x5000 + i, 9 * MIB));
		CHECK(holds(0, 0x1111, MIB) && holds(10 * MIB, 0x1111, POOL - 10 * MIB));
	}
	CHECK(dead_in() > 0 && dead_out() == 0);
	own_end();
}

/* ---- where it may not say so ---- */

/* Nothing of what follows counts: it is discarded, leaves, and is there all the same. */
static void check_survives(size_t at, size_t bytes, unsigned value)
{
	uint64_t before = dead_out();

	fill(at, value, bytes);
	discard(at, bytes);
	settle();
	evict();
	CHECK(holds(at, value, bytes));
	CHECK(dead_out() == before);
}

CHILD_TEST(what_may_not_be_dead_survives, SCENE_SETTINGS(runtime))
{
	begin();
	CUstream stream = child_stream();
	CHECK(spillway_born(own_pointer(pool + MIB), POOL) == -EINVAL);
	CHECK(spillway_born(own_pointer(8), 1) == -ENOENT);
	/* What was not born as such. */
	born(3 * MIB, 3 * MIB);
	check_survives(3 * MIB + 512, 2 * MIB, 0x2222);
	check_survives(9 * MIB + 512, MIB, 0x2223);
	/* What another part has taken the place of. */
	born(4 * MIB, MIB);
	check_survives(3 * MIB, MIB + MIB / 2, 0x2224);
	/* A graph that was made before names another block. */
	CUdeviceptr other = child_alloc(POOL);
	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	MUST(driver_fill(stream, other, 0x3333, MIB / 4));
	CUgraphExec exec = driver_captured(stream);
	CUdeviceptr first = pool;
	pool = other;
	born(MIB + 512, MIB);
	check_survives(MIB + 512, MIB, 0x2225);
	/* A capture is open. */
	pool = first;
	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	MUST(driver_fill(stream, pool, 0x3333, MIB / 4));
	born(12 * MIB + 512, MIB);
	driver_forget_capture(stream);
	born(15 * MIB + 512, MIB);
	check_survives(12 * MIB + 512, MIB, 0x2226);
	check_survives(15 * MIB + 512, MIB, 0x2227);
	/* It shares what moves with others. */
	pool = child_alloc(4096);
	born(0, 2048);
	check_survives(0, 2048, 0x2228);
	MUST(cu.cuGraphExecDestroy(exec));
	own_end();
}

/* What was discarded is born again after the block has grown: with all of it, beside what was there. */
CHILD_TEST(what_is_born_again_in_a_block_that_has_grown_survives, SCENE_SETTINGS(runtime))
{
	scene_load(&own_scene, 0);
	pool = child_alloc(6 * MIB);
	born(0, 4 * MIB);
	fill(0, 0x2222, 4 * MIB);
	discard(0, 4 * MIB);
	fill(4 * MIB, 0x3333, 2 * MIB);
	CHECK(spillway_grow(own_pointer(pool), 12 * MIB) == 0);
	born(0, 4 * MIB);
	fill(0, 0x4444, 4 * MIB);
	fill(6 * MIB, 0x5555, 6 * MIB);
	evict();
	CHECK(holds(0, 0x4444, 4 * MIB) && holds(4 * MIB, 0x3333, 2 * MIB) && holds(6 * MIB, 0x5555, 6 * MIB));
}

/* ---- anything ---- */

enum { PARTS = 12, STEPS = 150 };

struct part {
	size_t at, bytes;
	unsigned value; /* 0: it is not in use */
};

CHILD_TEST(what_is_alive_survives_any_births_and_deaths, SCENE_SETTINGS(runtime))
{
	struct seed seed = seed_start(__func__);
	struct part parts[PARTS];
	size_t at = MIB;

	begin();
	for (unsigned i = 0; i < PARTS; i++) {
		parts[i] = (struct part){at, 512 + 512 * (size_t)seed_below(&seed, 4000), 0};
		at += parts[i].bytes;
	}
	CHECK(at + MIB <= POOL);
	for (unsigned step = 1; step <= STEPS; step++) {
		struct part *part = &parts[seed_below(&seed, PARTS)];

		if (part->value && seed_below(&seed, 2)) {
			CHECK(holds(part->at, part->value, part->bytes));
			discard(part->at, part->bytes);
			part->value = 0;
		} else {
			if (!part->value)
				born(part->at, part->bytes);
			part->value = step;
			fill(part->at, step, part->bytes);
		}
		if (seed_below(&seed, 4) == 0)
			own_rounds(1);
		if (seed_below(&seed, 12) == 0)
			evict();
		/* What was discarded may be allocated again at once, before anything is submitted. */
		if (seed_below(&seed, 8) == 0 && part->value) {
			discard(part->at, part->bytes);
			born(part->at, part->bytes);
			fill(part->at, part->value, part->bytes);
		}
	}
	for (unsigned i = 0; i < PARTS; i++)
		CHECK(!parts[i].value || holds(parts[i].at, parts[i].value, parts[i].bytes));
	CHECK(holds(0, 0x1111, MIB) && holds(at, 0x1111, POOL - at));
	CHECK(dead_out() > 0);
	own_end();
}

EACH_TEST(folder_make, folder_remove)
