/*
 * lifetimes_state.h: everything that this room keeps for the process, in one object. Only the files of the room use it.
 */
#ifndef SPILLWAY_LIFETIMES_STATE_H
#define SPILLWAY_LIFETIMES_STATE_H

#include "shim/lifetimes/lifetimes.h"
#include "shim/stats/stats.h"

#define LIFETIMES_HEAPS 64

/* A thread that has reported and counts its submissions in a stripe of its own (stats.h). */
struct lifetimes_reporter {
	uint32_t thread;
	_Atomic unsigned stripe; /* 0: not known yet; written last */
};

struct lifetimes_state {
	struct lifetimes *_Atomic all[LIFETIMES_HEAPS]; /* NULL: free */
	_Atomic uint32_t n_threads;                     /* that have reported */
	_Atomic unsigned n;                             /* those from here on were never used */
	_Atomic bool any_graph_unread;                  /* a graph could not be read: it may name anything */
	struct lifetimes_reporter reporters[STATS_STRIPES - STATS_SHARED];
};

/* Writes an event to the trace (lifetimes_trace.c). Locking: none. */
void lifetimes_trace(int on, enum lifetimes_kind kind, uint64_t address, uint64_t bytes);

extern struct lifetimes_state lifetimes_state __attribute__((visibility("hidden")));

#endif
