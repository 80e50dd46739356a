/*
 * pin_ahead.h: the policy's host.pin_ahead: host memory is pinned before memory has to leave a device, so that a first
 * suspension takes no longer than a later one. Pinning takes 0.2 s a GiB, copying 0.02 s (docs/facts.md, Pinning).
 * The control thread does it, not the mover's: as long as nothing has spilled there is no mover, and none should be
 * started for this, because submissions are tracked from then on.
 */
#ifndef SPILLWAY_PIN_AHEAD_H
#define SPILLWAY_PIN_AHEAD_H

/*
 * Takes one step for the first device that needs one: pins at most one chunk (heap_pin_ahead()). Returns after how many
 * ms it is to be called again at the latest, which is as long as the step took, so that half of the thread's time is
 * left; 0: nothing to do at present. Called on the control thread. Locking: takes HEAP; the caller must hold no lock.
 */
unsigned pin_ahead_look(void);

#endif
