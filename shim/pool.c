#include "shim/pool.h"
#include "shim/real.h"

#include <stdlib.h>

struct pool {
	CUmemoryPool handle;
	CUdevice device;
	struct pool *next;
};

struct lock pool_lock = LOCK_INIT(LOCK_POOL);
static struct pool *list;
static atomic_bool any; /* was there ever one? */

static void add(struct pool *pool)
{
	lock_take(&pool_lock);
	pool->next = list;
	list = pool;
	lock_drop(&pool_lock);
}

void pool_made(CUmemoryPool handle, CUdevice ordinal)
{
	struct pool *pool = malloc(sizeof(*pool));

	if (!pool)
		return; /* not charged; the heap then finds out from the driver that memory is short */
	*pool = (struct pool){.handle = handle, .device = ordinal};
	add(pool);
	atomic_store(&any, true);
}

struct pool *pool_forget(CUmemoryPool handle)
{
	struct pool *found = NULL;

	lock_take(&pool_lock);
	for (struct pool **at = &list; *at; at = &(*at)->next) {
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
		add(pool);
	else
		free(pool);
}

void pool_used(struct device *device)
{
	CUmemoryPool handle;

	if (atomic_load_explicit(&device->pools_used, memory_order_relaxed))
		return;
	if (atomic_exchange(&device->pools_used, true))
		return;
	if (REAL(cuDeviceGetDefaultMemPool)(&handle, device->ordinal) == CUDA_SUCCESS)
		pool_made(handle, device->ordinal);
}

void pool_refresh(struct device *device)
{
	uint64_t reserved = 0;

	if (!atomic_load_explicit(&any, memory_order_relaxed))
		return;
	lock_take(&pool_lock);
	for (const struct pool *pool = list; pool; pool = pool->next) {
		cuuint64_t bytes = 0;

		if (pool->device == device->ordinal &&
		    REAL(cuMemPoolGetAttribute)(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes) ==
			CUDA_SUCCESS)
			reserved += bytes;
	}
	uint64_t before = device->pools_charged;
	device->pools_charged = reserved;
	if (reserved > before)
		budget_charge(&device->budget, reserved - before);
	else
		budget_give(&device->budget, before - reserved);
	lock_drop(&pool_lock);
}
