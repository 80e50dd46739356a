// SPDX-License-Identifier: Apache-2.0
/* Turns: what is done about them. See types.h. */
#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/driver/real.h"
#include "shim/lifecycle/types.h"
#include "shim/stats/stats.h"
#include "shim/submit/channel.h"
#include "shim/submit/completion.h"
#include "shim/submit/arguments.h"
#include "shim/trace/trace.h"

/* ns: it could not come back, or give up more: no other try before this time. */
#define TURN_PAUSE 250000000u

/* ---- while the mover works ---- */

static enum order_room beat(void *argument)
{
	(void)argument;
	turn_account_beat();
	return ORDER_ROOM_IS_ALL;
}

const struct order_watch turn_beat_watch = {.look = beat};

static void lower(struct device *device)
{
	uint64_t used = atomic_load(&device->budget.used);

	if (used < atomic_load(&device->budget.limit))
		atomic_store(&device->budget.limit, used);
}

/*
 * Memory leaves: the next job, which has the turn, fetches into what has gone back to the driver. That is published as
 * it shrinks. Measured (H200, 14.4 GiB out and in, bare copies): 352 ms, against 559 one after the other
 * (docs/facts.md, Two processes).
 */
static void look_while_leaving(struct device *device)
{
	const struct gpu_account_view *view = &lifecycle_state.shared.view;
	const struct gpu_job_view *jobs = &lifecycle_state.jobs.view;
	struct gpu_turn_view turns;

	lower(device);
	if (!turn_account_publish(device, true))
		return;
	uint32_t self = turn_account_units(device, view, &turns);
	if (turns.holder == self && gpu_job_speaks(jobs) && gpu_job_is_done(jobs))
		turn_account_give_on(device, view, &turns, self);
}

static bool others_are_away(const struct gpu_turn_view *turns, uint32_t self)
{
	for (uint32_t i = 0; i < turns->n; i++)
		if (i != self && gpu_turn_takes_part(turns, i) && !turns->members[i].claim.away)
			return false;
	return true;
}

/* Returns whether all that the turn has room for is there, or those that have it do not give it up in time. */
static bool is_room_all(const struct device *device, const struct gpu_turn_view *turns, uint32_t self, uint64_t room,
			uint64_t limit)
{
	struct turn_state *const turn = turn_of(device);
	uint64_t others = 0;

	for (uint32_t i = 0; i < turns->n; i++)
		others += i == self ? 0 : turns->members[i].may_have;
	if (!turn->others || others + turns->total / TURN_KEEP_PART <= turn->others) {
		turn->others = others;
		turn->seen = turns->now;
	}
	return limit >= smaller(turn->member.needs, room) || others_are_away(turns, self) ||
	       turns->now - turn->seen >= TURN_BEGIN;
}

/* Memory comes: takes what others have given up, and goes on when there is no more to wait for. */
static enum order_room look_while_coming(struct device *device)
{
	const struct gpu_account_view *view = &lifecycle_state.shared.view;
	struct gpu_turn_view turns;

	if (!turn_account_publish(device, true))
		return ORDER_ROOM_LOST;
	uint32_t self = turn_account_units(device, view, &turns);
	/* There are no turns any more. */
	if (!view->turn.on)
		return ORDER_ROOM_IS_ALL;
	/* Others have given it to another, because a process seemed to be dead; or one of the job could not come. */
	if (!gpu_job_is_to_come(&lifecycle_state.jobs.view))
		return ORDER_ROOM_LOST;
	uint64_t room = turn_account_room(device, view, &turns, self);
	uint64_t limit = gpu_account_raise(&device->account, turn_of(device)->member.may_have, room);
	if (limit > atomic_load(&device->budget.limit))
		atomic_store(&device->budget.limit, limit);
	return is_room_all(device, &turns, self, room, limit) ? ORDER_ROOM_IS_ALL : ORDER_ROOM_COMES;
}

/* All that moves is looked at by the watch of each: they are waited for one after the other. */
static enum order_room look_while_moving(void *argument)
{
	enum order_room room = ORDER_ROOM_IS_ALL;

	turn_account_beat();
	for (struct device *device = device_next(NULL); device; device = device_next(device)) {
		enum gpu_job_step step = turn_of(device)->moves;
		enum order_room its = step == GPU_JOB_RETURNS ? look_while_coming(device) : ORDER_ROOM_IS_ALL;

		if (step == GPU_JOB_LEAVES)
			look_while_leaving(device);
		if (device == argument)
			room = its;
	}
	return room;
}

