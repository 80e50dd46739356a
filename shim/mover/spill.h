// SPDX-License-Identifier: Apache-2.0
/*
 * spill.h: the interface of the spill engine for the rest of the library. Memory over the device budget lies on the
 * host; the engine moves it to where it is used. The modes are those of the policy's spill.mode (docs/design.md,
 * Moving). Any thread may call these functions.
 */
#ifndef SPILLWAY_SPILL_H
#define SPILLWAY_SPILL_H

#include "shim/device/device.h"
#include "shim/plan/residence.h"

/* What a mover that fetches memory by order may expect. */
enum order_room {
	ORDER_ROOM_IS_ALL, /* the budget will not grow: what has no room now stays where it is */
	ORDER_ROOM_COMES,  /* the budget grows: what has no room yet is to be waited for */
	ORDER_ROOM_LOST,   /* the order is to be given up */
};

/*
 * What the thread that has given an order does while the mover carries it out. By this, processes that take turns tell
 * each other how much memory has left, and how much may come (lifecycle/turn_act.c).
 *
 * look: called once a ms on the thread that waits for the order, without a lock. Returns what the mover
 * may expect.
 */
struct order_watch {
	enum order_room (*look)(void *argument);
	void *argument;
	enum order_room begins; /* what the mover may expect before the first look */
};

/*
 * Starts the engine of a device that has a heap, if the mode is `fast` or `exact` and none runs yet. to_suspend: it is
 * for a suspension, turns or checks, and nothing has spilled; else part of the heap lies on the host or is to go there,
 * and everything that allocators have reported counts as alive at first. Locking: takes ENGINE_START.
 */
void spill_prepare(struct device *device, bool to_suspend);

/*
 * To be called when the driver has no memory for an allocation outside the heap, or when the device is above its budget
 * (of_budget). Evicts up to `bytes` to the host and gives them back to the driver: first what the device has lent to
 * other heaps, of its budget if of_budget; then its own. May wait for the devices, for a bounded time (spill_room_ns).
 * Returns true if any memory was given back. Locking: takes SPILL.
 */
bool spill_make_room(struct device *device, uint64_t bytes, bool of_budget);
/* Returns how long spill_make_room() takes at most, in ns. */
uint64_t spill_room_ns(uint64_t bytes);

/*
 * To be called before a new block of `bytes` is made, on the device as far as there is room. Makes room if there is not
 * enough and the plan knows what the program does next. May wait for the device, for a bounded time. Locking: takes
 * SPILL, HEAP and WAKE; the caller must not hold HEAP, which the mover needs meanwhile.
 */
void spill_room_for_new(struct device *device, uint64_t bytes);

/*
 * Fetches and pins these bytes of the device's heap, if memory moves and nothing that must stay on the device is in the
 * way; other memory leaves for them. Waits while the process is suspended, then stops it for a moment. Returns SW_OK if
 * the bytes are on the device and pinned; what somebody else has pinned on the host stays there. Then the caller must
 * call heap_pin_end(). Returns SW_BUSY if nothing can come now. Locking: takes SPILL; the caller must hold no lock.
 */
enum sw_status spill_bring(struct device *device, CUdeviceptr address, uint64_t bytes);

/* Blocks of up to this many bytes stay on the device in `fast`, up to a share of the budget (piece.c). */
#define SPILL_SMALL_BLOCK ((uint64_t)16 << 20)

/* Returns whether the device's memory moves, and what is dead moves without a copy. Locking: none. */
bool spill_moves_alive(const struct device *device);
/*
 * Returns where the device's memory is. If it does not run, the process has come to an end with what it has submitted,
 * on all devices, and nothing else passes the gate until it is released. New blocks should start on the host.
 */
enum residence spill_residence(const struct device *device);
/*
 * Returns who holds the memory of the device, or of any device if `device` is NULL: bits of enum residence_reason. A
 * bit is set when the order that asks for it has been carried out; an engine that has died is held by nobody.
 */
unsigned spill_held_by(const struct device *device);
/* Returns whether memory of any device does not run. */
bool spill_any_held(void);

/*
 * Discards these bytes, which must lie in one block of the device's heap: pieces that are wholly covered need not be
 * copied when they migrate. Has no effect if nothing moves. Locking: takes DISCARD.
 */
void spill_discard(struct device *device, CUdeviceptr address, uint64_t bytes);
/*
 * These bytes are of use again, whoever names them: an allocator has given them to somebody. Locking: none.
 */
void spill_reused(CUdeviceptr address, uint64_t bytes);
/*
 * Discards when the stream has got there (per_thread: its stream 0 is this thread's own). Must be called between
 * admit() and submission_close() of a submission to that stream that names the block. held: submission_pins(). Locking:
 * takes DISCARD.
 */
