/*
 * block.h: blocks. A block is a run of address space with chunks mapped all along it: one allocation of the program,
 * one slab, or one divided block (heap_divide).
 *
 * A block is in use (by the program or as a slab), warm (free and still mapped, on the list of its length and on the
 * list by age), or stuck (the driver refused to unmap it; tried again at every trim). Chunks of a block in use may
 * change places (migration.h); a block that is freed meanwhile becomes warm when the last of them has arrived.
 *
 * Locking: the caller holds HEAP, unless a function says otherwise. Owner: the caller of block_take() until
 * block_give(), then the block_store.
 */
#ifndef SPILLWAY_BLOCK_H
#define SPILLWAY_BLOCK_H

#include "shim/heap/chunk.h"

/*
 * Takes a block of at least `units` units, all mapped: a warm block that fits well, else one built from warm and new
 * chunks. Uses device memory as far as the budget goes, then memory of peers, then host memory, as `from` allows.
 * Returns NO_MEMORY if that is not enough; nothing has changed then, except that warm memory may have gone back to the
 * driver. *ret_reused: a warm block was taken.
 */
enum sw_status block_take(struct block_store *store, uint32_t units, enum chunk_kind kind, enum heap_from from,
			  struct block **ret_block, bool *ret_reused);
/*
 * Returns whether movable memory of the host may be compound chunks. Memory that others are to know must
 * have one handle (heap_share_begin).
 */
static inline bool block_takes_parts(const struct block_store *store)
{
	return store->beside && !store->chunks.share;
}
/* Must be called when a block comes into use, after block_take() and before the block is marked in the arena. */
void block_begin(struct block_store *store, struct block *block);
/* Sets the upper limit of pieces whose size the user has not set, in bytes; 0: none. Locking: none. */
void block_limit_pieces(struct block_store *store, uint64_t bytes);
/* Returns the units of the largest piece that is made at present. Locking: none. */
unsigned block_largest_piece(const struct block_store *store);
/* Sets block.keep and the copy that the mover reads. Locking: the caller holds HEAP. */
void block_set_keep(struct block_store *store, struct block *block, bool keep);
/* Frees a block: it becomes warm, or goes back to the driver if others may know its memory. */
void block_give(struct block_store *store, struct block *block);
/*
 * Releases warm chunks and takes down warm blocks, oldest first, until at most `keep` free bytes are held at each
 * place.
 */
void block_trim(struct block_store *store, const uint64_t keep[CHUNK_PLACES]);

/*
 * Builds a block in address space that the caller has taken for it, as block_take() does without warm blocks. On
 * failure the address space has been given back.
 */
enum sw_status block_build(struct block_store *store, uint32_t unit, uint32_t units, enum chunk_kind kind,
			   enum heap_from from, struct block **ret_block);
/*
 * The same for a part of an allocation that is backed on use (on_use.c), which keeps the address space. The caller has
 * counted the part (n_blocks), which is over when it was taken down, also on failure.
 */
enum sw_status block_build_part(struct block_store *store, struct on_use *on_use, uint32_t unit, uint32_t units,
				enum heap_from from, struct block **ret_block);
void block_parts_end(struct block_store *store, struct on_use *on_use);
/*
 * Builds a block without an address and without mappings (block_unmapped.h). whole: of one chunk only. On failure no
 * block exists.
 */
enum sw_status block_make_unmapped(struct block_store *store, uint32_t units, bool whole, enum heap_from from,
				   struct block **ret_block);
/*
 * Unmaps the block from the front; its chunks become warm. Returns true if the block is gone, false if the driver
 * refused: the rest of the block is then stuck. The block must not be on the warm lists.
 */
bool block_take_down(struct block_store *store, struct block *block);
/*
 * Tries again what the driver has refused: to take down the stuck blocks, and to release what chunk_drop() could not.
 */
void block_retry_refused(struct block_store *store);
/* Takes down the warm blocks that overlap this span. */
void block_vacate(struct block_store *store, uint32_t unit, uint32_t units);

/* Returns one chunk as block_take() gets them: warm, new, or in exchange for free chunks of other sizes. */
enum sw_status block_get_chunk(struct block_store *store, enum chunk_kind kind, enum chunk_place place, unsigned units,
			       struct chunk **ret_chunk);
/*
 * Takes down the oldest warm block that has such a chunk, which makes the chunk warm. Returns false if no block has
 * one.
 */
bool block_free_chunk(struct block_store *store, enum chunk_kind kind, enum chunk_place place, unsigned units);
/* The same for every piece of a block. */
void block_tell_all(struct block_store *store, const struct block *block);

/* Returns the address of the part that is not taken down yet. */
static inline CUdeviceptr block_address(const struct block_store *store, const struct block *block)
{
	return arena_address(&store->arena, block->unit + block->units_gone);
}
/*
 * Returns whether a piece starts here and its block is in use. A freed block has no words in the table, but its pieces
 * stay mapped while it is warm.
 */
