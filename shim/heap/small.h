/*
 * small.h: allocations of at most 1 MiB share slabs, so that the 2 MiB granularity of physical memory wastes little.
 *
 * A slab is a block of one unit cut into slots of one size class. Classes are multiples of 512 bytes (the alignment
 * cudaMalloc is known to give is 256; PyTorch and CuPy count on 512) with four steps to each doubling, so at most a
 * fifth of a slot is wasted. Lock: HEAP. An empty slab is kept for each class until memory is needed.
 * Fixed memory has slabs of its own.
 */
#ifndef SPILLWAY_SMALL_H
#define SPILLWAY_SMALL_H

#include "shim/heap/block.h"

#define SMALL_MOST    ((size_t)1 << 20)
#define SMALL_CLASSES 40

struct slab;

struct small {
	struct block_store *store;
	struct slab *partial[CHUNK_KINDS][SMALL_CLASSES][CHUNK_PLACES]; /* with a free slot; device first choice */
	struct slab *empty[CHUNK_KINDS][SMALL_CLASSES];                 /* at most one each, not on partial */
	uint64_t empty_bytes[CHUNK_PLACES];
};

unsigned small_class_of(size_t bytes);
size_t small_class_bytes(unsigned size_class);

/* As block_take(), for bytes <= SMALL_MOST. *ret_new: a slab was made for it. */
enum sw_status small_take(struct small *small, size_t bytes, enum chunk_kind kind, enum heap_from from,
			  CUdeviceptr *ret_address, struct block **ret_block, bool *ret_new, bool *ret_reused);
void small_give(struct small *small, struct block *block, CUdeviceptr address);
/* Give one empty slab's block back to the store; false when there is none. */
bool small_reclaim(struct small *small);
/* Around a change of place of a slab's block: slabs are kept by place. */
void small_before_move(struct small *small, struct block *block);
void small_after_move(struct small *small, struct block *block);
bool small_is_valid(const struct small *small);

#endif
