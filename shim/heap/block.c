// SPDX-License-Identifier: Apache-2.0
/*
 * Takes and frees blocks. block_take() tries, in this order:
 *
 *   1. a warm block of the right length, all in device memory: no driver call
 *   2. building one in device memory, chunk by chunk, if budget and warm memory have room for all of it
 *   3. a warm block of the right length that is (partly) nonresident
 *   4. building one: device memory as far as it goes, memory of peers and of the host for the rest
 *
 * HEAP_DEVICE skips 3, and 4 is on the device. HEAP_HOST takes a warm block of the host or builds one. HEAP_STRIPE: 4.
 *
 * A chunk of the wanted size comes from the warm chunks, else from the driver within the budget, else from taking down
 * the oldest warm block that has one (its memory is mapped elsewhere, never copied), else from releasing as much memory
 * of other sizes: warm chunks first, then the oldest warm blocks. For host memory, warm blocks come before the driver.
 * If a size cannot be had, smaller ones are tried, so that the budget is used to the last 2 MiB before the host is (but
 * see plan_search()).
 *
 * Taking down unmaps from the front, chunk by chunk, and stops if the driver refuses; the rest stays mapped, on the
 * list of stuck blocks, and is tried again at the next trim. What others may know is released then, or is tried again
 * in the same way. So no driver error on this path loses memory or address space, or gives memory a second owner. A
 * block that could not be built is taken down like any other.
 *
 * Locking: the caller of every function here holds HEAP, but for block_limit_pieces() and block_largest_piece().
 */
#include "shim/heap/block.h"
#include "shim/base/array.h"
#include "shim/base/log.h"
#include "shim/driver/real.h"
#include "shim/stats/stats.h"

#include <stdlib.h>

/*
 * A warm block may be longer than the request by an eighth of the request, if free memory of SLACK times the excess
 * exists beside it. Without that condition a program would run out of memory because of the unused ends of its blocks.
 */
#define SLACK 8

/* ---- warm blocks ---- */

static struct block **bin_of(struct block_store *store, uint32_t units)
{
	return &store->bin[units < BLOCK_BINS ? units - 1 : BLOCK_BINS - 1];
}

/* Put a free, completely mapped block on both lists of warm blocks, and take it off both. */
static void block_warm_add(struct block_store *store, struct block *block)
{
	struct block **bin = bin_of(store, block->units);

	block->bin_prev = NULL;
	block->bin_next = *bin;
	if (*bin)
		(*bin)->bin_prev = block;
	*bin = block;
	block->age_prev = NULL;
	block->age_next = store->newest;
	if (store->newest)
		store->newest->age_prev = block;
	else
		store->oldest = block;
	store->newest = block;
	for (int place = 0; place < CHUNK_PLACES; place++)
		store->warm_bytes[place] += block->bytes[place];
}

static void block_warm_remove(struct block_store *store, struct block *block)
{
	if (block->bin_prev)
		block->bin_prev->bin_next = block->bin_next;
	else
		*bin_of(store, block->units) = block->bin_next;
	if (block->bin_next)
		block->bin_next->bin_prev = block->bin_prev;
	if (block->age_prev)
		block->age_prev->age_next = block->age_next;
	else
		store->newest = block->age_next;
	if (block->age_next)
		block->age_next->age_prev = block->age_prev;
	else
		store->oldest = block->age_prev;
	for (int place = 0; place < CHUNK_PLACES; place++)
		store->warm_bytes[place] -= block->bytes[place];
}

/* Returns the units that are free beside those of the block. */
static uint64_t room_beside(const struct block_store *store, const struct block *block, enum heap_from from)
{
	enum chunk_place only = from == HEAP_HOST ? CHUNK_HOST : CHUNK_DEVICE;
	uint64_t bytes = 0;

	for (enum chunk_place place = 0; place < CHUNK_PLACES; place++)
		if ((from == HEAP_DEVICE_FIRST || place == only) && store->chunks.usable[place])
			bytes += chunk_left(&store->chunks, place) + block_idle(store, place) - block->bytes[place];
	return bytes / HEAP_UNIT;
}

/* most: the greatest length in units. */
static bool has_length(const struct block_store *store, const struct block *block, uint32_t units, uint32_t most,
		       enum heap_from from)
{
	if (block->units < units || block->units > most)
		return false;
	return block->units == units ||
	       (!store->tight && room_beside(store, block, from) >= (block->units - units) * (uint64_t)SLACK);
}

/* what: where the block may be; from: everything that the request would accept. */
static struct block *block_warm_find(struct block_store *store, uint32_t units, enum chunk_kind kind,
				     enum heap_from what, enum heap_from from)
{
	uint32_t most = units + units / SLACK;

