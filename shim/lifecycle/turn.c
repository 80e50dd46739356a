/*
 * Turns. See turn.h. A process looks at the account every few ms while there are turns: that is how soon it sees that
 * another waits, that it has nothing to do, or that it is its turn.
 */
#include "shim/lifecycle/turn.h"
#include "policy/policy.h"
#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/device/device.h"
#include "shim/lifecycle/lifecycle_state.h"
#include "shim/lifecycle/turn_account.h"
#include "shim/lifecycle/turn_job.h"
#include "shim/lifecycle/turn_say.h"
#include "shim/mover/spill.h"
#include "shim/process/process.h"
#include "shim/stats/stats.h"
#include "shim/submit/submission.h"
#include "shim/trace/trace.h"

/* ns: the pause after a try that failed, which doubles each time. */
#define TURN_PAUSE 250000000u
/* ns: a turn begins after this time even if others have not given up their memory yet. */
#define TURN_BEGIN 2000000000u
/* ns: over which it is measured what spilling costs. */
#define LOSS_NS 2000000000u
/* Of the total: a process that waits does not give up less than this. */
#define KEEP_PART 32
/* ms between looks: while it waits until little is alive, for its turn, and otherwise. */
#define LOOK_MOMENT 1
#define LOOK_WAITS  2
#define LOOK_TURNS  5
/* The account is locked by another process for some microseconds at a time. */
#define PASS_TRIES 100
#define PASS_NS    500000

static void look_for_suspension(struct device *device, void *argument)
{
	*(bool *)argument |= spill_is_suspended(device) && !turn_is_away_on(device);
}

/* Also while its memory leaves because of that. */
static bool is_suspended_by_user(void)
{
	bool is_suspended = atomic_load(&lifecycle_state.suspension.suspended);

	if (!is_suspended && spill_any_suspended())
		device_each(look_for_suspension, &is_suspended);
	return is_suspended;
}

/* Returns whether the process takes turns if nothing is in the way just now. */
static bool can_take_turns(void)
{
	const struct policy *policy = process_policy();

	return policy_turns(policy)->mode != POLICY_TURNS_OFF && policy_spill_mode(policy) >= POLICY_SPILL_EXACT &&
	       !lifecycle_state.jobs.is_spread;
}

static enum gpu_turn_kind kind_now(uint64_t now)
{
	int mode = policy_turns(process_policy())->mode;

	if (!can_take_turns() || is_suspended_by_user() || now < lifecycle_state.turn_common.refuses_until)
		return GPU_TURN_OFF;
	return mode == POLICY_TURNS_ON ? GPU_TURN_ON : GPU_TURN_AUTO;
}

static void measure_loss(uint64_t now)
{
	struct turn_common_state *const state = &lifecycle_state.turn_common;
	uint64_t lost = (stats_get(STAT_waiting_us) + stats_get(STAT_gap_us)) * 1000;

	if (state->loss_since && now - state->loss_since < LOSS_NS)
		return;
	if (state->loss_since) {
		uint64_t loss = (lost - state->lost) * 1000 / (now - state->loss_since);

		state->loss = loss < 1000 ? loss : 1000;
	}
	state->loss_since = now;
	state->lost = lost;
}

void turn_set_weight(int weight)
{
	lifecycle_state.turn_common.weight = weight;
}

