/* What turns know of the account of a device. See turn_account.h. */
#include "shim/lifecycle/turn_account.h"
#include "policy/policy.h"
#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/base/rank.h"
#include "shim/base/user_dir.h"
#include "shim/device/device.h"
#include "shim/lifecycle/lifecycle_state.h"
#include "shim/lifecycle/turn.h"
#include "shim/mover/spill.h"
#include "shim/plan/gpu_turn.h"
#include "shim/process/process.h"
#include "shim/submit/submission.h"

#include <unistd.h>

/* ns: after the file of the account was lost, so that all have entered the new one before anybody gets more. */
#define TURN_LOST 1000000000u
/* ns: between two looks at the accounts of other devices while no process names a job. */
#define JOBS_SELDOM 100000000u
/* ns: between two signs of life while memory moves, by which others go (GPU_TURN_SILENT). */
#define BEAT_NS 100000000u

void turn_account_claim(const struct device *device, struct gpu_account_member *member, uint64_t now)
{
	struct turn_state *const turn = &lifecycle_state.turn[device->ordinal];
	struct gpu_job_claim *claim = &turn->job.claim;

	if (!claim->process) {
		claim->process = identity_get();
		lifecycle_state.jobs.started = user_dir_process_started(getpid());
		lifecycle_state.jobs.space = identity_space();
		claim->name = rank_together_as(process_settings()->turns.job);
		lifecycle_state.jobs.is_spread = rank_is_spread();
		if (lifecycle_state.jobs.is_spread && process_settings()->turns.mode != POLICY_TURNS_OFF)
			log_once("share: this job runs on several machines, and takes no turns");
	}
	if (!turn_is_away(device) || !gate_n_waiting() || now < turn->waits_after)
		claim->wants = 0;
	else if (!claim->wants)
		claim->wants = now;
	claim->rests = now < lifecycle_state.turn_common.refuses_until ? lifecycle_state.turn_common.refuses_until : 0;
	claim->state = spill_residence(device);
	member->job = *claim;
	member->claim.away = turn_is_away(device) && claim->state == RESIDENCE_AWAY;
	member->started = lifecycle_state.jobs.started;
	member->space = lifecycle_state.jobs.space;
}

/* ---- units ---- */

static void count_accounts(struct device *device, void *argument)
{
	*(unsigned *)argument += atomic_load(&device->heap) && device->account.file.open;
}

bool turn_account_is_in_several(void)
{
	unsigned n = 0;

	device_each(count_accounts, &n);
	return n > 1;
}

static bool any_names_a_job(const struct gpu_account_view *view)
{
	for (unsigned i = 0; i < view->n; i++)
		if (view->members[i].job.name)
			return true;
	return false;
}

/* The seats of this account alone. */
static void take_own(const struct gpu_account_view *view, const struct gpu_turn_view *turns, struct gpu_job_view *jobs)
{
	for (unsigned i = 0; i < view->n; i++)
		jobs->seats[i] = (struct gpu_job_seat){
		    .slot = view->slots[i],
		    .takes_part = gpu_turn_takes_part(turns, i),
		    .idle = view->members[i].claim.idle,
		    .claim = view->members[i].job,
		};
	jobs->now = turns->now;
	jobs->n = view->n;
	jobs->self = view->self;
	jobs->turns[0] = (struct gpu_job_turn){
	    .on = view->turn.on,
	    .number = view->turn.number,
	    .holder = view->turn.holder < view->n ? view->slots[view->turn.holder] : GPU_TURN_NOBODY,
	};
}

static void read_jobs(const struct device *device, const struct gpu_account_view *view,
		      const struct gpu_turn_view *turns)
{
	struct turn_job_state *const state = &lifecycle_state.turn[device->ordinal].job;
	struct gpu_job_view *jobs = &lifecycle_state.jobs.view;
	bool all = state->many || turn_account_is_in_several() || any_names_a_job(view) ||
		   turns->now - state->looked >= JOBS_SELDOM;

	if (all)
		state->looked = turns->now;
	if (!all || !gpu_account_all(&device->account, turns->now, jobs))
		take_own(view, turns, jobs);
	gpu_job_find(jobs);
	state->many = gpu_job_is_many(jobs);
}

/* Returns the number of the job of that member; of one that has just come, a number of its own. */
static uint32_t job_of(const struct gpu_job_view *jobs, uint32_t slot)
{
	for (uint32_t i = 0; i < jobs->n; i++)
		if (jobs->seats[i].device == jobs->seats[jobs->self].device && jobs->seats[i].slot == slot)
			return jobs->seats[i].job;
	return GPU_JOB_SEATS + slot;
}

