/*
 * deferred_map.h: pieces on the host that are not mapped. The mover's thread only.
 */
#ifndef SPILLWAY_DEFERRED_MAP_H
#define SPILLWAY_DEFERRED_MAP_H

#include "shim/heap/migration.h"

#include <stdbool.h>
#include <stdint.h>

struct engine;

/* A piece on the host that is not mapped: it came out, or is about to come in. */
struct deferred_map {
	struct migration transit;
	uint64_t since; /* ns */
	bool comes;     /* in a gap: not to be mapped while it may still come in */
};

/* Pieces on the host that are not mapped, oldest first. */
#define DEFERRED_MAPS 512

/* The mover's thread alone may touch it. */
struct deferred_maps {
	struct deferred_map at[DEFERRED_MAPS];
	unsigned n;
};

struct deferred_map *deferred_map_find(struct engine *engine, uint32_t piece); /* NULL: it is none of them */
void deferred_map_add(struct engine *engine, const struct migration *transit);
void deferred_map_drop(struct engine *engine, struct deferred_map *rest);
/* Map the one that came out first. True: there was one. */
bool deferred_map_map(struct engine *engine);
/* Map all of a block but those with this stamp. */
void deferred_map_map_of(struct engine *engine, uint32_t block_unit, uint64_t but);
/* In a gap: unmap a piece on the host that is about to come in. False: not now. */
bool deferred_map_unmap_early(struct engine *engine, uint32_t piece);
/* What has not come in is to be mapped again. */
void deferred_map_give_up_early(struct engine *engine);

#endif
