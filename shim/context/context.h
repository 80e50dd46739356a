/*
 * context.h: doing something in a context that may not be the current one, and waiting for one. The current context is
 * afterwards as it was.
 */
#ifndef SPILLWAY_CONTEXT_H
#define SPILLWAY_CONTEXT_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- current.c: being in one ---- */

/* The current context, NULL when there is none. */
CUcontext context_current(void);

/* The context of a stream; NULL when the driver does not say. */
CUcontext context_told(CUstream stream, bool per_thread);
/* The same; the current one when the driver does not say. */
CUcontext context_of_stream(CUstream stream, bool per_thread);

/* Has it, by whomever? Its handle may be given out anew; a primary context lives again under the same one. */
bool context_has_ended(CUcontext context);

/*
 * Make it current until context_leave(); NULL means the current one. The driver's error where that fails. Only some errors
 * say that the context is gone (context_is_gone), of this call or of one made in it; after another one its work may still
 * be running.
 */
CUresult context_enter(CUcontext context, bool *ret_pushed);
bool context_is_gone(CUresult error);
void context_leave(bool pushed);

/* ---- green.c: green contexts ---- */

/*
 * The context that memory allocated now belongs to. That is the current one, except for a green context: it covers its
 * own part of the device alone, its memory lives in the primary context, which covers all of them.
 */
CUcontext context_of_memory(void);
/* The context itself; of a green one its primary context, whose events and waits cover it. */
CUcontext context_whole(CUcontext context);
/*
 * A green context was made, or is about to end: its context and its device then, NULL when it was not known. The driver
 * lets only one thread at a time work in one, so what waits for its work waits for its primary context's.
 */
void context_green(CUgreenCtx green, CUdevice device);
CUcontext context_green_ending(CUgreenCtx green, CUdevice *ret_device);

/* ---- context_event.c: events to be used again ---- */

/*
 * Events without timing for use and use again: making and ending one costs more than recording it. Taken with its context
 * current; the driver's error where none can be made. One that is given back may still be under way. Not after the
 * context has ended.
 */
CUresult context_event_take(CUcontext context, CUevent *ret_event);
void context_event_give(CUcontext context, CUevent event);

/*
 * Records an event behind what a stream was given so far. *ret_event, and the context it belongs to, are set on success
 * alone; the caller must give the event back (context_event_give).
 */
CUresult context_record_stream(CUstream stream, bool per_thread, CUevent *ret_event, CUcontext *ret_context);

/* ---- context_all.c: every context of the process ---- */

/*
 * Every context and its device, so that a device can be known to be idle: known when it is made, ending and ended around
 * every call that may end it, both also before the first allocation. Ending waits while events are being recorded in it
 * (context_record), and is refused (false) where that does not come to an end in 30 s in which this process runs; ended
 * must be called in either case. False from context_idle_ask: nobody can tell now (a capture is open, a context
 * may be ending, of those devices there are more than CONTEXT_MOST now, or the driver is older than 12.5).
 */
#define CONTEXT_MOST 32
void context_known(CUcontext context, CUdevice device);
bool context_ending(CUcontext context);
void context_ended(CUcontext context, bool ended);
/* The device of a context; false: it is gone. */
bool context_device(CUcontext context, CUdevice *ret_device);
/* One of the device's contexts that is alive, NULL: none. */
CUcontext context_any(CUdevice device);
/*
 * What the driver answers to whatever is asked of a context (NULL: the current one) that has died, of an illegal address
 * or a failed assertion, or has ended; CUDA_SUCCESS: it lives. Never waits, and may be asked during a capture.
 */
CUresult context_died_of(CUcontext context);
/* Has one of the contexts died with this error, so that whatever is asked of it is answered so? Asks the driver of each. */
bool context_any_died_of(CUresult error);

/*
 * An event of the context that has everything the context has been given so far before it. NULL when the driver cannot
 * do that (older than 12.5) or refuses, or when the context may be about to end or is gone; the last *ret_gone tells.
 * Never while a capture is open: it would be invalidated. It may wait for room in the driver's queues: under no lock.
 */
CUevent context_record(CUcontext context, bool *ret_gone);
/*
 * Wait until what this very context was given is done, so many ms at most, and only as long as no capture is open. By a
 * thread that may work in it.
 */
void context_await(CUcontext context, unsigned ms);
/* Wait until all work of the context is done. One that is gone has none left. */
CUresult context_wait_idle(CUcontext context);

/* Has all work that the device's contexts had been given when it was asked been done? */
struct context_idle {
	unsigned n, ends;
	unsigned doubts;  /* errors in a row, */
	uint64_t doubted; /* and when the first of them was: ns */
	CUevent event[CONTEXT_MOST];
};
enum context_state {
	CONTEXT_IDLE,
	CONTEXT_BUSY,
	CONTEXT_UNKNOWN, /* a context has ended since, or died: ask again */
};
/* devices: bits. */
#define CONTEXT_ALL_DEVICES UINT64_MAX
bool context_idle_ask(uint64_t devices, struct context_idle *ret_idle);
/* Never waits. After anything but BUSY the question is over. */
enum context_state context_idle_look(struct context_idle *idle);
void context_idle_forget(struct context_idle *idle);

#endif
