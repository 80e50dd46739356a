/*
 * schedule.h: which piece comes in, which goes out, and whether to wait. The mover's thread only.
 */
#ifndef SPILLWAY_SCHEDULE_H
#define SPILLWAY_SCHEDULE_H

#include "shim/mover/piece.h"
#include "shim/mover/link.h"

struct engine;

/* How far the GPU has got, and who waits in vain for it. The mover's thread alone may touch it. */
struct progress {
	uint64_t done;           /* submissions up to this one are done that can matter (completion_poll) */
	uint64_t last;           /* ns: when `done` last grew, or a gap began or ended */
	bool stalled;            /* the GPU was waited for in vain; nobody waits for it until it makes progress */
	bool starving;           /* a submission waits for memory that is not free yet */
	struct piece_list aside; /* pieces that the plan must not name until the GPU gets on */
};

/* See to everybody who waits; begin what they want. */
void schedule_for_waiters(struct engine *engine);
/* Begin what the plan foresees. */
void schedule_ahead(struct engine *engine);
/* Send out what the program wants on the host, as far as it can go now. */
void schedule_leave(struct engine *engine, bool gap);
void schedule_progress(struct engine *engine);
/* In `fast`: room for the new blocks that are waited for. */
void schedule_for_new(struct engine *engine);
bool schedule_may_move(const struct engine *engine);
/* Can it, whether that pays or not? */
bool schedule_can_move(const struct engine *engine);
/* Is there room in the queue, and is so much memory free to be under way? */
bool schedule_may_begin(const struct engine *engine, const struct queue *queue);
uint32_t schedule_ahead_units(const struct engine *engine);
/* So much host memory is to lie ready for what leaves (heap_fill_host_reserve). */
uint64_t schedule_stock_bytes(const struct engine *engine);
/* The piece has begun to come in: for the statistics. ahead: before a submission wanted it. */
void schedule_count(struct engine *engine, uint32_t piece, bool ahead);

#endif
