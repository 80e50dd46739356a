// SPDX-License-Identifier: Apache-2.0
/* Jobs of several processes that take turns. See gpu_job.h. */
#include "shim/plan/gpu_job.h"
#include "shim/base/number.h"

/* ---- who is of one job ---- */

bool gpu_job_share(const struct gpu_job_claim *a, const struct gpu_job_claim *b)
{
	return (a->process && a->process == b->process) || (a->name && a->name == b->name);
}

void gpu_job_find(struct gpu_job_view *view)
{
	for (uint32_t i = 0; i < view->n; i++) {
		uint32_t first = 0;

		while (first < i && !gpu_job_share(&view->seats[i].claim, &view->seats[first].claim))
			first++;
		view->seats[i].job = first < i ? view->seats[first].job : i;
	}
}

/* Returns the next seat of the job of `self` that takes part, from `i` on; view->n if there is none. */
static uint32_t next_of(const struct gpu_job_view *view, uint32_t i)
{
	for (; i < view->n; i++)
		if (view->seats[i].takes_part && view->seats[i].job == view->seats[view->self].job)
			return i;
	return i;
}

#define EACH(view, i) for (uint32_t i = next_of(view, 0); i < (view)->n; i = next_of(view, i + 1))

bool gpu_job_is_many(const struct gpu_job_view *view)
{
	unsigned n = 0;

	EACH(view, i)
	n += i != view->self;
	return n && view->seats[view->self].takes_part;
}

uint64_t gpu_job_refuses_until(const struct gpu_job_view *view)
{
	uint64_t until = 0;

	for (uint32_t i = 0; i < view->n; i++)
		if (view->seats[i].job == view->seats[view->self].job && view->seats[i].claim.refuses_until > until)
			until = view->seats[i].claim.refuses_until;
	return until;
}

/* ---- one member of turns ---- */

/* The smaller of those that are not 0. */
static uint64_t smaller_set(uint64_t a, uint64_t b)
{
	return !a || (b && b < a) ? b : a;
}

static uint64_t sum_of(uint64_t a, uint64_t b)
{
	return a + b < a ? UINT64_MAX : a + b;
}

static void add(struct gpu_turn_member *unit, const struct gpu_turn_member *member)
{
	struct gpu_turn_claim *claim = &unit->claim;
	const struct gpu_turn_claim *more = &member->claim;

	unit->needs = sum_of(unit->needs, member->needs);
	unit->may_have = sum_of(unit->may_have, member->may_have);
	unit->stuck = sum_of(unit->stuck, member->stuck);
	if (more->kind == GPU_TURN_ON)
		claim->kind = GPU_TURN_ON;
	claim->weight = larger(claim->weight, more->weight);
	claim->beat = larger(claim->beat, more->beat);
	claim->moving |= more->moving;
	claim->away &= more->away;
	claim->waits = smaller_set(claim->waits, more->waits);
	claim->idle = claim->idle && more->idle ? larger(claim->idle, more->idle) : 0;
	claim->served = larger(claim->served, more->served);
	claim->got = larger(claim->got, more->got);
	claim->burst = claim->burst && more->burst ? larger(claim->burst, more->burst) : 0;
	claim->cost = larger(claim->cost, more->cost);
	claim->loss = larger(claim->loss, more->loss);
	claim->quantum = larger(claim->quantum, more->quantum);
	claim->patience = smaller_set(claim->patience, more->patience);
	claim->n = larger(claim->n, more->n);
}

uint32_t gpu_job_fold(const struct gpu_turn_view *view, const uint32_t *numbers, struct gpu_turn_member *ret_units,
		      uint32_t *ret_unit)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < view->n; i++) {
		bool takes_part = gpu_turn_takes_part(view, i);
		uint32_t unit = n;

		for (uint32_t j = 0; j < i && takes_part && unit == n; j++)
			if (numbers[j] == numbers[i] && gpu_turn_takes_part(view, j))
				unit = ret_unit[j];
		ret_unit[i] = unit;
		if (unit == n)
			ret_units[n++] = view->members[i];
		else
			add(&ret_units[unit], &view->members[i]);
	}
	return n;
}

/* ---- its turns ---- */

bool gpu_job_leads(const struct gpu_job_view *view)
{
	return next_of(view, 0) == view->self;
}

