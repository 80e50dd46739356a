/*
 * va_ranges.h: address space that the program has reserved (cuMemAddressReserve) and that is part of a heap's arena,
 * so that what is placed there can move (heap/block_unmapped.h). Reservations elsewhere are not in this list. The
 * list is short: PyTorch has two ranges per stream.
 *
 * Locking: each function takes VA_RANGES, and calls nothing outside under it.
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
	CUdevice device;   /* the device of the arena */
	unsigned n_others; /* mappings there that are not the heap's: of other handles, of other devices */
	struct va_range *next;
};

/* True if any range was ever added. While false, no other question need be asked. */
extern _Atomic bool va_ranges_any;

/* Adds a range. Returns false if out of memory. */
bool va_ranges_add(CUdeviceptr start, uint64_t bytes, CUdevice device);
/* Copies the range that has the address in it. Returns false if there is none. */
bool va_ranges_find(CUdeviceptr address, struct va_range *ret);
/*
 * Removes the range that begins at `start`, and copies it to *ret. Returns false unless it has exactly that length
 * and nothing but the heap's mappings.
 */
bool va_ranges_take(CUdeviceptr start, uint64_t bytes, struct va_range *ret);
/* Adds `more` (1 or -1) to the count of mappings at the address that are not the heap's. */
void va_ranges_count(CUdeviceptr address, int more);

/* Returns true if all of these bytes are in the range. */
static inline bool va_ranges_has(const struct va_range *space, CUdeviceptr address, uint64_t bytes)
{
	return address - space->start < space->bytes && bytes <= space->bytes - (address - space->start);
}

#endif
