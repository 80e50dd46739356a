// SPDX-License-Identifier: Apache-2.0
/*
 * model_turn_test.c: a copy of the simulated GPU goes in pieces and gives other threads their turns between them, but
 * not so often that a copy takes as long as all that a loaded machine has to do. The program has the clock, and the
 * call by which a thread gives a turn, so that both depend on nothing else that runs.
 */
#include "model.h"
#include <sys/syscall.h>

/* A copy of 4 MiB is 64 pieces of 64 KiB, with 63 pauses between them. The thread counts them over all its copies. */
enum { PAUSES = 63, PAUSES_FOR_TURN = 4 };
#define COPIED (4 * MIB)

static _Atomic uint64_t passed_s, turn_takes_s;
static atomic_uint n_turns;

int clock_gettime(clockid_t clock, struct timespec *ret)
{
	long result = syscall(SYS_clock_gettime, clock, ret);

	if (clock == CLOCK_MONOTONIC)
		*ret = (struct timespec){.tv_sec = 1000000 + (time_t)atomic_load(&passed_s)};
	return (int)result;
}

int sched_yield(void)
{
	atomic_fetch_add(&n_turns, 1);
	atomic_fetch_add(&passed_s, atomic_load(&turn_takes_s));
	return 0;
}

static CUdeviceptr from, to;
static CUstream stream;

static unsigned turns_of_a_copy(void)
{
	unsigned before = atomic_load(&n_turns);

	ok(cuMemcpyDtoDAsync(to, from, COPIED, stream));
	ok(cuStreamSynchronize(stream));
	return atomic_load(&n_turns) - before;
}

TEST(turns_that_take_long_are_given_rarely)
{
	ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(cuMemAlloc(&from, COPIED));
	ok(cuMemAlloc(&to, COPIED));
	ok(cuMemsetD8(from, 1, COPIED));
	ok(cuCtxSynchronize());

	unsigned n = 0;
	for (unsigned i = 0; i < PAUSES_FOR_TURN; i++)
		n += turns_of_a_copy();
	assert_int_equal(n, PAUSES);

	atomic_store(&turn_takes_s, 2);
	assert_int_equal(turns_of_a_copy(), 1);
	/* No time has passed since but the turn's own. */
	assert_int_equal(turns_of_a_copy(), 0);
	atomic_fetch_add(&passed_s, 1);
	assert_int_equal(turns_of_a_copy(), 0);
	atomic_fetch_add(&passed_s, 1);
	assert_int_equal(turns_of_a_copy(), 1);

	/* What took long once is forgotten when a turn is short again. */
	atomic_store(&turn_takes_s, 0);
	atomic_fetch_add(&passed_s, 2);
	n = 0;
	for (unsigned i = 0; i < PAUSES_FOR_TURN; i++)
		n += turns_of_a_copy();
	assert_int_equal(n, PAUSES);
}

EACH_TEST(model_set_up, model_tear_down)
