// SPDX-License-Identifier: Apache-2.0
/*
 * test.h: tests that register themselves, over cmocka. They run in the order of the file.
 *
 *   TEST(a_promise)                             a test; its body follows
 *   TEST_WITH(a_promise, set_up, tear_down)     one with functions of its own before and after it, each may be NULL
 *   EACH_TEST(set_up, tear_down)                for every test that has none of its own; stands behind these functions
 *   GROUP(set_up, tear_down)                    before the first test, and after the last one
 *   FIXTURE(set_up)                             a function for these; its body follows
 *   BEFORE_ALL, BEFORE_EACH, AFTER_EACH         the same without a name; the body follows
 *
 * The program's main() is in test_main.c. One that has to do more has a main() of its own, which calls test_run();
 * START(statement) is one that does this first.
 * TEST_ONLY=PATTERN in the environment: the tests of such names alone; TEST_PART=K: the K-th test alone.
 */
#ifndef TEST_TEST_H
#define TEST_TEST_H

#include "test/libc.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct test {
	struct CMUnitTest unit;
	unsigned line;
	struct test *next;
};

void test_add(struct test *test);
void test_each(CMFixtureFunction set_up, CMFixtureFunction tear_down);
void test_group(CMFixtureFunction set_up, CMFixtureFunction tear_down);
void test_before_all(CMFixtureFunction set_up);
void test_before_each(CMFixtureFunction set_up);
void test_after_each(CMFixtureFunction tear_down);
int test_run(void); /* as cmocka_run_group_tests(): how many failed */

#define TEST_WITH(name, set_up, tear_down)                                                                             \
	static void name(void **state);                                                                                \
	__attribute__((constructor)) static void test_add_##name(void)                                                 \
	{                                                                                                              \
		static struct test test = {{#name, name, set_up, tear_down, NULL}, __LINE__, NULL};                    \
                                                                                                                       \
		test_add(&test);                                                                                       \
	}                                                                                                              \
	static void name(void **state __attribute__((unused)))

#define TEST(name) TEST_WITH(name, NULL, NULL)

#define EACH_TEST(set_up, tear_down)                                                                                   \
	__attribute__((constructor)) static void test_each_here(void)                                                  \
	{                                                                                                              \
		test_each(set_up, tear_down);                                                                          \
	}

#define GROUP(set_up, tear_down)                                                                                       \
	__attribute__((constructor)) static void test_group_here(void)                                                 \
	{                                                                                                              \
		test_group(set_up, tear_down);                                                                         \
	}

#define FIXTURE(name)                                                                                                  \
	static void name##_body(void);                                                                                 \
	static int name(void **state __attribute__((unused)))                                                          \
	{                                                                                                              \
		name##_body();                                                                                         \
		return 0;                                                                                              \
	}                                                                                                              \
	static void name##_body(void)

#define TEST_AROUND(when)                                                                                              \
	static int when##_here(void **state);                                                                          \
	__attribute__((constructor)) static void test_##when##_here(void)                                              \
	{                                                                                                              \
		test_##when(when##_here);                                                                              \
	}                                                                                                              \
	FIXTURE(when##_here)
#define BEFORE_ALL  TEST_AROUND(before_all)
#define BEFORE_EACH TEST_AROUND(before_each)
#define AFTER_EACH  TEST_AROUND(after_each)

#define START(statement)                                                                                               \
	int main(void)                                                                                                 \
	{                                                                                                              \
		statement;                                                                                             \
		return test_run();                                                                                     \
	}

#endif
