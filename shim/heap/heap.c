/*
 * Creates a heap, allocates and frees: ties the parts together under one lock and chooses slab or block. Budgets are
 * charged for physical memory: all chunks, whether in use, warm, or part of an empty slab. So idle memory is charged
 * although it is free.
 */
#include "shim/base/log.h"
#include "shim/driver/real.h"
#include "shim/heap/block.h"
#include "shim/lifetimes/lifetimes.h"

#include <stdlib.h>

/* ---- divided blocks ---- */

/*
 * Divided blocks (heap.h): marks their parts in the arena, so that an address leads to the beginning of its part, and
 * counts the memory of unused ones as idle.
 */

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

/* Ends the division of a block that is being freed. Locking: the caller holds HEAP. */
static void heap_undivide(struct heap *heap, struct block *block)
{
	lock_assert_held(LOCK_HEAP);
	set_unused(heap, block, false);
	block->divider = NULL;
	atomic_store_explicit(&heap->store.arena.states[block->unit].divided, false, memory_order_release);
}

/* ---- making a heap, allocating and freeing ---- */

void heap_set_site(struct heap *heap, CUdeviceptr address, unsigned site)
{
	struct arena *arena = &heap->store.arena;
	uint32_t word = arena_look(arena, address), unit = word - 1;

	if (!word || word & ARENA_SLAB)
		return;
	if (atomic_load_explicit(&arena->states[unit].divided, memory_order_acquire))
		unit = arena_unit(arena, address);
	atomic_store_explicit(&arena->states[unit].site, site, memory_order_release);
}

static bool granularity_is_ours(CUmemLocation location)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = location};
	size_t granularity = 0;

	return REAL(cuMemGetAllocationGranularity)(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ==
		   CUDA_SUCCESS &&
	       granularity && HEAP_UNIT % granularity == 0;
}

static bool host_granularity_is_ours(CUmemLocation location)
{
	if (granularity_is_ours(location))
		return true;
	log_once("the driver's granularity of host memory is unknown or not 2 MiB: nothing can spill");
	return false;
}

static void take_lenders(struct chunk_store *store, const struct heap_config *config)
{
	for (unsigned i = 0; i < config->n_lenders && i < HEAP_LENDERS; i++) {
		CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = config->lenders[i]->device};

		if (!granularity_is_ours(location))
			continue;
		store->lenders[store->n_lenders++] = config->lenders[i];
		store->usable[CHUNK_PEER] = true;
	}
}

enum sw_status heap_create(const struct heap_config *config, struct heap **ret_heap)
{
	CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = config->device};
	struct heap *heap = calloc(1, sizeof(*heap));

	if (!heap)
		return SW_NO_HOST_MEMORY;
	if (!granularity_is_ours(device)) {
		log_once("the driver's allocation granularity is not 2 MiB; the heap cannot be used");
		free(heap);
		return SW_NOT_SUPPORTED;
	}
	enum sw_status status = arena_init(&heap->store.arena, config->arena_hint, config->arena_bytes);
	if (status != SW_OK) {
		free(heap);
		return status;
	}
	struct arena *arena = &heap->store.arena;
	arena->lifetimes = lifetimes_new(config->device, arena->base, arena->bytes);
	heap->store.chunks = (struct chunk_store){
	    .device = config->device,
	    .peers = config->peers,
	    .usable = {[CHUNK_DEVICE] = true,
		       [CHUNK_HOST] = config->host_usable && host_granularity_is_ours(config->host_location)},
	    .location = {[CHUNK_DEVICE] = device, [CHUNK_HOST] = config->host_location},
	    .rdma = config->rdma,
	    .exportable = config->exportable,
	    .share = config->share,
	    .budget = {[CHUNK_DEVICE] = config->device_budget, [CHUNK_HOST] = config->host_budget},
	};
	take_lenders(&heap->store.chunks, config);
	heap->store.moves = config->moves;
	heap->store.most_units = (unsigned)(config->piece_bytes / HEAP_UNIT);
	if (heap->store.most_units > CHUNK_MOST)
		heap->store.most_units = CHUNK_MOST;
	heap->store.piece_budget = config->piece_budget;
	heap->store.beside = config->beside;
	block_limit_pieces(&heap->store, config->piece_most);
	heap->store.give_up_slab = small_reclaim;
	heap->store.small = &heap->small;
	heap->small.store = &heap->store;
	heap_lock_init(heap, config);
	*ret_heap = heap;
	return SW_OK;
}

