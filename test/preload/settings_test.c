// SPDX-License-Identifier: Apache-2.0
/*
 * What users set from outside: bad policies, budgets, spilling off, drivers that can do less; and that the off switch
 * is one.
 */
#include "test/preload/run.h"
#include "test/test.h"

static void must(int status, const char *out)
{
	if (ran.status != status || strcmp(ran.out, out) || *ran.files)
		fail_msg("status %d (not %d), stdout \"%s\" (not \"%s\"), files \"%s\", stderr:\n%s", ran.status,
			 status, ran.out, out, ran.files, ran.err);
}

/* So many lines of the standard error output have these words. */
static void must_say(unsigned n, const char *words)
{
	assert_int_equal(run_lines_with(ran.err, words), n);
}

EACH_TEST(NULL, run_end)

/* ---- SPILLWAY=0 ---- */

static void must_be_the_same(const char *with, const char *without)
{
	for (unsigned line = 1; *with || *without; line++) {
		size_t n = strcspn(with, "\n"), m = strcspn(without, "\n");

		if (n != m || memcmp(with, without, n))
			fail_msg("line %u: \"%.*s\" with, \"%.*s\" without the library", line, (int)n, with, (int)m,
				 without);
		with += n + (with[n] == '\n');
		without += m + (without[m] == '\n');
	}
}

TEST(switched_off_every_answer_is_as_without_the_library)
{
	struct outcome without = RUN(SET("LD_PRELOAD="), PROBE);

	assert_int_equal(without.status, 0);
	assert_true(run_lines(without.out) > 100);
	/* Off is off, whatever else is set. */
	for (unsigned i = 0; i < 2; i++) {
		RUN_HERE(SET("SPILLWAY=0", i ? "SPILLWAY_POLICY=/nonexistent.yaml" : NULL, "SPILLWAY_STRICT=1"), PROBE);
		must_be_the_same(ran.out, without.out);
		must(0, without.out);
		assert_string_equal(ran.err, without.err);
	}
	run_free(&without);
}

/* llama.cpp read "=0" as on; here nothing but exactly 0 is off. */
TEST(only_the_value_0_switches_off)
{
	static const char *const values[] = {"SPILLWAY=1", "SPILLWAY=", "SPILLWAY=00", "SPILLWAY=no"};

	for (size_t i = 0; i < 4; i++) {
		RUN_HERE(SET(values[i], "SPILLWAY_SET=device.budget=16MiB,host.budget=8MiB"), ACTOR, "fills_up");
		must(0, "3 DDH\n");
	}
}

TEST(a_passed_through_program_gets_the_drivers_answers)
{
	struct outcome without = RUN(SET("LD_PRELOAD="), PROBE, "answers");

	RUN_HERE(SET("SPILLWAY_POLICY=passthrough"), PROBE, "answers");
	must_be_the_same(ran.out, without.out);
	must(0, without.out);
	run_free(&without);
}

/* ---- bad policies ---- */

TEST(a_bad_policy_is_said_once_and_passed_through)
{
	struct outcome without = RUN(SET("LD_PRELOAD="), ACTOR, "fills_up");
	static const char *const bad[] = {"SPILLWAY_POLICY=/nonexistent.yaml", "SPILLWAY_POLICY=nosuchbuiltin",
					  "SPILLWAY_SET=device.budget=64",     "SPILLWAY_SET=device.budget=64megs",
					  "SPILLWAY_SET=spill.mode=perhaps",   "SPILLWAY_SET=nosuchkey=1"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		RUN_HERE(SET(bad[i]), ACTOR, "fills_up");
		if (!strstr(bad[i], "budget=64") || strstr(bad[i], "megs")) {
			must(0, without.out);
			if (run_lines_with(ran.err, "passed through") != 1 || run_lines(ran.err) != 2)
				fail_msg("%s: stderr is\n%s", bad[i], ran.err);
		}
	}
	run_free(&without);
}

TEST(a_bad_policy_fails_allocations_when_strict)
{
	RUN_HERE(SET("SPILLWAY_POLICY=/nonexistent.yaml", "SPILLWAY_STRICT=1"), ACTOR, "first_allocation");
	must(0, "800\n800\n800\n800\n");
	must_say(1, "allocations will fail");
	assert_int_equal(run_lines(ran.err), 2);
	RUN_HERE(SET("SPILLWAY_POLICY=/nonexistent.yaml", "SPILLWAY_STRICT=0"), ACTOR, "first_allocation");
	must(0, "0\n0\n0\n0\n");
}

