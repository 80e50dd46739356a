// SPDX-License-Identifier: Apache-2.0
/*
 * Budgets of a running process are changed by `spillway set`, as from another terminal: what is above leaves before the
 * tool returns, steps go on meanwhile, every byte is as it was, and memory comes back when the budget is larger again.
 */
#include "test/preload/suspend_help.h"
#include "test/test.h"

static size_t blocks_on_device(void)
{
	size_t n = 0;

	for (unsigned i = 0; i < N_BLOCKS; i++)
		n += sim_where(job_blocks[i]) == 'D';
	return n;
}

static void step(unsigned base)
{
	job_fill(base);
	MUST(cu.cuCtxSynchronize());
}

PART_TEST(what_is_above_a_smaller_device_budget_leaves_and_steps_go_on,
	  assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), part), 0);
	  assert_int_equal(child_run(SETTINGS(",spill.mode=fast"), part), 0))
{
	driver_start(0);
	size_t without = sim_live().device_bytes;
	job_start();
	CHECK(set_says("device.budget=16MiB", 0, "device.budget=16MiB, "));
	CHECK(sim_live().device_bytes - without <= 16 * MIB);
	job_check(0x1000);
	CHECK(set_says("device.budget=25%", 0, "device.budget=25%, 0 B left in 0."));
	steps_begin(step);
	await_steps(2);
	for (unsigned round = 0; round < 3; round++) {
		CHECK(set_says("device.budget=8MiB", 0, "left in"));
		CHECK(sim_live().device_bytes - without <= 8 * MIB);
		await_steps(2);
		CHECK(set_says("device.budget=64MiB", 0, "0 B left in"));
		await_steps(2);
	}
	steps_end();
	/* 48 MiB fit by now. */
	steps_begin(step);
	for (unsigned tries = 0; tries < 2000 && blocks_on_device() < N_BLOCKS; tries++)
		await_steps(1);
	steps_end();
	CHECK(blocks_on_device() == N_BLOCKS);
}

#define AMPLE(mode)                                                                                                    \
	((const char *const[]){                                                                                        \
	    "SIM_MEMORY=128MiB",                                                                                       \
	    "SPILLWAY_SET=device.budget=64MiB,host.budget=128MiB,report.summary=no,spill.mode=" mode, NULL})

/* Nothing has spilled before: the mover is started for it. */
PART_TEST(a_process_that_has_not_spilled_can_be_made_smaller, assert_int_equal(child_run(AMPLE("exact"), part), 0);
	  assert_int_equal(child_run(AMPLE("fast"), part), 0))
{
	driver_start(0);
	size_t without = sim_live().device_bytes;
	job_start();
	CHECK(blocks_on_device() == N_BLOCKS);
	CHECK(set_says("device.budget=20MiB", 0, "device.budget=20MiB, 28.0 MiB left in"));
	CHECK(sim_live().device_bytes - without <= 20 * MIB);
	job_check(0x1000);
}

/* What it lends beyond its budget does not count there, so nothing would be gained by it. */
CHILD_TEST(what_is_lent_beyond_the_budget_does_not_leave_for_a_smaller_one,
	   ((const char *const[]){
	       "SIM_MEMORY=256MiB", "SIM_DEVICES=2",
	       "SPILLWAY_SET=device.budget=64MiB,host.budget=256MiB,report.summary=no,spill.mode=exact,spill.peers=0",
	       NULL}))
{
	CUdeviceptr own[8];

	driver_start(1);
	CUdeviceptr all = child_alloc(64 * MIB), lent = child_alloc(64 * MIB);
	MUST(driver_fill(NULL, all, 1, 16 * MIB));
	MUST(driver_fill(NULL, lent, 2, 16 * MIB));
	MUST(cu.cuCtxSynchronize());
	driver_start(0);
	for (unsigned i = 0; i < 8; i++) {
		own[i] = child_alloc(8 * MIB);
		MUST(driver_fill(NULL, own[i], i, 2 * MIB));
	}
	MUST(cu.cuCtxSynchronize());
	CHECK(sim_live().host_bytes < MIB);
	CHECK(set_says("device.budget=48MiB", 0, "left in"));
	for (unsigned i = 0; i < 8; i++)
		CHECK(driver_holds(own[i], i, 2 * MIB));
	driver_start(1);
	CHECK(driver_holds(all, 1, 16 * MIB) && driver_holds(lent, 2, 16 * MIB));
}

CHILD_TEST(what_cannot_move_stays_but_nothing_more_is_taken, SETTINGS(",spill.mode=static"))
{
	job_start();
	size_t before = blocks_on_device();
	CHECK(set_says("device.budget=4MiB", 1, "28.0 MiB are above it still"));
	CHECK(blocks_on_device() == before);
	CUdeviceptr more = child_alloc(BLOCK);
	CHECK(sim_where(more) == 'H');
	job_check(0x1000);
}

CHILD_TEST(the_host_budget_can_be_changed, SETTINGS(",spill.mode=static"))
{
	CUdeviceptr more = 0;

	job_start();
	CHECK(set_says("host.budget=16MiB", 0, "host.budget=16MiB, "));
	/* 32 MiB on the device and 16 on the host are full. */
	CHECK(cu.cuMemAlloc_v2(&more, 8 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(set_says("host.budget=8MiB", 1, "8.0 MiB are above it still"));
	CHECK(set_says("host.budget=64MiB", 0, "0 B left in"));
	more = child_alloc(8 * MIB);
	job_check(0x1000);
}

CHILD_TEST(what_is_wrong_is_refused_and_nothing_changes, SETTINGS(""))
{
	job_start();
	CHECK(set_says("device.budget=20", 1, "has no unit"));
	CHECK(set_says("host.budget=auto", 1, "write a size"));
	CHECK(set_says("spill.peers=1", 1, "device.budget, host.budget, spill.mode and share.weight can be"));
	CHECK(set_says("report.summary=no", 1, "device.budget, host.budget, spill.mode and share.weight can be"));
	CHECK(set_says("share.weight=3", 1, "this process takes no turns"));
	job_check(0x1000);
}

GROUP(folder_make_for_all, folder_remove)
