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

/* What is to be pinned beyond what has spilled; 0: nothing, ever. */
static size_t ahead;

/* So much, one piece that is begun, and a few words for the link. */
static void pins(void)
{
	driver_start(0);
	CUdeviceptr here = child_alloc(48 * MIB), both = child_alloc(32 * MIB);

	for (unsigned i = 0; ahead ? sim_live().host_bytes < SPILLED + ahead && i < PATIENCE : i < 200; i++)
		go_on(here);
	CHECK(sim_live().host_bytes >= SPILLED + ahead);
	CHECK(sim_live().host_bytes <= SPILLED + ahead + (ahead ? 4 * MIB + PAGE : 0));
	MUST(cu.cuMemFree_v2(here));
	MUST(cu.cuMemFree_v2(both));
}

static void pins_in(const char *mode, const char *host, size_t bytes)
{
	char set[100];

	ahead = bytes;
	snprintf(set, sizeof(set), "SPILLWAY_SET=spill.mode=%s,device.budget=64MiB,host.budget=%s", mode, host);
	assert_int_equal(child_run(((const char *const[]){"SIM_MEMORY=256MiB", "SIM_HOST_MEMORY=1GiB",
							  "SPILLWAY_POLICY=heap", set, NULL}),
				   pins),
			 0);
}

/* What a gap moves, or the link, and what is free and under way (governor.c), of 64 MiB. */
TEST(what_leaves_will_find_host_memory)
{
	pins_in("exact", "512MiB", 8 * MIB);
	pins_in("fast", "512MiB", 16 * MIB);
}

TEST(where_nothing_moves_or_there_is_little_none_is_pinned)
{
	pins_in("static", "512MiB", 0);
	pins_in("exact", "40MiB", 0);
}
