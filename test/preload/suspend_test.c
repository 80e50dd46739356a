// SPDX-License-Identifier: Apache-2.0
/*
 * Suspended and resumed, by the `spillway` tool as from another terminal, and by the program itself through spillway.h.
 */
#include "shim/spillway.h"
#include "test/preload/suspend_help.h"
#include "test/test.h"

#include <dlfcn.h>

#define STILL_MS 200 /* a submission that would pass has passed by then */

static void is_suspended_by_the_tool(void)
{
	struct worker worker;

	driver_start(0);
	size_t without = sim_live().device_bytes;
	job_start();
	CHECK(sim_live().device_bytes > without);
	for (unsigned round = 0; round < 3; round++) {
		CHECK(tool_lists("running"));
		CHECK(tool_says("suspend", 0, "suspended"));
		CHECK(sim_live().device_bytes == without);
		CHECK(tool_lists("suspended"));
		worker_begin(&worker, 0x2000 + 0x100 * round);
		usleep(STILL_MS * 1000);
		CHECK(!worker.done && sim_live().device_bytes == without);
		CHECK(tool_says("suspend", 0, "suspended"));
		CHECK(tool_says("resume", 0, "resumed"));
		worker_end(&worker);
		job_check(0x2000 + 0x100 * round);
	}
	CHECK(tool_says("resume", 0, "resumed"));
}

/* Submissions on their way when the request comes are either done before it or wait. */
static void is_suspended_in_the_middle(void)
{
	struct worker worker;

	job_start();
	for (unsigned round = 0; round < 20; round++) {
		worker_begin(&worker, 0x3000 + 0x100 * round);
		CHECK(tool_says("suspend", 0, "suspended"));
		CHECK(tool_says("resume", 0, "resumed"));
		worker_end(&worker);
		job_check(0x3000 + 0x100 * round);
	}
}

static void is_suspended_by_itself(void)
{
	__typeof__(&spillway_suspend) found = (__typeof__(found))dlsym(RTLD_DEFAULT, "spillway_suspend");
	struct worker worker;

	CHECK(found && found == spillway_suspend && spillway_resume && spillway_version && spillway_version()[0]);
	errno = 77;
	CHECK(spillway_suspend() == -ENOTSUP && spillway_resume() == -ENOTSUP && errno == 77);
	job_start();
	errno = 77; /* the driver may have changed it when it was started */
	CHECK(spillway_suspend() == 0 && spillway_suspend() == 0 && errno == 77);
	CHECK(tool_lists("suspended"));
	worker_begin(&worker, 0x4000);
	usleep(STILL_MS * 1000);
	CHECK(!worker.done && spillway_resume() == 0 && spillway_resume() == 0 && errno == 77);
	worker_end(&worker);
	job_check(0x4000);
	CHECK(tool_lists("running"));
}

TEST(a_suspended_job_gives_its_memory_back_and_goes_on_where_it_was)
{
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), is_suspended_by_the_tool), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=fast"), is_suspended_by_the_tool), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), is_suspended_in_the_middle), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=fast"), is_suspended_in_the_middle), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), is_suspended_by_itself), 0);
}

/* Threads that do not submit go on, and may allocate: the GPU stays somebody else's. */
PART_TEST(what_is_made_while_suspended_begins_on_the_host,
	  assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), part), 0);
	  assert_int_equal(child_run(SETTINGS(",spill.mode=fast"), part), 0))
{
	struct worker worker;

	job_start();
	CHECK(spillway_suspend() == 0 && sim_live().device_bytes == 0);
	CUdeviceptr more = child_alloc(16 * MIB), small = child_alloc(1000);
	CHECK(sim_where(more) == 'H' && sim_where(small) == 'H' && sim_live().device_bytes == 0);
	MUST(cu.cuMemFree_v2(more));
	more = child_alloc(16 * MIB);
	CHECK(sim_where(more) == 'H' && sim_live().device_bytes == 0);
	CHECK(spillway_resume() == 0);
	MUST(driver_fill(NULL, more, 0x77, 4 * MIB));
	worker_begin(&worker, 0x6000);
	worker_end(&worker);
	job_check(0x6000);
	CHECK(driver_holds(more, 0x77, 4 * MIB));
	MUST(cu.cuMemFree_v2(more));
	MUST(cu.cuMemFree_v2(small));
	more = child_alloc(4 * MIB);
	CHECK(sim_where(more) == 'D');
}

