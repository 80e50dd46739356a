// SPDX-License-Identifier: Apache-2.0
/*
 * vmm_help.h: what the tests of memory share that a program makes itself (cuMemCreate, cuMemMap). What they expect is
 * what the driver does: they run natively (SPILL_MODE=native), and under the library in each mode with every value of
 * vmm.spill (VMM_SPILL). Parts run in processes of their own (child.h).
 */
#ifndef PRELOAD_VMM_HELP_H
#define PRELOAD_VMM_HELP_H

#include "test/preload/child.h"

typedef CUmemGenericAllocationHandle handle_id;

#define GRANULE    (2 * MIB)
#define VMM_BUDGET (32 * MIB)
#define VMM_HOST   (64 * MIB)
#define VMM_ALL    (VMM_BUDGET + VMM_HOST) /* what there is at least; natively it is 128 MiB */

const char *vmm_mode(void);  /* native, static, exact, fast */
const char *vmm_spill(void); /* no, move; natively: no */
/* In a child with those budgets, on two devices of 128 MiB each, which begins with device 0 and ends with vmm_end(). */
void vmm_run(void (*part)(void));
void vmm_run_bare(void (*part)(void)); /* without either */
/* With a setting besides, and what is added to SPILLWAY_SET. */
void vmm_run_with(const char *setting, const char *set, void (*part)(void));
/* Nothing of a part is left. */
void vmm_end(void);

handle_id vmm_create(int device, size_t bytes);
CUdeviceptr vmm_reserve(size_t bytes);
CUresult vmm_access(CUdeviceptr at, size_t bytes, int device, CUmemAccess_flags flags);
/* What GetAccess says of a device; an error ends the program. */
CUmemAccess_flags vmm_access_of(CUdeviceptr at, int device);
/* Map the handle and give device 0 access; make, map and release at once. */
void vmm_map(CUdeviceptr at, size_t bytes, handle_id handle);
void vmm_map_new(CUdeviceptr at, size_t bytes);
/* Wait until all work is done, then unmap; the second also gives the `reserved` bytes of addresses back. */
void vmm_unmap(CUdeviceptr at, size_t bytes);
void vmm_unmap_and_free(CUdeviceptr at, size_t bytes, size_t reserved);

/* A segment of handles of unequal sizes, one behind the other; so many MiB in all, in a reservation of 64. */
enum { VMM_SIZES = 8, VMM_MIB = 48 };
extern const size_t vmm_sizes[VMM_SIZES];
CUdeviceptr vmm_segment(void);
void vmm_segment_drop(CUdeviceptr at);

/*
 * Memory of cuMemAlloc, as much as there is of the device budget and half as much again, used so that it wants to be
 * there.
 */
void vmm_press(void);
/* The words from start on hold value, value + 1, ...: by a kernel of the stream, by a copy; do they? */
void vmm_count(CUstream stream, CUdeviceptr at, unsigned value, size_t n);
void vmm_write(CUdeviceptr at, unsigned value, size_t n);
bool vmm_counts(CUdeviceptr at, unsigned value, size_t n);
/* The kernel of vmm_count; before a capture. */
CUfunction vmm_kernel(void);

#endif
