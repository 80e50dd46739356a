/* Moves for turns: memory leaves for the turn of another process, and comes back. See turn_move.h. */
#include "shim/lifecycle/turn_move.h"
#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/device/device.h"
#include "shim/lifecycle/lifecycle_state.h"
#include "shim/lifecycle/turn_account.h"
#include "shim/lifecycle/turn_job.h"
#include "shim/lifecycle/turn_say.h"
#include "shim/mover/spill.h"
#include "shim/stats/stats.h"
#include "shim/trace/trace.h"

/* ns: the pause after a try that failed, which doubles each time. */
#define TURN_PAUSE 250000000u
/* The account is locked by another process for some microseconds at a time. */
#define PASS_TRIES 100
#define PASS_NS    500000

/*
 * This process is stopped, and has published that: gives the turn to the next one, if it still has it. Returns false if
 * another process is just changing the account.
 */
static bool pass_once(struct device *device)
{
	const struct gpu_account_view *view = &lifecycle_state.shared.view;
	struct gpu_turn_view turns;

	if (view->turn.holder != view->self)
		return true;
	uint32_t self = turn_account_units(device, view, &turns);
	/* The others come first, whatever has begun to wait here meanwhile. */
	lifecycle_state.turn_common.members[self].claim.waits = 0;
	turns.holder = GPU_TURN_NOBODY;
	uint32_t next = gpu_turn_next(&turns);
	return gpu_account_pass(&device->account, view, true,
				next == GPU_TURN_NOBODY ? next : turn_account_member(next), turns.now);
}

/* This process is away: gives the turn to the next one. */
static void pass_on(struct device *device)
{
	for (unsigned tries = 0; tries < PASS_TRIES && turn_account_publish(device, false) && !pass_once(device);
	     tries++)
		clock_sleep(PASS_NS);
}

static void not_gone(const struct device *device, enum sw_status status)
{
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];

	if (spill_is_ending())
		return;
	state->not_before = clock_now() + ((uint64_t)TURN_PAUSE << state->failures);
	state->failures++;
	turn_say_not_gone(status);
	if (state->failures < TURN_TRIES)
		return;
	log_once("share: this process keeps its memory, and the others go on in what is left; it is asked again in a "
		 "minute");
	state->failures = 0;
	lifecycle_state.turn_common.refuses_until = clock_now() + TURN_REST;
	/* Until the others have seen that it takes no part. */
	state->claim.kind = GPU_TURN_OFF;
}

/*
 * While memory leaves. As soon as the process has stopped, the next one gets the turn, and fetches into what has gone
 * back to the driver: that is published as it shrinks. Measured (H200, 14.4 GiB out and in, bare copies): 352 ms,
 * against 559 one after the other (docs/facts.md, Two processes).
 */
static enum order_room look_while_leaving(void *argument)
{
	struct device *device = argument;
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];
	uint64_t used = atomic_load(&device->budget.used);

	turn_account_beat(device);
	if (spill_residence(device) == RESIDENCE_RUNS)
		return ORDER_ROOM_COMES;
	if (used < atomic_load(&device->budget.limit))
		atomic_store(&device->budget.limit, used);
	if (turn_account_publish(device, true) && state->holds)
		state->holds = !pass_once(device);
	return ORDER_ROOM_COMES;
}

void turn_move_out(struct device *device)
{
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];
	const struct order_watch watch = {.look = look_while_leaving, .argument = device};
	uint64_t begun = clock_now(), bytes = 0;

	if (!turn_account_publish(device, true))
		return;
	heap_keep_host(atomic_load(&device->heap), state->member.needs);
	/* Anew if it does not succeed. */
	if (state->holds)
		state->claim.burst =
		    gpu_turn_burst(begun - state->began, state->claim.idle ? begun - state->claim.idle : 0);
	enum sw_status status = spill_hold(device, RESIDENCE_AWAY, state->keep, &watch, &bytes);
	/*
	 * Once it has stopped, it waits for its turn as one that has left, even if some of its memory could not leave.
	 */
	if (status != SW_OK && spill_residence(device) == RESIDENCE_RUNS) {
		not_gone(device, status);
		turn_account_publish(device, false);
		return;
	}
	if (status != SW_OK)
		log_once("share: some of the memory of this process cannot leave the GPU (%s): the others go on in "
			 "what is left while it waits",
			 status_text(status));
	state->failures = 0;
	leave_moment_off(&state->moment);
	turn_job_alone(device);
	state->out_ns = clock_now() - begun;
	stats_add(STAT_turn_move_us, state->out_ns / 1000);
	stats_add(STAT_turn_bytes, bytes);
	trace_event(turn, (uint64_t)device->ordinal, 0, state->out_ns, bytes);
	state->claim.idle = state->claim.waits = 0;
	atomic_store(&device->budget.limit, atomic_load(&device->budget.used));
	/* Without effect if it has given its turn on. */
	state->holds = false;
	pass_on(device);
}

