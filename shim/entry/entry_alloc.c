// SPDX-License-Identifier: Apache-2.0
/*
 * Bodies of the entry points that allocate and free, at once and in stream order, and of those for memory pools and
 * arrays. What the heap may serve goes to serve/ as a plain request; what the driver serves is counted.
 */
#include "shim/base/log.h"
#include "shim/device/device.h"
#include "shim/entry/entry.h"
#include "shim/process/process.h"
#include "shim/serve/account.h"
#include "shim/serve/deferred_free.h"
#include "shim/serve/make_room.h"
#include "shim/serve/segments.h"
#include "shim/submit/submit_body.h"

/* ---- cuMemAlloc, cuMemAllocPitch ---- */

HOOK_INLINE CUresult serve_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	struct backend_request request = {.bytes = bytesize, .caller = __builtin_return_address(0)};

	if (!dptr || !bytesize)
		return CUDA_ERROR_INVALID_VALUE;
	return serve_alloc(&request, dptr, NULL);
}

/*
 * The pitch is the width rounded up as the driver rounds it. The documentation allows elements of 4, 8 or 16 bytes.
 * Returns false if the arguments are wrong or rows * pitch overflows.
 */
static bool pitch_request(struct backend_request *request, size_t width, size_t height, size_t element)
{
	size_t pitch = (width + BACKEND_PITCH - 1) / BACKEND_PITCH * BACKEND_PITCH;

	*request =
	    (struct backend_request){.api = POLICY_API_PITCH, .width = width, .height = height, .element = element};
	if (!width || !height || pitch < width || (element != 4 && element != 8 && element != 16))
		return false;
	return !__builtin_mul_overflow(pitch, height, &request->bytes);
}

HOOK_INLINE CUresult serve_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
					      unsigned int ElementSizeBytes)
{
	struct backend_request request;

	if (!dptr || !pPitch || !pitch_request(&request, WidthInBytes, Height, ElementSizeBytes))
		return CUDA_ERROR_INVALID_VALUE;
	request.caller = __builtin_return_address(0);
	return serve_alloc(&request, dptr, pPitch);
}

static CUresult serve_cuMemFree_v2(CUdeviceptr dptr)
{
	return serve_free(dptr);
}

static CUresult serve_cuMemFree(CUdeviceptr_v1 dptr)
{
	return serve_free(dptr);
}

/* ---- managed memory: the driver serves it, unless a rule names it (serve.h) ---- */

HOOK_INLINE CUresult serve_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	return typed_alloc_managed(dptr, bytesize, flags, __builtin_return_address(0));
}

/* ---- allocations that the driver serves and the library counts ---- */

/* If the driver has no memory left, the heap makes room, and the call is made again (make_room.h). */
#define DRIVER_MAKES(name, params, args, kind, wanted, key, bytes)                                                     \
	static CUresult serve_##name params                                                                            \
	{                                                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		OOM_RETRY_CALL_INSIDE(result, -1, wanted, REAL(name) args);                                            \
		if (result == CUDA_SUCCESS)                                                                            \
			account_note(kind, key, bytes, -1);                                                            \
		return result;                                                                                         \
	}

/* Addresses of 32 bits (CUDA before 3.2) cannot reach the heap. */
#define WRAP_cuMemAlloc(...) DRIVER_MAKES(__VA_ARGS__, LEDGER_DRIVER, bytesize, *dptr, bytesize)
#define WRAP_cuMemAllocPitch(...)                                                                                      \
	DRIVER_MAKES(__VA_ARGS__, LEDGER_DRIVER, (uint64_t)WidthInBytes *Height, *dptr, (size_t)*pPitch *Height)

/* ---- pinned host memory ---- */

#define ALLOC_HOST(name, params, args)                                                                                 \
	HOOK_INLINE CUresult serve_##name params                                                                       \
	{                                                                                                              \
		struct account_claim claim;                                                                            \
                                                                                                                       \
		if (!typed_alloc_claim(POLICY_API_HOST, NULL, bytesize, __builtin_return_address(0), &claim))          \
			return CUDA_ERROR_OUT_OF_MEMORY;                                                               \
		CUresult result = REAL(name) args;                                                                     \
		if (result == CUDA_SUCCESS)                                                                            \
			account_note_claimed(LEDGER_PINNED, (uint64_t)(uintptr_t)*pp, bytesize, -1, &claim);           \
		else                                                                                                   \
			account_claim_end(&claim, bytesize);                                                           \
		return result;                                                                                         \
	}
ALLOC_HOST(cuMemHostAlloc, (void **pp, size_t bytesize, unsigned int Flags), (pp, bytesize, Flags))
ALLOC_HOST(cuMemAllocHost_v2, (void **pp, size_t bytesize), (pp, bytesize))
ALLOC_HOST(cuMemAllocHost, (void **pp, unsigned int bytesize), (pp, bytesize))

