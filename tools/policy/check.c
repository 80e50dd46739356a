// SPDX-License-Identifier: Apache-2.0
/*
 * `spillway check`: parses policies and reports every problem in them.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#include "policy/keys.h"
#include "policy/text.h"
#include "tools/common/json.h"
#include "tools/common/options.h"
#include "tools/common/policy_file.h"
#include "tools/commands.h"
#include "tools/common/tool.h"

enum { GPU_MOST = 63 }; /* as many devices as a rule can name */

struct request {
	const char *set;
	bool json, settings;
};

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

/* ---- the devices of this machine ---- */

static struct policy_device look_at(__typeof__(&cuDeviceGetAttribute) get, CUdevice device)
{
	static const CUdevice_attribute asked[] = {
	    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
	    CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
	    CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
	    CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY,
	    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
	    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
	    CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
	};
	int has[sizeof(asked) / sizeof(*asked)] = {0};

	/* A device lacks an attribute that an older driver does not know. */
	for (unsigned i = 0; i < sizeof(asked) / sizeof(*asked); i++)
		if (get(&has[i], asked[i], device) != CUDA_SUCCESS)
			has[i] = 0;
	return (struct policy_device){
	    .heap = has[0],
	    .heap_on_host = has[1] || has[2],
	    .managed = has[3] && has[4],
	    .pageable = has[5],
	    .registers = has[6],
	};
}

/*
 * Lists the devices through the CUDA driver, which is only asked for attributes: no context is created. Returns how
 * many there are, at most GPU_MOST; 0 if there is no driver or it does not start.
 */
static int look_at_all(struct policy_device ret_devices[GPU_MOST])
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	__typeof__(&cuInit) init = driver ? (__typeof__(&cuInit))dlsym(driver, "cuInit") : NULL;
	__typeof__(&cuDeviceGetCount) count =
	    driver ? (__typeof__(&cuDeviceGetCount))dlsym(driver, "cuDeviceGetCount") : NULL;
	__typeof__(&cuDeviceGetAttribute) get =
	    driver ? (__typeof__(&cuDeviceGetAttribute))dlsym(driver, "cuDeviceGetAttribute") : NULL;
	int n = 0;

	if (!init || !count || !get || init(0) != CUDA_SUCCESS || count(&n) != CUDA_SUCCESS)
		return 0;
	n = n > GPU_MOST ? GPU_MOST : n;
	for (int i = 0; i < n; i++)
		ret_devices[i] = look_at(get, i);
	return n;
}

/* ---- policies ---- */

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

/* Reads a policy and includes warnings about what the devices of this machine, if any, cannot do. */
static struct policy *read_here(const struct request *request, const char *name, struct policy_errors *errors)
{
	struct policy *policy = policy_read(name, request->set, errors);
	static struct policy_device devices[GPU_MOST];
	static int n_devices = -1;

	if (policy && n_devices < 0)
		n_devices = look_at_all(devices);
	if (policy)
		policy_warn_devices(policy, devices, n_devices, errors);
	return policy;
}

static bool check_one_json(struct json *json, const struct request *request, const char *name)
{
	struct policy_errors errors;
	struct policy *policy = read_here(request, name, &errors);
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
	setting_put_all(json, policy);
	json_close(json, '}');
	policy_free(policy);
	policy_errors_free(&errors);
	return good;
}

/* Returns whether the policy is valid. */
static bool check_one(const struct request *request, const char *name)
{
	struct policy_errors errors;
	struct policy *policy = read_here(request, name, &errors);
	bool good = policy != NULL;

	tool_print_errors(&errors);
	if (good && errors.n > 0)
		printf("%s: ok, %zu warning%s\n", name, errors.n, errors.n == 1 ? "" : "s");
	else if (good)
		printf("%s: ok\n", name);
	if (good && request->settings)
		setting_print_all(policy, true);
	policy_free(policy);
	policy_errors_free(&errors);
	return good;
}

static void print_lists(void)
{
	printf("built-in policies:\n ");
	for (const char *const *name = policy_builtin_names(); *name; name++)
		printf(" %s", *name);
	printf("\n\nkeys of a policy (value when absent):\n");
	print_keys(&policy_file_keys);
	printf("\nkeys of a rule:\n");
	print_keys(&policy_rule_keys);
	printf("\nkeys of limits:\n");
	print_keys(&policy_limit_keys);
	printf("\nexample:\n"
	       "  spillway check job.yaml\n");
}

static const struct option_row rows[] = {
    OPTION_TEXT("set", "KEY=VALUE", request, set, "on top of each policy; several with commas between them"),
    OPTION_FLAG("settings", request, settings, "print what is set, where, and what a limit of this machine has cut"),
    OPTION_FLAG("json", request, json, "print all of it as one JSON list to standard output"),
};

static const struct options options = {
    .command = "check",
    OPTION_ROWS(rows),
    .column = 19,
    .head = "usage: spillway check [option...] POLICY...\n\n"
	    "Reads each policy, a file or a built-in one, and prints every error and warning in it;\n"
	    "where there is a driver, also which rules no device here can serve.\n",
    .tail = "Exit status: 0 all are good, 2 one has an error.\n\n",
    .more = print_lists,
};

int tool_check(int argc, char **argv)
{
	struct json writer = JSON_WRITER;
	struct request request = {0};
	int status = options_read(&options, argc, argv, &request), first = optind;
	bool good = true;

	if (status != OPTIONS_GO_ON)
		return status;
	if (first == argc)
		tool_say("no policy given; write `spillway check FILE...`");
	for (int i = first; i < argc && good; i++) {
		good = *argv[i];
		if (!good)
			tool_say("an empty name; write the path of a policy or the name of a built-in one");
	}
	if (first == argc || !good)
		return TOOL_BAD;
	printf(request.json ? "[" : "");
	for (int i = first; i < argc; i++) {
		if (request.json && i > first)
			json_break(&writer, "\n ");
		good &= request.json ? check_one_json(&writer, &request, argv[i]) : check_one(&request, argv[i]);
	}
	printf(request.json ? "]\n" : "");
	return good ? TOOL_OK : TOOL_BAD;
}
