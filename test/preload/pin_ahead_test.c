// SPDX-License-Identifier: Apache-2.0
/*
 * host.pin_ahead: host memory is pinned while nothing has spilled, so that a first suspension pins none. 48 MiB lie on
 * a device of 128 MiB. A part is a process of its own.
 */
#include "shim/spillway.h"
#include "test/preload/suspend_help.h"
#include "test/test.h"

CHILD_FRAME(child_start, NULL)

#define HELD      (N_BLOCKS * BLOCK)
#define WAIT_MS   20000 /* what is not pinned by then never is */
#define MOVES_MS  2500  /* some looks of the control thread */
#define MOMENT_MS 300   /* some steps of the control thread */

#define SETTINGS_OF(more)                                                                                              \
	((const char *const[]){"SIM_MEMORY=128MiB", "SIM_HOST_MEMORY=512MiB",                                          \
			       "SPILLWAY_SET=device.budget=96MiB,report.summary=no" more, NULL})

/* Until the host has that much. */
static void wait_for(size_t bytes)
{
	for (int ms = 0; sim_live().host_bytes < bytes && ms < WAIT_MS; ms++)
		usleep(1000);
	CHECK(sim_live().host_bytes >= bytes);
}

/* Until it has no more than that. */
static void wait_for_less(size_t bytes)
{
	for (int ms = 0; sim_live().host_bytes > bytes && ms < WAIT_MS; ms++)
		usleep(1000);
	CHECK(sim_live().host_bytes <= bytes);
}

/* The driver pins no more, so it is what is ready that the suspension takes; and it is ready again afterwards. */
static void is_suspended_at_once(void)
{
	struct worker worker;
	size_t without = 0;

	without = sim_live().host_bytes;
	job_start();
	wait_for(without + HELD);
	CHECK(sim_live().host_bytes == without + HELD);
	for (unsigned round = 0; round < 3; round++) {
		/* Nothing has spilled, so no thread moves memory, and submissions are not tracked. */
		sim_switch("HOST_MEMORY", sim_live().host_bytes);
		CHECK(tool_says("suspend", 0, round ? "suspended" : "48.0 MiB of device memory given back"));
		CHECK(sim_live().device_bytes == 0);
		worker_begin(&worker, 0x2000 + 0x100 * round);
		CHECK(tool_says("resume", 0, "resumed"));
		worker_end(&worker);
		job_check(0x2000 + 0x100 * round);
		sim_switch("HOST_MEMORY", 512 * MIB);
	}
}

TEST(a_first_suspension_pins_nothing)
{
	assert_int_equal(
	    child_run(SETTINGS_OF(",host.budget=128MiB,spill.mode=exact,host.pin_ahead=auto"), is_suspended_at_once),
	    0);
	assert_int_equal(
	    child_run(SETTINGS_OF(",host.budget=128MiB,spill.mode=fast,host.pin_ahead=1GiB"), is_suspended_at_once), 0);
}

/* MOST is what may be pinned, in MiB. */
static void pins_so_much(void)
{
	size_t most = strtoul(getenv("MOST"), NULL, 10) * MIB, without;

	without = sim_live().host_bytes;
	job_start();
	wait_for(without + most);
	usleep(MOMENT_MS * 1000);
	CHECK(sim_live().host_bytes == without + most);
	job_check(0x1000);
}

TEST(no_more_is_pinned_than_wanted_allowed_or_of_use)
{
	static const struct {
		const char *most, *set;
	} cases[] = {
	    {"0", "SPILLWAY_SET=device.budget=96MiB,host.budget=128MiB,report.summary=no"},
	    {"20", "SPILLWAY_SET=device.budget=96MiB,host.budget=128MiB,report.summary=no,host.pin_ahead=23MiB"},
	    {"16", "SPILLWAY_SET=device.budget=96MiB,host.budget=18MiB,report.summary=no,host.pin_ahead=auto"},
	    {"0", "SPILLWAY_SET=device.budget=96MiB,host.budget=128MiB,report.summary=no,host.pin_ahead=auto,"
		  "spill.mode=static"},
	    {"0", "SPILLWAY_SET=device.budget=96MiB,host.budget=128MiB,report.summary=no,host.pin_ahead=auto,"
		  "control=no"},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		setenv("MOST", cases[i].most, 1);
		assert_int_equal(child_run(((const char *const[]){"SIM_MEMORY=128MiB", "SIM_HOST_MEMORY=512MiB",
								  "SPILLWAY_WARNED=1", cases[i].set, NULL}),
					   pins_so_much),
				 0);
	}
	unsetenv("MOST");
}

