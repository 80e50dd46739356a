/*
 * on_use.h: allocations with place: on-use. They get address space at once, and memory when a submission names a part
 * of them (submission_back). How far a name reaches is known of copies and sets; a pointer that a kernel gets may mean
 * all of the allocation. What a graph or a stream capture names is taken as a whole.
 */
#ifndef SPILLWAY_SERVE_ON_USE_H
#define SPILLWAY_SERVE_ON_USE_H

#include "shim/serve/backend.h"

/* Smaller allocations are served as with place: auto: each part takes a unit of the heap at least. */
#define ON_USE_LEAST (2 * HEAP_UNIT)

struct submission_takes;

/* For submission_on_take(). Locking of its functions: as an allocation; the caller must hold nothing. */
extern const struct submission_takes on_use_takes;
/* Takes memory for what a name means (struct submission_takes). Locking: the same. */
CUresult on_use_take(CUdeviceptr address, uint64_t bytes, bool whole);
/*
 * The same for the whole allocation that has the address, if there is one, from within a call that is served; for what
 * keeps the address without a submission that names it.
 */
CUresult on_use_take_whole(CUdeviceptr address);
/* As on_use_take_whole(), for a range that begins in an allocation. */
CUresult on_use_take_range(CUdeviceptr address, uint64_t bytes);

#endif
