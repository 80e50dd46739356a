/*
 * migrate.h: migration of one piece between places, and recovery when the driver refuses a step. Only the mover's
 * thread may call these functions. Locking: all but migrate_any() and migrate_is_stuck() take HEAP.
 */
#ifndef SPILLWAY_MIGRATE_H
#define SPILLWAY_MIGRATE_H

#include "shim/mover/link.h"

struct engine;

/* The copies in flight each way. Only the mover's thread may touch it. */
struct migrations {
	struct queue out, in;
	unsigned n_back; /* number of them that were taken back (migrate_take_back) */
	bool exchanges;  /* what is begun leaves for the submission that waits, which does not keep it from that */
};

/*
 * Begins to migrate a piece. gap: the device is quiesced, so use is not checked, and device memory is copied in place
 * (migration.h).
 */
enum migrate_answer migrate_begin(struct engine *engine, uint32_t piece, enum chunk_place to, bool gap);
/* Completes the moves whose copies have ended. Returns false if there were none. */
bool migrate_finish(struct engine *engine);
/* Returns whether any copies are in flight or any maps deferred. */
bool migrate_any(const struct engine *engine);
/*
 * Copies make progress unless the driver has queued them behind work of the program that is held back, because streams
 * share hardware queues. migrate_is_stuck() returns whether no copy has ended for much longer than copies take.
 * migrate_take_back() then maps the pieces again where they were, for submissions that wait for them. Their copies have
 * no effect when they end, and no other move begins until then. A piece that is being measured with (pte_contention.c)
 * is mapped at its destination instead. Returns true if no piece is unmapped any more because of a copy.
 */
bool migrate_is_stuck(const struct engine *engine);
bool migrate_take_back(struct engine *engine);
/* Gives up the copies in flight: the memory that they were to replace is mapped again and stays in use. */
void migrate_abandon(struct engine *engine);

#endif
