/*
 * chunk.h: physical memory. A chunk is one physical allocation (cuMemCreate), the unit of mapping and of moving.
 *
 * Owner: the block that has it, from chunk_get() to chunk_put(); between the two calls a chunk lies warm in the store,
 * still charged to its budget. Lock: HEAP. Sizes are powers of two of 2 MiB up to 128 MiB (facts 2: cost is per chunk
 * far more than per byte, and a handle cannot be split).
 */
#ifndef SPILLWAY_CHUNK_H
#define SPILLWAY_CHUNK_H

#include "shim/heap/heap.h"

enum chunk_place {
	CHUNK_DEVICE,
	CHUNK_HOST,
	CHUNK_PLACES, /* must be last */
};

#define CHUNK_ORDERS 7 /* 2 MiB << order */

struct chunk {
	CUmemGenericAllocationHandle handle;
	uint8_t order, place;
	struct chunk *next; /* the next of its block, or of the warm list */
};

struct chunk_store {
	CUdevice device;
	bool usable[CHUNK_PLACES];
	CUmemLocation location[CHUNK_PLACES];
	struct budget *budget[CHUNK_PLACES];
	struct chunk *warm[CHUNK_PLACES][CHUNK_ORDERS];
	uint64_t warm_bytes[CHUNK_PLACES], made_bytes[CHUNK_PLACES]; /* of all chunks that exist, made >= warm */
};

static inline uint64_t chunk_bytes(unsigned order)
{
	return (uint64_t)HEAP_UNIT << order;
}

/* A chunk of that order: warm, or new under the budget. NO_MEMORY: over the budget, or the driver has none. */
enum sw_status chunk_get(struct chunk_store *store, enum chunk_place place, unsigned order, struct chunk **ret_chunk);
/* Back to the store, unmapped. */
void chunk_put(struct chunk_store *store, struct chunk *chunk);
/* Release warm chunks to the driver until at most keep bytes are warm. What the driver refuses to take stays. */
void chunk_trim(struct chunk_store *store, enum chunk_place place, uint64_t keep);

#endif
