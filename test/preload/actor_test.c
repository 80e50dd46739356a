/*
 * How programs end, fork and keep quiet under the library.
 */
#include "test/preload/run.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

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

static void leaving_main_with_live_blocks_ends_in_a_summary(void **state)
{
	(void)state;
	ends_with_a_summary("ends_from_main");
}

static void exit_from_a_thread_ends_in_a_summary(void **state)
{
	(void)state;
	ends_with_a_summary("ends_from_a_thread");
}

static void exit_inside_an_exit_handler_ends_in_a_summary(void **state)
{
	(void)state;
	ends_with_a_summary("ends_in_an_exit_handler");
}

static void frees_in_late_destructors_do_no_harm(void **state)
{
	(void)state;
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

static void underscore_exit_keeps_its_status(void **state)
{
	(void)state;
	ends_as_it_would("ends_at_once", 7);
}

static void a_program_may_ask_for_its_summary(void **state)
{
	struct outcome outcome = RUN(small, ACTOR, "ends_at_once_but_says_so");

	(void)state;
	must_leave(outcome, 7, "", 1);
	must_be_summed_up(&outcome);
	run_free(&outcome);
}

static void abort_stays_an_abort(void **state)
{
	(void)state;
	ends_as_it_would("aborts", 128 + SIGABRT);
}

static void sigterm_stays_a_sigterm(void **state)
{
	(void)state;
	ends_as_it_would("is_terminated", 128 + SIGTERM);
}

static void a_program_without_cuda_is_silent_and_leaves_nothing(void **state)
{
	struct outcome outcome = RUN(NULL, ACTOR, "does_nothing");

	(void)state;
	must(outcome, 0, "hello\n");
	assert_string_equal(outcome.err, "");
	run_free(&outcome);
	/* Not even a bad policy makes it speak. */
	outcome = RUN(SET("SPILLWAY_POLICY=/nonexistent.yaml"), ACTOR, "does_nothing");
	must(outcome, 0, "hello\n");
	assert_string_equal(outcome.err, "");
	run_free(&outcome);
}

static void a_program_that_only_asks_is_silent(void **state)
{
	struct outcome outcome = RUN(NULL, ACTOR, "only_asks");

	(void)state;
	must(outcome, 0, "hello\n");
	assert_string_equal(outcome.err, "");
	run_free(&outcome);
}

static void a_child_that_execs_something_else_says_nothing(void **state)
{
	struct outcome outcome = RUN(small, ACTOR, "allocates_nothing_in_a_child");

	(void)state;
	must(outcome, 0, "hello\n");
	must_be_summed_up(&outcome);
	run_free(&outcome);
}

static void a_closed_stderr_stops_nobody(void **state)
{
	struct outcome outcome = RUN(small, ACTOR, "frees_everything_with_stderr_closed");

	(void)state;
	must(outcome, 7, "");
	assert_string_equal(outcome.err, "");
	run_free(&outcome);
}

static void a_child_forked_before_cuda_starts_afresh(void **state)
{
	struct outcome outcome = RUN(small, ACTOR, "forks_before");

	(void)state;
	must(outcome, 0, "");
	assert_int_equal(run_lines_with(outcome.err, "summary of process"), 2);
	run_free(&outcome);
}

static void a_child_forked_after_cuda_gets_the_drivers_answers(void **state)
{
	struct outcome outcome = RUN(small, ACTOR, "forks_after");

	(void)state;
	must(outcome, 0, "");
	must_be_summed_up(&outcome); /* the parent's; the child has none */
	run_free(&outcome);
}

static void forks_while_threads_allocate_leave_no_lock_taken(void **state)
{
	struct outcome outcome = RUN(small, ACTOR, "forks_while_threads_allocate");

	(void)state;
	/* A child that was forked before the first allocation begins afresh, and ends by _exit(): its figures stay. */
	must_leave(outcome, 0, "", outcome.n_figures);
	run_free(&outcome);
}

static void the_summary_can_be_switched_off(void **state)
{
	struct outcome outcome = RUN(SET("SPILLWAY_SET=report.summary=no"), ACTOR, "fills_up");

	(void)state;
	assert_int_equal(outcome.status, 0);
	assert_int_equal(run_lines_with(outcome.err, "summary"), 0);
	assert_int_equal(run_lines_with(outcome.err, "policy heap"), 0);
	run_free(&outcome);
}

static void the_figures_come_where_they_are_asked_for(void **state)
{
	struct outcome outcome = RUN(SET("SPILLWAY_SET=report=full"), ACTOR, "fills_up");

	(void)state;
	assert_int_equal(outcome.status, 0);
	assert_int_equal(run_lines_with(outcome.err, "  change: "), 1);
	assert_int_equal(run_lines_with(outcome.err, " live at exit, "), 2);
	run_free(&outcome);
}

static void an_ipc_handle_of_heap_memory_is_refused_with_advice(void **state)
{
	struct outcome outcome = RUN(NULL, ACTOR, "asks_for_an_ipc_handle");

	(void)state;
	must(outcome, 0, "1\n1\n");
	assert_int_equal(run_lines_with(outcome.err, "use: driver"), 1);
	assert_int_equal(run_lines_with(outcome.err, "ipc: yes"), 1);
	assert_int_equal(run_lines_with(outcome.err, "movable: no"), 1);
	run_free(&outcome);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(leaving_main_with_live_blocks_ends_in_a_summary),
	    cmocka_unit_test(exit_from_a_thread_ends_in_a_summary),
	    cmocka_unit_test(exit_inside_an_exit_handler_ends_in_a_summary),
	    cmocka_unit_test(frees_in_late_destructors_do_no_harm),
	    cmocka_unit_test(underscore_exit_keeps_its_status),
	    cmocka_unit_test(a_program_may_ask_for_its_summary),
	    cmocka_unit_test(abort_stays_an_abort),
	    cmocka_unit_test(sigterm_stays_a_sigterm),
	    cmocka_unit_test(a_program_without_cuda_is_silent_and_leaves_nothing),
	    cmocka_unit_test(a_program_that_only_asks_is_silent),
	    cmocka_unit_test(a_child_that_execs_something_else_says_nothing),
	    cmocka_unit_test(a_closed_stderr_stops_nobody),
	    cmocka_unit_test(a_child_forked_before_cuda_starts_afresh),
	    cmocka_unit_test(a_child_forked_after_cuda_gets_the_drivers_answers),
	    cmocka_unit_test(forks_while_threads_allocate_leave_no_lock_taken),
	    cmocka_unit_test(the_summary_can_be_switched_off),
	    cmocka_unit_test(the_figures_come_where_they_are_asked_for),
	    cmocka_unit_test(an_ipc_handle_of_heap_memory_is_refused_with_advice),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
