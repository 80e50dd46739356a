/*
 * Changes settings while the process runs: budgets, the weight of turns, the mode. The limit is
 * changed first: from then on nothing more is taken above it. What is above it already is idle memory, which goes back
 * at once, and pieces in use, which the mover evicts in a gap.
 */
#include "shim/lifecycle/control_request.h"
#include "policy/policy.h"
#include "shim/base/clock.h"
#include "shim/device/device.h"
#include "shim/lifecycle/follow.h"
#include "shim/lifecycle/turn.h"
#include "shim/mover/spill.h"
#include "shim/process/process.h"
#include "shim/serve/segments.h"
#include "shim/stats/stats.h"
#include "shim/trace/trace.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TRIES 3 /* gaps without progress, after which what is above the budget stays */

/* Moves what is above the budget off the device. */
static void make_fit(struct device *device, void *argument)
{
	uint64_t *above = argument;

	follow_begin(device);
	for (unsigned tries = 0; tries < TRIES && budget_over(&device->budget);)
		tries = follow_make_fit(device) ? 0 : tries + 1;
	*above += budget_over(&device->budget);
}

__attribute__((format(printf, 2, 3))) static void answer(char reply[CONTROL_MOST_REPLY], const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(reply, CONTROL_MOST_REPLY, format, arguments);
	va_end(arguments);
}

/* ---- budgets ---- */

static void add_used(struct device *device, void *argument)
{
	*(uint64_t *)argument += atomic_load(&device->budget.used);
}

static uint64_t used_of(enum policy_limit limit)
{
	uint64_t sum = 0;

	if (limit == POLICY_LIMIT_HOST_BUDGET)
		return atomic_load(&host_budget.used);
	device_each(add_used, &sum);
	return sum;
}

/* Returns the bytes that are above it afterwards. */
static uint64_t change_budget(enum policy_limit limit, struct policy_size size)
{
	uint64_t above = 0;

	if (limit == POLICY_LIMIT_DEVICE_BUDGET) {
		device_change_budget(size);
		device_each(make_fit, &above);
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
		turn_set_weight(weight);
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

/* Others must not take a process for dead while its control thread waits for the movers. */
static enum order_room show_life(void *unused)
{
	(void)unused;
	turn_account_beat(NULL);
	return ORDER_ROOM_IS_ALL;
}

/* Changes between `exact` and `fast`. Locking: takes DEFERRED_FREE, START, ENGINE_START, SPILL and HEAP. */
static void set_mode(const char *value, char reply[CONTROL_MOST_REPLY])
{
	const struct order_watch watch = {.look = show_life};
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
	enum sw_status status = spill_change_mode(mode, &watch, &bytes, &mixed);
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