void turn_claim(struct device *device, struct gpu_account_member *member)
{
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];
	const struct policy_turns *turns = policy_turns(process_policy());
	struct gpu_turn_claim *claim = &state->claim;
	uint64_t now = clock_now();

	/* The mover has died: it runs. */
	if (state->away && !spill_is_suspended(device)) {
		atomic_store(&state->away, false);
		turn_job_alone(device, false);
		if (!spill_any_suspended())
			stats_set_state(STATS_RUNNING);
	}
	claim->kind = kind_now(now);
	claim->weight =
	    (uint64_t)(lifecycle_state.turn_common.weight ? lifecycle_state.turn_common.weight : turns->weight);
	claim->quantum = turns->quantum;
	claim->patience = turns->patience;
	claim->beat = now;
	claim->moving = 0;
	claim->away = state->away && state->job.claim.state != GPU_JOB_STOPPED;
	if (claim->kind == GPU_TURN_AUTO)
		measure_loss(now);
	claim->loss = lifecycle_state.turn_common.loss;
	if (claim->kind == GPU_TURN_OFF)
		state->holds = false;
	if (state->holds) {
		/* A process that was stopped for longer had no turn meanwhile. */
		uint64_t ns = now - state->counted < GPU_TURN_SILENT ? now - state->counted : GPU_TURN_SILENT;

		claim->served = gpu_turn_serve(claim->served, claim->weight, ns);
		claim->got += ns;
		stats_add(STAT_turn_us, ns / 1000);
		state->counted = now;
	}
	/* A job that runs has to be idle on all its devices, also where it needs no turn. */
	bool runs = state->holds || (state->job.many && state->job.claim.state == GPU_JOB_RUNS);
	if (!runs || gate_n_waiting() || !spill_is_idle(device))
		claim->idle = 0;
	else if (!claim->idle)
		claim->idle = now;
	/* A job waits together. */
	if (!state->away || (!gate_n_waiting() && !state->job.many))
		claim->waits = 0;
	member->claim = *claim;
	turn_account_claim(device, member, now);
}

/* ---- looking ---- */

/* Returns whether all others that take turns have given up what they can. */
static bool others_are_away(const struct gpu_turn_view *turns, uint32_t self)
{
	for (uint32_t i = 0; i < turns->n; i++)
		if (i != self && gpu_turn_takes_part(turns, i) && !turns->members[i].claim.away)
			return false;
	return true;
}

static uint64_t raise(struct device *device, const struct gpu_account_member *member, uint64_t wanted)
{
	return wanted > member->may_have ? gpu_account_raise(&device->account, member->may_have, wanted)
					 : member->may_have;
}

/* Returns the bytes that this process may have in its turn. */
static uint64_t room_of_turn(const struct device *device, const struct gpu_turn_view *turns, uint32_t self)
{
	uint64_t room = gpu_turn_room(turns, self), most = lifecycle_state.turn[device->ordinal].most;

	return room < most ? room : most;
}

/* Returns the bytes of the heap that would be copied if they left now, as far as the program's allocator has said. */
static uint64_t alive_bytes(const struct device *device, const struct gpu_account_member *member)
{
	const struct stats_device *figures = &stats.device[device->ordinal];
	uint64_t reported = atomic_load_explicit(&figures->cache, memory_order_relaxed);
	uint64_t alive = atomic_load_explicit(&figures->cache_alive, memory_order_relaxed);
	uint64_t dead = reported > alive ? reported - alive : 0;

	return member->needs > dead ? member->needs - dead : 0;
}

/* Another is to have the turn of this process: decides whether it leaves now or goes on until little of it is alive. */
static void look_for_moment(struct device *device, const struct gpu_account_member *member,
			    const struct gpu_turn_view *turns)
{
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];

	if (turns->now < state->not_before)
		return;
	if (leave_moment_is_now(&state->moment, turns->now, alive_bytes(device, member), gpu_turn_may_wait(turns)))
		state->act = TURN_GOES;
	else
		state->look_ms = LOOK_MOMENT;
}

/*
 * Has host memory pinned for what is going to leave, whatever is alive then: a turn may have to end where much is, and
 * pinning takes 0.2 s for each GiB, for which the others would wait.
 */
static void pin_ahead(struct device *device, const struct gpu_account_member *member, const struct gpu_turn_view *turns,
		      uint32_t self)
{
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];

	if (state->kept < member->needs)
		heap_keep_host(atomic_load(&device->heap), state->kept = member->needs);
	spill_leaves_soon(device, gpu_turn_leaves(turns, self));
}

