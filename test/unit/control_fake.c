// SPDX-License-Identifier: Apache-2.0
/* The engine and the policy as control_test.c wants them. */
#include "policy/policy.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/lifecycle/types.h"
#include "shim/mover/spill.h"
#include "shim/process/process.h"
#include "test/unit/control_help.h"

struct lifecycle_state lifecycle_state;

_Atomic int fake_calls, fake_ticks, fake_status = SW_OK;
_Atomic uint64_t fake_bytes = 1000;
_Atomic bool fake_hold, fake_away;
struct process_state process_state;

static enum sw_status fake(uint64_t *ret_bytes)
{
	fake_calls++;
	UNTIL(!fake_hold);
	if (fake_status == SW_OK && ret_bytes)
		*ret_bytes = fake_bytes;
	return (enum sw_status)fake_status;
}

static _Atomic unsigned held; /* for the user */

enum sw_status spill_suspend(const struct order_watch *watch, uint64_t *ret_bytes)
{
	enum sw_status status = fake(ret_bytes);
	held = status == SW_OK ? RESIDENCE_USER : 0;
	return status;
}

enum sw_status spill_resume(uint64_t *ret_bytes)
{
	enum sw_status status = fake(ret_bytes);
	if (status == SW_OK || (fake_away && status != SW_NO_MEMORY))
		held = 0;
	return status;
}

unsigned spill_held_by(const struct device *device)
{
	return held | (fake_away ? RESIDENCE_TURN : 0);
}

void follow_take_back(void) {}

enum order_room turn_look_suspending(void *unused)
{
	return ORDER_ROOM_IS_ALL;
}

/* "device.budget=N": N bytes are above it, of `fake_bytes` that left. */
void settings_change(const char *text, char reply[CONTROL_MOST_REPLY])
{
	unsigned long long above;

	if (sscanf(text, "device.budget=%llu", &above) == 1)
		snprintf(reply, CONTROL_MOST_REPLY, "ok %llu 310 %llu", (unsigned long long)fake_bytes, above);
	else
		snprintf(reply, CONTROL_MOST_REPLY, "error no such key");
}

void fake_policy(const char *set)
{
	struct policy_errors errors;

	process_state.policy = policy_read("heap", set, &errors);
	CHECK(process_state.policy);
	process_state.settings = policy_settings(process_state.policy);
	policy_errors_free(&errors);
}

static void tick(void)
{
	fake_ticks++;
}

/* As lifecycle_start() does. */
__attribute__((constructor)) static void give(void)
{
	fake_policy("");
	control_give(control_request, tick, NULL, control_cut_off);
}
