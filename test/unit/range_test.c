// SPDX-License-Identifier: Apache-2.0
/*
 * range_test.c: the set of free ranges against a naive map of one byte a unit. The linker sends malloc and free of
 * range.c through here (-Wl,--wrap), to count nodes and to let memory run out.
 */
#include "test/range_check.h"
#include "test/test.h"
#include "test/unit/seed.h"

#define UNITS 600
#define STEPS 20000

void *__real_malloc(size_t bytes);
void __real_free(void *memory);
void *__wrap_malloc(size_t bytes);
void __wrap_free(void *memory);

static bool malloc_fails;
static long n_live;

/* Returns how much of a set, which must be valid, is free. */
static uint64_t free_in(const struct range_set *set)
{
	uint64_t n = 0;

	assert_true(range_is_valid(set, &n));
	return n;
}

void *__wrap_malloc(size_t bytes)
{
	if (malloc_fails)
		return NULL;
	n_live++;
	return __real_malloc(bytes);
}

void __wrap_free(void *memory)
{
	n_live -= memory != NULL;
	__real_free(memory);
}

/* What a range set promises, without any cleverness. */
struct naive {
	uint8_t taken[UNITS];
	struct {
		uint64_t start, length;
	} held[UNITS];
	size_t n_held;
};

static bool naive_first_fit(const struct naive *naive, uint64_t length, uint64_t *ret_start)
{
	uint64_t run = 0;

	for (uint64_t i = 0; i < UNITS; i++) {
		run = naive->taken[i] ? 0 : run + 1;
		if (run == length) {
			*ret_start = i + 1 - length;
			return true;
		}
	}
	return false;
}

static uint64_t naive_free(const struct naive *naive)
{
	uint64_t n = 0;

	for (size_t i = 0; i < UNITS; i++)
		n += !naive->taken[i];
	return n;
}

static void step_take(struct range_set *set, struct naive *naive, uint64_t length)
{
	uint64_t expected = 0, start = UINT64_MAX;
	bool fits = naive_first_fit(naive, length, &expected);

	assert_int_equal(range_take(set, length, &start), fits);
	if (!fits) {
		assert_true(start == UINT64_MAX);
		return;
	}
	assert_int_equal(start, expected);
	memset(naive->taken + start, 1, length);
	naive->held[naive->n_held].start = start;
	naive->held[naive->n_held++].length = length;
}

static void step_give(struct range_set *set, struct naive *naive, size_t which)
{
	uint64_t start = naive->held[which].start, length = naive->held[which].length;

	naive->held[which] = naive->held[--naive->n_held];
	memset(naive->taken + start, 0, length);
	range_give(set, start, length);
}

TEST(random_take_and_give_is_first_fit)
{
	struct seed seed = seed_start(__func__);
	static struct naive naive;
	struct range_set set;
	long before = n_live;

	assert_true(range_init(&set, UNITS));
	for (unsigned i = 0; i < STEPS; i++) {
		/* The share of takes swings, so that the set is nearly full and nearly empty by turns. */
		bool take = seed_below(&seed, 100) < (i / 1000 % 2 ? 35u : 65u);

		if (take || !naive.n_held) {
			step_take(&set, &naive, seed_size(&seed, 64));
		} else {
			/* Freeing never needs memory: every give happens while there is none. */
			malloc_fails = true;
			step_give(&set, &naive, seed_below(&seed, naive.n_held));
			malloc_fails = false;
		}
		assert_int_equal(free_in(&set), naive_free(&naive));
		/* One node for each range handed out and one to begin with: no more is kept. */
		assert_int_equal(n_live - before, (long)naive.n_held + 1);
	}
	range_fini(&set);
	assert_int_equal(n_live, before);
}

