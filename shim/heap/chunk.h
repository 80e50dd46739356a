// SPDX-License-Identifier: Apache-2.0
/*
 * chunk.h: physical memory. A chunk is one physical allocation (cuMemCreate), the unit of mapping and of migration.
 *
 * Sizes are multiples of 2 MiB up to 128 MiB, because mapping costs far more per chunk than per byte and a handle
 * cannot be split (docs/facts.md, Mapping). A chunk that has moved once also has an *alias*: a second address, in a
 * reservation of the library, at which the mover reads and writes it whatever is mapped at the program's address. The
 * alias lasts as long as the chunk.
 *
 * While the process is suspended, a piece whose contents need not be kept has an *unbacked* chunk: one of host memory
 * that is charged to the host budget, but not made yet. So it can be made when the process goes on, if the device has
 * no room by then. An unbacked chunk is never warm.
 *
 * Locking: the caller holds HEAP unless a function says otherwise. Owner: the block that has the chunk, from
 * chunk_take_warm() or chunk_make() to chunk_put(); otherwise the chunk is warm or refused in the store, still charged
 * to its budget.
 */
#ifndef SPILLWAY_CHUNK_H
#define SPILLWAY_CHUNK_H

#include "shim/heap/types.h"

/*
 * Returns whether the driver had no device memory for a chunk within the budget less than a second ago, so that other
 * processes fill the device. Locking: none.
 */
bool chunk_is_full(const struct chunk_store *store);
/*
 * Returns the bytes that may still be made at a place: 0 on a device that others fill; for CHUNK_PEER what the peer
 * with the most room lends, because a chunk is on one peer. Locking: none.
 */
uint64_t chunk_left(const struct chunk_store *store, enum chunk_place place);
/* Takes a warm chunk of that size. Returns NULL if there is none. */
struct chunk *chunk_take_warm(struct chunk_store *store, enum chunk_kind kind, enum chunk_place place, unsigned units);
/*
 * Makes a new chunk with the length, place, kind and lender of `like`. Returns NO_MEMORY if the budget or the driver
 * has none. In two steps, because pinning host memory takes long (0.2 s a GiB): chunk_make() needs no HEAP;
 * chunk_join(), under HEAP, adds the chunk to the store's figures.
 */
enum sw_status chunk_make(struct chunk_store *store, const struct chunk *like, struct chunk **ret_chunk);
/* As chunk_make(), on the first peer that has room. */
enum sw_status chunk_make_lent(struct chunk_store *store, const struct chunk *like, struct chunk **ret_chunk);
void chunk_join(struct chunk_store *store, struct chunk *chunk);
/* Returns a new unbacked movable chunk, charged to the host budget. Returns NO_MEMORY if that has no room. */
enum sw_status chunk_make_unbacked(struct chunk_store *store, unsigned units, struct chunk **ret_chunk);
/*
 * Makes the memory of a chunk that is charged already. An unbacked chunk is still unbacked for others until the caller
 * says so. Returns an error if the driver has none. Locking: none; the caller must own the chunk.
 */
enum sw_status chunk_create(struct chunk_store *store, struct chunk *chunk);
/*
 * Gives the chunk its alias, if it has none, or each of its parts. Returns NO_MEMORY or DRIVER if it stays without one.
 */
enum sw_status chunk_give_alias(struct chunk_store *store, struct chunk *chunk);
/* Returns whether the peer that lends the chunk wants memory back (budget.h). Locking: none. */
bool chunk_is_wanted(const struct chunk_store *store, const struct chunk *chunk);
/*
 * Maps the chunk at an address, without access. If the driver refuses, nothing of it is mapped, unless it also refuses
 * to unmap the first parts of a compound chunk again, which the log says then. Locking: none.
 */
CUresult chunk_map(const struct chunk *chunk, CUdeviceptr at);
/* The same for a chunk and all that follow in its list, one behind the other. */
CUresult chunk_map_all(const struct chunk *first, CUdeviceptr at);
/* Puts an unmapped chunk back into the store, as warm; of a compound one the parts. An unbacked one is gone then. */
void chunk_put(struct chunk_store *store, struct chunk *chunk);
/*
 * Releases a chunk to the driver at once. It is never reused: if the driver refuses, only the release is tried again,
 * by chunk_retry_refused().
 */
void chunk_drop(struct chunk_store *store, struct chunk *chunk);
void chunk_retry_refused(struct chunk_store *store);
/* Releases warm chunks to the driver until at most `keep` bytes are warm. Chunks that the driver refuses stay warm. */
void chunk_trim(struct chunk_store *store, enum chunk_place place, uint64_t keep);
/* Releases one warm chunk of that sort. Returns false if there is none, or the driver refuses; then it stays warm. */
bool chunk_release_warm(struct chunk_store *store, enum chunk_kind kind, enum chunk_place place, unsigned units);
/*
 * Releases one warm chunk: the shortest of at least `units` units, else the longest. Returns false if no chunk is warm,
 * or the driver refuses all of them.
 */
bool chunk_release_one(struct chunk_store *store, enum chunk_place place, unsigned units);

/* ---- compound chunks ---- */

/*
 * A compound chunk is host memory that consists of several chunks of the host, its *parts*, each with its handle and
 * alias. Their lengths are powers of two, so that they serve pieces of every length: host memory is pinned memory,
 * which takes 0.2 s a GiB to make, and a chunk of its own serves one length alone. It is mapped by one call for each
 * part. So they are made only where memory moves beside what runs, because what leaves there comes back before it has
 * been mapped, as a rule (migrate.c). If the mode changes, those that exist remain.
 *
 * A compound chunk belongs to a piece, or to a migration. It is never warm: chunk_put() puts its parts into the store.
 *
 * Measured in the replay model, a GPT with sequences of another length in each step, at 1.5 times the budget, and 0.2
 * ms for each MiB that is pinned: chunks of one length each pin 7.9 GiB, and the steps 10 to 19 take 122 ms, the first
 * nine 264; with parts of up to 32 MiB 4.8 GiB, 107 and 222 ms; of up to 16 MiB 4.5 GiB, 107 and 213; nothing pinned
 * 106 and 120.
 */

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

/* ---- the driver's mapping calls ---- */

/*
 * Calls that change mappings, counted and timed. They cost the mover more time than the bytes do
 * (docs/facts.md, Mapping). Locking: the caller holds HEAP or no lock.
 */

/* Maps a whole chunk at an address. No device has access yet. */
CUresult map_chunk(CUdeviceptr at, uint64_t bytes, CUmemGenericAllocationHandle handle);
/*
 * Grants access to the devices in these bits, or revokes it, in one call. Must never grant access to the host location:
 * a mapping that is half device, half host, with such access makes real drivers crash (docs/facts.md, Host access).
 */
CUresult map_allow(CUdeviceptr at, uint64_t bytes, uint64_t devices, bool allow);
CUresult map_remove(CUdeviceptr at, uint64_t bytes);

#endif
