// SPDX-License-Identifier: Apache-2.0
/*
 * spill.mode of a running process is changed by `spillway set`, as from another terminal: between exact and fast, while
 * steps go on, and every byte is as it was. Where it cannot be, the answer says why, and everything is as before.
 * Programs made up from a seed whose mode changes all the time: spill_random_mode and others (spill.cmake).
 */
#include "test/preload/suspend_help.h"
#include "test/test.h"

#include "shim/spillway.h"

/* Reads what it has written, in memory that may lie anywhere. */
static void step(unsigned base)
{
	job_fill(base);
	for (unsigned i = 0; i < N_BLOCKS; i++)
		CHECK(driver_holds(job_blocks[i], base + i, N_WORDS));
}

/* ---- changes ---- */

/* In fast the GPU is stopped by order alone. */
static bool moves_without_gaps(void)
{
	unsigned long gaps = shown_number("gaps"), moved = shown_number("moved_in_bytes");

	for (unsigned tries = 0; tries < 200 && shown_number("moved_in_bytes") <= moved; tries++)
		await_steps(2);
	return shown_number("moved_in_bytes") > moved && shown_number("gaps") == gaps;
}

static bool moves_in_gaps(void)
{
	unsigned long gaps = shown_number("gaps");

	for (unsigned tries = 0; tries < 200 && shown_number("gaps") == gaps; tries++)
		await_steps(2);
	return shown_number("gaps") > gaps;
}

static void changes(void)
{
	job_start();
	steps_begin(step);
	await_steps(2);
	for (unsigned round = 0; round < 3; round++) {
		CHECK(set_says("spill.mode=fast", 0, ": spill.mode=fast"));
		CHECK(shows_mode("fast"));
		CHECK(moves_without_gaps());
		/* What it is already, it stays. */
		CHECK(set_says("spill.mode=fast", 0, ": spill.mode=fast"));
		CHECK(set_says("spill.mode=exact", 0, ": spill.mode=exact"));
		CHECK(shows_mode("exact"));
		CHECK(moves_in_gaps());
	}
	steps_end();
}

TEST(the_mode_changes_both_ways_while_steps_go_on)
{
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), changes), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=fast"), changes), 0);
}

#define AMPLE                                                                                                          \
	((const char *const[]){                                                                                        \
	    "SIM_MEMORY=128MiB",                                                                                       \
	    "SPILLWAY_SET=device.budget=64MiB,host.budget=128MiB,report.summary=no,spill.mode=exact", NULL})

CHILD_TEST(what_moves_later_begins_in_the_new_mode, AMPLE)
{
	job_start();
	CHECK(set_says("spill.mode=fast", 0, ": spill.mode=fast"));
	CHECK(shows_mode("fast"));
	CHECK(set_says("device.budget=24MiB", 0, "left in"));
	steps_begin(step);
	CHECK(moves_without_gaps());
	steps_end();
}

CHILD_TEST(a_suspended_process_stays_suspended_and_goes_on_in_the_new_mode, SETTINGS(",spill.mode=exact"))
{
	job_start();
	CHECK(tool_says("suspend", 0, "suspended"));
	CHECK(set_says("spill.mode=fast", 0, ": spill.mode=fast"));
	CHECK(set_says("spill.mode=exact", 0, ": spill.mode=exact"));
	CHECK(set_says("spill.mode=fast", 0, ": spill.mode=fast"));
	CHECK(tool_lists("suspended"));
	CHECK(tool_says("resume", 0, "resumed"));
	job_check(0x1000);
	steps_begin(step);
	CHECK(moves_without_gaps());
	steps_end();
}

/* ---- what must stay where it is in fast ---- */

static void go_round(unsigned base)
{
	for (unsigned i = 0; i < N_BLOCKS; i++)
		MUST(driver_fill(NULL, job_blocks[i], base + i, N_WORDS));
	MUST(cu.cuCtxSynchronize());
}

static bool leaves(CUdeviceptr block)
{
	for (unsigned round = 0; round < 200 && sim_where(block) != 'H'; round++)
		go_round(0x1000);
	return sim_where(block) == 'H';
}

