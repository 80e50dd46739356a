/*
 * context_state.h: everything that this room keeps for the process, in one object. Only the files of the room use it.
 * capture_lock (capture.h) stays apart, because lifecycle/modules.c names it; it is defined beside the object.
 */
#ifndef SPILLWAY_CONTEXT_STATE_H
#define SPILLWAY_CONTEXT_STATE_H

#include "shim/base/clock.h"
#include "shim/base/lock.h"
#include "shim/context/context.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

/* ---- capture.c ---- */

struct capturing {
	CUstream stream;
	CUcontext context;
	pid_t thread; /* compared for the per-thread default stream only */
	struct capturing *next;
};

struct capture_state {
	struct capturing *list; /* under capture_lock */
	atomic_uint n_open;     /* captures open or about to open */
	atomic_uint n_waiting;  /* threads between capture_pause() and capture_resume() */
};

/* ---- green.c ---- */

/* Green contexts are few; one that finds no row is treated as a separate context. */
#define GREEN_MOST CONTEXT_GREENS

/* The table has no lock: a row is claimed by its `green` and found by its `context`, set last and cleared first. */
struct green_state {
	atomic_uint n; /* rows in use; read with each event of a context, so it lies apart from the lock below */
	struct {
		_Atomic(CUgreenCtx) green;
		_Atomic(CUcontext) context;
		CUcontext primary; /* primary and device are set before context */
		CUdevice device;
	} row[GREEN_MOST];
};

/* ---- context_event.c ---- */

#define EVENTS_KEPT 256

struct context_event_state {
	struct lock lock;  /* EVENTS. Held over cuEventDestroy, so that the context does not end meanwhile. */
	CUcontext context; /* of all kept events; those of another context are not kept. Under the lock, as the rest */
	unsigned n;
	CUevent event[EVENTS_KEPT];
};

/* ---- context_all.c ---- */

/*
 * Rows of the table. While there are more than CONTEXT_MOST contexts, no events are recorded and no device is known to
 * be idle, until enough contexts have ended; if the rows run out, that is so for good.
 */
#define CONTEXT_ROWS 1024

struct known {
	CUcontext context;
	CUdevice device;
	unsigned visits;
	unsigned enders; /* calls in progress that may end it */
	bool again;      /* created again since the first of them began */
};

struct context_all_state {
	/*
	 * CONTEXTS, over all that follows. Held over queries and ends of events too, so that no context ends between
	 * the check of n_ends and the query.
	 */
	struct lock lock;
	struct known row[CONTEXT_ROWS];
	unsigned n;             /* rows in use */
	unsigned n_ends;        /* calls that may have ended a context, since the start */
	unsigned n_ending;      /* those of them in progress */
	atomic_uint n_changes;  /* of the set of contexts; written under the lock, read without it */
	bool lost_some;         /* a context got no row */
	struct clock_cond left; /* a visit has ended */
};

struct context_state {
	struct capture_state capture;
	struct green_state green;
	struct context_event_state event;
	struct context_all_state all;
};

/* Hidden, so that its address is not loaded from the GOT. */
extern struct context_state context_state __attribute__((visibility("hidden")));

#endif
