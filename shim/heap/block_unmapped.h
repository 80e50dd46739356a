// SPDX-License-Identifier: Apache-2.0
/*
 * block_unmapped.h: memory that the program makes and maps itself (cuMemCreate, cuMemMap), served as heap memory.
 *
 * Address space that the program reserves is a part of the arena, and only the program uses it until it is given back.
 * A *loose* block is what a handle of the program stands for: chunks without an address. It can be placed (mapped in
 * reserved space), unplaced, and placed again, with its contents. While placed it is a block in use like any other: the
 * launch path finds it and the mover migrates it. Until the program has granted its device access (heap_open), it is
 * pinned and not accessible.
 *
 * Locking: the functions take HEAP. The caller owns a loose block from heap_make_unmapped() to heap_end_unmapped().
 * Placing or unplacing one block from two threads at once is as undefined as natively, but does not crash.
 */
#ifndef SPILLWAY_BLOCK_UNMAPPED_H
#define SPILLWAY_BLOCK_UNMAPPED_H

#include "shim/heap/heap.h"

/* ---- address space ---- */

/*
 * Reserves `bytes` bytes, a multiple of HEAP_UNIT: at `hint` if a free range starts there and is long enough, else
 * anywhere. Returns false if no free range is long enough.
 */
bool heap_reserve(struct heap *heap, uint64_t bytes, CUdeviceptr hint, CUdeviceptr *ret_address);
/* Gives back exactly one range of heap_reserve(). No block may be placed and nothing else mapped in it. */
void heap_unreserve(struct heap *heap, CUdeviceptr address, uint64_t bytes);
/* Returns whether no block is placed in this range. */
bool heap_is_vacant(struct heap *heap, CUdeviceptr address, uint64_t bytes);

/* ---- memory ---- */

/*
 * As heap_alloc(), for a multiple of HEAP_UNIT; the grant has no address. heap_make_whole() makes one chunk, which can
 * be given to others as one handle, of at most HEAP_WHOLE_MOST bytes. Return NOT_SUPPORTED for fixed memory.
 */
#define HEAP_WHOLE_MOST ((uint64_t)128 << 20)
enum sw_status heap_make_unmapped(struct heap *heap, size_t bytes, enum chunk_kind kind, enum heap_from from,
				  struct heap_grant *ret_grant);
enum sw_status heap_make_whole(struct heap *heap, size_t bytes, enum chunk_kind kind, enum heap_from from,
			       struct heap_grant *ret_grant);
/* Ends a block, which must not be placed. Its memory becomes warm, or goes back to the driver if others may know it. */
void heap_end_unmapped(struct heap *heap, struct block *block);
uint64_t heap_unmapped_bytes(const struct block *block);
/* Returns whether the block was ever placed; if not, nothing can have been written to it. */
bool heap_was_placed(struct heap *heap, const struct block *block);

/*
 * Maps the block at an address in the space that was reserved from `space` on. If memory moves beside what runs
 * (heap_set_beside), it is pinned until heap_follow_reports() finds that the program's allocator reports all of it.
 * Returns INVALID_VALUE if another block is placed there, NOT_READY if this one is placed already, else the driver's
 * error. On any error nothing has changed.
 */
CUresult heap_place(struct heap *heap, struct block *block, CUdeviceptr address, CUdeviceptr space,
		    uint64_t space_bytes);
/*
 * For `fast`: decides again which of the placed blocks that begin in these units may migrate: those that the program's
 * allocator reports as a whole, and in whose address space nothing is doubted (lifetimes.h). Whatever touches such a
 * block is a range whose birth was reported, so each submission that uses it names an address from which the block is
 * found (arena_extent). To be called by the mover after it has read that blocks are reported or distrusted.
 */
void heap_follow_reports(struct heap *heap, uint32_t first, uint32_t end);
/*
 * As heap_pin(), and waits longer: natively the calls that a program makes on what it has mapped do not fail, and
 * programs end if one does.
 */
bool heap_pin_placed(struct heap *heap, CUdeviceptr address, size_t bytes);
/*
 * Unmaps what is mapped in these bytes, blocks and other mappings, each of which must lie in them as a whole. Waits for
 * moving pieces first. Returns NOT_READY if they did not arrive in time, else the driver's error; everything stays
 * mapped on any error.
 */
CUresult heap_unplace(struct heap *heap, CUdeviceptr address, uint64_t bytes);
/*
 * Records that the device may (open) or may no longer read and write the block that is placed at an address. From then
 * on the block may migrate, unless it stays; a closed block is pinned until it is opened again. The caller must hold a
 * pin on it (heap_pin). Does nothing if no block is placed there.
 */
void heap_open(struct heap *heap, CUdeviceptr address, bool open);
bool heap_is_open(struct heap *heap, CUdeviceptr address);
/*
 * Pins the block for good, because others will know its memory, which is never reused; waits for moving pieces.
 * *ret_handle: the driver's handle of the chunk. Returns INVALID if the block is more than one chunk, BUSY if a moving
 * piece did not arrive in time.
 */
enum sw_status heap_fix_unmapped(struct heap *heap, struct block *block, CUmemGenericAllocationHandle *ret_handle);
/*
 * Maps the block at a second address, which the library does not track, and pins it for good. Returns the driver's
 * error, or NOT_READY if a moving piece did not arrive in time.
 */
CUresult heap_map_again(struct heap *heap, struct block *block, CUdeviceptr address);

#endif
