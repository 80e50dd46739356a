/*
 * Divided blocks (heap.h): marks their parts in the arena, so that an address leads to the beginning of its part, and
 * counts the memory of unused ones as idle.
 */
#include "shim/heap/heap_internal.h"

uint32_t heap_divide(struct heap *heap, struct block *block, void *divider)
{
	heap_enter(heap);
	block->divider = divider;
	atomic_store_explicit(&heap->store.arena.states[block->unit].divided, true, memory_order_release);
	uint32_t units = block->units;
	heap_leave(heap);
	return units;
}

void *heap_divider(const struct block *block)
{
	return block->divider;
}

void heap_reused(struct heap *heap, CUdeviceptr address, uint64_t bytes)
{
	const struct arena *arena = &heap->store.arena;
	uint64_t room = arena->base + arena->bytes - address;
	CUdeviceptr end = address + (bytes < room ? bytes : room);

	for (; address < end; address = arena_address(arena, arena_unit(arena, address) + 1)) {
		uint32_t word = arena_look(arena, address);

		if (word && !(word & ARENA_SLAB))
			atomic_store(&arena->marks[word - 1].discarded, 0);
	}
}

bool heap_part_begin(struct heap *heap, struct block *block, uint32_t unit, uint32_t units)
{
	struct arena *arena = &heap->store.arena;

	heap_enter(heap);
	bool may = !block->stays && !block->left;
	for (uint32_t i = 0; may && i < units; i++)
		atomic_store_explicit(&arena->part[block->unit + unit + i], block->unit + unit + 1,
				      memory_order_release);
	if (may)
		heap_reused(heap, arena_address(arena, block->unit), HEAP_UNIT);
	heap_leave(heap);
	return may;
}

void heap_part_end(struct heap *heap, struct block *block, CUdeviceptr address)
{
	struct arena *arena = &heap->store.arena;
	uint32_t first = arena_unit(arena, address);

	heap_enter(heap);
	if (block->asked)
		heap_forget_asked(heap, block, address);
	for (uint32_t n = arena_part_units(arena, first), i = 0; i < n; i++)
		atomic_store_explicit(&arena->part[first + i], 0, memory_order_release);
	heap_leave(heap);
}

uint64_t heap_part_bytes(struct heap *heap, CUdeviceptr address)
{
	const struct arena *arena = &heap->store.arena;

	lock_take(&heap->lock);
	uint64_t bytes = arena_part_units(arena, arena_unit(arena, address)) * HEAP_UNIT;
	lock_drop(&heap->lock);
	return bytes;
}

/* Locking: the caller holds HEAP. */
static void set_unused(struct heap *heap, struct block *block, bool unused)
{
	if (block->unused == unused)
		return;
	block->unused = unused;
	for (enum chunk_place place = 0; place < CHUNK_PLACES; place++) {
		if (unused)
			heap->store.unused_bytes[place] += block->bytes[place];
		else
			heap->store.unused_bytes[place] -= block->bytes[place];
	}
}

void heap_set_unused(struct heap *heap, struct block *block, bool unused)
{
	heap_enter(heap);
	set_unused(heap, block, unused);
	heap_leave(heap);
}

void heap_undivide(struct heap *heap, struct block *block)
{
	lock_assert_held(LOCK_HEAP);
	set_unused(heap, block, false);
	block->divider = NULL;
	atomic_store_explicit(&heap->store.arena.states[block->unit].divided, false, memory_order_release);
}
