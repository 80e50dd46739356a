// SPDX-License-Identifier: Apache-2.0
/*
 * context.h: CUDA contexts of the process, and open stream captures. Works in a context that need not be current, waits
 * for its work, and keeps events and green contexts. The current context changes only until context_leave().
 */
#ifndef SPILLWAY_CONTEXT_H
#define SPILLWAY_CONTEXT_H

#include "shim/base/lock.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- the current context ---- */

/* Returns the current context, or NULL if none is current. */
CUcontext context_current(void);

/* Returns the context of a stream, or NULL if the driver does not give it. */
CUcontext context_told(CUstream stream, bool per_thread);
/* Returns the context of a stream, or the current one if the driver does not give it. */
CUcontext context_of_stream(CUstream stream, bool per_thread);

/*
 * Returns true if the context has ended, whichever call ended it. The driver may reuse the handle; a primary context
 * that is retained again has the same one.
 */
bool context_has_ended(CUcontext context);

/*
 * Makes the context current until context_leave(); NULL means the current one. Returns the driver's error on failure.
 * Only an error for which context_is_gone() is true, of this call or of one made in the context, means that the
 * context has ended; after any other error its work may still be running.
 */
CUresult context_enter(CUcontext context, bool *ret_pushed);
bool context_is_gone(CUresult error);
void context_leave(bool pushed);

/* ---- context.c: green contexts ---- */

/*
 * Returns the context that memory allocated now belongs to: the current one, or for a green context the primary
 * context. A green context covers only a part of the device; its memory lives in the primary context, which covers all
 * of them.
 */
CUcontext context_of_memory(void);
/* Returns the context, or for a green one its primary context, whose events and waits cover the green one. */
CUcontext context_whole(CUcontext context);
/*
 * Called when a green context was created, or is about to end. context_green_ending() returns its context and sets its
 * device, or returns NULL if it was not known. The driver lets only one thread at a time work in a green context, so a
 * wait for its work waits for the work of the primary context.
 */
void context_green(CUgreenCtx green, CUdevice device);
CUcontext context_green_ending(CUgreenCtx green, CUdevice *ret_device);
/* The same for one that belongs to this primary context, which is about to be reset; NULL: none does. */
CUcontext context_green_take(CUcontext primary, CUgreenCtx *ret_green);

/* ---- reused events ---- */

/*
 * Gives back an event that one of the functions below recorded, to be reused: creating and destroying one costs more
 * than recording it. It may be given back before it is complete, but not after its context has ended. Locking: takes
 * EVENTS.
 */
void context_event_give(CUcontext context, CUevent event);

/*
 * Records an event behind all work submitted to a stream so far. Sets *ret_event and its context on success only; the
 * caller must then give the event back (context_event_give). Locking: takes EVENTS.
 */
CUresult context_record_stream(CUstream stream, bool per_thread, CUevent *ret_event, CUcontext *ret_context);
/*
 * Waits until all work submitted to a stream so far is complete. The program must not be capturing on the stream.
 * Captures of other streams, which a plain wait of the driver would end, go on.
 */
CUresult context_wait_stream(CUstream stream, bool per_thread);

/* ---- every context of the process ---- */

/*
 * The table of all contexts and their devices, by which a device is known to be idle. The caller must call
 * context_known() when a context is created, and context_ending() and context_ended() around each call that may end
 * one, all of them also before the first allocation. context_ending() waits while events are recorded in the context
 * (context_record); it returns false if that lasts longer than 30 s in which this process runs. context_ended() must
 * be called in either case. context_device() and context_any() read the table. Locking: these functions take CONTEXTS.
 */
#define CONTEXT_MOST 32
void context_known(CUcontext context, CUdevice device);
bool context_ending(CUcontext context);
void context_ended(CUcontext context, bool ended);
/*
 * Gives the device of a context. If the table did not have the context (made by a call that the library does not know),
 * it has it from now on. Returns false if the context has ended.
 */
bool context_device(CUcontext context, CUdevice *ret_device);
/* Returns a context of the device that is not about to end, or NULL if the device has none. */
CUcontext context_any(CUdevice device);
/*
 * Returns the error that the driver gives for every call in a context (NULL: the current one) that has died, by an
 * illegal address or a failed assertion, or has ended; CUDA_SUCCESS if it is alive. Never waits; allowed during a
 * capture.
 */
CUresult context_died_of(CUcontext context);
/*
 * The current context is to have memory of this device. Stores context_of_memory(), and makes it known: the program may
 * have kept the handle of one that was reset. Returns what context_died_of(NULL) does.
 */
