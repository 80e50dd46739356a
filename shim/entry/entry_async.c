/*
 * Bodies of the entry points that allocate and free in stream order, and of those for memory pools. Allocations that
 * the policy puts into the heap go to async.c; the others go to the driver's pools and are counted.
 */
#include "shim/serve/async.h"
#include "shim/process/enter.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/entry/hook.h"
#include "shim/base/log.h"
#include "shim/device/peer.h"
#include "shim/serve/deferred_free.h"
#include "shim/serve/segments.h"
#include "shim/device/pool.h"
#include "shim/serve/oom_retry.h"
#include "shim/serve/account.h"
#include "shim/serve/serve.h"

/* ---- allocating ---- */

/*
 * The driver allocates and frees the memory of a captured allocation with launches of its graph, so its address has
 * no row.
 */
static void entry_async_note(const struct async_request *request, CUdeviceptr address, bool captured)
{
	struct device *device = captured ? device_current(NULL) : NULL;

	if (!captured)
		account_note_claimed(LEDGER_ASYNC, address, request->bytes, -1, &request->claim);
	else
		stats_add(STAT_graph_allocations, 1);
	if (device)
		pool_graphs_used(device);
}

static CUresult entry_async_settle(const struct async_request *request, CUdeviceptr *address, bool captured,
				   CUresult result)
{
	if (result == CUDA_SUCCESS) {
		entry_async_note(request, *address, captured);
		return result;
	}
	account_claim_end(&request->claim, request->bytes);
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		async_rescue(request, address, &result);
	return result;
}

/* If the driver has no memory left, the heap makes room, and the call is made again (oom_retry.h). */
#define ALLOC_ASYNC(name, own, asked, of_pool, params, args)                                                           \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		struct async_request request = {.bytes = bytesize,                                                     \
						.api = asked,                                                          \
						.caller = __builtin_return_address(0),                                 \
						.pool = of_pool,                                                       \
						.stream = hStream,                                                     \
						.per_thread = own,                                                     \
						.claim = {.rule = -1}};                                                \
		struct enter_scope scope;                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		if (!lifecycle_enter(&scope))                                                                          \
			return serve_refusal() ? serve_refusal() : REAL(name) args;                                    \
		if (async_alloc(&request, dptr, &result))                                                              \
			return enter_leave(&scope, result);                                                            \
		bool captured = async_is_capturing(hStream, own);                                                      \
		struct oom_retry room = {0};                                                                           \
		do                                                                                                     \
			result = REAL(name) args;                                                                      \
		while (result == CUDA_ERROR_OUT_OF_MEMORY && oom_retry_make(&room, -1, bytesize));                     \
		oom_retry_end(&room, result);                                                                          \
		return enter_leave(&scope, entry_async_settle(&request, dptr, captured, result));                      \
	}

ALLOC_ASYNC(cuMemAllocAsync, false, POLICY_API_ASYNC, NULL, (CUdeviceptr * dptr, size_t bytesize, CUstream hStream),
	    (dptr, bytesize, hStream))
ALLOC_ASYNC(cuMemAllocAsync_ptsz, true, POLICY_API_ASYNC, NULL, (CUdeviceptr * dptr, size_t bytesize, CUstream hStream),
	    (dptr, bytesize, hStream))
ALLOC_ASYNC(cuMemAllocFromPoolAsync, false, POLICY_API_POOL, pool,
	    (CUdeviceptr * dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream), (dptr, bytesize, pool, hStream))
ALLOC_ASYNC(cuMemAllocFromPoolAsync_ptsz, true, POLICY_API_POOL, pool,
	    (CUdeviceptr * dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream), (dptr, bytesize, pool, hStream))

/* ---- freeing: routed by the ledger ---- */

#define FREE_ASYNC(name, per_thread)                                                                                   \
	HOOK_EXPORT CUresult CUDAAPI name(CUdeviceptr dptr, CUstream hStream)                                          \
	{                                                                                                              \
		struct enter_scope scope;                                                                              \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		if (!enter_serve(&scope))                                                                       \
			return serve_is_late_free(dptr) ? CUDA_SUCCESS : REAL(name)(dptr, hStream);                    \
		if (serve_is_ours(dptr))                                                                               \
			return enter_leave(&scope, async_free(dptr, hStream, per_thread));                             \
		struct ledger_row *row = account_forget(LEDGER_FREEABLE, dptr);                                        \
		if (!row && serve_is_dead(dptr))                                                                       \
			return enter_leave(&scope, CUDA_ERROR_INVALID_VALUE);                                          \
		CUresult result = REAL(name)(dptr, hStream);                                                           \
		account_forgotten(row, result == CUDA_SUCCESS);                                                        \
		return enter_leave(&scope, result);                                                                    \
	}
FREE_ASYNC(cuMemFreeAsync, false)
FREE_ASYNC(cuMemFreeAsync_ptsz, true)

/* ---- pools ---- */

/*
 * Returns true if the pool has properties that the heap cannot provide: handles to export, a size limit, hardware
 * decompression.
 */
static bool is_drivers_only(const CUmemPoolProps *props)
{
	return props->handleTypes != CU_MEM_HANDLE_TYPE_NONE || props->maxSize || props->usage;
}

HOOK_EXPORT CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
	stats_call(HOOK_cuMemPoolCreate);
	CUresult result = REAL(cuMemPoolCreate)(pool, poolProps);
	if (result == CUDA_SUCCESS && process_counts() && poolProps->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		pool_made(*pool, poolProps->location.id, is_drivers_only(poolProps));
	return result;
}