/* The context was reset, and made again where the library does not see it. */
CHILD_TEST(memory_of_a_stream_makes_its_context_known, SETTINGS(",spill.mode=exact,async.use=heap"))
{
	__typeof__(&cuDevicePrimaryCtxRetain) retain = (__typeof__(retain))driver_native("cuDevicePrimaryCtxRetain");
	CUdeviceptr block;
	CUcontext context;

	driver_start(0);
	CHECK(cu.cuMemFree_v2(child_alloc(BLOCK)) == CUDA_SUCCESS);
	MUST(cuDevicePrimaryCtxReset_v2(0));
	MUST(retain(&context, 0));
	MUST(cu.cuCtxSetCurrent(context));
	MUST(cu.cuMemAllocAsync(&block, BLOCK, NULL));
	CHECK(spillway_suspend() == 0);
	CHECK(spillway_resume() == 0);
}

/* ---- refused, and nothing changes ---- */

static void cannot_be_suspended(void)
{
	struct worker worker;

	job_start();
	size_t before = sim_live().device_bytes;
	CHECK(tool_says("suspend", 1, getenv("WHY")) && sim_live().device_bytes == before);
	CHECK(tool_lists("running"));
	worker_begin(&worker, 0x5000);
	worker_end(&worker);
	job_check(0x5000);
}

static void is_in_a_capture(void)
{
	CUgraph graph;

	job_start();
	CUstream stream = child_stream();
	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CHECK(tool_says("suspend", 1, "no safe point"));
	MUST(driver_fill(stream, job_blocks[0], 1, 1));
	MUST(cu.cuStreamEndCapture(stream, &graph));
	MUST(cu.cuGraphDestroy(graph));
	job_check(0x1000);
	CHECK(tool_says("suspend", 0, "suspended") && tool_says("resume", 0, "resumed"));
	job_check(0x1000);
}

static void has_a_driver_that_does_not_copy(void)
{
	job_start();
	sim_fail_then("cuMemcpyDtoDAsync_v2", 1, CUDA_ERROR_UNKNOWN, "cuMemcpyDtoDAsync_v2", 1);
	CHECK(spillway_suspend() == -EIO);
	CHECK(!sim_fail_pending() && tool_lists("running"));
	job_check(0x1000);
	CHECK(spillway_suspend() == 0 && spillway_resume() == 0);
	job_check(0x1000);
}

static void has_a_system_that_pins_no_more(void)
{
	job_start();
	sim_switch("HOST_MEMORY", sim_live().host_bytes);
	CHECK(tool_says("suspend", 1, "no more memory to pin"));
	CHECK(spillway_suspend() == -ENOMEM);
	sim_switch("HOST_MEMORY", 512 * MIB);
	job_check(0x1000);
	CHECK(spillway_suspend() == 0 && spillway_resume() == 0);
	job_check(0x1000);
}

#define FOR_EVER 1000000

static void has_a_driver_that_lets_nothing_go(const char *call)
{
	job_start();
	/* What is measured with the first piece that moves is not meant. */
	CHECK(spillway_suspend() == 0 && spillway_resume() == 0);
	for (unsigned i = 0; i < N_BLOCKS; i++)
		MUST(cu.cuMemFree_v2(job_blocks[i]));
	job_allocate();
	child_refuse(call, FOR_EVER);
	CHECK(spillway_suspend() == -EIO && sim_live().device_bytes > 0);
	CHECK(tool_says("suspend", 1, "the driver failed"));
	child_refuse(call, 0);
	CHECK(tool_lists("running"));
	job_check(0x1000);
	CHECK(spillway_suspend() == 0 && sim_live().device_bytes == 0 && spillway_resume() == 0);
	job_check(0x1000);
}

/* The copy is made, but the address goes on leading to the device. */
static void has_a_driver_that_does_not_unmap(void)
{
	has_a_driver_that_lets_nothing_go("cuMemUnmap");
}

/* Everything is on the host, but what it leaves is not free for others. */
static void has_a_driver_that_does_not_release(void)
{
	has_a_driver_that_lets_nothing_go("cuMemRelease");
}

