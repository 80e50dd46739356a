// SPDX-License-Identifier: Apache-2.0
/*
 * How programs end, fork and keep quiet under the library.
 */
#include "test/preload/run.h"
#include "test/test.h"

static const char *const small[] = {"SIM_MEMORY=128MiB", "SPILLWAY_SET=device.budget=32MiB,host.budget=64MiB", NULL};

static const char first_line[] = "spillway: device budget 32.0 MiB of 128.0 MiB, spill exact, policy heap (built in)\n";

/* The first line and the summary came, once, without the figures, and each line is marked as ours. */
static void ends_with_a_summary(const char *act, int status, const char *out, unsigned n_figures)
{
	struct outcome outcome = RUN(small, ACTOR, act);

	assert_memory_equal(outcome.err, first_line, strlen(first_line));
	SAYS(outcome, status, out, n_figures, {5, ""}, {5, "spillway: "}, {1, "summary of process"}, {1, "  cost: "},
	     {1, "  change: "}, {1, "SPILLING"});
}

TEST(leaving_main_with_live_blocks_ends_in_a_summary)
{
	ends_with_a_summary("ends_from_main", 7, "", 0);
}

TEST(exit_from_a_thread_ends_in_a_summary)
{
	ends_with_a_summary("ends_from_a_thread", 7, "", 0);
}

TEST(exit_inside_an_exit_handler_ends_in_a_summary)
{
	ends_with_a_summary("ends_in_an_exit_handler", 7, "", 0);
}

TEST(frees_in_late_destructors_do_no_harm)
{
	ends_with_a_summary("frees_in_a_destructor", 7, "", 0);
}

TEST(a_program_may_ask_for_its_summary)
{
	ends_with_a_summary("ends_at_once_but_says_so", 7, "", 1);
}

TEST(a_child_that_execs_something_else_says_nothing)
{
	ends_with_a_summary("allocates_nothing_in_a_child", 0, "hello\n", 0);
}

/* The summary is the parent's; the child has none. */
TEST(a_child_forked_after_cuda_gets_the_drivers_answers)
{
	ends_with_a_summary("forks_after", 0, "", 0);
}

/* These give nobody a chance to speak; what counts is the status the program would have had. The last figures stay. */
TEST(underscore_exit_keeps_its_status)
{
	SAYS(RUN(small, ACTOR, "ends_at_once"), 7, "", 1, {1, "SPILLING"});
}

TEST(abort_stays_an_abort)
{
	SAYS(RUN(small, ACTOR, "aborts"), 128 + SIGABRT, "", 1, {1, "SPILLING"});
}

TEST(sigterm_stays_a_sigterm)
{
	SAYS(RUN(small, ACTOR, "is_terminated"), 128 + SIGTERM, "", 1, {1, "SPILLING"});
}

/* Not even a bad policy makes it speak. */
TEST(a_program_without_cuda_is_silent_and_leaves_nothing)
{
	SAYS(RUN(NULL, ACTOR, "does_nothing"), 0, "hello\n", 0, {0, ""});
	SAYS(RUN(SET("SPILLWAY_POLICY=/nonexistent.yaml"), ACTOR, "does_nothing"), 0, "hello\n", 0, {0, ""});
}

TEST(a_program_that_only_asks_is_silent)
{
	SAYS(RUN(NULL, ACTOR, "only_asks"), 0, "hello\n", 0, {0, ""});
}

TEST(a_closed_stderr_stops_nobody)
{
	SAYS(RUN(small, ACTOR, "frees_everything_with_stderr_closed"), 7, "", 0, {0, ""});
}

TEST(a_child_forked_before_cuda_starts_afresh)
{
	SAYS(RUN(small, ACTOR, "forks_before"), 0, "", 0, {2, "summary of process"});
}

TEST(forks_while_threads_allocate_leave_no_lock_taken)
{
	struct outcome outcome = RUN(small, ACTOR, "forks_while_threads_allocate");

	/* A child that was forked before the first allocation begins afresh, and ends by _exit(): its figures stay. */
	SAYS(outcome, 0, "", outcome.n_figures, {0});
}

TEST(the_summary_can_be_switched_off)
{
	SAYS(RUN(SET("SPILLWAY_SET=report.summary=no"), ACTOR, "fills_up"), 0, NULL, 0, {0, "summary"},
	     {0, "policy heap"});
}

TEST(the_figures_come_where_they_are_asked_for)
{
	SAYS(RUN(SET("SPILLWAY_SET=report=full"), ACTOR, "fills_up"), 0, NULL, 0, {1, "  change: "},
	     {2, " live at exit, "});
}

TEST(an_ipc_handle_of_heap_memory_is_refused_with_advice)
{
	SAYS(RUN(NULL, ACTOR, "asks_for_an_ipc_handle"), 0, "1\n1\n", 0, {1, "use: driver"}, {1, "ipc: yes"},
	     {1, "movable: no"});
}
