// SPDX-License-Identifier: Apache-2.0
/*
 * Tracks the driver's memory pools: which exist, what they are charged with, and what of their memory is in the heap
 * (device.h).
 */
#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/base/number.h"
#include "shim/context/context.h"
#include "shim/device/device.h"
#include "shim/driver/real.h"
#include "shim/process/process.h"

#include <stdlib.h>

/* Locking: POOL, over all of it. */
struct pool {
	CUmemoryPool handle;
	CUdevice device;
	uint64_t id; /* handles are reused, numbers are not */
	bool is_default, driver_only;
	/* In the driver: bytes claimed and not freed, and bytes charged to the budget. claimed <= charged */
	uint64_t claimed, charged;
	/*
	 * Near the limit: the most that was claimed when the driver was last asked; the most that was claimed while the
	 * device was within its budget, and what others had of the budget then.
	 */
	uint64_t asked, safe, others;
	unsigned unasked; /* claims since the driver was last asked */
	/* In the heap: bytes that the program has; those plus bytes that wait for streams; and the maximum of each. */
	uint64_t used, used_high, held, held_high;
	struct pool *next;
};

struct lock pool_lock = LOCK_INIT(LOCK_POOL);
atomic_bool pool_any;

static struct {
	struct pool *list;    /* Guarded by POOL. */
	_Atomic uint64_t ids; /* the last number that was given to a pool */
	atomic_bool chosen;   /* the program has set a current pool, which may not be the default one; only ever set */
} pools;

static void pool_add(struct pool *pool)
{
	lock_take(&pool_lock);
	pool->next = pools.list;
	pools.list = pool;
	lock_drop(&pool_lock);
}

static void pool_made_row(struct pool about)
{
	struct pool *pool = malloc(sizeof(*pool));

	if (!pool)
		return; /* not charged; the heap then learns from the driver that memory is short */
	*pool = about;
	pool->id = atomic_fetch_add(&pools.ids, 1) + 1;
	pool_add(pool);
	atomic_store(&pool_any, true);
}

void pool_made(CUmemoryPool handle, CUdevice ordinal, bool driver_only)
{
	pool_made_row((struct pool){.handle = handle, .device = ordinal, .driver_only = driver_only});
}

struct pool *pool_forget(CUmemoryPool handle)
{
	struct pool *found = NULL;

	lock_take(&pool_lock);
	for (struct pool **at = &pools.list; *at; at = &(*at)->next) {
		if ((*at)->handle != handle)
			continue;
		found = *at;
		*at = found->next;
		break;
	}
	lock_drop(&pool_lock);
	return found;
}

void pool_forgotten(struct pool *pool, bool gone)
{
	if (pool && !gone)
		pool_add(pool);
	else
		free(pool);
}

/*
 * Sets the policy's threshold before the program sets one, or not at all, so that the program never sees its setting
 * changed. In observe mode nothing of the driver is changed.
 */
static void set_threshold(CUmemoryPool handle, CUdevice ordinal)
{
	struct policy_size threshold = process_settings()->async_release_threshold;
	cuuint64_t bytes = threshold.value;

	if (threshold.kind != POLICY_SIZE_BYTES || process_settings()->observe)
		return;
	CUresult result = REAL(cuMemPoolSetAttribute)(handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes);
	if (result != CUDA_SUCCESS)
		log_once("cuMemPoolSetAttribute(release threshold) of device %d: %s; its default pool goes without "
			 "async.release_threshold",
			 ordinal, real_error_name(result));
}

void pool_threshold_asked(CUmemoryPool pool)
{
	struct device *device;

	for (CUdevice ordinal = 0; (device = device_get(ordinal)); ordinal++) {
		CUmemoryPool its = NULL;

		if (REAL(cuDeviceGetDefaultMemPool)(&its, ordinal) == CUDA_SUCCESS && its == pool)
			pool_used(device);
	}
}

void pool_used(struct device *device)
{
	CUmemoryPool handle;

	if (atomic_load_explicit(&device->pools_used, memory_order_relaxed))
		return;
	if (atomic_exchange(&device->pools_used, true))
		return;
	if (REAL(cuDeviceGetDefaultMemPool)(&handle, device->ordinal) != CUDA_SUCCESS)
		return;
	set_threshold(handle, device->ordinal);
	pool_made_row((struct pool){.handle = handle, .device = device->ordinal, .is_default = true});
}

