// SPDX-License-Identifier: Apache-2.0
/*
 * Device budgets that follow what is free, or what other processes leave: ten times a second, and more often during
 * turns, the driver is asked or the account is read, the controller decides, and what is above the new limit is evicted
 * in a gap. Cost where no budget follows: some loads and a look at the clock for each device, once a second.
 */
#include "policy/policy.h"
#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/base/user_dir.h"
#include "shim/context/context.h"
#include "shim/heap/migration.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/lifecycle/types.h"
#include "shim/process/process.h"
#include "shim/serve/segments.h"
#include "shim/stats/stats.h"
#include "shim/trace/trace.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
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
		spill_make_room(device, over, !atomic_load(&device->follows));
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

static void begin_with(struct device *device, const struct live_budget_figures *figures)
{
	struct follow_state *const state = &lifecycle_state.follow[device->ordinal];

	/* Two processes that start together differ by their numbers, two devices by the address. */
	live_budget_begin(&state->budget, figures, clock_now() ^ identity_get() ^ (uint64_t)(uintptr_t)device);
	state->begun = true;
}

/* The device's budget has been changed from outside: if it follows what is free, it begins anew. */
static void follow_begin(struct device *device)
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

/* ---- devices that are shared ---- */

static uint64_t submissions(void)
{
	uint64_t sum = 0;

	for (unsigned i = 1; i <= STATS_STRIPES; i++)
		sum += stats_submissions(i);
	return sum;
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
	    .needs = heap_block_bytes(heap) + heap_others_bytes(heap),
	    .stuck = process_settings()->spill >= POLICY_SPILL_EXACT
			 ? heap_pinned_device(heap) + heap_others_bytes(heap)
			 : used,
	    .worked = state->worked,
	};
}

/*
 * Returns true if what is above a share must be given up: a member has less than its share by more than `slack`, or all
 * have too much. slack: a piece, because giving up less helps nobody, and each time takes a gap.
 */
static bool any_is_short(const struct gpu_account_view *view, const struct gpu_turn_member *members, uint64_t slack)
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
	struct gpu_turn_member *const members = lifecycle_state.shared.members;
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
	gpu_account_members(view, members);
	uint64_t mine = gpu_share_of(view->total, members, view->n, view->self);
	if (mine > most)
		mine = most;
	if (mine > member.may_have)
		return gpu_account_raise(&device->account, member.may_have, mine);
	return mine > limit || any_is_short(view, members, slack) ? mine : limit < most ? limit : most;
}

static bool wants_back(void)
{
	return clock_now() < atomic_load(&lifecycle_state.suspension.wants_until);
}

/* The process is suspended from outside: what it gave back is for the others to have. */
static void give_up_share(struct device *device)
{
	turn_suspended(device);
	if (!device->account.file.open)
		return;
	/* In this order: a thread that is just allocating has its memory in what is published, or does not get it. */
	uint64_t used = atomic_load(&device->budget.used);
	if (!wants_back())
		atomic_store(&device->budget.limit, used);
	/* When it goes on it has its share after the next look, for which an allocation waits. */
	atomic_store(&device->out_of_turn, true);
	struct gpu_account_member member = member_of(device);
	turn_claim(device, &member);
	if (!gpu_account_look(&device->account, &member, &lifecycle_state.shared.view))
		atomic_store(&device->budget.limit, used);
}

/* The budget of this process, whatever others that share the device have. */
static uint64_t own_budget(const struct device *device)
{
	const struct follow_state *state = &lifecycle_state.follow[device->ordinal];

	return device_within_limit(device, atomic_load(&device->follows) ? state->budget.limit
									 : atomic_load(&device->own_limit));
}

void follow_take_back(void)
{
	for (struct device *device = device_next(NULL); device; device = device_next(device)) {
		if (!atomic_load(&device->heap) || !device->account.file.open ||
		    spill_residence(device) == RESIDENCE_RUNS || turn_is_away(device))
			continue;
		struct gpu_account_member member = member_of(device);
		uint64_t wanted = smaller(member.needs, own_budget(device));
		uint64_t limit = gpu_account_raise(&device->account, member.may_have, wanted);

		if (limit > atomic_load(&device->budget.limit))
			atomic_store(&device->budget.limit, limit);
	}
}

