// SPDX-License-Identifier: Apache-2.0
/*
 * `spillway replay`: its options, and the command.
 */
#include "tools/commands.h"
#include "tools/common/options.h"
#include "tools/common/policy_file.h"
#include "tools/common/tool.h"
#include "tools/common/units.h"
#include "tools/replay/replay_sweep.h"
#include "policy/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * The options of `spillway replay`.
 */

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
	const char *end;
	uint64_t value;

	if (options_hundredths(text, most, &value, &end) && !*end) {
		*ret_value = (double)value / 100;
		return true;
	}
	snprintf(why, POLICY_EXPLAIN_BYTES,
		 "%s is no number above 0 and up to %llu, with at most two digits behind the point",
		 policy_quoted(text), (unsigned long long)most);
	return false;
}

/* Reads "8GiB", or "75%" of the peak. */
static bool one_budget(const char *text, struct replay_budget *ret_budget, char *why)
{
	const char *end;
	uint64_t value;

	*ret_budget = (struct replay_budget){0};
	if (options_hundredths(text, 1000, &value, &end) && strcmp(end, "%") == 0) {
		ret_budget->percent = value;
		return true;
	}
	if (text[0] && text[strlen(text) - 1] == '%') {
		snprintf(why, POLICY_EXPLAIN_BYTES, "%s is no share of the peak above 0 %% and up to 1000 %%",
			 policy_quoted(text));
		return false;
	}
	if (!policy_bytes_read(text, &ret_budget->bytes, why))
		return false;
	if (ret_budget->bytes >= JOB_UNIT)
		return true;
	snprintf(why, POLICY_EXPLAIN_BYTES, "%s is less than one piece of the heap; write 2MiB or more",
		 policy_quoted(text));
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
	*ret_mode = replay_mode_named(text);
	if (*ret_mode != POLICY_SPILL_COUNT)
		return true;
	snprintf(why, POLICY_EXPLAIN_BYTES, "%s is none of off, static, exact and fast", policy_quoted(text));
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
    OPTION_ROWS(rows),
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

/* Returns OPTIONS_GO_ON, or the exit status. */
static int replay_options(int argc, char **argv, struct replay_request *ret_request)
{
	*ret_request = (struct replay_request){.mode = POLICY_SPILL_COUNT,
					       .host_budget = UINT64_MAX,
					       .link = LINK,
					       .steps = REPLAY_STEPS,
					       .device = REPLAY_NONE};
	int status = options_read(&options, argc, argv, ret_request);
	if (status != OPTIONS_GO_ON)
		return status;
	if (optind + 1 != argc || !*argv[optind])
		return tool_bad("one trace is needed; write `spillway replay [option...] TRACE`");
	ret_request->path = argv[optind];
	return OPTIONS_GO_ON;
}

/*
 * replay.c: `spillway replay`. Reads a recorded job, simulates it under each budget, and prints the results.
 */

/*
 * Chooses the mode: that of --mode; otherwise that of the policy if --policy or --set names one; otherwise the mode
 * while recording. A trace recorded in `off` mode, in which nothing is spilled, contains no choice of a mode; then, as
 * for a file without a mode, the policy's mode is used.
 */
static void choose_mode(struct replay_request *request, const struct replay_model *model, const struct policy *policy)
{
	bool recorded = model->mode > POLICY_SPILL_OFF && model->mode < POLICY_SPILL_COUNT;

	if (request->mode != POLICY_SPILL_COUNT) {
		request->mode_source = "as asked for";
	} else if (request->policy_name || policy_set_names(request->set, "spill.mode") || !recorded) {
		request->mode = policy_settings(policy)->spill;
		request->mode_source = request->policy_name                           ? "as the policy says"
				       : policy_set_names(request->set, "spill.mode") ? "as --set says"
										      : "assumed: nothing says which";
		if (model->mode == POLICY_SPILL_OFF)
			request->mode_source = "assumed: it was recorded in off, where nothing spills";
	} else {
		request->mode = model->mode;
		request->mode_source = "as recorded";
	}
}

/*
 * Reads the policy, whose mode and host budget apply unless an option overrides them. Returns false after printing an
 * error in the policy.
 */
static bool read_policy(struct replay_request *request, const struct replay_model *model, struct policy **ret_policy)
{
	struct policy_errors errors;
	struct policy *policy = policy_read(request->policy_name, request->set, &errors);

	tool_print_errors(&errors);
	policy_errors_free(&errors);
	if (!policy)
		return false;
	policy_bind(policy, *model->process ? model->process : NULL, *model->arguments ? model->arguments : NULL,
		    model->rank);
	choose_mode(request, model, policy);
	struct policy_size host = policy_settings(policy)->host_budget;
	if (request->host_budget == UINT64_MAX && host.kind == POLICY_SIZE_BYTES)
		request->host_budget = host.value;
	else if (request->host_budget == UINT64_MAX && host.kind == POLICY_SIZE_PERCENT)
		tool_say(
		    "host.budget is a share of a machine that is not known here: say --host-budget, else as much is "
		    "taken as it takes");
	request->policy = *ret_policy = policy;
	return true;
}

/* Prints which parts of the trace could not be used as recorded. */
static void say_doubts(const struct replay_model *model)
{
	if (*model->broken)
		tool_say("the trace %s: the prediction is of what comes before that", model->broken);
	if (model->lost)
		tool_say("%llu events are missing in the trace, by its own count: the prediction lacks what they did",
			 (unsigned long long)model->lost);
	if (model->strange)
		tool_say("%llu events do not fit what came before (the first at event %llu) and were passed over: was "
			 "the recording begun late?",
			 (unsigned long long)model->strange, (unsigned long long)model->strange_at);
	if (model->n_modes)
		tool_say(
		    "spill.mode was set %llu times while this was recorded: the prediction is for one mode, and what "
		    "was measured is of both",
		    (unsigned long long)model->n_modes);
	if (model->refused)
		tool_say("%llu allocations failed when this was recorded; they are not in the prediction",
			 (unsigned long long)model->refused);
}

/* The model has only the link to the host. */
static void say_peers(struct replay_request *request, const struct replay_model *model, const struct policy *policy)
{
	request->peers_left_out = model->peers || (policy && policy_settings(policy)->peers);
	if (request->peers_left_out)
		tool_say("memory that other GPUs lend (spill.peers) is left out%s: what is over the budget lies on the "
			 "host here, and moves over its link",
			 model->peers ? ", though the job had some when it was recorded" : "");
}

/*
 * Chooses the device: the one on which most was allocated, unless one was named. Returns false if the named device has
 * no allocations.
 */
static bool choose_device(struct replay_request *request, const struct replay_model *model)
{
	uint64_t bytes[REPLAY_DEVICES] = {0};
	unsigned n = 0, most = 0;

	for (size_t i = 0; i < model->n_blocks; i++)
		bytes[model->blocks[i].device] += model->blocks[i].bytes;
	for (unsigned i = 0; i < REPLAY_DEVICES; i++) {
		n += bytes[i] != 0;
		most = bytes[i] > bytes[most] ? i : most;
	}
	if (request->device == REPLAY_NONE) {
		request->device = most;
		if (n > 1)
			tool_say("the trace is of %u devices; this is about device %u, --device says another", n, most);
	}
	if (bytes[request->device])
		return true;
	return tool_fails("--device: nothing was allocated on device %u; device %u has the most", request->device,
			  most);
}

/*
 * Reports budgets that the user asked for and that cannot run. A sweep succeeds if its largest budget can run, and
 * reports only the reason of the largest budget that cannot.
 */
static int say_failures(const struct replay_sweep *sweep)
{
	char why[SWEEP_WHY_BYTES];
	int status = TOOL_OK;
	bool first = true, said = false;

	for (unsigned i = 0; i < sweep->n; i++) {
		const struct replay_answer *answer = &sweep->answers[i];

		if (!answer->asked)
			continue;
		if (answer->run.end != RUN_DONE && (!said || sweep->request->n_budgets)) {
			tool_say("with %s of device memory it cannot run: %s", text_bytes(answer->budget),
				 sweep_why(sweep, answer, why));
			said = true;
			if (first || sweep->request->n_budgets)
				status = TOOL_BROKEN;
		}
		first = false;
	}
	return status;
}

static int replay_answer_one(const struct replay_sweep *sweep)
{
	const struct replay_request *request = sweep->request;

	if (request->json)
		replay_print_json(sweep);
	else
		replay_print(sweep);
	fflush(stdout);
	return say_failures(sweep);
}

int tool_replay(int argc, char **argv)
{
	struct replay_request request;
	struct replay_model model;
	struct replay_sweep sweep;
	struct policy *policy = NULL;
	int status = replay_options(argc, argv, &request);

	if (status != OPTIONS_GO_ON)
		return status;
	if (replay_model_read(&model, request.path)) {
		tool_say("%s: %s", policy_quoted(request.path), model.problem);
		replay_model_free(&model);
		return TOOL_BAD;
	}
	say_doubts(&model);
	status = TOOL_BAD;
	if (choose_device(&request, &model) && read_policy(&request, &model, &policy)) {
		say_peers(&request, &model, policy);
		if (sweep_run(&sweep, &model, &request))
			status = replay_answer_one(&sweep);
		else
			status = tool_broken("there is no memory for the simulation, or the job is too large for it");
		sweep_free(&sweep);
	}
	policy_free(policy);
	replay_model_free(&model);
	return status;
}
