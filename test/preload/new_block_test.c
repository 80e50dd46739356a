// SPDX-License-Identifier: Apache-2.0
/*
 * Blocks that a program makes anew in each of its steps, while all of the device budget is taken: once it is known what
 * comes next, room is made for them first, and they begin on the device.
 */
#include "test/preload/scene.h"
#include "test/test.h"

enum { KEPT = 24, MADE = 6, STEPS = 400, IN_A_ROW = 4, MOVING = 2 };
#define BLOCK_BYTES (4 * MIB)
#define SETTINGS(mode)                                                                                                 \
	((const char *const[]){"SIM_MEMORY=256MiB", "SIM_HOST_MEMORY=512MiB", "SIM_FILL=0",                            \
			       "SPILLWAY_SET=spill.mode=" mode ",device.budget=64MiB,host.budget=256MiB", NULL})

static CUdeviceptr kept[KEPT];
static CUstream stream;

static void touch(CUdeviceptr block, unsigned value)
{
	MUST(cu.cuMemsetD8Async(block, (unsigned char)value, BLOCK_BYTES, stream));
}

static bool holds(CUdeviceptr block, unsigned value)
{
	uint32_t first, last;

	MUST(cu.cuStreamSynchronize(stream));
	MUST(cu.cuMemcpyDtoH_v2(&first, block, sizeof(first)));
	MUST(cu.cuMemcpyDtoH_v2(&last, block + BLOCK_BYTES - sizeof(last), sizeof(last)));
	return first == last && last == (value & 255) * 0x01010101u;
}

/* All blocks that are kept are used, and between them others that are gone at the end. How many began on the device? */
static unsigned step(unsigned n)
{
	CUdeviceptr made[MADE];
	unsigned there = 0;

	for (unsigned i = 0; i < KEPT; i++) {
		touch(kept[i], n + i);
		if (i % (KEPT / MADE))
			continue;
		CUdeviceptr block = made[i / (KEPT / MADE)] = child_alloc(BLOCK_BYTES);
		there += child_on_device(block, BLOCK_BYTES);
		touch(block, n);
	}
	CHECK(holds(made[n % MADE], n));
	for (unsigned i = 0; i < MADE; i++)
		MUST(cu.cuMemFree_v2(made[i]));
	return there;
}

/* Which of the blocks that are kept lie on the device? */
static uint32_t where(void)
{
	uint32_t there = 0;

	for (unsigned i = 0; i < KEPT; i++)
		there |= (uint32_t)child_on_device(kept[i], BLOCK_BYTES) << i;
	return there;
}

/* The same, made one after the other when the step is over: more than is kept free beforehand. */
static unsigned step_and_burst(unsigned n)
{
	CUdeviceptr made[MADE];
	unsigned there = 0;

	for (unsigned i = 0; i < KEPT; i++)
		touch(kept[i], n + i);
	for (unsigned i = 0; i < MADE; i++) {
		made[i] = child_alloc(BLOCK_BYTES);
		there += child_on_device(made[i], BLOCK_BYTES);
	}
	for (unsigned i = 0; i < MADE; i++)
		touch(made[i], n);
	CHECK(holds(made[n % MADE], n));
	for (unsigned i = 0; i < MADE; i++)
		MUST(cu.cuMemFree_v2(made[i]));
	return there;
}

/*
 * Nearly all of some steps in a row do, and memory moves in some of these. Not in all steps: now and then the library
 * asks whether moving pays, which on the simulated GPU it does not; and where nothing moves, blocks find the memory of
 * those of the step before.
 */
static void run(unsigned (*one_step)(unsigned n))
{
	unsigned in_a_row = 0, moving = 0, n;

	driver_start(0);
	stream = child_stream();
	for (unsigned i = 0; i < KEPT; i++)
		kept[i] = child_alloc(BLOCK_BYTES);
	for (n = 0; n < STEPS && (in_a_row < IN_A_ROW || moving < MOVING); n++) {
		uint32_t before = where();
		unsigned there = one_step(n);

		in_a_row = there < MADE - 1 ? 0 : in_a_row + 1;
		moving = !in_a_row ? 0 : moving + (where() != before);
	}
	CHECK(in_a_row >= IN_A_ROW && moving >= MOVING);
	for (unsigned i = 0; i < KEPT; i++)
		CHECK(holds(kept[i], n - 1 + i));
}

PART_TEST(new_blocks_begin_on_the_device, child_passes(SETTINGS("exact"), part); child_passes(SETTINGS("fast"), part))
{
	run(step);
}

PART_TEST(new_blocks_that_are_made_at_once_begin_on_the_device, child_passes(SETTINGS("exact"), part);
	  child_passes(SETTINGS("fast"), part))
{
	run(step_and_burst);
}
