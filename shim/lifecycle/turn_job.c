/*
 * Turns of jobs. See turn_job.h. A step of the job takes some looks of all its processes, so they look often while
 * there are steps.
 */
#include "shim/lifecycle/turn_job.h"
#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/device/device.h"
#include "shim/lifecycle/lifecycle_state.h"
#include "shim/lifecycle/turn.h"
#include "shim/lifecycle/turn_account.h"
#include "shim/mover/spill.h"
#include "shim/stats/stats.h"
#include "shim/trace/trace.h"

/* ms between looks: while the job is in steps, while it waits, and while it runs. */
#define LOOK_STEPS 1
#define LOOK_WAITS 2
#define LOOK_RUNS  5
/* ns: it could not come back, and asks for no other turn before this time. */
#define TURN_PAUSE 250000000u

bool turn_job_is_on(void)
{
	const struct gpu_job_view *view = &lifecycle_state.jobs.view;

	for (uint32_t i = 0; i < view->n; i++)
		if (view->seats[i].takes_part && view->seats[i].job == view->seats[view->self].job &&
		    view->turns[view->seats[i].device].on)
			return true;
	return false;
}

void turn_job_alone(const struct device *device)
{
	struct turn_job_state *const state = &lifecycle_state.turn[device->ordinal].job;
	struct gpu_job_claim *claim = &state->claim;

	claim->phase = turn_is_away(device) ? GPU_JOB_LEAVE : GPU_JOB_RUN;
	claim->over = 0;
	state->step = GPU_JOB_STAYS;
}

/* ---- looking ---- */

/* The turn of this device: gives it on where nobody has it, or the job is done with it, and says when it is over. */
static void look_at_turn(struct device *device, const struct gpu_account_view *view, struct gpu_turn_view *turns,
			 uint32_t self)
{
	struct turn_job_state *const state = &lifecycle_state.turn[device->ordinal].job;
	struct gpu_job_view *jobs = &lifecycle_state.jobs.view;
	struct gpu_job_claim *claim = &state->claim;
	uint32_t holder = turns->holder, next;

	claim->over = 0;
	if (!turns->on)
		return;
	if (holder == GPU_TURN_NOBODY || !gpu_turn_takes_part(turns, holder)) {
		next = gpu_turn_next(turns);
		if (next != holder && next != GPU_TURN_NOBODY)
			gpu_account_pass(&device->account, view, true, turn_account_member(next), turns->now);
	} else if (holder == self && gpu_job_speaks(jobs) && gpu_job_is_done(jobs)) {
		/* The others come first, whatever has begun to wait here meanwhile. */
		lifecycle_state.turn_common.members[self].claim.waits = 0;
		turns->holder = GPU_TURN_NOBODY;
		next = gpu_turn_next(turns);
		next = next == GPU_TURN_NOBODY ? next : turn_account_member(next);
		if (gpu_account_pass(&device->account, view, true, next, turns->now))
			gpu_job_given(jobs, next < view->n ? view->slots[next] : GPU_TURN_NOBODY);
	} else if (holder == self && gpu_job_speaks(jobs) && claim->state == RESIDENCE_RUNS) {
		claim->over = gpu_turn_next(turns) != self;
	}
}

/* Chooses the phase, or takes that of the one that leads. */
static void look_at_phase(const struct device *device)
{
	struct turn_state *const turn = &lifecycle_state.turn[device->ordinal];
	struct turn_job_state *const state = &lifecycle_state.turn[device->ordinal].job;
	const struct gpu_job_view *jobs = &lifecycle_state.jobs.view;

	if (!gpu_job_leads(jobs)) {
		gpu_job_follow(jobs, &state->claim);
		return;
	}
	uint64_t before = state->claim.phase;
	if (gpu_job_choose(jobs, &state->lead, &state->claim)) {
		log_once(
		    "share: a process of the job of this one cannot be stopped: the job keeps its turn, and is asked "
		    "again");
		if (++turn->failures >= TURN_TRIES) {
			log_once(
			    "share: the job of this process keeps its memory, and the others go on in what is left; "
			    "it is asked again in a minute");
			turn->failures = 0;
			lifecycle_state.turn_common.refuses_until = jobs->now + TURN_REST;
		}
	} else if (before == GPU_JOB_STOP_ALL && state->claim.phase == GPU_JOB_LEAVE) {
		turn->failures = 0;
	}
}