TEST(without_memory_a_take_fails_and_changes_nothing)
{
	struct range_set set;
	uint64_t start = 77;

	malloc_fails = true;
	assert_false(range_init(&set, UNITS));
	malloc_fails = false;
	assert_true(range_init(&set, UNITS));
	malloc_fails = true;
	assert_false(range_take(&set, 5, &start));
	malloc_fails = false;
	assert_int_equal(start, 77);
	assert_int_equal(free_in(&set), UNITS);
	assert_true(range_take(&set, 5, &start));
	assert_int_equal(start, 0);
	range_fini(&set);
}

TEST(the_reserve_lasts_when_every_other_range_comes_back_first)
{
	struct range_set set;
	uint64_t start;

	assert_true(range_init(&set, UNITS));
	for (uint64_t i = 0; i < UNITS; i++)
		assert_true(range_take(&set, 1, &start));
	assert_false(range_take(&set, 1, &start));
	malloc_fails = true;
	/* The most nodes at once: UNITS / 2 free ranges, none touching another. */
	for (uint64_t i = 0; i < UNITS; i += 2) {
		range_give(&set, i, 1);
		free_in(&set);
	}
	assert_false(range_take(&set, 2, &start));
	for (uint64_t i = 1; i < UNITS; i += 2)
		range_give(&set, i, 1);
	malloc_fails = false;
	free_in(&set);
	assert_true(range_take(&set, UNITS, &start));
	assert_int_equal(start, 0);
	range_fini(&set);
}

TEST(lengths_that_cannot_be_are_refused)
{
	struct range_set set;
	uint64_t start;

	assert_true(range_init(&set, UNITS));
	assert_false(range_take(&set, 0, &start));
	assert_false(range_take(&set, UNITS + 1, &start));
	assert_false(range_take(&set, UINT64_MAX, &start));
	assert_true(range_take(&set, UNITS, &start));
	range_give(&set, start, UNITS);
	free_in(&set);
	range_fini(&set);
}

TEST(a_range_is_taken_where_a_free_one_starts_and_joined_to_the_one_before)
{
	long live = n_live;
	struct range_set set;
	uint64_t start, more;

	assert_true(range_init(&set, UNITS));
	assert_true(range_take(&set, 10, &start) && range_take(&set, 5, &more));
	assert_true(start == 0 && more == 10);
	assert_false(range_take_at(&set, 10, 1)); /* taken */
	assert_false(range_take_at(&set, 20, 1)); /* free, but that does not start there */
	assert_false(range_take_at(&set, 15, UNITS - 14));
	assert_false(range_take_at(&set, 15, 0));
	malloc_fails = true;
	assert_false(range_take_at(&set, 15, 5));
	malloc_fails = false;
	assert_true(free_in(&set) == UNITS - 15);
	assert_true(range_take_at(&set, 15, 5));
	range_join(&set);
	assert_true(range_take_at(&set, 20, UNITS - 20));
	range_join(&set);
	assert_int_equal(free_in(&set), 0);
	/* Giving back needs no memory, in one piece. */
	malloc_fails = true;
	range_give(&set, 0, 10);
	range_give(&set, 10, UNITS - 10);
	malloc_fails = false;
	assert_int_equal(free_in(&set), UNITS);
	range_fini(&set);
	assert_int_equal(n_live, live);
}

TEST(taking_and_giving_is_fast_in_a_set_of_a_hundred_thousand)
{
	struct seed seed = seed_start(__func__);
	struct range_set set;
	uint64_t start;
	enum { MANY = 200000 };

	assert_true(range_init(&set, MANY));
	for (unsigned i = 0; i < MANY; i++)
		assert_true(range_take(&set, 1, &start));
	for (unsigned i = 0; i < MANY; i += 2)
		range_give(&set, i, 1);
	/* If this were a walk over the list of holes, it would be 10^10 steps and the test's time limit would tell. */
	for (unsigned i = 0; i < 100000; i++) {
		uint64_t hole = seed_below(&seed, MANY / 2) * 2;

		assert_true(range_take(&set, 1, &start));
		assert_int_equal(start, 0);
		range_give(&set, start, 1);
		assert_false(range_take(&set, 2, &hole));
	}
	free_in(&set);
	range_fini(&set);
}
