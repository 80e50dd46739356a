/*
 * arena.h: the address space of a heap, and what lies at each of its 2 MiB units.
 *
 * Lock: HEAP for everything but arena_look(), which reads one word atomically. A word says of a unit that it is free
 * (0), part of a block that starts at a unit, or a slab of a size class; from that alone the start of a block can be
 * computed, so that a look-up needs no pointer that could go stale. The table costs 4 bytes a unit, and only pages of
 * it that were written exist.
 */
#ifndef SPILLWAY_ARENA_H
#define SPILLWAY_ARENA_H

#include "shim/heap/heap.h"
#include "shim/range.h"

struct arena {
	CUdeviceptr base;
	uint64_t bytes;
	uint32_t n_units;
	_Atomic uint32_t *table;
	struct range_set free_units;
};

#define ARENA_SLAB 0x80000000u /* a slab; the class is in the low bits. Else: first unit of the block, plus 1 */

enum sw_status arena_init(struct arena *arena, CUdeviceptr hint, uint64_t bytes);
/* False when the driver kept the reservation (something is still mapped there). */
bool arena_fini(struct arena *arena);

/* Address space for a block. */
bool arena_take(struct arena *arena, uint32_t units, uint32_t *ret_unit);
void arena_give(struct arena *arena, uint32_t unit, uint32_t units);

void arena_mark_block(struct arena *arena, uint32_t unit, uint32_t units);
void arena_mark_slab(struct arena *arena, uint32_t unit, unsigned size_class);
void arena_unmark(struct arena *arena, uint32_t unit, uint32_t units);

static inline CUdeviceptr arena_address(const struct arena *arena, uint32_t unit)
{
	return arena->base + (CUdeviceptr)unit * HEAP_UNIT;
}

static inline bool arena_contains(const struct arena *arena, CUdeviceptr address)
{
	return address - arena->base < arena->bytes;
}

/* The table's word for an address inside the arena. */
static inline uint32_t arena_look(const struct arena *arena, CUdeviceptr address)
{
	return __atomic_load_n((const uint32_t *)&arena->table[(address - arena->base) / HEAP_UNIT], __ATOMIC_ACQUIRE);
}

#endif
