/*
 * replay.c: `spillway replay`. Reads a recorded job, simulates it under each budget, and prints the results.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/text.h"
#include "tools/common/units.h"
#include "tools/replay/replay_sweep.h"
#include "tools/common/options.h"
#include "tools/commands.h"
#include "tools/common/policy_file.h"
#include "tools/common/tool.h"

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
		request->mode = (enum policy_spill)model->mode;
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
	tool_say("--device: nothing was allocated on device %u; device %u has the most", request->device, most);
	return false;
}

/*
 * Reports budgets that the user asked for and that cannot run. A sweep succeeds if its largest budget can run, and
 * reports only the reason of the largest budget that cannot.
 */
static int say_failures(const struct replay_sweep *sweep)
{
	char why[SWEEP_WHY_BYTES], size[UNITS_TEXT];
	int status = TOOL_OK;
	bool first = true, said = false;

	for (unsigned i = 0; i < sweep->n; i++) {
		const struct replay_answer *answer = &sweep->answers[i];

		if (!answer->asked)
			continue;
		if (answer->run.end != RUN_DONE && (!said || sweep->request->n_budgets)) {
			tool_say("with %s of device memory it cannot run: %s", units_bytes(answer->budget, size),
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
	char quoted[POLICY_QUOTED_BYTES];
	int status = replay_options(argc, argv, &request);

	if (status != OPTIONS_GO_ON)
		return status;
	if (replay_model_read(&model, request.path)) {
		tool_say("%s: %s", policy_quote(request.path, quoted), model.problem);
		replay_model_free(&model);
		return TOOL_BAD;
	}
	say_doubts(&model);
	bool fits = choose_device(&request, &model) && read_policy(&request, &model, &policy);
	if (fits)
		say_peers(&request, &model, policy);
	if (!fits) {
		status = TOOL_BAD;
	} else if (!sweep_run(&sweep, &model, &request)) {
		tool_say("there is no memory for the simulation, or the job is too large for it");
		status = TOOL_BROKEN;
		sweep_free(&sweep);
	} else {
		status = replay_answer_one(&sweep);
		sweep_free(&sweep);
	}
	policy_free(policy);
	replay_model_free(&model);
	return status;
}
