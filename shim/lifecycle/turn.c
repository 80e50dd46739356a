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
#include "shim/lifecycle/turn_move.h"
#include "shim/lifecycle/turn_say.h"
#include "shim/mover/spill.h"
#include "shim/process/process.h"
#include "shim/stats/stats.h"
#include "shim/submit/submission.h"
#include "shim/trace/trace.h"

/* ns: over which it is measured what spilling costs. */
#define LOSS_NS 2000000000u
/* ms between looks: while it waits until little is alive or enters turns, for its turn, and otherwise. */
#define LOOK_MOMENT 1
#define LOOK_WAITS  2
#define LOOK_TURNS  5

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

	return policy_settings(policy)->turns.mode != POLICY_TURNS_OFF &&
	       policy_settings(policy)->spill >= POLICY_SPILL_EXACT && !lifecycle_state.jobs.is_spread;
}

/* Who takes no turns on one device takes none on the others. */
static bool has_other_clock(void)
{
	bool other = false;

	for (unsigned i = 0; i < DEVICE_MOST; i++)
		other |= lifecycle_state.turn[i].other_clock;
	return other;
}

static enum gpu_turn_kind kind_now(uint64_t now)
{
	int mode = process_settings()->turns.mode;

	if (!can_take_turns() || has_other_clock() || is_suspended_by_user() ||
	    now < lifecycle_state.turn_common.refuses_until)
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
	const struct policy_turns *turns = &process_settings()->turns;
	struct gpu_turn_claim *claim = &state->claim;
	uint64_t now = clock_now();

	/* The mover has died: it runs. */
	if (state->away && !spill_is_suspended(device)) {
		atomic_store(&state->away, false);
		turn_job_alone(device, false);
		if (!spill_any_suspended())
			stats_set_state(STATS_RUNNING);
	}
	enum gpu_turn_kind kind = kind_now(now);
	state->enters = claim->kind == GPU_TURN_OFF && kind != GPU_TURN_OFF;
	claim->kind = kind;
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
	/* As long as nothing else is known. */
	state->lacks = claim->kind != GPU_TURN_OFF || state->away;
	member->claim = *claim;
	turn_account_claim(device, member, now);
}

/* ---- looking ---- */

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

	uint64_t room = turn_account_room(device, turns, self);
	*ret_limit = turn_account_raise(device, member, room);
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
	/* Who is away may have been counted with more, and an account that settles gives nothing. */
	state->lacks = *ret_limit < room && turns->now - state->began < TURN_BEGIN;
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
	if (view->members[self].holds > state->keep + view->members[self].stuck + view->total / TURN_KEEP_PART &&
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
	state->other_clock = false;
	state->look_ms = 0;
	state->act = state->away && !is_suspended_by_user() ? TURN_COMES : TURN_STAYS;
	state->job.many = false;
	turn_job_alone(device, state->away);
	state->lacks = false;
}

static bool look(struct device *device, const struct gpu_account_member *member, const struct gpu_account_view *view,
		 uint64_t most, uint64_t *ret_limit)
{
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];
	struct gpu_turn_view turns;

	state->most = most;
	state->act = TURN_STAYS;
	state->look_ms = 0;
	state->member = *member;
	state->other_clock = view->other_clock;
	if (view->other_clock && can_take_turns())
		turn_say_clock(device);
	if (member->claim.kind == GPU_TURN_OFF && !state->away && !state->holds)
		return false;
	/*
	 * When it enters turns, its other devices have not said yet that it takes part: it would be alone on this one,
	 * and leave it while it goes on on the others. They have when it looks again.
	 */
	bool is_lost = clock_now() < state->lost_until;
	if (is_lost || (state->enters && turn_account_is_in_several())) {
		state->look_ms = is_lost ? LOOK_TURNS : LOOK_MOMENT;
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
		state->lacks = false;
		spill_leaves_soon(device, 0);
		state->act = state->away && !is_suspended_by_user() ? TURN_COMES : TURN_STAYS;
		*ret_limit = state->away ? member->holds : member->may_have;
		return is_suspended_by_user() || (turns.on && turns.now < lifecycle_state.turn_common.refuses_until);
	}
	if (turns.on)
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

bool turn_look(struct device *device, const struct gpu_account_member *member, const struct gpu_account_view *view,
	       uint64_t most, uint64_t *ret_limit)
{
	bool sets = look(device, member, view, most, ret_limit);

	lifecycle_state.turn[device->ordinal].lacks &= sets;
	return sets;
}

bool turn_lacks(const struct device *device)
{
	return lifecycle_state.turn[device->ordinal].lacks;
}

void turn_suspended(struct device *device)
{
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];

	state->holds = false;
	state->act = TURN_STAYS;
	state->look_ms = 0;
}

static void move_suspending(struct device *device, void *unused)
{
	(void)unused;
	turn_move_suspending(device);
}

enum order_room turn_look_suspending(void *unused)
{
	if (can_take_turns())
		device_each(move_suspending, unused);
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
		turn_move_out(device);
	else if (act == TURN_LEAVES)
		turn_move_more(device);
	else if (act == TURN_COMES)
		turn_move_in(device);
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
