/*
 * block_unmapped.h: memory that the program makes and maps itself (cuMemCreate, cuMemMap), as memory of the heap.
 *
 * Address space that the program reserves is part of the arena; what is reserved is nobody's but the program's until it
 * is given back. A *loose* block is what a handle stands for: chunks without an address. It is placed in reserved space,
 * taken away from there, and placed again, with its contents; while it is placed it is a block in use like any other,
 * found by the launch path, moved by the mover. Until it is opened (the program has granted its device access) it stays
 * where it is, and nobody may touch it.
 *
 * Lock: HEAP, taken inside. A loose block belongs to who made it, from heap_make_unmapped() to heap_end_unmapped(); whoever
 * places or takes away one block from two threads at once gets what natively is undefined as well, but no crash.
 */
#ifndef SPILLWAY_BLOCK_UNMAPPED_H
#define SPILLWAY_BLOCK_UNMAPPED_H

#include "shim/heap/heap.h"

/* ---- address space ---- */

/*
 * So many bytes, a multiple of HEAP_UNIT; at `hint` if that is free and follows what is taken, else anywhere. False: there
 * is not so much.
 */
bool heap_reserve(struct heap *heap, uint64_t bytes, CUdeviceptr hint, CUdeviceptr *ret_address);
/* Exactly what heap_reserve() gave. Nothing is placed there, and nothing else mapped. */
void heap_unreserve(struct heap *heap, CUdeviceptr address, uint64_t bytes);
/* Is no block placed there? */
bool heap_is_vacant(struct heap *heap, CUdeviceptr address, uint64_t bytes);

/* ---- memory ---- */

/*
 * As heap_alloc(), for a multiple of HEAP_UNIT; the grant has no address. whole: one chunk, which can be handed to others
 * as one; of at most HEAP_WHOLE_MOST bytes.
 */
#define HEAP_WHOLE_MOST ((uint64_t)128 << 20)
enum sw_status heap_make_unmapped(struct heap *heap, size_t bytes, enum chunk_kind kind, enum heap_from from,
				  struct heap_grant *ret_grant);
enum sw_status heap_make_whole(struct heap *heap, size_t bytes, enum chunk_kind kind, enum heap_from from,
			       struct heap_grant *ret_grant);
/* Not placed. Its memory is warm, or goes back to the driver where others may know it. */
void heap_end_unmapped(struct heap *heap, struct block *block);
uint64_t heap_unmapped_bytes(const struct block *block);
/* Has it ever had an address? Else nothing can have been written to it. */
bool heap_was_placed(struct heap *heap, const struct block *block);

/*
 * Map it at an address in the space that was reserved from `space` on. stays: it never moves. INVALID_VALUE: something is
 * placed there; NOT_READY: it is placed already. On any error nothing has changed.
 */
CUresult heap_place(struct heap *heap, struct block *block, CUdeviceptr address, CUdeviceptr space,
		    uint64_t space_bytes, bool stays);
/* Unmap it; what is on its way is waited for. NOT_READY: that did not arrive. Else the driver's error; it stays placed. */
CUresult heap_unplace(struct heap *heap, struct block *block);
/*
 * What is placed at an address: its device may read and write it, or no longer do both. It may move from now on, unless it
 * stays; or it stays until it is open again. The caller holds it pinned. Where nothing is placed nothing happens.
 */
void heap_open(struct heap *heap, CUdeviceptr address, bool open);
bool heap_is_open(struct heap *heap, CUdeviceptr address);
/*
 * Others will know its memory: it stays where it is for good, and is never used for anything else; what is on its way is
 * waited for. *ret_handle: what the driver knows it by. INVALID: it is more than one chunk; BUSY: what is on its way did
 * not arrive.
 */
enum sw_status heap_fix_unmapped(struct heap *heap, struct block *block, CUmemGenericAllocationHandle *ret_handle);
/* The same, for it is mapped at another address as well: nothing is said of that one to anybody. The driver's error. */
CUresult heap_map_again(struct heap *heap, struct block *block, CUdeviceptr address);

#endif
