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

/* Streams with a row. Further streams share the last row, which only all contexts together prove complete. */
#define TRACKERS (COMPLETION_STREAMS - 1)
/*
 * Events under way per stream; a program runs about a thousand launches ahead. When all are under way, no event is
 * recorded until some pass.
 */
#define EVENTS 512
struct tracker {
	struct lock lock;
	bool open;       /* new submissions may be counted here */
	bool ending;     /* the context is about to end, so the events are not used */
	bool recording;  /* a thread records an event, without the lock */
	bool inherited;  /* that thread must destroy the stream afterwards (completion_stream_ending) */
	bool per_thread; /* spelling of the calls that submit */
	CUstream stream;
	CUcontext context;
	CUdevice device;      /* of the context; -1: not known */
	uint64_t thread;      /* serial of the thread of a per-thread default stream; else 0 */
	uint64_t first, last; /* the oldest submission not known to be complete (0: none); the latest */
	uint64_t recorded;    /* the latest submission with an event behind it */
	uint64_t seen;        /* `last` when a mover looked for tails before */
	/*
	 * foreign: other devices (bits) whose heaps submissions from `first` on may touch; 0: none. foreign_first and
	 * foreign_last: the first and the last of those submissions.
	 */
	uint64_t foreign, foreign_first, foreign_last;
	unsigned head, n; /* events under way, in the order in which they were recorded */
};

/* The last row, which is always open, is shared by all streams without a row. */
extern struct tracker completion_trackers[TRACKERS + 1];

/* An event of a row, and the submission that it follows. Kept apart from the rows, because they take 8 KiB per row. */
struct row_event {
	CUevent event;
	uint64_t number;
};
extern struct row_event completion_rings[TRACKERS + 1][EVENTS];
/* Returns how many rows have ever been opened, without the shared one; they are the first ones. It never falls. */
unsigned completion_n_trackers(void);

/* Returns the ring of EVENTS events of the row. Locking: the caller must hold the row's lock to use it. */
static inline struct row_event *completion_ring(const struct tracker *tracker)
{
	return completion_rings[tracker - completion_trackers];
}

static inline bool completion_is_shared(const struct tracker *tracker)
{
	return tracker == &completion_trackers[TRACKERS];
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