/* It is away, and gives up more of what it keeps. If that fails, it is tried again later. */
void turn_move_more(struct device *device)
{
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];

	if (!turn_account_publish(device, true))
		return;
	spill_hold(device, RESIDENCE_AWAY, state->keep, NULL, NULL);
	state->not_before = clock_now() + TURN_PAUSE;
	atomic_store(&device->budget.limit, atomic_load(&device->budget.used));
	turn_account_publish(device, false);
}

/* It stays away. The others must not wait for it: it gives the turn on, and asks for another one later. */
static void not_come(struct device *device)
{
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];

	state->waits_after = clock_now() + TURN_PAUSE;
	state->claim.waits = 0;
	atomic_store(&device->budget.limit, atomic_load(&device->budget.used));
	pass_on(device);
}

/* Returns whether all that the turn has room for is there, or those that have it do not give it up in time. */
static bool is_room_all(const struct device *device, const struct gpu_turn_view *turns, uint32_t self, uint64_t limit)
{
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];
	uint64_t room = turn_account_room(device, turns, self), others = 0;
	uint64_t needs = state->member.needs + state->member.stuck;

	for (uint32_t i = 0; i < turns->n; i++)
		others += i == self ? 0 : turns->members[i].may_have;
	if (!state->others || others + turns->total / TURN_KEEP_PART <= state->others) {
		state->others = others;
		state->seen = turns->now;
	}
	return limit >= (needs < room ? needs : room) || turn_account_others_are_away(turns, self) ||
	       turns->now - state->seen >= TURN_BEGIN;
}

/* While memory comes: takes what others have given up. The gate opens when there is no more to wait for. */
static enum order_room look_while_coming(void *argument)
{
	const struct gpu_account_view *view = &lifecycle_state.shared.view;
	struct device *device = argument;
	struct gpu_turn_view turns;

	turn_account_beat(device);
	if (!turn_account_publish(device, true))
		return ORDER_ROOM_LOST;
	/*
	 * There are no turns any more; or others have given this one to another, because this process seemed to be
	 * dead.
	 */
	if (view->turn.holder != view->self)
		return view->turn.on ? ORDER_ROOM_LOST : ORDER_ROOM_IS_ALL;
	uint32_t self = turn_account_units(device, view, &turns);
	uint64_t limit = turn_account_raise(device, &lifecycle_state.turn[device->ordinal].member,
					    turn_account_room(device, &turns, self));
	if (limit > atomic_load(&device->budget.limit))
		atomic_store(&device->budget.limit, limit);
	return is_room_all(device, &turns, self, limit) ? ORDER_ROOM_IS_ALL : ORDER_ROOM_COMES;
}

void turn_move_in(struct device *device)
{
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];
	const struct gpu_account_view *view = &lifecycle_state.shared.view;
	const struct order_watch watch = {.look = look_while_coming, .argument = device, .begins = ORDER_ROOM_COMES};
	uint64_t begun = clock_now(), bytes = 0;

	if (device->account.joined && !turn_account_publish(device, true))
		return;
	/* If there are no turns any more, or no account, or it takes no part in them, it has what it may have. */
	bool in_turn = device->account.joined && view->turn.on && view->turn.holder == view->self;
	/* The process was stopped since it looked, and others have given its turn to another: it stays away. */
	if (!in_turn && device->account.joined && view->turn.on && state->claim.kind != GPU_TURN_OFF)
		return;
	state->others = 0;
	if (spill_release(device, in_turn ? &watch : NULL, &bytes) != SW_OK) {
		not_come(device);
		return;
	}
	state->in_ns = clock_now() - begun;
	stats_add(STAT_turn_move_us, state->in_ns / 1000);
	if (state->claim.waits)
		stats_add(STAT_turn_wait_us, (clock_now() - state->claim.waits) / 1000);
	trace_event(turn, (uint64_t)device->ordinal, 1, state->in_ns, bytes);
	if (in_turn && begun > view->turn.since)
		begun = view->turn.since;
	state->claim.cost = gpu_turn_cost(state->claim.cost, clock_now() - begun);
	state->claim.waits = 0;
	turn_job_alone(device);
	turn_account_publish(device, false);
}

/*
 * The heap is not asked, because the mover may be in the driver with its lock: what the process needs is as published
 * before.
 */
void turn_move_suspending(struct device *device)
{
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];
	uint64_t used = atomic_load(&device->budget.used);
	bool stopped = spill_residence(device) != RESIDENCE_RUNS;

	if (!atomic_load(&device->heap) || !state->member.pid)
		return;
	if (stopped) {
		state->claim.kind = GPU_TURN_OFF;
		if (used < atomic_load(&device->budget.limit))
			atomic_store(&device->budget.limit, used);
	}
	if (turn_account_publish(device, true) && stopped && pass_once(device))
		state->holds = false;
}
