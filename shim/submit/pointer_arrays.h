// SPDX-License-Identifier: Apache-2.0
/*
 * pointer_arrays.h: recognizes arrays of pointers in device memory. Memory that a kernel reaches through such an array
 * does not show in its parameters. Programs build most such arrays on the host and copy them to the device just before
 * they launch the kernel: PyTorch's FSDP does so for its parameters, libraries of grouped matrix products for theirs.
 * So each copy from the host is searched for heap addresses, whatever its destination (one program took the arrays for
 * its batched products from the driver's pools), and a launch that names such an array also names the addresses in it.
 *
 * Memory may be freed and reused without notice. So only the functions of an array's first launches, and graphs, follow
 * its pointers; launches of other functions name the array alone. What a graph copies from the host is searched at each
 * of its launches.
 *
 * This is a heuristic, like tensor extents. Not known, or not with their present contents, are arrays that device code
 * wrote, arrays copied before the heap came under pressure, and arrays changed by other means since.
 * Superfluous names cost time only.
 *
 * A word that a stream writes (cuStreamWriteValue64) counts as copied.
 *
 * Of a 2D or 3D copy each row is searched, if it has at most 64 rows; a copy without gaps on either side is searched as
 * one run.
 *
 * Limits: the last 256 arrays are remembered, each from the start of the copy to the last address in it, at most 256
 * KiB. Other data may follow the pointers (in FSDP's case one number for each block of the grid: 100 KiB for a layer);
 * the search ends after 64 KiB without an address. An array of more than 1024 addresses counts as one that may reach
 * anything. If memory is short the array stays unknown.
 *
 * The process reads its memory with process_vm_readv(), or through a pipe if that is refused (seccomp, emulators). If
 * both are refused, the first 256 KiB of each copy from outside the heaps count as an array that may reach anything;
 * this is logged once.
 *
 * Any thread may call these functions; errno is preserved.
 * Locking: each may take POINTER_ARRAYS.
 */
#ifndef SPILLWAY_POINTER_ARRAYS_H
#define SPILLWAY_POINTER_ARRAYS_H

#include "shim/submit/arguments.h"
#include "shim/submit/submission.h"

/*
 * Records that a copy is about to be submitted, and tells its submission of the addresses that it copies
 * (submission_stores). dst and src may be any values, readable or not.
 */
void pointer_arrays_copied(struct submission *submission, CUdeviceptr dst, CUdeviceptr src, size_t bytes);

/* As pointer_arrays_copied(), for a copy of up to three dimensions. */
struct pointer_arrays_side {
	CUdeviceptr base;
	struct copy_extent_place place;
};
void pointer_arrays_copied_box(struct submission *submission, const struct pointer_arrays_side *dst,
			       const struct pointer_arrays_side *src, const struct copy_extent *extent);

/*
 * As pointer_arrays_copied(), for a stream that writes one word of 8 bytes. Beside other words of an array, within 512
 * bytes, or just behind one, it becomes a part of that; what it overwrites is not forgotten.
 */
void pointer_arrays_written(struct submission *submission, CUdeviceptr dst, uint64_t word);

/* Set when the first array is remembered, and never cleared. Hidden, so that its address is not loaded from the GOT. */
extern _Atomic bool pointer_arrays_any __attribute__((visibility("hidden")));
/*
 * The slow path of pointer_arrays_name(); `name` is NULL. And the same for a graph: whatever was launched with the
 * array before, because a graph does not say which of its kernels takes it. Calls `name` for each address in the array;
 * it must not call these functions.
 */
void pointer_arrays_look(struct submission *submission, CUdeviceptr address,
			 void (*name)(struct submission *submission, CUdeviceptr address));

/*
 * Called for an address that a kernel takes and that the submission has named: names the addresses of the array there,
 * if one is known.
 */
static inline void pointer_arrays_name(struct submission *submission, CUdeviceptr address)
{
	if (__builtin_expect(atomic_load_explicit(&pointer_arrays_any, memory_order_relaxed), 0))
		pointer_arrays_look(submission, address, NULL);
}

#endif
