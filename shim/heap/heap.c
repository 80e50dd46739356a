// SPDX-License-Identifier: Apache-2.0
/*
 * Creates a heap, allocates and frees: ties the parts together under one lock and chooses slab or block. Budgets are
 * charged for physical memory: all chunks, whether in use, warm, or part of an empty slab. So idle memory is charged
 * although it is free. When the lock is dropped, the figures of the heap are told.
 */
#include "shim/accounting/quota.h"
#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/driver/real.h"
#include "shim/heap/block.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/stats/stats.h"

#include <stdlib.h>

/* ---- the lock, the figures, and what is kept ---- */

/*
 * The heap keeps up to keep[] of free memory for good, except lent memory. What is beyond goes back to the driver, but
 * not while the program takes it again in each step: each tick updates the minimum of idle bytes, and what was idle
 * through a whole span of ticks is released. A training job on cudaMallocAsync frees 12 GiB in each step and takes them
 * again: with idle memory released at once, a fifth of its allocations used new chunks, and a step took 1.3 times as
 * long although everything fitted. Measured (H200).
 */

/*
 * Length of a span in ticks of about a second. Device memory is short, because other processes want it and it is quick
 * to make again. Host memory takes 200 ms a GiB to pin (docs/facts.md, Pinning), and processes that are short of it say
 * so (quota.h).
 */
static const unsigned span[CHUNK_PLACES] = {[CHUNK_DEVICE] = 2, [CHUNK_HOST] = 20, [CHUNK_PEER] = 2};

/*
 * Most bytes to release in one tick. Unpinning takes 2 ms for each 128 MiB, during which no thread can allocate; the
 * next tick continues.
 */
static const uint64_t most[CHUNK_PLACES] = {
    [CHUNK_DEVICE] = UINT64_MAX, [CHUNK_HOST] = (uint64_t)512 << 20, [CHUNK_PEER] = UINT64_MAX};

static void tell_budgets(const struct chunk_store *chunks)
{
	const struct budget *device = chunks->budget[CHUNK_DEVICE], *host = chunks->budget[CHUNK_HOST];

	stats_set_budgets(chunks->device, atomic_load_explicit(&device->limit, memory_order_relaxed),
			  atomic_load_explicit(&device->used, memory_order_relaxed),
			  atomic_load_explicit(&host->limit, memory_order_relaxed),
			  atomic_load_explicit(&host->used, memory_order_relaxed));
	for (unsigned i = 0; i < chunks->n_lenders; i++)
		stats_set_lent(chunks->lenders[i]->device,
			       atomic_load_explicit(&chunks->lenders[i]->lent.used, memory_order_relaxed));
}

/* Stores a figure. Returns what it was. */
static uint64_t publish(_Atomic uint64_t *figure, uint64_t now)
{
	uint64_t before = atomic_load_explicit(figure, memory_order_relaxed);

	if (now != before)
		atomic_store_explicit(figure, now, memory_order_relaxed);
	return before;
}

/* Tells the new figures of one place. Returns whether any of them has changed. */
static bool tell_place(struct heap *heap, enum chunk_place place)
{
	static const enum place gauge[] = {
	    [CHUNK_DEVICE] = PLACE_DEVICE, [CHUNK_HOST] = PLACE_HOST, [CHUNK_PEER] = PLACE_PEER};
	const struct block_store *store = &heap->store;
	struct heap_figures *figures = &heap->figures;
	uint64_t free = store->warm_bytes[place] + store->chunks.warm_bytes[place];
	uint64_t idle = free + store->empty_bytes[place] + store->unused_bytes[place];
	uint64_t in_use = store->chunks.made_bytes[place] - idle;
	uint64_t was_free = publish(&figures->free[place], free), was_idle = publish(&figures->idle[place], idle);
	uint64_t was_in_use = publish(&figures->in_use[place], in_use);

	if (in_use > was_in_use)
		stats_live_add(store->chunks.device, gauge[place], in_use - was_in_use);
	else if (in_use < was_in_use)
		stats_live_sub(store->chunks.device, gauge[place], was_in_use - in_use);
	if (place == CHUNK_HOST && free != was_free)
		quota_spare(free, was_free);
	if (free < heap->least[place])
		heap->least[place] = free;
	return free != was_free || idle != was_idle || in_use != was_in_use;
}