#define LARGE   (18 * MIB) /* larger than what is small */
#define N_LARGE 3
#define SETTINGS_LARGE(more)                                                                                           \
	((const char *const[]){                                                                                        \
	    "SIM_MEMORY=256MiB",                                                                                       \
	    "SPILLWAY_SET=device.budget=48MiB,host.budget=256MiB,report.summary=no,spill.mode=exact" more, NULL})

/* A small block that nothing names any more, as a table that kernels find by its address in other memory. */
static CUdeviceptr make_table(CUdeviceptr large[N_LARGE])
{
	driver_start(0);
	CUdeviceptr table = child_alloc(2 * MIB);
	MUST(driver_fill(NULL, table, 0x777, 2 * MIB / 4));
	for (unsigned i = 0; i < N_LARGE; i++)
		large[i] = child_alloc(LARGE);
	for (unsigned round = 0; round < 400 && sim_where(table) != 'H'; round++) {
		for (unsigned i = 0; i < N_LARGE; i++)
			MUST(driver_fill(NULL, large[i], round + i, LARGE / 4));
		MUST(cu.cuCtxSynchronize());
	}
	CHECK(sim_where(table) == 'H');
	return table;
}

static void brings_small_blocks(void)
{
	CUdeviceptr large[N_LARGE], table = make_table(large);

	CHECK(set_says("spill.mode=fast", 0, ": spill.mode=fast"));
	CHECK(sim_where(table) == 'D');
	for (unsigned round = 0; round < 100; round++) {
		for (unsigned i = 0; i < N_LARGE; i++)
			MUST(driver_fill(NULL, large[i], round + i, LARGE / 4));
		CHECK(sim_where(table) == 'D');
	}
	CHECK(driver_holds(table, 0x777, 2 * MIB / 4));
	for (unsigned i = 0; i < N_LARGE; i++)
		CHECK(driver_holds(large[i], 99 + i, LARGE / 4));
}

static void has_no_room_for_small_blocks(void)
{
	CUdeviceptr large[N_LARGE], table = make_table(large);
	unsigned pinned = 0;

	/* All of the device is full of what cannot leave. */
	for (unsigned i = 0; i < N_LARGE; i++)
		if (sim_where(large[i]) == 'D' && sim_where(large[i] + LARGE - MIB) == 'D') {
			CHECK(spillway_pin((void *)large[i]) == 0);
			pinned++;
		}
	CHECK(pinned == 2);
	CHECK(set_says("device.budget=36MiB", 0, "left in"));
	CHECK(set_says("spill.mode=fast", 1, "the device has no room for the small blocks"));
	CHECK(shows_mode("exact"));
	CHECK(sim_where(table) == 'H');
	for (unsigned i = 0; i < N_LARGE; i++)
		MUST(driver_fill(NULL, large[i], 0x40 + i, LARGE / 4));
	CHECK(driver_holds(table, 0x777, 2 * MIB / 4));
	for (unsigned i = 0; i < N_LARGE; i++)
		CHECK(driver_holds(large[i], 0x40 + i, LARGE / 4));
}

TEST(small_blocks_are_on_the_device_before_memory_moves_beside_kernels)
{
	assert_int_equal(child_run(SETTINGS_LARGE(""), brings_small_blocks), 0);
	assert_int_equal(child_run(SETTINGS_LARGE(""), has_no_room_for_small_blocks), 0);
}

CHILD_TEST(what_a_texture_has_the_address_of_stays, SETTINGS(",spill.mode=exact"))
{
	CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_LINEAR};
	CUDA_TEXTURE_DESC texture = {0};
	CUtexObject object;

	job_start();
	CHECK(leaves(job_blocks[0]));
	resource.res.linear.devPtr = job_blocks[0];
	MUST(cuTexObjectCreate(&object, &resource, &texture, NULL));
	/* In exact it comes and goes as before. */
	MUST(driver_fill(NULL, job_blocks[0], 1, N_WORDS));
	CHECK(leaves(job_blocks[0]));
	CHECK(shown_number("pinned_blocks") == 0);
	CHECK(set_says("spill.mode=fast", 0, ": spill.mode=fast"));
	CHECK(shown_number("pinned_blocks") == 1);
	char where = sim_where(job_blocks[0]);
	for (unsigned round = 0; round < 50; round++) {
		go_round(0x1000 + round);
		CHECK(sim_where(job_blocks[0]) == where);
	}
	job_check(0x1000 + 49);
}

