// SPDX-License-Identifier: Apache-2.0
/*
 * The main job: a training program that does not fit its device finishes under the library, with the same losses bit
 * for bit, and what was slow about it is said once.
 */
#include "test/preload/run.h"
#include "test/test.h"

/* Small and short; what it needs lies between the two device sizes. */
#define TRAIN_ARGUMENTS TRAIN_SIM, "16", "40", "64", "1"
static const char large[] = "SIM_MEMORY=512MiB";
static const char limited[] = "SIM_MEMORY=48MiB";

static char *reference;

BEFORE_ALL
{
	struct outcome outcome = RUN(SET("LD_PRELOAD=", large), TRAIN_ARGUMENTS);

	if (outcome.status || run_lines(outcome.out) < 3)
		fail_msg("status %d\n%s\n%s", outcome.status, outcome.out, outcome.err);
	reference = strdup(outcome.out);
	run_free(&outcome);
}

static void runs_out_of_memory(const char *const settings[])
{
	struct outcome outcome = RUN(settings, TRAIN_ARGUMENTS);

	if (outcome.status != 1 || !strstr(outcome.err, "out of memory"))
		fail_msg("status %d, stderr:\n%s", outcome.status, outcome.err);
	assert_int_equal(run_lines_with(outcome.err, "SPILLING"), 0);
	run_free(&outcome);
}

TEST(without_the_library_the_job_runs_out_of_memory)
{
	runs_out_of_memory(SET("LD_PRELOAD=", limited));
}

TEST(with_spilling_off_the_job_runs_out_of_memory)
{
	runs_out_of_memory(SET(limited, "SPILLWAY_SET=spill.mode=off"));
}

static void finishes_alike(const char *const settings[], unsigned spilling)
{
	struct outcome outcome = RUN(settings, TRAIN_ARGUMENTS);

	if (outcome.status || strcmp(outcome.out, reference) || *outcome.files)
		fail_msg("status %d, files \"%s\", stdout:\n%snot\n%sstderr:\n%s", outcome.status, outcome.files,
			 outcome.out, reference, outcome.err);
	if (run_lines_with(outcome.err, "SPILLING") != spilling || run_lines(outcome.err) != 1 + 3 + spilling ||
	    run_lines_with(outcome.err, "spillway: ") != run_lines(outcome.err) ||
	    run_lines_with(outcome.err, "summary of process") != 1)
		fail_msg("stderr is\n%s", outcome.err);
	run_free(&outcome);
}

TEST(with_the_library_it_finishes_with_the_same_losses)
{
	finishes_alike(SET(limited, "SPILLWAY_SET=host.budget=512MiB"), 1);
}

/* Placed once; where memory moves: spill_job_test. */
TEST(a_budget_below_the_device_gives_the_same_losses)
{
	finishes_alike(SET(large, "SPILLWAY_SET=device.budget=20MiB,host.budget=512MiB,spill.mode=static"), 1);
	finishes_alike(SET(large, "SPILLWAY_SET=device.budget=2MiB,host.budget=512MiB,spill.mode=static"), 1);
}

TEST(a_job_that_fits_says_nothing_of_spilling)
{
	finishes_alike(SET(large, "SPILLWAY_SET=device.budget=500MiB"), 0);
}

TEST(both_budgets_too_small_is_out_of_memory)
{
	runs_out_of_memory(SET(limited, "SPILLWAY_SET=device.budget=1MiB,host.budget=8MiB,spill.mode=off"));
}