void spill_discard_behind(struct device *device, CUdeviceptr address, uint64_t bytes, CUstream stream, bool per_thread,
			  bool held);

/*
 * To be called before and after a context ends; `ended`: it did. spill_context_ending() returns false if the context
 * must not end yet, because work of the library in it has not completed for minutes. The caller must call
 * spill_context_ended() in either case. Locking: takes SPILL.
 */
bool spill_context_ending(CUcontext context);
void spill_context_ended(CUcontext context, bool ended);

/*
 * To be called at the end of the process, and in the child of a fork: releases all waits, and nothing moves any more. A
 * suspension, resumption or gap that is under way is broken off. At the end of the process waits for the movers: for
 * half a second, or 10 seconds where memory is given back, copied in a gap, or unmapped.
 */
void spill_end(void);
void spill_child(void);
/* Returns whether spill_end() was called: what a suspension answers then says nothing about the memory. */
bool spill_is_ending(void);

/*
 * Suspend: no submission passes any more, every movable chunk goes to the host, and device memory goes back to the
 * driver. Returns when that is done. Resume: submissions pass again, and memory is fetched as it is used. Both may be
 * called from any thread, and repeatedly.
 *
 * watch (may be NULL): called meanwhile; what it returns has no effect. ret_bytes (may be NULL) receives the device
 * bytes given back, or to be fetched again. Returns
 *
 *   SW_OK              done
 *   SW_NO_MEMORY       the host budget does not hold it; of a resumption: unbacked memory (chunk.h) gets none
 *   SW_NO_HOST_MEMORY  the system has no more memory to pin
 *   SW_DRIVER          the driver failed, or had failed before and memory does not move any more
 *   SW_NOT_SUPPORTED   not a running process, no heap, or the mode is `off` or `static`
 *   SW_BUSY            no safe point came in time (a capture is open, or the GPU does not become idle)
 *
 * If a suspension fails, the process goes on, unless its unbacked memory gets none: then, as after SW_NO_MEMORY of a
 * resumption, it is suspended. One that waits for its turn (below) waits on, whatever is suspended or resumed.
 */
enum sw_status spill_suspend(const struct order_watch *watch, uint64_t *ret_bytes);
enum sw_status spill_resume(uint64_t *ret_bytes);
/*
 * For turns (lifecycle/types.h), of one device; residence.h says what becomes of it. spill_stop() makes one attempt
 * only, which gives up after a fifth of a second without progress of the device. watch: called meanwhile; what it
 * returns has no effect. spill_release() first fetches everything that the device budget has room for; the process goes
 * on when no device is held any more. Results as above.
 */
enum sw_status spill_stop(struct device *device, const struct order_watch *watch);
enum sw_status spill_release(struct device *device, uint64_t *ret_bytes);
/*
 * Moves the memory of a device that is held, in two steps, so that memory of several devices moves at the same time:
 * each has a link of its own. to: RESIDENCE_AWAY, with what may stay on the device, `keep`, or RESIDENCE_BACK. If
 * spill_begin() returns true, the caller must call spill_finish() before anything else of that device.
 *
 * watch: called meanwhile. With RESIDENCE_BACK it may raise the budget, and says whether to wait for room;
 * after ORDER_ROOM_LOST the result is SW_BUSY, and the process is held on.
 */
bool spill_begin(struct device *device, enum residence to, uint64_t keep, const struct order_watch *watch);
enum sw_status spill_finish(struct device *device, const struct order_watch *watch);
/*
 * Changes spill.mode, from POLICY_SPILL_EXACT to POLICY_SPILL_FAST or back, for all devices and for those that are used
 * later. Waits for a moment at which all devices can be stopped, for 3 s for each. Returns as mode_change() (mover.h),
 * or SW_NOT_SUPPORTED if the process does not run. If it is not SW_OK the mode is as before, unless *ret_mixed:
 * then some devices are in the new mode and could not be brought back, which another call may mend; memory is as safe
 * as before. watch: called meanwhile; what it returns has no effect. *ret_bytes: the bytes that moved for it. The
 * caller must not run two calls at once. Locking: takes ENGINE_START, START, SPILL and HEAP, one after the other.
 */
enum sw_status spill_change_mode(enum policy_spill mode, const struct order_watch *watch, uint64_t *ret_bytes,
				 bool *ret_mixed);
/*
 * Says that `bytes` of the device will leave at once before long, so that host memory is pinned for them in the
 * background; 0: nothing will. Does nothing if the device has no engine. Locking: none.
 */
void spill_leaves_soon(const struct device *device, uint64_t bytes);
/* Returns whether host memory is being pinned at present for what leaves soon. Locking: none. */
bool spill_pins_ahead(const struct device *device);
/*
 * Returns whether all that was submitted is known to have completed, and no submission waits for memory; false if the
 * device has no engine.
 */
bool spill_is_idle(const struct device *device);

#endif
