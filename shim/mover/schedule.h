/*
 * schedule.h: hands the scheduler (shim/plan/scheduler.h) what it must know, and carries out what it decides. Only the
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
	_Atomic uint64_t shown;  /* the same, for threads other than the mover's */
	uint64_t last;           /* ns: when `done` last grew, or a gap began or ended */
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
/* Returns whether another eviction may begin: there is a free slot, and little enough memory is in flight. */
bool schedule_may_evict(struct engine *engine);
/* Returns how many bytes of host memory should be pinned in reserve for evictions (heap_fill_host_reserve). */
uint64_t schedule_stock_bytes(struct engine *engine);
/* Prepares the engine's scheduler. To be called once the engine has a plan. */
void schedule_init(struct engine *engine);

#endif
