// SPDX-License-Identifier: Apache-2.0
/*
 * context_idle_test.c: whether contexts are idle is asked again and again, and one answer that is an error says
 * nothing.
 */
#include "shim/context/context.h"
#include "test/core/core.h"

enum { FAILURES = 50, DEADLINE_S = 20 };

TEST(an_error_of_an_event_is_asked_again_after)
{
	const CUdeviceptr *word = *state;
	struct context_idle idle;

	for (unsigned i = 0; i < FAILURES; i++) {
		sim_hold();
		assert_int_equal(cuMemsetD32Async(*word, i, 1, NULL), CUDA_SUCCESS);
		assert_true(context_idle_ask(CONTEXT_ALL_DEVICES, &idle));
		assert_int_equal(context_idle_look(&idle), CONTEXT_BUSY);
		sim_fail("cuEventQuery", 1, CUDA_ERROR_UNKNOWN);
		assert_int_equal(context_idle_look(&idle), CONTEXT_BUSY);
		assert_false(sim_fail_pending());
		assert_int_equal(context_idle_look(&idle), CONTEXT_BUSY);
		sim_release();
		assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
		sim_fail("cuEventQuery", 1, CUDA_ERROR_UNKNOWN);
		assert_int_equal(context_idle_look(&idle), CONTEXT_BUSY);
		assert_int_equal(context_idle_look(&idle), CONTEXT_IDLE);
	}
}

TEST(errors_for_a_while_are_believed)
{
	uint64_t until = clock_now() + DEADLINE_S * 1000000000ull;
	enum context_idleness answer = CONTEXT_BUSY;
	struct context_idle idle;

	assert_true(context_idle_ask(CONTEXT_ALL_DEVICES, &idle));
	while (answer == CONTEXT_BUSY && clock_now() < until) {
		sim_fail("cuEventQuery", 1, CUDA_ERROR_UNKNOWN);
		answer = context_idle_look(&idle);
	}
	assert_int_equal(answer, CONTEXT_UNKNOWN);
	/* The question is over: nothing of it is left. */
	assert_int_equal(idle.n, 0);
}

/* Popped, for a thread's stack of contexts is short. */
static CUcontext context_new(void)
{
	CUcontext popped;
	CUcontext context = core_new_context();

	assert_int_equal(cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
	context_known(context, 0);
	return context;
}

static void context_end(CUcontext context)
{
	assert_true(context_ending(context));
	assert_int_equal(cuCtxDestroy_v2(context), CUDA_SUCCESS);
	context_ended(context, true);
}

static bool can_be_told(void)
{
	struct context_idle idle;
	bool can = context_idle_ask(CONTEXT_ALL_DEVICES, &idle);

	context_idle_forget(&idle);
	return can;
}

/* The primary one is one of them. */
TEST(with_too_many_contexts_nobody_can_tell_until_enough_have_ended)
{
	CUcontext contexts[CONTEXT_MOST + 8];
	unsigned n = 0;

	while (n < CONTEXT_MOST - 1)
		contexts[n++] = context_new();
	assert_true(can_be_told());
	while (n < CONTEXT_MOST + 8) {
		contexts[n++] = context_new();
		assert_false(can_be_told());
	}
	/* Those that came last are as well known as the first. */
	context_end(contexts[--n]);
	context_end(contexts[0]);
	contexts[0] = contexts[--n];
	while (n > CONTEXT_MOST - 1) {
		assert_false(can_be_told());
		context_end(contexts[--n]);
	}
	while (n) {
		assert_true(can_be_told());
		context_end(contexts[--n]);
	}
	assert_true(can_be_told());
	assert_int_equal(sim_broken_rules(), 0);
}

static int start(void **state)
{
	static CUdeviceptr word;

	core_driver();
	assert_int_equal(cuMemAlloc_v2(&word, 4096), CUDA_SUCCESS);
	core_context();
	*state = &word;
	return 0;
}

GROUP(start, NULL)
