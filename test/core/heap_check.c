// SPDX-License-Identifier: Apache-2.0
/* What tests alone do with a heap: check every invariant of its room, and end it. */
#include "test/core/core.h"
#include "test/range_check.h"

#include "shim/base/log.h"
#include "shim/heap/block.h"
#include "shim/lifetimes/lifetimes.h"

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

static bool block_store_is_valid(const struct block_store *store)
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
	uint64_t unused;
	return in_bins == by_age && range_is_valid(&store->arena.free_units, &unused);
}

static bool slab_is_valid(const struct slab *slab)
{
	unsigned free_bits = 0, words = (slab->n_slots + 63u) / 64;

	for (unsigned i = 0; i < words; i++) {
		free_bits += (unsigned)__builtin_popcountll(slab->free[i]);
		if (i < slab->first_word && slab->free[i])
			return false;
	}
	return free_bits == slab->n_free && slab->block->slab == slab && slab->block->units == 1;
}

static bool small_is_valid(const struct small *small)
{
	uint64_t empty[CHUNK_PLACES] = {0};

	for (unsigned i = 0; i < CHUNK_KINDS * SMALL_CLASSES; i++) {
		unsigned kind = i / SMALL_CLASSES, size_class = i % SMALL_CLASSES;
		const struct slab *kept = small->empty[kind][size_class];

		for (int place = 0; place < CHUNK_PLACES; place++)
			for (const struct slab *slab = small->partial[kind][size_class][place]; slab; slab = slab->next)
				if (!slab_is_valid(slab) || !slab->n_free || slab->size_class != size_class ||
				    slab->block->kind != kind || slab->block->left)
					return false;
		if (kept) {
			if (!slab_is_valid(kept) || kept->n_free != kept->n_slots || kept->block->left)
				return false;
			for (int place = 0; place < CHUNK_PLACES; place++)
				empty[place] += kept->block->bytes[place];
		}
	}
	return memcmp(empty, small->store->empty_bytes, sizeof(empty)) == 0;
}

bool heap_is_valid(struct heap *heap)
{
	lock_take(&heap->lock);
	bool ok = block_store_is_valid(&heap->store) && small_is_valid(&heap->small);
	lock_drop(&heap->lock);
	return ok;
}

void heap_destroy(struct heap *heap)
{
	struct chunk_store *chunks = &heap->store.chunks;

	heap_trim(heap, 0, 0);
	/* Blocks that the program never freed keep the reservation; the driver frees it at the end of the process. */
	if (!arena_fini(&heap->store.arena))
		log_line("a heap was destroyed with blocks in use");
	lifetimes_free(heap->store.arena.lifetimes);
	if (chunks->alias_base &&
	    REAL(cuMemAddressFree)(chunks->alias_base, chunks->alias_units.root->length * HEAP_UNIT) == CUDA_SUCCESS)
		range_fini(&chunks->alias_units);
	free(heap->store.news.pieces);
	pthread_mutex_destroy(&heap->lock.mutex);
	free(heap);
}
