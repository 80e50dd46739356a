/*
 * recall.h: what goes back to peers that need their memory. The mover's thread only.
 */
#ifndef SPILLWAY_RECALL_H
#define SPILLWAY_RECALL_H

#include "shim/mover/piece.h"

struct engine;

/* The mover's thread alone may touch it. */
struct recall {
	struct piece_list pieces; /* those on peers that want memory back; some gone */
	uint64_t not_before;      /* ns */
};

/* What peers have lent and want back is sent away from there, as far as it can go now. */
void recall_run(struct engine *engine);

#endif
