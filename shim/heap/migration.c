// SPDX-License-Identifier: Apache-2.0
/*
 * Migrates chunks (migration.h): exchanges the physical memory under a block.
 */
#include "shim/heap/migration.h"
#include "shim/heap/block.h"

#include <stdlib.h>

/* Returns the address at which the mover reads or writes the chunk. */
static CUdeviceptr migration_side(const struct migration *migration, const struct chunk *chunk, bool in_place)
{
	return in_place && chunk->place == CHUNK_DEVICE ? migration->address : chunk->alias;
}

/* Must be followed by drop_spare(); if it is not, because the spare is lost, it counts as taken for good. */
static void fill_in(struct heap *heap, struct migration *migration, struct chunk *spare, bool in_place)
{
	heap->taken_bytes += chunk_bytes(migration->units);
	migration->spare = spare;
	migration->from = migration->chunk->place;
	migration->to = spare->place;
	migration->alias = migration_side(migration, migration->chunk, in_place);
	migration->handle = migration->chunk->handle;
	migration->spare_alias = migration_side(migration, spare, in_place);
}

/* Returns whether a nonresident chunk on a peer must move elsewhere. */
static bool leaves_peer(const struct heap *heap, const struct chunk *chunk)
{
	return chunk->place == CHUNK_PEER &&
	       (heap->no_peers || chunk->block->to_host || chunk_is_wanted(&heap->store.chunks, chunk));
}

/* The spare is not the migration's any more. */
static void drop_spare(struct heap *heap, struct migration *migration)
{
	heap->taken_bytes -= chunk_bytes(migration->units);
	migration->spare = NULL;
}

void migration_leave_spare(struct heap *heap, struct migration *migration)
{
	lock_take(&heap->lock);
	migration->spare->next = heap->left;
	heap->left = migration->spare;
	migration->spare = NULL;
	heap_leave(heap);
}

/* Puts the spare back into the store, if there is one. */
static void put_spare(struct heap *heap, struct migration *migration)
{
	struct chunk *spare = migration->spare;

	if (!spare)
		return;
	drop_spare(heap, migration);
	chunk_put(&heap->store.chunks, spare);
}

static bool may_go(const struct heap *heap, const struct chunk *chunk, enum chunk_place to)
{
	if (to == CHUNK_DEVICE)
		return chunk->place != CHUNK_DEVICE && !block_keeps(chunk->block, chunk->place);
	return (chunk->place == CHUNK_DEVICE || leaves_peer(heap, chunk)) && !block_is_pinned(chunk->block);
}

/* Returns the chunk of a piece that may go to `to`, or NULL. */
static struct chunk *find_movable(const struct heap *heap, uint32_t piece, enum chunk_place to)
{
	const struct arena *arena = &heap->store.arena;
	struct chunk *chunk = block_has_piece(arena, piece) ? arena->states[piece].chunk : NULL;

	return chunk && !chunk->moving && may_go(heap, chunk, to) ? chunk : NULL;
}

static struct migration migration_pin_one(const struct heap *heap, uint32_t piece, struct chunk *chunk)
{
	chunk->moving = true;
	chunk->block->n_moving++;
	return (struct migration){
	    .piece = piece,
	    .block_unit = chunk->block->unit,
	    .units = chunk->units,
	    .from = CHUNK_DEVICE,
	    .to = chunk->place,
	    .address = arena_address(&heap->store.arena, piece),
	    .alias = chunk->alias,
	    .handle = chunk->handle,
	    .chunk = chunk,
	    .block = chunk->block,
	};
}

enum sw_status migration_begin(struct heap *heap, uint32_t piece, enum chunk_place to, bool in_place,
			       struct migration *ret_migration)
{
	struct chunk_store *store = &heap->store.chunks;
	enum sw_status status = SW_INVALID;

	lock_take(&heap->lock);
	struct chunk *chunk = find_movable(heap, piece, to);
	if (!chunk)
		goto out;
	status = spare_give_alias(store, chunk, in_place);
	if (status != SW_OK)
		goto out;
	struct chunk *spare = spare_find(heap, chunk, to, in_place);
	status = SW_NO_MEMORY;
	if (!spare)
		goto out;
	*ret_migration = migration_pin_one(heap, piece, chunk);
	fill_in(heap, ret_migration, spare, in_place);
	status = SW_OK;
out:
	heap_leave(heap);
	return status;
}

enum sw_status migration_begin_unbacked(struct heap *heap, uint32_t piece, struct migration *ret_migration)
{
	enum sw_status status = SW_INVALID;
	struct chunk *spare;