CUresult context_for_memory(CUdevice device, CUcontext *ret_context);
/* Returns true if a context has died with this error. Queries the driver for each context. Locking: takes CONTEXTS. */
bool context_any_died_of(CUresult error);
/* As context_any(), and it has not died. Queries the driver for each context. Locking: takes CONTEXTS. */
CUcontext context_living(CUdevice device);

/*
 * Records an event behind all work submitted to the context so far. Returns NULL if the driver cannot do that (older
 * than 12.5) or refuses, or if the context may be about to end or has ended; *ret_gone is true if it has ended. The
 * caller must ensure that no capture is open: the call would invalidate it. May wait for space in the driver's queues.
 * Locking: takes CONTEXTS; the caller must hold no lock.
 */
CUevent context_record(CUcontext context, bool *ret_gone);
/*
 * Waits until all work of the context is complete. Returns CUDA_SUCCESS for a context that has ended: it has no work
 * left.
 */
CUresult context_wait_idle(CUcontext context);

/*
 * Asks the driver how much memory the device has free, in a context of the device. Returns false if it has none, or if
 * the driver does not answer. Waits for nothing; allowed during a capture. Locking: takes CONTEXTS.
 */
bool context_memory(CUdevice device, size_t *ret_free, size_t *ret_total);

/* A query whether all work that had been submitted to the contexts of some devices when the query began is complete. */
struct context_idle {
	unsigned n, ends, changes;
	unsigned doubts;  /* consecutive errors */
	uint64_t doubted; /* time of the first of them, ns */
	CUevent event[CONTEXT_MOST];
	unsigned n_asked;
	CUcontext asked[CONTEXT_MOST]; /* the contexts; they stay when the events have completed */
};
enum context_idleness {
	CONTEXT_IDLE,
	CONTEXT_BUSY,
	CONTEXT_UNKNOWN, /* a context has ended, died, or come to be known since: start a new query */
};
/*
 * Starts a query. devices: a bit mask of ordinals. Returns false if idleness cannot be determined now: a capture is
 * open, a context may be ending, the devices have more than CONTEXT_MOST contexts, or the driver is older than 12.5.
 * Locking: takes CONTEXTS.
 */
#define CONTEXT_ALL_DEVICES UINT64_MAX
bool context_idle_ask(uint64_t devices, struct context_idle *ret_idle);
/* The same; what has died counts as idle: the driver runs nothing of it any more. */
bool context_idle_ask_living(uint64_t devices, struct context_idle *ret_idle);
/* Polls a query; never waits. Any result but CONTEXT_BUSY ends it. context_idle_forget() ends it early. */
enum context_idleness context_idle_look(struct context_idle *idle);
void context_idle_forget(struct context_idle *idle);

/* ---- open stream captures ---- */

/*
 * Tracks open stream captures. While one is open, the library must not wait for the GPU (docs/facts.md, Stream
 * capture): a cuCtxSynchronize from any thread would invalidate it.
 *
 * Waits for the GPU go between capture_pause() and capture_resume(). A capture that is about to begin waits for them,
 * but never longer than CAPTURE_PATIENCE_MS, because the work that the library waits for may need the capturing
 * thread.
 *
 * Locking: CAPTURE protects the list of capturing streams; capture_is_open() is one atomic load.
 */

#define CAPTURE_PATIENCE_MS 100

bool capture_is_open(void);

/*
 * Holds back new captures until capture_resume(). Returns false if a capture is open; the caller must then neither
 * wait for the GPU nor call capture_resume().
 */
bool capture_pause(void);
void capture_resume(void);

/*
 * Called before and after the real cuStreamBeginCapture*. per_thread: the entry point is a _ptsz one, whose stream 0 is
 * the per-thread default stream; context: the stream's; success: the call's result. Locking: capture_opened() takes
 * CAPTURE.
 */
void capture_opening(void);
void capture_opened(CUstream stream, bool per_thread, CUcontext context, bool success);
/*
 * Called after the real cuStreamEndCapture. still_capturing: it failed and left the capture open.
 * Locking: takes CAPTURE, as do the functions below up to capture_forget_context().
 */
void capture_closed(CUstream stream, bool per_thread, bool still_capturing);
/* Called when the stream or the context is about to end: forgets its captures, which end with it. */
void capture_forget(CUstream stream);
void capture_forget_context(CUcontext context);
/*
 * Between capture_relax() and capture_restore() the thread may query events without invalidating captures
 * (docs/facts.md, Stream capture). Returns the thread's previous mode, or CAPTURE_MODE_KEPT if the driver refused
 * repeatedly and the mode is unchanged.
 */
#define CAPTURE_MODE_KEPT ((CUstreamCaptureMode)-1)
CUstreamCaptureMode capture_relax(void);
void capture_restore(CUstreamCaptureMode mode);

extern struct lock capture_lock;

#endif
