/*
 * How a block comes to be. block_take() tries, in this order:
 *
 *   1. a warm block of the right length, all in device memory: no driver call at all
 *   2. building one in device memory, chunk by chunk, when budget and warm memory have room for all of it
 *   3. a warm block of the right length that is (partly) on the host
 *   4. building one: device memory as far as it goes, host memory for the rest
 *
 * Memory for the device alone ends with 2, memory for the host alone is taken warm or built there.
 *
 * A chunk of the wanted size comes from the warm chunks, else from the driver under the budget, else from taking down
 * the oldest warm block that has one (its physical memory is remapped where it is needed, never copied), else from
 * releasing as much of other sizes: warm chunks first, then the oldest warm blocks. On the host the driver is asked after
 * warm blocks. Of what sizes a block is built, and where, is block_build.c's.
 *
 * Undoing is the same walk as taking down: unmap from the front, chunk by chunk, and stop where the driver refuses; the
 * rest stays mapped, on the list of stuck blocks, and is tried again at the next trim. So no driver error on the way
 * out loses memory or address space.
 */
#include "shim/heap/block.h"
#include "shim/base/log.h"
#include "shim/heap/map.h"
#include "shim/driver/real.h"

#include <stdlib.h>

/*
 * A warm block may be longer than what is asked for by an eighth of that, where there is free memory for so many times
 * what it is longer. Where there is not, a program would be out of memory for what lies behind the end of its blocks.
 */
#define SLACK 8

/* ---- warm blocks ---- */

static struct block **bin_of(struct block_store *store, uint32_t units)
{
	return &store->bin[units < BLOCK_BINS ? units - 1 : BLOCK_BINS - 1];
}

static void warm_add(struct block_store *store, struct block *block)
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

static void warm_remove(struct block_store *store, struct block *block)
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

/* Units that may be taken beside those of the block. */
static uint64_t room_beside(const struct block_store *store, const struct block *block, enum heap_from from)
{
	enum chunk_place only = from == HEAP_HOST ? CHUNK_HOST : CHUNK_DEVICE;
	uint64_t bytes = 0;

	for (enum chunk_place place = 0; place < CHUNK_PLACES; place++)
		if ((from == HEAP_DEVICE_FIRST || place == only) && store->chunks.usable[place])
			bytes += chunk_left(&store->chunks, place) + block_idle(store, place) - block->bytes[place];
	return bytes / HEAP_UNIT;
}

/* most: the longest. */
static bool has_length(const struct block_store *store, const struct block *block, uint32_t units, uint32_t most,
		       enum heap_from from)
{
	if (block->units < units || block->units > most)
		return false;
	return block->units == units || room_beside(store, block, from) >= (block->units - units) * (uint64_t)SLACK;
}

