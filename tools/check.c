#include <stdio.h>
#include <string.h>

#include "policy/keys.h"
#include "policy/text.h"
#include "tools/tool.h"

static void print_values(enum policy_set set)
{
	for (const struct policy_value *v = policy_value_next(set, NULL); v; v = policy_value_next(set, v))
		if (*v->help)
			printf("  %-18s  %s: %s\n", "", v->name, v->help);
}

static void print_keys(const struct policy_keys *keys)
{
	for (size_t i = 0; i < keys->n; i++) {
		const struct policy_key *key = &keys->keys[i];

		printf("  %-18s%s", key->name, key->help);
		if (key->standard && *key->standard)
			printf(" (%s)", key->standard);
		printf("\n");
		print_values(key->set);
	}
}

static int print_help(void)
{
	printf("usage: spillway check POLICY...\n\n"
	       "Reads each policy, a file or a built-in one, and prints every error and warning in it.\n"
	       "Exit status: 0 all are good, 2 one has an error.\n\n"
	       "built-in policies:\n ");
	for (const char *const *name = policy_builtin_names(); *name; name++)
		printf(" %s", *name);
	printf("\n\nkeys of a policy (value when absent):\n");
	print_keys(&policy_file_keys);
	printf("\nkeys of a rule:\n");
	print_keys(&policy_rule_keys);
	printf("\nexample:\n"
	       "  spillway check job.yaml\n");
	return TOOL_OK;
}

/* True when the policy is good. */
static bool check_one(const char *name)
{
	struct policy_errors errors;
	struct policy *policy = policy_read(name, NULL, &errors);
	bool good = policy != NULL;

	tool_print_errors(&errors);
	if (good && errors.n > 0)
		printf("%s: ok, %zu warning%s\n", name, errors.n, errors.n == 1 ? "" : "s");
	else if (good)
		printf("%s: ok\n", name);
	policy_free(policy);
	policy_errors_free(&errors);
	return good;
}

int tool_check(int argc, char **argv)
{
	bool good = true, options = true;
	char quoted[POLICY_QUOTED_BYTES];
	int n = 0;

	for (int i = 1; i < argc; i++) {
		if (options && strcmp(argv[i], "--") == 0) {
			options = false;
			continue;
		}
		if (options && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0))
			return print_help();
		if (options && argv[i][0] == '-') {
			tool_say("unknown option %s; `spillway check --help` says what there is",
				 policy_quote(argv[i], quoted));
			return TOOL_BAD;
		}
		if (!*argv[i]) {
			tool_say("an empty name; write the path of a policy or the name of a built-in one");
			return TOOL_BAD;
		}
		good &= check_one(argv[i]);
		n++;
	}
	if (n == 0) {
		tool_say("no policy given; write `spillway check FILE...`");
		return TOOL_BAD;
	}
	return good ? TOOL_OK : TOOL_BAD;
}