/* ---- stream-ordered memory: small parts of segments ---- */

#define SETTINGS_SEGMENTS                                                                                              \
	((const char *const[]){"SIM_MEMORY=2GiB", "SIM_HOST_MEMORY=1GiB", "SIM_FILL=0",                                \
			       "SPILLWAY_SET=device.budget=1GiB,host.budget=512MiB,async.use=heap,report.summary=no,"  \
			       "spill.mode=exact",                                                                     \
			       NULL})

static CUdeviceptr in_stream(CUstream stream, size_t bytes, unsigned value)
{
	CUdeviceptr address = 0;

	MUST(cu.cuMemAllocAsync(&address, bytes, stream));
	MUST(driver_fill(stream, address, value, bytes / 4));
	MUST(cu.cuStreamSynchronize(stream));
	return address;
}

/* Uses it until it is on the device, where there is room for all. */
static bool comes(CUdeviceptr address)
{
	for (unsigned tries = 0; tries < 200 && sim_where(address) != 'D'; tries++) {
		MUST(driver_copy(NULL, address, address + MIB, 256));
		MUST(cu.cuCtxSynchronize());
	}
	return sim_where(address) == 'D';
}

/* A pinned block stays when the process is suspended. It is on the device by now. */
static bool stays(CUdeviceptr address)
{
	CHECK(tool_says("suspend", 0, "suspended"));
	bool stays = sim_where(address) == 'D';
	CHECK(tool_says("resume", 0, "resumed"));
	return stays;
}

static bool moves(CUdeviceptr address)
{
	return comes(address) && !stays(address) && comes(address);
}

CHILD_TEST(segments_with_small_parts_stay, SETTINGS_SEGMENTS)
{
	driver_start(0);
	CUdeviceptr block = child_alloc(BLOCK);
	MUST(driver_fill(NULL, block, 9, N_WORDS));
	/* From now on memory moves. */
	CHECK(moves(block));
	CUstream stream = child_stream();
	CUdeviceptr large = in_stream(stream, 24 * MIB, 1), small = in_stream(stream, 4 * MIB, 2);
	CHECK(small == large + 24 * MIB);
	CHECK(moves(large) && moves(small));
	CHECK(set_says("spill.mode=fast", 0, ""));
	CHECK(stays(small) && stays(large) && moves(block));
	/* New ones do not share. */
	CUdeviceptr other = in_stream(stream, 24 * MIB, 3), little = in_stream(stream, 4 * MIB, 4);
	CHECK(little < other || little >= other + 32 * MIB);
	CHECK(moves(other) && moves(little));
	MUST(cu.cuMemFreeAsync(small, stream));
	MUST(cu.cuStreamSynchronize(stream));
	CHECK(moves(large));
	/* The same the other way round. */
	CHECK(set_says("spill.mode=exact", 0, ""));
	small = in_stream(stream, 4 * MIB, 5);
	CHECK(small == large + 24 * MIB);
	CHECK(comes(large) && comes(small));
	CHECK(set_says("spill.mode=fast", 0, ""));
	CHECK(stays(large));
	CHECK(set_says("spill.mode=exact", 0, ""));
	CHECK(moves(large));
	CHECK(driver_holds(large, 1, 6 * MIB) && driver_holds(small, 5, MIB) && driver_holds(other, 3, 6 * MIB) &&
	      driver_holds(little, 4, MIB));
}

/* ---- refusals ---- */

