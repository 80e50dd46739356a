// SPDX-License-Identifier: Apache-2.0
/* leave_moment_is_now(): steps of a job, as numbers. */
#include "shim/plan/governor.h"
#include "test/check.h"
#include "test/test.h"

#define SECOND UINT64_C(1000000000)
#define STEP   (80 * MS)

static struct leave_moment moment;
static uint64_t now;

/* A step: up to 13 GiB alive in its middle, 3600 MiB in its last quarter, and a little more just before its end. */
static uint64_t alive(void)
{
	uint64_t at = now % STEP;

	if (at >= STEP - STEP / 16)
		return 3700 * MIB;
	if (at >= STEP - STEP / 4)
		return 3600 * MIB;
	return 3600 * MIB + (at < STEP / 2 ? at : STEP - at) * 240 * MIB / MS;
}

static void work(uint64_t ns)
{
	for (uint64_t end = now + ns; now < end; now += 5 * MS)
		leave_moment_see(&moment, now, alive());
}

BEFORE_EACH
{
	memset(&moment, 0, sizeof(moment));
	now = 1000 * SECOND;
}

/* Returns how long it waits if it is to leave from now on. */
static uint64_t wait_for(uint64_t bound)
{
	uint64_t from = now;

	while (!leave_moment_is_now(&moment, now, alive(), bound)) {
		leave_moment_see(&moment, now, alive());
		now += MS;
	}
	leave_moment_off(&moment);
	return now - from;
}

TEST(it_leaves_at_the_end_of_a_step)
{
	work(SECOND);
	for (unsigned i = 0; i < 100; i++) {
		work(7 * MS * (1 + i % 11));
		assert_true(wait_for(SECOND) <= STEP);
		assert_true(alive() <= 3600 * MIB * 21 / 20);
	}
}

TEST(it_waits_no_longer_than_it_may)
{
	work(SECOND);
	now += STEP - now % STEP + 5 * MS;
	assert_int_equal(wait_for(20 * MS), 20 * MS);
	assert_int_equal(wait_for(0), 0);
	/* Also if it never comes again: what is alive has grown. */
	leave_moment_see(&moment, now, 100 * MIB);
	assert_int_equal(wait_for(300 * MS), 300 * MS);
}

TEST(what_was_seen_long_ago_is_forgotten)
{
	work(SECOND);
	leave_moment_see(&moment, now, 100 * MIB);
	work(2 * LEAVE_MOMENT_WINDOW + SECOND);
	assert_true(wait_for(SECOND) <= STEP);
	/* Steps of half a window are seen whole. */
	leave_moment_see(&moment, now, 100 * MIB);
	work(LEAVE_MOMENT_WINDOW / 2);
	assert_int_equal(wait_for(500 * MS), 500 * MS);
}

TEST(a_job_that_reports_nothing_leaves_at_once)
{
	/* Nothing was seen yet. */
	assert_true(leave_moment_is_now(&moment, now, 6000 * MIB, SECOND));
	leave_moment_off(&moment);
	for (unsigned i = 0; i < 1000; i++, now += 5 * MS)
		leave_moment_see(&moment, now, 6000 * MIB);
	assert_true(leave_moment_is_now(&moment, now, 6000 * MIB, SECOND));
}