/*
 * The heap is not asked, because the mover may be in the driver with its lock: what the process needs is as published
 * before.
 */
static void move_suspending(struct device *device)
{
	const struct gpu_account_view *view = &lifecycle_state.shared.view;
	struct turn_state *const turn = turn_of(device);
	bool stopped = spill_residence(device) != RESIDENCE_RUNS;
	struct gpu_turn_view turns;

	if (!atomic_load(&device->heap) || !turn->member.pid)
		return;
	if (stopped) {
		turn->claim.kind = GPU_TURN_OFF;
		lower(device);
	}
	if (!turn_account_publish(device, true) || !stopped)
		return;
	uint32_t self = turn_account_units(device, view, &turns);
	if (view->turn.holder != view->self || turn_account_give_on(device, view, &turns, self))
		turn->holds = false;
}

enum order_room turn_look_suspending(void *unused)
{
	(void)unused;
	for (struct device *device = turn_is_possible() ? device_next(NULL) : NULL; device;
	     device = device_next(device))
		move_suspending(device);
	return ORDER_ROOM_IS_ALL;
}

/* ---- acting ---- */

static void failed(struct device *device)
{
	struct gpu_job_claim *claim = &turn_of(device)->job_claim;

	claim->failed = claim->attempt;
	if (device->account.file.open)
		turn_account_publish(device, false);
}

/* Returns the name of what was submitted last, for a message; `name` is room for it. */
static const char *latest_work(char name[KERNEL_PARAMS_NAME])
{
	struct completion_what what;
	unsigned row;

	if (!recent_submissions_look(completion_newest(), &what, &row))
		return "not known";
	return kernel_params_name(what.function, name) ? name : real_name((int)what.id);
}

/* This process could not stop, or its memory could not leave. */
static void say_not_gone(enum sw_status status)
{
	char name[KERNEL_PARAMS_NAME];

	if (status == SW_BUSY)
		log_once("share: the GPU does not come to an end with what this process has submitted (the latest: "
			 "%s), or a "
			 "stream capture is open: it keeps its turn, and is asked again",
			 latest_work(name));
	else
		log_once("share: the memory of this process cannot leave the GPU (%s): it keeps its turn, and is asked "
			 "again",
			 status_text(status));
}

static void stop(struct device *device)
{
	struct turn_state *const turn = turn_of(device);
	uint64_t ran = clock_now() - turn->began;
	uint64_t idle = turn->idle;
	bool held = turn->holds;

	/* The others must see the order of the one that leads before it waits for its own device. */
	if (!turn_account_publish(device, false))
		return;
	turn->out_began = clock_now();
	if (turn->job_claim.stop_at > turn->out_began && turn->job_claim.stop_at - turn->out_began <= GPU_JOB_NOTICE)
		clock_sleep(turn->job_claim.stop_at - turn->out_began);
	enum sw_status status = spill_stop(device, &turn_beat_watch);
	if (status != SW_OK && spill_residence(device) == RESIDENCE_RUNS) {
		if (!turn->many && !spill_is_ending())
			say_not_gone(status);
		failed(device);
		return;
	}
	turn->holds = false;
	if (held)
		turn->claim.burst = gpu_turn_burst(ran, idle ? clock_now() - idle : 0);
	turn->claim.idle = turn->claim.waits = 0;
	turn_account_publish(device, false);
}

static void has_come(const struct device *device, uint64_t began, uint64_t bytes)
{
	trace_event(turn, (uint64_t)device->ordinal, 1, clock_now() - began, bytes);
}

static void go_on(struct device *device)
{
	struct turn_state *const turn = turn_of(device);
	bool comes = spill_residence(device) == RESIDENCE_AWAY;
	uint64_t began = clock_now(), bytes = 0;

	if (comes && device->account.file.open && !turn_account_publish(device, true))
		return;
	/* If the process was stopped since it looked, its job may have lost the turn: it looks again. */
	if (began - turn->decided >= GPU_TURN_SILENT / 2 || spill_release(device, &bytes) != SW_OK)
		return;
	if (comes)
		has_come(device, began, bytes);
	/* Of several devices it goes on with the last one. */
	if (turn->job_claim.wants && !spill_any_held())
		stats_add(STAT_turn_wait_us, (clock_now() - turn->job_claim.wants) / 1000);
	turn->job_claim.ran = turn->number;
	turn->claim.waits = 0;
	turn_account_publish(device, false);
}

