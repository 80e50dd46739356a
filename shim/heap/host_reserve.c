/*
 * The host reserve: host memory that is pinned before it is needed. Pinning takes 0.2 s a GiB, and an evicted piece
 * needs a chunk of its size. Where sizes vary from step to step, as in a GPT with sequences of varying length, memory
 * was still pinned in the 25th step, in gaps of 120 ms instead of 30. Measured (H200). So for each size that is in use
 * on the device, some chunks are kept ready, in proportion: the next evictions are a sample of what is resident.
 */
#include "shim/heap/heap_internal.h"
#include "shim/heap/compound.h"
#include "shim/heap/migration.h"
#include "shim/heap/spare.h"
#include "shim/accounting/quota.h"

#include <string.h>

struct census {
	const struct heap *heap;
	uint32_t here[CHUNK_MOST + 1]; /* what resident pieces need that may be evicted, by units */
	uint64_t here_bytes;
	uint32_t ready[CHUNK_MOST + 1]; /* unused chunks of host memory, by units */
	uint32_t whole[CHUNK_MOST + 1]; /* those of them that no piece has been found for yet */
	uint64_t ready_bytes;
};

static void count_here(void *argument, uint32_t piece)
{
	struct census *census = argument;
	const struct chunk *chunk = census->heap->store.arena.states[piece].chunk;

	if (chunk->place != CHUNK_DEVICE || block_keeps(chunk->block, CHUNK_DEVICE))
		return;
	/* A chunk of its own length is taken before parts are (spare_warm_host). */
	bool whole = !block_takes_parts(&census->heap->store) || census->whole[chunk->units];
	if (census->whole[chunk->units])
		census->whole[chunk->units]--;
	for (unsigned left = chunk->units, part; left; left -= part) {
		part = whole ? left : compound_part(left);
		census->here[part]++;
	}
	census->here_bytes += chunk_bytes(chunk->units);
}

static void count_ready(struct census *census, const struct chunk *chunk)
{
	for (; chunk; chunk = chunk->next) {
		if (chunk->place != CHUNK_HOST || chunk->kind != CHUNK_MOVABLE)
			continue;
		if (chunk->parts) {
			count_ready(census, chunk->parts);
			continue;
		}
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
 * Returns the size, in units, of which most bytes are missing for a reserve of `bytes`, if that many more than `ready`
 * are within `limit`; 0 if none is.
 */
static unsigned most_missing(const struct census *census, uint64_t bytes, uint64_t ready, uint64_t limit)
{
	uint64_t most = 0;
	unsigned found = 0;

	for (unsigned units = 1; units <= CHUNK_MOST; units++) {
		uint64_t share = census->here[units] ? predict_score_of(census, units, bytes) : 0;
		uint64_t missing = share > census->ready[units] ? (share - census->ready[units]) * units : 0;

		if (missing > most && ready + chunk_bytes(units) <= limit) {
			most = missing;
			found = units;
		}
	}
	return found;
}

/*
 * Limits the reserve to this multiple of `bytes`: with many sizes, one chunk of each would be much more than is
 * evicted.
 */
#define READY_TIMES 2

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
	return atomic_load(&heap->n_stocking) != 0;
}

static void take_census(struct heap *heap, struct census *census)
{
	heap_enter(heap);
	count_free(census, &heap->store);
	heap_leave(heap);
	memcpy(census->whole, census->ready, sizeof(census->whole));
	heap_pieces(heap, count_here, census);
}

static enum sw_status pin_one(struct heap *heap, unsigned units)
{
	atomic_fetch_add(&heap->n_stocking, 1);
	enum sw_status status = spare_pin(heap, units);
	atomic_fetch_sub(&heap->n_stocking, 1);
	return status;
}

static enum sw_status fill(struct heap *heap, uint64_t bytes, uint64_t most_ready)
{
	/* Idle memory beyond `keep` would go back to the driver when unused (heap_lock.c). */
	uint64_t keep = heap->keep[CHUNK_HOST], limit = most_ready < keep ? most_ready : keep;
	struct census census = {.heap = heap};

	take_census(heap, &census);
	unsigned units = census.here_bytes ? most_missing(&census, bytes, census.ready_bytes, limit) : 0;
	return units ? pin_one(heap, units) : SW_INVALID;
}

enum sw_status heap_fill_host_reserve(struct heap *heap, uint64_t bytes)
{
	return bytes && is_wanted(heap, bytes) ? fill(heap, bytes, READY_TIMES * bytes) : SW_INVALID;
}

enum sw_status heap_fill_host_ahead(struct heap *heap, uint64_t bytes)
{
	return bytes && !heap_peer_has(heap, bytes) && !quota_is_asked() ? fill(heap, bytes, bytes) : SW_INVALID;
}

/* ---- pinning ahead for all that may leave (the policy's host.pin_ahead) ---- */

/* Returns the bytes that are ready and of a size of which more are not needed for a reserve of `bytes`. */
static uint64_t count_useful(const struct census *census, uint64_t bytes)
{
	uint64_t useful = 0;

	for (unsigned units = 1; units <= CHUNK_MOST; units++) {
		uint64_t share = census->here[units] ? predict_score_of(census, units, bytes) : 0;
		uint64_t ready = census->ready[units];

		useful += (ready < share ? ready : share) * chunk_bytes(units);
	}
	return useful;
}

/*
 * Gives one chunk back to the driver of which there are more than a reserve of `bytes` needs: the sizes on the device
 * have changed. Returns false if the surplus is in free blocks only, or the driver refuses.
 */
static bool drop_surplus(struct heap *heap, const struct census *census, uint64_t bytes)
{
	struct chunk_store *store = &heap->store.chunks;
	bool dropped = false;

	heap_enter(heap);
	for (unsigned units = CHUNK_MOST; units && !dropped; units--) {
		uint64_t share = census->here[units] ? predict_score_of(census, units, bytes) : 0;

		dropped = census->ready[units] > share && chunk_release_warm(store, CHUNK_MOVABLE, CHUNK_HOST, units);
	}
	heap_leave(heap);
	return dropped;
}

enum sw_status heap_pin_ahead(struct heap *heap, uint64_t most)
{
	struct census census = {.heap = heap};

	take_census(heap, &census);
	uint64_t bytes = census.here_bytes < most ? census.here_bytes : most;
	heap_enter(heap);
	heap->ahead = bytes;
	heap_leave(heap);
	uint64_t useful = bytes ? count_useful(&census, bytes) : 0;
	unsigned units = bytes ? most_missing(&census, bytes, useful, bytes) : 0;
	if (!units || quota_is_asked())
		return SW_INVALID;
	if (census.ready_bytes + chunk_bytes(units) > bytes)
		return drop_surplus(heap, &census, bytes) ? SW_OK : SW_INVALID;
	return chunk_left(&heap->store.chunks, CHUNK_HOST) >= chunk_bytes(units) ? pin_one(heap, units) : SW_INVALID;
}
