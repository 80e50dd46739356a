/*
 * explain.c: `spillway explain`. Asks a policy about one request that is described on the command line, as the library
 * would, and says why. What is not given is not known, and rules that ask for it do not match; a request without --api,
 * --device and --size is a cudaMalloc of 1 MiB on device 0.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/text.h"
#include "tools/common/json.h"
#include "tools/tool.h"

struct question {
	struct policy_request request;
	const char *policy, *set, *process, *arguments;
	int64_t rank;
	bool json;
};

static int print_help(void)
{
	printf("usage: spillway explain [option...] POLICY\n\n"
	       "Says which rule of a policy decides about an allocation, why not the ones before it, and what would\n"
	       "happen. What is not given is not known, and no rule that asks for it matches.\n\n"
	       "options:\n"
	       "  --size SIZE      bytes asked for (1MiB)\n"
	       "  --api API        malloc, pitch, managed, async, pool, host or vmm (malloc)\n"
	       "  --device N       number of the device (0)\n"
	       "  --lib PATH       the library that calls\n"
	       "  --thread NAME    name of the thread\n"
	       "  --nvtx NAME      name of the NVTX range (see match.nvtx in spillway-policy(5) for when it is known)\n"
	       "  --order N        the how many-th allocation of the process\n"
	       "  --live SIZE      bytes the process has live\n"
	       "  --free SIZE      bytes that may still be allocated on the device\n"
	       "  --process NAME   name of the process\n"
	       "  --args TEXT      its arguments, blanks between them\n"
	       "  --rank N         its rank in a job of several processes\n"
	       "  --set KEY=VALUE  on top of the policy; several with commas between them\n"
	       "  --json           print JSON\n\n"
	       "Exit status: 0 it was explained, 2 wrong usage or an error in the policy.\n\n"
	       "example:\n"
	       "  spillway explain --size 1.5GiB --lib libtorch_cuda.so job.yaml\n");
	return TOOL_OK;
}

/* ---- the request ---- */

enum { OPTION_HELP = 'h', OPTION_FIRST = 256 };
enum option_code {
	OPTION_SIZE = OPTION_FIRST,
	OPTION_API,
	OPTION_DEVICE,
	OPTION_LIB,
	OPTION_THREAD,
	OPTION_NVTX,
	OPTION_ORDER,
	OPTION_LIVE,
	OPTION_FREE,
	OPTION_PROCESS,
	OPTION_ARGS,
	OPTION_RANK,
	OPTION_SET,
	OPTION_JSON,
};

static const struct option options[] = {
    {"size", required_argument, NULL, OPTION_SIZE},     {"api", required_argument, NULL, OPTION_API},
    {"device", required_argument, NULL, OPTION_DEVICE}, {"lib", required_argument, NULL, OPTION_LIB},
    {"thread", required_argument, NULL, OPTION_THREAD}, {"nvtx", required_argument, NULL, OPTION_NVTX},
    {"order", required_argument, NULL, OPTION_ORDER},   {"live", required_argument, NULL, OPTION_LIVE},
    {"free", required_argument, NULL, OPTION_FREE},     {"process", required_argument, NULL, OPTION_PROCESS},
    {"args", required_argument, NULL, OPTION_ARGS},     {"rank", required_argument, NULL, OPTION_RANK},
    {"set", required_argument, NULL, OPTION_SET},       {"json", no_argument, NULL, OPTION_JSON},
    {"help", no_argument, NULL, OPTION_HELP},           {NULL, 0, NULL, 0},
};

/* A plain number of at most most. */
static bool number_read(const char *text, unsigned long long most, unsigned long long *ret_number, char *why)
{
	char quoted[POLICY_QUOTED_BYTES], *end = NULL;
	unsigned long long number = policy_is_digit(*text) && strlen(text) < 20 ? strtoull(text, &end, 10) : 0;

	if (!end || *end || number > most) {
		snprintf(why, POLICY_EXPLAIN_BYTES, "%s is no number from 0 to %llu", policy_quote(text, quoted), most);
		return false;
	}
	*ret_number = number;
	return true;
}