void pool_graphs_used(struct device *device)
{
	atomic_store(&device->graphs_used, true);
	atomic_store(&pool_any, true);
}

static void pool_refresh_locked(struct device *device)
{
	uint64_t reserved = 0;

	lock_assert_held(LOCK_POOL);
	for (struct pool *pool = pools.list; pool; pool = pool->next) {
		cuuint64_t bytes = 0;

		if (pool->device != device->ordinal)
			continue;
		if (REAL(cuMemPoolGetAttribute)(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes) !=
		    CUDA_SUCCESS)
			bytes = 0;
		/* The driver may not have been asked yet for bytes that were just claimed. */
		pool->charged = bytes > pool->claimed ? bytes : pool->claimed;
		reserved += pool->charged;
	}
	cuuint64_t graphs = 0;
	if (atomic_load_explicit(&device->graphs_used, memory_order_relaxed) &&
	    REAL(cuDeviceGetGraphMemAttribute)(device->ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &graphs) ==
		CUDA_SUCCESS)
		reserved += graphs;
	uint64_t before = device->pools_charged;
	device->pools_charged = reserved;
	if (reserved > before)
		budget_charge(&device->budget, reserved - before);
	else
		budget_give(&device->budget, before - reserved);
}

/*
 * Trim only for at least so much unused memory, and at most so often: most of the time the driver has nothing more to
 * give.
 */
#define UNUSED_LEAST HEAP_UNIT
#define TRIM_NS      10000000u

/* Gives unused memory of closed pools back to the driver. at_once: even if they gave back a moment ago. */
static void trim_locked(struct device *device, bool at_once)
{
	uint64_t now = clock_now();

	lock_assert_held(LOCK_POOL);
	if ((!at_once && now - device->pools_trimmed < TRIM_NS) || capture_is_open())
		return;
	for (struct pool *pool = pools.list; pool; pool = pool->next) {
		if (pool->device != device->ordinal || pool->charged < pool->claimed + UNUSED_LEAST)
			continue;
		/* A capture may begin on another thread now. */
		CUstreamCaptureMode mode = capture_relax();
		REAL(cuMemPoolTrimTo)(pool->handle, 0);
		capture_restore(mode);
		device->pools_trimmed = now;
	}
}

void pool_refresh(struct device *device, bool at_once)
{
	lock_take(&pool_lock);
	if (atomic_load_explicit(&device->pools_closed, memory_order_relaxed))
		trim_locked(device, at_once);
	pool_refresh_locked(device);
	lock_drop(&pool_lock);
}

void pool_tick(void)
{
	if (!atomic_load_explicit(&pool_any, memory_order_relaxed))
		return;
	for (struct device *device = device_next(NULL); device; device = device_next(device))
		if (atomic_load_explicit(&device->pools_closed, memory_order_relaxed))
			pool_refresh(device, false);
}

bool pool_give_back(struct device *device)
{
	uint64_t left = budget_left(&device->budget);

	if (!atomic_load_explicit(&device->pools_closed, memory_order_relaxed))
		return false;
	pool_refresh(device, true);
	return budget_left(&device->budget) > left;
}

/* ---- which pool ---- */

/* Returns the pool of that handle; NULL: the default pool of the device, if it is known. */
static struct pool *pool_find_locked(CUmemoryPool handle, CUdevice ordinal)
{
	struct pool *pool = pools.list;

	lock_assert_held(LOCK_POOL);
	while (pool && (handle ? pool->handle != handle : !pool->is_default || pool->device != ordinal))
		pool = pool->next;
	return pool;
}

static struct pool *pool_find_id_locked(uint64_t id)
{
	struct pool *pool = pools.list;

	lock_assert_held(LOCK_POOL);
	while (pool && pool->id != id)
		pool = pool->next;
	return pool;
}

/* Returns what is known of the pool now; if it is not known: number 0, of no device. */
static struct pool pool_look(CUmemoryPool handle)
{
	lock_take(&pool_lock);
	const struct pool *pool = pool_find_locked(handle, -1);
	struct pool found = pool ? *pool : (struct pool){.device = -1};
	lock_drop(&pool_lock);
	return found;
}