/* What the policy says and does not do is said at the start, by whoever reads it first. */
TEST(a_warning_is_said_once_and_changes_nothing)
{
	static const char *const set = "SPILLWAY_SET=device.budget=32MiB,host.budget=64MiB,host.total=48MiB,"
				       "spill.mode=static,vmm.spill=move";
	RUN_HERE(SET(set), ACTOR, "first_allocation");

	must(0, "0\n0\n0\n0\n");
	must_say(1, "write a host.budget of at most host.total");
	must_say(1, "vmm.spill: move moves nothing with spill.mode: static");
	RUN_HERE(SET("SPILLWAY_SET=device.budget=32MiB,spill.mode=fast,vmm.spill=move"), ACTOR, "first_allocation");
	must(0, "0\n0\n0\n0\n");
	must_say(0, "vmm.spill");
	RUN_HERE(SET(set, "SPILLWAY_WARNED=1"), ACTOR, "first_allocation");
	must(0, "0\n0\n0\n0\n");
	must_say(0, "write");
}

TEST(a_variable_that_nobody_reads_is_said_with_the_one_that_was_meant)
{
	static const char *const lines[] = {
	    "nobody reads SPILLWAY_POLCY; did you mean SPILLWAY_POLICY?\n",
	    "nobody reads SPILLWAY_MODE; did you mean SPILLWAY_SET=spill.mode=...?\n",
	    "nobody reads SPILLWAY_DEVICE_BUDGET; did you mean SPILLWAY_SET=device.budget=...?\n",
	    "nobody reads SPILLWAY_NOTHING; spillway(1) names the variables that are read\n",
	};
	RUN_HERE(SET("SPILLWAY_POLCY=heap", "SPILLWAY_MODE=fast", "SPILLWAY_DEVICE_BUDGET=1GiB", "SPILLWAY_NOTHING=1",
		     "SPILLWAY_JOB=mine"),
		 ACTOR, "first_allocation");

	must(0, "0\n0\n0\n0\n");
	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++)
		if (!strstr(ran.err, lines[i]))
			fail_msg("no line %sin\n%s", lines[i], ran.err);
	must_say(4, "environment: warning: nobody reads ");
}

TEST(a_heap_without_any_memory_is_refused)
{
	RUN_HERE(SET("SPILLWAY_SET=device.budget=0,spill.mode=off"), ACTOR, "first_allocation");
	must(0, "0\n0\n0\n0\n");
	must_say(1, "device.budget: 0 with spill.mode: off");
	must_say(1, "passed through");
}

/* ---- the first line ---- */

