/*
 * Access of peers to the heap (heap.h). A mapping is opened when it is made, to the devices that are named at that
 * moment, and records them in its unit's state. The functions here bring older mappings up to date. A moving piece
 * belongs to the mover, which maps it without HEAP; it is looked at again when it has arrived, and then either its
 * mapping is new or it gets what it lacks.
 */
#include "shim/heap/heap_internal.h"
#include "shim/heap/map.h"
#include "shim/base/log.h"
#include "shim/driver/real.h"

#include <time.h>

/* As in pin.c: a piece arrives within some milliseconds. */
#define PATIENCE_MS 1000

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

/* *ret_moving: a moving piece lacks access. */
static CUresult open_all(struct heap *heap, uint64_t wanted, bool *ret_moving)
{
	struct arena *arena = &heap->store.arena;
	struct unit_state *state;
	uint32_t unit = 0, piece;

	*ret_moving = false;
	while ((state = next_piece(arena, &unit, &piece))) {
		uint64_t missing = wanted & ~atomic_load(&state->peers);

		if (!missing)
			continue;
		if (state->chunk->moving) {
			*ret_moving = true;
			continue;
		}
		CUresult result =
		    map_allow_peers(arena_address(arena, piece), chunk_bytes(state->units_of_piece), missing, true);
		if (result != CUDA_SUCCESS)
			return result;
		atomic_fetch_or(&state->peers, missing);
	}
	return CUDA_SUCCESS;
}

CUresult heap_reach(struct heap *heap)
{
	CUresult result;
	bool moving;
	int cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	atomic_fetch_add(&heap->store.n_awaited, 1);
	for (unsigned ms = 0;; ms++) {
		heap_enter(heap);
		result = open_all(heap, chunk_peers(&heap->store.chunks), &moving);
		heap_leave(heap);
		if (result != CUDA_SUCCESS || !moving || ms == PATIENCE_MS)
			break;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	atomic_fetch_sub(&heap->store.n_awaited, 1);
	pthread_setcancelstate(cancel, NULL);
	return result == CUDA_SUCCESS && moving ? CUDA_ERROR_NOT_READY : result;
}

void heap_unreach(struct heap *heap, uint64_t devices)
{
	struct arena *arena = &heap->store.arena;
	struct unit_state *state;
	uint32_t unit = 0, piece;

	heap_enter(heap);
	devices &= ~chunk_peers(&heap->store.chunks);
	while ((state = next_piece(arena, &unit, &piece))) {
		uint64_t open = devices & atomic_load(&state->peers);

		if (!open || state->chunk->moving)
			continue;
		CUresult result =
		    map_allow_peers(arena_address(arena, piece), chunk_bytes(state->units_of_piece), open, false);
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

	heap_enter(heap);
	while ((state = next_piece(&heap->store.arena, &unit, &piece)))
		devices |= atomic_load(&state->peers);
	heap_leave(heap);
	return devices;
}
