// SPDX-License-Identifier: Apache-2.0
/*
 * Spares: the memory that a piece moves to. Finds a warm chunk, or makes one, on the heap's device, on a peer
 * or on the host.
 */
#include "shim/accounting/quota.h"
#include "shim/heap/block.h"
#include "shim/heap/migration.h"

#include <string.h>

/* ---- finding ---- */

enum sw_status spare_give_alias(struct chunk_store *store, struct chunk *chunk, bool in_place)
{
	return in_place && chunk->place == CHUNK_DEVICE ? SW_OK : chunk_give_alias(store, chunk);
}

/* Takes a warm movable chunk of that size, with an alias; NULL if there is none. */
static struct chunk *spare_warm(struct chunk_store *store, enum chunk_place place, unsigned units, bool in_place)
{
	struct chunk *chunk = store->warm[CHUNK_MOVABLE][place][units];

	/* Chunks in warm blocks are not on this list; heap_make_spare() finds those. */
	if (!chunk || spare_give_alias(store, chunk, in_place) != SW_OK)
		return NULL;
	return chunk_take_warm(store, CHUNK_MOVABLE, place, units);
}

struct chunk *spare_warm_host(struct heap *heap, unsigned units)
{
	struct chunk_store *store = &heap->store.chunks;
	struct chunk *chunk = spare_warm(store, CHUNK_HOST, units, false);

	return chunk || !block_takes_parts(&heap->store) ? chunk : compound_take(store, units);
}

/* Takes a warm chunk on a peer that does not want memory back. */
static struct chunk *warm_on_peer(struct chunk_store *store, unsigned units, bool in_place)
{
	const struct chunk *first = store->warm[CHUNK_MOVABLE][CHUNK_PEER][units];

	return first && !chunk_is_wanted(store, first) ? spare_warm(store, CHUNK_PEER, units, in_place) : NULL;
}

/*
 * Returns whether one peer can lend `bytes` more for evictions, and heap_lend() allows it. While that is so but nothing
 * of the peer is warm, no spare is returned, so that the caller asks heap_make_spare(): memory of a peer is preferred
 * to warm memory of the host.
 */
static bool peer_has(const struct heap *heap, uint64_t bytes)
{
	const struct chunk_store *store = &heap->store.chunks;

	return !heap->no_peers && store->usable[CHUNK_PEER] && chunk_left(store, CHUNK_PEER) >= bytes;
}

/*
 * What the program wants on the host goes to a peer only if the host is full, and not from one that it may stay on: it
 * would be moved again and again.
 */
static struct chunk *find_host_spare(struct heap *heap, const struct chunk *from, bool in_place)
{
	struct chunk_store *store = &heap->store.chunks;
	struct chunk *chunk = spare_warm_host(heap, from->units);
	bool stays = from->place == CHUNK_PEER && !chunk_is_wanted(store, from);

	if (chunk || heap->no_peers || stays || chunk_left(store, CHUNK_HOST) >= chunk_bytes(from->units))
		return chunk;
	return warm_on_peer(store, from->units, in_place);
}

struct chunk *spare_find(struct heap *heap, const struct chunk *from, enum chunk_place to, bool in_place)
{
	struct chunk_store *store = &heap->store.chunks;
	struct chunk *chunk = NULL;
	unsigned units = from->units;

	if (to == CHUNK_DEVICE)
		return spare_warm(store, CHUNK_DEVICE, units, in_place);
	if (from->block->to_host)
		return find_host_spare(heap, from, in_place);
	if (!heap->no_peers)
		chunk = warm_on_peer(store, units, in_place);
	return chunk || peer_has(heap, chunk_bytes(units)) ? chunk : spare_warm_host(heap, units);
}

/* ---- making ---- */

/* Frees a chunk of a warm block on the host, before more memory is pinned; not while a peer has room. */
static bool free_spare(struct heap *heap, unsigned units, bool lend)
{
	lock_take(&heap->lock);
	bool freed = !(lend && peer_has(heap, chunk_bytes(units))) &&
		     block_free_chunk(&heap->store, CHUNK_MOVABLE, CHUNK_HOST, units);
	heap_leave(heap);
	return freed;
}

