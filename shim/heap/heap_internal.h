/* heap_internal.h: the parts of a heap, for the files of this room that work on all of it. */
#ifndef SPILLWAY_HEAP_INTERNAL_H
#define SPILLWAY_HEAP_INTERNAL_H

#include "shim/heap/small.h"

/*
 * What a heap holds at each place, in bytes, as it was when HEAP was last dropped. Written under HEAP where that has
 * changed, read without it.
 */
struct heap_figures {
	_Atomic uint64_t free[CHUNK_PLACES];   /* in warm blocks and warm chunks */
	_Atomic uint64_t idle[CHUNK_PLACES];   /* with empty slabs and unused divided blocks */
	_Atomic uint64_t in_use[CHUNK_PLACES]; /* all the rest */
};

struct heap {
	struct lock lock;
	struct block_store store;
	struct small small;
	struct on_use *on_use;        /* on_use.c */
	_Atomic bool no_peers;        /* evictions go to the host only (heap_lend) */
	_Atomic unsigned n_stocking;  /* threads that pin host memory for host_reserve.c */
	_Atomic uint64_t taken_bytes; /* of spares that are not exchanged yet (migration.c) */
	struct chunk *left;           /* spares that the driver may still write to: never reused. Under HEAP */
	uint64_t keep[CHUNK_PLACES];
	uint64_t ahead; /* host memory that is kept pinned for what lies on the device (host_reserve.c) */
	/* fields of heap_lock.c */
	bool at_once[CHUNK_PLACES];   /* idle memory goes back at once, even if it was in use lately */
	uint64_t least[CHUNK_PLACES]; /* minimum of idle bytes in the present span of ticks */
	unsigned ticks[CHUNK_PLACES]; /* ticks in the present span */
	uint64_t ticked;              /* time of the last tick, ns; 0: none yet */
	struct heap_figures figures;
};

/* Ends the division of a block that is being freed. Locking: the caller holds HEAP. */
void heap_undivide(struct heap *heap, struct block *block);

/* Locking: takes HEAP. */
void heap_enter(struct heap *heap);
/* Tells what has changed: the heap's figures, gauges of bytes in use, budgets. Locking: drops HEAP. */
void heap_leave(struct heap *heap);

/*
 * Gives idle memory beyond keep[] back to the driver; where ticks come (heap_tick), only what is owed to other
 * processes. Locking: the caller holds HEAP.
 */
void heap_trim_to_keep(struct heap *heap);
/* Initialises the lock and how much free memory is kept. */
void heap_lock_init(struct heap *heap, const struct heap_config *config);
/* Returns whether one peer can lend `bytes` more for evictions, and heap_lend() allows it. */
bool heap_peer_has(const struct heap *heap, uint64_t bytes);
/*
 * Ends the pins that the program itself has made on an allocation that is being freed. Locking: the caller holds HEAP.
 */
void heap_forget_asked(struct heap *heap, struct block *block, CUdeviceptr address);

#endif