void heap_destroy(struct heap *heap)
{
	if (!heap)
		return;
	heap_trim(heap, 0, 0);
	/* Blocks that the program never freed keep the reservation; the driver frees it at the end of the process. */
	if (!arena_fini(&heap->store.arena))
		log_line("a heap was destroyed with blocks in use");
	lifetimes_free(heap->store.arena.lifetimes);
	chunk_store_fini(&heap->store.chunks);
	free(heap->store.news.pieces);
	pthread_mutex_destroy(&heap->lock.mutex);
	free(heap);
}

enum sw_status heap_alloc(struct heap *heap, size_t bytes, enum chunk_kind kind, enum heap_from from,
			  struct heap_grant *ret_grant)
{
	size_t units = bytes / HEAP_UNIT + (bytes % HEAP_UNIT != 0); /* `bytes` may be SIZE_MAX */
	bool small = bytes <= SMALL_MOST, new_block = true;
	struct arena *arena = &heap->store.arena;
	enum sw_status status = SW_NO_MEMORY;
	struct heap_grant grant = {0};

	heap_enter(heap);
	bool soon = heap_has_soon(heap);
	if (small)
		status = small_take(&heap->small, bytes, kind, from == HEAP_STRIPE ? HEAP_DEVICE : from, &grant.address,
				    &grant.block, &new_block, &grant.reused);
	else if (units <= arena->n_units)
		status = block_take(&heap->store, (uint32_t)units, kind, from, &grant.block, &grant.reused);
	if (status == SW_OK && !small) {
		uint32_t unit = grant.block->unit;

		arena_mark(arena, unit, grant.block->units, unit + 1, 0, 0);
		block_tell_all(&heap->store, grant.block);
		grant.address = arena_address(arena, unit);
	}
	if (status == SW_OK && new_block)
		block_grant(grant.block, &grant);
	if (status != SW_OK)
		heap_failed(heap, from, soon, ret_grant);
	heap_leave(heap);
	if (status != SW_OK)
		return status;
	if (!small)
		lifetimes_allocated(arena->lifetimes, grant.address, bytes, 0);
	*ret_grant = grant;
	return status;
}

void heap_keep(struct heap *heap, struct block *block)
{
	heap_enter(heap);
	if (!block->keep) {
		block_set_keep(&heap->store, block, true);
		block_tell_all(&heap->store, block);
	}
	heap_leave(heap);
}

void heap_free(struct heap *heap, struct block *block, CUdeviceptr address)
{
	heap_enter(heap);
	if (block->asked)
		heap_forget_asked(heap, block, address);
	if (block->slab) {
		small_give(&heap->small, block, address);
	} else {
		if (block->divider)
			heap_undivide(heap, block);
		arena_unmark(&heap->store.arena, block->unit, block->units);
		block_tell_all(&heap->store, block);
		block_give(&heap->store, block);
	}
	heap_trim_to_keep(heap);
	heap_leave(heap);
}

size_t heap_rounded(size_t bytes)
{
	if (bytes > SIZE_MAX / 2) /* avoids an overflow; no allocation is that large */
		return bytes;
	if (bytes <= SMALL_MOST)
		return small_class_bytes(small_class_of(bytes));
	return (bytes + HEAP_UNIT - 1) / HEAP_UNIT * HEAP_UNIT;
}

size_t heap_room_of(struct heap *heap, const struct block *block, CUdeviceptr address, enum heap_from from)
{
	lock_take(&heap->lock);
	bool pinned = block->n_pins || block->left || (block->stays && block->kind != CHUNK_FIXED);
	bool elsewhere = !block_suits(block, from);
	size_t room = (size_t)block->units * HEAP_UNIT;

	if (block->slab)
		room = small_class_bytes(arena_look(&heap->store.arena, address) & ~ARENA_SLAB);
	if (block->divider)
		room = arena_part_units(&heap->store.arena, arena_unit(&heap->store.arena, address)) * HEAP_UNIT;
	lock_drop(&heap->lock);
	return pinned || elsewhere ? 0 : room;
}

