/*
 * small.h: slabs, which allocations of at most 1 MiB share, so that the 2 MiB granularity of physical memory wastes
 * little.
 *
 * A slab is a block of one unit, cut into slots of one size class. Classes are multiples of 512 bytes (cudaMalloc is
 * known to align to 256; PyTorch and CuPy rely on 512) with four steps to each doubling, so at most a fifth of a slot
 * is wasted. One empty slab of each class is kept until its memory is needed. Fixed memory has separate slabs. A slab
 * that others know (block->left) is on no list: its free slots stay unused, and its block ends with its last
 * allocation. Locking: the caller holds HEAP.
 */
#ifndef SPILLWAY_SMALL_H
#define SPILLWAY_SMALL_H

#include "shim/heap/block.h"
#include "shim/plan/piece_sizes.h"

#define SMALL_CLASSES 40

struct slab;

struct small {
	struct block_store *store;
	/* slabs with a free slot; device memory is tried first */
	struct slab *partial[CHUNK_KINDS][SMALL_CLASSES][CHUNK_PLACES];
	struct slab *empty[CHUNK_KINDS][SMALL_CLASSES]; /* at most one of each class, not on `partial` */
	uint64_t empty_bytes[CHUNK_PLACES];
};

unsigned small_class_of(size_t bytes);
size_t small_class_bytes(unsigned size_class);

/*
 * As block_take(), for bytes <= SMALL_MOST. *ret_new: a slab was made for it. *ret_reused: no driver call was needed.
 */
enum sw_status small_take(struct small *small, size_t bytes, enum chunk_kind kind, enum heap_from from,
			  CUdeviceptr *ret_address, struct block **ret_block, bool *ret_new, bool *ret_reused);
void small_give(struct small *small, struct block *block, CUdeviceptr address);
/* Must be called when others get to know the memory of a slab; if the slab is empty, its block is gone then. */
void small_leave(struct small *small, struct block *block);
/* Gives the block of one empty slab back to the store; returns false if no slab is empty. */
bool small_reclaim(struct small *small);
/* Must be called before and after the block of a slab changes places, because slabs are listed by place. */
void small_before_move(struct small *small, struct block *block);
void small_after_move(struct small *small, struct block *block);
bool small_is_valid(const struct small *small);

#endif