/* It is the turn of this process, or it may run beside turns. */
static void look_as_holder(struct device *device, const struct gpu_account_member *member,
			   const struct gpu_turn_view *turns, uint32_t self, uint64_t *ret_limit)
{
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];

	*ret_limit = raise(device, member, room_of_turn(device, turns, self));
	if (state->away) {
		state->act = TURN_COMES;
		return;
	}
	if (!state->holds) {
		state->holds = true;
		state->began = state->counted = turns->now;
		state->claim.n++;
		stats_add(STAT_turns, 1);
	}
	state->keep = gpu_turn_keep(turns, self);
	leave_moment_see(&state->moment, turns->now, alive_bytes(device, member));
	pin_ahead(device, member, turns, self);
	if (gpu_turn_next(turns) != self)
		look_for_moment(device, member, turns);
	else
		leave_moment_off(&state->moment);
}

/* Another has the turn, or none. */
static void look_as_other(struct device *device, const struct gpu_account_view *view, struct gpu_turn_view *turns,
			  uint32_t self)
{
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];
	uint32_t holder = turns->holder;

	state->holds = false;
	if (!state->away) {
		if (turns->now >= state->not_before)
			state->act = TURN_GOES;
		state->keep = gpu_turn_keep(turns, self);
		return;
	}
	if (gate_n_waiting() && !state->claim.waits && turns->now >= state->waits_after) {
		state->claim.waits = turns->now;
		state->claim.served = gpu_turn_enter(turns, self);
		lifecycle_state.turn_common.members[self].claim.waits = state->claim.waits;
		lifecycle_state.turn_common.members[self].claim.served = state->claim.served;
	}
	if (state->claim.waits)
		state->look_ms = LOOK_WAITS;
	/* Another needs more than when this process left. */
	state->keep = gpu_turn_keep(turns, self);
	if (view->members[self].holds > state->keep + view->members[self].stuck + view->total / KEEP_PART &&
	    turns->now >= state->not_before)
		state->act = TURN_LEAVES;
	if (holder != GPU_TURN_NOBODY && gpu_turn_takes_part(turns, holder))
		return;
	/*
	 * Its process has gone, or is stopped, or does not take part any more. Whoever sees it first gives the turn on.
	 */
	uint32_t next = gpu_turn_next(turns);
	if (next != holder && next != GPU_TURN_NOBODY)
		gpu_account_pass(&device->account, view, true, turn_account_member(next), turns->now);
}

void turn_lost(const struct device *device)
{
	turn_account_lost(device);
}

void turn_alone(const struct device *device)
{
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];

	state->holds = false;
	state->look_ms = 0;
	state->act = state->away && !is_suspended_by_user() ? TURN_COMES : TURN_STAYS;
	state->job.many = false;
	turn_job_alone(device, state->away);
}

bool turn_look(struct device *device, const struct gpu_account_member *member, const struct gpu_account_view *view,
	       uint64_t most, uint64_t *ret_limit)
{
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];
	struct gpu_turn_view turns;

	state->most = most;
	state->act = TURN_STAYS;
	state->look_ms = 0;
	state->member = *member;
	if (member->claim.kind == GPU_TURN_OFF && !state->away && !state->holds)
		return false;
	if (clock_now() < state->lost_until) {
		state->look_ms = LOOK_TURNS;
		*ret_limit = state->away ? member->holds : member->may_have;
		return true;
	}
	uint32_t self = turn_account_units(device, view, &turns);
	bool takes_part = gpu_turn_takes_part(&turns, self), wanted = gpu_turn_wanted(&turns);
	if (takes_part && !wanted && !turns.on)
		turn_say_refused(view, &turns);
	if (takes_part && wanted != turns.on) {
		/* The process that begins with it is running, so it has the first turn. */
		gpu_account_pass(&device->account, view, wanted, wanted && !state->away ? view->self : GPU_TURN_NOBODY,
				 turns.now);
		state->look_ms = LOOK_WAITS;
		*ret_limit = member->may_have;
		return true;
	}
	bool together = state->job.many && takes_part && turn_job_is_on();
	if (!together)
		turn_job_alone(device, state->away);
	if (!takes_part || (!turns.on && !together)) {
		state->holds = false;
		spill_leaves_soon(device, 0);
		state->act = state->away && !is_suspended_by_user() ? TURN_COMES : TURN_STAYS;
		*ret_limit = member->may_have;
		return is_suspended_by_user() || (turns.on && turns.now < lifecycle_state.turn_common.refuses_until);
	}
	turn_say_turns(device, view);
	spill_prepare(device);
	if (together)
		return turn_job_look(device, member, view, &turns, self, ret_limit);
	state->look_ms = LOOK_TURNS;
	*ret_limit = state->away ? member->holds : member->may_have;
	if (turns.holder == self)
		look_as_holder(device, member, &turns, self, ret_limit);
	else
		look_as_other(device, view, &turns, self);
	return true;
}

