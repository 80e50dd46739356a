/*
 * move_stats.h: what figures and the trace hear of moves. The mover's thread only.
 */
#ifndef SPILLWAY_MOVE_STATS_H
#define SPILLWAY_MOVE_STATS_H

#include "shim/trace/trace.h"
#include "shim/mover/link.h"

struct engine;

/* Sums of moves, and of the time they take. The mover's thread alone may touch it. */
struct move_stats {
	enum trace_why why_in, why_out; /* of the moves that begin now, for the trace; whoever begins moves sets it */
	uint64_t moved_in, moved_out;   /* bytes, ever */
	unsigned n_told;                /* of moves that have begun, and not ended */
	uint64_t busy_since;            /* ns: up to then the time with moves under way is in STAT_link_us, */
	uint64_t busy_rest;             /* but for this, while none is */
};

/* A move begins, and has ended: its data are where they were (stayed), or where they were to go. Each once. */
void move_stats_begin(struct engine *engine, struct move *move);
void move_stats_end(struct engine *engine, const struct move *move, bool stayed);
/* The data of one have moved: before what it left is the spare's. */
void move_stats_moved(struct engine *engine, const struct move *move);
/* The time with moves under way so far, into the figures. */
void move_stats_busy(struct engine *engine);

#endif
