// SPDX-License-Identifier: Apache-2.0
/*
 * Allocations that are backed on use. Their parts are blocks without address space of their own: it belongs
 * to the allocation, and goes back as it was taken, in one range, when the allocation was freed and its last part was
 * taken down. That may be later: a piece may be moving, or the driver may refuse to unmap.
 */
#include "shim/heap/block.h"
#include "shim/heap/heap.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/stats/stats.h"

#include <stdlib.h>

/*
 * Memory is taken in multiples of the largest piece, but not of more than this, so that small uses neither make many
 * blocks nor take much that is not used.
 */
#define GRAIN_MOST 16

static uint32_t units_for(uint64_t bytes)
{
	return (uint32_t)((bytes + HEAP_UNIT - 1) / HEAP_UNIT);
}

/* ---- the allocation ---- */

/*
 * Two int32 that are indices make up an address close behind a multiple of 4 GiB, and would count as a pointer
 * (serve/managed.c). So only a long allocation lies there, as long as there is another place. A place that was tried in
 * vain stays taken if it is short; longer ones are given back in the end, and until then are a chain by on_use_list.
 */
#define EDGE_UNITS   ((UINT64_C(1) << 32) / HEAP_UNIT)
#define BEHIND_UNITS ((UINT64_C(64) << 20) / HEAP_UNIT)
#define NO_UNIT      UINT32_MAX

static bool take_units(struct arena *arena, uint32_t units, uint32_t *ret_unit)
{
	uint32_t held = NO_UNIT;
	bool found = false;

	while (!found && arena_take(arena, units, ret_unit)) {
		uint64_t past = arena_address(arena, *ret_unit) / HEAP_UNIT % EDGE_UNITS;

		found = units > EDGE_UNITS / 2 || (past >= BEHIND_UNITS && past + units < EDGE_UNITS);
		if (!found && units > BEHIND_UNITS) {
			atomic_store(&arena->states[*ret_unit].on_use_list, held);
			held = *ret_unit;
		}
	}
	while (held != NO_UNIT) {
		uint32_t next = atomic_load(&arena->states[held].on_use_list);

		arena_give(arena, held, units);
		held = next;
	}
	return found || arena_take(arena, units, ret_unit);
}

static void mark(struct arena *arena, const struct on_use *on_use, uint32_t word)
{
	for (uint32_t i = 0; i < on_use->units; i++)
		atomic_store_explicit(&arena->on_use[on_use->unit + i], word, memory_order_release);
}

enum sw_status heap_on_use_reserve(struct heap *heap, size_t bytes, bool keep, CUdeviceptr *ret_address)
{
	struct arena *arena = &heap->store.arena;
	struct on_use *on_use;

	if (!bytes || bytes > arena->bytes)
		return SW_NO_MEMORY;
	on_use = calloc(1, sizeof(*on_use));
	if (!on_use)
		return SW_NO_HOST_MEMORY;
	on_use->units = units_for(bytes);
	on_use->keep = keep;
	lock_take(&heap->lock);
	bool taken = take_units(arena, on_use->units, &on_use->unit);
	if (taken) {
		struct unit_state *state = &arena->states[on_use->unit];

		on_use->next = heap->on_use;
		on_use->link = &heap->on_use;
		if (on_use->next)
			on_use->next->link = &on_use->next;
		heap->on_use = on_use;
		state->on_use = on_use;
		atomic_store(&state->n_bounded, 0);
		atomic_store(&state->side, ON_USE_PLAIN);
		atomic_store(&state->on_use_site, 0);
		atomic_fetch_add(&state->on_use_id, 1);
		atomic_store(&state->on_use_stays, false);
		atomic_store(&state->on_use_units, on_use->units);
		atomic_store(&state->on_use_left, on_use->units);
		atomic_store(&arena->any_on_use, true);
		lifetimes_on_use(arena->lifetimes, arena_address(arena, on_use->unit), bytes);
		mark(arena, on_use, on_use->unit + 1);
		*ret_address = arena_address(arena, on_use->unit);
		stats_live_add(heap->store.chunks.device, PLACE_UNUSED, on_use->units * HEAP_UNIT);
	}
	heap_leave(heap);
	if (!taken) {
		free(on_use);
		return SW_NO_MEMORY;
	}
	return SW_OK;
}

/* Returns the allocation that has an address, or NULL. Locking: the caller holds HEAP. */
static struct on_use *on_use_at(const struct arena *arena, CUdeviceptr address)
{
	uint32_t first;

	return arena_contains(arena, address) && arena_is_on_use(arena, address, &first) ? arena->states[first].on_use
											 : NULL;
}

