/*
 * The lock of a heap, its figures, which are told when the lock is dropped, and how much free memory the heap keeps.
 *
 * The heap keeps up to keep[] of free memory for good, except lent memory. What is beyond goes back to the driver, but
 * not while the program takes it again in each step: each tick updates the minimum of idle bytes, and what was idle
 * through a whole span of ticks is released. A training job on cudaMallocAsync frees 12 GiB in each step and takes them
 * again: with idle memory released at once, a fifth of its allocations used new chunks, and a step took 1.3 times as
 * long although everything fitted. Measured (H200).
 */
#include "shim/heap/block.h"
#include "shim/accounting/quota.h"
#include "shim/base/clock.h"
#include "shim/stats/stats.h"

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

/* After so long without a tick, ticks have stopped: their thread has ended, or is not wanted (control: no). */
#define TICKING_NS 3000000000u

void heap_enter(struct heap *heap)
{
	lock_take(&heap->lock);
}

static void tell_budgets(const struct chunk_store *chunks)
{
	const struct budget *device = chunks->budget[CHUNK_DEVICE], *host = chunks->budget[CHUNK_HOST];

	stats_set_budget(chunks->device, atomic_load_explicit(&device->limit, memory_order_relaxed),
			 atomic_load_explicit(&device->used, memory_order_relaxed));
	for (unsigned i = 0; i < chunks->n_lenders; i++)
		stats_set_lent(chunks->lenders[i]->device,
			       atomic_load_explicit(&chunks->lenders[i]->lent.used, memory_order_relaxed));
	stats_set_host_budget(atomic_load_explicit(&host->limit, memory_order_relaxed),
			      atomic_load_explicit(&host->used, memory_order_relaxed));
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
	if (place == CHUNK_HOST && free > was_free)
		quota_spare_add(free - was_free);
	else if (place == CHUNK_HOST && free < was_free)
		quota_spare_sub(was_free - free);
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
	return atomic_load(&heap->store.n_given) || atomic_load(&heap->taken_bytes) || atomic_load(&heap->n_stocking);
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

/* ---- what is kept ---- */

static uint64_t kept(const struct heap *heap, enum chunk_place place)
{
	return place == CHUNK_HOST && heap->ahead > heap->keep[place] ? heap->ahead : heap->keep[place];
}

void heap_lock_init(struct heap *heap, const struct heap_config *config)
{
	lock_init(&heap->lock, LOCK_HEAP);
	heap->keep[CHUNK_DEVICE] = config->keep_device;
	heap->keep[CHUNK_HOST] = config->keep_host;
	heap->keep[CHUNK_PEER] = config->keep_device;
	heap->at_once[CHUNK_DEVICE] = config->device_at_once;
	heap->at_once[CHUNK_PEER] = true; /* its owner may need it */
}

void heap_keep_host(struct heap *heap, uint64_t bytes)
{
	heap_enter(heap);
	if (heap->keep[CHUNK_HOST] < bytes)
		heap->keep[CHUNK_HOST] = bytes;
	heap_leave(heap);
}

/* Returns how much of the idle host memory may stay, given what is owed to other processes of the user. */
static uint64_t not_owed(uint64_t idle)
{
	uint64_t owed = idle ? quota_owed() : 0;

	return owed < idle ? idle - owed : 0;
}

/* Releases idle memory beyond keep[] and reports what other processes get of it. */
static void heap_lock_trim(struct heap *heap, uint64_t keep[CHUNK_PLACES])
{
	struct block_store *store = &heap->store;
	uint64_t idle = block_idle(store, CHUNK_HOST), left = not_owed(idle), before;
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
		quota_returned(before - store->chunks.made_bytes[CHUNK_HOST]);
}

static bool is_ticking(const struct heap *heap)
{
	return heap->ticked && clock_now() - heap->ticked < TICKING_NS;
}

void heap_trim_to_keep(struct heap *heap)
{
	uint64_t keep[CHUNK_PLACES];
	bool ticking = is_ticking(heap);

	lock_assert_held(LOCK_HEAP);
	for (enum chunk_place place = 0; place < CHUNK_PLACES; place++)
		keep[place] = ticking && !heap->at_once[place] ? UINT64_MAX : kept(heap, place);
	heap_lock_trim(heap, keep);
}

/*
 * Returns, at the end of a span, the bytes to release of those that were idle through it. No lent memory is kept: the
 * mover of its owner does not count it as room, and other processes cannot ask for it.
 */
static uint64_t heap_lock_unused(const struct heap *heap, enum chunk_place place)
{
	uint64_t least = heap->least[place], keep = place == CHUNK_PEER ? 0 : kept(heap, place);

	return least > keep ? least - keep : 0;
}

void heap_tick(struct heap *heap)
{
	uint64_t keep[CHUNK_PLACES];

	heap_enter(heap);
	heap->ticked = clock_now();
	block_retry_refused(&heap->store);
	for (enum chunk_place place = 0; place < CHUNK_PLACES; place++) {
		uint64_t goes = ++heap->ticks[place] < span[place] ? 0 : heap_lock_unused(heap, place);

		keep[place] = UINT64_MAX;
		if (goes)
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
