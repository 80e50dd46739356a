/*
 * va_ranges.h: address space that the program has reserved (cuMemAddressReserve) and that is part of a heap's arena, so that
 * what is placed there can move (heap/block_unmapped.h). What was reserved elsewhere is not known here.
 *
 * Lock: SPACE, taken inside; nobody calls out under it. There are a few: PyTorch has two a stream.
 */
#ifndef SPILLWAY_VA_RANGES_H
#define SPILLWAY_VA_RANGES_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct va_range {
	CUdeviceptr start;
	uint64_t bytes;
	CUdevice device;   /* whose arena it is of */
	unsigned n_others; /* mappings there that are not the heap's: of other handles, of other devices */
	struct va_range *next;
};

/* Is there any? Else none of the other questions need be asked. */
extern _Atomic bool va_ranges_any;

/* False: no memory. */
bool va_ranges_add(CUdeviceptr start, uint64_t bytes, CUdevice device);
/* The one that has the address in it: a copy. */
bool va_ranges_find(CUdeviceptr address, struct va_range *ret);
/* It ends: that from `start` on, of exactly that length, with nothing but the heap's mapped in it. A copy of what it was. */
bool va_ranges_take(CUdeviceptr start, uint64_t bytes, struct va_range *ret);
/* A mapping that is not the heap's is there, or no longer. */
void va_ranges_count(CUdeviceptr address, int more);

/* Are all of these bytes in it? */
static inline bool va_ranges_has(const struct va_range *space, CUdeviceptr address, uint64_t bytes)
{
	return address - space->start < space->bytes && bytes <= space->bytes - (address - space->start);
}

#endif
