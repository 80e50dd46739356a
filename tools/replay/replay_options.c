/*
 * The options of `spillway replay`.
 */
#include "tools/replay/replay_sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "policy/text.h"
#include "tools/common/options.h"
#include "tools/common/tool.h"

/* Default rate of the link, as in the help. Measured (H200, PCIe 5 x16): a pair of copies, one each way at once. */
#define LINK 50.6
_Static_assert(REPLAY_STEPS == 4, "the help says so");

enum { READ_BUDGETS, READ_MODE, READ_HOST_BUDGET, READ_LINK, READ_STEP_TIME, READ_STEPS, READ_DEVICE };

/*
 * Reads a number with at most two decimals as hundredths, 0 < value <= most. *ret_end is set to its end. Returns false
 * if the text is no such number.
 */
static bool options_hundredths(const char *text, uint64_t most, uint64_t *ret_value, const char **ret_end)
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

static bool options_positive(const char *text, uint64_t most, double *ret_value, char *why)
{
	char quoted[POLICY_QUOTED_BYTES];
	const char *end;
	uint64_t value;

	if (options_hundredths(text, most, &value, &end) && !*end) {
		*ret_value = (double)value / 100;
		return true;
	}
	snprintf(why, POLICY_EXPLAIN_BYTES,
		 "%s is no number above 0 and up to %llu, with at most two digits behind the point",
		 policy_quote(text, quoted), (unsigned long long)most);
	return false;
}

static bool options_whole(const char *text, unsigned least, unsigned most, uint64_t *ret_value, char *why)
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

/* Reads "8GiB", or "75%" of the peak. */
static bool one_budget(const char *text, struct replay_budget *ret_budget, char *why)
{
	char quoted[POLICY_QUOTED_BYTES];
	const char *end;
	uint64_t value;

	*ret_budget = (struct replay_budget){0};
	if (options_hundredths(text, 1000, &value, &end) && strcmp(end, "%") == 0) {
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

static bool options_budgets(const char *text, struct replay_request *request, char *why)
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

static bool options_mode(const char *text, enum policy_spill *ret_mode, char *why)
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

static bool read_value(void *argument, int code, const char *text, char *why)
{
	struct replay_request *request = argument;
	uint64_t number;

	switch (code) {
	case READ_BUDGETS:
		return options_budgets(text, request, why);
	case READ_MODE:
		return options_mode(text, &request->mode, why);
	case READ_HOST_BUDGET:
		return policy_bytes_read(text, &request->host_budget, why);
	case READ_LINK:
		return options_positive(text, 100000, &request->link, why);
	case READ_STEP_TIME:
		return options_positive(text, 1000000000, &request->step_ms, why);
	case READ_STEPS:
		return options_whole(text, 1, 1000000, &request->steps, why);
	default:
		if (!options_whole(text, 0, REPLAY_DEVICES - 1, &number, why))
			return false;
		request->device = (uint32_t)number;
		return true;
	}
}

static const struct option_row rows[] = {
    OPTION_READ("budget", "LIST", read_value, READ_BUDGETS,
		"device budgets, SIZE or N% of the job's peak, with commas between (100% .. 40%)"),
    OPTION_READ("mode", "MODE", read_value, READ_MODE,
		"off, static, exact or fast (what the policy named here says,\nelse what the trace was recorded in)"),
    OPTION_TEXT("policy", "POLICY", replay_request, policy_name, "decide about each allocation by this policy (heap)"),
    OPTION_TEXT("set", "KEY=VALUE", replay_request, set, "on top of the policy; several with commas between them"),
    OPTION_READ("host-budget", "SIZE", read_value, READ_HOST_BUDGET,
		"host memory that may be taken (as much as it takes)"),
    OPTION_READ("link", "GB/S", read_value, READ_LINK,
		"what the link carries each way while both are busy (50.6);\n"
		"half of what `spillway doctor` measures both ways together"),
    OPTION_READ("step-time", "MS", read_value, READ_STEP_TIME,
		"what a step takes with all of it in device memory (what the trace says)"),
    OPTION_READ("steps", "N", read_value, READ_STEPS, "how many of the last steps count (4)"),
    OPTION_READ("device", "N", read_value, READ_DEVICE, "of which device (the one with the most memory allocated)"),
    OPTION_FLAG("json", replay_request, json, "print JSON"),
};

static const struct options options = {
    .command = "replay",
    .rows = rows,
    .n = sizeof(rows) / sizeof(*rows),
    .column = 24,
    .head = "usage: spillway replay [option...] TRACE\n\n"
	    "Predicts, without a GPU, what a recorded job would cost with less device memory: peak, bytes moved and\n"
	    "the time of a step for each budget, and the smallest budget within 10 % of full speed.\n"
	    "TRACE is made by `spillway run --trace`.\n",
    .tail = "Exit status: 0 all was answered, 1 the job cannot run under a budget, 2 wrong usage or no trace.\n\n"
	    "examples:\n"
	    "  spillway replay --mode fast job.trace\n"
	    "  spillway replay --budget 8GiB,75% job.trace\n",
};

int replay_options(int argc, char **argv, struct replay_request *ret_request)
{
	int status;

	*ret_request = (struct replay_request){.mode = POLICY_SPILL_COUNT,
					       .host_budget = UINT64_MAX,
					       .link = LINK,
					       .steps = REPLAY_STEPS,
					       .device = REPLAY_NONE};
	status = options_read(&options, argc, argv, ret_request);
	if (status != OPTIONS_GO_ON)
		return status;
	if (optind + 1 != argc || !*argv[optind]) {
		tool_say("one trace is needed; write `spillway replay [option...] TRACE`");
		return TOOL_BAD;
	}
	ret_request->path = argv[optind];
	return OPTIONS_GO_ON;
}