	for (uint32_t length = units; length <= most; length++) {
		struct block *block = *bin_of(store, length);

		for (; block; block = block->bin_next)
			if (block->kind == kind && block_suits(block, what) &&
			    has_length(store, block, units, most, from))
				return block;
		if (length >= BLOCK_BINS)
			break; /* the last bin holds all longer ones and has just been searched */
	}
	return NULL;
}

/* ---- taking down, and making room ---- */

void block_parts_end(struct block_store *store, struct on_use *on_use)
{
	if (!on_use->freed || on_use->n_blocks)
		return;
	arena_give(&store->arena, on_use->unit, on_use->units);
	free(on_use);
}

/* Counts one part less, and ends the allocation if it was freed and has no parts any more. */
static void block_part_gone(struct block_store *store, struct on_use *on_use)
{
	on_use->n_blocks--;
	block_parts_end(store, on_use);
}

/* Address space goes back at the end, in one range, as it was taken. */
bool block_take_down(struct block_store *store, struct block *block)
{
	while (block->chunks) {
		struct chunk *chunk = block->chunks;
		uint64_t bytes = chunk_bytes(chunk->units);

		if (block->units_mapped) {
			CUresult result =
			    chunk->unbacked ? CUDA_SUCCESS : map_remove(block_address(store, block), bytes);

			if (result != CUDA_SUCCESS) {
				log_once("cuMemUnmap: %s; the memory is kept and tried again", real_error_name(result));
				block->bin_next = store->stuck;
				store->stuck = block;
				return false;
			}
			block->units_mapped -= chunk->units;
			arena_unmark_piece(&store->arena, block->unit, block->unit + block->units_gone);
		}
		block->units_gone += chunk->units;
		block->bytes[chunk->place] -= bytes;
		block->chunks = chunk->next;
		chunk->block = NULL;
		if (block->left && !chunk->unbacked)
			chunk_drop(&store->chunks, chunk);
		else
			chunk_put(&store->chunks, chunk);
	}
	if (block->on_use)
		block_part_gone(store, block->on_use);
	else if (!block->loose)
		arena_give(&store->arena, block->unit, block->units);
	free(block);
	return true;
}

void block_retry_refused(struct block_store *store)
{
	struct block *list = store->stuck;

	chunk_retry_refused(&store->chunks);
	store->stuck = NULL;
	while (list) {
		struct block *next = list->bin_next;

		block_take_down(store, list);
		list = next;
	}
}

/* Gives up one empty slab. Returns false if there is none. */
static bool give_up_slab(struct block_store *store)
{
	uint64_t empty = 0;

	for (enum chunk_place place = 0; place < CHUNK_PLACES; place++)
		empty += store->empty_bytes[place];
	return empty && store->give_up_slab(store->small);
}

/* Takes one step to free memory at a place. Returns false if nothing is left to give up, or the driver refused. */
static bool reclaim(struct block_store *store, enum chunk_place place)
{
	struct block *block = store->oldest;

	while (block && !block->bytes[place])
		block = block->age_prev;
	if (block) {
		block_warm_remove(store, block);
		return block_take_down(store, block);
	}
	return give_up_slab(store);
}

static bool has_chunk(const struct block *block, enum chunk_kind kind, enum chunk_place place, unsigned units)
{
	const struct chunk *chunk = block->chunks;

	if (block->kind != kind || block->bytes[place] < chunk_bytes(units))
		return false;
	while (chunk && (chunk->place != place || !compound_has(chunk, units)))
		chunk = chunk->next;
	return chunk != NULL;
}

bool block_free_chunk(struct block_store *store, enum chunk_kind kind, enum chunk_place place, unsigned units)
{
	struct block *block = store->oldest;

	lock_assert_held(LOCK_HEAP);
	while (block && !has_chunk(block, kind, place, units))
		block = block->age_prev;
	if (!block)
		return false;
	block_warm_remove(store, block);
	return block_take_down(store, block);
}

/*
 * For when only chunks of other sizes, or of the other kind, are free at this place: releases as many bytes of them as
 * a new chunk needs, and takes down no more blocks than that requires. If they are not enough, none is released, but
 * one empty slab is given up. Returns false if nothing could be given up.
 */
