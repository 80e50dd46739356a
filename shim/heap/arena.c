// SPDX-License-Identifier: Apache-2.0
/* Reserves the address space of a heap and keeps the tables that say what is at each unit (arena.h). */
#include "shim/heap/arena.h"
#include "shim/base/array.h"
#include "shim/base/number.h"
#include "shim/driver/real.h"
#include "shim/heap/chunk.h"
#include "shim/lifetimes/lifetimes.h"

#include <stdatomic.h>
#include <sys/mman.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

/* A smaller reservation is of no use. Not expected: the driver reserved 16 TiB in 4 us (docs/facts.md, Mapping). */
#define LEAST_BYTES ((uint64_t)64 << 20)

/*
 * All tables lie in one range of reserved address space, of which only the pages that are written become memory. The
 * states of blocks come first, because they are aligned.
 */
#define TABLES_BYTES_A_UNIT (sizeof(struct block_state) + sizeof(struct unit_state) + 4 * sizeof(uint32_t))

/*
 * Parts of an allocation that is backed on use are found from here alone, and a leak checker reads no mappings unasked.
 */
static bool tables_new(struct arena *arena)
{
	arena->block_states = lazy_memory_new(arena->n_units * TABLES_BYTES_A_UNIT);
	if (!arena->block_states)
		return false;
	arena->states = (struct unit_state *)(arena->block_states + arena->n_units);
	arena->table = (_Atomic uint32_t *)(arena->states + arena->n_units);
	arena->piece = arena->table + arena->n_units;
	arena->part = arena->piece + arena->n_units;
	arena->on_use = arena->part + arena->n_units;
#ifdef __SANITIZE_ADDRESS__
	__lsan_register_root_region(arena->states, arena->n_units * sizeof(arena->states[0]));
#endif
	return true;
}

static void tables_free(struct arena *arena)
{
#ifdef __SANITIZE_ADDRESS__
	__lsan_unregister_root_region(arena->states, arena->n_units * sizeof(arena->states[0]));
#endif
	munmap(arena->block_states, arena->n_units * TABLES_BYTES_A_UNIT);
}

enum sw_status arena_init(struct arena *arena, CUdeviceptr hint, uint64_t bytes)
{
	CUdeviceptr base = 0;

	bytes = (bytes + HEAP_UNIT - 1) / HEAP_UNIT * HEAP_UNIT;
	while (REAL(cuMemAddressReserve)(&base, bytes, HEAP_UNIT, hint, 0) != CUDA_SUCCESS) {
		if (hint) {
			hint = 0;
			continue;
		}
		bytes = bytes / 2 / HEAP_UNIT * HEAP_UNIT;
		if (bytes < LEAST_BYTES)
			return SW_NO_MEMORY;
	}
	arena->base = base;
	arena->bytes = bytes;
	arena->n_units = (uint32_t)(bytes / HEAP_UNIT);
	/* Not the last one: where a block ends is an address of the arena. */
	if (tables_new(arena) && range_init(&arena->free_units, arena->n_units - 1))
		return SW_OK;
	arena_fini(arena);
	return SW_NO_HOST_MEMORY;
}

bool arena_fini(struct arena *arena)
{
	if (REAL(cuMemAddressFree)(arena->base, arena->bytes) != CUDA_SUCCESS)
		return false;
	if (arena->block_states)
		tables_free(arena);
	range_fini(&arena->free_units);
	return true;
}

bool arena_take(struct arena *arena, uint32_t units, uint32_t *ret_unit)
{
	uint64_t start;

	if (!range_take(&arena->free_units, units + UINT64_C(1), &start))
		return false;
	*ret_unit = (uint32_t)start + 1;
	arena->states[*ret_unit].gap = 1;
	return true;
}

bool arena_take_at(struct arena *arena, uint32_t unit, uint32_t units)
{
	if (!range_take_at(&arena->free_units, unit, units))
		return false;
	arena->states[unit].gap = 0;
	return true;
}

void arena_give(struct arena *arena, uint32_t unit, uint32_t units)
{
	uint32_t gap = arena->states[unit].gap;

	range_give(&arena->free_units, unit - gap, units + gap);
}

void arena_mark(struct arena *arena, uint32_t unit, uint32_t units, uint32_t word, uint32_t space, uint32_t space_units)
{
	struct unit_state *state = &arena->states[unit];

	/* The state of a block is set before its words make it visible. */
	atomic_store_explicit(&state->units, units, memory_order_relaxed);
	atomic_store_explicit(&state->site, 0, memory_order_relaxed);
	atomic_store_explicit(&state->space, space, memory_order_relaxed);
	atomic_store_explicit(&state->space_units, space_units, memory_order_relaxed);
	atomic_store_explicit(&arena->block_states[unit].discarded, 0, memory_order_relaxed);
	for (uint32_t i = 0; i < units; i++)
		atomic_store_explicit(&arena->table[unit + i], word, memory_order_release);
}

