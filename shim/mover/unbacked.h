/*
 * unbacked.h: pieces without memory while the process is suspended, because nothing in them need be kept. Only the
 * mover's thread may call these functions.
 */
#ifndef SPILLWAY_UNBACKED_H
#define SPILLWAY_UNBACKED_H

#include "shim/heap/migration.h"

#include <stdbool.h>

struct engine;

/* Only the mover's thread may touch it. */
struct unbacked {
	struct migration *at;
	unsigned n, room;
};

/*
 * In the gap of a suspension: takes the memory away from a piece, unless it is not on the device, or something in it is
 * alive, or the driver refuses. Copies may be in flight. Locking: takes HEAP.
 */
void unbacked_take(struct engine *engine, uint32_t piece);
/*
 * Gives all of them memory again, of the device if it has any, else of the host. Returns false if there is none of
 * either for some of them, which stay in the list. At the end of the process (spill_is_ending) makes no memory, and
 * returns true. The gate must be closed. Locking: takes HEAP.
 */
bool unbacked_give(struct engine *engine);
/* Gives one of them memory of the device if there is room. Returns false if it did nothing. Copies may be in flight. */
bool unbacked_give_one(struct engine *engine);
/*
 * To be called regularly: gives up those whose blocks were freed, and gives all of them host memory if a thread waits
 * for one, to pin it. Locking: takes HEAP.
 */
void unbacked_serve(struct engine *engine);

#endif