static bool make_way(struct block_store *store, enum chunk_place place, uint64_t bytes)
{
	struct chunk_store *chunks = &store->chunks;

	if (!block_idle(store, place))
		return give_up_slab(store);
	uint64_t made = chunks->made_bytes[place], left = chunk_left(chunks, place);
	/* If the budget has room, it was the driver that had none. */
	uint64_t need = left < bytes ? bytes - left : bytes;

	if (block_idle(store, place) < need)
		return give_up_slab(store);
	while (made - chunks->made_bytes[place] < need) {
		uint64_t still = need - (made - chunks->made_bytes[place]);

		if (!chunk_release_one(chunks, place, (unsigned)((still + HEAP_UNIT - 1) / HEAP_UNIT)) &&
		    !reclaim(store, place))
			break;
	}
	return chunks->made_bytes[place] < made;
}

/*
 * Host memory of warm blocks comes before new: pinning takes 200 ms a GiB, unmapping less than 3. Without this, a
 * program that allocates again in each step had the memory for all its evictions pinned again, because what it had
 * freed was in warm blocks and the budget had room: a GPT on cudaMallocAsync had gaps of 180 ms for 1 GiB. Measured
 * (H200).
 */
enum sw_status block_get_chunk(struct block_store *store, enum chunk_kind kind, enum chunk_place place, unsigned units,
			       struct chunk **ret_chunk)
{
	const struct chunk like = {.units = (uint8_t)units, .place = (uint8_t)place, .kind = (uint8_t)kind};
	struct chunk_store *chunks = &store->chunks;

	if (place == CHUNK_HOST && !chunks->warm[kind][place][units])
		block_free_chunk(store, kind, place, units);
	for (;;) {
		*ret_chunk = chunk_take_warm(chunks, kind, place, units);
		if (*ret_chunk)
			return SW_OK;
		enum sw_status status = place == CHUNK_PEER ? chunk_make_lent(chunks, &like, ret_chunk)
							    : chunk_make(chunks, &like, ret_chunk);
		if (status == SW_OK)
			chunks->made_bytes[place] += chunk_bytes(units);
		if (status != SW_NO_MEMORY)
			return status;
		if (!block_free_chunk(store, kind, place, units) && !make_way(store, place, chunk_bytes(units)))
			return SW_NO_MEMORY;
	}
}

struct block *block_next(const struct arena *arena, uint32_t *unit, uint32_t end)
{
	struct block *block = NULL;

	while (*unit < end && !block) {
		block = arena_block_at(arena, arena_address(arena, *unit));
		*unit = block ? block->unit + block->units : *unit + 1;
	}
	return block;
}

void block_vacate(struct block_store *store, uint32_t unit, uint32_t units)
{
	struct block *next;

	for (struct block *block = store->newest; block; block = next) {
		next = block->age_next;
		if (block->unit >= unit + units || block->unit + block->units <= unit)
			continue;
		block_warm_remove(store, block);
		block_take_down(store, block);
	}
}

/* ---- how much is held ---- */

static void trim_place(struct block_store *store, enum chunk_place place, uint64_t keep)
{
	for (;;) {
		uint64_t idle = block_idle(store, place);

		if (idle <= keep)
			return;
		uint64_t from_chunks = idle - keep;
		uint64_t warm = store->chunks.warm_bytes[place];
		chunk_trim(&store->chunks, place, warm > from_chunks ? warm - from_chunks : 0);
		if (store->chunks.warm_bytes[place] || block_idle(store, place) <= keep)
			return; /* enough, or the driver refused */
		struct block *block = store->oldest;
		while (block && !block->bytes[place])
			block = block->age_prev;
		if (!block)
			return;
		block_warm_remove(store, block);
		if (!block_take_down(store, block))
			return;
	}
}

void block_trim(struct block_store *store, const uint64_t keep[CHUNK_PLACES])
{
	lock_assert_held(LOCK_HEAP);
	block_retry_refused(store);
	for (enum chunk_place place = 0; place < CHUNK_PLACES; place++)
		trim_place(store, place, keep[place]);
}

uint64_t block_idle(const struct block_store *store, enum chunk_place place)
{
	return store->warm_bytes[place] + store->chunks.warm_bytes[place];
}

uint64_t block_refused(const struct block_store *store, enum chunk_place place)
{
	uint64_t bytes = 0;

	for (const struct block *block = store->stuck; block; block = block->bin_next)
		bytes += block->bytes[place];
	for (const struct chunk *chunk = store->chunks.refused; chunk; chunk = chunk->next)
		bytes += chunk->place == place ? chunk_bytes(chunk->units) : 0;
	return bytes;
}

/* ---- building: chunks for all of a block are collected, then mapped one behind the other ---- */

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
 * that does not fit on the device is not divided for it, because a division is permanent: it goes to a peer or the
 * host; only when these are full does it go into what the device has left.
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

