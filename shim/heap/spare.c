/*
 * Spares: the memory that a piece moves to (spare.h). Finds a warm chunk, or makes one, on the heap's device, on a peer
 * or on the host.
 */
#include "shim/heap/migration.h"
#include "shim/heap/spare.h"
#include "shim/heap/compound.h"

/* ---- finding ---- */

enum sw_status spare_give_alias(struct chunk_store *store, struct chunk *chunk, bool in_place)
{
	return in_place && chunk->place == CHUNK_DEVICE ? SW_OK : chunk_give_alias(store, chunk);
}

struct chunk *spare_warm(struct chunk_store *store, enum chunk_place place, unsigned units, bool in_place)
{
	struct chunk *chunk = store->warm[CHUNK_MOVABLE][place][units];

	/* Chunks in warm blocks are not on this list; heap_make_spare() finds those. */
	if (!chunk || spare_give_alias(store, chunk, in_place) != SW_OK)
		return NULL;
	store->warm[CHUNK_MOVABLE][place][units] = chunk->next;
	store->warm_bytes[place] -= chunk_bytes(units);
	chunk->next = NULL;
	return chunk;
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

bool heap_peer_has(const struct heap *heap, uint64_t bytes)
{
	const struct chunk_store *store = &heap->store.chunks;

	return !heap->no_peers && store->usable[CHUNK_PEER] && chunk_left(store, CHUNK_PEER) >= bytes;
}

/*
 * While a peer lends more but has nothing warm, no spare is returned, so that the caller asks heap_make_spare(): memory
 * of a peer is preferred to warm memory of the host.
 */
static bool peer_has_more(const struct heap *heap, unsigned units)
{
	return heap_peer_has(heap, chunk_bytes(units));
}

/* What the program wants on the host goes to a peer only if the host is full. */
static struct chunk *find_host_spare(struct heap *heap, unsigned units, bool in_place)
{
	struct chunk_store *store = &heap->store.chunks;
	struct chunk *chunk = spare_warm_host(heap, units);

	if (chunk || heap->no_peers || chunk_left(store, CHUNK_HOST) >= chunk_bytes(units))
		return chunk;
	return warm_on_peer(store, units, in_place);
}

struct chunk *spare_find(struct heap *heap, const struct block *block, enum chunk_place to, unsigned units,
			 bool in_place)
{
	struct chunk_store *store = &heap->store.chunks;
	struct chunk *chunk = NULL;

	if (to == CHUNK_DEVICE)
		return spare_warm(store, CHUNK_DEVICE, units, in_place);
	if (block->to_host)
		return find_host_spare(heap, units, in_place);
	if (!heap->no_peers)
		chunk = warm_on_peer(store, units, in_place);
	return chunk || peer_has_more(heap, units) ? chunk : spare_warm_host(heap, units);
}

/* ---- making ---- */

/* Frees a chunk of a warm block on the host, before more memory is pinned; not while a peer has room. */
static bool free_spare(struct heap *heap, unsigned units, bool lend)
{
	heap_enter(heap);
	bool freed =
	    !(lend && peer_has_more(heap, units)) && block_free_chunk(&heap->store, CHUNK_MOVABLE, CHUNK_HOST, units);
	heap_leave(heap);
	return freed;
}

/* Makes a chunk in exchange for warm memory of other sizes, which is not released if it is not enough. */
static enum sw_status make_of_others(struct heap *heap, enum chunk_place place, unsigned units,
				     struct chunk **ret_chunk)
{
	struct block_store *store = &heap->store;

	if (block_idle(store, place) + chunk_left(&store->chunks, place) < chunk_bytes(units))
		return SW_NO_MEMORY;
	return block_get_chunk(store, CHUNK_MOVABLE, place, units, ret_chunk);
}

enum sw_status spare_pin(struct heap *heap, unsigned units)
{
	struct chunk_store *store = &heap->store.chunks;
	struct chunk *chunk;
	enum sw_status status = chunk_make(store, CHUNK_MOVABLE, CHUNK_HOST, units, &chunk);

	if (status != SW_OK)
		return status;
	heap_enter(heap);
	chunk_join(store, chunk);
	/* If this fails, the chunk gets its alias when it is taken. */
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

	heap_enter(heap);
	if (block_takes_parts(store) &&
	    block_idle(store, CHUNK_HOST) + chunk_left(&store->chunks, CHUNK_HOST) >= chunk_bytes(units))
		do
			missing = compound_missing(&store->chunks, units);
		while (missing && block_free_chunk(store, CHUNK_MOVABLE, CHUNK_HOST, missing));
	heap_leave(heap);
	return missing;
}

/* Where the budget is full, a part is made in exchange for warm memory of other lengths. */
static enum sw_status make_part(struct heap *heap, unsigned units)
{
	enum sw_status status = spare_pin(heap, units);
	struct chunk *chunk;

	if (status != SW_NO_MEMORY)
		return status;
	heap_enter(heap);
	status = make_of_others(heap, CHUNK_HOST, units, &chunk);
	if (status == SW_OK)
		chunk_put(&heap->store.chunks, chunk);
	heap_leave(heap);
	return status;
}

/* A piece has no more than 7 parts, but what one is made of may be another. */
#define PARTS_TRIED 12

static enum sw_status make_on_host(struct heap *heap, unsigned units)
{
	for (unsigned tries = 0; tries < PARTS_TRIED; tries++) {
		unsigned missing = to_pin(heap, units);
		enum sw_status status = missing == units ? spare_pin(heap, units)
					: missing        ? make_part(heap, missing)
							 : SW_OK;

		if (status != SW_OK || !missing || missing == units)
			return status;
	}
	return SW_NO_MEMORY;
}

/* lend: try a peer first. No lock is held while memory is made, because pinning takes long. */
static enum sw_status make_away(struct heap *heap, unsigned units, bool lend)
{
	struct chunk *chunk;

	if (!lend || !peer_has_more(heap, units) ||
	    chunk_make(&heap->store.chunks, CHUNK_MOVABLE, CHUNK_PEER, units, &chunk) != SW_OK)
		return make_on_host(heap, units);
	heap_enter(heap);
	chunk_join(&heap->store.chunks, chunk);
	chunk_put(&heap->store.chunks, chunk);
	heap_leave(heap);
	return SW_OK;
}

/* lend: if nonresident, try a peer first. */
static enum sw_status make_spare(struct heap *heap, enum chunk_place place, unsigned units, bool lend)
{
	enum sw_status status = SW_NO_MEMORY;
	struct chunk *chunk;

	if (place != CHUNK_DEVICE && (free_spare(heap, units, lend) || make_away(heap, units, lend) == SW_OK))
		return SW_OK;
	heap_enter(heap);
	if (place != CHUNK_DEVICE && lend && !heap->no_peers)
		status = make_of_others(heap, CHUNK_PEER, units, &chunk);
	if (status != SW_OK)
		status = make_of_others(heap, place, units, &chunk);
	if (status == SW_OK)
		chunk_put(&heap->store.chunks, chunk);
	heap_leave(heap);
	return status;
}

enum sw_status heap_make_spare(struct heap *heap, enum chunk_place place, unsigned units)
{
	return make_spare(heap, place, units, true);
}

enum sw_status heap_make_host_spare(struct heap *heap, unsigned units)
{
	return make_spare(heap, CHUNK_HOST, units, false);
}
