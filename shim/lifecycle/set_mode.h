/*
 * set_mode.h: changes of spill.mode while the process runs (`spillway set PID spill.mode=fast`).
 */
#ifndef SPILLWAY_SET_MODE_H
#define SPILLWAY_SET_MODE_H

#include "shim/serve/control.h"

#include <stdbool.h>

/*
 * Changes between `exact` and `fast` if the text is "spill.mode=..."; returns false if it is not. Writes the reply of
 * settings.h: the bytes that moved for it, how long it took, and 0. Waits for the devices, for a bounded time. Called
 * on the control thread. Locking: takes DEFERRED_FREE, START, ENGINE_START, SPILL and HEAP; the caller must hold no
 * lock.
 */
bool set_mode_change(const char *text, char reply[CONTROL_MOST_REPLY]);

#endif