HOOK_EXPORT CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool pool)
{
	stats_call(HOOK_cuMemPoolDestroy);
	uint64_t id = process_counts() ? pool_number(pool) : 0;
	struct pool *gone = process_counts() ? pool_forget(pool) : NULL;
	CUresult result = REAL(cuMemPoolDestroy)(pool);
	/* Memory that is not freed yet lives on, with the access that it had. */
	if (result == CUDA_SUCCESS && !pool_has_memory(gone))
		peer_pool_closed(id, -1);
	pool_forgotten(gone, result == CUDA_SUCCESS);
	return result;
}

/* Before the first allocation no memory of a pool is in the heap, so the driver's answer is complete. */
HOOK_EXPORT CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	struct enter_scope scope;

	stats_call(HOOK_cuMemPoolGetAttribute);
	CUresult result = REAL(cuMemPoolGetAttribute)(pool, attr, value);
	if (result != CUDA_SUCCESS || !enter_serve(&scope))
		return result;
	deferred_free_reap(-1);
	uint64_t waiting = 0, number = pool_number(pool);
	if (number && (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT || attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)) {
		waiting = segments_waiting(number);
		pool_heap_waits(pool, waiting);
	}
	uint64_t more = pool_heap_bytes(pool, attr) + (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? waiting : 0);
	if (more)
		*(cuuint64_t *)value += more;
	return enter_leave(&scope, result);
}

HOOK_EXPORT CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	struct enter_scope scope;

	stats_call(HOOK_cuMemPoolSetAttribute);
	if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && lifecycle_enter(&scope)) {
		pool_threshold_asked(pool);
		enter_leave(&scope, CUDA_SUCCESS);
	}
	CUresult result = REAL(cuMemPoolSetAttribute)(pool, attr, value);
	if (result != CUDA_SUCCESS || !enter_serve(&scope))
		return result;
	pool_heap_reset(pool, attr);
	return enter_leave(&scope, result);
}

HOOK_EXPORT CUresult CUDAAPI cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
	stats_call(HOOK_cuDeviceSetMemPool);
	pool_chosen();
	return REAL(cuDeviceSetMemPool)(dev, pool);
}

HOOK_EXPORT CUresult CUDAAPI cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	stats_call(HOOK_cuMemSetMemPool);
	pool_chosen();
	return REAL(cuMemSetMemPool)(location, type, pool);
}

/* Trims the heap's idle memory, too. The heap does not separate idle memory by pool, so all of it counts. */
HOOK_EXPORT CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
	struct enter_scope scope;

	stats_call(HOOK_cuMemPoolTrimTo);
	CUresult result = REAL(cuMemPoolTrimTo)(pool, minBytesToKeep);
	if (result != CUDA_SUCCESS || !enter_serve(&scope))
		return result;
	struct device *device = async_is_for_heap() ? pool_heap_device(pool) : NULL;
	struct heap *heap = device ? atomic_load(&device->heap) : NULL;
	if (heap) {
		cuuint64_t used = 0; /* bytes of the pool: reserved by the driver, then those in the heap */

		if (REAL(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &used) != CUDA_SUCCESS)
			used = 0;
		used += pool_heap_bytes(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
		deferred_free_reap(device->ordinal);
		segments_give_up(device);
		heap_trim(heap, minBytesToKeep > used ? minBytesToKeep - used : 0, heap_idle_host(heap));
	}
	return enter_leave(&scope, result);
}

/* Gives the pool's memory in the heap, present and future, the access that the driver has granted for the pool. */
static CUresult open_heap(CUmemoryPool pool, const struct device *device, const CUmemAccessDesc *map, size_t count)
{
	uint64_t id = pool_number(pool);
	CUresult result = CUDA_SUCCESS;

	for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
		CUdevice other = map[i].location.id;

		if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || other == device->ordinal)
			continue;
		if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
			peer_pool_closed(id, other);
		else
			result = peer_pool_opened(id, device->ordinal, other);
	}
	return result;
}

HOOK_EXPORT CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	struct enter_scope scope;

	stats_call(HOOK_cuMemPoolSetAccess);
	CUresult result = REAL(cuMemPoolSetAccess)(pool, map, count);
	if (result != CUDA_SUCCESS || !lifecycle_enter(&scope))
		return result;
	/* pool_used() registers the default pool of a device. */
	for (CUdevice ordinal = 0; !pool_heap_device(pool) && device_get(ordinal); ordinal++)
		pool_used(device_get(ordinal));
	struct device *device = async_is_for_heap() ? pool_heap_device(pool) : NULL;
	if (device)
		result = open_heap(pool, device, map, count);
	return enter_leave(&scope, result);
}

HOOK_EXPORT CUresult CUDAAPI cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
	struct enter_scope scope;

	stats_call(HOOK_cuMemPoolExportPointer);
	if (!enter_serve(&scope))
		return REAL(cuMemPoolExportPointer)(shareData_out, ptr);
	if (!device_of(ptr))
		return enter_leave(&scope, REAL(cuMemPoolExportPointer)(shareData_out, ptr));
	log_once(
	    "cuMemPoolExportPointer on heap memory is not possible: set async.use: driver, or make the pool with a "
	    "handle type to export");
	return enter_leave(&scope, CUDA_ERROR_INVALID_VALUE);
}
