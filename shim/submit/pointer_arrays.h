/*
 * pointer_arrays.h: arrays of pointers in device memory. What a kernel reaches through them no parameter says, but a program
 * builds most of them on the host and copies them over just before it launches the kernel: PyTorch's FSDP does for its
 * parameters, libraries of grouped matrix products for theirs. So copies from the host are looked through, wherever they
 * go (a program took the arrays for its batched products from the driver's pools), and a launch that names such an array
 * names what it points to as well.
 *
 * Memory is freed and used for something else, and no one says so. So the functions that an array's first launches run
 * are those that follow it; launches of others name its place, not what it held.
 *
 * It is a guess like the ends of tensors: an array that device code wrote, one in a graph, one that was copied before the
 * heap came under pressure, or that was changed by other means since, is not known, or not as it is. What is named beyond
 * need costs time alone.
 *
 * Of a copy in two or three dimensions each row is looked through, where it has 64 at most, or all of it as one run, where
 * there are no gaps on either side.
 *
 * Limits: the last 256 arrays are remembered, from the start of the copy to the last address in it, 256 KiB at most. They
 * may be followed by anything (FSDP's are, by a number for each block of the grid: 100 KiB for a layer); 64 KiB without an
 * address end the search. One of more than 1024 addresses counts as one that may reach anything. Any thread, with a lock
 * of its own, the last to be taken. Without memory arrays stay unknown. The process reads its memory by
 * process_vm_readv(), where that is refused (seccomp, emulators) through a pipe, and where that is refused as well each
 * copy from outside the heaps, its first 256 KiB, counts as an array that may reach anything: said once. errno is kept.
 */
#ifndef SPILLWAY_POINTER_ARRAYS_H
#define SPILLWAY_POINTER_ARRAYS_H

#include "shim/submit/copy_extent.h"
#include "shim/submit/submission.h"

/* A copy is about to be submitted. Neither dst nor src need be readable, nor what they seem. */
void pointer_arrays_copied(CUdeviceptr dst, CUdeviceptr src, size_t bytes);

/* The same of rows. */
struct pointer_arrays_side {
	CUdeviceptr base;
	struct copy_extent_place place;
};
void pointer_arrays_copied_box(const struct pointer_arrays_side *dst, const struct pointer_arrays_side *src,
			       const struct copy_extent *extent);

extern _Atomic bool pointer_arrays_any;
void pointer_arrays_look(struct submission *use, CUdeviceptr address);

/* A kernel was given this address, which it also named: name what the array there points to, if there is one. */
static inline void pointer_arrays_name(struct submission *use, CUdeviceptr address)
{
	if (__builtin_expect(atomic_load_explicit(&pointer_arrays_any, memory_order_relaxed), 0))
		pointer_arrays_look(use, address);
}

#endif