void heap_leave(struct heap *heap)
{
	bool changed = false;

	for (enum chunk_place place = 0; place < CHUNK_PLACES; place++)
		changed |= tell_place(heap, place);
	if (changed)
		tell_budgets(&heap->store.chunks);
	lock_drop(&heap->lock);
}

/*
 * A piece that is being copied has memory at both places, and one of them will be free in a moment. What is pinned
 * ahead is charged and not free yet. Asked before the try: it may be free a moment after that has failed.
 */
bool heap_has_soon(const struct heap *heap)
{
	return atomic_load(&heap->store.n_given) || atomic_load(&heap->taken_bytes) || atomic_load(&heap->n_pinning);
}

void heap_failed(struct heap *heap, enum heap_from from, bool soon, struct heap_grant *grant)
{
	grant->lack = heap->store.no_address ? LACK_ADDRESS
					     : (from != HEAP_HOST ? LACK_DEVICE : 0) |
						   (from == HEAP_HOST || from == HEAP_DEVICE_FIRST ? LACK_HOST : 0);
	grant->soon = soon;
	heap->store.no_address = false;
	heap_trim_to_keep(heap);
}

static uint64_t kept(const struct heap *heap, enum chunk_place place)
{
	return place == CHUNK_HOST && heap->ahead > heap->keep[place] ? heap->ahead : heap->keep[place];
}

void heap_keep_host(struct heap *heap, uint64_t bytes)
{
	lock_take(&heap->lock);
	if (heap->keep[CHUNK_HOST] < bytes)
		heap->keep[CHUNK_HOST] = bytes;
	heap_leave(heap);
}

/* Releases idle memory beyond keep[] and reports what other processes get of it. */
static void heap_lock_trim(struct heap *heap, uint64_t keep[CHUNK_PLACES])
{
	struct block_store *store = &heap->store;
	uint64_t idle = block_idle(store, CHUNK_HOST), others = idle ? quota_owed() : 0, before;
	/* What of it may stay, given what is owed to other processes of the user. */
	uint64_t left = others < idle ? idle - others : 0;
	bool owed = left < idle && left < keep[CHUNK_HOST], any = owed;

	if (owed)
		keep[CHUNK_HOST] = left;
	for (enum chunk_place place = 0; place < CHUNK_PLACES; place++)
		any |= block_idle(store, place) > keep[place];
	if (!any)
		return;
	before = store->chunks.made_bytes[CHUNK_HOST];
	block_trim(store, keep);
	if (owed)
		stats_add(STAT_share_returned_bytes, before - store->chunks.made_bytes[CHUNK_HOST]);
}

#define TICKING_NS 3000000000u

bool heap_is_ticking(uint64_t ticked)
{
	return ticked && clock_now() - ticked < TICKING_NS;
}

void heap_trim_to_keep(struct heap *heap)
{
	uint64_t keep[CHUNK_PLACES];
	bool ticking = heap_is_ticking(heap->ticked);

	lock_assert_held(LOCK_HEAP);
	for (enum chunk_place place = 0; place < CHUNK_PLACES; place++)
		keep[place] = ticking && !heap->at_once[place] ? UINT64_MAX : kept(heap, place);
	heap_lock_trim(heap, keep);
}

