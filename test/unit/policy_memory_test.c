// SPDX-License-Identifier: Apache-2.0
/*
 * policy_memory_test.c: reading a policy when memory runs out. The linker sends the allocations of the policy module
 * and of libyaml through here (-Wl,--wrap).
 */
#include "policy/parse.h"
#include "test/test.h"

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
char *__wrap_strdup(const char *text);

/* Allocations until the one that fails; 0: none fails. All after it fail too if lasting. */
static unsigned countdown;
static bool lasting;

static bool fails(void)
{
	if (countdown == 0)
		return false;
	if (countdown > 1) {
		countdown--;
		return false;
	}
	if (!lasting)
		countdown = 0;
	return true;
}

void *__wrap_malloc(size_t bytes)
{
	return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return fails() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
	return fails() ? NULL : __real_realloc(memory, bytes);
}

char *__wrap_strdup(const char *text)
{
	return fails() ? NULL : __real_strdup(text);
}

static const char good[] =
    "device: {budget: 1GiB}\ninclude: training\nrules:\n"
    "- {name: a, match: {size: \"< 1MiB\", thread: [a, b], process: p, rank: [2, 0]}, use: heap}\n";
static const char bad[] = "device: {budget: 1}\nfoo: &a 1\nrules:\n- {use: heap}\n- {use: heap}\n- [\n";

/* Fail allocation 1, 2, 3 ... until reading needs no more. A policy comes out whole or not at all. */
static void read_with_failures(const char *text, bool is_good)
{
	for (unsigned n = 1;; n++) {
		struct policy_errors errors;

		countdown = n;
		struct policy *policy = policy_read_text("p.yaml", text, strlen(text), "default=driver", &errors);
		bool done = countdown > 1 || (countdown == 1 && !lasting);
		countdown = 0;
		assert_int_equal(policy == NULL, errors.n_errors > 0);
		if (policy)
			assert_int_equal(policy_n_rules(policy), 4); /* its own, and those of training */
		assert_true(errors.n_kept <= errors.n);
		policy_free(policy);
		policy_errors_free(&errors);
		if (done) {
			assert_int_equal(policy != NULL, is_good);
			return;
		}
		assert_true(n < 10000);
	}
}

TEST(one_allocation_that_fails_is_an_error_or_makes_no_difference)
{
	lasting = false;
	read_with_failures(good, true);
	read_with_failures(bad, false);
}

TEST(no_memory_from_some_point_on_is_an_error_or_makes_no_difference)
{
	lasting = true;
	read_with_failures(good, true);
	read_with_failures(bad, false);
}
