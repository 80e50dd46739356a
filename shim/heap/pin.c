// SPDX-License-Identifier: Apache-2.0
/*
 * Pins: blocks that must stay where they are, because others know their memory by its physical place, or because the
 * GPU may access it at any time without a submission that names it. migration_begin() refuses pinned blocks under HEAP.
 * So a pin comes either before a piece begins to move, which then does not, or after, and is then waited for. Such a
 * piece moves to a place where it is mapped and stays mapped; that takes a copy or a mapping, a fraction of a second at
 * most, for which the mover needs nothing from the waiting thread. The plan sees a pinned piece as no candidate
 * (BLOCK_STATE_PINNED).
 *
 * Pins that will end are counted. A permanent pin is a flag, so that any number of them cannot overflow.
 */
#include "shim/heap/block.h"
#include "shim/stats/stats.h"

#include <stdlib.h>
#include <time.h>

/* A piece arrives within some milliseconds. The limit keeps the pinning thread from hanging with a GPU that hangs. */
#define PATIENCE_MS 1000

/* Units, `first` up to but not including `end`. */
struct units {
	uint32_t first, end;
};

/* Returns the units that these bytes touch; for no bytes, the unit of the address. */
static struct units units_of(const struct arena *arena, CUdeviceptr address, size_t bytes)
{
	uint64_t left = arena->base + arena->bytes - address;
	CUdeviceptr last = address + (bytes == 0 ? 0 : bytes < left ? bytes - 1 : left - 1);

	return (struct units){arena_unit(arena, address), arena_unit(arena, last) + 1};
}

/* Returns whether no piece of these units is moving. Locking: the caller holds HEAP. */
static bool have_arrived(struct heap *heap, void *argument)
{
	struct units units = *(const struct units *)argument;
	struct block *block;

	while ((block = block_next(&heap->store.arena, &units.first, units.end)))
		if (block->n_moving)
			return false;
	return true;
}

