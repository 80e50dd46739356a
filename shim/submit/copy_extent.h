/* copy_extent.h: computes which bytes a copy or set of up to three dimensions touches. Pure. */
#ifndef SPILLWAY_COPY_EXTENT_H
#define SPILLWAY_COPY_EXTENT_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

/* Where one side of a copy starts; x and pitch are in bytes. pitch and height are 0 if they follow from the extent. */
struct copy_extent_place {
	size_t x, y, z, pitch, height;
};

struct copy_extent {
	size_t width, height, depth; /* bytes, rows, slices */
};

/*
 * Computes the range from the first byte touched to the last, including gaps. Sets *ret_bytes to 0, and leaves
 * *ret_first alone, if no byte is touched. Returns false if the range exceeds the address space; the driver will refuse
 * such a copy.
 */
bool copy_extent_range(CUdeviceptr base, const struct copy_extent_place *place, const struct copy_extent *extent,
		       CUdeviceptr *ret_first, size_t *ret_bytes);

#endif
