/*
 * move.h: one piece from here to there, and what to do when the driver refuses. The mover's thread only.
 */
#ifndef SPILLWAY_MOVE_H
#define SPILLWAY_MOVE_H

#include "shim/mover/link.h"

struct engine;

/* The copies under way, each way. The mover's thread alone may touch it. */
struct moves {
	struct queue out, in;
	unsigned n_back; /* of them, how many were taken back (move_take_back) */
};

enum move_answer {
	MOVE_BEGUN,
	MOVE_BUSY,    /* submissions use it */
	MOVE_NO_ROOM, /* no memory where it would go */
	MOVE_FAILED,  /* the driver refused; it is where it was */
};
/* gap: nothing runs that may touch it, so use is not asked about, and device memory is copied in place (migration.h). */
enum move_answer move_begin(struct engine *engine, uint32_t piece, enum chunk_place to, bool gap);
/* See to copies that have ended. True: there were some. */
bool move_finish(struct engine *engine);
/* Are any copies under way, any pieces not mapped? */
bool move_any(const struct engine *engine);
/*
 * Copies get on unless the driver has put them behind work of the program's that is held: streams share queues of the
 * hardware. move_is_stuck(): none has ended for much longer than they take. move_take_back(): the pieces are mapped again
 * where they were, for submissions that wait for them; their copies end when they end, for nothing, and until then
 * nothing else begins. A piece that is measured with (turns.c) is mapped where it went. True: nothing is unmapped any more
 * on account of a copy.
 */
bool move_is_stuck(const struct engine *engine);
bool move_take_back(struct engine *engine);
/* Copies under way are given up: what they were to replace is mapped, and stays. */
void move_abandon(struct engine *engine);

#endif
