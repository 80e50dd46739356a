/*
 * Free memory of a heap and how it is reused: the warm blocks by length and by age, and what is given up for a chunk
 * that the warm chunks do not have.
 *
 * A chunk of the wanted size comes from the warm chunks, else from the driver within the budget, else from taking down
 * the oldest warm block that has one (its memory is mapped elsewhere, never copied), else from releasing as much memory
 * of other sizes: warm chunks first, then the oldest warm blocks. For host memory, warm blocks come before the driver.
 *
 * Taking down unmaps from the front, chunk by chunk, and stops if the driver refuses; the rest stays mapped, on the
 * list of stuck blocks, and is tried again at the next trim. What others may know is released then, or is tried again
 * in the same way. So no driver error on this path loses memory or address space, or gives memory a second owner.
 *
 * Locking: the caller of every function here holds HEAP.
 */
#include "shim/heap/block.h"
#include "shim/base/log.h"
#include "shim/heap/compound.h"
#include "shim/heap/map.h"
#include "shim/driver/real.h"

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

void block_warm_add(struct block_store *store, struct block *block)
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

void block_warm_remove(struct block_store *store, struct block *block)
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
	return block->units == units || room_beside(store, block, from) >= (block->units - units) * (uint64_t)SLACK;
}

/* what: where the block may be; from: everything that the request would accept. */
struct block *block_warm_find(struct block_store *store, uint32_t units, enum chunk_kind kind, enum heap_from what,
			      enum heap_from from)
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

void block_part_gone(struct block_store *store, struct on_use *on_use)
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
	return store->reclaim_more(store->owner);
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
	uint64_t made = chunks->made_bytes[place], left = chunk_left(chunks, place);
	/* If the budget has room, it was the driver that had none. */
	uint64_t need = left < bytes ? bytes - left : bytes;

	if (block_idle(store, place) < need)
		return store->reclaim_more(store->owner);
	while (made - chunks->made_bytes[place] < need) {
		uint64_t still = need - (made - chunks->made_bytes[place]);

		if (!chunk_release_one(chunks, place, (unsigned)((still + HEAP_UNIT - 1) / HEAP_UNIT)) &&
		    !reclaim(store, place))
			break;
	}
	return chunks->made_bytes[place] < made;
}

/*
 * Returns whether memory at this place is expensive to make: pinning host memory takes 200 ms a GiB, unmapping it less
 * than 3. Without this, a program that allocates again in each step had the memory for all its evictions pinned again,
 * because what it had freed was in warm blocks and the budget had room: a GPT on cudaMallocAsync had gaps of 180 ms for
 * 1 GiB. Measured (H200).
 */
static bool is_dear(enum chunk_place place)
{
	return place == CHUNK_HOST;
}

enum sw_status block_get_chunk(struct block_store *store, enum chunk_kind kind, enum chunk_place place, unsigned units,
			       struct chunk **ret_chunk)
{
	if (is_dear(place) && !store->chunks.warm[kind][place][units])
		block_free_chunk(store, kind, place, units);
	for (;;) {
		enum sw_status status = chunk_get(&store->chunks, kind, place, units, ret_chunk);

		if (status != SW_NO_MEMORY)
			return status;
		if (!block_free_chunk(store, kind, place, units) && !make_way(store, place, chunk_bytes(units)))
			return SW_NO_MEMORY;
	}
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
