// SPDX-License-Identifier: Apache-2.0
/*
 * What is said when `fast` stops a job, and what comes of the modes that move on a driver that is too old for them
 * (stopper.c, in the mode that SPILL_MODE names).
 */
#include "test/preload/run.h"
#include "test/test.h"

enum { STOPPED = 3 };

static const char policy[] = "version: 1\n"
			     "rules:\n"
			     "  - name: big ones\n"
			     "    match.size: \">= 4MiB\"\n"
			     "    use: heap\n";

static void run_stopper(const char *rounds, const char *driver, const char *late, const char *beside)
{
	char set[160], path[64] = "/tmp/spill-stop-XXXXXX.yaml", policy_set[96], driver_set[512];
	int fd = mkstemps(path, 5);

	assert_true(fd >= 0);
	assert_int_equal(dprintf(fd, "%s", policy), sizeof(policy) - 1);
	close(fd);
	snprintf(set, sizeof(set), "SPILLWAY_SET=spill.mode=%s,device.budget=16MiB,host.budget=96MiB", run_mode());
	snprintf(policy_set, sizeof(policy_set), "SPILLWAY_POLICY=%s", path);
	snprintf(driver_set, sizeof(driver_set), "LD_LIBRARY_PATH=%s", driver);
	RUN_HERE(
	    SET("SIM_MEMORY=256MiB", "SIM_HOST_MEMORY=512MiB", "SIM_FILL=0", set, policy_set, driver_set, late, beside),
	    STOPPER, rounds, "20", "150");
	unlink(path);
}

static bool is_fast(void)
{
	return !strcmp(run_mode(), "fast");
}

static void expect_line(const char *text)
{
	if (run_lines_with(ran.err, text) == 0)
		fail_msg("no line with \"%s\" in\n%s", text, ran.err);
}

/* It was stopped, and said so, what was on its way, and what avoids it. */
static void expect_told(void)
{
	if (ran.status != STOPPED)
		fail_msg("status %d\n%s", ran.status, ran.err);
	expect_line("FAST MODE STOPPED THE JOB");
	expect_line("in transit: allocation ");
	expect_line("spill.mode: exact");
}

TEST(a_stop_names_the_kernels_the_blocks_and_the_ways_out)
{
	run_stopper(is_fast() ? "20000" : "200", getenv("LD_LIBRARY_PATH"), "SIM_FAULT_MS=0", "SIM_DEVICES=1");

	if (!is_fast()) {
		if (ran.status || run_lines_with(ran.err, "FAST MODE"))
			fail_msg("status %d\n%s", ran.status, ran.err);
		return;
	}
	expect_told();
	expect_line("in flight, as far as is known: ");
	expect_line("reads_what_nobody_named");
	/* The allocation in transit is one of the six, which are the first: */
	assert_int_equal(run_lines_with(ran.err, "in transit: allocation 0") +
			     run_lines_with(ran.err, "in transit: allocation 1099"),
			 0);
	expect_line(", 5.0 MiB at 0x");
	expect_line(", rule big ones (");
	expect_line("movable: no");
}

/* By then everything has long arrived where it went. */
TEST(a_stop_that_shows_late_is_told_all_the_same)
{
	if (!is_fast())
		return;
	run_stopper("20000", getenv("LD_LIBRARY_PATH"), "SIM_FAULT_MS=100", "SIM_DEVICES=1");
	expect_told();
}

/* The context that died is another device's, and that of the memory lives on. */
TEST(a_stop_of_another_device_is_told_all_the_same)
{
	if (!is_fast())
		return;
	setenv("STOPPER_BESIDE", "1", 1);
	run_stopper("20000", getenv("LD_LIBRARY_PATH"), "SIM_FAULT_MS=0", "SIM_DEVICES=2");
	unsetenv("STOPPER_BESIDE");
	expect_told();
}

/* At the end the mover asks of its context: an error that comes but once is no death, and nothing is said of one. */
TEST(an_error_at_the_end_that_is_chance_is_not_believed)
{
	if (is_fast()) /* which may be stopped, with the kernels beside */
		return;
	setenv("STOPPER_CHANCE", "1", 1);
	run_stopper("200", getenv("LD_LIBRARY_PATH"), "SIM_FAULT_MS=0", "SIM_DEVICES=1");
	unsetenv("STOPPER_CHANCE");
	if (ran.status || run_lines_with(ran.err, "memory does not move any more"))
		fail_msg("status %d\n%s", ran.status, ran.err);
}

TEST(a_driver_without_events_of_contexts_moves_nothing_and_stops_nothing)
{
	run_stopper("200", OLD_DRIVER, "SIM_FAULT_MS=0", "SIM_DEVICES=1");

	if (ran.status || run_lines_with(ran.err, "FAST MODE"))
		fail_msg("status %d\n%s", ran.status, ran.err);
	if (run_moves())
		expect_line("older than CUDA 12.5: what is spilled does not move");
}

EACH_TEST(NULL, run_end)