/* The job has the turn, and the process is to come back, or runs: its budget. */
static uint64_t raise(struct device *device, const struct gpu_account_member *member,
		      const struct gpu_account_view *view, const struct gpu_turn_view *turns, uint32_t self)
{
	struct turn_state *const turn = &lifecycle_state.turn[device->ordinal];
	uint64_t room = turn_account_part(view, gpu_turn_room(turns, self));

	if (room > turn->most)
		room = turn->most;
	uint64_t limit = turn_account_raise(device, member, room);
	if (turn->number != view->turn.number) {
		turn->number = view->turn.number;
		turn->seen = turns->now;
	}
	bool begins = turns->now - turn->seen < TURN_BEGIN;
	turn->job.has_room = limit >= (member->needs < room ? member->needs : room) ||
			     turn_account_others_are_away(turns, self) || !begins;
	turn->lacks = turn_is_away(device) || (limit < room && begins);
	return limit;
}

/* The time of a turn counts while the process runs in one, also in one that began while it ran. number: of the turn. */
static void count_turn(const struct device *device, const struct gpu_turn_view *turns, uint64_t number, bool runs)
{
	struct turn_state *const turn = &lifecycle_state.turn[device->ordinal];

	if (runs)
		turn->job.claim.ran = number;
	if (runs && !turn->holds) {
		turn->began = turn->counted = turns->now;
		turn->claim.n++;
		stats_add(STAT_turns, 1);
	}
	turn->holds = runs;
}

static void look_at_waits(const struct device *device, const struct gpu_turn_view *turns, uint32_t self)
{
	struct gpu_turn_claim *claim = &lifecycle_state.turn[device->ordinal].claim;
	uint64_t since = gpu_job_waits(&lifecycle_state.jobs.view);

	if (since && !claim->waits)
		claim->served = gpu_turn_enter(turns, self);
	claim->waits = since;
}

static bool has_other_processes(const struct gpu_job_view *jobs)
{
	const struct gpu_job_seat *self = &jobs->seats[jobs->self];

	for (uint32_t i = 0; i < jobs->n; i++)
		if (jobs->seats[i].job == self->job && jobs->seats[i].claim.process != self->claim.process)
			return true;
	return false;
}

bool turn_job_look(struct device *device, const struct gpu_account_member *member, const struct gpu_account_view *view,
		   struct gpu_turn_view *turns, uint32_t self, uint64_t *ret_limit)
{
	struct turn_state *const turn = &lifecycle_state.turn[device->ordinal];
	struct turn_job_state *const state = &lifecycle_state.turn[device->ordinal].job;
	const struct gpu_job_view *jobs = &lifecycle_state.jobs.view;
	uint64_t rests = gpu_job_rests(jobs);

