// SPDX-License-Identifier: Apache-2.0
/*
 * Host memory is pinned while a program that has spilled goes on with what is on the device, so that it lies ready when
 * something has to leave.
 */
#include "test/preload/child.h"
#include "test/test.h"

/* Of two blocks of 48 and 32 MiB, with a budget of 64 MiB. */
#define SPILLED  (16 * MIB)
#define PAGE     4096
#define SHORT_NS 1000000
#define PATIENCE 20000 /* times that */

/* The program goes on for a moment with what is on the device. */
static void go_on(CUdeviceptr here)
{
	MUST(cu.cuMemsetD8Async(here, 1, MIB, NULL));
	MUST(cu.cuCtxSynchronize());
	nanosleep(&(struct timespec){.tv_nsec = SHORT_NS}, NULL);
}

/* So much, one piece that is begun, and a few words for the link. */
static void pins(size_t ahead)
{
	driver_start(0);
	CUdeviceptr here = child_alloc(48 * MIB), both = child_alloc(32 * MIB);

	for (unsigned i = 0; sim_live().host_bytes < SPILLED + ahead && i < PATIENCE; i++)
		go_on(here);
	CHECK(sim_live().host_bytes >= SPILLED + ahead);
	CHECK(sim_live().host_bytes <= SPILLED + ahead + 4 * MIB + PAGE);
	MUST(cu.cuMemFree_v2(here));
	MUST(cu.cuMemFree_v2(both));
}

/* What a gap moves, and what is free and under way (governor.c), of 64 MiB. */
static void pins_for_a_gap(void)
{
	pins(8 * MIB);
}

static void pins_for_the_link(void)
{
	pins(16 * MIB);
}

static void pins_nothing(void)
{
	driver_start(0);
	CUdeviceptr here = child_alloc(48 * MIB), both = child_alloc(32 * MIB);

	for (unsigned i = 0; i < 200; i++)
		go_on(here);
	CHECK(sim_live().host_bytes == SPILLED);
	MUST(cu.cuMemFree_v2(here));
	MUST(cu.cuMemFree_v2(both));
}

static int with(const char *settings, void (*run)(void))
{
	return child_run(((const char *const[]){"SIM_MEMORY=256MiB", "SIM_HOST_MEMORY=1GiB", "SPILLWAY_POLICY=heap",
						settings, NULL}),
			 run);
}

TEST(what_leaves_will_find_host_memory)
{
	assert_int_equal(with("SPILLWAY_SET=spill.mode=exact,device.budget=64MiB,host.budget=512MiB", pins_for_a_gap),
			 0);
	assert_int_equal(with("SPILLWAY_SET=spill.mode=fast,device.budget=64MiB,host.budget=512MiB", pins_for_the_link),
			 0);
}

TEST(where_nothing_moves_or_there_is_little_none_is_pinned)
{
	assert_int_equal(with("SPILLWAY_SET=spill.mode=static,device.budget=64MiB,host.budget=512MiB", pins_nothing),
			 0);
	assert_int_equal(with("SPILLWAY_SET=spill.mode=exact,device.budget=64MiB,host.budget=40MiB", pins_nothing), 0);
}
