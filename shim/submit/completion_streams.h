/*
 * completion_streams.h: the rows of completion.c, one a stream: whose it is, what has been submitted to it and is not known to be done,
 * and the events on their way behind that. completion_streams.c finds and opens them, and closes them when their stream or context
 * ends; completion.c submits and finds out.
 *
 * Lock: a row's own for all of it; `completion_table_lock` (completion_internal.h) also where rows are opened. Rows are closed, and
 * opened again for others, at any time: a row is what it was only as long as its lock is held.
 */
#ifndef SPILLWAY_COMPLETION_STREAMS_H
#define SPILLWAY_COMPLETION_STREAMS_H

#include "shim/submit/completion_internal.h"

/* Streams in use at once; further ones share the row of the others, which is proved by all contexts together. */
#define TRACKERS (COMPLETION_STREAMS - 1)
/* Events under way a stream. A program runs about a thousand launches ahead; further ones go without until some pass. */
#define EVENTS 512
struct tracker {
	struct lock lock;
	bool open;       /* new submissions may be counted here */
	bool ending;     /* its context is about to end: its events are not touched */
	bool recording;  /* a thread records an event, without the lock */
	bool inherited;  /* that thread is to destroy the stream once it has done so (completion_stream_ending) */
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
extern struct tracker completion_trackers[TRACKERS + 1];

/* An event of a row, and the submission that it stands behind. Beside the rows, because these take up 8 KiB a row. */
struct row_event {
	CUevent event;
	uint64_t number;
};
extern struct row_event completion_rings[TRACKERS + 1][EVENTS];
/* How many of the others have ever been opened: they come first. It never falls. */
unsigned completion_n_trackers(void);

/* The ring of EVENTS events of that row. Locking: the row's lock. */
static inline struct row_event *completion_ring(const struct tracker *tracker)
{
	return completion_rings[tracker - completion_trackers];
}

static inline bool completion_is_shared(const struct tracker *tracker)
{
	return tracker == &completion_trackers[TRACKERS];
}

/* One of those that mean other streams in other contexts, or threads. */
static inline bool completion_is_default(CUstream stream)
{
	return !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

/* The row of a stream, locked. It is opened if there is none; never NULL. */
struct tracker *completion_stream(CUstream stream, bool per_thread);
/* The row that this thread was given last, locked; NULL: none yet, or it is another stream's now. */
struct tracker *completion_stream_last(void);
/* Everything of the row up to the number is done. Locking: the caller holds the row's lock. */
void completion_stream_pass_locked(struct tracker *tracker, uint64_t number);

#endif
