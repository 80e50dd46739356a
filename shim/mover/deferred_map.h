/*
 * deferred_map.h: deferred maps, that is pieces that lie on the host and are not mapped there yet. Only the mover's
 * thread may call these functions. Locking: the functions that map or unmap take HEAP.
 */
#ifndef SPILLWAY_DEFERRED_MAP_H
#define SPILLWAY_DEFERRED_MAP_H

#include "shim/heap/migration.h"

#include <stdbool.h>
#include <stdint.h>

struct engine;

/* A piece on the host that is not mapped: it was evicted, or is about to be fetched. */
struct deferred_map {
	struct migration transit;
	uint64_t since; /* ns: time of the unmapping */
	bool comes;     /* while the device is quiesced: not to be mapped while it may still be fetched */
	bool is_empty;  /* nothing was copied when it left: see alive.h */
};

/* The most deferred maps; they are kept oldest first. */
#define DEFERRED_MAPS 512

/* Only the mover's thread may touch it. */
struct deferred_maps {
	struct deferred_map at[DEFERRED_MAPS];
	unsigned n;
};

struct deferred_map *deferred_map_find(struct engine *engine, uint32_t piece); /* NULL if the piece is not deferred */
/*
 * Adds a piece as the newest one. is_empty: nothing was copied into the memory that it has now. The caller must ensure
 * that there is room for it.
 */
void deferred_map_add(struct engine *engine, const struct migration *transit, bool is_empty);
void deferred_map_drop(struct engine *engine, struct deferred_map *rest);
/* Maps the oldest one that is not about to be fetched. Returns false if there is none. */
bool deferred_map_map(struct engine *engine);
/*
 * Maps what somebody waits for, while copies run: all of them if a submission waits that may touch anything, else those
 * that migration_first_awaited() finds. The others stay: to map all that is away takes a tenth of a second, in which
 * the mover begins nothing and sees no copy end. Returns whether it mapped any.
 *
 * Measured (H100, a GPT on cudaMallocAsync at 1.5 times the budget, `fast`): while all were mapped whenever a block was
 * freed of which a piece was away, up to three quarters of the steps had a pause of 60 to 95 ms; a step took 233 or
 * about 320 ms, and takes 231 since.
 */
bool deferred_map_serve(struct engine *engine);
/* Maps all deferred pieces of a block except those with the stamp `but`. */
void deferred_map_map_of(struct engine *engine, uint32_t block_unit, uint64_t but);
/*
 * While the device is quiesced: unmaps a piece on the host that is about to be fetched. Returns false if it cannot be
 * unmapped now.
 */
bool deferred_map_unmap_early(struct engine *engine, uint32_t piece);
/* Gives up early unmapping: what was unmapped and not fetched is an ordinary deferred map again. */
void deferred_map_give_up_early(struct engine *engine);

#endif
