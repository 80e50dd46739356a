// SPDX-License-Identifier: Apache-2.0
/* Slabs (block.h): size classes, lists of slabs with free slots, and the bit map of each slab. */
#include "shim/heap/block.h"
#include "shim/stats/stats.h"

#include <stdlib.h>

#define SLOT_LEAST 512

size_t small_class_bytes(unsigned size_class)
{
	if (size_class < 8)
		return (size_class + 1) * SLOT_LEAST;
	unsigned doubling = (size_class - 8) / 4, step = (size_class - 8) % 4;
	return ((size_t)8 * SLOT_LEAST << doubling) / 4 * (5 + step);
}

unsigned small_class_of(size_t bytes)
{
	if (bytes <= 8 * SLOT_LEAST)
		return bytes <= SLOT_LEAST ? 0 : (unsigned)((bytes - 1) / SLOT_LEAST);
	/* The highest bit of bytes - 1 gives the doubling, the two bits below it the step. */
	unsigned high = 63 - (unsigned)__builtin_clzll(bytes - 1);
	unsigned step = (unsigned)((bytes - 1) >> (high - 2)) & 3;
	return 8 + (high - 12) * 4 + step;
}

static enum chunk_place place_of(const struct slab *slab)
{
	const uint64_t *bytes = slab->block->bytes;

	return bytes[CHUNK_HOST] ? CHUNK_HOST : bytes[CHUNK_PEER] ? CHUNK_PEER : CHUNK_DEVICE;
}

static struct slab **list_of(struct small *small, const struct slab *slab)
{
	return &small->partial[slab->block->kind][slab->size_class][place_of(slab)];
}

static struct slab **empty_of(struct small *small, const struct slab *slab)
{
	return &small->empty[slab->block->kind][slab->size_class];
}

static void list_add(struct small *small, struct slab *slab)
{
	struct slab **list = list_of(small, slab);

	slab->prev = NULL;
	slab->next = *list;
	if (*list)
		(*list)->prev = slab;
	*list = slab;
}

static void list_remove(struct small *small, struct slab *slab)
{
	if (slab->prev)
		slab->prev->next = slab->next;
	else
		*list_of(small, slab) = slab->next;
	if (slab->next)
		slab->next->prev = slab->prev;
	slab->next = slab->prev = NULL;
}

static struct slab *slab_new(struct small *small, unsigned size_class, enum chunk_kind kind, enum heap_from from,
			     enum sw_status *ret_status, bool *ret_reused)
{
	unsigned n_slots = (unsigned)(HEAP_UNIT / small_class_bytes(size_class));
	unsigned words = (n_slots + 63) / 64;
	struct slab *slab = calloc(1, sizeof(*slab) + words * sizeof(slab->free[0]));

	if (!slab) {
		*ret_status = SW_NO_HOST_MEMORY;
		return NULL;
	}
	*ret_status = block_take(small->store, 1, kind, from, &slab->block, ret_reused);
	if (*ret_status != SW_OK) {
		free(slab);
		return NULL;
	}
	slab->block->slab = slab;
	slab->size_class = (uint16_t)size_class;
	slab->n_slots = slab->n_free = (uint16_t)n_slots;
	for (unsigned i = 0; i < n_slots; i++)
		slab->free[i / 64] |= UINT64_C(1) << i % 64;
	arena_mark(&small->store->arena, slab->block->unit, 1, ARENA_SLAB | size_class, 0, 0);
	block_tell_all(small->store, slab->block);
	list_add(small, slab);
	return slab;
}

static struct slab *empty_take(struct small *small, unsigned size_class, enum chunk_kind kind, enum chunk_place place)
{
	struct slab *slab = small->empty[kind][size_class];

	if (!slab || place_of(slab) != place)
		return NULL;
	small->empty[kind][size_class] = NULL;
	small->store->empty_bytes[place] -= HEAP_UNIT;
	list_add(small, slab);
	return slab;
}

static CUdeviceptr slot_take(struct small *small, struct slab *slab)
{
	unsigned word = slab->first_word;

	while (!slab->free[word])
		word++;
	slab->first_word = (uint16_t)word;
	unsigned bit = (unsigned)__builtin_ctzll(slab->free[word]);
	slab->free[word] &= slab->free[word] - 1;
	if (--slab->n_free == 0)
		list_remove(small, slab);
	return arena_address(&small->store->arena, slab->block->unit) +
	       (word * 64 + bit) * small_class_bytes(slab->size_class);
}

