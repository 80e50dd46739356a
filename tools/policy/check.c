#include <stdio.h>
#include <string.h>

#include "policy/keys.h"
#include "policy/text.h"
#include "tools/common/gpu.h"
#include "tools/common/json.h"
#include "tools/commands.h"
#include "tools/common/tool.h"

static void print_values(enum policy_set set)
{
	if (set == POLICY_SET_NONE)
		return;
	for (const struct policy_value *v = policy_value_next(set, NULL); v; v = policy_value_next(set, v))
		if (*v->help)
			printf("  %-24s  %s: %s\n", "", v->name, v->help);
}

static void print_keys(const struct policy_keys *keys)
{
	for (size_t i = 0; i < keys->n; i++) {
		const struct policy_key *key = &keys->keys[i];

		printf("  %-24s%s", key->name, key->help);
		if (key->standard && *key->standard)
			printf(" (%s)", key->standard);
		printf("\n");
		print_values(key->set);
	}
}

static int print_help(void)
{
	printf("usage: spillway check [option...] POLICY...\n\n"
	       "Reads each policy, a file or a built-in one, and prints every error and warning in it;\n"
	       "where there is a driver, also which rules no device here can serve.\n\n"
	       "options:\n"
	       "  --json           print all of it as one JSON list to standard output\n\n"
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

static void put_problem(struct json *json, const struct policy_error *problem)
{
	json_open(json, NULL, '{');
	json_text(json, "file", problem->file);
	json_number(json, "line", problem->line);
	json_number(json, "column", problem->column);
	json_text(json, "severity", problem->warning ? "warning" : "error");
	json_text(json, "text", problem->text);
	json_close(json, '}');
}

/* With what the devices of this machine, if there are any, cannot do. */
static struct policy *read_here(const char *name, struct policy_errors *errors)
{
	struct policy *policy = policy_read(name, NULL, errors);
	const struct policy_device *devices;
	int n = policy ? gpu_devices(&devices) : 0;

	if (n)
		policy_warn_devices(policy, devices, n, errors);
	return policy;
}

static bool check_one_json(struct json *json, const char *name)
{
	struct policy_errors errors;
	struct policy *policy = read_here(name, &errors);
	bool good = policy != NULL;

	json_open(json, NULL, '{');
	json_number(json, "schema", 1);
	json_text(json, "policy", name);
	json_truth(json, "ok", good);
	json_number(json, "errors", errors.n_errors);
	json_number(json, "warnings", errors.n - errors.n_errors);
	json_open(json, "problems", '[');
	for (size_t i = 0; i < errors.n_kept; i++)
		put_problem(json, &errors.kept[i]);
	json_close(json, ']');
	json_close(json, '}');
	policy_free(policy);
	policy_errors_free(&errors);
	return good;
}

/* True when the policy is good. */
static bool check_one(const char *name)
{
	struct policy_errors errors;
	struct policy *policy = read_here(name, &errors);
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

/* Does argv[at] name a policy? *ret_status is what to end with where it cannot be used at all, else TOOL_OK. */
static bool is_policy(const char *argument, bool options, int *ret_status)
{
	char quoted[POLICY_QUOTED_BYTES];

	*ret_status = TOOL_BAD;
	if (options && argument[0] == '-')
		tool_say("unknown option %s; `spillway check --help` says what there is",
			 policy_quote(argument, quoted));
	else if (!*argument)
		tool_say("an empty name; write the path of a policy or the name of a built-in one");
	else
		*ret_status = TOOL_OK;
	return *ret_status == TOOL_OK;
}

/* The names of policies to the front of argv. Returns how many, or less than 0: end with *ret_status. */
static int names_read(int argc, char **argv, bool *ret_json, int *ret_status)
{
	bool options = true;
	int n = 0;

	for (int i = 1; i < argc; i++) {
		if (options && strcmp(argv[i], "--") == 0) {
			options = false;
		} else if (options && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) {
			*ret_status = print_help();
			return -1;
		} else if (options && strcmp(argv[i], "--json") == 0) {
			*ret_json = true;
		} else if (!is_policy(argv[i], options, ret_status)) {
			return -1;
		} else {
			argv[n++] = argv[i];
		}
	}
	if (n > 0)
		return n;
	tool_say("no policy given; write `spillway check FILE...`");
	*ret_status = TOOL_BAD;
	return -1;
}

int tool_check(int argc, char **argv)
{
	struct json writer = JSON_WRITER;
	bool good = true, json = false;
	int status, n = names_read(argc, argv, &json, &status);

	if (n < 0)
		return status;
	printf(json ? "[" : "");
	for (int i = 0; i < n; i++) {
		if (json && i)
			json_break(&writer, "\n ");
		good &= json ? check_one_json(&writer, argv[i]) : check_one(argv[i]);
	}
	printf(json ? "]\n" : "");
	return good ? TOOL_OK : TOOL_BAD;
}
