/*
 * The host reserve: host memory that is pinned before it is needed. Pinning takes 0.2 s a GiB, and an evicted piece
 * needs a chunk of its size. Where sizes vary from step to step, as in a GPT with sequences of varying length, memory
 * was still pinned in the 25th step, in gaps of 120 ms instead of 30. Measured (H200). So for each size that is in use
 * on the device, some chunks are kept ready, in proportion: the next evictions are a sample of what is resident.
 */
#include "shim/heap/heap_internal.h"
#include "shim/heap/migration.h"
#include "shim/accounting/quota.h"

struct census {
	const struct heap *heap;
	uint32_t here[CHUNK_MOST + 1]; /* resident pieces that may be evicted, by units */
	uint64_t here_bytes;
	uint32_t ready[CHUNK_MOST + 1]; /* unused chunks of host memory, by units */
	uint64_t ready_bytes;
};

static void count_here(void *argument, uint32_t piece)
{
	struct census *census = argument;
	const struct chunk *chunk = census->heap->store.arena.states[piece].chunk;

	if (chunk->place != CHUNK_DEVICE || block_keeps(chunk->block, CHUNK_DEVICE))
		return;
	census->here[chunk->units]++;
	census->here_bytes += chunk_bytes(chunk->units);
}

static void count_ready(struct census *census, const struct chunk *chunk)
{
	for (; chunk; chunk = chunk->next) {
		if (chunk->place != CHUNK_HOST || chunk->kind != CHUNK_MOVABLE)
			continue;
		census->ready[chunk->units]++;
		census->ready_bytes += chunk_bytes(chunk->units);
	}
}

/* Counts free blocks, too, because evictions take them down for their chunks. */
static void count_free(struct census *census, const struct block_store *store)
{
	for (unsigned units = 1; units <= CHUNK_MOST; units++)
		count_ready(census, store->chunks.warm[CHUNK_MOVABLE][CHUNK_HOST][units]);
	for (const struct block *block = store->oldest; block; block = block->age_prev)
		count_ready(census, block->chunks);
}

/*
 * Returns how many chunks of a size are to be ready, if `bytes` in all are: at least one, and no more than could be
 * evicted.
 */
static uint64_t predict_score_of(const struct census *census, unsigned units, uint64_t bytes)
{
	uint64_t share = (uint64_t)((double)bytes * (double)census->here[units] / (double)census->here_bytes) + 1;

	return share < census->here[units] ? share : census->here[units];
}

/*
 * Limits the reserve to this multiple of `bytes`: with many sizes, one chunk of each would be much more than is
 * evicted.
 */
#define READY_TIMES 2

/* Returns the size, in units, of which most bytes are missing; 0 if none is. */
static unsigned most_missing(const struct census *census, uint64_t bytes)
{
	/* Idle memory beyond `keep` would go back to the driver when unused (heap_lock.c). */
	uint64_t keep = census->heap->keep[CHUNK_HOST], twice = READY_TIMES * bytes,
		 limit = twice < keep ? twice : keep;
	uint64_t most = 0;
	unsigned found = 0;

	for (unsigned units = 1; units <= CHUNK_MOST; units++) {
		uint64_t share = census->here[units] ? predict_score_of(census, units, bytes) : 0;
		uint64_t missing = share > census->ready[units] ? (share - census->ready[units]) * units : 0;

		if (missing > most && census->ready_bytes + chunk_bytes(units) <= limit) {
			most = missing;
			found = units;
		}
	}
	return found;
}

/*
 * The host budget must have this multiple of `bytes` left: memory that is pinned now may be needed for other sizes, or
 * by other processes.
 */
#define ROOM_TIMES 4

/* Evictions go to peers first, so no reserve is needed while one has room. */
static bool is_wanted(const struct heap *heap, uint64_t bytes)
{
	return !heap_peer_has(heap, bytes) && chunk_left(&heap->store.chunks, CHUNK_HOST) / ROOM_TIMES >= bytes &&
	       !quota_is_asked();
}

bool heap_is_filling_host_reserve(const struct heap *heap)
{
	return atomic_load(&heap->is_stocking);
}

enum sw_status heap_fill_host_reserve(struct heap *heap, uint64_t bytes)
{
	struct chunk_store *store = &heap->store.chunks;
	struct census census = {.heap = heap};
	struct chunk *chunk;

	if (!bytes || !is_wanted(heap, bytes))
		return SW_INVALID;
	heap_pieces(heap, count_here, &census);
	heap_enter(heap);
	count_free(&census, &heap->store);
	heap_leave(heap);
	unsigned units = census.here_bytes ? most_missing(&census, bytes) : 0;
	if (!units)
		return SW_INVALID;
	/* No lock is held, because pinning takes long. */
	atomic_store(&heap->is_stocking, true);
	enum sw_status status = chunk_make(store, CHUNK_MOVABLE, CHUNK_HOST, units, &chunk);
	if (status == SW_OK) {
		heap_enter(heap);
		chunk_join(store, chunk);
		/* If this fails, the chunk gets its alias when it is taken. */
		chunk_give_alias(store, chunk);
		chunk_put(store, chunk);
		heap_leave(heap);
	}
	atomic_store(&heap->is_stocking, false);
	return status;
}
