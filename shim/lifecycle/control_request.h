/*
 * control_request.h: suspends and resumes the process, on request through the socket (serve/control.h) or by the
 * program itself (spillway.h).
 */
#ifndef SPILLWAY_CONTROL_REQUEST_H
#define SPILLWAY_CONTROL_REQUEST_H

#include "shim/base/status.h"
#include "shim/serve/control.h"

#include <stdint.h>

/* Answers a request from the socket. */
control_answer control_request;

/* Call spill_suspend() or spill_resume() (spill.h); `status` reports the last of them that succeeded. */
enum sw_status control_suspend(uint64_t *ret_bytes);
enum sw_status control_resume(uint64_t *ret_bytes);

/* Called when nobody can reach this process any more: resumes it if it was suspended through the socket. */
void control_cut_off(void);

/* settings.c: settings of the policy that can be changed while the process runs (`spillway set`). */

/*
 * Changes a setting. text: "device.budget=SIZE" or "host.budget=SIZE"; SIZE may be a percentage, and of the device
 * auto; or "share.weight=N", or "spill.mode=exact" or "spill.mode=fast". What is above the new budget leaves before
 * this returns, as far as it can. A weight holds for the time from now on; the other processes see it within a tenth of
 * a second. Writes the reply, a line without a newline:
 *
 *   ok MOVED MS ABOVE   bytes that left, how long that took, and bytes still above the budget (share.weight: 0;
 *                       spill.mode: bytes that moved for it, and 0)
 *   error TEXT          nothing has changed
 *
 * Waits for the devices, for a bounded time. Called on the control thread. Locking: takes START, SPILL and HEAP; the
 * caller must hold no lock.
 */
void settings_change(const char *text, char reply[CONTROL_MOST_REPLY]);

#endif
