// SPDX-License-Identifier: Apache-2.0
/*
 * types.h: the lifetimes of one heap, and everything that this room keeps for the process, in one object. Only the
 * files of the room use it.
 */
#ifndef SPILLWAY_LIFETIMES_TYPES_H
#define SPILLWAY_LIFETIMES_TYPES_H

#include "shim/base/array.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/stats/stats.h"

/* 24 steps of a GPT whose tensors are born and die 2,700 times a step. */
#define LIFETIMES_RING (1u << 16)

struct lifetimes_record {
	_Atomic uint64_t sequence; /* position + 1: filled; position + LIFETIMES_RING: free for the next round */
	uint64_t begin, end;
	struct live_report report;
	size_t position;
	enum lifetimes_kind kind;
};

/* Who tells what is alive in a unit. */
enum teller {
	TELLER_NONE,
	TELLER_ALLOCATOR,            /* the one that reports, of its blocks */
	TELLER_ALLOCATOR_DISTRUSTED, /* and an event said that it is distrusted */
	TELLER_ALLOCATOR_UNTRUSTED,  /* and none ever said that it is reported */
	TELLER_PROGRAM,              /* the program itself (lifetimes_declare) */
	TELLER_PROGRAM_DISTRUSTED,
	TELLER_LIBRARY, /* the library, of what it divides (lifetimes_own) */
	TELLER_LIBRARY_DISTRUSTED,
	TELLER_NONE_GRAPH, /* nobody, and a graph has named it */
};

/*
 * Any thread reads and writes the atomic fields; shim/README.md has the pairs. `reader` says whose the map is, and the
 * fields behind `tail`.
 */
struct lifetimes {
	uint64_t base, bytes;
	int device;
	struct live_map *map;
	struct crossings *crossings;
	struct lifetimes_record *ring;
	_Atomic bool any;                       /* a block was reported */
	_Atomic bool any_graph;                 /* a graph has named something */
	_Atomic unsigned n_marking;             /* threads between a mark that a graph makes and its event */
	_Atomic bool any_on_use;                /* an allocation was backed on use */
	_Atomic bool any_reserved;              /* the program has reserved address space */
	_Atomic uint64_t lost;                  /* events that found no place, by kind (lifetimes_lose) */
	_Atomic int reader;                     /* enum reader; the map belongs to it */
	const _Atomic size_t *_Atomic position; /* of the submission log; NULL: nothing is logged yet */
	_Atomic uint8_t *tellers;               /* of each unit of the address space: enum teller */
	_Atomic uint64_t head __attribute__((aligned(64)));
	/*
	 * Only the reader touches these: the tail; of `lost`, what the map accounts for, and what it will, at this
	 * place.
	 */
	uint64_t tail __attribute__((aligned(64)));
	uint64_t lost_known, lost_then, lost_end;
};

/*
 * Reserves a place in the ring for an event. The caller must fill it, all but sequence and position, and then call
 * lifetimes_end_write() with *ret_at. Returns NULL if there is no place: then the caller must call lifetimes_lose(),
 * before it does anything else that the event stands for. Locking: none.
 */
struct lifetimes_record *lifetimes_begin_write(struct lifetimes *lifetimes, uint64_t *ret_at);
void lifetimes_end_write(struct lifetimes *lifetimes, struct lifetimes_record *record, uint64_t at);
void lifetimes_lose(struct lifetimes *lifetimes, enum lifetimes_kind kind);

/* ---- what the room keeps ---- */

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

/* At which lines tensors are born (births.c). */
#define BIRTH_LINES_SLOTS (1u << 14) /* of births that are recognized: eleven steps of a GPT do not fill it */
#define BIRTH_LINES_UNITS (1u << 16) /* 128 GiB, without a conflict in the address space of one heap */
#define NODE_LINES_SLOTS  (1u << 15) /* nodes whose lines are known (births.c); a step of a GPT of 16 layers has 604 */
struct birth_lines_state {
	_Atomic uint64_t paid; /* clock.h */
	_Atomic uint64_t recognized[BIRTH_LINES_SLOTS];
	_Atomic uint32_t unit[BIRTH_LINES_UNITS];
	_Atomic uint64_t node[NODE_LINES_SLOTS];
};

struct lifetimes_state {
	struct lifetimes *_Atomic all[DEVICE_MOST]; /* by device; NULL: it has no heap */
	_Atomic uint32_t n_threads;                 /* that have reported */
	_Atomic unsigned n;                         /* devices from here on never had a heap */
	_Atomic bool any_graph_unread;              /* a graph could not be read: it may name anything */
	struct lifetimes_sums sums[DEVICE_MOST];
	struct lifetimes_reporter reporters[STATS_STRIPES - STATS_SHARED];
	struct birth_lines_state births;
};

extern struct lifetimes_state lifetimes_state __attribute__((visibility("hidden")));

#endif
