// SPDX-License-Identifier: Apache-2.0
/*
 * The first second after a program began to spill: nothing moves, and no host memory is pinned for what might, while
 * nothing is known of what comes next, and moving begins at once when something is. Each in a process of its own, in
 * the mode of SPILL_MODE.
 */
#include "test/preload/typed_alloc_help.h"

enum { BLOCKS = 40, BYTES = 2 * MIB };
#define EARLY 0.9 /* s of the second, to be on the safe side */

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void take(CUdeviceptr *blocks)
{
	for (int i = 0; i < BLOCKS; i++)
		blocks[i] = child_alloc(BYTES);
}

static unsigned away(const CUdeviceptr *blocks, bool *ret_is_away)
{
	unsigned n = 0;

	for (int i = 0; i < BLOCKS; i++)
		n += ret_is_away[i] = own_is_out(blocks[i]);
	return n;
}

PART_TEST(nothing_moves_before_anything_is_known, own_run(part))
{
	CUdeviceptr blocks[BLOCKS];
	bool before[BLOCKS], after[BLOCKS];
	unsigned seed = 5, n = 0;
	double begin = now();

	scene_load(&own_scene, 0);
	take(blocks);
	CHECK(away(blocks, before));
	size_t pinned = sim_live().host_bytes;
	/* Always the same ones: among very many the past seems to come again by chance. */
	for (; n < 400; n++) {
		MUST(driver_fill(NULL, blocks[rand_r(&seed) % BLOCKS], n, 16));
		MUST(cu.cuStreamSynchronize(NULL));
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	away(blocks, after);
	size_t pinned_since = sim_live().host_bytes - pinned;
	/* Whoever is so slow that the second is over is told nothing. */
	CHECK(now() - begin > EARLY || pinned_since == 0);
	for (int i = 0; now() - begin < EARLY && i < BLOCKS; i++)
		CHECK(before[i] == after[i]);
}

PART_TEST(what_repeats_itself_moves, own_run(part))
{
	CUdeviceptr blocks[BLOCKS];
	bool before[BLOCKS], after[BLOCKS], moved = false;

	scene_load(&own_scene, 0);
	take(blocks);
	away(blocks, before);
	for (unsigned step = 0; step < (scene_moves() ? 2000 : 20) && !moved; step++) {
		for (int i = 0; i < BLOCKS; i++)
			MUST(driver_fill(NULL, blocks[i], step, BYTES / 4));
		MUST(cu.cuStreamSynchronize(NULL));
		away(blocks, after);
		for (int i = 0; i < BLOCKS; i++)
			moved |= before[i] != after[i];
	}
	CHECK(moved == scene_moves());
}
