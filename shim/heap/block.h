// SPDX-License-Identifier: Apache-2.0
/*
 * block.h: blocks. A block is a run of address space with chunks mapped all along it: one allocation of the program,
 * one slab, or one divided block (heap_divide).
 *
 * A block is in use (by the program or as a slab), warm (free and still mapped, on the list of its length and on the
 * list by age), or stuck (the driver refused to unmap it; block_retry_refused() tries again). Chunks of a block in use
 * may change places (migration.h); a block that is freed meanwhile becomes warm when the last of them has arrived.
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
 * driver. *ret_reused: a warm block was taken. The caller marks the block in the arena.
 */
enum sw_status block_take(struct block_store *store, uint32_t units, enum chunk_kind kind, enum heap_from from,
			  struct block **ret_block, bool *ret_reused);
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
 * Builds a block as block_take() does without warm blocks. unit: where, in address space that the caller has taken, or
 * BLOCK_ANYWHERE; on failure the address space is given back. on_use: NULL, or the allocation backed on use of which
 * the block is a part; that keeps the address space.
 */
#define BLOCK_ANYWHERE UINT32_MAX
enum sw_status block_build(struct block_store *store, uint32_t unit, uint32_t units, enum chunk_kind kind,
			   struct on_use *on_use, enum heap_from from, struct block **ret_block);
/* Returns whether the device's budget and warm memory hold that much. */
bool block_device_has(const struct block_store *store, uint32_t units);
/* Ends the allocation if it was freed and has no parts any more. */
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
/* Returns the next block in use from *unit on and before `end`, or NULL; moves *unit behind it. */
struct block *block_next(const struct arena *arena, uint32_t *unit, uint32_t end);
/*
 * Waits for moving pieces: calls `look` under HEAP once a ms, for a second at most, until it returns true. Returns
 * whether it did. Locking: takes HEAP.
 */
bool heap_await(struct heap *heap, bool (*look)(struct heap *heap, void *argument), void *argument);
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
/* Tells the mover that the pieces of the block came, went, or came into use. */
void block_tell_all(struct block_store *store, const struct block *block);

/*
 * Counts the block, which the program has placed, among those of its address space that may move in `fast`, or no
 * more. Locking: the caller holds HEAP.
 */
void block_set_bounded(struct block_store *store, struct block *block, bool bounded);
/* Updates in the arena whether its pieces are pinned; a moving piece is updated when it arrives. */
void block_show_pin(struct block_store *store, struct block *block);

/* ---- pins (pin.c) ---- */

/* Sets how many pins of the block will end. end: whether it stays all the same. */
void block_set_pins(struct block_store *store, struct block *block, uint32_t pins, enum pin_end end);
/*
 * Ends n pins, or all there are: if the program frees a block while it pins it, another block may lie there meanwhile,
 * which was never pinned.
 */
void block_drop_pins(struct block_store *store, struct block *block, uint32_t n, enum pin_end end);
/*
 * Returns the place in the list of the program's own pins of the allocation that begins there: it is NULL if it has
 * none.
 */
struct asked_pin **block_asked(struct block *block, CUdeviceptr base);
/* Ends the pins that the program itself has made on an allocation that is being freed. */
void block_forget_asked(struct block_store *store, struct block *block, CUdeviceptr address);

/* Returns the free bytes at a place, in warm blocks and warm chunks. */
uint64_t block_idle(const struct block_store *store, enum chunk_place place);
/* Returns the bytes at a place that block_retry_refused() is to give back. */
uint64_t block_refused(const struct block_store *store, enum chunk_place place);

/* ---- slabs (small.c) ---- */

/*
 * Allocations of at most 1 MiB share slabs, so that the 2 MiB granularity of physical memory wastes little.
 *
 * A slab is a block of one unit, cut into slots of one size class. Classes are multiples of 512 bytes (cudaMalloc is
 * known to align to 256; PyTorch and CuPy rely on 512). From 2 KiB on there are four steps to each doubling, so an
 * allocation above that wastes at most a fifth of its slot. One empty slab of each class is kept until its memory is
 * needed. Fixed memory has separate slabs. A slab that others know (block->left) is on no list: its free slots stay
 * unused, and its block ends with its last allocation. Locking: the caller holds HEAP.
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

/* ---- spares: chunks to which pieces move (spare.c) ---- */

/* Gives the chunk an alias if it needs one. in_place: memory of the device needs none (migration.h). */
enum sw_status spare_give_alias(struct chunk_store *store, struct chunk *chunk, bool in_place);
/* Takes a warm chunk of the host with an alias, or a compound one if memory moves beside what runs; NULL: none. */
struct chunk *spare_warm_host(struct heap *heap, unsigned units);
/*
 * Takes a warm chunk for a piece that lies in `from` and moves to the device (to: CHUNK_DEVICE) or away from it: to a
 * peer while one lends memory, else to the host, and the other way round if the program wants the block on the host.
 * Returns NULL if there is none, or if a peer has room for a new one.
 */
struct chunk *spare_find(struct heap *heap, const struct chunk *from, enum chunk_place to, bool in_place);

/* ---- the heap as a whole ---- */

/* Ends what has changed the heap: tells its figures, gauges of bytes in use, budgets. Locking: drops HEAP. */
void heap_leave(struct heap *heap);

/*
 * Gives idle memory beyond keep[] back to the driver. Where ticks come (heap_tick), only at places with at_once, and
 * what is owed to other processes. Locking: the caller holds HEAP.
 */
void heap_trim_to_keep(struct heap *heap);
/* Returns whether some memory will be free in a moment. */
bool heap_has_soon(const struct heap *heap);
/*
 * Memory could not be had: says in the grant what was lacking, and gives back chunks that were collected before the
 * failure. soon: what heap_has_soon() returned before the try. Locking: the caller holds HEAP.
 */
void heap_failed(struct heap *heap, enum heap_from from, bool soon, struct heap_grant *grant);

#endif