/* Returns a slab with a free slot at one place, in use or empty; NULL if there is none. */
static struct slab *slab_at(struct small *small, unsigned size_class, enum chunk_kind kind, enum chunk_place place)
{
	struct slab *slab = small->partial[kind][size_class][place];

	return slab ? slab : empty_take(small, size_class, kind, place);
}

enum sw_status small_take(struct small *small, size_t bytes, enum chunk_kind kind, enum heap_from from,
			  CUdeviceptr *ret_address, struct block **ret_block, bool *ret_new, bool *ret_reused)
{
	unsigned size_class = small_class_of(bytes);
	enum sw_status status = SW_NO_MEMORY;
	struct slab *slab = NULL, *new = NULL;

	lock_assert_held(LOCK_HEAP);
	*ret_reused = true;
	/* A new slab in device memory is preferred to a free slot in nonresident memory. */
	if (from != HEAP_HOST) {
		slab = slab_at(small, size_class, kind, CHUNK_DEVICE);
		if (!slab)
			slab = new = slab_new(small, size_class, kind, HEAP_DEVICE, &status, ret_reused);
	}
	if (!slab && from == HEAP_DEVICE_FIRST && status == SW_NO_MEMORY)
		slab = slab_at(small, size_class, kind, CHUNK_PEER);
	if (!slab && from != HEAP_DEVICE && status == SW_NO_MEMORY)
		slab = slab_at(small, size_class, kind, CHUNK_HOST);
	if (!slab && from != HEAP_DEVICE && status == SW_NO_MEMORY)
		slab = new = slab_new(small, size_class, kind, from, &status, ret_reused);
	*ret_new = new != NULL;
	if (!slab)
		return status;
	*ret_reused |= !new;
	*ret_block = slab->block;
	*ret_address = slot_take(small, slab);
	stats_add(STAT_small_waste_bytes, small_class_bytes(size_class) - bytes);
	return SW_OK;
}

static void slab_end(struct small *small, struct slab *slab)
{
	struct block *block = slab->block;

	arena_unmark(&small->store->arena, block->unit, 1);
	block_tell_all(small->store, block);
	block->slab = NULL;
	free(slab);
	block_give(small->store, block);
}

void small_give(struct small *small, struct block *block, CUdeviceptr address)
{
	struct slab *slab = block->slab;
	CUdeviceptr start = arena_address(&small->store->arena, block->unit);
	unsigned slot = (unsigned)((address - start) / small_class_bytes(slab->size_class));

	lock_assert_held(LOCK_HEAP);
	slab->free[slot / 64] |= UINT64_C(1) << slot % 64;
	if (slot / 64 < slab->first_word)
		slab->first_word = (uint16_t)(slot / 64);
	if (slab->n_free++ == 0 && !block->left)
		list_add(small, slab);
	if (slab->n_free < slab->n_slots)
		return;
	if (!block->left)
		list_remove(small, slab);
	if (block->left || *empty_of(small, slab)) {
		slab_end(small, slab);
		return;
	}
	*empty_of(small, slab) = slab;
	small->store->empty_bytes[place_of(slab)] += HEAP_UNIT;
}

/* Gives up the empty slab that the list has. */
static void empty_end(struct small *small, struct slab **empty)
{
	struct slab *slab = *empty;

	*empty = NULL;
	small->store->empty_bytes[place_of(slab)] -= HEAP_UNIT;
	slab_end(small, slab);
}

void small_leave(struct small *small, struct block *block)
{
	struct slab *slab = block->slab;

	lock_assert_held(LOCK_HEAP);
	if (slab == *empty_of(small, slab))
		empty_end(small, empty_of(small, slab));
	else if (slab->n_free)
		list_remove(small, slab);
}

bool small_reclaim(struct small *small)
{
	for (unsigned i = 0; i < CHUNK_KINDS * SMALL_CLASSES; i++) {
		struct slab **empty = &small->empty[i / SMALL_CLASSES][i % SMALL_CLASSES];

		if (!*empty)
			continue;
		empty_end(small, empty);
		return true;
	}
	return false;
}

void small_before_move(struct small *small, struct block *block)
{
	struct slab *slab = block->slab;

	if (slab == *empty_of(small, slab))
		small->store->empty_bytes[place_of(slab)] -= HEAP_UNIT;
	else if (slab->n_free)
		list_remove(small, slab);
}

void small_after_move(struct small *small, struct block *block)
{
	struct slab *slab = block->slab;

	if (slab == *empty_of(small, slab))
		small->store->empty_bytes[place_of(slab)] += HEAP_UNIT;
	else if (slab->n_free)
		list_add(small, slab);
}
