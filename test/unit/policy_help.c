// SPDX-License-Identifier: Apache-2.0
#include "test/unit/policy_help.h"

static struct policy *kept[4096];
static size_t n_kept;

AFTER_EACH
{
	while (n_kept)
		policy_free(kept[--n_kept]);
}

static struct policy *keep(struct policy *policy)
{
	assert_non_null(policy);
	assert_true(n_kept < sizeof(kept) / sizeof(*kept));
	return kept[n_kept++] = policy;
}

static struct policy *good_policy_of(struct policy *policy, struct policy_errors *errors)
{
	if (errors->n)
		fail_msg("%s:%u:%u %s", errors->kept[0].file, errors->kept[0].line, errors->kept[0].column,
			 errors->kept[0].text);
	policy_errors_free(errors);
	return keep(policy);
}

struct policy *good_policy_set(const char *text, const char *set)
{
	struct policy_errors errors;
	struct policy *policy = policy_read_text("p.yaml", text, strlen(text), set, &errors);

	return good_policy_of(policy, &errors);
}

struct policy *good_policy(const char *text)
{
	return good_policy_set(text, NULL);
}

struct policy *good_policy_read(const char *name, const char *set)
{
	struct policy_errors errors;
	struct policy *policy = policy_read(name, set, &errors);

	return good_policy_of(policy, &errors);
}

struct policy *any_policy(const char *text)
{
	struct policy_errors errors;
	struct policy *policy = policy_read_text("p.yaml", text, strlen(text), NULL, &errors);

	policy_errors_free(&errors);
	return keep(policy);
}

struct policy *any_policy_read(const char *name, const char *set)
{
	struct policy_errors errors;
	struct policy *policy = policy_read(name, set, &errors);

	policy_errors_free(&errors);
	return keep(policy);
}

const struct policy_settings *good_settings(const char *text, const char *set)
{
	return policy_settings(good_policy_set(text, set));
}

const char *problems_of(const struct policy_errors *errors)
{
	static char all[65536];
	char line[700];

	*all = '\0';
	for (size_t i = 0; i < errors->n_kept; i++) {
		strcat(all, policy_error_format(&errors->kept[i], line, sizeof(line)));
		strcat(all, "\n");
	}
	return all;
}

void expect_problems_of(struct policy *policy, struct policy_errors *errors, const char *expected)
{
	assert_string_equal(problems_of(errors), expected);
	assert_int_equal(policy == NULL, errors->n_errors > 0);
	policy_free(policy);
	policy_errors_free(errors);
}

void expect_problems_set(const char *text, const char *set, const char *expected)
{
	struct policy_errors errors;
	struct policy *policy = policy_read_text("p.yaml", text, strlen(text), set, &errors);

	expect_problems_of(policy, &errors, expected);
}

void expect_problems(const char *text, const char *expected)
{
	expect_problems_set(text, NULL, expected);
}

void expect_problems_read(const char *name, const char *expected)
{
	struct policy_errors errors;
	struct policy *policy = policy_read(name, NULL, &errors);

	expect_problems_of(policy, &errors, expected);
}

char own_folder[64];

int enter_folder(void **state)
{
	strcpy(own_folder, "/tmp/policy_test.XXXXXX");
	return mkdtemp(own_folder) ? chdir(own_folder) : -1;
}

int leave_folder(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", own_folder);
	return chdir("/") || system(command);
}

void write_file(const char *name, const char *text)
{
	FILE *file = fopen(name, "w");

	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
	assert_int_equal(fclose(file), 0);
}