void heap_tick(struct heap *heap)
{
	uint64_t keep[CHUNK_PLACES];

	lock_take(&heap->lock);
	heap->ticked = clock_now();
	heap->at_once[CHUNK_HOST] = false;
	block_retry_refused(&heap->store);
	for (enum chunk_place place = 0; place < CHUNK_PLACES; place++) {
		/*
		 * What was idle through a whole span goes. No lent memory is kept: the mover of its owner does not
		 * count it as room, and other processes cannot ask for it.
		 */
		uint64_t least = heap->least[place], stays = place == CHUNK_PEER ? 0 : kept(heap, place);
		uint64_t goes = ++heap->ticks[place] < span[place] || least <= stays ? 0 : least - stays;

		keep[place] = block_idle(&heap->store, place) - (goes < most[place] ? goes : most[place]);
		/* The rest is released at the next tick. */
		if (heap->ticks[place] == span[place] && goes <= most[place]) {
			heap->ticks[place] = 0;
			heap->least[place] = UINT64_MAX;
		} else if (goes) {
			heap->ticks[place]--;
			heap->least[place] -= most[place];
		}
	}
	heap_lock_trim(heap, keep);
	/* What is not the heap's counts in its budgets, too. */
	tell_budgets(&heap->store.chunks);
	heap_leave(heap);
}

/* ---- divided blocks ---- */

/*
 * Divided blocks (heap.h): marks their parts in the arena, so that an address leads to the beginning of its part, and
 * counts the memory of unused ones as idle.
 */

uint32_t heap_divide(struct heap *heap, struct block *block, void *divider)
{
	lock_take(&heap->lock);
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
			atomic_store(&arena->block_states[word - 1].discarded, 0);
	}
}

bool heap_part_begin(struct heap *heap, struct block *block, uint32_t unit, uint32_t units)
{
	struct arena *arena = &heap->store.arena;

	lock_take(&heap->lock);
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

	lock_take(&heap->lock);
	if (block->asked)
		block_forget_asked(&heap->store, block, address);
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
	lock_take(&heap->lock);
	set_unused(heap, block, unused);
	heap_leave(heap);
}

/* ---- making a heap, allocating and freeing ---- */

struct arena *heap_arena(struct heap *heap)
{
	return &heap->store.arena;
}

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
	enum sw_status status = SW_NOT_SUPPORTED;
	if (granularity_is_ours(device))
		status = arena_init(&heap->store.arena, config->arena_hint, config->arena_bytes);
	else
		log_once("the driver's allocation granularity is not 2 MiB; the heap cannot be used");
	if (status != SW_OK) {
		free(heap);
		return status;
	}
	bool host_usable = config->host_usable && granularity_is_ours(config->host_location);
	if (config->host_usable && !host_usable)
		log_once("the driver's granularity of host memory is unknown or not 2 MiB: nothing can spill");
	struct arena *arena = &heap->store.arena;
	arena->lifetimes = lifetimes_new(config->device, arena->base, arena->bytes);
	heap->store.chunks = (struct chunk_store){
	    .device = config->device,
	    .own = UINT64_C(1) << config->device,
	    .peers = config->peers,
	    .usable = {[CHUNK_DEVICE] = true, [CHUNK_HOST] = host_usable},
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
	lock_init(&heap->lock, LOCK_HEAP);
	heap->keep[CHUNK_DEVICE] = heap->keep[CHUNK_PEER] = config->keep_device;
	heap->keep[CHUNK_HOST] = config->keep_host;
	heap->at_once[CHUNK_DEVICE] = config->device_at_once;
	/* What others may need: a peer's memory, and host memory until the first tick. */
	heap->at_once[CHUNK_HOST] = heap->at_once[CHUNK_PEER] = true;
	heap->ticked = clock_now();
	*ret_heap = heap;
	return SW_OK;
}

enum sw_status heap_alloc(struct heap *heap, size_t bytes, enum chunk_kind kind, enum heap_from from,
			  struct heap_grant *ret_grant)
{
	size_t units = bytes / HEAP_UNIT + (bytes % HEAP_UNIT != 0); /* `bytes` may be SIZE_MAX */
	bool small = bytes <= SMALL_MOST, new_block = true;
	struct arena *arena = &heap->store.arena;
	enum sw_status status = SW_NO_MEMORY;
	struct heap_grant grant = {0};

	lock_take(&heap->lock);
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
	if (status == SW_OK)
		*ret_grant = grant;
	return status;
}