/* Collects chunks for all of the block, without mapping them. */
static enum sw_status collect(struct block_store *store, struct block *block, enum heap_from from)
{
	/*
	 * Fixed memory has as few pieces as possible: a library that exports it (NCCL) asks for one handle of a block.
	 */
	bool longest = block->whole || (block->kind == CHUNK_FIXED && !store->most_units);
	bool in_parts = block->kind == CHUNK_MOVABLE && !block->whole && block_takes_parts(store);
	unsigned most = longest ? CHUNK_MOST : block_largest_piece(store), now = most;
	struct search search[SEARCHES];
	unsigned n = plan_search(store, block, from, search), at = 0;
	struct chunk **tail = &block->chunks;
	uint32_t left = block->units;

	if (!n || is_hopeless(store, block, search, n))
		return SW_NO_MEMORY;
	while (left) {
		unsigned units = left < now ? left : now;
		enum chunk_place place = search[at].place;
		bool parts = in_parts && place == CHUNK_HOST && compound_part(units) != units &&
			     !store->chunks.warm[CHUNK_MOVABLE][CHUNK_HOST][units];
		enum sw_status status = parts ? compound_build(&store->chunks, units, get_part, store, tail)
					      : block_get_chunk(store, block->kind, place, units, tail);

		if (status == SW_OK) {
			left -= units;
			block->bytes[place] += chunk_bytes(units);
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
 * Collects chunks for all of the block from the device and its peers in turn, as far as they have room. The memory is
 * of no use to another block, so it is not reused when freed.
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
			status = chunk_make(&store->chunks,
					    &(struct chunk){.units = (uint8_t)units,
							    .place = CHUNK_PEER,
							    .kind = (uint8_t)block->kind,
							    .lender = (uint8_t)(turn - 1)},
					    tail);
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

static enum sw_status map_all(struct block_store *store, struct block *block)
{
	CUdeviceptr begin = arena_address(&store->arena, block->unit), at = begin;
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
	result = map_allow(begin, at - begin, store->chunks.own | peers, true);
	if (result == CUDA_SUCCESS)
		return SW_OK;
refused:
	log_once("mapping a block of %zu bytes: %s", block->units * HEAP_UNIT, real_error_name(result));
	return status_of(result);
}

enum sw_status block_build(struct block_store *store, uint32_t unit, uint32_t units, enum chunk_kind kind,
			   struct on_use *on_use, enum heap_from from, struct block **ret_block)
{
	struct block *block = calloc(1, sizeof(*block));

	store->no_address = unit == BLOCK_ANYWHERE && !arena_take(&store->arena, units, &unit);
	if (on_use)
		on_use->n_blocks++;
	if (!block || store->no_address) {
		if (on_use)
			block_part_gone(store, on_use);
		else if (!store->no_address)
			arena_give(&store->arena, unit, units);
		free(block);
		return store->no_address ? SW_NO_MEMORY : SW_NO_HOST_MEMORY;
	}
	block->unit = unit;
	block->units = units;
	block->kind = kind;
	block->on_use = on_use;
	enum sw_status status = from == HEAP_STRIPE ? collect_striped(store, block) : collect(store, block, from);
	if (status == SW_OK)
		status = map_all(store, block);
	if (status == SW_OK)
		*ret_block = block;
	else
		block_take_down(store, block);
	return status;
}

enum sw_status block_make_unmapped(struct block_store *store, uint32_t units, bool whole, enum heap_from from,
				   struct block **ret_block)
{
	struct block *block = calloc(1, sizeof(*block));

	store->no_address = false; /* it needs none */
	if (!block)
		return SW_NO_HOST_MEMORY;
	block->units = units;
	block->kind = CHUNK_MOVABLE;
	block->loose = true;
	block->whole = whole;
	enum sw_status status = collect(store, block, from);
	if (status == SW_OK)
		*ret_block = block;
	else
		block_take_down(store, block);
	return status;
}

/* ---- taking and freeing ---- */

bool block_device_has(const struct block_store *store, uint32_t units)
{
	return budget_left(store->chunks.budget[CHUNK_DEVICE]) + block_idle(store, CHUNK_DEVICE) >= units * HEAP_UNIT;
}

enum sw_status block_take(struct block_store *store, uint32_t units, enum chunk_kind kind, enum heap_from from,
			  struct block **ret_block, bool *ret_reused)
{
	bool may_spill = from == HEAP_DEVICE_FIRST;
	enum sw_status status = SW_NO_MEMORY;
	struct block *block = block_warm_find(store, units, kind, may_spill ? HEAP_DEVICE : from, from);

	lock_assert_held(LOCK_HEAP);
	*ret_reused = block != NULL;
	if (!block && (store->stuck || store->chunks.refused))
		block_retry_refused(store);
	if (!block && from != HEAP_HOST && from != HEAP_STRIPE && block_device_has(store, units)) {
		status = block_build(store, BLOCK_ANYWHERE, units, kind, NULL, HEAP_DEVICE, &block);
		if (status != SW_OK && (status != SW_NO_MEMORY || !may_spill))
			return status;
	}
	if (!block && may_spill) {
		block = block_warm_find(store, units, kind, from, from);
		*ret_reused = block != NULL;
	}
	if (*ret_reused) {
		block_warm_remove(store, block);
		status = SW_OK;
	} else if (!block) {
		status = block_build(store, BLOCK_ANYWHERE, units, kind, NULL, from, &block);
	}
	if (status != SW_OK)
		return status;
	block->stays = kind == CHUNK_FIXED;
	if (block->stays)
		block_show_pin(store, block);
	*ret_block = block;
	return SW_OK;
}

void block_show_pin(struct block_store *store, struct block *block)
{
	uint32_t unit = block->unit;

	lock_assert_held(LOCK_HEAP);
	for (const struct chunk *chunk = block->chunks; chunk; unit += chunk->units, chunk = chunk->next)
		if (!chunk->moving)
			arena_mark_where(&store->arena, block->unit, unit,
					 block_keeps(block, chunk->place) ? BLOCK_STATE_PINNED
					 : chunk->place == CHUNK_DEVICE   ? BLOCK_STATE_DEVICE
									  : BLOCK_STATE_HOST);
}

void block_set_keep(struct block_store *store, struct block *block, bool keep)
{
	lock_assert_held(LOCK_HEAP);
	block->keep = keep;
	atomic_store(&store->arena.states[block->unit].keep, keep);
}

void block_set_bounded(struct block_store *store, struct block *block, bool bounded)
{
	uint32_t units;

	lock_assert_held(LOCK_HEAP);
	if (block->bounded == bounded)
		return;
	block->bounded = bounded;
	atomic_fetch_add(&store->arena.states[arena_reach(&store->arena, block->unit, &units)].n_bounded,
			 bounded ? 1u : -1u);
}

void block_give(struct block_store *store, struct block *block)
{
	bool pinned = block_is_pinned(block) || block->to_host;

	lock_assert_held(LOCK_HEAP);
	block->n_pins = 0;
	block->stays = block->stays_beside = block->elsewhere = block->to_host = false;
	atomic_store(&store->arena.states[block->unit].to_host, false);
	block_set_keep(store, block, false);
	if (pinned)
		block_show_pin(store, block);
	block->given = block->n_moving != 0;
	if (block->given)
		atomic_fetch_add(&store->n_given, 1);
	else if (block->left || block->on_use)
		block_take_down(store, block);
	else
		block_warm_add(store, block);
}

void block_tell_all(struct block_store *store, const struct block *block)
{
	uint32_t unit = block->unit;

	if (!store->news.wanted)
		return;
	for (const struct chunk *chunk = block->chunks; chunk; unit += chunk->units, chunk = chunk->next)
		if (!store->news.all && (store->news.n < store->news.room ||
					 ARRAY_ROOM(store->news.pieces, store->news.n, store->news.room, ARRAY_MOST)))
			store->news.pieces[store->news.n++] = unit;
		else
			store->news.all = true;
}

/* ---- pins ---- */

void block_set_pins(struct block_store *store, struct block *block, uint32_t pins, enum pin_end end)
{
	bool was = block_is_pinned(block);

	if (end != PIN_OFF && !block->stays)
		stats_add(STAT_pinned_blocks, 1);
	block->n_pins = pins;
	block->stays |= end != PIN_OFF;
	block->left |= end == PIN_LEFT;
	if (block_is_pinned(block) == was)
		return;
	block_show_pin(store, block);
	block_tell_all(store, block);
}

void block_drop_pins(struct block_store *store, struct block *block, uint32_t n, enum pin_end end)
{
	block_set_pins(store, block, block->n_pins > n ? block->n_pins - n : 0, end);
}

struct asked_pin **block_asked(struct block *block, CUdeviceptr base)
{
	struct asked_pin **at = &block->asked;

	while (*at && (*at)->base != base)
		at = &(*at)->next;
	return at;
}

void block_forget_asked(struct block_store *store, struct block *block, CUdeviceptr address)
{
	struct asked_pin **at = block_asked(block, address), *pin = *at;

	if (!pin)
		return;
	/* If it is a slab, it may move again. */
	block_drop_pins(store, block, pin->n, PIN_OFF);
	*at = pin->next;
	free(pin);
}