/* ---- acting ---- */

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
	if (!spill_is_suspended(device))
		return ORDER_ROOM_COMES;
	if (used < atomic_load(&device->budget.limit))
		atomic_store(&device->budget.limit, used);
	if (turn_account_publish(device, true) && state->holds)
		state->holds = !pass_once(device);
	return ORDER_ROOM_COMES;
}

static void go(struct device *device)
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
	enum sw_status status = spill_leave(device, state->keep, &watch, &bytes);
	/*
	 * Once it has stopped, it waits for its turn as one that has left, even if some of its memory could not leave.
	 */
	if (status != SW_OK && !spill_is_suspended(device)) {
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
	atomic_store(&state->away, true);
	turn_job_alone(device, true);
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
static void leave_more(struct device *device)
{
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];

	if (!turn_account_publish(device, true))
		return;
	spill_leave_more(device, state->keep, NULL);
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
	uint64_t room = room_of_turn(device, turns, self), others = 0;
	uint64_t needs = state->member.needs + state->member.stuck;

	for (uint32_t i = 0; i < turns->n; i++)
		others += i == self ? 0 : turns->members[i].may_have;
	if (!state->others || others + turns->total / KEEP_PART <= state->others) {
		state->others = others;
		state->seen = turns->now;
	}
	return limit >= (needs < room ? needs : room) || others_are_away(turns, self) ||
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
	uint64_t limit =
	    raise(device, &lifecycle_state.turn[device->ordinal].member, room_of_turn(device, &turns, self));
	if (limit > atomic_load(&device->budget.limit))
		atomic_store(&device->budget.limit, limit);
	return is_room_all(device, &turns, self, limit) ? ORDER_ROOM_IS_ALL : ORDER_ROOM_COMES;
}

static void come(struct device *device)
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
	if (spill_return(device, in_turn ? &watch : NULL, &bytes) != SW_OK) {
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
	atomic_store(&state->away, false);
	turn_job_alone(device, false);
	turn_account_publish(device, false);
}

/* ---- while it is suspended on request ---- */

/*
 * The heap is not asked, because the mover may be in the driver with its lock: what the process needs is as published
 * before.
 */
static void look_suspending(struct device *device, void *unused)
{
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];
	uint64_t used = atomic_load(&device->budget.used);
	bool stopped = spill_is_suspended(device);

	(void)unused;
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

void turn_suspended(struct device *device)
{
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];

	state->holds = false;
	state->act = TURN_STAYS;
	state->look_ms = 0;
}

enum order_room turn_look_suspending(void *unused)
{
	if (can_take_turns())
		device_each(look_suspending, unused);
	return ORDER_ROOM_IS_ALL;
}

void turn_act(struct device *device)
{
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];
	enum turn_act act = state->act;

	state->act = TURN_STAYS;
	if (turn_job_act(device))
		return;
	if (act == TURN_GOES)
		go(device);
	else if (act == TURN_LEAVES)
		leave_more(device);
	else if (act == TURN_COMES)
		come(device);
}

unsigned turn_look_ms(void)
{
	unsigned least = 0;

	for (unsigned i = 0; i < DEVICE_MOST; i++) {
		unsigned ms = lifecycle_state.turn[i].look_ms;

		if (ms && (!least || ms < least))
			least = ms;
	}
	return least;
}

bool turn_is_away(void)
{
	for (unsigned i = 0; i < DEVICE_MOST; i++)
		if (atomic_load(&lifecycle_state.turn[i].away))
			return true;
	return false;
}

bool turn_is_away_on(const struct device *device)
{
	return atomic_load(&lifecycle_state.turn[device->ordinal].away);
}
