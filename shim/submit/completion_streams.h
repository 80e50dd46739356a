/*
 * completion_streams.h: one row per stream: which stream it is, which submissions to it are not known to be complete,
 * and the events recorded behind them. completion_streams.c finds rows, opens them, and closes them when their stream
 * or context ends; completion.c counts submissions in them and queries their events.
 *
 * Locks: each row has a lock, ROW, for all of its fields; rows are opened under ROWS as well (below). A
 * row may be closed and reused for another stream whenever its lock is not held.
 */
#ifndef SPILLWAY_COMPLETION_STREAMS_H
#define SPILLWAY_COMPLETION_STREAMS_H

#include "shim/submit/types.h"
#include "shim/submit/completion.h"

/* Returns how many rows have ever been opened, without the shared one; they are the first ones. It never falls. */
unsigned completion_n_trackers(void);

/* Returns the ring of EVENTS events of the row. Locking: the caller must hold the row's lock to use it. */
static inline struct row_event *completion_ring(const struct tracker *tracker)
{
	return submit_tables.rows.rings[tracker - submit_state.completion.trackers];
}

static inline bool completion_is_shared(const struct tracker *tracker)
{
	return tracker == &submit_state.completion.trackers[TRACKERS];
}

/* Returns whether the handle means different streams in different contexts or threads. */
static inline bool completion_is_default(CUstream stream)
{
	return !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

/*
 * Returns the row of a stream; opens one if it has none. Never NULL.
 * Locking: takes ROW, which the caller must drop; takes ROWS to search and open.
 */
struct tracker *completion_stream(CUstream stream, bool per_thread);
/*
 * Returns the row that this thread used last, or NULL if there is none or it now belongs to another stream.
 * Locking: takes ROW, which the caller must drop.
 */
struct tracker *completion_stream_last(void);
/* Records that all submissions of the row up to the number are complete. Locking: the caller must hold ROW. */
void completion_stream_pass_locked(struct tracker *tracker, uint64_t number);

/* ---- shared with completion.c ---- */

/*
 * completion_streams.c keeps the rows of streams, completion.c the events behind their submissions and those of whole
 * contexts.
 */

/*
 * The results of queries of events. A single error may concern one call only; a dead context answers every query with
 * an error. So errors count only if no query succeeded ("done" or "not yet").
 */
struct completion_answers {
	bool any_good;
	CUresult error; /* the latest, or CUDA_SUCCESS */
};
/* Of an event that a capture has recorded which has ended: the documented answer, and what a driver gave (docs/facts.md). */
static inline bool completion_is_captured(CUresult result)
{
	return result == CUDA_ERROR_CAPTURED_EVENT || result == CUDA_ERROR_INVALID_VALUE;
}
static inline void completion_answered(struct completion_answers *answers, CUresult result)
{
	if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY || completion_is_captured(result))
		answers->any_good = true;
	else
		answers->error = result;
}

/* ---- completion_streams.c ---- */
/* Records that all submissions of the whole context up to the number are complete. Locking: takes ROW. */
void completion_streams_pass(CUcontext context, uint64_t number);
/* The same for the shared row. Locking: takes ROW. */
void completion_others_pass(uint64_t number);
/*
 * The first marks the rows of a context that is about to end, so that their events are no longer used. The second
 * closes them if the context ended, and else takes the mark back. Locking: the caller must hold ROWS; takes ROW.
 */
void completion_streams_ending_locked(CUcontext context);
void completion_streams_ended_locked(CUcontext context, bool ended);
/*
 * Waits until no thread records in the context. Its rows must be ending, so that no record begins. Returns false if a
 * thread still records after 30 s of naps. A cancellation point.
 * Locking: takes ROW; must be called without ROWS.
 */
bool completion_streams_wait(CUcontext context);

/*
 * The work of a green context that is about to end may go on afterwards, but events in it end with it. Its rows, which
 * must be ending, are closed, and wait for an event of its primary context, which covers that work (docs/facts.md).
 * Locking: takes ROW; must be called without it.
 */
void completion_streams_leave_part(CUcontext context);

/* ---- completion.c ---- */
/*
 * Records an event of a context that has a tail; once it has passed, the submissions of that context up to the number
 * are complete. Locking: takes ROWS, and ROW; must be called without them.
 */
void completion_context_look_after(CUcontext context, uint64_t number);

#endif