void arena_mark_piece(struct arena *arena, uint32_t block_unit, uint32_t unit, struct chunk *chunk, unsigned units,
		      bool on_host)
{
	struct unit_state *state = &arena->states[unit];

	if (unit + units > arena->n_units_seen)
		arena->n_units_seen = unit + units;
	state->chunk = chunk;
	state->units_of_piece = units;
	atomic_store_explicit(&state->where, on_host ? BLOCK_STATE_HOST : BLOCK_STATE_DEVICE, memory_order_relaxed);
	if (on_host)
		atomic_fetch_add(&arena->block_states[block_unit].away, 1);
	for (uint32_t i = 0; i < units; i++)
		atomic_store_explicit(&arena->piece[unit + i], unit + 1, memory_order_release);
}

void arena_mark_where(struct arena *arena, uint32_t block_unit, uint32_t unit, enum block_state_where where)
{
	bool was_away = atomic_load(&arena->states[unit].where) == BLOCK_STATE_HOST;

	atomic_store(&arena->states[unit].where, where);
	if (where == BLOCK_STATE_HOST && !was_away)
		atomic_fetch_add(&arena->block_states[block_unit].away, 1);
	else if (where != BLOCK_STATE_HOST && was_away)
		atomic_fetch_sub(&arena->block_states[block_unit].away, 1);
}

void arena_unmark_piece(struct arena *arena, uint32_t block_unit, uint32_t unit)
{
	struct unit_state *state = &arena->states[unit];

	if (atomic_load(&state->where) == BLOCK_STATE_HOST)
		atomic_fetch_sub(&arena->block_states[block_unit].away, 1);
	atomic_store(&state->where, BLOCK_STATE_NONE);
	state->chunk = NULL;
	for (uint32_t i = 0; i < state->units_of_piece; i++)
		atomic_store_explicit(&arena->piece[unit + i], 0, memory_order_release);
}

void arena_unmark(struct arena *arena, uint32_t unit, uint32_t units)
{
	lifetimes_freed(arena->lifetimes, arena_address(arena, unit), units * HEAP_UNIT);
	for (uint32_t i = 0; i < units; i++)
		atomic_store_explicit(&arena->table[unit + i], 0, memory_order_release);
}

uint32_t arena_reach(const struct arena *arena, uint32_t block_unit, uint32_t *ret_units)
{
	const struct unit_state *state = &arena->states[block_unit];
	uint32_t space_units = atomic_load_explicit(&state->space_units, memory_order_relaxed);

	*ret_units = space_units ? space_units : atomic_load_explicit(&state->units, memory_order_relaxed);
	return space_units ? atomic_load_explicit(&state->space, memory_order_relaxed) : block_unit;
}

static void whole_of(const struct arena *arena, uint32_t first, CUdeviceptr *ret_begin, uint64_t *ret_bytes)
{
	*ret_begin = arena_address(arena, first);
	*ret_bytes = atomic_load_explicit(&arena->states[first].on_use_units, memory_order_relaxed) * HEAP_UNIT;
}

bool arena_on_use_extent(const struct arena *arena, uint32_t first, CUdeviceptr address, CUdeviceptr *ret_begin,
			 uint64_t *ret_bytes)
{
	uint64_t begin, bytes;

	whole_of(arena, first, ret_begin, ret_bytes);
	if (!lifetimes_reach(arena->lifetimes, address, &begin, &bytes))
		return false;
	CUdeviceptr end = smaller(begin + bytes, *ret_begin + *ret_bytes);
	*ret_begin = larger(*ret_begin, begin);
	*ret_bytes = end - *ret_begin;
	return true;
}

bool arena_bounds(const struct arena *arena, CUdeviceptr address, CUdeviceptr *ret_begin, uint64_t *ret_bytes)
{
	uint32_t word = arena_contains(arena, address) ? arena_look(arena, address) : 0, units, first;

	if (arena_contains(arena, address) && arena_is_on_use(arena, address, &first)) {
		whole_of(arena, first, ret_begin, ret_bytes);
		return true;
	}
	if (!word || word & ARENA_SLAB)
		return false;
	*ret_begin = arena_address(arena, arena_reach(arena, word - 1, &units));
	*ret_bytes = units * HEAP_UNIT;
	return true;
}

void arena_extent(const struct arena *arena, CUdeviceptr address, CUdeviceptr *ret_begin, uint64_t *ret_bytes)
{
	uint32_t word = arena_contains(arena, address) ? arena_look(arena, address) : 0, units, first;
	struct live_range range;

	if (arena_contains(arena, address) && arena_is_on_use(arena, address, &first)) {
		(void)arena_on_use_extent(arena, first, address, ret_begin, ret_bytes);
		return;
	}
	*ret_begin = address;
	*ret_bytes = 1;
	if (!word || word & ARENA_SLAB || !arena->lifetimes ||
	    !atomic_load_explicit(&arena->states[word - 1].space_units, memory_order_relaxed) ||
	    !crossings_find(lifetimes_crossings(arena->lifetimes), address - arena->base, &range))
		return;
	first = arena_reach(arena, word - 1, &units);
	range = live_range_within(range, first, units);
	*ret_begin = arena->base + range.begin;
	*ret_bytes = range.end - range.begin;
}

struct block *arena_block_at(const struct arena *arena, CUdeviceptr address)
{
	if (!arena_contains(arena, address))
		return NULL;
	uint32_t unit = arena_unit(arena, address), word = arena_look(arena, address);
	uint32_t first = word & ARENA_SLAB ? unit : word - 1;

	return word && arena->states[first].chunk ? arena->states[first].chunk->block : NULL;
}