/* ---- pools whose memory is in the heap ---- */

uint64_t pool_for_heap(CUmemoryPool handle, struct device *device)
{
	pool_used(device);
	struct pool pool = pool_look(handle);
	return !pool.driver_only && pool.device == device->ordinal ? pool.id : 0;
}

uint64_t pool_number(CUmemoryPool handle)
{
	return pool_look(handle).id;
}

bool pool_has_memory(const struct pool *pool)
{
	return pool && pool->held;
}

void pool_row_grown(const struct ledger_row *row, uint64_t bytes)
{
	lock_take(&pool_lock);
	struct pool *pool = pool_find_id_locked(row->heap.pool_id);
	if (pool) {
		pool->used += bytes;
		pool->held += bytes;
		pool->used_high = larger(pool->used_high, pool->used);
		pool->held_high = larger(pool->held_high, pool->held);
	}
	lock_drop(&pool_lock);
}

/* The program may have destroyed the pool before it freed the pool's memory; then nothing is counted any more. */
void pool_row_freed(struct ledger_row *row, bool gone)
{
	if (row->kind != LEDGER_HEAP || !row->heap.pool_id)
		return;
	lock_take(&pool_lock);
	struct pool *pool = pool_find_id_locked(row->heap.pool_id);
	if (pool && !row->heap.handed_back)
		pool->used -= row->bytes;
	if (pool && gone)
		pool->held -= row->bytes;
	lock_drop(&pool_lock);
	row->heap.handed_back = true;
	if (gone)
		row->heap.pool_id = 0;
}

uint64_t pool_heap_bytes(CUmemoryPool handle, CUmemPool_attribute attribute)
{
	struct pool pool = pool_look(handle);

	switch (attribute) {
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		return pool.used;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		return pool.used_high;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		return pool.held;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		return pool.held_high;
	default:
		return 0;
	}
}

void pool_heap_waits(CUmemoryPool handle, uint64_t bytes)
{
	lock_take(&pool_lock);
	struct pool *pool = pool_find_locked(handle, -1);
	if (pool)
		pool->held_high = larger(pool->held_high, pool->held + bytes);
	lock_drop(&pool_lock);
}

