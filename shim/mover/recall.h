/*
 * recall.h: recall: moves memory of this heap off the peers that lent it and need it back. Only the mover's thread may
 * call this.
 */
#ifndef SPILLWAY_RECALL_H
#define SPILLWAY_RECALL_H

#include "shim/mover/piece.h"

struct engine;

/* Only the mover's thread may touch it. */
struct recall {
	struct piece_list pieces; /* pieces on peers that want memory back; some may have gone since */
	uint64_t not_before;      /* ns: nothing is recalled before this time */
};

/*
 * Moves pieces off the peers that want their memory back, as far as that is possible now. Locking: takes HEAP; in
 * `exact` QUIESCE before.
 */
void recall_run(struct engine *engine);

#endif