bool gpu_job_speaks(const struct gpu_job_view *view)
{
	EACH(view, i)
	if (view->seats[i].device == view->seats[view->self].device)
		return i == view->self;
	return false;
}

static bool holds(const struct gpu_job_view *view, uint32_t device)
{
	if (!view->turns[device].on)
		return true;
	EACH(view, i)
	if (view->seats[i].device == device && view->seats[i].slot == view->turns[device].holder)
		return true;
	return false;
}

bool gpu_job_holds(const struct gpu_job_view *view)
{
	return holds(view, view->seats[view->self].device);
}

static bool holds_all(const struct gpu_job_view *view, uint32_t before)
{
	EACH(view, i)
	if (view->seats[i].device < before && !holds(view, view->seats[i].device))
		return false;
	return true;
}

uint64_t gpu_job_idle(const struct gpu_job_view *view)
{
	uint64_t since = 0;

	EACH(view, i)
	{
		if (!view->seats[i].idle)
			return 0;
		since = larger(since, view->seats[i].idle);
	}
	return since;
}

/* Returns whether all of it are in that state. */
static bool all_are(const struct gpu_job_view *view, enum residence state)
{
	EACH(view, i)
	if (view->seats[i].claim.state != state)
		return false;
	return true;
}

static bool any_is(const struct gpu_job_view *view, enum residence state)
{
	EACH(view, i)
	if (view->seats[i].claim.state == state)
		return true;
	return false;
}

/* Returns whether one of it runs, or may be about to: it is back, and has not read that all are to stop. */
static bool any_may_run(const struct gpu_job_view *view, uint64_t attempt)
{
	EACH(view, i)
	if (view->seats[i].claim.state == RESIDENCE_RUNS ||
	    (view->seats[i].claim.state == RESIDENCE_BACK && view->seats[i].claim.attempt != attempt))
		return true;
	return false;
}

/* Returns since when a submission of it waits for the turn; 0: none does. */
static uint64_t wants_since(const struct gpu_job_view *view)
{
	uint64_t since = 0;

	EACH(view, i)
	since = smaller_set(since, view->seats[i].claim.wants);
	return since;
}

uint64_t gpu_job_waits(const struct gpu_job_view *view)
{
	bool may_ask =
	    all_are(view, RESIDENCE_AWAY) && !gpu_job_holds(view) && holds_all(view, view->seats[view->self].device);

	return may_ask ? wants_since(view) : 0;
}

/* Returns whether the job has the turn of one of its GPUs and has had it already: memory came back in it, or it ran. */
static bool has_had_any(const struct gpu_job_view *view)
{
	EACH(view, i)
	{
		uint32_t device = view->seats[i].device;

		if (view->turns[device].on && view->seats[i].claim.ran == view->turns[device].number &&
		    holds(view, device))
			return true;
	}
	return false;
}

/*
 * Returns whether none of it runs, nor will before the next order: all are away, or stopped and know that all leave.
 * The one that leads must say so, too: it may be another one by now.
 */
static bool none_goes_on(const struct gpu_job_view *view)
{
	const struct gpu_job_claim *lead = &view->seats[next_of(view, 0)].claim;

	EACH(view, i)
	{
		const struct gpu_job_claim *claim = &view->seats[i].claim;
		bool leaves =
		    claim->phase == GPU_JOB_LEAVE && lead->phase == GPU_JOB_LEAVE && claim->attempt == lead->attempt;

		if (claim->state == RESIDENCE_RUNS || (claim->state != RESIDENCE_AWAY && !leaves))
			return false;
	}
	return true;
}

bool gpu_job_is_done(const struct gpu_job_view *view)
{
	uint32_t device = view->seats[view->self].device;

	return view->turns[device].on && holds(view, device) && none_goes_on(view) &&
	       (!wants_since(view) || has_had_any(view) || !holds_all(view, device));
}

void gpu_job_given(struct gpu_job_view *view, uint32_t slot)
{
	struct gpu_job_turn *turn = &view->turns[view->seats[view->self].device];

	turn->number++;
	turn->holder = slot;
}

/* ---- its phases ---- */

static bool is_over(const struct gpu_job_view *view)
{
	EACH(view, i)
	if (view->seats[i].claim.over)
		return true;
	return !holds_all(view, UINT32_MAX);
}

static bool has_failed(const struct gpu_job_view *view, uint64_t attempt)
{
	EACH(view, i)
	if (attempt && view->seats[i].claim.failed == attempt)
		return true;
	return false;
}

