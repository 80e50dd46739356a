/*
 * Changes settings while the process runs: budgets and the weight of turns here, the mode in set_mode.c. The limit is
 * changed first: from then on nothing more is taken above it. What is above it already is idle memory, which goes back
 * at once, and pieces in use, which the mover evicts in a gap.
 */
#include "shim/lifecycle/settings.h"
#include "shim/lifecycle/follow.h"
#include "shim/lifecycle/set_mode.h"
#include "policy/policy.h"
#include "shim/base/clock.h"
#include "shim/device/device.h"
#include "shim/lifecycle/turn.h"
#include "shim/process/process.h"

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

static void add_used(struct device *device, void *argument)
{
	*(uint64_t *)argument += atomic_load(&device->budget.used);
}

static uint64_t used_on_devices(void)
{
	uint64_t sum = 0;

	device_each(add_used, &sum);
	return sum;
}

static uint64_t change_device_budget(struct policy_size size)
{
	uint64_t above = 0;

	device_change_budget(size);
	device_each(make_fit, &above);
	return above;
}

static uint64_t change_host_budget(struct policy_size size)
{
	device_change_host_budget(size);
	if (budget_over(&host_budget))
		device_make_host_room(NULL);
	return budget_over(&host_budget);
}

static const struct setting {
	const char *key;
	uint64_t (*change)(struct policy_size size); /* returns the bytes that are above it afterwards */
	uint64_t (*used)(void);
	enum policy_limit limit;
} settings[] = {
    {"device.budget", change_device_budget, used_on_devices, POLICY_LIMIT_DEVICE_BUDGET},
    {"host.budget", change_host_budget, NULL, POLICY_LIMIT_HOST_BUDGET},
};

static uint64_t used_of(const struct setting *setting)
{
	return setting->used ? setting->used() : atomic_load(&host_budget.used);
}

static const struct setting *find_setting(const char *text, size_t length)
{
	for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++)
		if (strlen(settings[i].key) == length && !memcmp(settings[i].key, text, length))
			return &settings[i];
	return NULL;
}

/*
 * Returns true if the machine's policy does not allow the size. A share and bytes cannot be compared here: the device
 * takes the smaller one.
 */
static bool is_too_much(const struct setting *setting, struct policy_size size)
{
	struct policy_size most = process_settings()->limits.most[setting->limit];

	return size.kind == most.kind && size.kind != POLICY_SIZE_AUTO && size.value > most.value;
}

/* Returns false if the setting is not the weight. */
static bool change_weight(const char *text, char reply[CONTROL_MOST_REPLY])
{
	static const char key[] = "share.weight=";
	char why[POLICY_EXPLAIN_BYTES];
	int weight;

	if (strncmp(text, key, strlen(key)) != 0)
		return false;
	if (!policy_weight_read(text + strlen(key), &weight, why)) {
		snprintf(reply, CONTROL_MOST_REPLY, "error share.weight: %.200s", why);
	} else if (process_settings()->turns.mode == POLICY_TURNS_OFF) {
		snprintf(reply, CONTROL_MOST_REPLY, "error share.weight: this process takes no turns (share: off)");
	} else {
		turn_set_weight(weight);
		snprintf(reply, CONTROL_MOST_REPLY, "ok 0 0 0");
	}
	return true;
}

void settings_change(const char *text, char reply[CONTROL_MOST_REPLY])
{
	if (change_weight(text, reply) || set_mode_change(text, reply))
		return;
	const char *value = strchr(text, '=');
	const struct setting *setting = value ? find_setting(text, (size_t)(value - text)) : NULL;
	char why[POLICY_EXPLAIN_BYTES];
	struct policy_size size;

	if (!setting) {
		snprintf(reply, CONTROL_MOST_REPLY,
			 "error device.budget, host.budget, spill.mode and share.weight can be changed while a process "
			 "runs; write KEY=VALUE");
		return;
	}
	if (!policy_size_read(value + 1, &size, why)) {
		snprintf(reply, CONTROL_MOST_REPLY, "error %s: %.200s", setting->key, why);
		return;
	}
	if (size.kind == POLICY_SIZE_AUTO && setting->change == change_host_budget) {
		snprintf(reply, CONTROL_MOST_REPLY,
			 "error %s: auto is what the process starts with; write a size or "
			 "a percentage",
			 setting->key);
		return;
	}
	if (is_too_much(setting, size)) {
		snprintf(reply, CONTROL_MOST_REPLY,
			 "error %s: %.40s is more than this machine allows (limits of %.80s)", setting->key, value + 1,
			 policy_machine_path);
		return;
	}
	uint64_t before = used_of(setting), begun = clock_now();
	uint64_t above = setting->change(size), after = used_of(setting);
	snprintf(reply, CONTROL_MOST_REPLY, "ok %llu %llu %llu",
		 (unsigned long long)(before > after ? before - after : 0),
		 (unsigned long long)((clock_now() - begun) / 1000000), (unsigned long long)above);
}