bool heap_await(struct heap *heap, bool (*look)(struct heap *heap, void *argument), void *argument)
{
	bool there;
	int cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	atomic_fetch_add(&heap->store.n_awaited, 1);
	for (unsigned ms = 0;; ms++) {
		lock_take(&heap->lock);
		there = look(heap, argument);
		heap_leave(heap);
		if (there || ms == PATIENCE_MS)
			break;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	atomic_fetch_sub(&heap->store.n_awaited, 1);
	pthread_setcancelstate(cancel, NULL);
	return there;
}

bool heap_pin(struct heap *heap, CUdeviceptr address, size_t bytes)
{
	const struct arena *arena = &heap->store.arena;
	struct units units = units_of(arena, address, bytes), at = units;
	struct block *block;

	lock_take(&heap->lock);
	while ((block = block_next(arena, &at.first, at.end)))
		block_set_pins(&heap->store, block, block->n_pins + 1, PIN_OFF);
	bool there = have_arrived(heap, &units);
	heap_leave(heap);
	if (there || heap_await(heap, have_arrived, &units))
		return true;
	heap_pin_end(heap, address, bytes, PIN_OFF);
	return false;
}

void heap_pin_end(struct heap *heap, CUdeviceptr address, size_t bytes, enum pin_end end)
{
	const struct arena *arena = &heap->store.arena;
	struct units units = units_of(arena, address, bytes);
	struct block *block;

	lock_take(&heap->lock);
	while ((block = block_next(arena, &units.first, units.end))) {
		bool was_left = block->left;

		block_drop_pins(&heap->store, block, 1, end);
		if (block->slab && block->left != was_left)
			small_leave(&heap->small, block);
	}
	heap_leave(heap);
}

void heap_hold(struct heap *heap, struct block *block, bool hold)
{
	lock_take(&heap->lock);
	if (hold)
		block_set_pins(&heap->store, block, block->n_pins + 1, PIN_OFF);
	else
		block_drop_pins(&heap->store, block, 1, PIN_OFF);
	heap_leave(heap);
}

/* ---- memory that moves beside what runs ---- */

/* The mark comes before the wait, and stays if that is in vain: the address is kept by then, and nobody asks again. */
bool heap_stay_beside(struct heap *heap, CUdeviceptr address, size_t bytes)
{
	const struct arena *arena = &heap->store.arena;
	struct units units = units_of(arena, address, bytes), at = units;
	struct block *block;

	lock_take(&heap->lock);
	bool beside = heap->store.beside;
	while ((block = block_next(arena, &at.first, at.end))) {
		block->elsewhere = true;
		block_set_pins(&heap->store, block, block->n_pins, beside ? PIN_STAYS : PIN_OFF);
	}
	heap_leave(heap);
	return !beside || heap_await(heap, have_arrived, &units);
}

/* Locking: the caller holds HEAP. */
static void set_beside(struct heap *heap, struct block *block, bool beside)
{
	bool was = block_is_pinned(block);

	if (beside && block->elsewhere && !was)
		stats_add(STAT_pinned_blocks, 1);
	block->stays_beside = beside && block->elsewhere;
	if (block->loose) {
		block->unreported = beside;
		block_set_bounded(&heap->store, block, false);
	}
	if (block_is_pinned(block) == was)
		return;
	block_show_pin(&heap->store, block);
	block_tell_all(&heap->store, block);
}

void heap_set_beside(struct heap *heap, bool beside, uint64_t piece_most)
{
	struct arena *arena = &heap->store.arena;
	struct block *block;
	uint32_t unit = 0;

	lock_take(&heap->lock);
	if (heap->store.beside == beside) {
		heap_leave(heap);
		return;
	}
	bool any = heap->on_use != NULL;
	while ((block = block_next(arena, &unit, arena->n_units_seen))) {
		any |= block->loose;
		set_beside(heap, block, beside);
	}
	heap->store.beside = beside;
	block_limit_pieces(&heap->store, piece_most);
	atomic_store(&arena->any_unreported, beside && any);
	heap_leave(heap);
}

bool heap_is_awaited(const struct heap *heap)
{
	return atomic_load(&heap->store.n_awaited) != 0;
}

uint64_t heap_pinned_device(struct heap *heap)
{
	const struct arena *arena = &heap->store.arena;
	const struct block *block;
	uint64_t bytes = 0;
	uint32_t unit = 0;

	lock_take(&heap->lock);
	while ((block = block_next(arena, &unit, arena->n_units_seen)))
		if (block_is_pinned(block))
			bytes += block->bytes[CHUNK_DEVICE] + block->bytes[CHUNK_PEER];
	heap_leave(heap);
	return bytes;
}

/* ---- pins of the program ---- */

enum sw_status heap_pin_asked(struct heap *heap, CUdeviceptr base)
{
	struct asked_pin *pin = calloc(1, sizeof(*pin));
	enum sw_status status = SW_INVALID;

	if (!pin)
		return SW_NO_HOST_MEMORY;
	if (!heap_pin(heap, base, 1)) {
		free(pin);
		return SW_BUSY;
	}
	lock_take(&heap->lock);
	struct block *block = arena_block_at(&heap->store.arena, base);
	struct asked_pin **at = block ? block_asked(block, base) : NULL;
	if (at && !*at) {
		pin->base = base;
		*at = pin;
		pin = NULL;
	}
	/* The pin counted by heap_pin() stays. If the block has been freed meanwhile, its pin has ended with it. */
	if (at) {
		(*at)->n++;
		status = SW_OK;
	}
	heap_leave(heap);
	free(pin);
	return status;
}

enum sw_status heap_unpin_asked(struct heap *heap, CUdeviceptr base)
{
	lock_take(&heap->lock);
	struct block *block = arena_block_at(&heap->store.arena, base);
	struct asked_pin **at = block ? block_asked(block, base) : NULL;
	bool is_pinned = at && *at;
	if (is_pinned) {
		struct asked_pin *pin = *at;

		block_drop_pins(&heap->store, block, 1, PIN_OFF);
		if (--pin->n == 0) {
			*at = pin->next;
			free(pin);
		}
	}
	heap_leave(heap);
	return is_pinned ? SW_OK : SW_INVALID;
}