static CUresult note_registered(CUresult result, const void *address, size_t bytes)
{
	struct enter_scope scope;

	if (result != CUDA_SUCCESS || !lifecycle_enter(&scope))
		return result;
	account_note(LEDGER_REGISTERED, (uint64_t)(uintptr_t)address, bytes, -1);
	return enter_leave(&scope, result);
}

static CUresult serve_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
	return note_registered(REAL(cuMemHostRegister_v2)(p, bytesize, Flags), p, bytesize);
}

static CUresult serve_cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
	return note_registered(REAL(cuMemHostRegister)(p, bytesize, Flags), p, bytesize);
}

/*
 * The row is removed before the driver's call, which may give the handle to another thread, and restored if it fails.
 */
#define DRIVER_ENDS(name, type, kind)                                                                                  \
	static CUresult serve_##name(type handle)                                                                      \
	{                                                                                                              \
		struct ledger_row *row = account_forget(kind, (uint64_t)(uintptr_t)handle);                            \
		CUresult result = REAL(name)(handle);                                                                  \
                                                                                                                       \
		account_forgotten(row, result == CUDA_SUCCESS);                                                        \
		return result;                                                                                         \
	}
DRIVER_ENDS(cuMemFreeHost, void *, LEDGER_PINNED)
DRIVER_ENDS(cuMemHostUnregister, void *, LEDGER_REGISTERED)

/* ---- arrays: opaque, they stay with the driver; what they take is counted and charged (account.h) ---- */

/* Each form of the descriptor, converted to the widest one. */
#define PLANE(d)                                                                                                       \
	{                                                                                                              \
		.Width = (d)->Width, .Height = (d)->Height, .Format = (d)->Format, .NumChannels = (d)->NumChannels     \
	}
#define SOLID(d)                                                                                                       \
	{                                                                                                              \
		.Width = (d)->Width, .Height = (d)->Height, .Depth = (d)->Depth, .Format = (d)->Format,                \
		.NumChannels = (d)->NumChannels, .Flags = (d)->Flags                                                   \
	}
/* The driver must have accepted the descriptor when its size is asked. */
#define ARRAY(name, params, args, descriptor, levels)                                                                  \
	DRIVER_MAKES(name, params, args, LEDGER_ARRAY, array_bytes(&(CUDA_ARRAY3D_DESCRIPTOR)descriptor, levels),      \
		     (uint64_t)(uintptr_t)*pHandle, array_bytes(&(CUDA_ARRAY3D_DESCRIPTOR)descriptor, levels))
#define WRAP_cuArrayCreate(...)      ARRAY(__VA_ARGS__, PLANE(pAllocateArray), 1)
#define WRAP_cuArrayCreate_v2(...)   ARRAY(__VA_ARGS__, PLANE(pAllocateArray), 1)
#define WRAP_cuArray3DCreate(...)    ARRAY(__VA_ARGS__, SOLID(pAllocateArray), 1)
#define WRAP_cuArray3DCreate_v2(...) ARRAY(__VA_ARGS__, SOLID(pAllocateArray), 1)
/* The driver limits the number of levels to what the size allows: down to 1 x 1 x 1. */
#define WRAP_cuMipmappedArrayCreate(...)                                                                               \
	ARRAY(__VA_ARGS__, SOLID(pMipmappedArrayDesc), levels_of(pMipmappedArrayDesc, numMipmapLevels))