void turn_act(struct device *device)
{
	struct turn_state *const turn = turn_of(device);
	enum gpu_job_step step = turn->step;

	turn->step = GPU_JOB_STAYS;
	if (step == GPU_JOB_STOPS)
		stop(device);
	else if (step == GPU_JOB_OPENS)
		go_on(device);
}

/* ---- moving ---- */

/* The devices whose memory moves at the same time. */
struct moves {
	enum gpu_job_step step;
	unsigned n;
	uint64_t began; /* ns */
	struct {
		struct device *device;
		struct order_watch watch;
		enum residence was;
		uint64_t used; /* bytes, before it */
		bool begun;    /* the mover has the order */
	} at[DEVICE_MOST];
};

static void begin_move(struct device *device, struct moves *moves)
{
	struct turn_state *const turn = turn_of(device);

	if (turn->step != moves->step)
		return;
	turn->step = GPU_JOB_STAYS;
	if (!turn_account_publish(device, true))
		return;
	struct order_watch *watch = &moves->at[moves->n].watch;

	*watch = (struct order_watch){.look = look_while_moving, .argument = device, .begins = ORDER_ROOM_COMES};
	moves->at[moves->n].device = device;
	moves->at[moves->n].was = spill_residence(device);
	moves->at[moves->n].used = atomic_load(&device->budget.used);
	turn->moves = moves->step;
	turn->others = 0;
	if (moves->step == GPU_JOB_LEAVES)
		heap_keep_host(atomic_load(&device->heap), beyond(turn->member.needs, turn->member.stuck));
	moves->at[moves->n++].begun =
	    spill_begin(device, moves->step == GPU_JOB_LEAVES ? RESIDENCE_AWAY : RESIDENCE_BACK,
			beyond(turn->keep, heap_others_bytes(atomic_load(&device->heap))), watch);
}

/* What has not left stays the process's, and the others go on in what is left. */
static void has_left(struct device *device, uint64_t used, enum residence was, enum sw_status status)
{
	struct turn_state *const turn = turn_of(device);
	uint64_t stays = atomic_load(&device->budget.used), bytes = used > stays ? used - stays : 0;

	turn->not_before = clock_now() + TURN_PAUSE;
	leave_moment_off(&turn->moment);
	stats_add(STAT_turn_bytes, bytes);
	if (was != RESIDENCE_AWAY) {
		if (status != SW_OK && !spill_is_ending())
			log_once(
			    "share: some of the memory of this process cannot leave the GPU (%s): the others go on "
			    "in what is left while it waits",
			    status_text(status));
		trace_event(turn, (uint64_t)device->ordinal, 0, clock_now() - turn->out_began, bytes);
	}
	atomic_store(&device->budget.limit, stays);
	turn_account_publish(device, false);
}

static void is_back(struct device *device, uint64_t used, uint64_t began, bool good)
{
	struct turn_state *const turn = turn_of(device);
	uint64_t now_used = atomic_load(&device->budget.used);

	turn->job_claim.ran = turn->number;
	if (!good) {
		turn->waits_after = clock_now() + TURN_PAUSE;
		turn->job_claim.wants = turn->claim.waits = 0;
		atomic_store(&device->budget.limit, now_used);
		failed(device);
		return;
	}
	has_come(device, began, now_used > used ? now_used - used : 0);
	/* Memory of others leaves meanwhile. */
	turn->claim.cost = gpu_turn_cost(turn->claim.cost, clock_now() - began);
	turn_account_publish(device, false);
}

static void move(enum gpu_job_step step)
{
	struct moves moves = {.step = step, .began = clock_now()};

	for (struct device *device = device_next(NULL); device; device = device_next(device))
		begin_move(device, &moves);
	for (unsigned i = 0; i < moves.n; i++) {
		struct device *device = moves.at[i].device;
		enum sw_status status = moves.at[i].begun ? spill_finish(device, &moves.at[i].watch) : SW_NOT_SUPPORTED;

		turn_of(device)->moves = GPU_JOB_STAYS;
		if (step == GPU_JOB_LEAVES)
			has_left(device, moves.at[i].used, moves.at[i].was, status);
		else
			is_back(device, moves.at[i].used, moves.began, status == SW_OK);
	}
	if (moves.n)
		stats_add(STAT_turn_move_us, (clock_now() - moves.began) / 1000);
}

void turn_move(void)
{
	for (struct device *device = device_next(NULL); device; device = device_next(device)) {
		if (turn_of(device)->tells)
			turn_account_publish(device, false);
		turn_of(device)->tells = false;
	}
	move(GPU_JOB_LEAVES);
	move(GPU_JOB_RETURNS);
}
