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
 * chunk_get() to chunk_put(); otherwise the chunk is warm or refused in the store, still charged to its budget.
 */
#ifndef SPILLWAY_CHUNK_H
#define SPILLWAY_CHUNK_H

#include "shim/heap/heap.h"
#include "shim/base/range.h"
#include "shim/plan/piece_sizes.h"

struct block;

struct chunk {
	CUmemGenericAllocationHandle handle;
	CUdeviceptr alias; /* 0: none yet */
	uint8_t units, place, kind;
	uint8_t lender;  /* place is CHUNK_PEER: index into the store's lenders */
	bool moving;     /* being migrated (migration.h) */
	bool shut;       /* the alias is mapped without access, because the driver refused both access and unmapping */
	bool exportable; /* was made to be exported as a file descriptor */
	bool unbacked;   /* has no physical memory; place is CHUNK_HOST */
	struct chunk *parts; /* of a compound chunk (compound.h), which has no handle and no alias itself; else NULL */
	struct block *block; /* the block in which it is mapped; NULL while warm */
	struct chunk *next;  /* next in its block, in the warm list or among the refused */
};

struct chunk_store {
	CUdevice device;
	unsigned n_lenders;
	struct lender *lenders[HEAP_LENDERS];
	const _Atomic uint64_t *peers; /* of heap_config */
	bool usable[CHUNK_PLACES];
	/* For device and host only; peers have theirs in `lenders`. */
	CUmemLocation location[CHUNK_PLACES];
	struct budget *budget[CHUNK_PLACES];
	bool rdma, exportable; /* fixed chunks: what the device supports */
	bool share;            /* movable chunks must be exportable, too */
	/* time (ns) when the driver last had no device memory within the budget; 0: it has had some since */
	_Atomic uint64_t full;
	struct chunk *warm[CHUNK_KINDS][CHUNK_PLACES][CHUNK_MOST + 1];
	struct chunk *refused; /* dropped, but the driver has refused to release them */
	/* warm chunks; all chunks that exist, made >= warm */
	uint64_t warm_bytes[CHUNK_PLACES], made_bytes[CHUNK_PLACES];
	CUdeviceptr alias_base; /* 0 until the first chunk moves */
	uint64_t alias_bytes;
	struct range_set alias_units;
};

static inline uint64_t chunk_bytes(unsigned units)
{
	return (uint64_t)units * HEAP_UNIT;
}

/* Returns bits: the peers to which a mapping that is made now must be opened. */
static inline uint64_t chunk_peers(const struct chunk_store *store)
{
	return store->peers ? atomic_load(store->peers) : 0;
}

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
/* Returns a chunk of that size, warm or new. Returns NO_MEMORY if the budget or the driver has none. */
enum sw_status chunk_get(struct chunk_store *store, enum chunk_kind kind, enum chunk_place place, unsigned units,
			 struct chunk **ret_chunk);
/*
 * The same in two steps, because pinning host memory takes long (0.2 s a GiB): chunk_make() makes a new chunk within
 * the budget, without HEAP; chunk_join(), under HEAP, adds it to the store's figures.
 */
enum sw_status chunk_make(struct chunk_store *store, enum chunk_kind kind, enum chunk_place place, unsigned units,
			  struct chunk **ret_chunk);
/* As chunk_make(), on one given peer. The caller must call chunk_join() as well. */
enum sw_status chunk_make_lent(struct chunk_store *store, enum chunk_kind kind, unsigned lender, unsigned units,
			       struct chunk **ret_chunk);
void chunk_join(struct chunk_store *store, struct chunk *chunk);
/* Returns a new unbacked movable chunk, charged to the host budget. Returns NO_MEMORY if that has no room. */
enum sw_status chunk_make_unbacked(struct chunk_store *store, unsigned units, struct chunk **ret_chunk);
/*
 * Makes the memory of an unbacked chunk, which is still unbacked for others until the caller says so. Returns an error
 * if the driver has none. Locking: none; the caller must own the chunk.
 */
enum sw_status chunk_back(struct chunk_store *store, struct chunk *chunk);
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
/* Frees the alias space. The store must hold no chunk any more. */
void chunk_store_fini(struct chunk_store *store);

#endif
