// SPDX-License-Identifier: Apache-2.0
/*
 * Runs a model under several budgets. Each budget is one run; in `exact` and `fast` mode a second run without moves
 * shows whether the library would stop moving (governor.h). The smallest good budget is searched by bisection between
 * the last good budget of the sweep and the first bad one.
 */
#include "tools/common/units.h"
#include "tools/common/grow.h"
#include "tools/replay/replay_sweep.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "policy/text.h"
#include "shim/plan/governor.h"

/* Default budgets: from 100 % down to 40 % of the peak. */
#define SWEEP_FROM 100
#define SWEEP_TO   40
#define SWEEP_STEP 5
/* The smallest good budget is found with a precision of this fraction of the peak. */
#define FINE 200

static uint64_t sweep_up(uint64_t bytes, uint64_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

/* ---- progress ---- */

static void sweep_show(void *argument, double done)
{
	struct replay_sweep *sweep = argument;
	double all = ((double)sweep->done + done) / sweep->planned * 100;

	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\rspillway: replay %3.0f %%", all < 100 ? all : 100);
}

/* ---- one budget ---- */

/* Returns whether any allocation was stream-ordered. */
static bool has_ordered(const struct replay_model *model)
{
	for (uint32_t i = 0; i < model->n_blocks; i++)
		if (replay_is_ordered(&model->blocks[i]))
			return true;
	return false;
}

/* Cuts the job for this budget, unless the present job can be reused. */
static bool sweep_cut(struct replay_sweep *sweep, uint64_t budget)
{
	const struct policy *policy = sweep->request->policy;
	struct job_setting setting = {.policy = policy,
				      .budget = budget,
				      .device = sweep->request->device,
				      .fast = sweep->request->mode == POLICY_SPILL_FAST,
				      .moves = sweep->request->mode >= POLICY_SPILL_EXACT};
	/* The backend of an allocation depends also on the free memory. */
	bool by_free =
	    policy && (policy_needs(policy) & POLICY_NEED_FREE ||
		       (policy_settings(policy)->async_use == POLICY_ASYNC_AUTO && has_ordered(sweep->model)));

	if (sweep->job && sweep->job->most_units == job_most_units(&setting) && !by_free)
		return true;
	job_free(sweep->job);
	sweep->job = job_new(sweep->model, &setting);
	return sweep->job != NULL;
}

/* Computes the least that the run could take and move. */
static bool find_limit(const struct replay_sweep *sweep, const struct run_setting *setting,
		       struct replay_answer *answer)
{
	struct replay_point point = {0};

	if (!sweep->model->n_launches)
		return true;
	if (!replay_belady(sweep->job, answer->budget, &sweep->steps, &point) ||
	    (sweep->full_ms > 0 && !replay_limit(sweep->job, setting, &answer->run, &answer->limit_ms)))
		return false;
	answer->least_in = point.bytes_in;
	return true;
}

static bool sweep_ask(struct replay_sweep *sweep, uint64_t budget, bool shown, struct replay_answer *ret_answer)
{
	struct replay_answer answer = {.budget = budget, .asked = shown};
	struct run_setting setting = {
	    .mode = sweep->request->mode,
	    .budget = budget,
	    .host_budget = sweep->request->host_budget,
	    .costs = run_costs_default(),
	    .steps = sweep->steps,
	    .progress = sweep_show,
	    .argument = sweep,
	};
	struct run_result still;

	if (!sweep_cut(sweep, budget))
		return false;
	answer.outside = sweep->job->peak_outside;
	setting.costs.gb_per_s = sweep->request->link;
	if (sweep->full_ms > 0 && sweep->job->n_launches)
		setting.costs.launch_us =
		    sweep->full_ms * 1e3 / ((double)(sweep->job->n_launches - sweep->steps.from) / sweep->steps.n);
	run_job(sweep->job, &setting, &answer.run);
	bool moves = setting.mode == POLICY_SPILL_EXACT || setting.mode == POLICY_SPILL_FAST;
	if (moves && answer.run.end == RUN_DONE && sweep->full_ms > 0 && answer.run.bytes_in > 0) {
		setting.mode = POLICY_SPILL_STATIC;
		run_job(sweep->job, &setting, &still);
		if (still.end == RUN_DONE && still.step_ms < (1 - TRIAL_GAIN / 100.) * answer.run.step_ms) {
			answer.run = still;
			answer.run.stays = true;
		}
	}
	if (!find_limit(sweep, &setting, &answer))
		return false;
	sweep->done++;
	*ret_answer = answer;
	return answer.run.end != RUN_BROKEN;
}

/* ---- all budgets ---- */

static int by_budget(const void *a, const void *b)
{
	const struct replay_answer *x = a, *y = b;

	return x->budget > y->budget ? -1 : x->budget < y->budget;
}

static bool sweep_add(struct replay_sweep *sweep, uint64_t budget, bool shown)
{
	if (!grow(&sweep->answers, sweep->n, &sweep->room, sizeof(*sweep->answers)))
		return false;
	for (unsigned i = 0; i < sweep->n; i++)
		if (sweep->answers[i].budget == budget) {
			sweep->answers[i].asked |= shown;
			return true;
		}
	if (!sweep_ask(sweep, budget, shown, &sweep->answers[sweep->n]))
		return false;
	sweep->n++;
	return true;
}

/* Memory outside the heap does not move: a budget below it is not good. */
static bool is_good(const struct replay_sweep *sweep, const struct replay_answer *answer)
{
	return answer->budget >= answer->outside && answer->run.end == RUN_DONE &&
	       answer->run.step_ms <= REPLAY_GOOD * sweep->full_ms;
}

/* Searches between a good budget and a smaller bad one. */
static bool sweep_refine(struct replay_sweep *sweep, uint64_t good, uint64_t bad)
{
	while (good - bad > sweep->held / FINE + JOB_UNIT) {
		uint64_t middle = sweep_up((good + bad) / 2, JOB_UNIT);
		unsigned before = sweep->n;

		if (middle >= good || !sweep_add(sweep, middle, false))
			return middle >= good;
		if (sweep->n == before)
			return true;
		if (is_good(sweep, &sweep->answers[sweep->n - 1]))
			good = middle;
		else
			bad = middle;
	}
	return true;
}

/* Finds the smallest budget above which all budgets are good. */
static bool find_best(struct replay_sweep *sweep)
{
	unsigned i = 0;

	if (!(sweep->full_ms > 0))
		return true;
	if (!sweep_add(sweep, sweep_up(sweep->held, JOB_UNIT), false))
		return false;
	qsort(sweep->answers, sweep->n, sizeof(*sweep->answers), by_budget);
	while (i < sweep->n && is_good(sweep, &sweep->answers[i]))
		i++;
	if (i && i < sweep->n && !sweep_refine(sweep, sweep->answers[i - 1].budget, sweep->answers[i].budget))
		return false;
	qsort(sweep->answers, sweep->n, sizeof(*sweep->answers), by_budget);
	for (i = 0; i < sweep->n && is_good(sweep, &sweep->answers[i]); i++)
		sweep->best = &sweep->answers[i];
	return true;
}

/* Measures what the job needs, and its duration with that. */
static bool sweep_measure(struct replay_sweep *sweep)
{
	if (!sweep_cut(sweep, UINT64_C(1) << 50) ||
	    !replay_steps_of(sweep->model, sweep->request->device, sweep->request->steps, &sweep->steps))
		return false;
	sweep->peak = sweep->model->peak_of[sweep->request->device];
	sweep->held = sweep->job->peak_bytes;
	sweep->outside = sweep->job->peak_outside;
	sweep->elsewhere = sweep->job->elsewhere;
	sweep->full_ms = sweep->request->step_ms;
	if (!sweep->model->n_launches)
		sweep->full_ms = 0;
	else if (!(sweep->full_ms > 0))
		sweep->full_ms = replay_step_ms(sweep->job, &sweep->steps);
	return true;
}

static bool ask_all(struct replay_sweep *sweep)
{
	const struct replay_request *request = sweep->request;
	struct policy_size own =
	    request->policy ? policy_settings(request->policy)->device_budget : (struct policy_size){0};

	for (unsigned i = 0; i < request->n_budgets; i++) {
		const struct replay_budget *budget = &request->budgets[i];
		uint64_t bytes = budget->bytes;

		if (!bytes)
			bytes = sweep_up((uint64_t)((double)sweep->peak * (double)budget->percent / 1e4), JOB_UNIT);
		if (!sweep_add(sweep, bytes, true))
			return false;
	}
	/* The first budget holds everything: chunks are larger than the requested bytes. */
	if (!request->n_budgets && !sweep_add(sweep, sweep_up(sweep->held, JOB_UNIT), true))
		return false;
	for (unsigned p = SWEEP_FROM; !request->n_budgets && p >= SWEEP_TO; p -= SWEEP_STEP)
		if (!sweep_add(sweep, sweep_up(sweep->peak / 100 * p + sweep->peak % 100 * p / 100, JOB_UNIT), true))
			return false;
	return request->n_budgets || own.kind != POLICY_SIZE_BYTES || sweep_add(sweep, own.value, true);
}

bool sweep_run(struct replay_sweep *sweep, const struct replay_model *model, const struct replay_request *request)
{
	*sweep = (struct replay_sweep){.model = model, .request = request};
	/* Includes some runs for the bisection. */
	sweep->planned = (request->n_budgets ? request->n_budgets : (SWEEP_FROM - SWEEP_TO) / SWEEP_STEP + 2) + 6;
	bool ok = sweep_measure(sweep) && ask_all(sweep) && find_best(sweep);
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r%24s\r", "");
	qsort(sweep->answers, sweep->n, sweep->n ? sizeof(*sweep->answers) : 1, by_budget);
	return ok;
}

void sweep_free(struct replay_sweep *sweep)
{
	job_free(sweep->job);
	free(sweep->answers);
}

/* ---- failures ---- */

static void name_block(const struct replay_sweep *sweep, const struct run_result *run, char *room, size_t bytes)
{
	const struct replay_model *model = sweep->model;
	const struct replay_block *block = &model->blocks[run->block];
	char site[128] = "", rule[96] = "";

	if (block->site != REPLAY_NONE)
		policy_printable(model->texts[block->site], site, sizeof(site));
	if (sweep->request->policy && run->rule >= 0)
		policy_printable(policy_rule_name(sweep->request->policy, run->rule), rule, sizeof(rule));
	snprintf(room, bytes, "allocation %" PRIu64 " (event %" PRIu64 ") of %s%s%s%s%s", block->order, block->place,
		 text_bytes(block->bytes), *site ? ", asked for by " : "", site, *rule ? ", rule " : ", no rule", rule);
}

const char *sweep_why(const struct replay_sweep *sweep, const struct replay_answer *answer, char *room)
{
	const struct run_result *run = &answer->run;
	const char *device = text_bytes(run->device_used), *budget = text_bytes(answer->budget);
	char block[400];

	*room = 0;
	if (run->end == RUN_DONE || run->end == RUN_BROKEN)
		return room;
	if (run->end == RUN_STUCK) {
		snprintf(room, SWEEP_WHY_BYTES,
			 "the simulation is stuck at submission %" PRIu64
			 ", which is a bug; please report it with the trace",
			 run->submitted);
		return room;
	}
	name_block(sweep, run, block, sizeof(block));
	if (run->end == RUN_DENIED)
		snprintf(room, SWEEP_WHY_BYTES, "%s: the policy gives it no memory", block);
	else if (run->end == RUN_NO_DEVICE)
		snprintf(room, SWEEP_WHY_BYTES, "%s: no device memory, %s of %s are taken%s", block, device, budget,
			 sweep->request->mode == POLICY_SPILL_OFF ? " and spill.mode is off"
								  : " and the rule wants the device");
	else
		snprintf(room, SWEEP_WHY_BYTES,
			 "%s: no memory, %s of %s on the device and %s of %s on the host are taken", block, device,
			 budget, text_bytes(run->host_used), text_bytes(sweep->request->host_budget));
	return room;
}
