// SPDX-License-Identifier: Apache-2.0
/*
 * explain.c: `spillway explain`. Evaluates a policy for one request described on the command line, as the library
 * would, and explains the decision. Properties that are not given are unknown, and rules that test them do not match.
 * A request without --api, --device and --size is a cudaMalloc of 1 MiB on device 0.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "policy/text.h"
#include "tools/common/json.h"
#include "tools/common/options.h"
#include "tools/common/policy_file.h"
#include "tools/commands.h"
#include "tools/common/tool.h"

struct question {
	struct policy_request request;
	const char *policy, *set, *process, *arguments;
	int64_t rank;
	bool json, settings;
};

/* ---- the request ---- */

enum { READ_SIZE, READ_API, READ_DEVICE, READ_ORDER, READ_LIVE, READ_FREE, READ_RANK };

static bool value_read(void *argument, int code, const char *text, char *why)
{
	struct question *question = argument;
	struct policy_request *request = &question->request;
	uint64_t number;

	switch (code) {
	case READ_SIZE:
		return policy_bytes_read(text, &request->bytes, why);
	case READ_LIVE:
		request->known |= POLICY_NEED_LIVE;
		return policy_bytes_read(text, &request->live, why);
	case READ_FREE:
		request->known |= POLICY_NEED_FREE;
		return policy_bytes_read(text, &request->device_free, why);
	case READ_API:
		return policy_api_read(text, &request->api, why);
	case READ_DEVICE:
		if (!options_whole(text, 0, 62, &number, why))
			return false;
		request->device = (int)number;
		return true;
	case READ_RANK:
		if (!options_whole(text, 0, INT64_MAX, &number, why))
			return false;
		question->rank = (int64_t)number;
		return true;
	default:
		if (!options_whole(text, 0, UINT64_MAX, &number, why))
			return false;
		request->known |= POLICY_NEED_ORDER;
		request->order = number;
		return true;
	}
}

static const struct option_row rows[] = {
    OPTION_READ("size", "SIZE", value_read, READ_SIZE, "bytes asked for (1MiB)"),
    OPTION_READ("api", "API", value_read, READ_API, "malloc, pitch, managed, async, pool, host or vmm (malloc)"),
    OPTION_READ("device", "N", value_read, READ_DEVICE, "number of the device (0)"),
    OPTION_TEXT("lib", "PATH", question, request.library, "the library that calls"),
    OPTION_TEXT("caller", "TEXT", question, request.caller, "place in the program that asks: train.py:57 in forward"),
    OPTION_TEXT("thread", "NAME", question, request.thread, "name of the thread"),
    OPTION_READ("order", "N", value_read, READ_ORDER, "number of the allocation in its process, from 1"),
    OPTION_READ("live", "SIZE", value_read, READ_LIVE, "bytes the process has live"),
    OPTION_READ("free", "SIZE", value_read, READ_FREE, "bytes that may still be allocated on the device"),
    OPTION_TEXT("process", "NAME", question, process, "name of the process"),
    OPTION_TEXT("args", "TEXT", question, arguments, "its arguments, blanks between them"),
    OPTION_READ("rank", "N", value_read, READ_RANK, "its rank in a job of several processes"),
    OPTION_TEXT("set", "KEY=VALUE", question, set, "on top of the policy; several with commas between them"),
    OPTION_FLAG("settings", question, settings,
		"print what is set, and where; without it only what this machine limits"),
    OPTION_FLAG("json", question, json, "print JSON"),
};

static const struct options options = {
    .command = "explain",
    OPTION_ROWS(rows),
    .column = 19,
    .head = "usage: spillway explain [option...] POLICY\n\n"
	    "Says which rule of a policy decides about an allocation, why not the ones before it, and what would\n"
	    "happen. What is not given is not known, and no rule that asks for it matches.\n",
    .tail = "Exit status: 0 it was explained, 2 wrong usage or an error in the policy.\n\n"
	    "example:\n"
	    "  spillway explain --size 1.5GiB --lib libtorch_cuda.so job.yaml\n",
};

/* Returns OPTIONS_GO_ON, or the exit status. */
static int question_read(int argc, char **argv, struct question *question)
{
	int status = options_read(&options, argc, argv, question);

	if (status != OPTIONS_GO_ON)
		return status;
	if (optind + 1 != argc || !*argv[optind])
		return tool_bad("one policy is needed; write `spillway explain [option...] POLICY`");
	question->policy = argv[optind];
	return OPTIONS_GO_ON;
}