/* What is free and still mapped. */
static void has_a_driver_that_keeps_what_is_free(void)
{
	driver_start(0);
	CUdeviceptr block = child_alloc(24 * MIB);
	MUST(cu.cuMemFree_v2(block));
	CHECK(sim_live().device_bytes == 24 * MIB);
	child_refuse("cuMemUnmap", FOR_EVER);
	CHECK(spillway_suspend() == -EIO && sim_live().device_bytes == 24 * MIB);
	child_refuse("cuMemUnmap", 0);
	CHECK(tool_says("suspend", 0, "24.0 MiB of device memory given back") && sim_live().device_bytes == 0);
	CHECK(spillway_resume() == 0);
}

TEST(what_cannot_be_suspended_says_why_and_goes_on)
{
	setenv("WHY", "spill.mode", 1);
	assert_int_equal(child_run(SETTINGS(",spill.mode=static"), cannot_be_suspended), 0);
	setenv("WHY", "host.budget", 1);
	assert_int_equal(child_run(((const char *const[]){"SIM_MEMORY=128MiB",
							  "SPILLWAY_SET=device.budget=32MiB,host.budget=20MiB,"
							  "report.summary=no,spill.mode=exact",
							  NULL}),
				   cannot_be_suspended),
			 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), is_in_a_capture), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), has_a_driver_that_does_not_copy), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), has_a_driver_that_does_not_unmap), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=fast"), has_a_driver_that_does_not_unmap), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), has_a_driver_that_does_not_release), 0);
	assert_int_equal(
	    child_run(SETTINGS(",spill.mode=exact,heap.release_threshold=32MiB"), has_a_driver_that_keeps_what_is_free),
	    0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), has_a_system_that_pins_no_more), 0);
}

/* ---- other devices ---- */

/* 48 MiB: 32 on the device, 10 on the peer, the rest on the host. */
static void lies_on_a_peer(void)
{
	struct worker worker = {0};

	job_start();
	CHECK(sim_live().device_bytes >= 40 * MIB);
	CHECK(tool_says("suspend", 0, "suspended") && sim_live().device_bytes == 0);
	CHECK(tool_says("resume", 0, "resumed"));
	worker_begin(&worker, 0x5000);
	worker_end(&worker);
	job_check(0x5000);
}

/* What the program makes for itself has all of the device's budget: nothing comes in, on the way to the host either. */
static void lies_on_a_peer_alone(void)
{
	CUmemGenericAllocationHandle own;

	driver_start(0);
	MUST(cu.cuMemFree_v2(child_alloc(2 * MIB)));
	MUST(driver_create(&own, 0, 32 * MIB));
	job_start();
	CHECK(tool_says("suspend", 0, "suspended") && sim_live().device_bytes == 32 * MIB);
	CHECK(tool_says("resume", 0, "resumed"));
	job_check(0x1000);
}

/* What is striped stays: that is what its rule says. */
static void is_striped(void)
{
	driver_start(0);
	CUdeviceptr striped = child_alloc(24 * MIB);
	MUST(driver_fill(NULL, striped, 7, 6 * MIB));
	job_start();
	CHECK(tool_says("suspend", 0, "suspended") && sim_live().device_bytes == 24 * MIB);
	CHECK(tool_says("resume", 0, "resumed"));
	job_check(0x1000);
	CHECK(driver_holds(striped, 7, 6 * MIB));
}

TEST(what_a_peer_lends_is_given_back_too)
{
	static const char *const sets[] = {
	    "SPILLWAY_SET=" BUDGETS ",spill.peers=1,spill.peer_budget=10MiB,spill.mode=exact",
	    "SPILLWAY_SET=" BUDGETS ",spill.peers=1,spill.peer_budget=10MiB,spill.mode=fast"};

	for (unsigned i = 0; i < 2; i++) {
		const char *const settings[] = {"SIM_MEMORY=128MiB", "SIM_DEVICES=2", sets[i], NULL};

		assert_int_equal(child_run(settings, lies_on_a_peer), 0);
		assert_int_equal(child_run(settings, lies_on_a_peer_alone), 0);
	}
	assert_int_equal(
	    child_run(((const char *const[]){"SIM_MEMORY=128MiB", "SIM_DEVICES=4", "SPILLWAY_POLICY=" LEND_POLICY,
					     "SPILLWAY_SET=" BUDGETS, NULL}),
		      is_striped),
	    0);
}

GROUP(folder_make_for_all, folder_remove)
