/*
 * copy_extent.c: the range of bytes of a copy or set (copy_extent.h), from its first byte to its last, with every
 * overflow checked.
 */
#include "shim/submit/copy_extent.h"

#include <stdint.h>

/* Computes base + z * slice + y * pitch + x. Returns false if that is not an address. */
static bool copy_extent_advance(CUdeviceptr base, size_t slice, size_t pitch, size_t z, size_t y, size_t x,
				CUdeviceptr *ret_at)
{
	size_t slices, rows;

	return !__builtin_mul_overflow(z, slice, &slices) && !__builtin_mul_overflow(y, pitch, &rows) &&
	       !__builtin_add_overflow(base, slices, &base) && !__builtin_add_overflow(base, rows, &base) &&
	       !__builtin_add_overflow(base, x, ret_at);
}

/*
 * If pitch or height is left out, rows and slices are packed. Whether the offset counts in the packed size is not
 * documented, so the range then reaches from the lowest possible byte to the highest.
 * Measured (H200, driver 580): 2D and 3D copies accept 0 for both.
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
		/* With only the first slice neither matters beyond the checks below, and both may have any value. */
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
