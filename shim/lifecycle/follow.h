/*
 * follow.h: device budgets that follow what the driver has free (`device.budget: auto`; plan/gpu_turn.h decides),
 * or what the processes that share a device leave (`device.total`; accounting/gpu_account.h, plan/gpu_turn.h).
 * Functions are called on the control thread, unless they say otherwise; without it (`control: no`) budgets stay as
 * they were at the start.
 */
#ifndef SPILLWAY_FOLLOW_H
#define SPILLWAY_FOLLOW_H

#include <stdbool.h>

struct device;

/*
 * Looks at each device whose budget follows what is free or is shared, evicts what is above the budget then, and takes
 * turns (turn.h). Returns after how many ms it should be called again at the latest; 0: there is no such device. May
 * wait for a device, for a bounded time. Locking: takes CONTEXTS, SPILL and HEAP; the caller must hold no lock.
 */
unsigned follow_look(void);
/* The device's budget has been changed from outside: if it follows what is free, it begins anew. */
void follow_begin(struct device *device);
/*
 * Tries once to move what is above the device's budget off the device, and gives it back to the driver. Returns whether
 * any has left. Waits for the device, for a bounded time. Locking: as follow_look().
 */
bool follow_make_fit(struct device *device);
/* At the end of the process: leaves the accounts of all devices. Called on any thread. */
void follow_end(void);
/* In the child of a fork: the accounts are the parent's. Async-signal-safe. */
void follow_child(void);

#endif
