/*
 * schedule.h: scheduling: which piece is fetched, which is evicted, and whether a submission goes on waiting. Only the
 * mover's thread may call these functions. Locking: those that begin moves take HEAP.
 */
#ifndef SPILLWAY_SCHEDULE_H
#define SPILLWAY_SCHEDULE_H

#include "shim/mover/piece.h"
#include "shim/mover/link.h"

struct engine;

/* The progress of the GPU, and whether waiting for it is futile. Only the mover's thread may touch it. */
struct progress {
	uint64_t done;           /* submissions up to this one that can matter have completed (completion_poll) */
	uint64_t last;           /* ns: when `done` last grew, or a gap began or ended */
	bool stalled;            /* a wait for the GPU was given up; no submission waits until the GPU makes progress */
	bool starving;           /* a submission waits for device memory that is not free yet */
	struct piece_list aside; /* pieces that the plan must not choose until the GPU makes progress */
};

/*
 * Begins the moves that waiting submissions need, and releases submissions that have nothing to wait for. Locking:
 * takes SPILL, then HEAP.
 */
void schedule_for_waiters(struct engine *engine);
/* Prefetches what the plan foresees. */
void schedule_ahead(struct engine *engine);
/* Moves what the program wants on the host there, as far as possible now. gap: the device is quiesced. */
void schedule_leave(struct engine *engine, bool gap);
/* Updates the progress of the GPU. */
void schedule_progress(struct engine *engine);
/* In `fast`: makes room for the new blocks that allocations wait for. */
void schedule_for_new(struct engine *engine);
/* Returns whether memory may move now: it can, and the governor allows it. */
bool schedule_may_move(const struct engine *engine);
/* Returns whether memory can move now, whether or not that pays. */
bool schedule_can_move(const struct engine *engine);
/* Returns whether another copy may begin in this queue: it has a free slot, and little enough memory is in flight. */
bool schedule_may_begin(const struct engine *engine, const struct queue *queue);
/* Returns how many units may be fetched ahead of their use. */
uint32_t schedule_ahead_units(const struct engine *engine);
/* Returns how many bytes of host memory should be pinned in reserve for evictions (heap_fill_host_reserve). */
uint64_t schedule_stock_bytes(const struct engine *engine);
/* Counts that the fetch of a piece has begun. ahead: it is a prefetch, which no submission waits for. */
void schedule_count(struct engine *engine, uint32_t piece, bool ahead);

#endif
