/*
 * What a program that ends is told about memory outside the heap, and what is said about a device that lacks something:
 * once, and with the name of what it lacks.
 */
#include "test/preload/run.h"
#include "test/test.h"

#define BUDGETS "SPILLWAY_SET=device.budget=32MiB,host.budget=64MiB,report.summary=full"

static struct outcome must_end(const char *const settings[], const char *act, int status)
{
	struct outcome outcome = RUN(settings, ACTOR, act);

	if (outcome.status != status || *outcome.out || *outcome.files)
		fail_msg("status %d (not %d), stdout \"%s\", files \"%s\", stderr:\n%s", outcome.status, status,
			 outcome.out, outcome.files, outcome.err);
	return outcome;
}

static void must_say_once(const struct outcome *outcome, const char *text)
{
	if (run_lines_with(outcome->err, text) != 1)
		fail_msg("not said once: \"%s\"; stderr:\n%s", text, outcome->err);
}

/* The actor has four blocks of 12 MiB, one of 100 bytes, and ends with them. */
TEST(the_summary_counts_managed_memory)
{
	struct outcome outcome =
	    must_end(SET("SIM_MEMORY=64MiB", "SPILLWAY_POLICY=managed", BUDGETS), "ends_from_main", 7);

	must_say_once(&outcome, "policy managed (built in)");
	must_say_once(&outcome, "  managed    48.0 MiB live at exit,    48.0 MiB at most");
	must_say_once(&outcome, "  5 allocations, 0 frees, 0 refused, 0 left to the driver");
	must_say_once(&outcome, "  nothing was spilled");
	must_say_once(&outcome, "page faults");
	assert_int_equal(run_lines(outcome.err), 1 + 3 + 7);
	run_free(&outcome);
}

TEST(the_summary_counts_pages_of_the_process)
{
	const char *const reached[] = {"SIM_PAGEABLE=1", "SIM_PAGEABLE=0"};

	for (int i = 0; i < 2; i++) {
		struct outcome outcome = must_end(
		    SET("SIM_MEMORY=64MiB", reached[i], "SPILLWAY_POLICY=system", BUDGETS), "ends_from_main", 7);

		must_say_once(&outcome, "  system     48.0 MiB live at exit,    48.0 MiB at most");
		must_say_once(&outcome, "  5 allocations, 0 frees, 0 refused, 0 left to the driver");
		must_say_once(&outcome, "page faults");
		assert_int_equal(run_lines(outcome.err), 1 + 3 + 7);
		run_free(&outcome);
	}
}

TEST(what_spill_limit_refuses_is_said_once_and_counted)
{
	struct outcome outcome =
	    must_end(SET("SIM_MEMORY=64MiB", BUDGETS ",spill.limit=25%"), "asks_beyond_the_limit", 7);

	must_say_once(&outcome, "out of memory by spill.limit: 12.0 MiB asked for; device budget ");
	must_say_once(&outcome, "out of memory by");
	must_say_once(&outcome, "  refused by spill.limit: 3 allocations, 36.0 MiB");
	/* It is what the policy wants: neither the budgets nor the program need to change because of it. */
	assert_int_equal(run_lines_with(outcome.err, "what to raise"), 0);
	run_free(&outcome);
}

TEST(frees_after_the_end_do_no_harm)
{
	const char *const policies[] = {"SPILLWAY_POLICY=managed", "SPILLWAY_POLICY=system"};

	for (int i = 0; i < 2; i++) {
		struct outcome outcome =
		    must_end(SET("SIM_MEMORY=64MiB", policies[i], BUDGETS), "frees_in_a_destructor", 7);

		run_free(&outcome);
	}
}

TEST(what_the_device_lacks_is_said_once)
{
	struct outcome outcome =
	    must_end(SET("SIM_MEMORY=64MiB", "SIM_CONCURRENT_MANAGED=0", "SPILLWAY_POLICY=managed", BUDGETS),
		     "ends_from_main", 7);

	must_say_once(&outcome, "concurrentManagedAccess is 0");
	assert_int_equal(run_lines_with(outcome.err, "  managed "), 0);
	run_free(&outcome);
	outcome = must_end(SET("SIM_MEMORY=64MiB", "SPILLWAY_POLICY=system", BUDGETS ",system.register=no"),
			   "ends_from_main", 7);
	must_say_once(&outcome, "pageableMemoryAccess is 0");
	must_say_once(&outcome, "  managed    48.0 MiB live at exit");
	run_free(&outcome);
	outcome = must_end(SET("SIM_MEMORY=64MiB", "SIM_SAME_POINTER=0", "SPILLWAY_POLICY=system", BUDGETS),
			   "ends_from_main", 7);
	must_say_once(&outcome, "registered memory has another address on device 0");
	run_free(&outcome);
}