	lock_take(&heap->lock);
	struct chunk *chunk = find_movable(heap, piece, CHUNK_HOST);
	/* Who maps its memory itself may unmap it at any time, also while the process is suspended. */
	if (chunk && chunk->place == CHUNK_DEVICE && !chunk->block->slab && !chunk->block->loose)
		status = chunk_make_unbacked(&heap->store.chunks, chunk->units, &spare);
	if (status == SW_OK) {
		*ret_migration = migration_pin_one(heap, piece, chunk);
		fill_in(heap, ret_migration, spare, true);
	}
	heap_leave(heap);
	return status;
}

enum sw_status migration_pin(struct heap *heap, uint32_t piece, bool anywhere, struct migration *ret_migration)
{
	enum sw_status status = SW_INVALID;

	lock_take(&heap->lock);
	struct chunk *chunk = find_movable(heap, piece, CHUNK_DEVICE);
	if (!chunk && anywhere)
		chunk = find_movable(heap, piece, CHUNK_HOST);
	if (chunk)
		status = anywhere ? SW_OK : chunk_give_alias(&heap->store.chunks, chunk);
	if (status == SW_OK)
		*ret_migration = migration_pin_one(heap, piece, chunk);
	heap_leave(heap);
	return status;
}

enum sw_status migration_turn(struct heap *heap, bool in_place, struct migration *migration)
{
	enum chunk_place to = migration->chunk->place == CHUNK_DEVICE ? CHUNK_HOST : CHUNK_DEVICE;

	lock_take(&heap->lock);
	bool pinned = block_keeps(migration->block, migration->chunk->place);
	struct chunk *spare = pinned ? NULL : spare_find(heap, migration->chunk, to, in_place);
	if (spare)
		fill_in(heap, migration, spare, in_place);
	heap_leave(heap);
	return spare ? SW_OK : pinned ? SW_INVALID : SW_NO_MEMORY;
}

void heap_give_spare(struct heap *heap, struct migration *migration)
{
	lock_take(&heap->lock);
	put_spare(heap, migration);
	heap_leave(heap);
}

/* The chunk gets this physical memory, of its length and kind, and keeps its position in a block. */
static void take_memory(struct chunk *chunk, struct chunk memory)
{
	memory.moving = chunk->moving;
	memory.block = chunk->block;
	memory.next = chunk->next;
	*chunk = memory;
}

/* The chunk stays in the block's list; its physical memory is exchanged with that of the spare. */
void migration_exchange(struct heap *heap, struct migration *migration, bool lost)
{
	struct chunk *chunk = migration->chunk, *spare = migration->spare;
	struct chunk was = *chunk;
	struct block *block = migration->block;
	uint64_t bytes = chunk_bytes(chunk->units);

	lock_take(&heap->lock);
	if (block->slab)
		small_before_move(&heap->small, block);
	take_memory(chunk, *spare);
	take_memory(spare, was);
	block->bytes[was.place] -= bytes;
	block->bytes[chunk->place] += bytes;
	if (block->unused) {
		heap->store.unused_bytes[was.place] -= bytes;
		heap->store.unused_bytes[chunk->place] += bytes;
	}
	if (block->slab)
		small_after_move(&heap->small, block);
	drop_spare(heap, migration);
	if (!lost && chunk_is_wanted(&heap->store.chunks, spare))
		chunk_drop(&heap->store.chunks, spare);
	else if (!lost)
		chunk_put(&heap->store.chunks, spare);
	migration->handle = chunk->handle;
	migration->alias = chunk->alias;
	heap_leave(heap);
}

/* Gives an unbacked chunk warm host memory. Returns whether there was any. */
static bool take_warm(struct heap *heap, struct chunk *chunk)
{
	lock_take(&heap->lock);
	struct chunk *warm = spare_warm_host(heap, chunk->units);
	if (warm) {
		struct chunk was = *chunk;

		take_memory(chunk, *warm);
		take_memory(warm, was);
		chunk_put(&heap->store.chunks, warm);
	}
	heap_leave(heap);
	return warm != NULL;
}

enum sw_status migration_back(struct heap *heap, struct migration *migration, bool may_pin)
{
	struct chunk *chunk = migration->chunk;
	enum sw_status status = SW_OK;

	if (chunk->unbacked && !take_warm(heap, chunk)) {
		status = may_pin ? chunk_create(&heap->store.chunks, chunk) : SW_NO_MEMORY;
		/* Another thread may have freed some meanwhile. */
		if (status != SW_OK && take_warm(heap, chunk))
			status = SW_OK;
	}
	lock_take(&heap->lock);
	if (status == SW_OK)
		chunk->unbacked = false;
	migration->handle = chunk->handle;
	migration->alias = chunk->alias;
	heap_leave(heap);
	return status;
}

bool migration_is_given(struct heap *heap, const struct migration *migration)
{
	lock_take(&heap->lock);
	bool given = migration->block->given;
	if (given)
		migration->block->left = true;
	heap_leave(heap);
	return given;
}

