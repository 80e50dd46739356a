// SPDX-License-Identifier: Apache-2.0
/*
 * device.budget: auto on the simulated GPU: a neighbour takes memory while a job runs, and gives it back. The job's
 * steps go on, every byte is as it was, and the neighbour has its memory and the reserve.
 */
#include "test/preload/suspend_help.h"
#include "test/test.h"

#define RESERVE      (8 * MIB)
#define JOB          (N_BLOCKS * BLOCK)
#define WITH(budget) "SPILLWAY_SET=" budget ",device.reserve=8MiB,host.budget=256MiB,report.summary=no"
#define TRIES        8000 /* steps, with a pause of 5 ms each: what has not happened by then never does */

static unsigned rounds, value[N_BLOCKS]; /* of all words of each block */

static void start(void)
{
	job_start();
	for (unsigned i = 0; i < N_BLOCKS; i++)
		value[i] = 0x1000 + i;
}

/* One step: one block after the other is filled anew, and a word of all others is written. */
static void step(void)
{
	rounds++;
	value[rounds % N_BLOCKS] = 0x2000 + rounds;
	for (unsigned i = 0; i < N_BLOCKS; i++)
		MUST(driver_fill(NULL, job_blocks[i], value[i], i == rounds % N_BLOCKS ? N_WORDS : 1));
	MUST(cu.cuCtxSynchronize());
	usleep(5000);
}

static void check(void)
{
	for (unsigned i = 0; i < N_BLOCKS; i++)
		CHECK(driver_holds(job_blocks[i], value[i], N_WORDS));
}

static size_t held(void)
{
	return sim_live().device_bytes;
}

/* Steps until the job holds between least and most. Returns false if that never comes. */
static bool comes_to_hold(size_t least, size_t most)
{
	for (unsigned tries = 0; tries < TRIES; tries++) {
		if (held() >= least && held() <= most)
			return true;
		step();
	}
	printf("%zu bytes, not %zu to %zu\n", held(), least, most);
	return false;
}

static void neighbour_takes(size_t bytes)
{
	sim_switch("MEMORY", 128 * MIB - bytes);
}

static void follows_what_is_free(void)
{
	start();
	CHECK(held() >= JOB);
	step();
	/*
	 * 80 MiB are left to the job and the reserve while the first is there, then 40: there is no room for all of it.
	 */
	neighbour_takes(48 * MIB);
	step();
	CHECK(held() >= JOB);
	neighbour_takes(88 * MIB);
	CHECK(comes_to_hold(1, 40 * MIB - RESERVE));
	neighbour_takes(108 * MIB);
	CHECK(comes_to_hold(1, 20 * MIB - RESERVE));
	check();
}

CHILD_TEST(memory_comes_back_when_a_neighbour_has_left,
	   ((const char *const[]){"SIM_MEMORY=128MiB", WITH("device.budget=auto"), NULL}))
{
	driver_start(0);
	size_t without = held();
	start();
	neighbour_takes(96 * MIB);
	CHECK(comes_to_hold(1, 32 * MIB - RESERVE));
	neighbour_takes(56 * MIB);
	/* All of it would fit, but not beside the reserve. */
	CHECK(comes_to_hold(28 * MIB, 72 * MIB - RESERVE));
	neighbour_takes(0);
	CHECK(comes_to_hold(JOB, JOB + 8 * MIB + without));
	check();
}

TEST(the_budget_follows_what_the_driver_has_free)
{
	assert_int_equal(child_run(((const char *const[]){"SIM_MEMORY=128MiB", WITH("device.budget=auto"), NULL}),
				   follows_what_is_free),
			 0);
	assert_int_equal(
	    child_run(((const char *const[]){"SIM_MEMORY=128MiB", WITH("device.budget=auto,spill.mode=fast"), NULL}),
		      follows_what_is_free),
	    0);
}

/* The tool makes a budget follow that did not. */
CHILD_TEST(a_budget_of_the_start_follows_nothing_until_it_is_told_to,
	   ((const char *const[]){"SIM_MEMORY=128MiB", WITH("device.budget=start"), NULL}))
{
	start();
	neighbour_takes(88 * MIB);
	for (unsigned i = 0; i < 240; i++)
		step();
	CHECK(held() >= JOB);
	CHECK(set_says("device.budget=auto", 0, ""));
	CHECK(comes_to_hold(1, 40 * MIB - RESERVE));
	check();
}

GROUP(folder_make_for_all, folder_remove)
