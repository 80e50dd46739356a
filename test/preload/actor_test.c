/*
 * How programs end, fork and keep quiet under the library.
 */
#include "test/preload/run.h"
#include "test/test.h"

static const char *const small[] = {"SIM_MEMORY=128MiB", "SPILLWAY_SET=device.budget=32MiB,host.budget=64MiB", NULL};

static const char first_line[] = "spillway: device budget 32.0 MiB of 128.0 MiB, spill exact, policy heap (built in)\n";

static void must_leave(struct outcome outcome, int status, const char *out, unsigned n_figures)
{
	if (outcome.status != status || strcmp(outcome.out, out) || *outcome.files || outcome.n_figures != n_figures)
		fail_msg("status %d (not %d), stdout \"%s\", files \"%s\", %u of figures (not %u), stderr:\n%s",
			 outcome.status, status, outcome.out, outcome.files, outcome.n_figures, n_figures, outcome.err);
}

static void must(struct outcome outcome, int status, const char *out)
{
	must_leave(outcome, status, out, 0);
}

/* The first line and the summary came, once, without the figures, and each line is marked as ours. */
static void must_be_summed_up(const struct outcome *outcome)
{
	if (run_lines_with(outcome->err, "summary of process") != 1 || run_lines(outcome->err) != 5 ||
	    strncmp(outcome->err, first_line, strlen(first_line)) || run_lines_with(outcome->err, "  cost: ") != 1 ||
	    run_lines_with(outcome->err, "  change: ") != 1 ||
	    run_lines_with(outcome->err, "spillway: ") != run_lines(outcome->err) ||
	    run_lines_with(outcome->err, "SPILLING") != 1)
		fail_msg("stderr is\n%s", outcome->err);
}

static void ends_with_a_summary(const char *act)
{
	struct outcome outcome = RUN(small, ACTOR, act);

	must(outcome, 7, "");
	must_be_summed_up(&outcome);
	run_free(&outcome);
}

TEST(leaving_main_with_live_blocks_ends_in_a_summary)
{
	ends_with_a_summary("ends_from_main");
}

TEST(exit_from_a_thread_ends_in_a_summary)
{
	ends_with_a_summary("ends_from_a_thread");
}

TEST(exit_inside_an_exit_handler_ends_in_a_summary)
{
	ends_with_a_summary("ends_in_an_exit_handler");
}

TEST(frees_in_late_destructors_do_no_harm)
{
	ends_with_a_summary("frees_in_a_destructor");
}

/* These give nobody a chance to speak; what counts is the status the program would have had. The last figures stay. */
static void ends_as_it_would(const char *act, int status)
{
	struct outcome outcome = RUN(small, ACTOR, act);

	must_leave(outcome, status, "", 1);
	assert_int_equal(run_lines_with(outcome.err, "SPILLING"), 1);
	run_free(&outcome);
}

TEST(underscore_exit_keeps_its_status)
{
	ends_as_it_would("ends_at_once", 7);
}

TEST(a_program_may_ask_for_its_summary)
{
	struct outcome outcome = RUN(small, ACTOR, "ends_at_once_but_says_so");

	must_leave(outcome, 7, "", 1);
	must_be_summed_up(&outcome);
	run_free(&outcome);
}

TEST(abort_stays_an_abort)
{
	ends_as_it_would("aborts", 128 + SIGABRT);
}

TEST(sigterm_stays_a_sigterm)
{
	ends_as_it_would("is_terminated", 128 + SIGTERM);
}

TEST(a_program_without_cuda_is_silent_and_leaves_nothing)
{
	struct outcome outcome = RUN(NULL, ACTOR, "does_nothing");

	must(outcome, 0, "hello\n");
	assert_string_equal(outcome.err, "");
	run_free(&outcome);
	/* Not even a bad policy makes it speak. */
	outcome = RUN(SET("SPILLWAY_POLICY=/nonexistent.yaml"), ACTOR, "does_nothing");
	must(outcome, 0, "hello\n");
	assert_string_equal(outcome.err, "");
	run_free(&outcome);
}

TEST(a_program_that_only_asks_is_silent)
{
	struct outcome outcome = RUN(NULL, ACTOR, "only_asks");

	must(outcome, 0, "hello\n");
	assert_string_equal(outcome.err, "");
	run_free(&outcome);
}

TEST(a_child_that_execs_something_else_says_nothing)
{
	struct outcome outcome = RUN(small, ACTOR, "allocates_nothing_in_a_child");

	must(outcome, 0, "hello\n");
	must_be_summed_up(&outcome);
	run_free(&outcome);
}

TEST(a_closed_stderr_stops_nobody)
{
	struct outcome outcome = RUN(small, ACTOR, "frees_everything_with_stderr_closed");

	must(outcome, 7, "");
	assert_string_equal(outcome.err, "");
	run_free(&outcome);
}

TEST(a_child_forked_before_cuda_starts_afresh)
{
	struct outcome outcome = RUN(small, ACTOR, "forks_before");

	must(outcome, 0, "");
	assert_int_equal(run_lines_with(outcome.err, "summary of process"), 2);
	run_free(&outcome);
}

TEST(a_child_forked_after_cuda_gets_the_drivers_answers)
{
	struct outcome outcome = RUN(small, ACTOR, "forks_after");

	must(outcome, 0, "");
	must_be_summed_up(&outcome); /* the parent's; the child has none */
	run_free(&outcome);
}

TEST(forks_while_threads_allocate_leave_no_lock_taken)
{
	struct outcome outcome = RUN(small, ACTOR, "forks_while_threads_allocate");

	/* A child that was forked before the first allocation begins afresh, and ends by _exit(): its figures stay. */
	must_leave(outcome, 0, "", outcome.n_figures);
	run_free(&outcome);
}

TEST(the_summary_can_be_switched_off)
{
	struct outcome outcome = RUN(SET("SPILLWAY_SET=report.summary=no"), ACTOR, "fills_up");

	assert_int_equal(outcome.status, 0);
	assert_int_equal(run_lines_with(outcome.err, "summary"), 0);
	assert_int_equal(run_lines_with(outcome.err, "policy heap"), 0);
	run_free(&outcome);
}

TEST(the_figures_come_where_they_are_asked_for)
{
	struct outcome outcome = RUN(SET("SPILLWAY_SET=report=full"), ACTOR, "fills_up");

	assert_int_equal(outcome.status, 0);
	assert_int_equal(run_lines_with(outcome.err, "  change: "), 1);
	assert_int_equal(run_lines_with(outcome.err, " live at exit, "), 2);
	run_free(&outcome);
}

TEST(an_ipc_handle_of_heap_memory_is_refused_with_advice)
{
	struct outcome outcome = RUN(NULL, ACTOR, "asks_for_an_ipc_handle");

	must(outcome, 0, "1\n1\n");
	assert_int_equal(run_lines_with(outcome.err, "use: driver"), 1);
	assert_int_equal(run_lines_with(outcome.err, "ipc: yes"), 1);
	assert_int_equal(run_lines_with(outcome.err, "movable: no"), 1);
	run_free(&outcome);
}
