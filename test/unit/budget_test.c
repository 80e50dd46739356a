// SPDX-License-Identifier: Apache-2.0
/* budget_test.c: a budget is never overdrawn by takers, may be by force, and remembers its peak. */
#include <sys/mman.h>

#include "shim/accounting/budget.h"
#include "test/test.h"

TEST(takes_up_to_the_last_byte)
{
	struct budget budget = {.limit = 100};

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

TEST(a_limit_of_nothing_gives_nothing)
{
	struct budget budget = {0};

	assert_false(budget_take(&budget, 1));
	assert_int_equal(budget_left(&budget), 0);
}

TEST(numbers_near_the_end_do_not_wrap)
{
	struct budget budget = {.limit = UINT64_MAX};

	assert_true(budget_take(&budget, UINT64_MAX - 1));
	assert_false(budget_take(&budget, UINT64_MAX));
	assert_false(budget_take(&budget, 2));
	assert_true(budget_take(&budget, 1));
}

TEST(what_is_charged_by_force_leaves_nothing_for_others)
{
	struct budget budget = {.limit = 100};

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

	for (unsigned i = 0; i < ROUNDS; i++) {
		if (!budget_take(&shared, 2))
			continue;
		got++;
		budget_give(&shared, 2);
	}
	return (void *)got;
}

/* ---- a limit that is lowered while a thread takes ---- */

static struct budget *seen, *alias; /* the same memory at two addresses, where `seen` is read only at first */
static uint64_t published;

/* The taker has read the limit, and is about to write what is used. */
static void lower_the_limit(int signal)
{
	atomic_store(&alias->limit, 40);
	published = atomic_load(&alias->used);
	if (published < 40)
		published = 40;
	mprotect(seen, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE);
}

TEST(nothing_is_taken_above_what_was_published)
{
	struct sigaction on_fault = {.sa_handler = lower_the_limit}, before;
	size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
	int fd = memfd_create("budget_test", MFD_CLOEXEC);

	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	alias = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	seen = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	assert_true(alias != MAP_FAILED && seen != MAP_FAILED);
	assert_int_equal(sigaction(SIGSEGV, &on_fault, &before), 0);
	alias->limit = 100;
	alias->used = alias->peak = 30;
	assert_false(budget_take(seen, 20));
	assert_int_equal(published, 40);
	assert_true(alias->used == 30 && alias->peak == 30);
	/* What still fits is taken. */
	assert_int_equal(mprotect(seen, bytes, PROT_READ), 0);
	alias->limit = 100;
	assert_true(budget_take(seen, 10));
	assert_true(published == 40 && alias->used == 40);
	assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
	munmap(seen, bytes);
	munmap(alias, bytes);
	close(fd);
}

TEST(threads_together_never_hold_more_than_the_limit)
{
	pthread_t threads[THREADS];
	uintptr_t sum = 0;

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
