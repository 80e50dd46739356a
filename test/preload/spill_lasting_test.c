// SPDX-License-Identifier: Apache-2.0
/*
 * Failures in the middle of moves that are not over with one call: what would mend the first one fails as well, calls
 * fail again and again, the driver does not have a call at all, the host or the device has no memory left for a while.
 * The job's bytes are right all the same, nothing is lost for good, and the process goes on. Each trial is a process of
 * its own (child.h) with a job that needs twice its budget (fault_help.h). The job itself makes none of the calls that
 * fail.
 */
#include "test/preload/fault_help.h"
#include "test/test.h"

#include <stdatomic.h>

static struct fault {
	const char *name;
	unsigned nth;
	CUresult error;
	unsigned unmaps; /* that are refused after it */
} fault;

/* ---- what would mend it fails, too ---- */

/* A call fails, and then the driver does not unmap memory so many times. */
static void job_that_cannot_unmap(void)
{
	CUstream one, two;

	begin_job(&one, &two);
	CHECK(scene_warm_up(&scene));
	sim_fail_then(fault.name, fault.nth, CUDA_ERROR_UNKNOWN, "cuMemUnmap", fault.unmaps);
	for (int i = 0; i < (scene_moves() ? MOST_ROUNDS : ROUNDS) && sim_fail_pending(); i++)
		run_rounds(one, two, 1);
	run_rounds(one, two, ROUNDS);
	MUST(cu.cuCtxSynchronize());
	CHECK(scene_holds(&scene));
}

static void goes_on_without_unmapping(const char *name, unsigned unmaps)
{
	fault = (struct fault){.name = name, .unmaps = unmaps};
	for (fault.nth = 1; fault.nth < 12; fault.nth++)
		assert_int_equal(child_run(SCENE_SETTINGS(), job_that_cannot_unmap), 0);
}

/*
 * A copy in place fails, and then the driver does not let go of the memory it was to fill, far longer than it is asked:
 * there is no way back, but one forward.
 */
TEST(memory_that_cannot_be_unmapped_again_is_filled)
{
	goes_on_without_unmapping("cuMemcpyDtoDAsync_v2", 50);
}

/* Memory was mapped, cannot be made accessible, and is not unmapped again: the next try finds it in its way. */
TEST(a_mapping_that_is_in_the_way_is_taken_away)
{
	goes_on_without_unmapping("cuMemSetAccess", 1);
}

/* A copy's event cannot be recorded, and then its stream not be waited for: it runs all the same. */
static void job_with_a_copy_nobody_hears_of(void)
{
	CUstream one, two;

	begin_job(&one, &two);
	CHECK(scene_warm_up(&scene));
	sim_fail_then("cuEventRecord", fault.nth, CUDA_ERROR_UNKNOWN, "cuStreamSynchronize", 3);
	for (int i = 0; i < (scene_moves() ? MOST_ROUNDS : ROUNDS); i++) {
		MUST(scene_round(&scene, one, 1));
		MUST(scene_round(&scene, two, 2));
		MUST(cu.cuCtxSynchronize());
	}
	CHECK(scene_holds(&scene));
	CHECK(sim_broken_rules() == 0);
}

TEST(a_copy_that_nobody_hears_of_is_waited_for)
{
	for (fault.nth = 1; fault.nth < 40; fault.nth += 3)
		assert_int_equal(child_run(SCENE_SETTINGS("SIM_PIECE_US=60"), job_with_a_copy_nobody_hears_of), 0);
}

/*
 * That the mover's thread cannot enter the context for a while does not mean that there is none. A kernel submitted
 * before anybody counted submissions is still to run, and its memory stays where it is.
 */
PART_TEST(a_context_that_cannot_be_entered_for_a_while_is_not_idle,
	  assert_int_equal(child_run(SCENE_SETTINGS(), part), 0))
{
	scene_load(&scene, 0);
	CUstream held = own_stream();
	unsigned *word = scene_word();
	for (unsigned i = 0; i < SCENE_BLOCKS; i++) {
		scene.block[i] = child_alloc(SCENE_BYTES);
		MUST(cu.cuMemsetD32_v2(scene.block[i], 0, SCENE_BYTES / 4));
		MUST(cu.cuStreamSynchronize(NULL));
		if (i == 0) {
			MUST(scene_spin(&scene, held, (CUdeviceptr)(uintptr_t)word, 1, 0, 1));
			sim_fail_then("cuCtxPushCurrent_v2", 1, CUDA_ERROR_UNKNOWN, "cuCtxPushCurrent_v2", 20);
		}
	}
	for (unsigned i = 0; i < MOST_ROUNDS; i++) {
		MUST(scene_round(&scene, NULL, 0));
		MUST(cu.cuStreamSynchronize(NULL));
		CHECK(child_on_device(scene.block[0], SCENE_BYTES));
	}
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	CHECK(scene_warm_up(&scene));
	CHECK(!scene_moves() || !sim_fail_pending());
	MUST(cu.cuCtxSynchronize());
	CHECK(scene_holds(&scene));
	scene_close(&scene);
}

