// SPDX-License-Identifier: Apache-2.0
/*
 * Suspend, resume, status and set requests: parses a request line and writes the reply line.
 *
 *   suspend   ok BYTES             device bytes given back
 *   resume    ok BYTES             device bytes that will come back as they are used
 *   status    ok BYTES STATE       running, suspended, or waiting for its turn, and the bytes given back on request
 *   set KEY=VALUE                  changes a setting (follow.c)
 *   anything  error TEXT           nothing has changed
 *
 * A request may carry its version (control.h): `status version=1`. An ok reply then carries it, too.
 *
 * Requests from the socket and calls of spillway.h both pass through here, so that `status` covers both. Two opposite
 * calls at the same moment may leave `status` with the result of the earlier one; the engine itself runs them one
 * after another.
 */
#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/lifecycle/types.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERB = 64 }; /* bytes for a verb; no valid one is longer */

/* A process that does not try again within this time is not to keep what others could use. */
#define WANTS_NS 2000000000u

static bool is_suspended(void)
{
	return spill_held_by(NULL) & RESIDENCE_USER;
}

enum sw_status control_suspend(const struct order_watch *watch, uint64_t *ret_bytes)
{
	struct suspension_state *const state = &lifecycle_state.suspension;
	uint64_t bytes = 0;
	bool again = is_suspended();
	enum sw_status status = spill_suspend(watch, &bytes);

	if (status != SW_OK) {
		/* Nothing is suspended, whatever was before. */
		atomic_store(&state->given_back, 0);
		return status;
	}
	atomic_store(&state->on_request, watch != NULL);
	atomic_store(&state->wants_until, 0);
	/* A second suspension may give nothing more back; what the first one gave back still counts. */
	if (!again || bytes > atomic_load(&state->given_back))
		atomic_store(&state->given_back, bytes);
	if (ret_bytes)
		*ret_bytes = bytes;
	return SW_OK;
}

/* On the control thread, which does not look at the accounts of shared devices while it waits for the mover. */
static enum sw_status suspend_and_look(uint64_t *ret_bytes)
{
	const struct order_watch watch = {.look = turn_look_suspending};

	return control_suspend(&watch, ret_bytes);
}

enum sw_status control_resume(uint64_t *ret_bytes)
{
	uint64_t bytes = atomic_load(&lifecycle_state.suspension.given_back);
	bool waits = turn_is_away(NULL);
	enum sw_status status = spill_resume(waits ? NULL : &bytes);

	/*
	 * If it is not its turn, it goes on when it is (turn.c), on all its devices. A device that stays suspended
	 * because there is no memory is none of those that wait for their turn.
	 */
	atomic_store(&lifecycle_state.suspension.wants_until, status == SW_NO_MEMORY ? clock_now() + WANTS_NS : 0);
	if (status != SW_OK && (!waits || status == SW_NO_MEMORY))
		return status;
	atomic_store(&lifecycle_state.suspension.given_back, 0);
	if (ret_bytes)
		*ret_bytes = bytes;
	return SW_OK;
}

/* On the control thread, which looks seldom while the process is suspended: it may not be its turn. */
static enum sw_status resume_and_look(uint64_t *ret_bytes)
{
	lifecycle_state.follow_due = 0;
	follow_take_back();
	return control_resume(ret_bytes);
}

void control_cut_off(void)
{
	if (is_suspended() && atomic_load(&lifecycle_state.suspension.on_request) && resume_and_look(NULL) == SW_OK)
		log_line("this process was suspended, and goes on by itself: `spillway resume` cannot reach it");
}

static const char *why_not(enum sw_status status)
{
	switch (status) {
	case SW_NO_MEMORY:
		return "the host budget (host.budget) does not hold what is on the device; nothing is suspended";
	case SW_NO_HOST_MEMORY:
		return "the system has no more memory to pin for what is on the device; nothing is suspended";
	case SW_NOT_SUPPORTED:
		return "its memory cannot move: spill.mode is off or static, or none of it is in the heap";
	case SW_BUSY:
		return "no safe point came in time: a stream capture is open or the GPU does not become idle; try "
		       "again";
	default:
		return status_text(status);
	}
}

static const char *why_not_resumed(enum sw_status status)
{
	return status == SW_NO_MEMORY ? "neither the GPU nor the system has memory for what its allocator keeps; it "
					"stays suspended, try again"
				      : why_not(status);
}

static void control_request_act(enum sw_status (*action)(uint64_t *), const char *(*why)(enum sw_status),
				char reply[CONTROL_MOST_REPLY])
{
	uint64_t bytes = 0;
	enum sw_status status = action(&bytes);

	if (status == SW_OK)
		snprintf(reply, CONTROL_MOST_REPLY, "ok %llu", (unsigned long long)bytes);
	else
		snprintf(reply, CONTROL_MOST_REPLY, "error %s", why(status));
}

/* Splits a request into verb and version. Returns the version, 1 if the request has none, 0 if it is no number. */
static unsigned long take_version(const char *request, char verb[VERB])
{
	const char *says = strstr(request, CONTROL_SAYS_VERSION);
	size_t n = says ? (size_t)(says - request) : strlen(request);
	char *end;

	snprintf(verb, VERB, "%.*s", (int)n, request);
	if (!says)
		return 1;
	says += strlen(CONTROL_SAYS_VERSION);
	if (n >= VERB || *says < '0' || *says > '9')
		return 0;
	unsigned long version = strtoul(says, &end, 10);
	return *end ? 0 : version;
}

static void control_request_obey(const char *verb, char reply[CONTROL_MOST_REPLY])
{
	struct suspension_state *const state = &lifecycle_state.suspension;

	if (!strcmp(verb, "suspend"))
		control_request_act(suspend_and_look, why_not, reply);
	else if (!strcmp(verb, "resume"))
		control_request_act(resume_and_look, why_not_resumed, reply);
	else if (!strcmp(verb, "status"))
		snprintf(reply, CONTROL_MOST_REPLY, "ok %llu %s", (unsigned long long)atomic_load(&state->given_back),
			 is_suspended()       ? "suspended"
			 : turn_is_away(NULL) ? "waiting"
					      : "running");
	else if (!strncmp(verb, "set ", 4))
		settings_change(verb + 4, reply);
	else
		snprintf(reply, CONTROL_MOST_REPLY, "error unknown request; suspend, resume, status and set are known");
}

void control_request(const char *request, char reply[CONTROL_MOST_REPLY])
{
	char verb[VERB];
	unsigned long version = take_version(request, verb);

	if (version > CONTROL_VERSION) {
		snprintf(
		    reply, CONTROL_MOST_REPLY,
		    "error the tool asks in version %lu, and this process runs with an older Spillway, which knows "
		    "version %d: use the older spillway",
		    version, CONTROL_VERSION);
		return;
	}
	control_request_obey(version ? verb : "", reply);
	size_t n = strlen(reply);
	if (strchr(request, ' ') && !strncmp(reply, "ok ", 3))
		snprintf(reply + n, CONTROL_MOST_REPLY - n, CONTROL_SAYS_VERSION "%lu", version);
}
