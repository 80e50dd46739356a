/*
 * Takes and frees blocks. block_take() tries, in this order:
 *
 *   1. a warm block of the right length, all in device memory: no driver call
 *   2. building one in device memory, chunk by chunk, if budget and warm memory have room for all of it
 *   3. a warm block of the right length that is (partly) nonresident
 *   4. building one: device memory as far as it goes, memory of peers and of the host for the rest
 *
 * HEAP_DEVICE ends with 2; HEAP_HOST takes a warm block of the host or builds one.
 *
 * reclaim.c decides where the chunks of a new block come from, block_build.c their sizes and the places that are tried.
 */
#include "shim/heap/block.h"
#include "shim/base/array.h"

static bool device_has_room(const struct block_store *store, uint32_t units)
{
	return budget_left(store->chunks.budget[CHUNK_DEVICE]) + block_idle(store, CHUNK_DEVICE) >=
	       (uint64_t)units * HEAP_UNIT;
}

static enum sw_status block_build_one(struct block_store *store, uint32_t units, enum chunk_kind kind,
				      enum heap_from from, struct block **ret_block)
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
	struct block *block = block_warm_find(store, units, kind, may_spill ? HEAP_DEVICE : from, from);

	lock_assert_held(LOCK_HEAP);
	*ret_reused = block != NULL;
	if (!block)
		block_retry_refused(store);
	if (!block && from != HEAP_HOST && from != HEAP_STRIPE && device_has_room(store, units)) {
		status = block_build_one(store, units, kind, HEAP_DEVICE, &block);
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
		status = block_build_one(store, units, kind, from, &block);
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
					 block_keeps(block, chunk->place) ? BLOCK_STATE_PINNED
					 : chunk->place == CHUNK_DEVICE   ? BLOCK_STATE_DEVICE
									  : BLOCK_STATE_HOST);
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
	else if (block_is_for_once(block))
		block_take_down(store, block);
	else
		block_warm_add(store, block);
}

/* Records for the mover that a piece came, went, or came into use. */
static void block_tell(struct block_store *store, uint32_t piece)
{
	if (!store->news.wanted || store->news.all)
		return;
	if (ARRAY_ROOM(store->news.pieces, store->news.n, store->news.room, ARRAY_MOST))
		store->news.pieces[store->news.n++] = piece;
	else
		store->news.all = true;
}

void block_tell_all(struct block_store *store, const struct block *block)
{
	uint32_t unit = block->unit;

	for (const struct chunk *chunk = block->chunks; chunk; unit += chunk->units, chunk = chunk->next)
		block_tell(store, unit);
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
