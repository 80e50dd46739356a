/*
 * Host memory that is pinned before it is needed. Pinning takes 0.2 s a GiB, and what leaves the device needs
 * host memory of its own size: where sizes vary from step to step, as in a GPT whose sequences do, some was pinned even
 * in the 25th step, in gaps of 120 ms instead of 30 (H200). So of each size there is in use on the device some lies
 * ready, in proportion: the next to leave are a sample of what is there.
 */
#include "shim/heap/heap_internal.h"
#include "shim/heap/migration.h"
#include "shim/accounting/quota.h"

struct census {
	const struct heap *heap;
	uint32_t here[CHUNK_MOST + 1]; /* pieces on the device that may leave, by units */
	uint64_t here_bytes;
	uint32_t ready[CHUNK_MOST + 1]; /* chunks of host memory that nothing uses */
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

/* Free blocks are taken down for what leaves. */
static void count_free(struct census *census, const struct block_store *store)
{
	for (unsigned units = 1; units <= CHUNK_MOST; units++)
		count_ready(census, store->chunks.warm[CHUNK_MOVABLE][CHUNK_HOST][units]);
	for (const struct block *block = store->oldest; block; block = block->age_prev)
		count_ready(census, block->chunks);
}

/* How many of a size are to lie ready, of so many bytes in all. At least one, and no more than could leave. */
static uint64_t predict_score_of(const struct census *census, unsigned units, uint64_t bytes)
{
	uint64_t share = (uint64_t)((double)bytes * (double)census->here[units] / (double)census->here_bytes) + 1;

	return share < census->here[units] ? share : census->here[units];
}

/* Of many sizes one of each would be much more than what leaves. */
#define READY_TIMES 2

/* The size of which most is missing; 0: of none. */
static unsigned most_missing(const struct census *census, uint64_t bytes)
{
	/* What is beyond that goes back when nobody has needed it (heap_lock.c). */
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

/* What leaves goes to peers first. And what is pinned now may be needed for other sizes, or by others. */
#define ROOM_TIMES 4

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
	/* No lock is held: pinning takes long. */
	atomic_store(&heap->is_stocking, true);
	enum sw_status status = chunk_make(store, CHUNK_MOVABLE, CHUNK_HOST, units, &chunk);
	if (status == SW_OK) {
		heap_enter(heap);
		chunk_join(store, chunk);
		/* Without one now it gets it when it is taken. */
		chunk_give_alias(store, chunk);
		chunk_put(store, chunk);
		heap_leave(heap);
	}
	atomic_store(&heap->is_stocking, false);
	return status;
}