static inline bool block_has_piece(const struct arena *arena, uint32_t piece)
{
	return piece < arena->n_units && atomic_load(&arena->piece[piece]) == piece + 1 &&
	       atomic_load(&arena->table[piece]) != 0;
}
static inline bool block_is_pinned(const struct block *block)
{
	return block->n_pins || block->stays || block->stays_beside || block->unreported;
}
/* Returns whether a piece at `place` must stay there. */
static inline bool block_keeps(const struct block *block, enum chunk_place place)
{
	return block_is_pinned(block) || (block->to_host && place == CHUNK_HOST);
}
static inline uint64_t block_away(const struct block *block)
{
	return block->bytes[CHUNK_HOST] + block->bytes[CHUNK_PEER];
}
/* Returns whether the block does not become warm when it is freed. */
static inline bool block_is_for_once(const struct block *block)
{
	return block->left || block->on_use;
}
/* Returns whether an allocation with this `from` may use the block where it is. */
static inline bool block_suits(const struct block *block, enum heap_from from)
{
	if (from == HEAP_DEVICE)
		return !block_away(block);
	if (from == HEAP_STRIPE)
		return false;
	return from == HEAP_DEVICE_FIRST || !(block->bytes[CHUNK_DEVICE] + block->bytes[CHUNK_PEER]);
}
/*
 * Counts the block, which the program has placed, among those of its address space that may move in `fast`, or no
 * more. Locking: the caller holds HEAP.
 */
void block_set_bounded(struct block_store *store, struct block *block, bool bounded);
/* Updates in the arena whether its pieces are pinned; a moving piece is updated when it arrives. */
void block_show_pin(struct block_store *store, struct block *block);

/* Returns the free bytes at a place, in warm blocks and warm chunks. */
uint64_t block_idle(const struct block_store *store, enum chunk_place place);
/* Returns the bytes at a place that block_retry_refused() is to give back. */
uint64_t block_refused(const struct block_store *store, enum chunk_place place);
bool block_store_is_valid(const struct block_store *store);

/* ---- slabs (small.c) ---- */

/*
 * Allocations of at most 1 MiB share slabs, so that the 2 MiB granularity of physical memory wastes little.
 *
 * A slab is a block of one unit, cut into slots of one size class. Classes are multiples of 512 bytes (cudaMalloc is
 * known to align to 256; PyTorch and CuPy rely on 512) with four steps to each doubling, so at most a fifth of a slot
 * is wasted. One empty slab of each class is kept until its memory is needed. Fixed memory has separate slabs. A slab
 * that others know (block->left) is on no list: its free slots stay unused, and its block ends with its last
 * allocation. Locking: the caller holds HEAP.
 */

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

/* ---- spares: chunks to which pieces move (spare.c) ---- */

/* Gives the chunk an alias if it needs one. in_place: memory of the device needs none (migration.h). */
enum sw_status spare_give_alias(struct chunk_store *store, struct chunk *chunk, bool in_place);
/* The same on the host, or a compound one, if memory of the heap moves beside what runs. */
struct chunk *spare_warm_host(struct heap *heap, unsigned units);
/*
 * Takes a warm chunk for a piece of the block that moves to the device (to: CHUNK_DEVICE) or away from it: to a peer
 * while one lends memory, else to the host, and the other way round if the program wants the block on the host. Returns
 * NULL if there is none, or if a peer has room for a new one.
 */
struct chunk *spare_find(struct heap *heap, const struct block *block, enum chunk_place to, unsigned units,
			 bool in_place);

/* ---- the heap as a whole ---- */

/* Locking: takes HEAP. */
void heap_enter(struct heap *heap);
/* Tells what has changed: the heap's figures, gauges of bytes in use, budgets. Locking: drops HEAP. */
void heap_leave(struct heap *heap);

/*
 * Gives idle memory beyond keep[] back to the driver; where ticks come (heap_tick), only what is owed to other
 * processes. Locking: the caller holds HEAP.
 */
void heap_trim_to_keep(struct heap *heap);
/* Returns whether some memory will be free in a moment. */
bool heap_has_soon(const struct heap *heap);
/*
 * Memory could not be had: says in the grant what was lacking, and gives back chunks that were collected before the
 * failure. soon: what heap_has_soon() returned before the try. Locking: the caller holds HEAP.
 */
void heap_failed(struct heap *heap, enum heap_from from, bool soon, struct heap_grant *grant);
/* Initialises the lock and how much free memory is kept. */
void heap_lock_init(struct heap *heap, const struct heap_config *config);
/*
 * Ends the pins that the program itself has made on an allocation that is being freed. Locking: the caller holds HEAP.
 */
void heap_forget_asked(struct heap *heap, struct block *block, CUdeviceptr address);

#endif
