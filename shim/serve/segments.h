// SPDX-License-Identifier: Apache-2.0
/*
 * segments.h: segments: blocks of the heap that large stream-ordered allocations share, where memory moves. As in
 * PyTorch's caching allocator an allocation takes a part of a segment and a free gives it back: neither changes a
 * mapping, and a program that repeats its steps gets the same addresses in each, so that the predictor foresees their
 * use. What is free in a segment is dead (lifetimes.h): it moves without a copy, and is evicted first.
 *
 * Without segments each size has blocks of its own, and memory goes from one size to another by unmapping, releasing,
 * making and mapping chunks. Measured (H200, GPT on cudaMallocAsync at 1.5 times the budget, `fast`): 3443 changes of
 * mappings and 490 ms a step; with PyTorch's own cache 1663 and 211 ms. In a model of the allocations of a step only a
 * quarter of the 3443 moves memory.
 *
 * A segment belongs to an order: a stream of one context. What is freed in that order is used again at once by an
 * allocation in the same order, which comes behind the free. An event behind the latest such free stands for all of
 * them; when it has completed and no part is in use, or the stream has ended, any stream may take the segment. A stream
 * that would find no memory takes an unused segment earlier, behind that event. A part that is freed in another order
 * goes through deferred_free.h.
 *
 * An unused segment counts as idle memory (heap_idle). It becomes an ordinary free block when an allocation
 * finds no memory, when the program trims its pool, and when nobody has used it for 20 ticks.
 *
 * Locking: takes DEFERRED_FREE, and HEAP under it; segments_are_for(), segments_has(), segments_mark() take none.
 */
#ifndef SPILLWAY_SEGMENTS_H
#define SPILLWAY_SEGMENTS_H

#include "shim/accounting/ledger.h"
#include "shim/device/device.h"
#include "shim/heap/heap.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct segment_want {
	struct device *device;
	size_t bytes;
	CUcontext context; /* of the stream */
	uint64_t order;    /* as in the ledger's rows; never 0 */
	CUstream stream;
	bool per_thread;
};

/* Returns whether this many bytes should come from a segment: memory of the device moves, and what is dead is known. */
bool segments_are_for(const struct device *device, size_t bytes);
/*
 * Whose segments serve an allocation. What was freed in another order and is in use there still can be had behind it:
 * the stream is made to wait. The last two are for want of other memory: who frees something is then not always who has
 * it again, so addresses do not repeat.
 */
enum segments_whose {
	SEGMENTS_OWN,    /* those of its order, and what is nobody's */
	SEGMENTS_UNUSED, /* the same, then unused ones of other orders of this context, behind their latest free */
	SEGMENTS_DONE,   /* of any order, where all that was freed is done */
	SEGMENTS_ANY,    /* the same, then of any order of this context, behind its latest free */
};
/*
 * Takes a part of an existing segment for the row, which then has its key and block. Returns false if none has room.
 */
bool segments_take(const struct segment_want *want, enum segments_whose whose, struct ledger_row *row);
/*
 * Returns how long a block should be that becomes a segment for this allocation: a multiple of the largest piece, so
 * that all pieces have one size, and a piece that is evicted has the size of the one that is fetched; no longer than
 * the allocation, if too much memory would be lost by that; or 0 if no segment should be made, because memory is short.
 */
uint64_t segments_length(const struct segment_want *want);
/*
 * Makes a segment of a block that was just allocated, and takes its first part. Returns false if there is no memory for
 * that; the block is free then.
 */
bool segments_add(const struct segment_want *want, const struct heap_grant *grant, struct ledger_row *row);

/* Returns whether the row has a part of a segment. */
bool segments_has(const struct ledger_row *row);
/*
 * Returns how many frees have told the row's segment how far its order has come. The caller must ask before it records
 * the event of a free: of two threads that free behind one stream, the one whose event is earlier may come later.
 */
unsigned segments_mark(const struct ledger_row *row);
/*
 * After a free behind this stream, with row->pending filled in; mark: from before its event was recorded. Returns false
 * if that is not the order of the row's segment, if another free has told the segment of its event since, or if the row
 * has no segment. Otherwise the part is free for this order, and the row and its event are consumed.
 */
bool segments_give(struct ledger_row *row, CUstream stream, bool per_thread, unsigned mark);
/* The part of this row is not used by any work any more: frees it. Does not end the row. */
void segments_release(const struct ledger_row *row);

/* Finds out which events have completed. Never waits for the GPU, harms no capture. */
void segments_reap(void);
/*
 * Returns how many bytes are free in the segments of this pool (device.h) behind frees that a stream may not have
 * reached. Harms no capture.
 */
uint64_t segments_waiting(uint64_t pool_id);
/* Frees the unused segments of a device. Returns whether there were any. */
bool segments_give_up(const struct device *device);
/* Repeats look() until it returns true, nothing waits any more, or DEFERRED_FREE_PATIENCE_MS are over. */
bool segments_patience(bool (*look)(const struct device *device), const struct device *device,
		       const atomic_uint *n_waiting);
/*
 * As segments_give_up(), for a caller that finds no memory at all: waits until there are any, for
 * DEFERRED_FREE_PATIENCE_MS at most, if streams have yet to reach the frees of some.
 */
bool segments_wait(struct device *device);
/* About once a second: frees what was unused for 20 ticks, or at once if others need it. */
void segments_tick(void);

/* Before a stream is destroyed: its handle may be used again, for a stream that is behind nothing. */
void segments_stream_ending(CUstream stream);
/* Before a context ends, and afterwards; ended: whether it has. Events of the context end with it. */
void segments_context_ending(CUcontext context);
void segments_context_ended(CUcontext context, bool ended);

/*
 * Memory is about to move beside what runs, after it did in gaps alone; or it does so no more. Segments with small
 * parts are pinned meanwhile. Locking: takes DEFERRED_FREE and HEAP.
 */
void segments_set_beside(bool beside);

#endif
