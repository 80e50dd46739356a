/*
 * turn_act.h: what turns (turn.h) have decided is done: the process stops, its memory leaves and comes back, and it
 * goes on; each is published in the account while the mover works. Functions are called on the control thread. They
 * wait for the device, for a bounded time, and for the copies. Locking: take SPILL and HEAP; the caller must hold no
 * lock.
 */
#ifndef SPILLWAY_TURN_ACT_H
#define SPILLWAY_TURN_ACT_H

struct device;

/* Of the total: a process that waits does not give up less than this. */
#define TURN_KEEP_PART 32

/*
 * After all devices were looked at: publishes phases that have changed, and moves the memory of those of which that was
 * decided, at the same time.
 */
void turn_move(void);
/* After that, and after the budget of the device was set: stops the process, or lets it go on. */
void turn_act(struct device *device);
/* While it is being suspended on request: what turn_look_suspending() does for one device. */
void turn_act_suspending(struct device *device);

#endif