static void refuses_during_a_capture(void)
{
	CUgraph graph;

	job_start();
	CUstream stream = child_stream();
	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CHECK(set_says("spill.mode=fast", 1, "no safe point came in time"));
	CHECK(shows_mode("exact"));
	MUST(driver_fill(stream, job_blocks[0], 0x1000, N_WORDS));
	MUST(cu.cuStreamEndCapture(stream, &graph));
	CHECK(set_says("spill.mode=fast", 0, ": spill.mode=fast"));
	job_check(0x1000);
}

/* A kernel that waits for what this thread does next. */
static void refuses_while_the_gpu_does_not_end(void)
{
	job_start();
	CUstream stream = child_stream();
	unsigned *word = child_hold(stream);
	CHECK(set_says("spill.mode=fast", 1, "the GPU does not become idle"));
	CHECK(shows_mode("exact"));
	child_release(word);
	CHECK(set_says("spill.mode=fast", 0, ": spill.mode=fast"));
	steps_begin(step);
	CHECK(moves_without_gaps());
	steps_end();
}

static void refuses_other_values(void)
{
	job_start();
	CHECK(set_says("spill.mode=static", 1, "it can be made exact or fast, not static"));
	CHECK(set_says("spill.mode=", 1, "it can be made exact or fast, not"));
	CHECK(shows_mode("exact"));
	job_check(0x1000);
}

static void refuses_what_stays(void)
{
	job_start();
	CHECK(set_says("spill.mode=fast", 1, "this process began in static"));
	CHECK(shows_mode("static"));
	job_check(0x1000);
}

TEST(what_cannot_be_is_said_and_changes_nothing)
{
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), refuses_during_a_capture), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), refuses_while_the_gpu_does_not_end), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), refuses_other_values), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=static"), refuses_what_stays), 0);
}

/* ---- a driver that refuses ---- */

static const char *const calls[] = {"cuMemMap",      "cuMemUnmap",      "cuMemSetAccess", "cuMemcpyDtoDAsync_v2",
				    "cuEventRecord", "cuCtxRecordEvent"};

/*
 * Sets it while the n-th such call fails. Returns whether one did. Whatever came of it, the process says what it is in.
 */
static bool sets_in_spite_of(const char *call, unsigned n, const char *mode, const char *other)
{
	int status;

	sim_fail(call, n, CUDA_ERROR_OUT_OF_MEMORY);
	tool(&status, "set %d spill.mode=%s", (int)getpid(), mode);
	bool failed = !sim_fail_pending();
	sim_fail(call, 0, CUDA_SUCCESS);
	CHECK(shows_mode(status == 0 ? mode : other));
	return failed;
}

static void fill_all(CUdeviceptr large[N_LARGE], CUdeviceptr table)
{
	for (unsigned round = 0; round < 100 && (round < 2 || sim_where(table) != 'H'); round++) {
		for (unsigned k = 0; k < N_LARGE; k++)
			MUST(driver_fill(NULL, large[k], round + k, LARGE / 4));
		for (unsigned k = 0; k < N_LARGE; k++)
			CHECK(driver_holds(large[k], round + k, LARGE / 4));
	}
}

/*
 * One call of the change fails, whichever. Either it is done or it is refused; it can be changed again; and every byte
 * is right.
 */
CHILD_TEST(one_call_that_the_driver_refuses_loses_nothing, SETTINGS_LARGE(""))
{
	CUdeviceptr large[N_LARGE], table = make_table(large);
	unsigned failed = 0;

	for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		for (unsigned n = 1; n <= 2; n++) {
			failed += sets_in_spite_of(calls[i], n, "fast", "exact");
			CHECK(set_says("spill.mode=fast", 0, ": spill.mode=fast"));
			CHECK(sim_where(table) == 'D');
			failed += sets_in_spite_of(calls[i], n, "exact", "fast");
			CHECK(set_says("spill.mode=exact", 0, ": spill.mode=exact"));
			fill_all(large, table);
		}
	CHECK(driver_holds(table, 0x777, 2 * MIB / 4));
	printf("%u calls failed\n", failed);
	CHECK(failed >= 4);
}

GROUP(folder_make_for_all, folder_remove)