/* The policies with their first lines; nothing is said where nothing is to be reported. */
TEST(the_first_memory_is_said_with_what_is_in_force)
{
	static const struct {
		const char *policy, *set, *line;
	} cases[] = {
	    {"SPILLWAY_POLICY=", "SPILLWAY_SET=device.budget=25%,spill.mode=static",
	     "spillway: device budget 32.0 MiB of 128.0 MiB, spill static, policy heap (built in)\n"},
	    {"SPILLWAY_POLICY=managed", "SPILLWAY_SET=device.budget=32MiB",
	     "spillway: device budget 32.0 MiB of 128.0 MiB, spill exact, policy managed (built in)\n"},
	    {"SPILLWAY_POLICY=passthrough", "SPILLWAY_SET=device.budget=32MiB",
	     "spillway: no device budget (memory is served by: driver), policy passthrough (built in)\n"},
	    {"SPILLWAY_POLICY=" PIN_POLICY, "SPILLWAY_SET=device.budget=32MiB",
	     "spillway: device budget 32.0 MiB of 128.0 MiB, spill exact, policy " PIN_POLICY "\n"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char quiet[200];
		RUN_HERE(SET("SIM_MEMORY=128MiB", cases[i].policy, cases[i].set), ACTOR, "ends_from_main");
		if (strncmp(ran.err, cases[i].line, strlen(cases[i].line)) || run_lines_with(ran.err, "policy ") != 1)
			fail_msg("stderr does not begin with %sbut is\n%s", cases[i].line, ran.err);
		snprintf(quiet, sizeof(quiet), "%s,report=none", cases[i].set);
		RUN_HERE(SET("SIM_MEMORY=128MiB", cases[i].policy, quiet), ACTOR, "ends_from_main");
		must_say(0, "policy ");
	}
}

/* What goes wrong is said all the same. */
TEST(nothing_is_reported_of_spilling_where_nothing_is_to_be)
{
	RUN_HERE(SET("SIM_MEMORY=128MiB", "SPILLWAY_SET=device.budget=32MiB,host.budget=64MiB,report=none"), ACTOR,
		 "fills_up");
	must(0, "12 DDDDHHHHHHHH\n");
	must_say(0, "SPILLING");
	must_say(1, "out of memory: ");
}

/* ---- budgets ---- */

TEST(budgets_hold_to_the_block)
{
	static const struct {
		const char *set, *out;
		unsigned spilling;
		const char *raise; /* blocks have 8 MiB */
	} cases[] = {
	    {"SPILLWAY_SET=device.budget=32MiB,host.budget=64MiB", "12 DDDDHHHHHHHH\n", 1,
	     "host.budget to 72MiB or more\n"},
	    {"SPILLWAY_SET=device.budget=32MiB,host.budget=64MiB,spill.mode=off", "4 DDDD\n", 0,
	     "device.budget to 40MiB or more; or spill.mode: exact"},
	    {"SPILLWAY_SET=device.budget=64MiB,host.budget=4MiB", "8 DDDDDDDD\n", 0, "host.budget to 8MiB or more\n"},
	    {"SPILLWAY_SET=device.budget=4MiB,host.budget=16MiB", "2 DH\n", 1, "host.budget to "},
	    {"SPILLWAY_SET=device.budget=25%,host.budget=16MiB", "6 DDDDHH\n", 1, "host.budget to 24MiB or more\n"},
	    {"SPILLWAY_SET=device.budget=1GiB,host.budget=16MiB", "18 DDDDDDDDDDDDDDDDHH\n", 1,
	     "host.budget to 24MiB or more\n"},
	    {"SPILLWAY_SET=device.budget=32MiB,host.total=16MiB", "6 DDDDHH\n", 1, "host.total to 24MiB or more\n"},
	    {"SPILLWAY_SET=device.budget=32MiB,host.budget=20MiB,host.total=16MiB", "6 DDDDHH\n", 1,
	     "host.budget to 24MiB or more, and host.total to 24MiB or more\n"},
	    {"SPILLWAY_SET=device.budget=32MiB,host.budget=64MiB,host.total=16MiB", "6 DDDDHH\n", 1,
	     "what to raise: host.total to 24MiB or more\n"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		RUN_HERE(SET("SIM_MEMORY=128MiB", cases[i].set), ACTOR, "fills_up");
		if (strcmp(ran.out, cases[i].out) || run_lines_with(ran.err, "SPILLING") != cases[i].spilling ||
		    run_lines_with(ran.err, "out of memory: ") != 1 || run_lines(ran.err) > 14 ||
		    run_lines_with(ran.err, "device.budget: 1.0 GiB is more than the GPU has (128.0 MiB)") !=
			(strstr(cases[i].set, "=1GiB") != NULL) ||
		    run_lines_with(ran.err, "change: memory ran out at host.total, which was 16.0 MiB") !=
			(strstr(cases[i].set, "host.total") != NULL) ||
		    run_lines_with(ran.err, "change: memory ran out") != 1 || !strstr(ran.err, cases[i].raise) ||
		    run_lines_with(ran.err, "what to raise: ") != 1 ||
		    run_lines_with(ran.err, "what limits that: the machine has ") != !strstr(cases[i].set, "off"))
			fail_msg("%s: stdout is %s, stderr is\n%s", cases[i].set, ran.out, ran.err);
		must(0, cases[i].out);
	}
}

#define ACCOUNT "spillway/gpu-53494d554c415445442d4750552d3000.account"

/* A folder has the name of the file in which it would share. */
TEST(who_cannot_share_a_gpu_says_so_and_has_its_own_budget)
{
	RUN_HERE(SET("SIM_MEMORY=128MiB", "SPILLWAY_SET=device.total=32MiB,host.budget=64MiB"), "/bin/sh", "-c",
		 "mkdir -m 700 spillway " ACCOUNT " && \"$0\" fills_up && rmdir " ACCOUNT, ACTOR);
	if (run_lines_with(ran.err, "device.total: no account of the GPU (its file cannot be made): this process "
				    "goes by its own budget") != 1)
		fail_msg("stdout is %s, stderr is\n%s", ran.out, ran.err);
	must(0, "12 DDDDHHHHHHHH\n");
}

/* ---- drivers that can do less ---- */

TEST(without_vmm_everything_goes_to_the_driver_and_it_is_said)
{
	RUN_HERE(SET("SIM_MEMORY=64MiB", "SIM_VMM=0"), ACTOR, "fills_up");
	must(0, "8 dddddddd\n");
	must_say(1, "no virtual memory management");
	must_say(0, "SPILLING");
}

TEST(without_host_vmm_nothing_spills_and_it_is_said)
{
	RUN_HERE(SET("SIM_MEMORY=64MiB", "SIM_HOST_VMM=0", "SPILLWAY_SET=device.budget=32MiB,host.budget=64MiB"), ACTOR,
		 "fills_up");
	must(0, "4 DDDD\n");
	must_say(1, "nothing can spill");
	must_say(0, "SPILLING");
}
