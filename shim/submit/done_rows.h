/*
 * done_rows.h: the rows of done.c, one a stream: whose it is, what has been submitted to it and is not known to be done,
 * and the events on their way behind that. done_rows.c finds and opens them, and closes them when their stream or context
 * ends; done.c submits and finds out.
 *
 * Lock: a row's own for all of it; `done_table_lock` (done_internal.h) also where rows are opened. Rows are closed, and
 * opened again for others, at any time: a row is what it was only as long as its lock is held.
 */
#ifndef SPILLWAY_DONE_ROWS_H
#define SPILLWAY_DONE_ROWS_H

#include "shim/submit/done_internal.h"

/* Streams in use at once; further ones share the row of the others, which is proved by all contexts together. */
#define TRACKERS (DONE_ROWS - 1)
/* Events under way a stream. A program runs about a thousand launches ahead; further ones go without until some pass. */
#define EVENTS 512
struct tracker {
	struct lock lock;
	bool open;       /* new submissions may be counted here */
	bool ending;     /* its context is about to end: its events are not touched */
	bool recording;  /* a thread records an event, without the lock */
	bool inherited;  /* that thread is to destroy the stream once it has done so (done_stream_ending) */
	bool per_thread; /* of the calls that submit */
	CUstream stream;
	CUcontext context;
	CUdevice device;      /* of the context; -1: not known */
	uint64_t thread;      /* of a per-thread default stream; else 0 */
	uint64_t first, last; /* the oldest submission not known to be done, 0: none; the latest */
	uint64_t recorded;    /* the latest with an event behind it */
	uint64_t seen;        /* the latest when the mover looked last */
	/* Of those from `first` on: whose heaps they may touch on other devices, and which of them may. 0: none. */
	uint64_t foreign, foreign_first, foreign_last;
	unsigned head, n; /* events under way, in the order they were recorded */
};

/* The last one: all streams without a row of their own; it is always there. */
extern struct tracker done_trackers[TRACKERS + 1];

/* An event of a row, and the submission that it stands behind. Beside the rows, because these take up 8 KiB a row. */
struct row_event {
	CUevent event;
	uint64_t number;
};
extern struct row_event done_rings[TRACKERS + 1][EVENTS];
/* How many of the others have ever been opened: they come first. It never falls. */
unsigned done_n_trackers(void);

/* The ring of EVENTS events of that row. Locking: the row's lock. */
static inline struct row_event *done_ring(const struct tracker *tracker)
{
	return done_rings[tracker - done_trackers];
}

static inline bool done_is_shared(const struct tracker *tracker)
{
	return tracker == &done_trackers[TRACKERS];
}

/* One of those that mean other streams in other contexts, or threads. */
static inline bool done_is_default(CUstream stream)
{
	return !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

/* The row of a stream, locked. It is opened if there is none; never NULL. */
struct tracker *done_row(CUstream stream, bool per_thread);
/* The row that this thread was given last, locked; NULL: none yet, or it is another stream's now. */
struct tracker *done_row_last(void);
/* Everything of the row up to the number is done. Locking: the caller holds the row's lock. */
void done_row_pass_locked(struct tracker *tracker, uint64_t number);

#endif