/* The host budget is full of what is pinned ahead, and the program spills: its memory takes that. */
static void spills(void)
{
	CUdeviceptr more[4];

	job_start();
	wait_for(HELD);
	for (unsigned i = 0; i < 4; i++) {
		more[i] = child_alloc(24 * MIB);
		MUST(driver_fill(NULL, more[i], 0x50 + i, 6 * MIB));
	}
	job_check(0x1000);
	for (unsigned i = 0; i < 4; i++) {
		CHECK(driver_holds(more[i], 0x50 + i, 6 * MIB));
		MUST(cu.cuMemFree_v2(more[i]));
	}
}

TEST(what_is_pinned_ahead_is_there_for_the_program)
{
	assert_int_equal(child_run(SETTINGS_OF(",host.budget=52MiB,spill.mode=exact,host.pin_ahead=auto"), spills), 0);
	assert_int_equal(child_run(SETTINGS_OF(",host.budget=52MiB,spill.mode=fast,host.pin_ahead=auto"), spills), 0);
}

/*
 * While memory moves, only as much is pinned as moving needs; once it rests, as much as lies on the device. Reading
 * over the link costs the model nothing, so moving may be switched off before the time is over.
 */
PART_TEST(nothing_is_pinned_ahead_while_memory_moves,
	  assert_int_equal(child_run(SETTINGS(",spill.mode=exact,host.pin_ahead=auto"), part), 0);
	  assert_int_equal(child_run(SETTINGS(",spill.mode=fast,host.pin_ahead=auto"), part), 0))
{
	size_t without = sim_live().host_bytes;
	job_start();
	steps_begin(job_fill);
	while (!sim_calls("cuMemcpyDtoDAsync_v2"))
		await_steps(1);
	size_t first = sim_live().host_bytes;
	for (unsigned copies = 0, ms = 0; ms < MOVES_MS && sim_calls("cuMemcpyDtoDAsync_v2") > copies;
	     ms += MOMENT_MS) {
		copies = (unsigned)sim_calls("cuMemcpyDtoDAsync_v2");
		usleep(MOMENT_MS * 1000);
		CHECK(sim_live().host_bytes < without + HELD || sim_live().host_bytes <= first);
	}
	steps_end();
	wait_for(without + HELD);
}

/* The driver has none for a while: the program does not notice, and nothing is logged as an error of its own. */
static void meets_a_full_host(void)
{
	sim_switch("HOST_MEMORY", sim_live().host_bytes + 8 * MIB);
	job_start();
	wait_for(8 * MIB);
	usleep(MOMENT_MS * 1000);
	job_check(0x1000);
	CHECK(tool_lists("running"));
	sim_switch("HOST_MEMORY", 512 * MIB);
	CHECK(spillway_suspend() == 0 && spillway_resume() == 0);
	job_check(0x1000);
}

/* What has left the device for good is not kept ready for. */
static void frees_what_it_had(void)
{
	size_t without = sim_live().host_bytes;
	job_start();
	wait_for(without + HELD);
	for (unsigned i = 4; i < N_BLOCKS; i++)
		MUST(cu.cuMemFree_v2(job_blocks[i]));
	CUdeviceptr other = child_alloc(2 * MIB);
	/* Of the new size one is missing, and the surplus goes for it. */
	wait_for_less(without + HELD - BLOCK + 2 * MIB);
	MUST(cu.cuMemFree_v2(other));
}

TEST(a_machine_without_memory_and_a_job_that_shrinks_are_no_trouble)
{
	assert_int_equal(child_run(SETTINGS_OF(",host.budget=128MiB,host.pin_ahead=auto"), meets_a_full_host), 0);
	assert_int_equal(child_run(SETTINGS_OF(",host.budget=128MiB,host.pin_ahead=auto"), frees_what_it_had), 0);
}

GROUP(folder_make_for_all, folder_remove)
