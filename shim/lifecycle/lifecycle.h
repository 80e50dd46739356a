// SPDX-License-Identifier: Apache-2.0
/*
 * lifecycle.h: starts the library at the first call of the program that needs the policy, sums up, and answers requests
 * from outside.
 */
#ifndef SPILLWAY_LIFECYCLE_H
#define SPILLWAY_LIFECYCLE_H

#include "shim/base/status.h"
#include "shim/process/process.h"
#include "shim/serve/control.h"

#include <stdint.h>

struct order_watch; /* spill.h */

/*
 * Reads policy and environment and starts the modules, once. Returns the stage afterwards.
 * Locking: takes START; the caller must hold no lock (it binds modules).
 */
enum stage lifecycle_start(void);

/* Does the same as enter_serve(), but starts the library first if it has not started. */
static inline bool lifecycle_enter(struct enter_scope *scope)
{
	if (__builtin_expect(enter_depth != 0, 0))
		return false;
	enum stage stage = process_stage();
	scope->saved_errno = errno;
	if (__builtin_expect(stage == STAGE_NEW, 0)) {
		stage = lifecycle_start();
		errno = scope->saved_errno;
	}
	return enter_serve_at(stage, scope);
}

/* Writes the summary; at any time in STAGE_RUNNING. Locking: tries SUMMARY; does nothing if another thread holds it. */
void exit_summary_print(void);

/* ---- requests from outside ---- */

/*
 * Suspends and resumes the process, on request through the socket (serve/control.h) or by the program itself
 * (spillway.h).
 */

/* Answers a request from the socket. */
control_answer control_request;

/*
 * Call spill_suspend() or spill_resume() (spill.h); `status` reports the last of them that succeeded. watch: NULL if
 * the program itself asks.
 */
enum sw_status control_suspend(const struct order_watch *watch, uint64_t *ret_bytes);
enum sw_status control_resume(uint64_t *ret_bytes);

/* Called when nobody can reach this process any more: resumes it if it was suspended through the socket. */
void control_cut_off(void);

/*
 * Changes a setting of the policy while the process runs (`spillway set`). text: "device.budget=SIZE" or
 * "host.budget=SIZE"; SIZE may be a percentage, and of the device auto; or "share.weight=N", or "spill.mode=exact" or
 * "spill.mode=fast". What is above the new budget leaves before this returns, as far as it can. A weight holds for the
 * time from now on; the other processes see it within a tenth of a second. Writes the reply, a line without a newline:
 *
 *   ok MOVED MS ABOVE   bytes that left, how long that took, and bytes still above the budget (share.weight: 0;
 *                       spill.mode: bytes that moved for it, and 0)
 *   error TEXT          nothing has changed
 *
 * Waits for the devices, for a bounded time. Called on the control thread. Locking: takes DEFERRED_FREE, START,
 * ENGINE_START, SPILL and HEAP; the caller must hold no lock.
 */
void settings_change(const char *text, char reply[CONTROL_MOST_REPLY]);

#endif
