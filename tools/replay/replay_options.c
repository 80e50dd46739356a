#include "tools/replay/replay_sweep.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/text.h"
#include "tools/tool.h"

/* Of a pair of copies, one each way at once: H200, PCIe 5 x16. */
#define LINK 50.6

static int print_help(void)
{
	printf(
	    "usage: spillway replay [option...] TRACE\n\n"
	    "Predicts, without a GPU, what a recorded job would cost with less device memory: peak, bytes moved and\n"
	    "the time of a step for each budget, and the smallest budget within 10 %% of full speed.\n"
	    "TRACE is made by `spillway run --trace`, or is a log of RMM's, or what torch_snapshot.py makes of a\n"
	    "memory snapshot of PyTorch's; the last two say nothing of time.\n\n"
	    "options:\n"
	    "  --budget LIST         device budgets, SIZE or N%% of the job's peak, with commas between (100%% .. "
	    "40%%)\n"
	    "  --mode MODE           off, static, exact or fast (what the policy named here says,\n"
	    "                        else what the trace was recorded in)\n"
	    "  --policy POLICY       decide about each allocation by this policy (heap)\n"
	    "  --set KEY=VALUE       on top of the policy; several with commas between them\n"
	    "  --host-budget SIZE    host memory that may be taken (as much as it takes)\n"
	    "  --link GB/S           what the link carries each way while both are busy (%.1f);\n"
	    "                        half of what `spillway doctor` measures both ways together\n"
	    "  --step-time MS        what a step takes with all of it in device memory (what the trace says)\n"
	    "  --steps N             how many of the last steps count (%d)\n"
	    "  --device N            of which device (the one with the most memory allocated)\n"
	    "  --json                print JSON\n"
	    "  --svg FILE            draw the curve, too\n"
	    "  --write-policy FILE   write a policy for the smallest good budget\n\n"
	    "Files that are there are not overwritten.\n"
	    "Exit status: 0 all was answered, 1 the job cannot run under a budget, 2 wrong usage or no trace.\n\n"
	    "examples:\n"
	    "  spillway replay --mode fast job.trace\n"
	    "  spillway replay --budget 8GiB,75%% --svg curve.svg --write-policy job.yaml job.trace\n",
	    LINK, REPLAY_STEPS);
	return TOOL_OK;
}

enum option_code {
	OPTION_BUDGET = 256,
	OPTION_MODE,
	OPTION_POLICY,
	OPTION_SET,
	OPTION_HOST_BUDGET,
	OPTION_LINK,
	OPTION_STEP_TIME,
	OPTION_STEPS,
	OPTION_DEVICE,
	OPTION_JSON,
	OPTION_SVG,
	OPTION_WRITE_POLICY,
};

