/*
 * spare.h: spares, that is the chunks to which pieces move. Locking: the caller holds HEAP.
 */
#ifndef SPILLWAY_SPARE_H
#define SPILLWAY_SPARE_H

#include "shim/heap/heap_internal.h"

/* Gives the chunk an alias if it needs one. in_place: memory of the device needs none (migration.h). */
enum sw_status spare_give_alias(struct chunk_store *store, struct chunk *chunk, bool in_place);
/* Takes a warm movable chunk of that size, with an alias; NULL if there is none. */
struct chunk *spare_warm(struct chunk_store *store, enum chunk_place place, unsigned units, bool in_place);
/* The same on the host, or a compound one (compound.h), if memory of the heap moves beside what runs. */
struct chunk *spare_warm_host(struct heap *heap, unsigned units);
/*
 * Takes a warm chunk for a piece of the block that moves to the device (to: CHUNK_DEVICE) or away from it: to a peer
 * while one lends memory, else to the host, and the other way round if the program wants the block on the host. Returns
 * NULL if there is none, or if a peer has room for a new one.
 */
struct chunk *spare_find(struct heap *heap, const struct block *block, enum chunk_place to, unsigned units,
			 bool in_place);

/*
 * Makes a warm movable chunk of the host, with an alias if it can be had. Locking: takes HEAP, but not while it pins.
 */
enum sw_status spare_pin(struct heap *heap, unsigned units);

#endif
