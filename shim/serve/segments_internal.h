/* segments_internal.h: one segment, for the files that divide segments and end them. */
#ifndef SPILLWAY_SEGMENTS_INTERNAL_H
#define SPILLWAY_SEGMENTS_INTERNAL_H

#include "shim/serve/segments.h"

#include <stdatomic.h>

/* A free part, in units from the beginning of the segment. */
struct hole {
	uint32_t unit, units;
};

struct segment {
	struct segment *next;
	struct device *device;
	struct block *block;
	CUdeviceptr base;
	uint32_t units;
	CUcontext context;   /* of the order, and of the event */
	uint64_t order;      /* 0: none any more */
	CUevent event;       /* behind the latest free in the order; NULL: everything that was freed is done */
	atomic_uint n_given; /* frees that have set the event */
	bool ending;         /* its context is about to end, and the event with it: not to be used */
	bool held;           /* a stream is being made to wait for the event: not to be used */
	bool lost;           /* meanwhile its context has ended, and the event with it */
	bool small;          /* not longer than small blocks, for small parts only */
	bool stays;          /* its memory must not be used again */
	bool pinned;         /* it has small parts, but is not small (segments_beside.c) */
	bool counted;        /* in n_waiting */
	bool unused;         /* as told to the heap */
	unsigned ticks;
	uint64_t pool_id;                /* of the pool that has the first of its parts */
	uint32_t used, most_used;        /* units in parts: now, and the most that ever were */
	uint32_t n_parts, n_holes, room; /* room >= n_parts + 1 >= n_holes */
	struct hole *holes;              /* by unit */
};

static inline struct heap *segment_heap(const struct segment *segment)
{
	return atomic_load(&segment->device->heap);
}

/*
 * In `fast`, blocks of up to SPILL_SMALL_BLOCK bytes stay on the device, up to a share of the budget, because kernels
 * may find what is in them by addresses that no launch names (mover/piece.c). So allocations of up to that size share
 * segments that are no longer. Under a budget of less than this, that share would hold too few segments: there, such
 * allocations have blocks of their own, as have those of up to a share of the budget, if that is less.
 */
#define SEGMENTS_SMALL_BUDGET ((uint64_t)1 << 30)
/*
 * Small parts (segments_beside.c). Returns the length, in bytes, up to which allocations share no segment with larger
 * ones in `fast`; whether that is so now; and pins the segment, or ends that, as its parts and the mode say. Locking:
 * none; segment_pin(): the caller holds DEFERRED_FREE, takes HEAP.
 */
uint64_t segments_small_most(const struct device *device);
bool segments_are_beside(void);
void segment_pin(struct segment *segment);

/*
 * Updates the count of segments whose event matters, and whether the heap counts the segment as idle. Locking: the
 * caller holds DEFERRED_FREE.
 */
void segment_note(struct segment *segment);

#endif
