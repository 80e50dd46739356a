// SPDX-License-Identifier: Apache-2.0
/*
 * Serves memory that the program makes and maps itself. Reserved space is taken from the arena like that of a block,
 * but its words are set only when a block is placed. All chunks of a block are unmapped in one driver call, so that a
 * refusal leaves all of them mapped.
 *
 * A block that is not open has one pin, from the time when it is placed until it is opened.
 */
#include "shim/heap/block_unmapped.h"
#include "shim/heap/block.h"
#include "shim/lifetimes/lifetimes.h"

_Static_assert(HEAP_WHOLE_MOST == CHUNK_MOST * HEAP_UNIT, "one chunk");

/* ---- address space ---- */

bool heap_reserve(struct heap *heap, uint64_t bytes, CUdeviceptr hint, CUdeviceptr *ret_address)
{
	struct arena *arena = &heap->store.arena;
	uint64_t units = bytes / HEAP_UNIT;
	uint32_t unit;

	if (units > arena->n_units)
		return false;
	lock_take(&heap->lock);
	bool hinted = arena_contains(arena, hint) && (hint - arena->base) % HEAP_UNIT == 0;
	if (hinted) {
		unit = arena_unit(arena, hint);
		hinted = arena_take_at(arena, unit, (uint32_t)units);
	}
	bool taken = hinted || arena_take(arena, (uint32_t)units, &unit);
	if (taken) {
		*ret_address = arena_address(arena, unit);
		atomic_store(&arena->states[unit].n_bounded, 0);
		lifetimes_reserved(arena->lifetimes, *ret_address);
	}
	heap_leave(heap);
	return taken;
}

void heap_unreserve(struct heap *heap, CUdeviceptr address, uint64_t bytes)
{
	struct arena *arena = &heap->store.arena;

	lock_take(&heap->lock);
	arena_give(arena, arena_unit(arena, address), (uint32_t)(bytes / HEAP_UNIT));
	heap_leave(heap);
}

static bool is_vacant(const struct arena *arena, uint32_t unit, uint32_t units)
{
	for (uint32_t i = 0; i < units; i++)
		if (atomic_load(&arena->piece[unit + i]))
			return false;
	return true;
}

bool heap_is_vacant(struct heap *heap, CUdeviceptr address, uint64_t bytes)
{
	const struct arena *arena = &heap->store.arena;

	lock_take(&heap->lock);
	bool vacant = is_vacant(arena, arena_unit(arena, address), (uint32_t)(bytes / HEAP_UNIT));
	heap_leave(heap);
	return vacant;
}

/* ---- memory ---- */

static enum sw_status block_unmapped_make(struct heap *heap, size_t bytes, bool whole, enum heap_from from,
					  struct heap_grant *ret_grant)
{
	struct heap_grant grant = {0};

	if (bytes / HEAP_UNIT > heap->store.arena.n_units)
		return SW_NO_MEMORY;
	lock_take(&heap->lock);
	bool soon = heap_has_soon(heap);
	enum sw_status status =
	    block_make_unmapped(&heap->store, (uint32_t)(bytes / HEAP_UNIT), whole, from, &grant.block);
	if (status == SW_OK) {
		block_grant(grant.block, &grant);
		*ret_grant = grant;
	} else {
		heap_failed(heap, from, soon, ret_grant);
	}
	heap_leave(heap);
	return status;
}

enum sw_status heap_make_unmapped(struct heap *heap, size_t bytes, enum chunk_kind kind, enum heap_from from,
				  struct heap_grant *ret_grant)
{
	return kind == CHUNK_MOVABLE ? block_unmapped_make(heap, bytes, false, from, ret_grant) : SW_NOT_SUPPORTED;
}

enum sw_status heap_make_whole(struct heap *heap, size_t bytes, enum chunk_kind kind, enum heap_from from,
			       struct heap_grant *ret_grant)
{
	return kind == CHUNK_MOVABLE && bytes <= HEAP_WHOLE_MOST
		   ? block_unmapped_make(heap, bytes, true, from, ret_grant)
		   : SW_NOT_SUPPORTED;
}

void heap_end_unmapped(struct heap *heap, struct block *block)
{
	lock_take(&heap->lock);
	block_take_down(&heap->store, block);
	heap_trim_to_keep(heap);
	heap_leave(heap);
}

