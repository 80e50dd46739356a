/*
 * on_use.h: allocations that are backed on use. Such an allocation is address space at first. Memory is taken for parts
 * of it when they are used, each time for a run of units that has none yet: that is a block of its own, which moves,
 * is pinned and is counted as any other. What was never used costs nothing.
 *
 * Nothing is mapped where no memory was taken, so somebody must take it before the GPU gets there: serve/on_use.h does,
 * by what submissions name.
 */
#ifndef SPILLWAY_ON_USE_H
#define SPILLWAY_ON_USE_H

#include "shim/heap/heap.h"

/*
 * A kernel may be given where its memory ends, and go backwards, or a little before where it begins (submission.c):
 * what lies this close to what a pointer of known reach means is taken as well.
 */
#define ON_USE_NEAR 512

/*
 * Reserves address space for an allocation of `bytes`. Returns NO_MEMORY if there is none. keep: as heap_keep(), for
 * all parts.
 */
enum sw_status heap_on_use_reserve(struct heap *heap, size_t bytes, bool keep, CUdeviceptr *ret_address);
/*
 * Takes memory for what has none of the `bytes` bytes from ret_grant->address on, which may reach beyond the end of the
 * allocation. Adds what it took to the grant. Returns NO_MEMORY if some of it has none then; what was taken stays, and
 * the next call goes on from there. Returns INVALID if the address is in no such allocation. kind is not used: it is
 * movable memory. The parameters are those of heap_alloc().
 */
enum sw_status heap_on_use_take(struct heap *heap, size_t bytes, enum chunk_kind kind, enum heap_from from,
				struct heap_grant *ret_grant);
/*
 * Narrows a range, which begins in an allocation, to what of it has no memory; round: and extends that to multiples of
 * the size in which memory is best taken. Returns false if nothing is missing. Locking: none; another thread may take
 * some at any time.
 */
bool heap_on_use_missing(const struct heap *heap, bool round, CUdeviceptr *address, uint64_t *bytes);
/*
 * Stores the lowest address, from `from` on, at which an allocation begins that has not all its memory. Returns false
 * if there is none.
 */
bool heap_on_use_next(struct heap *heap, CUdeviceptr from, CUdeviceptr *ret_base, uint64_t *ret_bytes);
/* Returns the bytes of the allocation that have no memory, rounded up to whole units. Locking: none. */
uint64_t heap_on_use_left(const struct heap *heap, CUdeviceptr base);
/* Adds up, by place, the bytes that it has; *ret_stays: any of them are pinned. Returns INVALID if there is none. */
enum sw_status heap_on_use_where(struct heap *heap, CUdeviceptr base, uint64_t ret_bytes[CHUNK_PLACES],
				 bool *ret_stays);
/* Counts moves of all its parts, also of those to come, for a site. Locking: takes HEAP. */
void heap_on_use_set_site(struct heap *heap, CUdeviceptr base, unsigned site);
/* Frees the allocation that begins there, and returns how many bytes of memory it had. Cannot fail. */
uint64_t heap_on_use_free(struct heap *heap, CUdeviceptr base);

#endif
