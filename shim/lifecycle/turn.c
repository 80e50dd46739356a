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

/* ns: over which it is measured what spilling costs. */
#define LOSS_NS 2000000000u
/* ms between looks: while it enters turns, while they begin or end, and while the account is lost. */
#define LOOK_ENTERS 1
#define LOOK_BEGINS 2
#define LOOK_LOST   5

static void look_for_suspension(struct device *device, void *argument)
{
	*(bool *)argument |= spill_residence(device) != RESIDENCE_RUNS && !turn_is_away(device);
}

/* Also while its memory leaves because of that. */
static bool is_suspended_by_user(void)
{
	bool is_suspended = spill_held_by(NULL) & RESIDENCE_USER;

	if (!is_suspended && spill_any_held())
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
	int mode = policy_turns(process_policy())->mode;

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
	const struct policy_turns *turns = policy_turns(process_policy());
	struct gpu_turn_claim *claim = &state->claim;
	uint64_t now = clock_now();

	/* The mover has died: it runs. */
	if (state->job.claim.state != RESIDENCE_RUNS && spill_residence(device) == RESIDENCE_RUNS)
		turn_job_alone(device);
	enum gpu_turn_kind kind = kind_now(now);
	state->enters = claim->kind == GPU_TURN_OFF && kind != GPU_TURN_OFF;
	claim->kind = kind;
	claim->weight =
	    (uint64_t)(lifecycle_state.turn_common.weight ? lifecycle_state.turn_common.weight : turns->weight);
	claim->quantum = turns->quantum;
	claim->patience = turns->patience;
	claim->beat = now;
	claim->moving = 0;
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
	bool runs = state->holds || (state->job.many && spill_residence(device) == RESIDENCE_RUNS);
	if (!runs || gate_n_waiting() || !spill_is_idle(device))
		claim->idle = 0;
	else if (!claim->idle)
		claim->idle = now;
	/* A job waits together. */
	if (!turn_is_away(device) || (!gate_n_waiting() && !state->job.many))
		claim->waits = 0;
	/* As long as nothing else is known. */
	state->lacks = claim->kind != GPU_TURN_OFF || turn_is_away(device);
	member->claim = *claim;
	turn_account_claim(device, member, now);
}

/* ---- looking ---- */

void turn_lost(const struct device *device)
{
	turn_account_lost(device);
}

/* It takes no turns: it goes on if it is away because of them. */
static void goes_on(const struct device *device)
{
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];

	turn_job_alone(device);
	state->job.seen = clock_now();
	state->job.step = turn_is_away(device) && !is_suspended_by_user() ? GPU_JOB_OPENS : GPU_JOB_STAYS;
	state->holds = state->lacks = false;
}

void turn_alone(const struct device *device)
{
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];

	state->other_clock = false;
	state->look_ms = 0;
	state->job.many = false;
	goes_on(device);
}

static bool look(struct device *device, const struct gpu_account_member *member, const struct gpu_account_view *view,
		 uint64_t most, uint64_t *ret_limit)
{
	struct turn_state *const state = &lifecycle_state.turn[device->ordinal];
	struct gpu_turn_view turns;

	state->most = most;
	state->job.step = GPU_JOB_STAYS;
	state->look_ms = 0;
	state->member = *member;
	state->other_clock = view->other_clock;
	if (view->other_clock && can_take_turns())
		turn_say_clock(device);
	if (member->claim.kind == GPU_TURN_OFF && !turn_is_away(device) && !state->holds)
		return false;
	/*
	 * When it enters turns, its other devices have not said yet that it takes part: it would be alone on this one,
	 * and leave it while it goes on on the others. They have when it looks again.
	 */
	bool is_lost = clock_now() < state->lost_until;
	if (is_lost || (state->enters && turn_account_is_in_several())) {
		state->look_ms = is_lost ? LOOK_LOST : LOOK_ENTERS;
		*ret_limit = turn_is_away(device) ? member->holds : member->may_have;
		return true;
	}
	uint32_t self = turn_account_units(device, view, &turns);
	bool takes_part = gpu_turn_takes_part(&turns, self), wanted = gpu_turn_wanted(&turns);
	if (takes_part && !wanted && !turns.on)
		turn_say_refused(view, &turns);
	if (takes_part && wanted != turns.on) {
		/* The process that begins with it is running, so it has the first turn. */
		gpu_account_pass(&device->account, view, wanted,
				 wanted && !turn_is_away(device) ? view->self : GPU_TURN_NOBODY, turns.now);
		state->look_ms = LOOK_BEGINS;
		*ret_limit = member->may_have;
		return true;
	}
	if (!takes_part || !(turns.on || turn_job_is_on())) {
		goes_on(device);
		spill_leaves_soon(device, 0);
		*ret_limit = turn_is_away(device) ? member->holds : member->may_have;
		return is_suspended_by_user() || (turns.on && turns.now < lifecycle_state.turn_common.refuses_until);
	}
	if (turns.on)
		turn_say_turns(device, view);
	spill_prepare(device);
	return turn_job_look(device, member, view, &turns, self, ret_limit);
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
	state->job.step = GPU_JOB_STAYS;
	state->look_ms = 0;
}

static void move_suspending(struct device *device, void *unused)
{
	(void)unused;
	turn_job_suspending(device);
}

enum order_room turn_look_suspending(void *unused)
{
	if (can_take_turns())
		device_each(move_suspending, unused);
	return ORDER_ROOM_IS_ALL;
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
