#include "test/unit/policy_help.h"

struct policy *good_policy_of(struct policy *policy, struct policy_errors *errors)
{
	if (errors->n)
		fail_msg("%s:%u:%u %s", errors->kept[0].file, errors->kept[0].line, errors->kept[0].column,
			 errors->kept[0].text);
	policy_errors_free(errors);
	return policy;
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

void expect_problems_of(struct policy *policy, struct policy_errors *errors, const char *expected)
{
	char all[65536] = "", line[700];

	for (size_t i = 0; i < errors->n_kept; i++) {
		strcat(all, policy_error_format(&errors->kept[i], line, sizeof(line)));
		strcat(all, "\n");
	}
	assert_string_equal(all, expected);
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