void migration_end(struct heap *heap, struct migration *migration)
{
	struct block *block = migration->block;

	lock_take(&heap->lock);
	migration->chunk->moving = false;
	if (block_keeps(block, migration->chunk->place))
		arena_mark_where(&heap->store.arena, migration->block_unit, migration->piece, BLOCK_STATE_PINNED);
	put_spare(heap, migration);
	if (--block->n_moving == 0 && block->unreported)
		block_set_bounded(&heap->store, block, false);
	if (block->n_moving == 0 && block->given) {
		atomic_fetch_sub(&heap->store.n_given, 1);
		block_give(&heap->store, block);
	}
	heap_leave(heap);
}

/* Returns whether somebody waits for the migration (migration_first_awaited). Locking: the caller holds HEAP. */
static bool is_awaited(const struct heap *heap, const struct migration *migration)
{
	const struct block *block = migration->block;

	return block->given || block_is_pinned(block) ||
	       (!block->loose &&
		chunk_peers(&heap->store.chunks) & ~atomic_load(&heap->store.arena.states[migration->piece].peers));
}

unsigned migration_first_awaited(struct heap *heap, const struct migration *first, size_t stride, unsigned n)
{
	unsigned i = 0;

	lock_take(&heap->lock);
	while (i < n && !is_awaited(heap, (const void *)((const char *)first + i * stride)))
		i++;
	heap_leave(heap);
	return i;
}

CUdevice migration_lender(const struct heap *heap, const struct migration *migration, bool spare)
{
	const struct chunk *chunk = spare ? migration->spare : migration->chunk;

	return chunk && chunk->place == CHUNK_PEER ? heap->store.chunks.lenders[chunk->lender]->device : -1;
}

CUdeviceptr migration_at(const struct migration *migration, bool spare, uint64_t at, uint64_t *ret_bytes)
{
	CUdeviceptr alias = spare ? migration->spare_alias : migration->alias;

	if (!alias)
		return compound_at(spare ? migration->spare : migration->chunk, at, ret_bytes);
	*ret_bytes = migration_bytes(migration) - at;
	return alias + at;
}

CUresult migration_unmap(const struct migration *migration)
{
	return map_remove(migration->address, migration_bytes(migration));
}

/* Unmaps the parts of a compound chunk of which only the first are mapped. Returns whether any was. */
static bool unmap_parts(const struct chunk *chunk, CUdeviceptr at)
{
	bool any = false;

	for (const struct chunk *part = chunk ? chunk->parts : NULL; part; part = part->next) {
		any |= map_remove(at, chunk_bytes(part->units)) == CUDA_SUCCESS;
		at += chunk_bytes(part->units);
	}
	return any;
}

/* Removes a mapping of an earlier try that could be neither finished nor undone. Returns whether there was one. */
static bool clear_way(const struct migration *migration)
{
	return migration_unmap(migration) == CUDA_SUCCESS || unmap_parts(migration->chunk, migration->address) ||
	       unmap_parts(migration->spare, migration->address);
}

CUresult migration_map(struct heap *heap, const struct migration *migration, bool spare)
{
	/*
	 * For memory that the program maps itself, the program alone grants access to peers, and what peers can access
	 * does not migrate (block_unmapped.h).
	 */
	uint64_t bytes = migration_bytes(migration),
		 peers = migration->block->loose ? 0 : chunk_peers(&heap->store.chunks);
	const struct chunk *chunk = spare ? migration->spare : migration->chunk;
	CUresult result = chunk_map(chunk, migration->address);

	if (result != CUDA_SUCCESS && clear_way(migration))
		result = chunk_map(chunk, migration->address);
	if (result != CUDA_SUCCESS)
		return result;
	result = map_allow(migration->address, bytes, heap->store.chunks.own | peers, true);
	if (result == CUDA_SUCCESS)
		atomic_store(&heap->store.arena.states[migration->piece].peers, peers);
	else
		map_remove(migration->address, bytes);
	return result;
}

void heap_lend(struct heap *heap, bool on)
{
	lock_take(&heap->lock);
	heap->no_peers = !on;
	heap_leave(heap);
}

uint64_t heap_largest_piece(const struct heap *heap)
{
	return (uint64_t)block_largest_piece(&heap->store) * HEAP_UNIT;
}

uint64_t heap_free_bytes(const struct heap *heap, enum chunk_place place)
{
	return atomic_load_explicit(&heap->figures.free[place], memory_order_relaxed) +
	       chunk_left(&heap->store.chunks, place);
}

bool heap_is_full(const struct heap *heap)
{
	return chunk_is_full(&heap->store.chunks);
}

bool heap_has_given(const struct heap *heap)
{
	return atomic_load(&heap->store.n_given) != 0;
}