/* ---- the answer ---- */

/* Like not_so(), for stream-ordered memory that is not denied. */
static const char *ordered_not_so(const struct policy *policy, const struct policy_decision *decision)
{
	if (policy_settings(policy)->async_use == POLICY_ASYNC_DRIVER)
		return "async.use: driver, so the driver's pool serves it";
	if (decision->use == POLICY_USE_DRIVER)
		return NULL;
	if (decision->use != POLICY_USE_HEAP)
		return "this use cannot serve in stream order: the next is asked, at last the driver's pool";
	return policy_settings(policy)->async_use == POLICY_ASYNC_AUTO
		   ? "async.use: auto, so the driver's pool serves it while it can; what would exceed device.budget, "
		     "or finds no memory there, is served as said here"
		   : NULL;
}

/* Returns what the library does now if it differs from the policy's decision; NULL if it does not differ. */
static const char *not_so(const struct policy *policy, const struct policy_request *request,
			  const struct policy_decision *decision)
{
	if (policy_settings(policy)->observe)
		return "observe: yes, so the driver serves it and the decision is only counted";
	if ((request->api == POLICY_API_ASYNC || request->api == POLICY_API_POOL) && decision->use != POLICY_USE_DENY)
		return ordered_not_so(policy, decision);
	if (request->api == POLICY_API_VMM && decision->use == POLICY_USE_DRIVER &&
	    decision->vmm_spill != POLICY_VMM_DRIVER)
		return "vmm.spill: move, so it is memory of the heap, mapped where the program wants it";
	return NULL;
}

static void print_uses(const struct policy_decision *decision, const char *separator, bool quotes)
{
	for (unsigned i = 0; i < decision->n_uses; i++)
		printf("%s%s%s%s", i ? separator : "", quotes ? "\"" : "",
		       policy_use_name((enum policy_use)decision->uses[i]), quotes ? "\"" : "");
}

static bool explain_uses(const struct policy_decision *decision, enum policy_use use)
{
	return memchr(decision->uses, (int)use, decision->n_uses) != NULL;
}

static void print_advise(const struct policy_managed *managed, const char *separator, bool quotes)
{
	const char *before = "";

	for (int i = 0; i <= POLICY_ADVISE_READ_MOSTLY; i++) {
		if (!(managed->advise & 1 << i))
			continue;
		printf("%s%s%s%s", before, quotes ? "\"" : "", policy_advise_name((enum policy_advise)i),
		       quotes ? "\"" : "");
		before = separator;
	}
}

static void print_settings(const struct policy_decision *decision)
{
	char size[POLICY_SIZE_BYTES_TEXT];

	if (explain_uses(decision, POLICY_USE_HEAP))
		printf("  heap memory is placed: %s; movable: %s\n", policy_place_name(decision->place),
		       policy_movable_name(!decision->movable ? POLICY_MOVABLE_NO
					   : decision->keep   ? POLICY_MOVABLE_EXACT
							      : POLICY_MOVABLE_YES));
	if (decision->cap != POLICY_NO_CAP)
		printf("  at most %s may be live under the rule; what is over goes to the next use\n",
		       policy_size_format(decision->cap, size));
	if (decision->spill_limit.kind == POLICY_SIZE_BYTES)
		printf("  refused if more than %s would lie beyond the device budget\n",
		       policy_size_format(decision->spill_limit.value, size));
	else if (decision->spill_limit.kind == POLICY_SIZE_PERCENT)
		printf("  refused if more than %g%% of the device budget would lie beyond it\n",
		       (double)decision->spill_limit.value / 100);
	if (explain_uses(decision, POLICY_USE_MANAGED)) {
		printf("  managed memory: advise ");
		print_advise(decision->managed, ", ", false);
		printf("%s; prefetch %s", decision->managed->advise ? "" : "nothing",
		       policy_prefetch_name((enum policy_prefetch)decision->managed->prefetch));
		printf("\n");
	}
	if (explain_uses(decision, POLICY_USE_SYSTEM)) {
		printf("  system memory: register %s; huge pages %s; NUMA node ",
		       decision->system->register_pages ? "yes" : "no", decision->system->huge_pages ? "yes" : "no");
		if (decision->system->numa_node == POLICY_NODE_AUTO)
			printf("auto\n");
		else
			printf("%d\n", decision->system->numa_node);
	}
}