	state->seen = jobs->now;
	state->idle = gpu_job_idle(jobs);
	if (has_other_processes(jobs))
		log_once("share: this process takes turns together with the others of its job");
	else
		log_once("share: this process takes turns on all its GPUs together");
	if (rests > lifecycle_state.turn_common.refuses_until)
		lifecycle_state.turn_common.refuses_until = rests;
	look_at_turn(device, view, turns, self);
	uint64_t before = state->claim.phase;
	look_at_phase(device);
	bool holds = gpu_job_holds(jobs),
	     comes = state->claim.phase == GPU_JOB_RUN || state->claim.phase == GPU_JOB_RETURN;
	count_turn(device, turns, view->turn.number, turns->on && holds && state->claim.state == RESIDENCE_RUNS);
	look_at_waits(device, turns, self);
	state->number = view->turn.number;
	state->has_room = true;
	turn->lacks = turns->on || turn_is_away(device);
	turn->keep = turn_account_part(view, gpu_turn_keep(turns, self));
	*ret_limit = turn_is_away(device) ? member->holds : member->may_have;
	if (turns->on && holds && comes)
		*ret_limit = raise(device, member, view, turns, self);
	state->step = gpu_job_next(jobs, &state->claim);
	if (state->step == GPU_JOB_RETURNS && !state->has_room)
		state->step = GPU_JOB_STAYS;
	/* Memory of the other devices is to move at the same time: their seats must have read the phase. */
	state->tells = gpu_job_leads(jobs) && state->claim.phase != before;
	if (state->tells && (state->step == GPU_JOB_LEAVES || state->step == GPU_JOB_RETURNS))
		state->step = GPU_JOB_STAYS;
	turn->look_ms = state->claim.phase != GPU_JOB_RUN && (state->claim.state != RESIDENCE_AWAY || holds)
			    ? LOOK_STEPS
			: state->claim.state == RESIDENCE_AWAY ? LOOK_WAITS
							       : LOOK_RUNS;
	/* Where there are no turns, the share of the device is that of all. */
	return turns->on || (turn_is_away(device) && !comes);
}

/* ---- acting ---- */

static void failed(struct device *device)
{
	struct gpu_job_claim *claim = &lifecycle_state.turn[device->ordinal].job.claim;

	claim->failed = claim->attempt;
	if (device->account.joined)
		turn_account_publish(device, false);
}

static void stop(struct device *device)
{
	struct turn_state *const turn = &lifecycle_state.turn[device->ordinal];
	struct turn_job_state *const state = &lifecycle_state.turn[device->ordinal].job;
	uint64_t ran = clock_now() - turn->began;
	uint64_t idle = state->idle;
	bool held = turn->holds;

	/* The others must see the order of the one that leads before it waits for its own device. */
	if (!turn_account_publish(device, false))
		return;
	turn->out_began = clock_now();
	if (state->claim.stop_at > turn->out_began && state->claim.stop_at - turn->out_began <= GPU_JOB_NOTICE)
		clock_sleep(state->claim.stop_at - turn->out_began);
	if (spill_hold(device, RESIDENCE_STOPPED, 0, NULL, NULL) != SW_OK &&
	    spill_residence(device) == RESIDENCE_RUNS) {
		failed(device);
		return;
	}
	turn->holds = false;
	if (held)
		turn->claim.burst = gpu_turn_burst(ran, idle ? clock_now() - idle : 0);
	turn->claim.idle = turn->claim.waits = 0;
	turn_account_publish(device, false);
}

static void go_on(struct device *device)
{
	struct turn_state *const turn = &lifecycle_state.turn[device->ordinal];
	struct turn_job_state *const state = &lifecycle_state.turn[device->ordinal].job;

	/* If the process was stopped since it looked, its job may have lost the turn: it looks again. */
	if (clock_now() - state->seen >= GPU_TURN_SILENT / 2 || spill_release(device, NULL, NULL) != SW_OK)
		return;
	/* Of several devices it goes on with the last one. */
	if (state->claim.wants && !spill_any_held())
		stats_add(STAT_turn_wait_us, (clock_now() - state->claim.wants) / 1000);
	state->claim.ran = state->number;
	turn->claim.waits = 0;
	turn_account_publish(device, false);
}

bool turn_job_act(struct device *device)
{
	struct turn_job_state *const state = &lifecycle_state.turn[device->ordinal].job;
	enum gpu_job_step step = state->step;

	state->step = GPU_JOB_STAYS;
	if (step == GPU_JOB_STOPS)
		stop(device);
	else if (step == GPU_JOB_OPENS)
		go_on(device);
	return step != GPU_JOB_STAYS;
}

/* ---- moving ---- */