uint64_t heap_on_use_free(struct heap *heap, CUdeviceptr base)
{
	struct arena *arena = &heap->store.arena;
	struct block *block;
	uint64_t had = 0;

	lock_take(&heap->lock);
	struct on_use *on_use = on_use_at(arena, base);
	if (!on_use) {
		heap_leave(heap);
		return 0;
	}
	lifetimes_freed(arena->lifetimes, base, on_use->units * HEAP_UNIT);
	mark(arena, on_use, 0);
	stats_live_sub(heap->store.chunks.device, PLACE_UNUSED,
		       atomic_exchange(&arena->states[on_use->unit].on_use_left, 0) * HEAP_UNIT);
	arena->states[on_use->unit].on_use = NULL;
	*on_use->link = on_use->next;
	if (on_use->next)
		on_use->next->link = on_use->link;
	for (uint32_t unit = on_use->unit; (block = block_next(arena, &unit, on_use->unit + on_use->units));) {
		had += block->units * HEAP_UNIT;
		if (block->asked)
			block_forget_asked(&heap->store, block, block_address(&heap->store, block));
		arena_unmark(arena, block->unit, block->units);
		block_tell_all(&heap->store, block);
		block_give(&heap->store, block);
	}
	on_use->freed = true;
	block_parts_end(&heap->store, on_use);
	heap_trim_to_keep(heap);
	heap_leave(heap);
	return had;
}

/* ---- its memory ---- */

static bool has_memory(const struct arena *arena, uint32_t unit)
{
	return atomic_load_explicit(&arena->table[unit], memory_order_acquire) != 0;
}

bool heap_on_use_missing(const struct heap *heap, bool round, CUdeviceptr *address, uint64_t *bytes)
{
	const struct arena *arena = &heap->store.arena;
	unsigned grain =
	    block_largest_piece(&heap->store) < GRAIN_MOST ? block_largest_piece(&heap->store) : GRAIN_MOST;
	uint32_t first;

	if (!*bytes || !arena_contains(arena, *address) || !arena_is_on_use(arena, *address, &first) ||
	    !atomic_load_explicit(&arena->states[first].on_use_left, memory_order_relaxed))
		return false;
	uint32_t units = atomic_load_explicit(&arena->states[first].on_use_units, memory_order_relaxed);
	/* It may have been freed meanwhile, and a shorter one be there. */
	if (*address - arena_address(arena, first) >= units * HEAP_UNIT)
		return false;
	uint64_t room = arena_address(arena, first) + units * HEAP_UNIT - *address;
	uint32_t unit = arena_unit(arena, *address),
		 end = arena_unit(arena, *address + (*bytes < room ? *bytes : room) - 1) + 1;
	while (unit < end && has_memory(arena, unit))
		unit++;
	while (unit < end && has_memory(arena, end - 1))
		end--;
	if (unit == end)
		return false;
	if (round) {
		unit = first + (unit - first) / grain * grain;
		end = first + (end - first + grain - 1) / grain * grain;
		end = end - first < units ? end : first + units;
	}
	*address = arena_address(arena, unit);
	*bytes = (end - unit) * HEAP_UNIT;
	return true;
}

/* Locking: the caller holds HEAP. */
static bool lacks(const struct arena *arena, const struct on_use *on_use)
{
	return atomic_load(&arena->states[on_use->unit].on_use_left) || arena_on_use_is_cpus(arena, on_use->unit);
}

bool heap_on_use_any(struct heap *heap)
{
	const struct on_use *one;

	lock_take(&heap->lock);
	for (one = heap->on_use; one && !lacks(&heap->store.arena, one);)
		one = one->next;
	heap_leave(heap);
	return one != NULL;
}

bool heap_on_use_next(struct heap *heap, CUdeviceptr from, CUdeviceptr *ret_base, uint64_t *ret_bytes)
{
	const struct arena *arena = &heap->store.arena;
	const struct on_use *found = NULL;

	lock_take(&heap->lock);
	for (const struct on_use *one = heap->on_use; one; one = one->next)
		if (arena_address(arena, one->unit) >= from && (!found || one->unit < found->unit) && lacks(arena, one))
			found = one;
	if (found) {
		*ret_base = arena_address(arena, found->unit);
		*ret_bytes = found->units * HEAP_UNIT;
	}
	heap_leave(heap);
	return found != NULL;
}

/* As block_take() where no warm block fits: all of it on the device if that has room for it. */
static enum sw_status build(struct block_store *store, struct on_use *on_use, uint32_t unit, uint32_t units,
			    enum heap_from from, struct block **ret_block)
{
	enum sw_status status = SW_NO_MEMORY;

