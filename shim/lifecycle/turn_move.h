/*
 * turn_move.h: the moves that turns (turn.h) order: memory of one device leaves for the turn of another process, and
 * comes back. Each publishes what it does in the account while the mover works. Functions are called on the control
 * thread. They wait for the device, for a bounded time, and for the copies. Locking: take SPILL and HEAP; the caller
 * must hold no lock.
 */
#ifndef SPILLWAY_TURN_MOVE_H
#define SPILLWAY_TURN_MOVE_H

struct device;

/* Of the total: a process that waits does not give up less than this. */
#define TURN_KEEP_PART 32

/* Stops the process, and lets its memory leave but for what it may keep. The next process gets the turn. */
void turn_move_out(struct device *device);
/* It is away, and gives up more of what it keeps. If that fails, it is tried again later. */
void turn_move_more(struct device *device);
/* Its memory comes back, as far as there is room for it, and it goes on. */
void turn_move_in(struct device *device);
/* While it is being suspended on request: what turn_look_suspending() does for one device. */
void turn_move_suspending(struct device *device);

#endif