/* Returns whether the device's budget follows what is free, or is shared. */
static bool look_at(struct device *device)
{
	struct follow_state *const state = &lifecycle_state.follow[device->ordinal];
	struct live_budget_figures figures;

	bool follows = atomic_load(&device->follows), shares = atomic_load(&device->shared_total);
	admission_look(device);
	enum live_budget_change change = LIVE_BUDGET_KEEPS;

	if (!follows && !shares)
		return false;
	/* While the process is suspended it uses nothing, and must not take what others are to have. */
	bool suspended = spill_residence(device) != RESIDENCE_RUNS && !turn_is_away(device);
	if (suspended && shares)
		give_up_share(device);
	if (!atomic_load(&device->heap) || suspended || (follows && !get_figures(device, &figures)))
		return true;
	if (follows && !state->begun)
		begin_with(device, &figures);
	if (follows)
		change = live_budget_look(&state->budget, &figures);
	uint64_t limit = own_budget(device);
	atomic_store(&device->budget.limit, shares ? share(device, limit) : limit);
	/* After the limit: an allocation that reads false before it tries has all that the process is due. */
	atomic_store(&device->out_of_turn, shares && turn_of(device)->lacks);
	char free[32], now[32];
	if (change == LIVE_BUDGET_SHRINKS)
		log_once(
		    "device.budget: auto: only %s of device %d are free: the budget is %s now, and follows what is "
		    "free",
		    log_bytes(free, sizeof(free), figures.free), device->ordinal,
		    log_bytes(now, sizeof(now), atomic_load(&device->budget.limit)));
	state->acts = true;
	return true;
}

/* After all were looked at. */
static void act_on(struct device *device)
{
	struct follow_state *const state = &lifecycle_state.follow[device->ordinal];

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

	if (wants_back())
		follow_take_back();
	for (struct device *device = device_next(NULL); device; device = device_next(device))
		any |= look_at(device);
	turn_move();
	for (struct device *device = device_next(NULL); device; device = device_next(device))
		act_on(device);
	unsigned ms = turn_look_ms();
	return !any ? 0 : ms ? ms : LOOK_MS;
}

void follow_end(void)
{
	for (struct device *device = device_next(NULL); device; device = device_next(device))
		gpu_account_leave(&device->account);
}

void follow_child(void)
{
	for (struct device *device = device_next(NULL); device; device = device_next(device)) {
		gpu_account_queue_end(&device->admission.line); /* the place there is the parent's */
		gpu_account_child(&device->account);
	}
}

/* ---- settings that change while the process runs ---- */

/*
 * Changes settings while the process runs: budgets, the weight of turns, the mode. The limit is
 * changed first: from then on nothing more is taken above it. What is above it already is idle memory, which goes back
 * at once, and pieces in use, which the mover evicts in a gap.
 */

#define TRIES 3 /* gaps without progress, after which what is above the budget stays */

/* Moves what is above the budget off the device. Returns what is above it afterwards. */
static uint64_t make_fit(struct device *device)
{
	follow_begin(device);
	for (unsigned tries = 0; tries < TRIES && budget_over(&device->budget);)
		tries = follow_make_fit(device) ? 0 : tries + 1;
	return budget_over(&device->budget);
}

__attribute__((format(printf, 2, 3))) static void answer(char reply[CONTROL_MOST_REPLY], const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(reply, CONTROL_MOST_REPLY, format, arguments);
	va_end(arguments);
}

/* ---- budgets ---- */

static uint64_t used_of(enum policy_limit limit)
{
	uint64_t sum = 0;

	if (limit == POLICY_LIMIT_HOST_BUDGET)
		return atomic_load(&host_budget.used);
	for (const struct device *device = device_next(NULL); device; device = device_next(device))
		sum += atomic_load(&device->budget.used);
	return sum;
}

/* Returns the bytes that are above it afterwards. */
static uint64_t change_budget(enum policy_limit limit, struct policy_size size)
{
	uint64_t above = 0;

	if (limit == POLICY_LIMIT_DEVICE_BUDGET) {
		device_change_budget(size);
		for (struct device *device = device_next(NULL); device; device = device_next(device))
			above += make_fit(device);
		return above;
	}
	device_change_host_budget(size);
	if (budget_over(&host_budget))
		device_make_host_room(NULL);
	return budget_over(&host_budget);
}

static void set_budget(const char *key, enum policy_limit limit, const char *value, char reply[CONTROL_MOST_REPLY])
{
	struct policy_size most = process_settings()->limits.most[limit], size;
	char why[POLICY_EXPLAIN_BYTES];

	if (!policy_size_read(value, &size, why)) {
		answer(reply, "error %s: %.200s", key, why);
		return;
	}
	if (size.kind == POLICY_SIZE_AUTO && limit == POLICY_LIMIT_HOST_BUDGET) {
		answer(reply, "error %s: auto is what the process starts with; write a size or a percentage", key);
		return;
	}
	/* A share and bytes cannot be compared here: the device takes the smaller one. */
	if (size.kind == most.kind && size.kind != POLICY_SIZE_AUTO && size.value > most.value) {
		answer(reply, "error %s: %.40s is more than this machine allows (limits of %.80s)", key, value,
		       policy_machine_path);
		return;
	}
	uint64_t before = used_of(limit), begun = clock_now();
	uint64_t above = change_budget(limit, size), after = used_of(limit);
	answer(reply, "ok %llu %llu %llu", (unsigned long long)(before > after ? before - after : 0),
	       (unsigned long long)((clock_now() - begun) / 1000000), (unsigned long long)above);
}

/* ---- share.weight ---- */

