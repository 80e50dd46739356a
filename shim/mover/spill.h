/*
 * spill.h: the spill engine, as the rest of the library sees it. Memory over the device budget lies on the host; the
 * engine moves it to where it is used. Modes are the policy's spill.mode (docs/design.md, Moving).
 */
#ifndef SPILLWAY_SPILL_H
#define SPILLWAY_SPILL_H

#include "shim/device/device.h"

/* Something of the device's heap lies on the host: begin to move memory, if the policy's mode is one that does. */
void spill_pressure(struct device *device);

/*
 * The driver has no memory for somebody else: send so much to the host and give it back, of what the device has lent to
 * other heaps, then of its own. May wait for the devices, for a bounded time. True: there was something.
 */
bool spill_make_room(struct device *device, uint64_t bytes);
/* How long, at most: ns. */
uint64_t spill_room_ns(uint64_t bytes);

/*
 * A new block of so many bytes is about to be made, on the device as far as there is room: when what the program does
 * next is known, room is made if there is not enough. May wait for the device, for a bounded time.
 */
void spill_room_for_new(struct device *device, uint64_t bytes);

/* Is the device's memory given back, or about to be, until spill_resume()? What is made now is to begin on the host. */
bool spill_is_suspended(const struct device *device);

/*
 * The program no longer needs these bytes, which lie in one block of the device's heap: what is wholly covered need not be
 * copied when it changes places. Without effect where nothing moves.
 */
void spill_discard(struct device *device, CUdeviceptr address, uint64_t bytes);
/*
 * The same when the stream has got there (per_thread: its stream 0 is this thread's own). To be called between
 * admit() and submission_close() of a submission to that stream that names the block. held: submission_pins().
 */
void spill_discard_behind(struct device *device, CUdeviceptr address, uint64_t bytes, CUstream stream, bool per_thread,
			  bool held);

/*
 * Where memory moves: wait until what a green context was given is done, a second at most, and only as long as that
 * disturbs no capture. Before its end, for which the driver does not say that it waits; by the thread that ends it.
 */
void spill_await(CUcontext green, int device);
/*
 * A context is about to end; whether it did. Returns false if it must not end yet: something of ours still works in it, and
 * has not come to its end in minutes. The caller must call spill_context_ended() in either case.
 */
bool spill_context_ending(CUcontext context);
void spill_context_ended(CUcontext context, bool ended);

/* At the end of the process, and in the child of a fork: nobody waits, nothing moves. */
void spill_end(void);
void spill_child(void);

/*
 * Suspend: no submission passes any more, every movable chunk goes to the host, device memory goes back to the driver.
 * Returns when that is done. Resume: submissions pass again; memory comes back as it is used. Both may be called from
 * any thread, and twice. SW_OK; SW_NO_MEMORY: the host budget does not hold it, SW_NO_HOST_MEMORY: the
 * system has no more to pin, SW_DRIVER: it failed, or had failed before and memory does not move any more, nothing is
 * suspended; SW_NOT_SUPPORTED: not a running process, no heap, or the mode is `off` or `static`; SW_BUSY: no safe point came in
 * time (a capture is open, the GPU does not become idle), nothing is suspended.
 * ret_bytes (may be NULL): device bytes given back, or to be brought back.
 */
enum sw_status spill_suspend(uint64_t *ret_bytes);
enum sw_status spill_resume(uint64_t *ret_bytes);

#endif