void heap_keep(struct heap *heap, struct block *block)
{
	lock_take(&heap->lock);
	if (!block->keep) {
		block_set_keep(&heap->store, block, true);
		block_tell_all(&heap->store, block);
	}
	heap_leave(heap);
}

void heap_free(struct heap *heap, struct block *block, CUdeviceptr address)
{
	lock_take(&heap->lock);
	if (block->asked)
		block_forget_asked(&heap->store, block, address);
	if (block->slab) {
		small_give(&heap->small, block, address);
	} else {
		if (block->divider) {
			set_unused(heap, block, false);
			block->divider = NULL;
			atomic_store_explicit(&heap->store.arena.states[block->unit].divided, false,
					      memory_order_release);
		}
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

uint64_t heap_idle(const struct heap *heap, enum chunk_place place)
{
	return atomic_load_explicit(&heap->figures.idle[place], memory_order_relaxed);
}

uint64_t heap_made_device(struct heap *heap)
{
	const struct chunk_store *store = &heap->store.chunks;

	lock_take(&heap->lock);
	uint64_t bytes = store->made_bytes[CHUNK_DEVICE] + store->made_bytes[CHUNK_PEER];
	heap_leave(heap);
	return bytes;
}

/* Locking of both: the caller holds HEAP. */
static uint64_t block_bytes(const struct heap *heap)
{
	uint64_t sum = 0;

	for (enum chunk_place place = 0; place < CHUNK_PLACES; place++)
		sum += heap->figures.in_use[place];
	return sum - heap->taken_bytes;
}

static uint64_t others_bytes(const struct chunk_store *store)
{
	return beyond(atomic_load(&store->budget[CHUNK_DEVICE]->used), store->made_bytes[CHUNK_DEVICE]);
}

uint64_t heap_block_bytes(struct heap *heap)
{
	lock_take(&heap->lock);
	uint64_t bytes = block_bytes(heap);
	heap_leave(heap);
	return bytes;
}

uint64_t heap_others_bytes(struct heap *heap)
{
	lock_take(&heap->lock);
	uint64_t bytes = others_bytes(&heap->store.chunks);
	heap_leave(heap);
	return bytes;
}

bool heap_is_beyond(struct heap *heap, size_t bytes, enum chunk_kind kind, uint64_t limit, struct heap_grant *ret_grant)
{
	uint64_t more = bytes <= SMALL_MOST ? HEAP_UNIT : heap_rounded(bytes);

	lock_take(&heap->lock);
	uint64_t used = block_bytes(heap) + others_bytes(&heap->store.chunks);
	for (enum chunk_place place = 0; place < CHUNK_PLACES; place++) {
		used += heap->store.unused_bytes[place];
		/* A slab with a free slot counts already. */
		if (bytes <= SMALL_MOST && heap->small.partial[kind][small_class_of(bytes)][place])
			more = 0;
	}
	uint64_t left = beyond(limit, used);
	heap->store.tight = more > left / 2;
	if (more > left) {
		ret_grant->lack = LACK_LIMIT;
		ret_grant->soon = atomic_load(&heap->store.n_given);
	}
	heap_leave(heap);
	return more > left;
}

uint64_t heap_trim(struct heap *heap, uint64_t keep_device, uint64_t keep_host)
{
	const struct block_store *store = &heap->store;

	lock_take(&heap->lock);
	if (!keep_device)
		while (small_reclaim(&heap->small))
			;
	/* Lent memory is device memory of a peer, and is released with the device's. */
	block_trim(&heap->store, (const uint64_t[CHUNK_PLACES]){keep_device, keep_host, keep_device});
	uint64_t refused = block_refused(store, CHUNK_DEVICE) + block_refused(store, CHUNK_PEER) +
			   beyond(block_idle(store, CHUNK_DEVICE), keep_device) +
			   beyond(block_idle(store, CHUNK_PEER), keep_device);
	heap_leave(heap);
	return refused;
}
