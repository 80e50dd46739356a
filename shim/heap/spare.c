/*
 * Spares: the memory that a piece moves to (spare.h). Finds a warm chunk, or makes one, on the heap's device, on a peer or
 * on the host.
 */
#include "shim/heap/migration.h"
#include "shim/heap/spare.h"

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
	struct chunk *chunk = spare_warm(store, CHUNK_HOST, units, in_place);

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
	return chunk || peer_has_more(heap, units) ? chunk : spare_warm(store, CHUNK_HOST, units, in_place);
}

/* ---- making ---- */

/* Nonresident memory is made without the lock, because pinning takes long. */
static enum sw_status make_away(struct heap *heap, unsigned units, bool lend, struct chunk **ret_chunk)
{
	struct chunk_store *store = &heap->store.chunks;
	enum sw_status status = SW_NO_MEMORY;

	if (lend && peer_has_more(heap, units))
		status = chunk_make(store, CHUNK_MOVABLE, CHUNK_PEER, units, ret_chunk);
	return status == SW_OK ? status : chunk_make(store, CHUNK_MOVABLE, CHUNK_HOST, units, ret_chunk);
}

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

/* lend: if nonresident, try a peer first. */
static enum sw_status make_spare(struct heap *heap, enum chunk_place place, unsigned units, bool lend)
{
	enum sw_status status = SW_NO_MEMORY;
	struct chunk *chunk;

	if (place != CHUNK_DEVICE && free_spare(heap, units, lend))
		return SW_OK;
	if (place != CHUNK_DEVICE)
		status = make_away(heap, units, lend, &chunk);
	heap_enter(heap);
	if (status == SW_OK) {
		chunk_join(&heap->store.chunks, chunk);
	} else {
		if (place != CHUNK_DEVICE && lend && !heap->no_peers)
			status = make_of_others(heap, CHUNK_PEER, units, &chunk);
		if (status != SW_OK)
			status = make_of_others(heap, place, units, &chunk);
	}
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
