/*
 * compound.h: compound chunks. A compound chunk is host memory that consists of several chunks of the host, its
 * *parts*, each with its handle and alias. Their lengths are powers of two, so that they serve pieces of every length:
 * host memory is pinned memory, which takes 0.2 s a GiB to make, and a chunk of its own serves one length alone. It is
 * mapped by one call for each part. So they are made only where memory moves beside what runs, because what leaves
 * there comes back before it has been mapped, as a rule (deferred_map.h). If the mode changes, those that exist remain.
 *
 * A compound chunk belongs to a piece, or to a migration. It is never warm: chunk_put() puts its parts into the store.
 *
 * Measured in the replay model, a GPT with sequences of another length in each step, at 1.5 times the budget, and 0.2
 * ms for each MiB that is pinned: chunks of one length each pin 7.9 GiB, and the steps 10 to 19 take 122 ms, the first
 * nine 264; with parts of up to 32 MiB 4.8 GiB, 107 and 222 ms; of up to 16 MiB 4.5 GiB, 107 and 213; nothing pinned
 * 106 and
 * 120.
 *
 * Locking: the caller holds HEAP, unless a function says otherwise.
 */
#ifndef SPILLWAY_COMPOUND_H
#define SPILLWAY_COMPOUND_H

#include "shim/heap/chunk.h"

#define COMPOUND_PART_MOST 16 /* units: 32 MiB */

/* Returns the length, in units, of the first part of what is so long; of a power of two up to the limit, all of it. */
static inline unsigned compound_part(unsigned units)
{
	unsigned part = COMPOUND_PART_MOST;

	while (part > units)
		part /= 2;
	return part;
}

/*
 * Takes warm movable chunks of the host as one compound chunk of so many units. Returns NULL if some are missing, if an
 * alias is, or if the length is that of a single part.
 */
struct chunk *compound_take(struct chunk_store *store, unsigned units);
/* Gets a movable chunk of the host for a part; `next` of it is NULL. Stores nothing if it returns an error. */
typedef enum sw_status compound_get_function(void *from, unsigned units, struct chunk **ret_chunk);
/*
 * Makes a compound chunk of so many units, each part of which it asks of `get` (from: its first argument). If one
 * cannot be had, the others go back to the store, and the error is returned.
 */
enum sw_status compound_build(struct chunk_store *store, unsigned units, compound_get_function *get, void *from,
			      struct chunk **ret_chunk);
/* Returns the length of a part that is missing for a chunk of so many units; 0: none is. */
unsigned compound_missing(const struct chunk_store *store, unsigned units);
/*
 * Returns whether the chunk is so long, or of a compound chunk a part: if the chunk is put back, one of that length is
 * warm.
 */
bool compound_has(const struct chunk *chunk, unsigned units);
/*
 * Returns the address at which the mover reads or writes this byte of a compound chunk, and in *ret_bytes how many
 * bytes follow there. Locking: none; the chunk must be moving, and the caller must be the mover.
 */
CUdeviceptr compound_at(const struct chunk *chunk, uint64_t at, uint64_t *ret_bytes);

#endif