void pool_heap_reset(CUmemoryPool handle, CUmemPool_attribute attribute)
{
	lock_take(&pool_lock);
	struct pool *pool = pool_find_locked(handle, -1);
	if (pool && attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		pool->used_high = pool->used;
	else if (pool && attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
		pool->held_high = pool->held;
	lock_drop(&pool_lock);
}

struct device *pool_heap_device(CUmemoryPool handle)
{
	struct pool pool = pool_look(handle);

	return pool.driver_only ? NULL : device_get(pool.device);
}

/* ---- what the driver's pools may serve within the device budget (async.use: auto) ---- */

/* The limit is near if less than 1/NEAR of the budget is left. */
#define NEAR 8
/* Near the limit the driver is asked after this many claims at the latest. */
#define UNASKED_MOST 64

void pool_chosen(void)
{
	atomic_store(&pools.chosen, true);
}

/* Rounds as the driver's pools do. */
static uint64_t pool_claim_rounded(size_t bytes)
{
	return ((uint64_t)bytes + 511) & ~(uint64_t)511;
}

/* Returns by how much the pool's charge must grow for `bytes` more, as far as is known. */
static uint64_t growth_of(const struct pool *pool, uint64_t bytes)
{
	return beyond(pool->claimed + bytes, pool->charged);
}

static bool is_near(const struct device *device, uint64_t growth)
{
	uint64_t left = budget_left(&device->budget);

	return left < growth || left - growth < atomic_load(&device->budget.limit) / NEAR;
}

static uint64_t others_of(const struct device *device, const struct pool *pool)
{
	return beyond(atomic_load(&device->budget.used), pool->charged);
}

/* Returns what the pool had while the device was within its budget, less what others have taken since. */
static uint64_t safe_of(const struct device *device, const struct pool *pool)
{
	return beyond(pool->safe, beyond(others_of(device, pool), pool->others));
}

/*
 * A pool reserves more than is used of it, because freed memory does not always fit the next request: on an H200, 15.8
 * GiB were reserved by a job that used 13.7. So unused memory of a pool does not mean that it will not reserve more.
 * Once that has lifted the device over its budget, the pool gets no more than it had before, as far as others have left
 * that.
 */
static bool is_beyond_safe(struct device *device, struct pool *pool, uint64_t bytes)
{
	uint64_t all = pool->claimed + bytes, growth = growth_of(pool, bytes);

	if (!is_near(device, growth))
		return false;
	if (growth || all > pool->asked || ++pool->unasked > UNASKED_MOST) {
		pool_refresh_locked(device);
		pool->unasked = 0;
		pool->asked = larger(pool->asked, all);
		if (!budget_over(&device->budget) && pool->claimed > safe_of(device, pool)) {
			pool->safe = pool->claimed;
			pool->others = others_of(device, pool);
		}
	}
	return budget_over(&device->budget) && all > safe_of(device, pool);
}

static bool claim_locked(struct device *device, struct pool *pool, uint64_t bytes, bool over)
{
	lock_assert_held(LOCK_POOL);
	bool beyond = is_beyond_safe(device, pool, bytes);
	uint64_t growth = growth_of(pool, bytes);

	if (beyond && !over)
		return false;
	if (growth && !budget_take(&device->budget, growth)) {
		if (!over)
			return false;
		budget_charge(&device->budget, growth);
	}
	pool->charged += growth;
	device->pools_charged += growth;
	pool->claimed += bytes;
	return true;
}

/* handle NULL: the default pool of the device. */
static bool pool_claim_claim(struct device *device, CUmemoryPool handle, size_t bytes, bool over, uint64_t *ret_id)
{
	lock_take(&pool_lock);
	struct pool *pool = pool_find_locked(handle, device->ordinal);
	bool known = pool && pool->device == device->ordinal;
	bool claimed = !known || claim_locked(device, pool, pool_claim_rounded(bytes), over);
	*ret_id = known && claimed ? pool->id : 0;
	lock_drop(&pool_lock);
	return claimed;
}

bool pool_claim(struct device *device, CUmemoryPool handle, size_t bytes, enum pool_claim how, uint64_t *ret_id)
{
	struct device *owner = device;

	*ret_id = 0;
	pool_used(device);
	if (!handle && atomic_load_explicit(&pools.chosen, memory_order_relaxed) &&
	    REAL(cuDeviceGetMemPool)(&handle, device->ordinal) != CUDA_SUCCESS)
		return true;
	/* It may be on another device than the stream. */
	if (handle && !(owner = device_get(pool_look(handle).device)))
		return true;
	if (how == POOL_OPEN && atomic_load_explicit(&owner->pools_closed, memory_order_relaxed))
		return false;
	device_known_budget(owner);
	return pool_claim_claim(owner, handle, bytes, false, ret_id) ||
	       (device_make_room(owner) && pool_claim_claim(owner, handle, bytes, false, ret_id)) ||
	       (how == POOL_OVER && pool_claim_claim(owner, handle, bytes, true, ret_id));
}

void pool_unclaim(uint64_t id, size_t bytes)
{
	if (!id)
		return;
	lock_take(&pool_lock);
	struct pool *pool = pool_find_id_locked(id);
	if (pool)
		pool->claimed -= pool_claim_rounded(bytes);
	lock_drop(&pool_lock);
}

/* ---- where memory migrates ---- */

/*
 * Memory of a pool never moves, while the rest of the program's memory takes turns on what the pools leave of the
 * device. In a program that allocates all its memory in each step, the pools are filled by the first requests of the
 * step; later requests find no device memory and are read over the link, step after step. Pools are not reopened when
 * they have room again, because they have at the beginning of each step. Measured (H200), a GPT on cudaMallocAsync that
 * needs 1.5 times the budget: 34 times its native step.
 */
void pool_close(struct device *device)
{
	if (process_settings()->spill < POLICY_SPILL_EXACT || atomic_exchange(&device->pools_closed, true))
		return;
	log_once("the driver's pools of device %d cannot serve all that is allocated in stream order; from now on the "
		 "heap does, so that it can move",
		 device->ordinal);
}
