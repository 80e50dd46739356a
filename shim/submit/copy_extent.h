/*
 * copy_extent.h: which bytes does a copy or a set of up to three dimensions touch? Pure.
 */
#ifndef SPILLWAY_COPY_EXTENT_H
#define SPILLWAY_COPY_EXTENT_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

/* Rows from (x, y, z) on; x and pitch in bytes. pitch and height are 0 where they follow from the extent. */
struct copy_extent_place {
	size_t x, y, z, pitch, height;
};

struct copy_extent {
	size_t width, height, depth; /* bytes, rows, slices */
};

/*
 * From the first byte to the last, gaps included. ret_bytes is 0 when nothing is touched. False when it does not fit an
 * address space: the driver will refuse it.
 */
bool copy_extent_range(CUdeviceptr base, const struct copy_extent_place *place, const struct copy_extent *extent,
		       CUdeviceptr *ret_first, size_t *ret_bytes);

#endif
