/*
 * Builds blocks: collects chunks for all of a block, then maps them one behind the other. Decides the sizes of the
 * chunks and the order of the places that are tried. If a size cannot be had, smaller ones are tried, so that the
 * budget is used to the last 2 MiB before the host is (but see plan_search()). After a failure, the incomplete block is
 * taken down like any other (reclaim.c).
 */
#include "shim/heap/block.h"
#include "shim/heap/compound.h"
#include "shim/heap/map.h"
#include "shim/base/log.h"
#include "shim/driver/real.h"
#include "shim/plan/piece_sizes.h"

#include <stdlib.h>

/* ---- where chunks come from ---- */

void block_limit_pieces(struct block_store *store, uint64_t bytes)
{
	uint64_t units = bytes / HEAP_UNIT;

	atomic_store(&store->auto_units, bytes && units < CHUNK_MOST ? (unsigned)units : CHUNK_MOST);
}

unsigned block_largest_piece(const struct block_store *store)
{
	uint64_t budget = atomic_load(&store->chunks.budget[CHUNK_DEVICE]->limit);
	uint64_t other = store->piece_budget ? atomic_load(store->piece_budget) : 0;
	uint64_t units = (other > budget ? other : budget) / PIECE_SHARE / HEAP_UNIT;

	if (store->most_units)
		return store->most_units;
	unsigned most = atomic_load_explicit(&store->auto_units, memory_order_relaxed);
	if (units > most)
		return most;
	return units < PIECE_LEAST ? PIECE_LEAST : (unsigned)units;
}

/* One place to try for chunks; an array of these is tried in order. */
struct search {
	enum chunk_place place;
	bool divide; /* if a size cannot be had, try a smaller one */
};
#define SEARCHES 4

/*
 * Normally: the device to its last 2 MiB, then peers, then the host. Where memory migrates to where it is used, a piece
 * that does not fit on the device goes to the host undivided, because a division is permanent; only when the host is
 * full does it go into what the device has left.
 */
static unsigned plan_search(const struct block_store *store, const struct block *block, enum heap_from from,
			    struct search search[SEARCHES])
{
	bool moves = from == HEAP_DEVICE_FIRST && store->moves && block->kind == CHUNK_MOVABLE;
	unsigned n = 0;

	if (from != HEAP_HOST)
		search[n++] = (struct search){CHUNK_DEVICE, !moves};
	/* Fixed memory may be registered, exported or queried by others, who do not expect it on a peer. */
	if (from == HEAP_DEVICE_FIRST && block->kind == CHUNK_MOVABLE && store->chunks.usable[CHUNK_PEER])
		search[n++] = (struct search){CHUNK_PEER, true};
	if (from != HEAP_DEVICE && store->chunks.usable[CHUNK_HOST])
		search[n++] = (struct search){CHUNK_HOST, true};
	if (moves)
		search[n++] = (struct search){CHUNK_DEVICE, true};
	return n;
}

/*
 * Fixed memory has as few pieces as possible: a library that exports memory (NCCL's registration) asks for one handle
 * of a whole block.
 */
static unsigned longest_chunk(const struct block_store *store, const struct block *block)
{
	if (block->whole)
		return CHUNK_MOST;
	return block->kind == CHUNK_FIXED && !store->most_units ? CHUNK_MOST : block_largest_piece(store);
}

/*
 * Returns whether the block would not fit at these places even if all that the heap holds were free. JAX first asks for
 * three quarters of the GPU, and for less when that is refused; building such a block up to the failure pinned all host
 * memory, which took 20 s. Measured (H200).
 */
static bool is_hopeless(const struct block_store *store, const struct block *block, const struct search *search,
			unsigned n)
{
	const struct chunk_store *chunks = &store->chunks;
	uint64_t most[CHUNK_PLACES] = {0}, sum = 0;

	for (unsigned i = 0; i < n; i++) {
		enum chunk_place place = search[i].place;

		most[place] = chunks->made_bytes[place];
		if (place != CHUNK_PEER)
			most[place] += budget_left(chunks->budget[place]);
		for (unsigned k = 0; place == CHUNK_PEER && k < chunks->n_lenders; k++)
			most[place] += lender_left(chunks->lenders[k]);
	}
	for (unsigned place = 0; place < CHUNK_PLACES; place++)
		sum += most[place];
	return (uint64_t)block->units * HEAP_UNIT > sum;
}

/* A part, warm or new. */
static enum sw_status get_part(void *store, unsigned units, struct chunk **ret_chunk)
{
	return block_get_chunk(store, CHUNK_MOVABLE, CHUNK_HOST, units, ret_chunk);
}

static enum sw_status collect_one(struct block_store *store, const struct block *block, enum chunk_place place,
				  unsigned units, struct chunk **ret_chunk)
{
	bool parts = place == CHUNK_HOST && block->kind == CHUNK_MOVABLE && !block->whole &&
		     compound_part(units) != units && block_takes_parts(store) &&
		     !store->chunks.warm[CHUNK_MOVABLE][CHUNK_HOST][units];

	return parts ? compound_build(&store->chunks, units, get_part, store, ret_chunk)
		     : block_get_chunk(store, block->kind, place, units, ret_chunk);
}

/* Collects chunks for all of the block, without mapping them. */
static enum sw_status block_build_collect(struct block_store *store, struct block *block, enum heap_from from)
{
	unsigned most = longest_chunk(store, block), now = most;
	struct search search[SEARCHES];
	unsigned n = plan_search(store, block, from, search), at = 0;
	struct chunk **tail = &block->chunks;
	uint32_t left = block->units;

