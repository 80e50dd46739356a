/* lifetimes_internal.h: the lifetimes of one heap, for the files of this room. */
#ifndef SPILLWAY_LIFETIMES_INTERNAL_H
#define SPILLWAY_LIFETIMES_INTERNAL_H

#include "shim/lifetimes/lifetimes.h"

/* 24 steps of a GPT whose tensors are born and die 2,700 times a step. */
#define LIFETIMES_RING (1u << 16)

struct lifetimes_record {
	_Atomic uint64_t sequence; /* position + 1: filled; position + LIFETIMES_RING: free for the next round */
	uint64_t begin, end;
	struct live_report report;
	size_t position;
	enum lifetimes_kind kind;
};

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
	_Atomic bool lost;                      /* an event found no place: none is written or read any more */
	bool gave_up;                           /* everything was distrusted for it; only the reader touches it */
	_Atomic int reader;                     /* enum reader; the map belongs to it */
	const _Atomic size_t *_Atomic position; /* of the submission log; NULL: nothing is logged yet */
	_Atomic uint8_t *its;                   /* of each unit of the address space: enum its */
	_Atomic uint64_t head __attribute__((aligned(64)));
	uint64_t tail __attribute__((aligned(64))); /* only the reader touches it */
};

/*
 * Reserves a place in the ring for an event. The caller must fill it, all but sequence and position, and then call
 * lifetimes_end_write() with *ret_at. Returns NULL if there is no place: the event is lost, and everything is alive from then
 * on. Locking: none.
 */
struct lifetimes_record *lifetimes_begin_write(struct lifetimes *lifetimes, uint64_t *ret_at);
void lifetimes_end_write(struct lifetimes *lifetimes, struct lifetimes_record *record, uint64_t at);

#endif