static void print_text(const struct policy *policy, const struct question *question,
		       const struct policy_decision *decision)
{
	const struct policy_request *request = &question->request;
	int n = decision->rule < 0 ? (int)policy_n_rules(policy) : decision->rule;
	const char *note = not_so(policy, request, decision);
	char why[POLICY_EXPLAIN_BYTES];

	for (int i = 0; i < n; i++) {
		policy_explain(policy, i, request, why);
		printf("rule %d (%s): no, %s\n", i + 1, policy_rule_name(policy, i), why);
	}
	if (decision->rule < 0)
		printf("no rule matches: %s\n", POLICY_APIS_ANY & 1 << request->api
						    ? "the default holds"
						    : "no rule that names the api, so the driver serves it");
	else
		printf("rule %d (%s): yes\n", decision->rule + 1, policy_rule_name(policy, decision->rule));
	printf("use: ");
	print_uses(decision, ", then ", false);
	printf("\n");
	print_settings(decision);
	setting_print_all(policy, question->settings);
	if (note)
		printf("note: %s\n", note);
}

static void put_rules(struct json *json, const struct policy *policy, const struct policy_request *request, int n)
{
	char why[POLICY_EXPLAIN_BYTES];

	json_open(json, "passed_over", '[');
	for (int i = 0; i < n; i++) {
		policy_explain(policy, i, request, why);
		json_open(json, NULL, '{');
		json_number(json, "rule", (uint64_t)i + 1);
		json_text(json, "name", policy_rule_name(policy, i));
		json_text(json, "why", why);
		json_close(json, '}');
	}
	json_close(json, ']');
}

static void print_json(const struct policy *policy, const struct policy_request *request,
		       const struct policy_decision *decision)
{
	struct json writer = JSON_WRITER, *json = &writer;

	json_open(json, NULL, '{');
	json_number(json, "schema", 1);
	json_text(json, "policy", policy_name(policy));
	put_rules(json, policy, request, decision->rule < 0 ? (int)policy_n_rules(policy) : decision->rule);
	json_real_or_null(json, "rule", decision->rule + 1, 0, decision->rule >= 0);
	json_text(json, "name", policy_rule_name(policy, decision->rule));
	json_open(json, "use", '[');
	print_uses(decision, ", ", true);
	json_close(json, ']');
	json_text(json, "place", policy_place_name(decision->place));
	json_truth(json, "movable", decision->movable);
	json_number_or_null(json, "cap", decision->cap, decision->cap != POLICY_NO_CAP);
	json_open(json, "managed", '{');
	json_open(json, "advise", '[');
	print_advise(decision->managed, ", ", true);
	json_close(json, ']');
	json_text(json, "prefetch", policy_prefetch_name((enum policy_prefetch)decision->managed->prefetch));
	json_close(json, '}');
	json_open(json, "system", '{');
	json_truth(json, "register", decision->system->register_pages);
	json_truth(json, "huge_pages", decision->system->huge_pages);
	json_real_or_null(json, "numa_node", decision->system->numa_node, 0,
			  decision->system->numa_node != POLICY_NODE_AUTO);
	json_close(json, '}');
	setting_put_all(json, policy);
	json_text(json, "note", not_so(policy, request, decision));
	json_close(json, '}');
	putchar('\n');
}

int tool_explain(int argc, char **argv)
{
	struct question question = {.request = {.bytes = 1 << 20}, .rank = POLICY_NO_RANK};
	int status = question_read(argc, argv, &question);
	struct policy_errors errors;
	struct policy *policy;

	if (status != OPTIONS_GO_ON)
		return status;
	policy = policy_read(question.policy, question.set, &errors);
	tool_print_errors(&errors);
	policy_errors_free(&errors);
	if (!policy)
		return TOOL_BAD;
	policy_bind(policy, question.process, question.arguments, question.rank);
	struct policy_decision decision = policy_decide(policy, &question.request);
	if (question.json)
		print_json(policy, &question.request, &decision);
	else
		print_text(policy, &question, &decision);
	policy_free(policy);
	return TOOL_OK;
}