static unsigned levels_of(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned asked)
{
	size_t most = array->Width | array->Height;
	unsigned levels = 1;

	if (!(array->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
		most |= array->Depth;
	while (most >>= 1)
		levels++;
	return asked < levels ? asked : levels;
}

DRIVER_ENDS(cuArrayDestroy, CUarray, LEDGER_ARRAY)
DRIVER_ENDS(cuMipmappedArrayDestroy, CUmipmappedArray, LEDGER_ARRAY)

/* ---- in stream order: what the policy puts into the heap goes to async.c, the rest to the driver's pools ---- */

/*
 * The driver allocates and frees the memory of a captured allocation with launches of its graph, so its address has
 * no row.
 */
static CUresult entry_async_settle(const struct async_request *request, CUdeviceptr *address, bool captured,
				   CUresult result)
{
	if (result == CUDA_SUCCESS && !captured) {
		account_note_claimed(LEDGER_ASYNC, *address, request->question.bytes, -1, &request->claim);
		return result;
	}
	if (result == CUDA_SUCCESS) {
		struct device *device = device_current(NULL);

		stats_add(STAT_graph_allocations, 1);
		if (device)
			pool_graphs_used(device);
		return result;
	}
	account_claim_end(&request->claim, request->question.bytes);
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		async_rescue(request, address, &result);
	return result;
}

#define ALLOC_ASYNC(name, params, args, asked, of_pool)                                                                \
	HOOK_INLINE CUresult serve_##name params                                                                       \
	{                                                                                                              \
		struct async_request request = {                                                                       \
		    .question = {.bytes = bytesize, .api = asked, .caller = __builtin_return_address(0)},              \
		    .pool = of_pool,                                                                                   \
		    .stream = hStream,                                                                                 \
		    .per_thread = submit_is_per_thread(#name),                                                         \
		    .claim = {.rule = -1}};                                                                            \
		CUresult result;                                                                                       \
                                                                                                                       \
		if (async_alloc(&request, dptr, &result))                                                              \
			return result;                                                                                 \
		bool captured = async_is_capturing(hStream, request.per_thread);                                       \
		OOM_RETRY_CALL_INSIDE(result, -1, bytesize, REAL(name) args);                                          \
		return entry_async_settle(&request, dptr, captured, result);                                           \
	}

#define WRAP_cuMemAllocAsync(...)              ALLOC_ASYNC(__VA_ARGS__, POLICY_API_ASYNC, NULL)
#define WRAP_cuMemAllocAsync_ptsz(...)         ALLOC_ASYNC(__VA_ARGS__, POLICY_API_ASYNC, NULL)
#define WRAP_cuMemAllocFromPoolAsync(...)      ALLOC_ASYNC(__VA_ARGS__, POLICY_API_POOL, pool)
#define WRAP_cuMemAllocFromPoolAsync_ptsz(...) ALLOC_ASYNC(__VA_ARGS__, POLICY_API_POOL, pool)

/* Routed by the ledger. */
#define FREE_ASYNC(name, per_thread)                                                                                   \
	static CUresult serve_##name(CUdeviceptr dptr, CUstream hStream)                                               \
	{                                                                                                              \
		if (serve_is_ours(dptr))                                                                               \
			return async_free(dptr, hStream, per_thread);                                                  \
		struct ledger_row *row = account_forget(LEDGER_FREEABLE, dptr);                                        \
		if (!row && serve_is_dead(dptr))                                                                       \
			return CUDA_ERROR_INVALID_VALUE;                                                               \
		CUresult result = REAL(name)(dptr, hStream);                                                           \
		account_forgotten(row, result == CUDA_SUCCESS);                                                        \
		return result;                                                                                         \
	}
FREE_ASYNC(cuMemFreeAsync, false)
FREE_ASYNC(cuMemFreeAsync_ptsz, true)

/* ---- pools ---- */

/*
 * Returns whether any GPU can decompress in hardware, or cannot be asked: a pool may be opened to any. RMM asks for it
 * on all GPUs.
 */
static bool decompresses(void)
{
	int n = 0, algorithms = 0;

	for (int i = REAL(cuDeviceGetCount)(&n) == CUDA_SUCCESS ? 0 : -1; i < n; i++)
		if (REAL(cuDeviceGetAttribute)(&algorithms, CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, i) !=
			CUDA_SUCCESS ||
		    algorithms)
			return true;
	return false;
}

/*
 * Returns whether the pool must be the driver's. The heap has no exportable handles, size limits or hardware
 * decompression, and does not know other usage flags.
 */
static bool is_drivers(const CUmemPoolProps *props)
{
	return props->handleTypes != CU_MEM_HANDLE_TYPE_NONE || props->maxSize ||
	       props->usage & ~CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS || (props->usage && decompresses());
}

static CUresult serve_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
	CUmemoryPool made; /* *pool may lie in managed memory, which the driver must not touch */
	CUresult result = REAL(cuMemPoolCreate)(pool ? &made : NULL, poolProps);

	if (result != CUDA_SUCCESS)
		return result;
	/* A pool that is not recorded is served by the driver and not charged, as managed memory is not. */
	if (process_counts() && poolProps->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
	    poolProps->allocType == CU_MEM_ALLOCATION_TYPE_PINNED)
		pool_made(made, poolProps->location.id, is_drivers(poolProps));
	*pool = made;
	return CUDA_SUCCESS;
}

static CUresult serve_cuMemPoolDestroy(CUmemoryPool pool)
{
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
static CUresult serve_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	struct enter_scope scope;

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

static CUresult serve_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	struct enter_scope scope;

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

static CUresult serve_cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
	pool_chosen();
	return REAL(cuDeviceSetMemPool)(dev, pool);
}

static CUresult serve_cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	pool_chosen();
	return REAL(cuMemSetMemPool)(location, type, pool);
}

/* Trims the heap's idle memory, too. The heap does not separate idle memory by pool, so all of it counts. */
static CUresult serve_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
	struct enter_scope scope;

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
		heap_trim(heap, minBytesToKeep > used ? minBytesToKeep - used : 0, heap_idle(heap, CHUNK_HOST));
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

static CUresult serve_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	struct enter_scope scope;

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

static CUresult serve_cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
	if (!device_of(ptr))
		return REAL(cuMemPoolExportPointer)(shareData_out, ptr);
	log_once(
	    "cuMemPoolExportPointer on heap memory is not possible: set async.use: driver, or make the pool with a "
	    "handle type to export");
	return CUDA_ERROR_INVALID_VALUE;
}

#define HOOK_WRAP HOOK_AROUND
#define HOOKS_OF  HOOKS_MEMORY
#include "shim/driver/hooks.def"
#define HOOK_BODY HOOK_SHELL
#define HOOKS_OF  HOOKS_MEMORY
#include "shim/driver/hooks.def"
