/*
 * Device budgets that follow what is free, or what other processes leave: ten times a second the driver is asked or the
 * account is read, the controller decides, and what is above the new limit is evicted in a gap. Cost where no budget
 * follows: a load for each device, once a second.
 */
#include "shim/lifecycle/follow.h"
#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/base/user_dir.h"
#include "shim/context/context.h"
#include "shim/device/device.h"
#include "shim/heap/migration.h"
#include "shim/lifecycle/types.h"
#include "shim/lifecycle/turn.h"
#include "shim/mover/spill.h"
#include "shim/plan/gpu_turn.h"
#include "shim/process/process.h"
#include "shim/serve/segments.h"
#include "shim/stats/stats.h"

#include <unistd.h>

/* ns: a gap in which nothing could leave is not repeated at once, because each one stops the program for a moment. */
#define AGAIN_NS     1000000000u
#define LOOK_MS      100 /* between two looks */
#define REFUSED_MOST 20  /* tries to enter an account, 0.1 s apart; a file that changes hands is free long before */

bool follow_make_fit(struct device *device)
{
	uint64_t before = budget_over(&device->budget);

	if (!before)
		return false;
	segments_give_up(device);
	device_make_room(device);
	uint64_t over = budget_over(&device->budget);
	if (over)
		spill_make_room(device, over);
	return budget_over(&device->budget) < before;
}

static bool get_figures(const struct device *device, struct live_budget_figures *ret_figures)
{
	size_t free, total;

	if (!atomic_load(&device->heap) || !context_memory(device->ordinal, &free, &total))
		return false;
	*ret_figures = (struct live_budget_figures){
	    .now = clock_now(),
	    .total = device->total,
	    .free = free,
	    .used = atomic_load(&device->budget.used),
	    .reserve = device_reserve(device),
	    .piece = heap_largest_piece(atomic_load(&device->heap)),
	};
	return true;
}

/* Two processes that start together differ by their numbers, two devices by the address. */
static uint64_t seed_of(const struct device *device)
{
	return clock_now() ^ identity_get() ^ (uint64_t)(uintptr_t)device;
}

static void begin_with(struct device *device, const struct live_budget_figures *figures)
{
	struct follow_state *const state = &lifecycle_state.follow[device->ordinal];

	live_budget_begin(&state->budget, figures, seed_of(device));
	state->begun = true;
}

void follow_begin(struct device *device)
{
	struct follow_state *const state = &lifecycle_state.follow[device->ordinal];
	struct live_budget_figures figures;

	state->begun = false;
	state->not_before = 0;
	if (atomic_load(&device->follows) && get_figures(device, &figures))
		begin_with(device, &figures);
	if (state->begun && !atomic_load(&device->shared_total))
		atomic_store(&device->budget.limit, device_within_limit(device, state->budget.limit));
}

static void tell_shrink(const struct device *device, const struct live_budget_figures *figures)
{
	char free[32], limit[32];

	log_once("device.budget: auto: only %s of device %d are free: the budget is %s now, and follows what is free",
		 log_bytes(free, sizeof(free), figures->free), device->ordinal,
		 log_bytes(limit, sizeof(limit), atomic_load(&device->budget.limit)));
}

/* ---- devices that are shared ---- */

static uint64_t submissions(void)
{
	uint64_t sum = 0;

	for (unsigned i = 1; i <= STATS_STRIPES; i++)
		sum += stats_submissions(i);
	return sum;
}

/*
 * Returns what the process has on the device that cannot leave it: what is not the heap's (the driver's pools, its own
 * cuMemCreate), and what is pinned.
 */
static uint64_t stuck_of(struct heap *heap, uint64_t used)
{
	return process_settings()->spill >= POLICY_SPILL_EXACT ? heap_pinned_device(heap) + heap_others_bytes(heap)
							       : used;
}

static struct gpu_account_member member_of(struct device *device)
{
	struct follow_state *const state = &lifecycle_state.follow[device->ordinal];
	uint64_t limit = atomic_load(&device->budget.limit), used = atomic_load(&device->budget.used);
	struct heap *heap = atomic_load(&device->heap);
	uint64_t submitted = submissions();

	if (submitted != state->submitted)
		state->worked = clock_now();
	state->submitted = submitted;
	return (struct gpu_account_member){
	    .pid = (uint64_t)getpid(),
	    .may_have = limit > used ? limit : used,
	    .holds = used,
	    .needs = heap_block_bytes(heap),
	    .stuck = stuck_of(heap, used),
	    .worked = state->worked,
	};
}

/*
 * Returns true if what is above a share must be given up: a member has less than its share by more than `slack`, or all
 * have too much. slack: a piece, because giving up less helps nobody, and each time takes a gap.
 */
static bool any_is_short(const struct gpu_account_view *view, const struct gpu_share_member *members, uint64_t slack)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < view->n; i++) {
		uint64_t has = view->members[i].may_have;

		sum += has;
		if (i != view->self && gpu_share_of(view->total, members, view->n, i) > has + slack)
			return true;
	}
	return sum > view->total;
}

