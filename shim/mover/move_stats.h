/*
 * move_stats.h: figures and trace events of moves. Only the mover's thread may call these functions.
 */
#ifndef SPILLWAY_MOVE_STATS_H
#define SPILLWAY_MOVE_STATS_H

#include "shim/trace/trace.h"
#include "shim/mover/link.h"

struct engine;

/* Sums of moves, and of the time that they take. Only the mover's thread may touch it. */
struct move_stats {
	/* reason of the moves that begin now, for the trace; set by the code that begins moves */
	enum trace_why why_in, why_out;
	uint64_t moved_in, moved_out; /* bytes since the start */
	unsigned n_told;              /* moves that have begun and not ended */
	uint64_t busy_since;          /* ns: time with moves in flight is counted in STAT_link_us up to here, */
	uint64_t busy_rest;           /* except for this remainder, which is valid while none is in flight */
};

/*
 * Record that a move begins and that it has ended; each must be called once for a move. stayed: the data are where they
 * were before the move.
 */
void move_stats_begin(struct engine *engine, struct move *move);
void move_stats_end(struct engine *engine, const struct move *move, bool stayed);
/*
 * Counts a move whose data have moved. Must be called before migration_exchange(), while the old memory is still the
 * piece's.
 */
void move_stats_moved(struct engine *engine, const struct move *move);
/* All three for a move in one go, which began at `begun` (ns) and copied so much. */
void move_stats_whole(struct engine *engine, const struct migration *transit, uint64_t begun, uint64_t copied);
/* Adds the time with moves in flight up to now to the figures. */
void move_stats_busy(struct engine *engine);

#endif