uint64_t heap_unmapped_bytes(const struct block *block)
{
	return (uint64_t)block->units * HEAP_UNIT;
}

bool heap_was_placed(struct heap *heap, const struct block *block)
{
	lock_take(&heap->lock);
	bool placed = block->placed;
	heap_leave(heap);
	return placed;
}

/* All state is set before the block's words make it visible. */
static void mark_placed(struct heap *heap, struct block *block, uint32_t space, uint32_t space_units)
{
	struct arena *arena = &heap->store.arena;

	for (struct chunk *chunk = block->chunks; chunk; chunk = chunk->next) {
		chunk->block = block;
		arena_mark_piece(arena, block->unit, block->unit + block->units_mapped, chunk, chunk->units,
				 chunk->place != CHUNK_DEVICE);
		atomic_store(&arena->states[block->unit + block->units_mapped].peers, 0);
		block->units_mapped += chunk->units;
	}
	block_show_pin(&heap->store, block);
	arena_mark(arena, block->unit, block->units, block->unit + 1, space, space_units);
	block_tell_all(&heap->store, block);
}

CUresult heap_place(struct heap *heap, struct block *block, CUdeviceptr address, CUdeviceptr space,
		    uint64_t space_bytes)
{
	struct arena *arena = &heap->store.arena;
	CUresult result = CUDA_ERROR_NOT_READY;

	lock_take(&heap->lock);
	if (block->units_mapped)
		goto out;
	result = CUDA_ERROR_INVALID_VALUE;
	if (!is_vacant(arena, arena_unit(arena, address), block->units))
		goto out;
	result = chunk_map_all(block->chunks, address);
	if (result != CUDA_SUCCESS)
		goto out;
	block->unit = arena_unit(arena, address);
	block->stays = block->left;
	block->unreported = heap->store.beside;
	block->bounded = false;
	if (heap->store.beside)
		atomic_store(&arena->any_unreported, true);
	block->placed = true;
	block->open = false;
	block->n_pins = 1;
	mark_placed(heap, block, arena_unit(arena, space), (uint32_t)(space_bytes / HEAP_UNIT));
out:
	heap_leave(heap);
	return result;
}

static void unmark_placed(struct heap *heap, struct block *block)
{
	struct arena *arena = &heap->store.arena;
	uint32_t unit = block->unit;

	block_set_bounded(&heap->store, block, false);
	block->unreported = false;
	if (block->asked)
		block_forget_asked(&heap->store, block, block_address(&heap->store, block));
	arena_unmark(arena, block->unit, block->units);
	block_tell_all(&heap->store, block);
	for (struct chunk *chunk = block->chunks; chunk; unit += chunk->units, chunk = chunk->next) {
		arena_unmark_piece(arena, block->unit, unit);
		chunk->block = NULL;
	}
	block->units_mapped = 0;
	block->n_pins = 0;
	block->elsewhere = false;
	block->stays = block->left;
}

/* Looked up by address, because another thread may be unplacing it. Locking: the caller holds HEAP. */
static struct block *placed_at(const struct heap *heap, CUdeviceptr address)
{
	struct block *block = arena_block_at(&heap->store.arena, address);

	return block && block->loose ? block : NULL;
}

/*
 * heap_pin() gives up after a second. In a suspension a piece may take longer: it is mapped when all else has been
 * copied, 2 s for 100 GiB (docs/facts.md, Host memory).
 */
#define PIN_TRIES 30

bool heap_pin_placed(struct heap *heap, CUdeviceptr address, size_t bytes)
{
	unsigned tries = 0;

	while (!heap_pin(heap, address, bytes))
		if (++tries == PIN_TRIES)
			return false;
	return true;
}

CUresult heap_unplace(struct heap *heap, CUdeviceptr address, uint64_t bytes)
{
	struct block *block;

	/* From here on no piece there is moving or begins to move. */
	if (!heap_pin_placed(heap, address, bytes))
		return CUDA_ERROR_NOT_READY;
	lock_take(&heap->lock);
	CUresult result = map_remove(address, bytes);
	for (uint64_t at = 0; at < bytes && result == CUDA_SUCCESS;
	     at += block ? heap_unmapped_bytes(block) : HEAP_UNIT) {
		block = placed_at(heap, address + at);
		if (block)
			unmark_placed(heap, block);
	}
	heap_leave(heap);
	if (result != CUDA_SUCCESS)
		heap_pin_end(heap, address, bytes, PIN_OFF);
	return result;
}