	if (from == HEAP_DEVICE_FIRST && block_device_has(store, units))
		status = block_build(store, unit, units, CHUNK_MOVABLE, on_use, HEAP_DEVICE, ret_block);
	if (status == SW_NO_MEMORY)
		status = block_build(store, unit, units, CHUNK_MOVABLE, on_use, from, ret_block);
	return status;
}

static void take_run(struct heap *heap, struct on_use *on_use, struct block *block, struct heap_grant *grant)
{
	struct arena *arena = &heap->store.arena;

	if (heap->store.beside)
		atomic_store(&arena->any_unreported, true);
	arena_mark(arena, block->unit, block->units, block->unit + 1, on_use->unit, on_use->units);
	atomic_store_explicit(&arena->states[block->unit].site, on_use->site, memory_order_release);
	if (on_use->keep)
		block_set_keep(&heap->store, block, true);
	block_tell_all(&heap->store, block);
	atomic_fetch_sub(&arena->states[on_use->unit].on_use_left, block->units);
	stats_live_sub(heap->store.chunks.device, PLACE_UNUSED, block->units * HEAP_UNIT);
	stats_grown(on_use->site, block->units * HEAP_UNIT);
	block_grant(block, grant);
}

enum sw_status heap_on_use_take(struct heap *heap, size_t bytes, enum chunk_kind kind, enum heap_from from,
				struct heap_grant *ret_grant)
{
	struct arena *arena = &heap->store.arena;
	enum sw_status status = SW_INVALID;

	(void)kind;
	lock_take(&heap->lock);
	bool soon = heap_has_soon(heap);
	/* A part that could neither be finished nor taken down is mapped where its memory is to be made again. */
	block_retry_refused(&heap->store);
	struct on_use *on_use = on_use_at(arena, ret_grant->address);
	if (on_use) {
		uint32_t unit = arena_unit(arena, ret_grant->address), last = on_use->unit + on_use->units;
		uint64_t offset = (ret_grant->address - arena->base) % HEAP_UNIT;

		if (bytes <= (last - unit) * HEAP_UNIT - offset)
			last = unit + units_for(offset + bytes);
		status = SW_OK;
		while (unit < last && status == SW_OK) {
			uint32_t run = unit;
			struct block *block;

			while (run < last && !has_memory(arena, run))
				run++;
			if (run > unit)
				status = build(&heap->store, on_use, unit, run - unit, from, &block);
			if (run > unit && status == SW_OK)
				take_run(heap, on_use, block, ret_grant);
			unit = run > unit ? run : unit + 1;
		}
	}
	if (status != SW_OK)
		heap_failed(heap, from, soon, ret_grant);
	heap_leave(heap);
	return status;
}

enum sw_status heap_on_use_where(struct heap *heap, CUdeviceptr base, uint64_t ret_bytes[CHUNK_PLACES], bool *ret_stays)
{
	const struct arena *arena = &heap->store.arena;
	const struct block *block;

	for (int place = 0; place < CHUNK_PLACES; place++)
		ret_bytes[place] = 0;
	*ret_stays = false;
	lock_take(&heap->lock);
	const struct on_use *on_use = on_use_at(arena, base);
	uint32_t unit = on_use ? on_use->unit : 0, end = on_use ? unit + on_use->units : 0;
	while ((block = block_next(arena, &unit, end))) {
		for (int place = 0; place < CHUNK_PLACES; place++)
			ret_bytes[place] += block->bytes[place];
		*ret_stays |= block_is_pinned(block);
	}
	heap_leave(heap);
	return on_use ? SW_OK : SW_INVALID;
}

void heap_on_use_set_site(struct heap *heap, CUdeviceptr base, unsigned site)
{
	struct arena *arena = &heap->store.arena;
	const struct block *block;

	lock_take(&heap->lock);
	struct on_use *on_use = on_use_at(arena, base);
	uint32_t unit = on_use ? on_use->unit : 0, end = on_use ? unit + on_use->units : 0;
	while ((block = block_next(arena, &unit, end))) {
		atomic_store_explicit(&arena->states[block->unit].site, site, memory_order_release);
		stats_grown(on_use->site, -(block->units * HEAP_UNIT));
		stats_grown(site, block->units * HEAP_UNIT);
	}
	if (on_use) {
		on_use->site = site;
		atomic_store_explicit(&arena->states[on_use->unit].on_use_site, site, memory_order_release);
	}
	heap_leave(heap);
}
