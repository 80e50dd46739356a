/* Decides what the driver's pools may serve within the device budget (async.use: auto). */
#include "shim/process/process.h"
#include "shim/base/log.h"
#include "shim/device/device_state.h"
#include "shim/device/pool_internal.h"
#include "shim/driver/real.h"

/* The limit is near if less than 1/NEAR of the budget is left. */
#define NEAR 8
/* Near the limit the driver is asked after this many claims at the latest. */
#define UNASKED_MOST 64

void pool_chosen(void)
{
	atomic_store(&device_state.pool.chosen, true);
}

/* Rounds as the driver's pools do. */
static uint64_t pool_claim_rounded(size_t bytes)
{
	return ((uint64_t)bytes + 511) & ~(uint64_t)511;
}

/* Returns by how much the pool's charge must grow for `bytes` more, as far as is known. */
static uint64_t growth_of(const struct pool *pool, uint64_t bytes)
{
	uint64_t all = pool->claimed + bytes;

	return all > pool->charged ? all - pool->charged : 0;
}

static bool is_near(const struct device *device, uint64_t growth)
{
	uint64_t left = budget_left(&device->budget);

	return left < growth || left - growth < atomic_load(&device->budget.limit) / NEAR;
}

static bool is_over(const struct device *device)
{
	return atomic_load(&device->budget.used) > atomic_load(&device->budget.limit);
}

static uint64_t others_of(const struct device *device, const struct pool *pool)
{
	uint64_t used = atomic_load(&device->budget.used);

	return used > pool->charged ? used - pool->charged : 0;
}

/* Returns what the pool had while the device was within its budget, less what others have taken since. */
static uint64_t safe_of(const struct device *device, const struct pool *pool)
{
	uint64_t others = others_of(device, pool), gained = others > pool->others ? others - pool->others : 0;

	return pool->safe > gained ? pool->safe - gained : 0;
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
		pool->asked = all > pool->asked ? all : pool->asked;
		if (!is_over(device) && pool->claimed > safe_of(device, pool)) {
			pool->safe = pool->claimed;
			pool->others = others_of(device, pool);
		}
	}
	return is_over(device) && all > safe_of(device, pool);
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
	struct pool *pool = handle ? pool_find_locked(handle) : pool_find_default_locked(device->ordinal);
	bool known = pool && pool->device == device->ordinal;
	bool claimed = !known || claim_locked(device, pool, pool_claim_rounded(bytes), over);
	*ret_id = known && claimed ? pool->id : 0;
	lock_drop(&pool_lock);
	return claimed;
}

/* The pool may be on another device than the stream. */
static struct device *owner_of(CUmemoryPool handle)
{
	lock_take(&pool_lock);
	const struct pool *pool = pool_find_locked(handle);
	CUdevice ordinal = pool ? pool->device : -1;
	lock_drop(&pool_lock);
	return device_get(ordinal);
}

bool pool_claim(struct device *device, CUmemoryPool handle, size_t bytes, enum pool_claim how, uint64_t *ret_id)
{
	struct device *owner = device;

	*ret_id = 0;
	pool_used(device);
	if (!handle && atomic_load_explicit(&device_state.pool.chosen, memory_order_relaxed) &&
	    REAL(cuDeviceGetMemPool)(&handle, device->ordinal) != CUDA_SUCCESS)
		return true;
	if (handle && !(owner = owner_of(handle)))
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
