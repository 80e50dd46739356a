// SPDX-License-Identifier: Apache-2.0
/*
 * Numbers of places and ranges: one for each, and told before anything can be read that uses it, also when two threads
 * come with the same name at one moment.
 */
#include "shim/base/call_site.h"
#include "shim/trace/trace_internal.h"
#include "test/test.h"

#define ROUNDS 3000 /* of the 4095 that there is room for */

static _Atomic unsigned round_of_both;
static bool told[4096];

/* Sites without a text; each is one because of its address. */
static const struct call_site *name_of(unsigned i)
{
	static const struct call_site sites[ROUNDS + 2];

	return &sites[i];
}

static void *other(void *argument)
{
	for (unsigned i = 1; i <= ROUNDS; i++) {
		while (atomic_load(&round_of_both) < i)
			;
		trace_site(name_of(i));
	}
	return argument;
}

static void tell(enum trace_list list, uint64_t number, const char *text)
{
	assert_int_equal(list, TRACE_SITES);
	assert_false(told[number]);
	told[number] = true;
}

static unsigned n_ranges_told;

static void tell_range(enum trace_list list, uint64_t number, const char *text)
{
	assert_int_equal(list, TRACE_RANGES);
	assert_int_equal(number, trace_range(text));
	n_ranges_told++;
}

static uint64_t callers_of;
static const char *callers_told;

static void tell_callers(enum trace_list list, uint64_t number, const char *text)
{
	if (number == callers_of && list == TRACE_CALLERS)
		callers_told = text;
}

TEST(callers_are_told_if_they_are_known)
{
	/* Known, outermost and not known. The text of each is the next one's first byte, 0. */
	static const struct call_site sites[4] = {{.callers = "a.py:9 in g"}, {.callers = ""}};

	for (int i = 0; i < 3; i++) {
		callers_of = trace_site(&sites[i]);
		callers_told = NULL;
		names_each_new(TRACE_SITES, tell_callers);
		assert_int_not_equal(callers_of, 0);
		assert_ptr_equal(callers_told, sites[i].callers);
	}
}

/* The drainer has seen the event of a thread that found the name; the one that made it may not be done yet. */
TEST(a_name_that_was_found_is_told)
{
	pthread_t thread = test_thread(other, NULL);

	for (unsigned i = 1; i <= ROUNDS; i++) {
		atomic_store(&round_of_both, i);
		uint64_t number = trace_site(name_of(i));
		names_each_new(TRACE_SITES, tell);
		if (number && !told[number])
			fail_msg("name %u, number %u, was not told", i, (unsigned)number);
	}
	pthread_join(thread, NULL);
}

TEST(the_same_place_has_one_number)
{
	assert_int_equal(trace_site(name_of(1)), trace_site(name_of(1)));
	assert_int_not_equal(trace_site(name_of(1)), trace_site(name_of(2)));
	assert_int_equal(trace_site(NULL), 0);
}

TEST(the_same_range_has_one_number_and_is_told_once)
{
	char step[] = "step";

	assert_int_equal(trace_range(step), trace_range("step"));
	assert_int_not_equal(trace_range("step"), trace_range("loss"));
	assert_int_not_equal(trace_range(""), 0);
	for (int i = 0; i < 2; i++)
		names_each_new(TRACE_RANGES, tell_range);
	assert_int_equal(n_ranges_told, 3);
}

START(atomic_store(&trace_on, true))