	if (!n || is_hopeless(store, block, search, n))
		return SW_NO_MEMORY;
	while (left) {
		unsigned units = left < now ? left : now;
		enum sw_status status = collect_one(store, block, search[at].place, units, tail);

		if (status == SW_OK) {
			left -= units;
			block->bytes[search[at].place] += chunk_bytes(units);
			tail = &(*tail)->next;
		} else if (status == SW_NO_MEMORY && search[at].divide && units > 1 && !block->whole) {
			now = units / 2;
		} else if (status == SW_NO_MEMORY && ++at < n) {
			now = most;
		} else {
			return status;
		}
	}
	return SW_OK;
}

/* Units of a stripe: small enough to spread, large enough that mappings cost little (docs/facts.md, Mapping). */
#define STRIPE_MOST 8

/*
 * The same in turns, from every device that has room. The memory is of no use to another block, so it is not reused
 * when freed.
 */
static enum sw_status collect_striped(struct block_store *store, struct block *block)
{
	unsigned n = store->chunks.n_lenders + 1,
		 most = block_largest_piece(store) < STRIPE_MOST ? block_largest_piece(store) : STRIPE_MOST;
	unsigned even = (block->units + n - 1) / n, refused = 0;
	struct chunk **tail = &block->chunks;
	uint32_t left = block->units;

	block->left = true;
	if (even < most)
		most = even;
	for (unsigned turn = 0; left && refused < n; turn = (turn + 1) % n) {
		unsigned units = left < most ? left : most;
		enum sw_status status = SW_OK;

		if (turn == 0)
			status = block_get_chunk(store, block->kind, CHUNK_DEVICE, units, tail);
		else
			status = chunk_make_lent(&store->chunks, block->kind, turn - 1, units, tail);
		refused = status == SW_OK ? 0 : refused + 1;
		if (status != SW_OK)
			continue;
		if (turn)
			chunk_join(&store->chunks, *tail);
		left -= units;
		block->bytes[(*tail)->place] += chunk_bytes(units);
		tail = &(*tail)->next;
	}
	return left ? SW_NO_MEMORY : SW_OK;
}

/* ---- mapping them ---- */

static enum sw_status map_all(struct block_store *store, struct block *block)
{
	CUdeviceptr at = block_address(store, block);
	uint64_t peers = chunk_peers(&store->chunks);
	CUresult result;

	for (struct chunk *chunk = block->chunks; chunk; chunk = chunk->next) {
		result = chunk_map(chunk, at);
		if (result != CUDA_SUCCESS)
			goto refused;
		chunk->block = block;
		arena_mark_piece(&store->arena, block->unit, block->unit + block->units_mapped, chunk, chunk->units,
				 chunk->place != CHUNK_DEVICE);
		atomic_store(&store->arena.states[block->unit + block->units_mapped].peers, peers);
		block->units_mapped += chunk->units;
		at += chunk_bytes(chunk->units);
	}
	result = map_allow(block_address(store, block), at - block_address(store, block), store->chunks.device, peers);
	if (result == CUDA_SUCCESS)
		return SW_OK;
refused:
	log_once("mapping a block of %zu bytes: %s", block->units * HEAP_UNIT, real_error_name(result));
	return status_of(result);
}

/* On failure the block has been taken down. */
static enum sw_status fill(struct block_store *store, struct block *block, enum heap_from from)
{
	enum sw_status status =
	    from == HEAP_STRIPE ? collect_striped(store, block) : block_build_collect(store, block, from);

	if (status == SW_OK)
		status = map_all(store, block);
	if (status != SW_OK)
		block_take_down(store, block);
	return status;
}

/* Makes a block at an address that it has been given. on_use: of whose allocation it is a part, or NULL. */
static enum sw_status build_at(struct block_store *store, uint32_t unit, uint32_t units, enum chunk_kind kind,
			       struct on_use *on_use, enum heap_from from, struct block **ret_block)
{
	struct block *block = calloc(1, sizeof(*block));

	if (!block) {
		if (on_use)
			block_part_gone(store, on_use);
		else
			arena_give(&store->arena, unit, units);
		return SW_NO_HOST_MEMORY;
	}
	block->unit = unit;
	block->units = units;
	block->kind = kind;
	block->on_use = on_use;
	enum sw_status status = fill(store, block, from);
	if (status == SW_OK)
		*ret_block = block;
	return status;
}

enum sw_status block_build(struct block_store *store, uint32_t unit, uint32_t units, enum chunk_kind kind,
			   enum heap_from from, struct block **ret_block)
{
	return build_at(store, unit, units, kind, NULL, from, ret_block);
}

enum sw_status block_build_part(struct block_store *store, struct on_use *on_use, uint32_t unit, uint32_t units,
				enum heap_from from, struct block **ret_block)
{
	return build_at(store, unit, units, CHUNK_MOVABLE, on_use, from, ret_block);
}

enum sw_status block_make_unmapped(struct block_store *store, uint32_t units, bool whole, enum heap_from from,
				   struct block **ret_block)
{
	struct block *block = calloc(1, sizeof(*block));

	if (!block)
		return SW_NO_HOST_MEMORY;
	block->units = units;
	block->kind = CHUNK_MOVABLE;
	block->loose = true;
	block->whole = whole;
	enum sw_status status = block_build_collect(store, block, from);
	if (status == SW_OK)
		*ret_block = block;
	else
		block_take_down(store, block);
	return status;
}
