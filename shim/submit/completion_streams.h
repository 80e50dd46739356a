/*
 * completion_streams.h: one row per stream: which stream it is, which submissions to it are not known to be complete,
 * and the events recorded behind them. completion_streams.c finds rows, opens them, and closes them when their stream
 * or context ends; completion.c counts submissions in them and queries their events.
 *
 * Locks: each row has a lock, ROW, for all of its fields; rows are opened under ROWS as well (completion_internal.h). A
 * row may be closed and reused for another stream whenever its lock is not held.
 */
#ifndef SPILLWAY_COMPLETION_STREAMS_H
#define SPILLWAY_COMPLETION_STREAMS_H

#include "shim/submit/completion_internal.h"
#include "shim/submit/submit_state.h"

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

#endif