/* Enters the account. Returns false if that is impossible; if it stays so, the process goes on without it. */
static bool enter_account(struct device *device, const struct gpu_account_member *member)
{
	struct follow_state *const state = &lifecycle_state.follow[device->ordinal];

	if (device->account.file.open ||
	    gpu_account_join(&device->account, device->uuid, atomic_load(&device->shared_total), member)) {
		state->refused = 0;
		return true;
	}
	if (device->account.lasting)
		state->refused = REFUSED_MOST; /* it has been said */
	if (state->refused < REFUSED_MOST && ++state->refused == REFUSED_MOST)
		log_once("device.total: no account of the GPU (its file is damaged, and in use): this process goes by "
			 "its own budget");
	return false;
}

/*
 * Publishes what this process has, and returns its new limit: its share of the total, but at most `most`. A limit is
 * raised in the account before it is used, and lowered there only after memory has left.
 */
static uint64_t share(struct device *device, uint64_t most)
{
	const struct follow_state *const state = &lifecycle_state.follow[device->ordinal];
	struct gpu_share_member *const members = lifecycle_state.shared.members;
	struct gpu_account_view *const view = &lifecycle_state.shared.view;
	struct gpu_account_member member = member_of(device);
	uint64_t limit = atomic_load(&device->budget.limit), turns_limit;
	uint64_t slack = heap_largest_piece(atomic_load(&device->heap));

	turn_claim(device, &member);
	if (!enter_account(device, &member)) {
		if (state->refused == REFUSED_MOST)
			turn_alone(device);
		uint64_t total = atomic_load(&device->shared_total), alone = total < most ? total : most;

		return state->refused == REFUSED_MOST ? alone : limit < most ? limit : most;
	}
	if (!gpu_account_look(&device->account, &member, view)) {
		turn_lost(device);
		return limit < most ? limit : most;
	}
	atomic_store(&device->shared_total, view->total);
	if (turn_look(device, &member, view, most, &turns_limit))
		return turns_limit < most ? turns_limit : most;
	for (unsigned i = 0; i < view->n; i++)
		members[i] =
		    (struct gpu_share_member){.needs = view->members[i].needs, .stuck = view->members[i].stuck};
	uint64_t mine = gpu_share_of(view->total, members, view->n, view->self);
	if (mine > most)
		mine = most;
	if (mine > member.may_have)
		return gpu_account_raise(&device->account, member.may_have, mine);
	return mine > limit || any_is_short(view, members, slack) ? mine : limit < most ? limit : most;
}

/* The process is suspended from outside: what it gave back is for the others to have. */
static void give_up_share(struct device *device)
{
	turn_suspended(device);
	if (!device->account.file.open)
		return;
	/* In this order: a thread that is just allocating has its memory in what is published, or does not get it. */
	atomic_store(&device->budget.limit, atomic_load(&device->budget.used));
	struct gpu_account_member member = member_of(device);
	turn_claim(device, &member);
	gpu_account_look(&device->account, &member, &lifecycle_state.shared.view);
}

static void look_at(struct device *device, void *argument)
{
	struct follow_state *const state = &lifecycle_state.follow[device->ordinal];
	struct live_budget_figures figures;

	bool follows = atomic_load(&device->follows), shares = atomic_load(&device->shared_total);
	admission_look(device);
	enum live_budget_change change = LIVE_BUDGET_KEEPS;

	if (!follows && !shares)
		return;
	*(bool *)argument = true;
	/* While the process is suspended it uses nothing, and must not take what others are to have. */
	bool suspended = spill_residence(device) != RESIDENCE_RUNS && !turn_is_away(device);
	if (suspended && shares)
		give_up_share(device);
	if (!atomic_load(&device->heap) || suspended || (follows && !get_figures(device, &figures)))
		return;
	if (follows && !state->begun)
		begin_with(device, &figures);
	if (follows)
		change = live_budget_look(&state->budget, &figures);
	uint64_t own = follows ? state->budget.limit : atomic_load(&device->own_limit);
	uint64_t limit = device_within_limit(device, own);
	atomic_store(&device->budget.limit, shares ? share(device, limit) : limit);
	/* After the limit: an allocation that reads false before it tries has all that the process is due. */
	atomic_store(&device->out_of_turn, shares && turn_lacks(device));
	if (change == LIVE_BUDGET_SHRINKS)
		tell_shrink(device, &figures);
	state->acts = true;
}

/* After all were looked at. */
static void act_on(struct device *device, void *argument)
{
	struct follow_state *const state = &lifecycle_state.follow[device->ordinal];

	(void)argument;
	if (!state->acts)
		return;
	state->acts = false;
	if (atomic_load(&device->shared_total))
		turn_act(device);
	if (turn_is_away(device))
		return;
	if (budget_over(&device->budget) && clock_now() >= state->not_before && !follow_make_fit(device))
		state->not_before = clock_now() + AGAIN_NS;
}

unsigned follow_look(void)
{
	bool any = false;

	device_each(look_at, &any);
	turn_move();
	device_each(act_on, NULL);
	unsigned ms = turn_look_ms();
	return !any ? 0 : ms ? ms : LOOK_MS;
}

static void leave_account(struct device *device, void *argument)
{
	(void)argument;
	gpu_account_leave(&device->account);
}

void follow_end(void)
{
	device_each(leave_account, NULL);
}

static void drop_account(struct device *device, void *argument)
{
	(void)argument;
	admission_child(device);
	gpu_account_child(&device->account);
}

void follow_child(void)
{
	device_each(drop_account, NULL);
}