bool heap_has_host(const struct heap *heap)
{
	return heap->store.chunks.usable[CHUNK_HOST];
}

bool heap_contains(const struct heap *heap, CUdeviceptr address)
{
	return arena_contains(&heap->store.arena, address);
}

bool heap_base_of(const struct heap *heap, CUdeviceptr address, CUdeviceptr *ret_base)
{
	const struct arena *arena = &heap->store.arena;

	uint32_t first;

	if (!arena_contains(arena, address))
		return false;
	if (arena_is_on_use(arena, address, &first)) {
		*ret_base = arena_address(arena, first);
		return true;
	}
	uint32_t word = arena_look(arena, address);
	if (!word)
		return false;
	if (word & ARENA_SLAB) {
		CUdeviceptr slab = arena->base + (address - arena->base) / HEAP_UNIT * HEAP_UNIT;
		size_t slot = small_class_bytes(word & ~ARENA_SLAB);

		*ret_base = slab + (address - slab) / slot * slot;
	} else if (atomic_load_explicit(&arena->states[word - 1].divided, memory_order_acquire)) {
		uint32_t part = atomic_load_explicit(&arena->part[arena_unit(arena, address)], memory_order_acquire);

		if (!part)
			return false;
		*ret_base = arena_address(arena, part - 1);
	} else {
		*ret_base = arena_address(arena, word - 1);
	}
	return true;
}

uint64_t heap_idle_device(const struct heap *heap)
{
	return atomic_load_explicit(&heap->figures.idle[CHUNK_DEVICE], memory_order_relaxed);
}

uint64_t heap_idle_host(const struct heap *heap)
{
	return atomic_load_explicit(&heap->figures.idle[CHUNK_HOST], memory_order_relaxed);
}

uint64_t heap_made_device(struct heap *heap)
{
	const struct chunk_store *store = &heap->store.chunks;

	heap_enter(heap);
	uint64_t bytes = store->made_bytes[CHUNK_DEVICE] + store->made_bytes[CHUNK_PEER];
	heap_leave(heap);
	return bytes;
}

uint64_t heap_block_bytes(struct heap *heap)
{
	uint64_t sum = 0;

	heap_enter(heap);
	for (enum chunk_place place = 0; place < CHUNK_PLACES; place++)
		sum += heap->figures.in_use[place];
	sum -= heap->taken_bytes;
	heap_leave(heap);
	return sum;
}

uint64_t heap_others_bytes(struct heap *heap)
{
	const struct chunk_store *store = &heap->store.chunks;

	heap_enter(heap);
	uint64_t used = atomic_load(&store->budget[CHUNK_DEVICE]->used), made = store->made_bytes[CHUNK_DEVICE];
	heap_leave(heap);
	return used > made ? used - made : 0;
}

static uint64_t heap_beyond(uint64_t bytes, uint64_t keep)
{
	return bytes > keep ? bytes - keep : 0;
}

uint64_t heap_trim(struct heap *heap, uint64_t keep_device, uint64_t keep_host)
{
	const struct block_store *store = &heap->store;

	heap_enter(heap);
	if (!keep_device)
		while (small_reclaim(&heap->small))
			;
	/* Lent memory is device memory of a peer, and is released with the device's. */
	block_trim(&heap->store, (const uint64_t[CHUNK_PLACES]){keep_device, keep_host, keep_device});
	uint64_t refused = block_refused(store, CHUNK_DEVICE) + block_refused(store, CHUNK_PEER) +
			   heap_beyond(block_idle(store, CHUNK_DEVICE), keep_device) +
			   heap_beyond(block_idle(store, CHUNK_PEER), keep_device);
	heap_leave(heap);
	return refused;
}

bool heap_is_valid(struct heap *heap)
{
	lock_take(&heap->lock);
	bool ok = block_store_is_valid(&heap->store) && small_is_valid(&heap->small);
	lock_drop(&heap->lock);
	return ok;
}
