/*
 * completion.h: which submissions are done. Every tracked submission gets a number when it has returned from the driver; now
 * and then the submitting thread records an event behind it, on its stream. When that event has passed, so has every
 * submission of the stream up to that number. completion_poll() says up to which number all are that can matter to one device.
 *
 * An event recorded before a submission proves nothing about it, and events are recorded by the thread that submits
 * alone: handles 0, 1 and 2 mean other streams in other threads, and a stream may be destroyed by its owner. What is
 * left behind the last event of a stream is proved by an event of its whole context (cuCtxRecordEvent), which costs as
 * little but also waits for the mover's own copies.
 *
 * Lock: one a stream, held over queries of events, never over recording one, which may wait for room in the driver.
 *
 * A recording thread uses the stream's handle without the lock, and other threads may end the stream or its context just
 * then, which a program may do: it knows nothing of the record. The system may keep the thread from running for any time
 * between its last look under the lock and its call. So whoever ends something looks, under the lock, whether a record is
 * under way (none begins after that look: the row is closed, or ending), and does not pull the handle from under it:
 *
 *   a stream    is destroyed by the recording thread instead, as soon as it comes back from the driver. Until then the
 *               driver gives the handle to nobody else.
 *   a context   ends after it has come back. The wait is not counted in time but in naps, so that neither a stopped
 *               process (SIGSTOP) nor a step of the clock ends it; what does not come back for 30 s of them keeps its
 *               context: the program is told that the context is not ready to end.
 */
#ifndef SPILLWAY_COMPLETION_H
#define SPILLWAY_COMPLETION_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* What was submitted, for messages: the number of what is run (submission.h), and the row of the entry point. */
struct completion_what {
	uint64_t function;
	uint32_t id;
};

/*
 * A submission of this thread on that stream has returned from the driver: its number. owners: devices, bits, whose heaps
 * it may touch although it runs on another one. hurry: record an event behind it at once. Never records while a capture is
 * open: the event would become part of it.
 */
uint64_t completion_submitted(CUstream stream, bool per_thread, const struct completion_what *what, uint64_t owners,
			      bool hurry);
/* The device of a stream to which this thread is about to submit; -1: not known. */
CUdevice completion_device(CUstream stream, bool per_thread);
/* Record an event behind this thread's last submission, if there is none yet: the thread is about to wait. */
void completion_flush(void);

/* The number of the latest submission. */
uint64_t completion_newest(void);
/*
 * Every submission up to this number is done, but for those on streams of other devices than these (bits) that told that
 * they do not touch the heap of `owner`. By the movers only. tails: also have those looked after that no event follows.
 * *ret_error: an error when all events that were asked answered with one (a context has died), else untouched.
 */
uint64_t completion_poll(CUdevice owner, uint64_t devices, bool tails, CUresult *ret_error);

/*
 * May anything that is not known to be done touch the heap of that device, from a stream of none of these devices (bits) or
 * of nobody knows which? Says what submissions told of themselves (owners); of what was not submitted yet nothing.
 */
bool completion_touches(CUdevice owner, uint64_t devices);

/*
 * The oldest submission on any stream but this one that is not known to be done; UINT64_MAX: there is none; 0: nobody can
 * tell, a capture is open. Asks the driver about streams with such submissions; waits for nothing but a capture that is
 * just opening.
 */
uint64_t completion_oldest_elsewhere(CUstream stream, bool per_thread);

/*
 * The latest submissions that are not known to be done, oldest first; row: equal for those of one stream. Makes no driver
 * call, so it may be asked when the context has died.
 */
void completion_each_in_flight(void (*visit)(void *argument, unsigned row, const struct completion_what *what),
			       void *argument);
/* Rows there can be. */
#define COMPLETION_STREAMS 257

/*
 * The stream is about to be destroyed. Returns true if the caller must not do that: a thread that still records on it will.
 * Waits for such a thread for some ms at most.
 */
bool completion_stream_ending(CUstream stream);
/*
 * The context is about to end; whether it did. Returns false if it must not end yet, since a thread still records in it.
 * The caller must call completion_context_ended() in either case.
 */
bool completion_context_ending(CUcontext context);
void completion_context_ended(CUcontext context, bool ended);

#endif