bool gpu_job_is_to_come(const struct gpu_job_view *view)
{
	uint32_t leader = next_of(view, 0);
	const struct gpu_job_claim *lead = &view->seats[leader].claim;

	return leader < view->n && gpu_job_holds(view) && lead->phase != GPU_JOB_LEAVE &&
	       !(lead->phase == GPU_JOB_RETURN && has_failed(view, lead->attempt));
}

static void order(struct gpu_job_claim *claim, enum gpu_job_phase phase)
{
	claim->phase = phase;
	claim->attempt++;
}

static void stop_all(const struct gpu_job_view *view, struct gpu_job_claim *claim)
{
	order(claim, GPU_JOB_STOP_ALL);
	claim->stop_at = view->now + (gpu_job_is_many(view) ? GPU_JOB_NOTICE : 0);
}

bool gpu_job_choose(const struct gpu_job_view *view, struct gpu_job_lead *lead, struct gpu_job_claim *claim)
{
	bool runs = any_is(view, RESIDENCE_RUNS), away = any_is(view, RESIDENCE_AWAY);
	bool has_all = holds_all(view, UINT32_MAX);

	switch ((enum gpu_job_phase)claim->phase) {
	case GPU_JOB_RUN:
		if (all_are(view, RESIDENCE_AWAY))
			claim->phase = GPU_JOB_LEAVE;
		else if (is_over(view) && view->now >= lead->not_before)
			stop_all(view, claim);
		else if (away && !runs && has_all)
			order(claim, GPU_JOB_RETURN);
		return false;
	case GPU_JOB_STOP_ALL:
		runs = any_may_run(view, claim->attempt);
		if (lead->attempt != claim->attempt)
			lead->since = view->now;
		lead->attempt = claim->attempt;
		if (has_failed(view, claim->attempt) || (runs && view->now - lead->since >= GPU_JOB_STOP)) {
			claim->phase = GPU_JOB_RUN;
			lead->not_before = view->now + GPU_JOB_PAUSE;
			return true;
		}
		if (!runs)
			claim->phase = GPU_JOB_LEAVE;
		return false;
	case GPU_JOB_LEAVE:
		/* One has just joined. */
		if (runs)
			stop_all(view, claim);
		/* Not where it is done with a turn, which it may have just given on: gpu_job_is_done(). */
		else if (all_are(view, RESIDENCE_AWAY) && has_all && wants_since(view) && !has_had_any(view))
			order(claim, GPU_JOB_RETURN);
		return false;
	default:
		if (!runs && (has_failed(view, claim->attempt) || !has_all))
			claim->phase = GPU_JOB_LEAVE;
		else if (runs || !away)
			claim->phase = GPU_JOB_RUN;
		return false;
	}
}

void gpu_job_follow(const struct gpu_job_view *view, struct gpu_job_claim *claim)
{
	uint32_t leader = next_of(view, 0);

	if (leader == view->n)
		return;
	claim->phase = view->seats[leader].claim.phase;
	claim->attempt = view->seats[leader].claim.attempt;
	claim->stop_at = view->seats[leader].claim.stop_at;
}

enum gpu_job_step gpu_job_next(const struct gpu_job_view *view, const struct gpu_job_claim *claim)
{
	enum residence state = (enum residence)claim->state;

	switch ((enum gpu_job_phase)claim->phase) {
	case GPU_JOB_RUN:
		if (state == RESIDENCE_AWAY)
			return gpu_job_holds(view) ? GPU_JOB_RETURNS : GPU_JOB_STAYS;
		return state == RESIDENCE_RUNS ? GPU_JOB_STAYS : GPU_JOB_OPENS;
	case GPU_JOB_STOP_ALL:
		return state == RESIDENCE_RUNS && claim->failed != claim->attempt ? GPU_JOB_STOPS : GPU_JOB_STAYS;
	case GPU_JOB_LEAVE:
		return state == RESIDENCE_STOPPED || state == RESIDENCE_BACK ? GPU_JOB_LEAVES : GPU_JOB_STAYS;
	default:
		return state == RESIDENCE_AWAY && claim->failed != claim->attempt && gpu_job_holds(view)
			   ? GPU_JOB_RETURNS
			   : GPU_JOB_STAYS;
	}
}