/* what: what the block is to be, of all that the program would take. */
static struct block *warm_find(struct block_store *store, uint32_t units, enum chunk_kind kind, enum heap_from what,
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

/* Address space goes back at the end, in one piece, as it came. */
bool block_take_down(struct block_store *store, struct block *block)
{
	while (block->chunks) {
		struct chunk *chunk = block->chunks;
		uint64_t bytes = chunk_bytes(chunk->units);

		if (block->units_mapped) {
			CUresult result = map_remove(block_address(store, block), bytes);

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
		if (block->left)
			chunk_drop(&store->chunks, chunk);
		else
			chunk_put(&store->chunks, chunk);
	}
	if (!block->loose)
		arena_give(&store->arena, block->unit, block->units);
	free(block);
	return true;
}

static void retry_stuck(struct block_store *store)
{
	struct block *list = store->stuck;

	store->stuck = NULL;
	while (list) {
		struct block *next = list->bin_next;

		block_take_down(store, list);
		list = next;
	}
}

/* Make room at a place: one step. False: nothing is left to give up. */
static bool reclaim(struct block_store *store, enum chunk_place place)
{
	struct block *block = store->oldest;

	while (block && !block->bytes[place])
		block = block->age_prev;
	if (block) {
		warm_remove(store, block);
		return block_take_down(store, block);
	}
	return store->reclaim_more(store->owner);
}

static bool has_chunk(const struct block *block, enum chunk_kind kind, enum chunk_place place, unsigned units)
{
	const struct chunk *chunk = block->chunks;

	if (block->kind != kind || block->bytes[place] < chunk_bytes(units))
		return false;
	while (chunk && (chunk->place != place || chunk->units != units))
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
	warm_remove(store, block);
	return block_take_down(store, block);
}

/*
 * Only chunks of other sizes, or of the other kind, are free at this place: as many bytes of them as a new one needs go
 * back to the driver, and no more blocks are taken down for it than that takes; none if they are not enough. Empty slabs
 * are given up for it one by one. False: nothing could go.
 */
static bool make_way(struct block_store *store, enum chunk_place place, uint64_t bytes)
{
	struct chunk_store *chunks = &store->chunks;
	uint64_t made = chunks->made_bytes[place], left = chunk_left(chunks, place);
	/* With room in the budget it was the driver that had none. */
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
 * To pin host memory takes 200 ms a GiB, to unmap it less than 3. A program that allocates anew in each step had
 * all that left the device pinned anew as well: what it had freed lay in warm blocks, and there was room for more (a GPT
 * on cudaMallocAsync, H200: gaps of 180 ms for 1 GiB).
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
		warm_remove(store, block);
		block_take_down(store, block);
	}
}

/* ---- the interface ---- */

static bool device_has_room(const struct block_store *store, uint32_t units)
{
	return budget_left(store->chunks.budget[CHUNK_DEVICE]) + block_idle(store, CHUNK_DEVICE) >=
	       (uint64_t)units * HEAP_UNIT;
}

static enum sw_status build(struct block_store *store, uint32_t units, enum chunk_kind kind, enum heap_from from,
			    struct block **ret_block)
{
	uint32_t unit;

	if (!arena_take(&store->arena, units, &unit))
		return SW_NO_MEMORY;
	return block_build(store, unit, units, kind, from, ret_block);
}

enum sw_status block_take(struct block_store *store, uint32_t units, enum chunk_kind kind, enum heap_from from,
			  struct block **ret_block, bool *ret_reused)
{
	bool may_spill = from == HEAP_DEVICE_FIRST;
	enum sw_status status = SW_NO_MEMORY;
	struct block *block = warm_find(store, units, kind, may_spill ? HEAP_DEVICE : from, from);

	lock_assert_held(LOCK_HEAP);
	*ret_reused = block != NULL;
	if (!block && store->stuck)
		retry_stuck(store);
	if (!block && from != HEAP_HOST && from != HEAP_STRIPE && device_has_room(store, units)) {
		status = build(store, units, kind, HEAP_DEVICE, &block);
		if (status != SW_OK && (status != SW_NO_MEMORY || !may_spill))
			return status;
	}
	if (!block && may_spill) {
		block = warm_find(store, units, kind, from, from);
		*ret_reused = block != NULL;
	}
	if (*ret_reused) {
		warm_remove(store, block);
		status = SW_OK;
	} else if (!block) {
		status = build(store, units, kind, from, &block);
	}
	if (status == SW_OK)
		*ret_block = block;
	return status;
}

void block_show_pin(struct block_store *store, struct block *block)
{
	uint32_t unit = block->unit;

	lock_assert_held(LOCK_HEAP);
	for (const struct chunk *chunk = block->chunks; chunk; unit += chunk->units, chunk = chunk->next)
		if (!chunk->moving)
			arena_mark_where(&store->arena, block->unit, unit,
					 block_keeps(block, chunk->place) ? MARK_PINNED
					 : chunk->place == CHUNK_DEVICE   ? MARK_DEVICE
									  : MARK_HOST);
}

void block_begin(struct block_store *store, struct block *block)
{
	block->stays = block->kind == CHUNK_FIXED;
	if (block->stays)
		block_show_pin(store, block);
}

void block_set_keep(struct block_store *store, struct block *block, bool keep)
{
	lock_assert_held(LOCK_HEAP);
	block->keep = keep;
	atomic_store(&store->arena.states[block->unit].keep, keep);
}

void block_give(struct block_store *store, struct block *block)
{
	bool pinned = block_is_pinned(block) || block->to_host;

	lock_assert_held(LOCK_HEAP);
	block->n_pins = 0;
	block->stays = block->to_host = false;
	atomic_store(&store->arena.states[block->unit].to_host, false);
	block_set_keep(store, block, false);
	if (pinned)
		block_show_pin(store, block);
	block->given = block->n_moving != 0;
	if (block->given)
		atomic_fetch_add(&store->n_given, 1);
	else if (block->left)
		block_take_down(store, block);
	else
		warm_add(store, block);
}

void block_tell(struct block_store *store, uint32_t piece)
{
	if (!store->news.wanted || store->news.all)
		return;
	if (store->news.n == store->news.room) {
		size_t room = store->news.room ? 2 * store->news.room : 256;
		uint32_t *pieces = realloc(store->news.pieces, room * sizeof(*pieces));

		if (!pieces) {
			store->news.all = true;
			return;
		}
		store->news.pieces = pieces;
		store->news.room = room;
	}
	store->news.pieces[store->news.n++] = piece;
}

void block_tell_all(struct block_store *store, const struct block *block)
{
	uint32_t unit = block->unit;

	for (const struct chunk *chunk = block->chunks; chunk; unit += chunk->units, chunk = chunk->next)
		block_tell(store, unit);
}

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
		warm_remove(store, block);
		if (!block_take_down(store, block))
			return;
	}
}

