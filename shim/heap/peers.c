// SPDX-License-Identifier: Apache-2.0
/*
 * Access of peers to the heap (heap.h). A mapping is opened when it is made, to the devices that are named at that
 * moment, and records them in its unit's state. The functions here bring older mappings up to date. A moving piece
 * belongs to the mover, which maps it without HEAP; it is looked at again when it has arrived, and then either its
 * mapping is new or it gets what it lacks.
 */
#include "shim/base/log.h"
#include "shim/driver/real.h"
#include "shim/heap/block.h"
#include "shim/heap/migration.h"

/* Returns the next mapped piece from *unit on, or NULL; moves *unit behind it. Locking: the caller holds HEAP. */
static struct unit_state *next_piece(struct arena *arena, uint32_t *unit, uint32_t *ret_piece)
{
	while (*unit < arena->n_units_seen) {
		uint32_t piece = (*unit)++;

		if (atomic_load(&arena->piece[piece]) != piece + 1)
			continue;
		*unit = piece + arena->states[piece].units_of_piece;
		/* The program's cuMemSetAccess alone decides for memory that the program maps itself. */
		if (arena->states[piece].chunk->block->loose)
			continue;
		*ret_piece = piece;
		return &arena->states[piece];
	}
	return NULL;
}

/* Opens all pieces; argument: the result. Returns false if one that is moving lacks access, and no other is refused. */
static bool open_all(struct heap *heap, void *argument)
{
	struct arena *arena = &heap->store.arena;
	uint64_t wanted = chunk_peers(&heap->store.chunks);
	CUresult *result = argument;
	struct unit_state *state;
	uint32_t unit = 0, piece;
	bool moving = false;

	*result = CUDA_SUCCESS;
	while ((state = next_piece(arena, &unit, &piece))) {
		uint64_t missing = wanted & ~atomic_load(&state->peers);

		if (!missing)
			continue;
		if (state->chunk->moving) {
			moving = true;
			continue;
		}
		*result = map_allow(arena_address(arena, piece), chunk_bytes(state->units_of_piece), missing, true);
		if (*result != CUDA_SUCCESS)
			return true;
		atomic_fetch_or(&state->peers, missing);
	}
	return !moving;
}

CUresult heap_reach(struct heap *heap)
{
	CUresult result;

	return heap_await(heap, open_all, &result) ? result : CUDA_ERROR_NOT_READY;
}

void heap_unreach(struct heap *heap, uint64_t devices)
{
	struct arena *arena = &heap->store.arena;
	struct unit_state *state;
	uint32_t unit = 0, piece;

	lock_take(&heap->lock);
	devices &= ~chunk_peers(&heap->store.chunks);
	while ((state = next_piece(arena, &unit, &piece))) {
		uint64_t open = devices & atomic_load(&state->peers);

		if (!open || state->chunk->moving)
			continue;
		CUresult result =
		    map_allow(arena_address(arena, piece), chunk_bytes(state->units_of_piece), open, false);
		if (result == CUDA_SUCCESS)
			atomic_fetch_and(&state->peers, ~open);
		else
			log_once("taking heap memory from another GPU: %s; it stays open to it",
				 real_error_name(result));
	}
	heap_leave(heap);
}

uint64_t heap_reached_by(struct heap *heap)
{
	struct unit_state *state;
	uint32_t unit = 0, piece;
	uint64_t devices = 0;

	lock_take(&heap->lock);
	while ((state = next_piece(&heap->store.arena, &unit, &piece)))
		devices |= atomic_load(&state->peers);
	heap_leave(heap);
	return devices;
}

/* ---- memory that peers lend ---- */

uint64_t heap_lent(const struct heap *heap, uint64_t *ret_in_use, uint64_t *ret_left)
{
	const struct chunk_store *store = &heap->store.chunks;
	uint64_t limit = 0, used = 0, left = 0;

	for (unsigned i = 0; i < store->n_lenders; i++) {
		limit += atomic_load_explicit(&store->lenders[i]->lent.limit, memory_order_relaxed);
		used += atomic_load_explicit(&store->lenders[i]->lent.used, memory_order_relaxed);
		left += lender_left(store->lenders[i]);
	}
	uint64_t idle = atomic_load_explicit(&heap->figures.idle[CHUNK_PEER], memory_order_relaxed);
	*ret_in_use = used > idle ? used - idle : 0;
	*ret_left = left + idle;
	return limit;
}

void heap_give_back_lent(struct heap *heap)
{
	if (!atomic_load_explicit(&heap->figures.idle[CHUNK_PEER], memory_order_relaxed))
		return;
	lock_take(&heap->lock);
	block_trim(&heap->store, (const uint64_t[CHUNK_PLACES]){UINT64_MAX, UINT64_MAX, 0});
	heap_leave(heap);
}

uint64_t heap_wanted(const struct heap *heap)
{
	const struct chunk_store *store = &heap->store.chunks;
	uint64_t bytes = 0;

	for (unsigned i = 0; i < store->n_lenders; i++)
		bytes += lender_wanted(store->lenders[i]);
	return bytes;
}

void heap_wanted_pieces(struct heap *heap, void (*visit)(void *argument, uint32_t piece), void *argument)
{
	const struct arena *arena = &heap->store.arena;

	lock_take(&heap->lock);
	for (uint32_t unit = 0; unit < arena->n_units_seen; unit++) {
		const struct chunk *chunk = block_has_piece(arena, unit) ? arena->states[unit].chunk : NULL;

		if (chunk && chunk->kind == CHUNK_MOVABLE && !block_is_pinned(chunk->block) &&
		    chunk_is_wanted(&heap->store.chunks, chunk))
			visit(argument, unit);
	}
	heap_leave(heap);
}
