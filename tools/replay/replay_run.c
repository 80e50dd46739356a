/*
 * Runs a job: the program and the mover in turn, until the job is over.
 */
#include "tools/replay/replay_internal.h"

#include <stdlib.h>

#define PATIENCE_US 50e3

struct run_costs run_costs_default(void)
{
	return (struct run_costs){
	    .gb_per_s = 50.6,
	    .share = 0.85,
	    .fast_share = 0.95,
	    .submit_us = 10,
	    .look_us = 20,
	    .begin_us = 15,
	    .unmap_us = 25,
	    .turn_us = 170,
	    .map_us = 40,
	    .pause_us = 80,
	    .remake_us = 250,
	    .map_host = {105, 7.8},
	    .map_host_busy = {190, 12.4},
	    .unmap_host = {32, 1.95},
	    .unmap_host_busy = {60, 4.5},
	    .breath_us = 17,
	    .gap_us = 100,
	    .still_factor = 1.55,
	};
}

static void run_still(struct run *run)
{
	run->now = 1e300;
	run_catch_up(run);
}

static void run_moving(struct run *run)
{
	bool exact = run->setting->mode == POLICY_SPILL_EXACT;
	uint64_t rounds = 0;

	for (;;) {
		run_catch_up(run);
		if (run->failed || (run->next == run->job->n_events && !run->in.n && !run->out.n))
			return;
		if (run->setting->progress && ++rounds % 4096 == 0)
			run->setting->progress(run->setting->argument, (double)run->next / (double)run->job->n_events);
		double before = run->now;
		if (exact ? gap_round(run) : move_round(run))
			continue;
		double next = run_next(run);
		/*
		 * Reading submissions took time, and everything pending happened meanwhile: catch up with it first.
		 */
		if (next == 1e300 && run->now > before)
			continue;
		/* A program that waits in vain goes on when the scheduler has lost patience. */
		if (next == 1e300 && run_waiter(run)) {
			run->now += PATIENCE_US;
			continue;
		}
		if (next == 1e300) {
			run->failed = true;
			run->result->end = RUN_STUCK;
			run->result->submitted = run->submitted;
			return;
		}
		run->now = next + run->costs->look_us;
	}
}

static void run_finish(struct run *run)
{
	struct run_result *result = run->result;
	double n = run->setting->steps.n;

	if (run->submitted && !run->failed)
		result->step_ms = (run->finish[run->submitted] - run->begin_us) / 1e3 / n;
	result->bytes_in /= n;
	result->bytes_out /= n;
	result->dead_in /= n;
	result->dead_out /= n;
	result->bytes_link /= n;
	result->bytes_there /= n;
	result->moves_in /= n;
	result->moves_out /= n;
	result->gaps /= n;
	result->remade /= n;
	result->foreseen /= n;
}

void run_job(const struct job *job, const struct run_setting *setting, struct run_result *ret_result)
{
	struct run run = {
	    .job = job,
	    .setting = setting,
	    .costs = &setting->costs,
	    .result = ret_result,
	    .spots = calloc((size_t)job->n_pieces + 1, sizeof(*run.spots)),
	    .last = calloc((size_t)job->n_lives + 1, sizeof(*run.last)),
	    .used = calloc((size_t)job->n_lives + 1, sizeof(*run.used)),
	    .finish = calloc(job->n_launches + 1, sizeof(*run.finish)),
	    .maps = calloc((size_t)job->n_pieces + 1, sizeof(*run.maps)),
	    .named = calloc((size_t)job->n_pieces + 1, sizeof(*run.named)),
	    .aside = calloc((size_t)job->n_pieces + 1, sizeof(*run.aside)),
	    .device_units = setting->budget / JOB_UNIT,
	    .host_units = setting->host_budget / JOB_UNIT,
	    .unmade = setting->budget / JOB_UNIT,
	};

	*ret_result = (struct run_result){0};
	if (run_moves(&run))
		run.plan = plan_new(setting->mode == POLICY_SPILL_EXACT ? PLAN_IN_GAPS : PLAN_BESIDE_KERNELS);
	if (run.plan && job->model->n_births) {
		run.live.map = live_map_new(job->n_units * JOB_UNIT);
		run.live.own = calloc(UINT16_MAX + 1, sizeof(*run.live.own));
	}
	live_begin(&run);
	bool lives = !run.plan || !job->model->n_births || (run.live.map && run.live.own);
	if (!lives || !run.spots || !run.last || !run.finish || !run.maps || !run.named || !run.aside || !run.used ||
	    (run_moves(&run) && !run.plan)) {
		ret_result->end = RUN_BROKEN;
	} else {
		move_init(&run);
		run.counts = setting->steps.from == 0;
		if (run_moves(&run))
			run_moving(&run);
		else
			run_still(&run);
		run_finish(&run);
	}
	plan_free(run.plan);
	free(run.spots);
	free(run.last);
	free(run.finish);
	free(run.maps);
	free(run.named);
	free(run.aside);
	free(run.used);
	free(run.live.own);
	live_map_free(run.live.map);
}
