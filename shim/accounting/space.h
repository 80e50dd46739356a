/*
 * space.h: address space that the program has reserved (cuMemAddressReserve) and that is part of a heap's arena, so that
 * what is placed there can move (heap/loose.h). What was reserved elsewhere is not known here.
 *
 * Lock: SPACE, taken inside; nobody calls out under it. There are a few: PyTorch has two a stream.
 */
#ifndef SPILLWAY_SPACE_H
#define SPILLWAY_SPACE_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct space {
	CUdeviceptr start;
	uint64_t bytes;
	CUdevice device;   /* whose arena it is of */
	unsigned n_others; /* mappings there that are not the heap's: of other handles, of other devices */
	struct space *next;
};

/* Is there any? Else none of the other questions need be asked. */
extern _Atomic bool space_any;

/* False: no memory. */
bool space_add(CUdeviceptr start, uint64_t bytes, CUdevice device);
/* The one that has the address in it: a copy. */
bool space_find(CUdeviceptr address, struct space *ret);
/* It ends: that from `start` on, of exactly that length, with nothing but the heap's mapped in it. A copy of what it was. */
bool space_take(CUdeviceptr start, uint64_t bytes, struct space *ret);
/* A mapping that is not the heap's is there, or no longer. */
void space_count(CUdeviceptr address, int more);

/* Are all of these bytes in it? */
static inline bool space_has(const struct space *space, CUdeviceptr address, uint64_t bytes)
{
	return address - space->start < space->bytes && bytes <= space->bytes - (address - space->start);
}

#endif