/* Makes a warm chunk in exchange for warm memory of other sizes, which is not released if it is not enough. */
static enum sw_status make_of_others(struct heap *heap, enum chunk_place place, unsigned units)
{
	struct block_store *store = &heap->store;
	enum sw_status status = SW_NO_MEMORY;
	struct chunk *chunk;

	lock_take(&heap->lock);
	if (block_idle(store, place) + chunk_left(&store->chunks, place) >= chunk_bytes(units))
		status = block_get_chunk(store, CHUNK_MOVABLE, place, units, &chunk);
	if (status == SW_OK)
		chunk_put(&store->chunks, chunk);
	heap_leave(heap);
	return status;
}

/*
 * Makes a warm movable chunk within the budget; of the host with an alias, if it can be had. Locking: takes HEAP, but
 * not while memory is made, because pinning takes long.
 */
static enum sw_status make_new(struct heap *heap, enum chunk_place place, unsigned units)
{
	struct chunk_store *store = &heap->store.chunks;
	const struct chunk like = {.units = (uint8_t)units, .place = (uint8_t)place, .kind = CHUNK_MOVABLE};
	struct chunk *chunk;
	enum sw_status status =
	    place == CHUNK_PEER ? chunk_make_lent(store, &like, &chunk) : chunk_make(store, &like, &chunk);

	if (status != SW_OK)
		return status;
	lock_take(&heap->lock);
	chunk_join(store, chunk);
	/* If this fails, the chunk gets its alias when it is taken. */
	if (place == CHUNK_HOST)
		chunk_give_alias(store, chunk);
	chunk_put(store, chunk);
	heap_leave(heap);
	return SW_OK;
}

/*
 * Returns the length of what must be pinned for a piece of so many units: all of it, or a part that a compound chunk
 * lacks and that no warm block has; 0 if nothing is missing. Returns all of it, too, if there is no room for it in
 * parts.
 */
static unsigned to_pin(struct heap *heap, unsigned units)
{
	struct block_store *store = &heap->store;
	unsigned missing = units;

	lock_take(&heap->lock);
	if (block_takes_parts(store) &&
	    block_idle(store, CHUNK_HOST) + chunk_left(&store->chunks, CHUNK_HOST) >= chunk_bytes(units))
		do
			missing = compound_missing(&store->chunks, units);
		while (missing && block_free_chunk(store, CHUNK_MOVABLE, CHUNK_HOST, missing));
	heap_leave(heap);
	return missing;
}

/* A piece has no more than 7 parts, but what one is made of may be another. */
#define PARTS_TRIED 12

static enum sw_status make_on_host(struct heap *heap, unsigned units)
{
	for (unsigned tries = 0; tries < PARTS_TRIED; tries++) {
		unsigned missing = to_pin(heap, units);
		enum sw_status status = missing ? make_new(heap, CHUNK_HOST, missing) : SW_OK;

		if (!missing || missing == units)
			return status;
		/* Where the budget is full, a part is made in exchange for warm memory of other lengths. */
		if (status == SW_NO_MEMORY)
			status = make_of_others(heap, CHUNK_HOST, missing);
		if (status != SW_OK)
			return status;
	}
	return SW_NO_MEMORY;
}

enum sw_status heap_make_spare(struct heap *heap, enum chunk_place place, unsigned units, bool lend)
{
	if (place != CHUNK_DEVICE) {
		if (free_spare(heap, units, lend) ||
		    (lend && peer_has(heap, chunk_bytes(units)) && make_new(heap, CHUNK_PEER, units) == SW_OK) ||
		    make_on_host(heap, units) == SW_OK ||
		    (lend && !heap->no_peers && make_of_others(heap, CHUNK_PEER, units) == SW_OK))
			return SW_OK;
	}
	return make_of_others(heap, place, units);
}

/* ---- the host reserve ---- */

