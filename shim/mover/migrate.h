/*
 * migrate.h: one piece from here to there, and what to do when the driver refuses. The mover's thread only.
 */
#ifndef SPILLWAY_MIGRATE_H
#define SPILLWAY_MIGRATE_H

#include "shim/mover/link.h"

struct engine;

/* The copies under way, each way. The mover's thread alone may touch it. */
struct migrations {
	struct queue out, in;
	unsigned n_back; /* of them, how many were taken back (migrate_take_back) */
};

enum migrate_answer {
	MIGRATE_BEGUN,
	MIGRATE_BUSY,    /* submissions use it */
	MIGRATE_NO_ROOM, /* no memory where it would go */
	MIGRATE_FAILED,  /* the driver refused; it is where it was */
};
/* gap: nothing runs that may touch it, so use is not asked about, and device memory is copied in place (migration.h). */
enum migrate_answer migrate_begin(struct engine *engine, uint32_t piece, enum chunk_place to, bool gap);
/* See to copies that have ended. True: there were some. */
bool migrate_finish(struct engine *engine);
/* Are any copies under way, any pieces not mapped? */
bool migrate_any(const struct engine *engine);
/*
 * Copies get on unless the driver has put them behind work of the program's that is held: streams share queues of the
 * hardware. migrate_is_stuck(): none has ended for much longer than they take. migrate_take_back(): the pieces are mapped again
 * where they were, for submissions that wait for them; their copies end when they end, for nothing, and until then
 * nothing else begins. A piece that is measured with (pte_contention.c) is mapped where it went. True: nothing is unmapped any more
 * on account of a copy.
 */
bool migrate_is_stuck(const struct engine *engine);
bool migrate_take_back(struct engine *engine);
/* Copies under way are given up: what they were to replace is mapped, and stays. */
void migrate_abandon(struct engine *engine);

#endif
