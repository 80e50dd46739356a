/*
 * lifetimes_state.h: everything that this room keeps for the process, in one object. Only the files of the room use it.
 */
#ifndef SPILLWAY_LIFETIMES_STATE_H
#define SPILLWAY_LIFETIMES_STATE_H

#include "shim/base/limits.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/stats/stats.h"

#define LIFETIMES_HEAPS 64

/* A thread that has reported and counts its submissions in a stripe of its own (stats.h). */
struct lifetimes_reporter {
	uint32_t thread;
	_Atomic unsigned stripe; /* 0: not known yet; written last */
};

/* What the allocator of a device has said of itself. */
struct lifetimes_sums {
	_Atomic uint64_t reserved, allocated; /* bytes that it said last */
	_Atomic uint64_t freed;               /* bytes of its blocks that were freed since its last event */
	_Atomic bool incomplete;              /* it does not report all births and deaths */
};

/* At which lines tensors are born (birth_lines.c). */
#define BIRTH_LINES_SLOTS (1u << 14) /* of births that are recognized: eleven steps of a GPT do not fill it */
#define BIRTH_LINES_UNITS (1u << 16) /* 128 GiB, without a conflict in the address space of one heap */
#define NODE_LINES_SLOTS                                                                                               \
	(1u << 15) /* nodes whose lines are known (birth_lines.c); a step of a GPT of 16 layers makes 604 */
struct birth_lines_state {
	_Atomic uint64_t paid; /* time_share.h */
	_Atomic uint64_t recognized[BIRTH_LINES_SLOTS];
	_Atomic uint32_t unit[BIRTH_LINES_UNITS];
	_Atomic uint64_t node[NODE_LINES_SLOTS];
};

struct lifetimes_state {
	struct lifetimes *_Atomic all[LIFETIMES_HEAPS]; /* NULL: free */
	_Atomic uint32_t n_threads;                     /* that have reported */
	_Atomic unsigned n;                             /* those from here on were never used */
	_Atomic bool any_graph_unread;                  /* a graph could not be read: it may name anything */
	struct lifetimes_sums sums[DEVICE_MOST];
	struct lifetimes_reporter reporters[STATS_STRIPES - STATS_SHARED];
	struct birth_lines_state births;
};

/* Writes an event to the trace. site: as in struct live_report. Locking: none. */
void lifetimes_trace(int on, enum lifetimes_kind kind, uint64_t address, uint64_t bytes, unsigned site);

extern struct lifetimes_state lifetimes_state __attribute__((visibility("hidden")));

#endif
