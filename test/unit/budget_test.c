/* budget_test.c: a budget is never overdrawn by takers, may be by force, and remembers its peak. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>

#include "shim/accounting/budget.h"

static void takes_up_to_the_last_byte(void **state)
{
	struct budget budget = {.limit = 100};

	(void)state;
	assert_true(budget_take(&budget, 60));
	assert_false(budget_take(&budget, 41));
	assert_int_equal(budget_left(&budget), 40);
	assert_true(budget_take(&budget, 40));
	assert_false(budget_take(&budget, 1));
	assert_true(budget_take(&budget, 0));
	budget_give(&budget, 100);
	assert_int_equal(budget_left(&budget), 100);
	assert_int_equal(budget.peak, 100);
}

static void a_limit_of_nothing_gives_nothing(void **state)
{
	struct budget budget = {0};

	(void)state;
	assert_false(budget_take(&budget, 1));
	assert_int_equal(budget_left(&budget), 0);
}

static void numbers_near_the_end_do_not_wrap(void **state)
{
	struct budget budget = {.limit = UINT64_MAX};

	(void)state;
	assert_true(budget_take(&budget, UINT64_MAX - 1));
	assert_false(budget_take(&budget, UINT64_MAX));
	assert_false(budget_take(&budget, 2));
	assert_true(budget_take(&budget, 1));
}

static void what_is_charged_by_force_leaves_nothing_for_others(void **state)
{
	struct budget budget = {.limit = 100};

	(void)state;
	assert_true(budget_take(&budget, 50));
	budget_charge(&budget, 80);
	assert_int_equal(budget_left(&budget), 0);
	assert_false(budget_take(&budget, 1));
	assert_int_equal(budget.peak, 130);
	budget_give(&budget, 80);
	assert_int_equal(budget_left(&budget), 50);
	assert_int_equal(budget.peak, 130);
}

#define THREADS 4
#define ROUNDS  50000
static struct budget shared = {.limit = 3};

static void *take_and_give(void *argument)
{
	uintptr_t got = 0;

	(void)argument;
	for (unsigned i = 0; i < ROUNDS; i++) {
		if (!budget_take(&shared, 2))
			continue;
		got++;
		budget_give(&shared, 2);
	}
	return (void *)got;
}

static void threads_together_never_hold_more_than_the_limit(void **state)
{
	pthread_t threads[THREADS];
	uintptr_t sum = 0;

	(void)state;
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, NULL), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		void *got;

		pthread_join(threads[i], &got);
		sum += (uintptr_t)got;
	}
	assert_true(sum > 0);
	assert_int_equal(shared.used, 0);
	assert_int_equal(shared.peak, 2); /* of 3, in pieces of 2: one at a time */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(takes_up_to_the_last_byte),
	    cmocka_unit_test(a_limit_of_nothing_gives_nothing),
	    cmocka_unit_test(numbers_near_the_end_do_not_wrap),
	    cmocka_unit_test(what_is_charged_by_force_leaves_nothing_for_others),
	    cmocka_unit_test(threads_together_never_hold_more_than_the_limit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
