/*
 * inside.h: what a heap is made of, for the files of this folder that work on the whole of it (heap.c, transit.c).
 */
#ifndef SPILLWAY_HEAP_INSIDE_H
#define SPILLWAY_HEAP_INSIDE_H

#include "shim/heap/small.h"

struct heap {
	struct lock lock;
	struct block_store store;
	struct small small;
	_Atomic bool no_peers; /* what goes away goes to the host (heap_lend) */
	uint64_t keep[CHUNK_PLACES];
	uint64_t in_use[CHUNK_PLACES];       /* as last told to stats */
	uint64_t spare;                      /* idle host bytes as last told to quota, but for empty slabs */
	_Atomic uint64_t idle[CHUNK_PLACES]; /* a copy for readers without the lock, renewed at each leave() */
};

void heap_enter(struct heap *heap);
/* Renews what others see of us: idle bytes, and the bytes in use for the gauges. */
void heap_leave(struct heap *heap);

/* What was collected beyond what is kept goes back to the driver. */
void heap_trim_to_keep(struct heap *heap);
/* The block in use at an address, or NULL. */
struct block *heap_block_at(const struct arena *arena, CUdeviceptr address);
/* An allocation ends, and with it the pins the program has made on it. */
void heap_forget_asked(struct heap *heap, struct block *block, CUdeviceptr address);

#endif
