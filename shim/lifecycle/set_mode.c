/*
 * Changes spill.mode while the process runs. Only `exact` and `fast` change into each other: in `off` and `static`
 * memory was made to stay where it is.
 */
#include "shim/lifecycle/set_mode.h"
#include "policy/policy.h"
#include "shim/base/clock.h"
#include "shim/lifecycle/turn_account.h"
#include "shim/mover/spill.h"
#include "shim/process/process.h"
#include "shim/serve/segments.h"
#include "shim/stats/stats.h"
#include "shim/trace/trace.h"

#include <stdio.h>
#include <string.h>

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
		snprintf(reply, CONTROL_MOST_REPLY,
			 "error spill.mode: while a process runs it can be made exact or fast, not %.40s", value);
		return false;
	}
	if (began != POLICY_SPILL_EXACT && began != POLICY_SPILL_FAST) {
		snprintf(reply, CONTROL_MOST_REPLY,
			 "error spill.mode: this process began in %s, where memory is made to stay where it is; exact "
			 "and fast alone change into each other",
			 policy_spill_name(began));
		return false;
	}
	if ((int)*ret_mode > policy_settings(policy)->limits.spill) {
		snprintf(reply, CONTROL_MOST_REPLY,
			 "error spill.mode: %s is more than this machine allows (limits of %.80s)",
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

bool set_mode_change(const char *text, char reply[CONTROL_MOST_REPLY])
{
	static const char key[] = "spill.mode=";
	const struct order_watch watch = {.look = show_life};
	uint64_t begun = clock_now(), bytes;
	enum policy_spill mode;
	bool mixed;

	if (strncmp(text, key, strlen(key)) != 0)
		return false;
	if (!may_be(text + strlen(key), &mode, reply))
		return true;
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
		snprintf(reply, CONTROL_MOST_REPLY, "ok %llu %llu 0", (unsigned long long)bytes,
			 (unsigned long long)((clock_now() - begun) / 1000000));
	else
		snprintf(reply, CONTROL_MOST_REPLY, "error spill.mode: %s%s", why_not(status),
			 mixed ? "; some devices could not be brought back: set it again" : "");
	return true;
}
