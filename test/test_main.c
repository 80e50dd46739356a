// SPDX-License-Identifier: Apache-2.0
/*
 * The main() of a test program (test.h).
 */
#include "test/test.h"

enum { TESTS_MOST = 256 };

static struct test *first;
static CMFixtureFunction each_set_up, each_tear_down, group_set_up, group_tear_down;

/* By line: which constructor of a file runs first is the compiler's choice. */
void test_add(struct test *test)
{
	struct test **at = &first;

	while (*at && (*at)->line < test->line)
		at = &(*at)->next;
	test->next = *at;
	*at = test;
}

void test_before_all(CMFixtureFunction set_up)
{
	group_set_up = set_up;
}

void test_before_each(CMFixtureFunction set_up)
{
	each_set_up = set_up;
}

void test_after_each(CMFixtureFunction tear_down)
{
	each_tear_down = tear_down;
}

void test_each(CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
	test_before_each(set_up);
	test_after_each(tear_down);
}

void test_group(CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
	test_before_all(set_up);
	group_tear_down = tear_down;
}

int test_run(void)
{
	const char *only = getenv("TEST_ONLY"), *part = getenv("TEST_PART");
	struct CMUnitTest tests[TESTS_MOST];
	size_t n = 0, kth = part ? strtoul(part, NULL, 10) : 0;

	for (struct test *test = first; test && n < TESTS_MOST; test = test->next, n++) {
		tests[n] = test->unit;
		if (!tests[n].setup_func && !tests[n].teardown_func) {
			tests[n].setup_func = each_set_up;
			tests[n].teardown_func = each_tear_down;
		}
	}
	if (!n || n == TESTS_MOST || (part && (kth < 1 || kth > n))) {
		fprintf(stderr, "%zu tests, and TEST_PART is %s\n", n, part ? part : "not set");
		return 1;
	}
	cmocka_set_test_filter(only);
	return _cmocka_run_group_tests("tests", kth ? &tests[kth - 1] : tests, kth ? 1 : n, group_set_up,
				       group_tear_down);
}

__attribute__((weak)) int main(void)
{
	return test_run();
}