void block_trim(struct block_store *store, const uint64_t keep[CHUNK_PLACES])
{
	lock_assert_held(LOCK_HEAP);
	if (store->stuck)
		retry_stuck(store);
	for (enum chunk_place place = 0; place < CHUNK_PLACES; place++)
		trim_place(store, place, keep[place]);
}

uint64_t block_idle(const struct block_store *store, enum chunk_place place)
{
	return store->warm_bytes[place] + store->chunks.warm_bytes[place];
}

uint64_t block_stuck(const struct block_store *store, enum chunk_place place)
{
	uint64_t bytes = 0;

	for (const struct block *block = store->stuck; block; block = block->bin_next)
		bytes += block->bytes[place];
	return bytes;
}

static bool block_is_valid(const struct block *block, uint64_t *bytes)
{
	uint64_t sum[CHUNK_PLACES] = {0};

	for (const struct chunk *chunk = block->chunks; chunk; chunk = chunk->next) {
		if (chunk->kind != block->kind)
			return false;
		sum[chunk->place] += chunk_bytes(chunk->units);
	}
	for (int place = 0; place < CHUNK_PLACES; place++) {
		if (sum[place] != block->bytes[place])
			return false;
		bytes[place] += sum[place];
	}
	return sum[CHUNK_DEVICE] + sum[CHUNK_HOST] + sum[CHUNK_PEER] == (uint64_t)block->units * HEAP_UNIT &&
	       block->units_mapped == block->units;
}

bool block_store_is_valid(const struct block_store *store)
{
	uint64_t bytes[CHUNK_PLACES] = {0}, chunks[CHUNK_PLACES] = {0};
	size_t in_bins = 0, by_age = 0;

	for (size_t i = 0; i < BLOCK_BINS; i++)
		for (const struct block *block = store->bin[i]; block; block = block->bin_next)
			in_bins++;
	for (const struct block *block = store->newest; block; block = block->age_next, by_age++)
		if (!block_is_valid(block, bytes))
			return false;
	for (int place = 0; place < CHUNK_PLACES; place++) {
		for (unsigned i = 0; i < CHUNK_KINDS * (CHUNK_MOST + 1u); i++) {
			unsigned kind = i / (CHUNK_MOST + 1), units = i % (CHUNK_MOST + 1);

			for (const struct chunk *c = store->chunks.warm[kind][place][units]; c; c = c->next) {
				if (c->kind != kind)
					return false;
				chunks[place] += chunk_bytes(units);
			}
		}
		if (bytes[place] != store->warm_bytes[place] || chunks[place] != store->chunks.warm_bytes[place])
			return false;
	}
	return in_bins == by_age && range_is_valid(&store->arena.free_units);
}
