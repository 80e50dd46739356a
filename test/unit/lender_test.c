// SPDX-License-Identifier: Apache-2.0
/* lender_test.c: a device lends what it has beyond its own budget first, and never overdraws that. */
#include "shim/base/clock.h"
#include "shim/accounting/budget.h"
#include "test/test.h"

static struct budget own;
static struct lender lender;

static void set(uint64_t own_bytes, uint64_t beyond, uint64_t lent)
{
	own = (struct budget){.limit = own_bytes};
	lender = (struct lender){.own = &own, .lent = {.limit = lent}, .beyond = {.limit = beyond}};
}

#define assert_used(LENT, BEYOND, OWN)                                                                                 \
	do {                                                                                                           \
		assert_int_equal(lender.lent.used, LENT);                                                              \
		assert_int_equal(lender.beyond.used, BEYOND);                                                          \
		assert_int_equal(own.used, OWN);                                                                       \
	} while (0)

TEST(its_own_budget_is_touched_last_and_is_the_first_to_come_back)
{
	set(100, 50, 80);
	assert_int_equal(lender_left(&lender), 80);
	assert_true(lender_take(&lender, 40));
	assert_used(40, 40, 0);
	assert_true(lender_take(&lender, 30));
	assert_used(70, 50, 20);
	assert_int_equal(lender_left(&lender), 10);
	lender_give(&lender, 25);
	assert_used(45, 45, 0);
	lender_give(&lender, 45);
	assert_used(0, 0, 0);
}

TEST(no_more_is_lent_than_is_allowed)
{
	set(100, 50, 80);
	assert_false(lender_take(&lender, 81));
	assert_used(0, 0, 0);
	assert_true(lender_take(&lender, 80));
	assert_int_equal(lender_left(&lender), 0);
	assert_false(lender_take(&lender, 1));
	assert_used(80, 50, 30);
}

TEST(what_its_own_program_has_is_not_lent)
{
	set(100, 10, 200);
	assert_true(budget_take(&own, 70));
	assert_int_equal(lender_left(&lender), 40);
	assert_false(lender_take(&lender, 41));
	assert_used(0, 0, 70);
	assert_true(lender_take(&lender, 40));
	assert_used(40, 10, 100);
	assert_false(budget_take(&own, 1));
	/* By force, as the program's own cuMemCreate is. */
	budget_charge(&own, 60);
	assert_int_equal(lender_left(&lender), 0);
	lender_give(&lender, 40);
	assert_used(0, 0, 130);
	assert_true(lender_take(&lender, 10));
	assert_false(lender_take(&lender, 1));
}

/* As when more is known of what is free. */
TEST(limits_may_fall_below_what_is_lent)
{
	set(100, 50, 80);
	assert_true(lender_take(&lender, 50));
	lender.beyond.limit = 20;
	assert_true(lender_take(&lender, 10));
	assert_used(60, 50, 10);
	lender.lent.limit = 30;
	assert_int_equal(lender_left(&lender), 0);
	assert_false(lender_take(&lender, 1));
	lender_give(&lender, 60);
	assert_used(0, 0, 0);
	set(UINT64_MAX, UINT64_MAX, UINT64_MAX);
	assert_true(lender_left(&lender) == UINT64_MAX);
}

/* Nothing is borrowed again before whoever wants it has had it. */
TEST(what_its_device_wants_back_is_counted_until_it_is_there)
{
	set(100, 50, 80);
	assert_true(lender_take(&lender, 70));
	assert_int_equal(lender_wanted(&lender), 0);
	lender_want(&lender, 30);
	lender_want(&lender, 10);
	assert_int_equal(lender_wanted(&lender), 30);
	assert_int_equal(lender_left(&lender), 0);
	assert_false(lender_take(&lender, 1));
	lender_give(&lender, 25);
	assert_int_equal(lender_wanted(&lender), 5);
	lender_give(&lender, 10);
	assert_int_equal(lender_wanted(&lender), 0);
	assert_false(lender_take(&lender, 1));
	lender_want(&lender, 1000);
	assert_int_equal(lender_wanted(&lender), 35);
	/* As after that second. */
	lender.wanted_until = 1;
	assert_int_equal(lender_wanted(&lender), 0);
	assert_int_equal(lender_left(&lender), 45);
	assert_true(lender_take(&lender, 45));
	lender_want(&lender, 3);
	assert_int_equal(lender_wanted(&lender), 3);
}

/* A second is not waited for here: the end of it is looked at, and put off or brought forward. */
TEST(one_that_is_full_lends_nothing_until_it_is_asked_again)
{
	set(100, 50, 80);
	assert_true(lender_take(&lender, 20));
	uint64_t before = clock_now();
	lender_is_full(&lender);
	assert_true(lender.full_until > before && lender.full_until <= clock_now() + 1000000000);
	lender.full_until = UINT64_MAX;
	assert_int_equal(lender_left(&lender), 0);
	assert_false(lender_take(&lender, 1));
	assert_used(20, 20, 0);
	lender.full_until = before;
	assert_int_equal(lender_left(&lender), 60);
	assert_true(lender_take(&lender, 10));
	/* What has come back the driver has. */
	lender.full_until = UINT64_MAX;
	lender_give(&lender, 10);
	assert_int_equal(lender_left(&lender), 60);
	assert_true(lender_take(&lender, 60));
}

#define THREADS 4
#define ROUNDS  20000

static void *borrow(void *argument)
{
	for (unsigned i = 0; i < ROUNDS; i++)
		if (lender_take(&lender, 3))
			lender_give(&lender, 3);
	return argument;
}

TEST(borrowers_together_leave_nothing_behind)
{
	pthread_t threads[THREADS];

	set(4, 4, 7);
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, borrow, NULL), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_used(0, 0, 0);
	assert_int_equal(lender.of_own, 0);
	assert_true(own.peak <= 4 && lender.beyond.peak <= 4 && lender.lent.peak <= 7);
}
