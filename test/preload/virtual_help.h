/*
 * virtual_help.h: what the tests of memory share that a program makes itself (cuMemCreate, cuMemMap). What they expect is
 * what the driver does: they run natively (SPILL_MODE=native), and under the library in each mode with every value of
 * vmm.spill (VMM_SPILL). Parts run in processes of their own (child.h).
 */
#ifndef PRELOAD_VIRTUAL_HELP_H
#define PRELOAD_VIRTUAL_HELP_H

#include "test/preload/child.h"

typedef CUmemGenericAllocationHandle handle_id;

#define GRANULE        (2 * MIB)
#define VIRTUAL_BUDGET (32 * MIB)
#define VIRTUAL_HOST   (64 * MIB)
#define VIRTUAL_ALL    (VIRTUAL_BUDGET + VIRTUAL_HOST) /* what there is at least; natively it is 128 MiB */

const char *virtual_mode(void);  /* native, static, exact, fast */
const char *virtual_spill(void); /* no, yes, move; natively: no */
/* In a child with those budgets, on two devices of 128 MiB each; its status must be 0. */
void virtual_run(int (*part)(void));
/* With a setting besides, and what is added to SPILLWAY_SET. */
void virtual_run_with(const char *setting, const char *set, int (*part)(void));
/* A part's last word: nothing of it is left, and the model has seen nothing wrong. 0. */
int virtual_end(void);

CUmemAllocationProp virtual_prop(int device);
handle_id virtual_create(int device, size_t bytes);
CUdeviceptr virtual_reserve(size_t bytes);
CUresult virtual_access(CUdeviceptr at, size_t bytes, int device, CUmemAccess_flags flags);
/* What GetAccess says of a device; an error ends the program. */
CUmemAccess_flags virtual_access_of(CUdeviceptr at, int device);
/* Map the handle and give device 0 access; make, map and release at once. */
void virtual_map(CUdeviceptr at, size_t bytes, handle_id handle);
void virtual_map_new(CUdeviceptr at, size_t bytes);
/* Work is done first; the addresses are given back. */
void virtual_unmap(CUdeviceptr at, size_t bytes);
void virtual_unmap_and_free(CUdeviceptr at, size_t bytes, size_t reserved);

/* A segment of handles of unequal sizes, one behind the other; so many MiB in all, in a reservation of 64. */
enum { VIRTUAL_SIZES = 8, VIRTUAL_MIB = 48 };
extern const size_t virtual_sizes[VIRTUAL_SIZES];
CUdeviceptr virtual_segment(void);
void virtual_segment_drop(CUdeviceptr at);

/* Memory of cuMemAlloc, as much as there is of the device budget and half as much again, used so that it wants to be there. */
void virtual_press(void);
/* The words from start on hold value, value + 1, ...: by a kernel of the stream, by a copy; do they? */
void virtual_count(CUstream stream, CUdeviceptr at, unsigned value, size_t n);
void virtual_write(CUdeviceptr at, unsigned value, size_t n);
bool virtual_counts(CUdeviceptr at, unsigned value, size_t n);
/* The kernel of virtual_count; before a capture. */
CUfunction virtual_kernel(void);

#endif