uint32_t turn_account_units(struct device *device, const struct gpu_account_view *view, struct gpu_turn_view *ret_turns)
{
	struct jobs_state *const state = &lifecycle_state.jobs;
	const struct turn_state *const turn = &lifecycle_state.turn[device->ordinal];
	uint32_t numbers[GPU_ACCOUNT_MOST];
	struct gpu_turn_view each;

	for (unsigned i = 0; i < view->n; i++)
		state->members[i] = (struct gpu_turn_member){
		    .needs = view->members[i].needs,
		    .may_have = view->members[i].may_have,
		    .stuck = view->members[i].stuck,
		    .claim = view->members[i].claim,
		};
	each = (struct gpu_turn_view){
	    .now = clock_now(),
	    .total = view->total,
	    .members = state->members,
	    .n = view->n,
	    .on = view->turn.on,
	    .holder = view->turn.holder,
	    .since = turn->holds ? turn->began : view->turn.since,
	};
	read_jobs(device, view, &each);
	for (unsigned i = 0; i < view->n; i++)
		numbers[i] = job_of(&state->view, view->slots[i]);
	*ret_turns = each;
	ret_turns->members = lifecycle_state.turn_common.members;
	ret_turns->n = gpu_job_fold(&each, numbers, lifecycle_state.turn_common.members, state->units);
	state->n = view->n;
	if (view->turn.holder < view->n)
		ret_turns->holder = state->units[view->turn.holder];
	uint32_t self = state->units[view->self];
	/* It is idle if all of it is, on all devices. */
	if (turn->job.many)
		lifecycle_state.turn_common.members[self].claim.idle = gpu_job_idle(&state->view);
	return self;
}

uint32_t turn_account_member(uint32_t unit)
{
	const struct jobs_state *state = &lifecycle_state.jobs;

	for (uint32_t i = 0; i < state->n; i++)
		if (state->units[i] == unit)
			return i;
	return GPU_TURN_NOBODY;
}

uint64_t turn_account_part(const struct gpu_account_view *view, uint64_t bytes)
{
	const struct jobs_state *state = &lifecycle_state.jobs;
	struct gpu_share_member *const members = lifecycle_state.shared.members;
	unsigned n = 0, self = 0;

	for (unsigned i = 0; i < view->n; i++) {
		if (state->units[i] != state->units[view->self])
			continue;
		if (i == view->self)
			self = n;
		members[n++] =
		    (struct gpu_share_member){.needs = view->members[i].needs, .stuck = view->members[i].stuck};
	}
	return n == 1 ? bytes : gpu_share_of(bytes, members, n, self);
}

/* ---- publishing ---- */

bool turn_account_publish(struct device *device, bool moving)
{
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];
	struct gpu_account_member *member = &state->member;
	uint64_t used = atomic_load(&device->budget.used), limit = atomic_load(&device->budget.limit);

	/* Of a device that was not looked at yet nothing is known. */
	if (!device->account.file.open || !member->pid)
		return false;
	member->holds = used;
	member->may_have = used > limit ? used : limit;
	member->claim = state->claim;
	member->claim.beat = clock_now();
	member->claim.moving = moving;
	turn_account_claim(device, member, member->claim.beat);
	bool good = gpu_account_look(&device->account, member, &lifecycle_state.shared.view);
	if (!good)
		turn_account_lost(device);
	return good;
}

static void beat(struct device *device, void *argument)
{
	/* Before it has a heap, another thread may just be entering its account. */
	if (device != argument && atomic_load(&device->heap) && device->account.file.open)
		turn_account_publish(device, lifecycle_state.turn[device->ordinal].moves);
}

void turn_account_beat(const struct device *device)
{
	uint64_t now = clock_now();

	if (now - lifecycle_state.turn_common.beat < BEAT_NS)
		return;
	lifecycle_state.turn_common.beat = now;
	device_each(beat, (void *)(uintptr_t)device);
}

void turn_account_lost(const struct device *device)
{
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];

	if (state->claim.kind != GPU_TURN_OFF || turn_is_away(device))
		state->lost_until = clock_now() + TURN_LOST;
	state->holds = false;
	/* Tries to enter the next account are counted. */
	state->look_ms = 0;
}

uint64_t turn_account_raise(struct device *device, const struct gpu_account_member *member, uint64_t wanted)
{
	return wanted > member->may_have ? gpu_account_raise(&device->account, member->may_have, wanted)
					 : member->may_have;
}

bool turn_account_others_are_away(const struct gpu_turn_view *turns, uint32_t self)
{
	for (uint32_t i = 0; i < turns->n; i++)
		if (i != self && gpu_turn_takes_part(turns, i) && !turns->members[i].claim.away)
			return false;
	return true;
}

uint64_t turn_account_room(const struct device *device, const struct gpu_turn_view *turns, uint32_t self)
{
	uint64_t room = gpu_turn_room(turns, self), most = lifecycle_state.turn[device->ordinal].most;

	return room < most ? room : most;
}