static const struct option options[] = {
    {"budget", required_argument, NULL, OPTION_BUDGET},
    {"mode", required_argument, NULL, OPTION_MODE},
    {"policy", required_argument, NULL, OPTION_POLICY},
    {"set", required_argument, NULL, OPTION_SET},
    {"host-budget", required_argument, NULL, OPTION_HOST_BUDGET},
    {"link", required_argument, NULL, OPTION_LINK},
    {"step-time", required_argument, NULL, OPTION_STEP_TIME},
    {"steps", required_argument, NULL, OPTION_STEPS},
    {"device", required_argument, NULL, OPTION_DEVICE},
    {"json", no_argument, NULL, OPTION_JSON},
    {"svg", required_argument, NULL, OPTION_SVG},
    {"write-policy", required_argument, NULL, OPTION_WRITE_POLICY},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/*
 * Digits, perhaps a point and at most two more, as hundredths; 0 < value <= most. The end of it at *ret_end. False:
 * it is no such number.
 */
static bool hundredths(const char *text, uint64_t most, uint64_t *ret_value, const char **ret_end)
{
	uint64_t value = 0;
	const char *c = text;

	for (; policy_is_digit(*c) && value <= most; c++)
		value = value * 10 + (uint64_t)(*c - '0');
	if (c == text || value > most)
		return false;
	value *= 100;
	if (*c == '.') {
		const char *point = c++;

		for (uint64_t share = 10; policy_is_digit(*c) && share; share /= 10, c++)
			value += share * (uint64_t)(*c - '0');
		if (c == point + 1)
			return false;
	}
	*ret_value = value;
	*ret_end = c;
	return value > 0 && value <= most * 100;
}

static bool positive(const char *text, uint64_t most, double *ret_value, char *why)
{
	char quoted[POLICY_QUOTED_BYTES];
	const char *end;
	uint64_t value;

	if (hundredths(text, most, &value, &end) && !*end) {
		*ret_value = (double)value / 100;
		return true;
	}
	snprintf(why, POLICY_EXPLAIN_BYTES,
		 "%s is no number above 0 and up to %llu, with at most two digits behind the point",
		 policy_quote(text, quoted), (unsigned long long)most);
	return false;
}

static bool whole(const char *text, unsigned least, unsigned most, uint64_t *ret_value, char *why)
{
	char quoted[POLICY_QUOTED_BYTES], *end = NULL;
	unsigned long value = policy_is_digit(*text) && strlen(text) < 10 ? strtoul(text, &end, 10) : 0;

	if (end && !*end && value >= least && value <= most) {
		*ret_value = value;
		return true;
	}
	snprintf(why, POLICY_EXPLAIN_BYTES, "%s is no number from %u to %u", policy_quote(text, quoted), least, most);
	return false;
}

/* "8GiB", or "75%" of the peak. */
static bool one_budget(const char *text, struct replay_budget *ret_budget, char *why)
{
	char quoted[POLICY_QUOTED_BYTES];
	const char *end;
	uint64_t value;

	*ret_budget = (struct replay_budget){0};
	if (hundredths(text, 1000, &value, &end) && strcmp(end, "%") == 0) {
		ret_budget->percent = value;
		return true;
	}
	if (text[0] && text[strlen(text) - 1] == '%') {
		snprintf(why, POLICY_EXPLAIN_BYTES, "%s is no share of the peak above 0 %% and up to 1000 %%",
			 policy_quote(text, quoted));
		return false;
	}
	if (!policy_bytes_read(text, &ret_budget->bytes, why))
		return false;
	if (ret_budget->bytes >= JOB_UNIT)
		return true;
	snprintf(why, POLICY_EXPLAIN_BYTES, "%s is less than one piece of the heap; write 2MiB or more",
		 policy_quote(text, quoted));
	return false;
}

static bool budgets(const char *text, struct replay_request *request, char *why)
{
	char copy[1024], *rest = copy;

	if (strlen(text) >= sizeof(copy)) {
		snprintf(why, POLICY_EXPLAIN_BYTES, "the list is too long");
		return false;
	}
	strcpy(copy, text);
	for (char *one; (one = strsep(&rest, ","));) {
		if (request->n_budgets == sizeof(request->budgets) / sizeof(*request->budgets)) {
			snprintf(why, POLICY_EXPLAIN_BYTES, "these are too many");
			return false;
		}
		if (!one_budget(one, &request->budgets[request->n_budgets], why))
			return false;
		request->n_budgets++;
	}
	return true;
}

static bool mode(const char *text, enum policy_spill *ret_mode, char *why)
{
	char quoted[POLICY_QUOTED_BYTES];

	for (int m = 0; m < POLICY_SPILL_COUNT; m++)
		if (strcmp(text, policy_spill_name((enum policy_spill)m)) == 0) {
			*ret_mode = (enum policy_spill)m;
			return true;
		}
	snprintf(why, POLICY_EXPLAIN_BYTES, "%s is none of off, static, exact and fast", policy_quote(text, quoted));
	return false;
}

static bool take(struct replay_request *request, int code, char *why)
{
	uint64_t number;

	switch (code) {
	case OPTION_BUDGET:
		return budgets(optarg, request, why);
	case OPTION_MODE:
		return mode(optarg, &request->mode, why);
	case OPTION_HOST_BUDGET:
		return policy_bytes_read(optarg, &request->host_budget, why);
	case OPTION_LINK:
		return positive(optarg, 100000, &request->link, why);
	case OPTION_STEP_TIME:
		return positive(optarg, 1000000000, &request->step_ms, why);
	case OPTION_STEPS:
		return whole(optarg, 1, 1000000, &request->steps, why);
	case OPTION_DEVICE:
		if (!whole(optarg, 0, REPLAY_DEVICES - 1, &number, why))
			return false;
		request->device = (uint32_t)number;
		return true;
	case OPTION_POLICY:
		request->policy_name = optarg;
		return true;
	case OPTION_SET:
		request->set = optarg;
		return true;
	case OPTION_SVG:
		request->svg = optarg;
		return true;
	case OPTION_WRITE_POLICY:
		request->write = optarg;
		return true;
	default:
		request->json = true;
		return true;
	}
}

int replay_options(int argc, char **argv, struct replay_request *ret_request)
{
	char quoted[POLICY_QUOTED_BYTES], why[POLICY_EXPLAIN_BYTES];
	int code, index = 0;

	*ret_request = (struct replay_request){.mode = POLICY_SPILL_COUNT,
					       .host_budget = UINT64_MAX,
					       .link = LINK,
					       .steps = REPLAY_STEPS,
					       .device = REPLAY_NONE};
	opterr = 0;
	optind = 0;
	while ((code = getopt_long(argc, argv, ":h", options, &index)) != -1) {
		if (code == 'h') {
			print_help();
			return -1;
		}
		if (code == ':') {
			tool_say("option %s needs a value", policy_quote(argv[optind - 1], quoted));
			return TOOL_BAD;
		}
		if (code == '?') {
			tool_say("unknown option %s; `spillway replay --help` says what there is",
				 policy_quote(argv[optind - 1], quoted));
			return TOOL_BAD;
		}
		if (!take(ret_request, code, why)) {
			tool_say("--%s: %s", options[index].name, why);
			return TOOL_BAD;
		}
	}
	if (optind + 1 != argc || !*argv[optind]) {
		tool_say("one trace is needed; write `spillway replay [option...] TRACE`");
		return TOOL_BAD;
	}
	ret_request->path = argv[optind];
	return TOOL_OK;
}