/* While moves go on the mover looks at events all the time, in a mode in which that ends no capture. */
static void job_with_captures(void)
{
	CUgraph graph;

	scene_load(&scene, 0);
	CUstream one = own_stream(), two = own_stream();
	sim_fail_then("cuThreadExchangeStreamCaptureMode", 1, CUDA_ERROR_UNKNOWN, "cuThreadExchangeStreamCaptureMode",
		      fault.nth);
	scene_allocate(&scene);
	for (int i = 0; i < MOST_ROUNDS / 5; i++) {
		run_rounds(one, two, 3);
		MUST(cu.cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
		usleep(1000);
		MUST(scene_round(&scene, one, 3));
		MUST(cu.cuStreamEndCapture(one, &graph));
		MUST(cu.cuGraphDestroy(graph));
	}
	/* What was captured never runs. */
	for (unsigned i = 0; i < SCENE_BLOCKS; i++)
		scene.count[i][3] = 0;
	MUST(cu.cuCtxSynchronize());
	CHECK(scene_holds(&scene));
}

TEST(captures_are_left_alone_where_a_thread_cannot_be_relaxed_at_once)
{
	for (fault.nth = 1; fault.nth < 1000; fault.nth *= 5)
		assert_int_equal(child_run(SCENE_SETTINGS(), job_with_captures), 0);
}

/* ---- what a driver may not have ---- */

PART_TEST(where_streams_cannot_wait_for_values_memory_moves_all_the_same,
	  assert_int_equal(child_run(SCENE_SETTINGS(), part), 0))
{
	CUstream one, two;

	begin_job(&one, &two);
	sim_fail("cuStreamWaitValue32_v2", 1, CUDA_ERROR_NOT_SUPPORTED);
	CHECK(scene_warm_up(&scene));
	run_rounds(one, two, ROUNDS);
	MUST(cu.cuCtxSynchronize());
	CHECK(!scene_moves() || !sim_fail_pending());
	CHECK(sim_calls("cuStreamWaitValue32_v2") <= 1);
	sim_fail("cuStreamWaitValue32_v2", 0, CUDA_SUCCESS);
	finish_job(one, two);
}

/* ---- again and again ---- */

static void job_with_many_faults(void)
{
	CUstream one, two;

	begin_job(&one, &two);
	CHECK(scene_warm_up(&scene));
	for (int i = 0; i < 2 * ROUNDS; i++) {
		sim_fail(fault.name, 1 + (unsigned)i % 3, fault.error);
		run_rounds(one, two, 8);
	}
	MUST(cu.cuCtxSynchronize());
	sim_fail(fault.name, 0, CUDA_SUCCESS);
	finish_job(one, two);
}

TEST(calls_that_fail_again_and_again_cost_nothing_but_speed)
{
	static const char *const names[] = {"cuMemCreate",   "cuMemMap",      "cuMemSetAccess", "cuMemUnmap",
					    "cuMemcpyAsync", "cuEventRecord", "cuEventQuery"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		fault = (struct fault){.name = names[i], .error = CUDA_ERROR_OUT_OF_MEMORY};
		if (child_run(SCENE_SETTINGS(), job_with_many_faults) != 0)
			fail_msg("%s", names[i]);
	}
}

static atomic_bool over;

/* One query in three or so; never two in a row. */
static void *fail_queries(void *argument)
{
	for (unsigned i = 0; !atomic_load(&over); i++) {
		if (!sim_fail_pending())
			sim_fail("cuEventQuery", 2 + i % 3, CUDA_ERROR_UNKNOWN);
		usleep(10);
	}
	return argument;
}

PART_TEST(events_that_often_cannot_be_asked_are_no_dead_context,
	  assert_int_equal(child_run(SCENE_SETTINGS("SIM_PIECE_US=60"), part), 0))
{
	CUstream one, two;

	begin_job(&one, &two);
	CHECK(scene_warm_up(&scene));
	pthread_t thread = test_thread(fail_queries, NULL);
	run_rounds(one, two, MOST_ROUNDS);
	MUST(cu.cuCtxSynchronize());
	atomic_store(&over, true);
	pthread_join(thread, NULL);
	sim_fail("cuEventQuery", 0, CUDA_SUCCESS);
	/* It still moves. */
	CHECK(scene_warm_up(&scene));
	finish_job(one, two);
}

/* ---- no memory left ---- */

/* Takes away what is not in use, gives it back after some rounds, several times. */
static void job_short_of(const char *what)
{
	bool host = !strcmp(what, "HOST_MEMORY");
	CUstream one, two;

	begin_job(&one, &two);
	CHECK(scene_warm_up(&scene));
	for (int i = 0; i < 4; i++) {
		struct sim_live live = sim_live();

		sim_switch(what, host ? live.host_bytes : live.device_bytes);
		run_rounds(one, two, 4 * ROUNDS);
		sim_switch(what, host ? 512 * MIB : 256 * MIB);
		run_rounds(one, two, ROUNDS);
	}
	finish_job(one, two);
}

PART_TEST(host_memory_that_runs_out_in_a_move_costs_nothing_but_speed,
	  assert_int_equal(child_run(SCENE_SETTINGS(), part), 0))
{
	job_short_of("HOST_MEMORY");
}

PART_TEST(device_memory_that_runs_out_in_a_move_costs_nothing_but_speed,
	  assert_int_equal(child_run(SCENE_SETTINGS(), part), 0))
{
	job_short_of("MEMORY");
}

/* The host budget holds what does not fit the device, and hardly a chunk more. */
static void job_with_a_tight_host_budget(void)
{
	CUstream one, two;

	begin_job(&one, &two);
	run_rounds(one, two, 2 * ROUNDS);
	MUST(cu.cuCtxSynchronize());
	CHECK(scene_holds(&scene));
	CHECK(sim_live().host_bytes <= 24 * MIB + OWN);
	scene_close(&scene);
}

TEST(a_tight_host_budget_costs_nothing_but_speed)
{
	char set[160];

	snprintf(set, sizeof(set), "SPILLWAY_SET=spill.mode=%s,device.budget=16MiB,host.budget=24MiB,report.summary=no",
		 scene_mode());
	assert_int_equal(child_run(SCENE_SETTINGS(set), job_with_a_tight_host_budget), 0);
}

START(scene_size = SCENE_SMALL)
