// SPDX-License-Identifier: Apache-2.0
/*
 * intake_test.c: how often the mover looks while the program submits and when it does not, on a clock of the test's
 * own. There is no mover's thread: the test reads the log itself.
 */
#include "shim/mover/mover.h"
#include "shim/submit/submission.h"
#include "test/core/core.h"

static uint64_t now_ns = 1000 * MS;

uint64_t __wrap_clock_now(void);
uint64_t __wrap_clock_now(void)
{
	return now_ns;
}

static struct core_heap own;
static struct device device;
static struct engine *engine;
static struct heap_grant grant;

BEFORE_ALL
{
	core_driver();
	core_heap_open(&own, 64 * MIB, 64 * MIB, 0);
	engine = core_engine(&own, &device, false);
	assert_true(submission_add_arena(heap_arena(own.heap), &engine->channel));
	submission_set_tracking(true, true);
	assert_ok(heap_alloc(own.heap, 4 * MIB, CHUNK_MOVABLE, HEAP_DEVICE, &grant));
}

static void submit(void)
{
	struct submission *use = submission_open(HOOK_cuLaunchKernel);

	assert_non_null(use);
	submission_name(use, grant.address, 0);
	submission_close(use, admit(use));
}

/* What the mover naps through, it does not move. */
TEST(the_mover_looks_often_while_the_program_submits)
{
	while (intake_read(engine))
		;
	uint64_t rest = mover_idle_ns(engine);
	engine->tracking.complete = true; /* everything that runs is known, so that memory may move */
	assert_int_equal(mover_idle_ns(engine), rest);
	submit();
	assert_true(intake_read(engine));
	uint64_t look = mover_idle_ns(engine);
	assert_true(look < rest / 10);
	now_ns += 50 * MS;
	assert_false(intake_read(engine));
	submit();
	assert_true(intake_read(engine));
	now_ns += 90 * MS;
	assert_int_equal(mover_idle_ns(engine), look);
	now_ns += 20 * MS;
	assert_false(intake_read(engine));
	assert_int_equal(mover_idle_ns(engine), rest);
}

/* There, submissions wait for what moves, and wake it. */
TEST(in_gaps_or_if_nothing_may_move_it_rests)
{
	submit();
	assert_true(intake_read(engine));
	uint64_t look = mover_idle_ns(engine);
	engine->exact = true;
	assert_true(mover_idle_ns(engine) > look);
	engine->exact = false;
	engine->governor.allows = false;
	assert_true(mover_idle_ns(engine) > look);
	engine->governor.allows = true;
	assert_int_equal(mover_idle_ns(engine), look);
}
