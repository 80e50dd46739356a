// SPDX-License-Identifier: Apache-2.0
/*
 * completion_context_test.c: streams whose context the driver does not tell, and contexts that nobody has told the
 * library of: what runs there is in flight.
 */
#include "test/core/completion_help.h"

#include "shim/submit/completion.h"

static CUcontext context;

static uint64_t submitted(CUstream stream)
{
	return completion_submitted(stream, false, &(struct completion_what){(uintptr_t)stream, HOOK_cuLaunchKernel}, 0,
				    false);
}

struct seek {
	CUstream stream;
	uint64_t rows;
};

static void find_row(void *argument, unsigned row, const struct completion_what *what)
{
	struct seek *seek = argument;

	if (what->function == (uintptr_t)seek->stream)
		seek->rows |= UINT64_C(1) << (row == COMPLETION_STREAMS - 1 ? 63 : row);
}

static void context_end(CUcontext other)
{
	assert_true(context_ending(other) && completion_context_ending(other));
	assert_ok(cuCtxDestroy_v2(other));
	completion_context_ended(other, true);
	context_ended(other, true);
	assert_ok(cuCtxSetCurrent(context));
}

/* Returns the rows (bits; 63: the shared one) in which submissions to the stream are in flight. */
static uint64_t rows_of(CUstream stream)
{
	struct seek seek = {.stream = stream};

	completion_each_in_flight(find_row, &seek);
	return seek.rows;
}

/* The caller's context is another one, whose events say nothing of the stream. */
TEST(a_stream_whose_context_is_not_told_has_no_row)
{
	unsigned *word = word_new();
	CUcontext other = core_new_context();

	context_known(other, 0);
	CUstream held = stream_new();
	stream_hold(held, word);
	assert_ok(cuCtxSetCurrent(context));
	sim_fail("cuStreamGetCtx", 1, CUDA_ERROR_UNKNOWN);
	uint64_t number = submitted(held);
	assert_false(sim_fail_pending());
	for (int i = 0; i < 10; i++) {
		assert_true(done_ask() < number);
		assert_ok(cuCtxSynchronize());
	}
	assert_int_equal(rows_of(held), UINT64_C(1) << 63);
	assert_ok(cuCtxSetCurrent(other));
	/* The next time it is told, and the stream has one. */
	submitted(held);
	assert_int_not_equal(rows_of(held), UINT64_C(1) << 63);
	word_release(word);
	assert_true(becomes(all_is_done));
	stream_end(held);
	context_end(other);
}

/* ---- contexts that the library was not told of ---- */

static bool is_idle(bool fully, uint64_t number)
{
	enum context_idleness answer = CONTEXT_BUSY;
	struct context_idle idle;

	assert_true(context_idle_ask(CONTEXT_ALL_DEVICES, &idle));
	/* Those that are idle answer at once. */
	for (int i = 0; i < 10 && answer == CONTEXT_BUSY; i++) {
		answer = context_idle_look(&idle);
		assert_int_not_equal(answer, CONTEXT_UNKNOWN);
		usleep(1000);
	}
	bool is = answer == CONTEXT_IDLE && (!fully || completion_is_idle(0, CONTEXT_ALL_DEVICES, &idle, number));
	context_idle_forget(&idle);
	return is;
}

TEST(a_submission_makes_its_context_known)
{
	for (int is_told = 0; is_told < 2; is_told++) {
		unsigned *word = word_new();
		CUcontext other;

		assert_ok(cuCtxCreate_v2(&other, 0, 0));
		CUstream held = stream_new();
		stream_hold(held, word);
		if (!is_told)
			sim_fail("cuStreamGetCtx", 1, CUDA_ERROR_UNKNOWN);
		submitted(held);
		assert_false(sim_fail_pending());
		assert_ok(cuCtxSetCurrent(context));
		assert_false(is_idle(false, 0));
		word_release(word);
		assert_true(becomes(all_is_done));
		stream_end(held);
		context_end(other);
	}
}

/* The table alone says that all is idle. */
TEST(a_submission_in_a_context_that_was_not_asked_is_in_flight)
{
	unsigned *word = word_new();
	CUcontext other = core_new_context();
	CUstream held = stream_new();

	stream_hold(held, word);
	uint64_t number = submitted(held);
	assert_true(context_ending(other));
	context_ended(other, true);
	assert_ok(cuCtxSetCurrent(context));
	assert_true(is_idle(false, number));
	assert_false(is_idle(true, number));
	word_release(word);
	assert_true(becomes(all_is_done));
	assert_true(is_idle(true, number));
	stream_end(held);
	context_end(other);
}

/* What runs there may have begun before. */
TEST(a_context_that_becomes_known_leaves_an_older_question_open)
{
	struct context_idle idle;

	assert_true(context_idle_ask(CONTEXT_ALL_DEVICES, &idle));
	CUcontext other = core_new_context();
	context_known(other, 0);
	assert_int_equal(context_idle_look(&idle), CONTEXT_UNKNOWN);
	assert_int_equal(idle.n, 0);
	assert_true(is_idle(false, 0));
	context_end(other);
}

EACH_TEST(NULL, completion_check)

BEFORE_ALL
{
	core_driver();
	context = core_context();
}
