/*
 * settings.h: settings of the policy that can be changed while the process runs (`spillway set`).
 */
#ifndef SPILLWAY_SETTINGS_H
#define SPILLWAY_SETTINGS_H

#include "shim/serve/control.h"

#include <stdbool.h>

/*
 * Changes a setting. text: "device.budget=SIZE" or "host.budget=SIZE"; SIZE may be a percentage, and of the device
 * auto; or "share.weight=N", or "spill.mode=exact" or "spill.mode=fast". What is above the new budget leaves before
 * this returns, as far as it can. A weight holds for the time from now on; the other processes see it within a tenth of
 * a second. Writes the reply, a line without a newline:
 *
 *   ok MOVED MS ABOVE   bytes that left, how long that took, and bytes that are still above the budget (share.weight: 0;
 *                       spill.mode: bytes that moved for it, and 0)
 *   error TEXT          nothing has changed
 *
 * Waits for the devices, for a bounded time. Called on the control thread. Locking: takes START, SPILL and HEAP; the
 * caller must hold no lock.
 */
void settings_change(const char *text, char reply[CONTROL_MOST_REPLY]);

#endif