/*
 * Host memory that is pinned before it is needed. Pinning takes 0.2 s a GiB, and an evicted piece
 * needs a chunk of its size. Where sizes vary from step to step, as in a GPT with sequences of varying length, memory
 * was still pinned in the 25th step, in gaps of 120 ms instead of 30. Measured (H200). So for each size that is in use
 * on the device, some chunks are kept ready, in proportion: the next evictions are a sample of what is resident.
 */

struct census {
	const struct heap *heap;
	uint32_t here[CHUNK_MOST + 1]; /* what resident pieces need that may be evicted, by units */
	uint64_t here_bytes;
	uint32_t ready[CHUNK_MOST + 1]; /* unused chunks of host memory, by units */
	uint32_t whole[CHUNK_MOST + 1]; /* those of them that no piece has been found for yet */
	uint64_t ready_bytes;
	uint64_t keep; /* idle host memory beyond this goes back to the driver when unused (heap.c) */
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

/*
 * Returns how many chunks of a size are to be ready, if `bytes` in all are: at least one, and no more than could be
 * evicted.
 */
static uint64_t share_of(const struct census *census, unsigned units, uint64_t bytes)
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
		uint64_t share = share_of(census, units, bytes);
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

static void take_census(struct heap *heap, struct census *census)
{
	lock_take(&heap->lock);
	for (unsigned units = 1; units <= CHUNK_MOST; units++)
		count_ready(census, heap->store.chunks.warm[CHUNK_MOVABLE][CHUNK_HOST][units]);
	/* Free blocks, too, because evictions take them down for their chunks. */
	for (const struct block *block = heap->store.oldest; block; block = block->age_prev)
		count_ready(census, block->chunks);
	census->keep = heap->keep[CHUNK_HOST];
	heap_leave(heap);
	memcpy(census->whole, census->ready, sizeof(census->whole));
	heap_pieces(heap, count_here, census);
}

static enum sw_status pin_one(struct heap *heap, unsigned units)
{
	atomic_fetch_add(&heap->n_pinning, 1);
	enum sw_status status = make_new(heap, CHUNK_HOST, units);
	atomic_fetch_sub(&heap->n_pinning, 1);
	return status;
}

static enum sw_status fill(struct heap *heap, uint64_t bytes, uint64_t most_ready)
{
	struct census census = {.heap = heap};

	take_census(heap, &census);
	uint64_t limit = most_ready < census.keep ? most_ready : census.keep;
	unsigned units = census.here_bytes ? most_missing(&census, bytes, census.ready_bytes, limit) : 0;
	return units ? pin_one(heap, units) : SW_INVALID;
}

enum sw_status heap_fill_host_reserve(struct heap *heap, uint64_t bytes)
{
	/* Evictions go to peers first, so no reserve is needed while one has room. */
	bool wanted = bytes && !peer_has(heap, bytes) && !quota_is_asked() &&
		      chunk_left(&heap->store.chunks, CHUNK_HOST) / ROOM_TIMES >= bytes;

	return wanted ? fill(heap, bytes, READY_TIMES * bytes) : SW_INVALID;
}

enum sw_status heap_fill_host_ahead(struct heap *heap, uint64_t bytes)
{
	return bytes && !peer_has(heap, bytes) && !quota_is_asked() ? fill(heap, bytes, bytes) : SW_INVALID;
}

/* ---- pinning ahead for all that may leave (the policy's host.pin_ahead) ---- */

/* Returns the bytes that are ready and of a size of which more are not needed for a reserve of `bytes`. */
static uint64_t count_useful(const struct census *census, uint64_t bytes)
{
	uint64_t useful = 0;

	for (unsigned units = 1; units <= CHUNK_MOST; units++) {
		uint64_t share = share_of(census, units, bytes);
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

	lock_take(&heap->lock);
	for (unsigned units = CHUNK_MOST; units && !dropped; units--) {
		uint64_t share = share_of(census, units, bytes);

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
	lock_take(&heap->lock);
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