/* Numbers and sizes; the texts are taken as they are. */
static bool value_read(int code, const char *text, struct question *question, char *why)
{
	struct policy_request *request = &question->request;
	unsigned long long number;

	switch (code) {
	case OPTION_SIZE:
		return policy_bytes_read(text, &request->bytes, why);
	case OPTION_LIVE:
		request->known |= POLICY_NEED_LIVE;
		return policy_bytes_read(text, &request->live, why);
	case OPTION_FREE:
		request->known |= POLICY_NEED_FREE;
		return policy_bytes_read(text, &request->device_free, why);
	case OPTION_API:
		return policy_api_read(text, &request->api, why);
	case OPTION_DEVICE:
		if (!number_read(text, 62, &number, why))
			return false;
		request->device = (int)number;
		return true;
	case OPTION_RANK:
		if (!number_read(text, INT64_MAX, &number, why))
			return false;
		question->rank = (int64_t)number;
		return true;
	default:
		if (!number_read(text, UINT64_MAX, &number, why))
			return false;
		request->known |= POLICY_NEED_ORDER;
		request->order = number;
		return true;
	}
}

static bool take(struct question *question, int code, const char *option)
{
	char why[POLICY_EXPLAIN_BYTES];

	switch (code) {
	case OPTION_LIB:
		question->request.library = optarg;
		return true;
	case OPTION_THREAD:
		question->request.thread = optarg;
		return true;
	case OPTION_NVTX:
		question->request.nvtx = optarg;
		return true;
	case OPTION_PROCESS:
		question->process = optarg;
		return true;
	case OPTION_ARGS:
		question->arguments = optarg;
		return true;
	case OPTION_SET:
		question->set = optarg;
		return true;
	case OPTION_JSON:
		question->json = true;
		return true;
	}
	if (value_read(code, optarg, question, why))
		return true;
	tool_say("--%s: %s", option, why);
	return false;
}

/* TOOL_OK: go on; else the status to end with, less than 0 for "help was printed". */
static int question_read(int argc, char **argv, struct question *question)
{
	char quoted[POLICY_QUOTED_BYTES];
	int code, index = 0;

	opterr = 0;
	optind = 0;
	while ((code = getopt_long(argc, argv, ":h", options, &index)) != -1) {
		if (code == OPTION_HELP) {
			print_help();
			return -1;
		}
		if (code == ':') {
			tool_say("option %s needs a value; `spillway explain --help` gives an example",
				 policy_quote(argv[optind - 1], quoted));
			return TOOL_BAD;
		}
		if (code == '?') {
			tool_say("unknown option %s; `spillway explain --help` says what there is",
				 policy_quote(argv[optind - 1], quoted));
			return TOOL_BAD;
		}
		if (!take(question, code, options[index].name))
			return TOOL_BAD;
	}
	if (optind + 1 != argc || !*argv[optind]) {
		tool_say("one policy is needed; write `spillway explain [option...] POLICY`");
		return TOOL_BAD;
	}
	question->policy = argv[optind];
	return TOOL_OK;
}

/* ---- the answer ---- */

/* The same about memory in stream order that is not denied. */
static const char *ordered_not_so(const struct policy *policy, const struct policy_decision *decision)
{
	if (policy_async_use(policy) == POLICY_ASYNC_DRIVER)
		return "async.use: driver, so the driver's pool serves it";
	if (decision->use == POLICY_USE_DRIVER)
		return NULL;
	if (decision->use != POLICY_USE_HEAP)
		return "this use cannot serve in stream order: the next is asked, at last the driver's pool";
	return policy_async_use(policy) == POLICY_ASYNC_AUTO
		   ? "async.use: auto, so the driver's pool serves it while it can; what would exceed device.budget, "
		     "or finds no memory there, is served as said here"
		   : NULL;
}

/* What the library does today, where that is not what the policy says; NULL: just that. */
static const char *not_so(const struct policy *policy, const struct policy_request *request,
			  const struct policy_decision *decision)
{
	if (policy_observe(policy))
		return "observe: yes, so the driver serves it and the decision is only counted";
	switch (request->api) {
	case POLICY_API_MALLOC:
	case POLICY_API_PITCH:
		return NULL;
	case POLICY_API_ASYNC:
	case POLICY_API_POOL:
		if (decision->use == POLICY_USE_DENY)
			return NULL;
		return ordered_not_so(policy, decision);
	case POLICY_API_VMM:
		if (decision->use != POLICY_USE_DRIVER || decision->vmm_spill == POLICY_VMM_DRIVER)
			return NULL;
		return decision->vmm_spill == POLICY_VMM_MOVES
			   ? "vmm.spill: move, so it is memory of the heap, mapped where the program wants it"
			   : "vmm.spill: yes, so over the device budget it is made in host memory";
	default:
		return NULL;
	}
}

