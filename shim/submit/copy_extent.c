#include "shim/submit/copy_extent.h"

#include <stdint.h>

/* base + z * slice + y * pitch + x; false when that is no address. */
static bool copy_extent_advance(CUdeviceptr base, size_t slice, size_t pitch, size_t z, size_t y, size_t x,
				CUdeviceptr *ret_at)
{
	size_t slices, rows;

	return !__builtin_mul_overflow(z, slice, &slices) && !__builtin_mul_overflow(y, pitch, &rows) &&
	       !__builtin_add_overflow(base, slices, &base) && !__builtin_add_overflow(base, rows, &base) &&
	       !__builtin_add_overflow(base, x, ret_at);
}

/*
 * Where pitch or height are left out (an H200 with driver 580 took 0 in 2D and 3D copies) rows and slices are packed,
 * with the offset or without it, which is not documented: then from the lowest byte it could be to the highest.
 */
bool copy_extent_range(CUdeviceptr base, const struct copy_extent_place *place, const struct copy_extent *extent,
		       CUdeviceptr *ret_first, size_t *ret_bytes)
{
	size_t pitch = place->pitch, height = place->height, slice;
	CUdeviceptr first, last;

	*ret_bytes = 0;
	if (!extent->width || !extent->height || !extent->depth)
		return true;
	if (!pitch && __builtin_add_overflow(place->x, extent->width, &pitch))
		return false;
	if (!height && __builtin_add_overflow(place->y, extent->height, &height))
		return false;
	if (__builtin_mul_overflow(pitch, height, &slice)) {
		/* In one slice, the first, neither matters beyond what is checked below, and both may be anything. */
		if (extent->depth > 1 || place->z)
			return false;
		slice = 0;
	}
	if (!copy_extent_advance(base, place->pitch && place->height ? slice : 0, place->pitch, place->z, place->y,
				 place->x, &first) ||
	    !copy_extent_advance(base, slice, pitch, place->z, place->y, place->x, &last) ||
	    !copy_extent_advance(last, slice, pitch, extent->depth - 1, extent->height - 1, extent->width - 1, &last) ||
	    last - first == SIZE_MAX)
		return false;
	*ret_first = first;
	*ret_bytes = last - first + 1;
	return true;
}
