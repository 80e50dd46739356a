/*
 * chunk.h: physical memory. A chunk is one physical allocation (cuMemCreate), the unit of mapping and of moving.
 *
 * Owner: the block that has it, from chunk_get() to chunk_put(); between the two calls a chunk lies warm in the store,
 * still charged to its budget. Lock: HEAP. Sizes are multiples of 2 MiB up to 128 MiB (docs/facts.md,
 * Mapping: cost is per chunk far more than per byte, and a handle cannot be split).
 *
 * A chunk that has moved once also has an *alias*: a second address, in a reservation of our own, where the mover reads
 * and writes it whatever is mapped at the program's address. The alias lasts as long as the chunk.
 */
#ifndef SPILLWAY_CHUNK_H
#define SPILLWAY_CHUNK_H

#include "shim/heap/heap.h"
#include "shim/base/range.h"

#define CHUNK_MOST 64 /* units: 128 MiB */

struct block;

struct chunk {
	CUmemGenericAllocationHandle handle;
	CUdeviceptr alias; /* 0: none yet */
	uint8_t units, place, kind;
	uint8_t lender;      /* place is CHUNK_PEER: which of the store's */
	bool moving;         /* in transit (migration.h) */
	bool shut;           /* the alias could be made neither accessible nor go away, yet */
	bool exportable;     /* made to be exported as a file descriptor */
	struct block *block; /* that it is mapped for; NULL while warm */
	struct chunk *next;  /* the next of its block, or of the warm list */
};

struct chunk_store {
	CUdevice device;
	unsigned n_lenders;
	struct lender *lenders[HEAP_LENDERS];
	const _Atomic uint64_t *peers; /* heap_config */
	bool usable[CHUNK_PLACES];
	/* Of device and host; those of peers are their own. */
	CUmemLocation location[CHUNK_PLACES];
	struct budget *budget[CHUNK_PLACES];
	bool rdma, exportable; /* fixed chunks: what the device can do */
	bool share;            /* movable chunks are to be exportable, too */
	_Atomic uint64_t
	    full; /* ns: when the driver had no device memory, though the budget had; 0: since then it had */
	struct chunk *warm[CHUNK_KINDS][CHUNK_PLACES][CHUNK_MOST + 1];
	uint64_t warm_bytes[CHUNK_PLACES], made_bytes[CHUNK_PLACES]; /* of all chunks that exist, made >= warm */
	CUdeviceptr alias_base;                                      /* 0 until the first chunk moves */
	uint64_t alias_bytes;
	struct range_set alias_units;
};

static inline uint64_t chunk_bytes(unsigned units)
{
	return (uint64_t)units * HEAP_UNIT;
}

/* Bits: the other devices that a mapping made now is to be open to. */
static inline uint64_t chunk_peers(const struct chunk_store *store)
{
	return store->peers ? atomic_load(store->peers) : 0;
}

/*
 * Has the driver had no device memory for a chunk under the budget, less than a second ago? Others fill the device. Needs no
 * lock.
 */
bool chunk_is_full(const struct chunk_store *store);
/*
 * Bytes that may still be made at a place; none on a device that others fill; of peers what the one has that lends most,
 * for a chunk lies on one of them. Needs no lock.
 */
uint64_t chunk_left(const struct chunk_store *store, enum chunk_place place);
/* A chunk of that size: warm, or new under the budget. NO_MEMORY: over the budget, or the driver has none. */
enum sw_status chunk_get(struct chunk_store *store, enum chunk_kind kind, enum chunk_place place, unsigned units,
			 struct chunk **ret_chunk);
/*
 * In two steps, for pinning host memory takes long (0.2 s a GiB): a new chunk under the budget, without HEAP; then, with
 * it, the chunk becomes one of the store's.
 */
enum sw_status chunk_make(struct chunk_store *store, enum chunk_kind kind, enum chunk_place place, unsigned units,
			  struct chunk **ret_chunk);
/* On that peer, and no other. */
enum sw_status chunk_make_lent(struct chunk_store *store, enum chunk_kind kind, unsigned lender, unsigned units,
			       struct chunk **ret_chunk);
void chunk_join(struct chunk_store *store, struct chunk *chunk);
/* The chunk gets its alias, if it has none. NO_MEMORY, DRIVER: it stays without. */
enum sw_status chunk_give_alias(struct chunk_store *store, struct chunk *chunk);
/* Does the device that lends it want memory back (lender.h)? */
bool chunk_is_wanted(const struct chunk_store *store, const struct chunk *chunk);
/* Back to the store, unmapped. */
void chunk_put(struct chunk_store *store, struct chunk *chunk);
/* The same, and to the driver at once: it is not to be used again. What the driver refuses to take stays warm. */
void chunk_drop(struct chunk_store *store, struct chunk *chunk);
/* Release warm chunks to the driver until at most keep bytes are warm. What the driver refuses to take stays. */
void chunk_trim(struct chunk_store *store, enum chunk_place place, uint64_t keep);
/*
 * Release one warm chunk: the shortest that has as many units, else the longest there is. False: there is none, or the
 * driver takes none of them.
 */
bool chunk_release_one(struct chunk_store *store, enum chunk_place place, unsigned units);
/* The end of the store, which holds no chunk any more. */
void chunk_store_fini(struct chunk_store *store);

#endif