static void print_uses(const struct policy_decision *decision, const char *separator, bool quotes)
{
	for (unsigned i = 0; i < decision->n_uses; i++)
		printf("%s%s%s%s", i ? separator : "", quotes ? "\"" : "",
		       policy_use_name((enum policy_use)decision->uses[i]), quotes ? "\"" : "");
}

static bool uses(const struct policy_decision *decision, enum policy_use use)
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

	if (uses(decision, POLICY_USE_HEAP))
		printf("  heap memory is placed: %s; movable: %s\n", policy_place_name(decision->place),
		       policy_movable_name(!decision->movable ? POLICY_MOVABLE_NO
					   : decision->keep   ? POLICY_MOVABLE_EXACT
							      : POLICY_MOVABLE_YES));
	if (decision->cap != POLICY_NO_CAP)
		printf("  at most %s may be live under the rule; what is over goes to the next use\n",
		       policy_size_format(decision->cap, size));
	if (uses(decision, POLICY_USE_MANAGED)) {
		printf("  managed memory: advise ");
		print_advise(decision->managed, ", ", false);
		printf("%s; prefetch %s", decision->managed->advise ? "" : "nothing",
		       policy_prefetch_name((enum policy_prefetch)decision->managed->prefetch));
		if (decision->managed->headroom.kind == POLICY_SIZE_BYTES)
			printf("; headroom %s", policy_size_format(decision->managed->headroom.value, size));
		printf("\n");
	}
	if (uses(decision, POLICY_USE_SYSTEM)) {
		printf("  system memory: register %s; huge pages %s; NUMA node ",
		       decision->system->register_pages ? "yes" : "no", decision->system->huge_pages ? "yes" : "no");
		if (decision->system->numa_node == POLICY_NODE_AUTO)
			printf("auto\n");
		else
			printf("%d\n", decision->system->numa_node);
	}
}

static void print_text(const struct policy *policy, const struct policy_request *request,
		       const struct policy_decision *decision)
{
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
	const struct policy_size headroom = decision->managed->headroom;
	struct json writer = JSON_WRITER, *json = &writer;

	json_open(json, NULL, '{');
	json_number(json, "schema", 1);
	json_text(json, "policy", policy_name(policy));
	put_rules(json, policy, request, decision->rule < 0 ? (int)policy_n_rules(policy) : decision->rule);
	json_integer_or_null(json, "rule", decision->rule + 1, decision->rule >= 0);
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
	json_number_or_null(json, "headroom", headroom.value, headroom.kind == POLICY_SIZE_BYTES);
	json_close(json, '}');
	json_open(json, "system", '{');
	json_truth(json, "register", decision->system->register_pages);
	json_truth(json, "huge_pages", decision->system->huge_pages);
	json_integer_or_null(json, "numa_node", decision->system->numa_node,
			     decision->system->numa_node != POLICY_NODE_AUTO);
	json_close(json, '}');
	json_text(json, "note", not_so(policy, request, decision));
	json_close(json, '}');
	putchar('\n');
}

int tool_explain(int argc, char **argv)
{
	struct question question = {.request = {.bytes = 1 << 20}, .rank = POLICY_NO_RANK};
	int status = question_read(argc, argv, &question);
	struct policy_decision decision;
	struct policy_errors errors;
	struct policy *policy;

	if (status != TOOL_OK)
		return status < 0 ? TOOL_OK : status;
	policy = policy_read(question.policy, question.set, &errors);
	tool_print_errors(&errors);
	policy_errors_free(&errors);
	if (!policy)
		return TOOL_BAD;
	policy_bind(policy, question.process, question.arguments, question.rank);
	decision = policy_decide(policy, &question.request);
	if (question.json)
		print_json(policy, &question.request, &decision);
	else
		print_text(policy, &question.request, &decision);
	policy_free(policy);
	return TOOL_OK;
}
