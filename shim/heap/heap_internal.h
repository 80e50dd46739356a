/*
 * mover_internal.h: what a heap is made of, for the files of this folder that work on the whole of it (heap.c, migration.c).
 */
#ifndef SPILLWAY_HEAP_INTERNAL_H
#define SPILLWAY_HEAP_INTERNAL_H

#include "shim/heap/small.h"

struct heap {
	struct lock lock;
	struct block_store store;
	struct small small;
	_Atomic bool no_peers;    /* what goes away goes to the host (heap_lend) */
	_Atomic bool is_stocking; /* host_reserve.c */
	uint64_t keep[CHUNK_PLACES];
	/* heap_lock.c */
	bool at_once[CHUNK_PLACES];          /* what was in use lately does not stay */
	uint64_t least[CHUNK_PLACES];        /* the least that was idle since this began to be looked at */
	unsigned ticks[CHUNK_PLACES];        /* since then */
	uint64_t ticked;                     /* ns, the last one; 0: none ever */
	uint64_t in_use[CHUNK_PLACES];       /* as last told to stats */
	uint64_t spare;                      /* idle host bytes as last told to quota, but for empty slabs */
	_Atomic uint64_t idle[CHUNK_PLACES]; /* a copy for readers without the lock, renewed at each leave() */
};

void heap_enter(struct heap *heap);
/* Renews what others see of us: idle bytes, and the bytes in use for the gauges. */
void heap_leave(struct heap *heap);

/* What was collected beyond what is kept goes back to the driver; where ticks come (heap_tick) only what is owed. */
void heap_trim_to_keep(struct heap *heap);
/* Initialises the lock, and how much free memory is kept. */
void heap_lock_init(struct heap *heap, const struct heap_config *config);
/* Do peers lend so much more, for what goes away? (heap_lend) */
bool heap_peer_has(const struct heap *heap, uint64_t bytes);
/* An allocation ends, and with it the pins the program has made on it. */
void heap_forget_asked(struct heap *heap, struct block *block, CUdeviceptr address);

#endif