static void set_weight(const char *value, char reply[CONTROL_MOST_REPLY])
{
	char why[POLICY_EXPLAIN_BYTES];
	int weight;

	if (!policy_weight_read(value, &weight, why)) {
		answer(reply, "error share.weight: %.200s", why);
	} else if (process_settings()->turns.mode == POLICY_TURNS_OFF) {
		answer(reply, "error share.weight: this process takes no turns (share: off)");
	} else {
		lifecycle_state.turn_common.weight = weight;
		answer(reply, "ok 0 0 0");
	}
}

/* ---- spill.mode ---- */

/*
 * Changes spill.mode while the process runs. Only `exact` and `fast` change into each other: in `off` and `static`
 * memory was made to stay where it is.
 */

static const char *why_not(enum sw_status status)
{
	switch (status) {
	case SW_BUSY:
		return "no safe point came in time: a capture is open or the GPU does not become idle; try again";
	case SW_NO_MEMORY:
		return "the device has no room for the small blocks that stay there in fast: what is on it cannot "
		       "leave";
	case SW_NO_HOST_MEMORY:
		return "the system has no memory for what the library must remember in fast";
	case SW_DRIVER:
		return "memory does not move any more, because the driver failed";
	default:
		return "the process ends";
	}
}

/* Returns false, with the reply, if the process cannot be in that mode. */
static bool may_be(const char *value, enum policy_spill *ret_mode, char reply[CONTROL_MOST_REPLY])
{
	const struct policy *policy = process_policy();
	enum policy_spill began = policy_settings(policy)->spill;

	*ret_mode = !strcmp(value, policy_spill_name(POLICY_SPILL_FAST)) ? POLICY_SPILL_FAST : POLICY_SPILL_EXACT;
	if (strcmp(value, policy_spill_name(*ret_mode)) != 0) {
		answer(reply, "error spill.mode: while a process runs it can be made exact or fast, not %.40s", value);
		return false;
	}
	if (began != POLICY_SPILL_EXACT && began != POLICY_SPILL_FAST) {
		answer(reply,
		       "error spill.mode: this process began in %s, where memory is made to stay where it is; exact "
		       "and fast alone change into each other",
		       policy_spill_name(began));
		return false;
	}
	if ((int)*ret_mode > policy_settings(policy)->limits.spill) {
		answer(reply, "error spill.mode: %s is more than this machine allows (limits of %.80s)",
		       policy_spill_name(*ret_mode), policy_machine_path);
		return false;
	}
	return true;
}

/* Changes between `exact` and `fast`. Locking: takes DEFERRED_FREE, START, ENGINE_START, SPILL and HEAP. */
static void set_mode(const char *value, char reply[CONTROL_MOST_REPLY])
{
	uint64_t begun = clock_now(), bytes;
	enum policy_spill mode;
	bool mixed;

	if (!may_be(value, &mode, reply))
		return;
	enum policy_spill before = process_spill_mode();
	/*
	 * Also on the way to `exact`, which may be refused: what is made until then must be as `fast` needs it. What
	 * was made in `fast` needs nothing.
	 */
	if (mode == POLICY_SPILL_FAST || before == POLICY_SPILL_FAST)
		segments_set_beside(true);
	enum sw_status status = spill_change_mode(mode, &turn_beat_watch, &bytes, &mixed);
	enum policy_spill now = process_spill_mode();
	if (now == POLICY_SPILL_EXACT && !mixed)
		segments_set_beside(false);
	if (now != before) {
		stats_set_mode(policy_spill_name(now));
		trace_event(mode, (uint64_t)now);
	}
	if (status == SW_OK && !mixed)
		answer(reply, "ok %llu %llu 0", (unsigned long long)bytes,
		       (unsigned long long)((clock_now() - begun) / 1000000));
	else
		answer(reply, "error spill.mode: %s%s", why_not(status),
		       mixed ? "; some devices could not be brought back: set it again" : "");
}

/* ---- the text ---- */

/* Returns the value if the text is KEY=VALUE, else NULL. */
static const char *value_of(const char *text, const char *key)
{
	size_t n = strlen(key);

	return !strncmp(text, key, n) && text[n] == '=' ? text + n + 1 : NULL;
}

void settings_change(const char *text, char reply[CONTROL_MOST_REPLY])
{
	const char *value;

	if ((value = value_of(text, "device.budget")))
		set_budget("device.budget", POLICY_LIMIT_DEVICE_BUDGET, value, reply);
	else if ((value = value_of(text, "host.budget")))
		set_budget("host.budget", POLICY_LIMIT_HOST_BUDGET, value, reply);
	else if ((value = value_of(text, "spill.mode")))
		set_mode(value, reply);
	else if ((value = value_of(text, "share.weight")))
		set_weight(value, reply);
	else
		answer(reply, "error device.budget, host.budget, spill.mode and share.weight can be changed while a "
			      "process runs; write KEY=VALUE");
}
