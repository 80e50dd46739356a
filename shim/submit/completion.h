// SPDX-License-Identifier: Apache-2.0
/*
 * completion.h: completion of submissions on the GPU. Every tracked submission gets a number when it has returned from
 * the driver. Now and then the submitting thread records an event behind it, on its stream. Once that event has passed,
 * every submission of the stream up to that number is complete. completion_poll() returns the number up to which all
 * submissions are complete that can matter to one device.
 *
 * An event proves nothing about submissions after it. Only the submitting thread records events, because handles 0, 1
 * and 2 mean other streams in other threads, and because the owner of a stream may destroy it. The tail of a stream
 * (what follows its last event) is proved complete by an event of its whole context (cuCtxRecordEvent), which is as
 * cheap but also waits for the mover's copies.
 *
 * Locks: ROW(stream), held while events are queried, never while one is recorded, which may wait for room in the
 * driver.
 *
 * A thread that records uses the stream's handle without the lock. The program knows nothing of that, so another of its
 * threads may end the stream or its context meanwhile; and the system may suspend the recording thread for any time
 * between its last look under the lock and its call. A thread that ends a stream or a context therefore looks, under
 * the lock, whether a record is under way. None begins after that look, because the row is closed or ending. If one is:
 *
 *   a stream    is destroyed by the recording thread, as soon as that returns from the driver. Until then the driver
 *               does not reuse the handle.
 *   a context   ends after the recording thread has returned. The wait is counted in naps, not in time, so that neither
 *               a stopped process (SIGSTOP) nor a step of the clock ends it. After 30 s of naps the context stays, and
 *               the program gets the error that the context is not ready to end.
 */
#ifndef SPILLWAY_COMPLETION_H
#define SPILLWAY_COMPLETION_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * In place of a stream: there are several, or it is not known which, nor of which context. Only events of all contexts
 * prove such a submission.
 */
#define COMPLETION_ANY_STREAM ((CUstream) ~(uintptr_t)0)

/* What was submitted, for messages: what is run (submission_function), and the id of the entry point (HOOK_…). */
struct completion_what {
	uint64_t function;
	uint32_t id;
};

/*
 * Counts a submission of this thread that has returned from the driver. Returns its number. owners: devices (bits)
 * whose heaps it may touch. hurry: record an event behind it at once. Never records while a capture is open, because
 * the event would become part of it. Locking: takes ROW, and ROWS if the stream has no row yet.
 */
uint64_t completion_submitted(CUstream stream, bool per_thread, const struct completion_what *what, uint64_t owners,
			      bool hurry);
/*
 * Returns the device of a stream to which this thread is about to submit, or -1 if it is not known. Locking: as above.
 */
CUdevice completion_device(CUstream stream, bool per_thread);
/*
 * For a thread that is about to wait: records an event behind its last submission if none follows it.
 * Locking: takes ROW.
 */
void completion_flush(void);

/*
 * The submission of this thread with this number does more than clear memory (submission_named_only). To be called
 * before the thread counts as outside the driver (submission_leave). Locking: none.
 */
void completion_is_wide(uint64_t number);
/* Return the number of the latest submission, of the latest such one, and of the latest one of this thread; 0: none. */
uint64_t completion_newest(void);
uint64_t completion_newest_wide(void);
uint64_t completion_own(void);
/*
 * Returns a number up to which every submission is complete, except those on streams of devices other than `devices`
 * (bits) whose owners do not include `owner`. tails: also record events of contexts for submissions that no event
 * follows. *ret_error is set only if every event that was queried returned an error (a context has died). Only for
 * movers. Locking: takes ROWS and ROW.
 */
uint64_t completion_poll(CUdevice owner, uint64_t devices, bool tails, CUresult *ret_error);

/*
 * Every context that the query asked is idle (CONTEXT_IDLE). number: completion_newest() before it began. Returns
 * whether all submissions up to the number are complete that may matter to `owner`, as completion_poll() says. One in a
 * context that was not asked must be proved complete by itself. Locking: takes ROWS and ROW.
 */
struct context_idle;
bool completion_is_idle(CUdevice owner, uint64_t devices, const struct context_idle *idle, uint64_t number);

/*
 * Returns whether a submission that is not known to be complete, on a stream of an unknown device or of one outside
 * `devices` (bits), may touch the heap of `owner`, by the owners that it was counted with. Says nothing about work that
 * has not been counted yet. Locking: takes ROW.
 */
bool completion_touches(CUdevice owner, uint64_t devices);

/*
 * Returns the oldest submission, on any other stream, that is not known to be complete; UINT64_MAX if there is none, or
 * 0 if that is unknown because a capture is open or opening. Queries the streams that have such submissions; never
 * waits for the GPU. Locking: takes ROW, and ROWS if the stream has no row yet.
 */
uint64_t completion_oldest_elsewhere(CUstream stream, bool per_thread);

/*
 * Visits those of the latest submissions that are not known to be complete, oldest first. row is
 * equal for submissions of one stream. Makes no driver call, so it also works when the context has died. Locking: takes
 * ROW.
 */
void completion_each_in_flight(void (*visit)(void *argument, unsigned row, const struct completion_what *what),
			       void *argument);
/* Number of rows: one per stream, and one that all further streams share. */
#define COMPLETION_STREAMS 257

/*
 * Must be called before the stream is destroyed. Returns true if the caller must not destroy it, because a thread still
 * records on it and will. Waits for such a thread for 100 naps of 0.1 ms at most. Locking: takes ROW.
 */
bool completion_stream_ending(CUstream stream);
/*
 * Must be called before the context ends. Returns false if it must not end yet, because a thread still records in it.
 * In either case the caller must then call completion_context_ended() with whether it ended. Locking: take ROWS and
 * ROW.
 */
bool completion_context_ending(CUcontext context);
void completion_context_ended(CUcontext context, bool ended);

#endif
