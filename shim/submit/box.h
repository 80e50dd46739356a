/*
 * box.h: which bytes does a copy or a set of up to three dimensions touch? Pure.
 */
#ifndef SPILLWAY_SPILL_BOX_H
#define SPILLWAY_SPILL_BOX_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

/* Rows from (x, y, z) on; x and pitch in bytes. pitch and height are 0 where they follow from the extent. */
struct box_place {
	size_t x, y, z, pitch, height;
};

struct box_extent {
	size_t width, height, depth; /* bytes, rows, slices */
};

/*
 * From the first byte to the last, gaps included. ret_bytes is 0 when nothing is touched. False when it does not fit an
 * address space: the driver will refuse it.
 */
bool box_range(CUdeviceptr base, const struct box_place *place, const struct box_extent *extent, CUdeviceptr *ret_first,
	       size_t *ret_bytes);

#endif