/*
 * Returns whether whatever touches the block was reported. It is counted before the doubts are read: a submission that
 * doubts the address space first, and reads the count then, is seen here, or sees the count (submission_name).
 */
static bool is_bounded(struct heap *heap, struct block *block)
{
	const struct arena *arena = &heap->store.arena;
	uint32_t units;

	if (!arena->lifetimes ||
	    !lifetimes_is_reported(arena->lifetimes, arena_address(arena, block->unit), block->units * HEAP_UNIT))
		return false;
	block_set_bounded(&heap->store, block, true);
	return !crossings_is_doubted(lifetimes_crossings(arena->lifetimes),
				     arena_reach(arena, block->unit, &units) * HEAP_UNIT);
}

static void follow_reports(struct heap *heap, struct block *block)
{
	bool unreported = !is_bounded(heap, block);

	/* What is moving still counts until it has arrived (migration_end). */
	if (unreported && !block->n_moving)
		block_set_bounded(&heap->store, block, false);
	if (block->unreported == unreported)
		return;
	block->unreported = unreported;
	block_show_pin(&heap->store, block);
	block_tell_all(&heap->store, block);
}

void heap_follow_reports(struct heap *heap, uint32_t first, uint32_t end)
{
	const struct arena *arena = &heap->store.arena;
	struct block *block;

	if (!atomic_load(&arena->any_unreported))
		return;
	lock_take(&heap->lock);
	if (end > arena->n_units_seen)
		end = arena->n_units_seen;
	while ((block = block_next(arena, &first, end)))
		if (block->loose)
			follow_reports(heap, block);
	heap_leave(heap);
}

void heap_open(struct heap *heap, CUdeviceptr address, bool open)
{
	lock_take(&heap->lock);
	struct block *block = placed_at(heap, address);
	if (block && block->open != open) {
		block->open = open;
		block->n_pins += open ? -1u : 1u;
		block_show_pin(&heap->store, block);
		block_tell_all(&heap->store, block);
	}
	heap_leave(heap);
}

bool heap_is_open(struct heap *heap, CUdeviceptr address)
{
	lock_take(&heap->lock);
	const struct block *block = placed_at(heap, address);
	bool open = block && block->open;
	heap_leave(heap);
	return open;
}

/* Locking: the caller holds HEAP, and no piece of the block is moving. */
static void block_unmapped_fix(struct heap *heap, struct block *block)
{
	block->left = block->stays = block->placed = true;
	if (block->units_mapped)
		block_show_pin(&heap->store, block);
}

/* From here on no piece of it is moving or begins to move, until block_unmapped_unpin(). */
static bool block_unmapped_pin(struct heap *heap, struct block *block)
{
	return !block->units_mapped ||
	       heap_pin_placed(heap, block_address(&heap->store, block), heap_unmapped_bytes(block));
}

static void block_unmapped_unpin(struct heap *heap, struct block *block)
{
	if (block->units_mapped)
		heap_pin_end(heap, block_address(&heap->store, block), heap_unmapped_bytes(block), PIN_OFF);
}

enum sw_status heap_fix_unmapped(struct heap *heap, struct block *block, CUmemGenericAllocationHandle *ret_handle)
{
	if (!block_unmapped_pin(heap, block))
		return SW_BUSY;
	lock_take(&heap->lock);
	bool one = block->chunks && !block->chunks->next && !block->chunks->parts;
	if (one) {
		*ret_handle = block->chunks->handle;
		block_unmapped_fix(heap, block);
	}
	heap_leave(heap);
	block_unmapped_unpin(heap, block);
	return one ? SW_OK : SW_INVALID;
}

CUresult heap_map_again(struct heap *heap, struct block *block, CUdeviceptr address)
{
	if (!block_unmapped_pin(heap, block))
		return CUDA_ERROR_NOT_READY;
	lock_take(&heap->lock);
	CUresult result = chunk_map_all(block->chunks, address);
	if (result == CUDA_SUCCESS)
		block_unmapped_fix(heap, block);
	heap_leave(heap);
	block_unmapped_unpin(heap, block);
	return result;
}