/* The devices whose memory moves at the same time. */
struct moves {
	enum gpu_job_step step;
	unsigned n;
	uint64_t began; /* ns */
	struct {
		struct device *device;
		uint64_t used; /* bytes, before it */
		bool begun;    /* the mover has the order */
	} at[DEVICE_MOST];
};

static enum order_room look_while_moving(void *argument)
{
	(void)argument;
	turn_account_beat(NULL);
	return ORDER_ROOM_IS_ALL;
}

static const struct order_watch watch = {.look = look_while_moving};

static void begin_move(struct device *device, void *argument)
{
	struct turn_state *const turn = &lifecycle_state.turn[device->ordinal];
	struct moves *moves = argument;
	bool begun;

	if (turn->job.step != moves->step)
		return;
	turn->job.step = GPU_JOB_STAYS;
	if (!turn_account_publish(device, true))
		return;
	uint64_t used = atomic_load(&device->budget.used);
	if (moves->step == GPU_JOB_LEAVES) {
		heap_keep_host(atomic_load(&device->heap), turn->member.needs);
		begun = spill_begin(device, RESIDENCE_AWAY, turn->keep, &watch);
	} else {
		begun = spill_begin(device, RESIDENCE_BACK, 0, &watch);
	}
	turn->moves = true;
	moves->at[moves->n].device = device;
	moves->at[moves->n].used = used;
	moves->at[moves->n++].begun = begun;
}

/* What has not left stays the process's, and the others go on in what is left. */
static void has_left(struct device *device, uint64_t used)
{
	struct turn_state *const turn = &lifecycle_state.turn[device->ordinal];
	uint64_t stays = atomic_load(&device->budget.used), bytes = used > stays ? used - stays : 0;

	turn->out_ns = clock_now() - turn->out_began;
	stats_add(STAT_turn_bytes, bytes);
	trace_event(turn, (uint64_t)device->ordinal, 0, turn->out_ns, bytes);
	atomic_store(&device->budget.limit, stays);
	turn_account_publish(device, false);
}

static void is_back(struct device *device, uint64_t used, uint64_t began, bool good)
{
	struct turn_state *const turn = &lifecycle_state.turn[device->ordinal];
	uint64_t now_used = atomic_load(&device->budget.used);

	turn->job.claim.ran = turn->job.number;
	if (!good) {
		turn->waits_after = clock_now() + TURN_PAUSE;
		turn->job.claim.wants = turn->claim.waits = 0;
		atomic_store(&device->budget.limit, now_used);
		failed(device);
		return;
	}
	turn->in_ns = clock_now() - began;
	trace_event(turn, (uint64_t)device->ordinal, 1, turn->in_ns, now_used > used ? now_used - used : 0);
	turn->claim.cost = gpu_turn_cost(turn->claim.cost, turn->in_ns + turn->out_ns);
	turn_account_publish(device, false);
}

static void move(enum gpu_job_step step)
{
	struct moves moves = {.step = step, .began = clock_now()};

	device_each(begin_move, &moves);
	for (unsigned i = 0; i < moves.n; i++) {
		struct device *device = moves.at[i].device;
		bool good = moves.at[i].begun && spill_finish(device, &watch) == SW_OK;

		lifecycle_state.turn[device->ordinal].moves = false;
		if (step == GPU_JOB_LEAVES)
			has_left(device, moves.at[i].used);
		else
			is_back(device, moves.at[i].used, moves.began, good);
	}
	if (moves.n)
		stats_add(STAT_turn_move_us, (clock_now() - moves.began) / 1000);
}

static void tell_phase(struct device *device, void *argument)
{
	struct turn_job_state *const state = &lifecycle_state.turn[device->ordinal].job;

	(void)argument;
	if (state->tells)
		turn_account_publish(device, false);
	state->tells = false;
}

void turn_job_move(void)
{
	device_each(tell_phase, NULL);
	move(GPU_JOB_LEAVES);
	move(GPU_JOB_RETURNS);
}
