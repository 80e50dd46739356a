/*
 * Bodies of the entry points after which memory must stay where it is, because it may be accessed otherwise than by
 * its address in a submission (heap_pin):
 *
 *   memory that is exported    other processes or devices use its physical memory: a range exported as a file
 *                              descriptor, or bound to a multicast object. Pinned in every mode, and the memory is
 *                              never reused. (Handles of chunks: entry_vmm.c. Legacy IPC: entry_ipc.c.)
 *   addresses kept elsewhere   a tensor map, a texture object, a texture reference: the GPU may access the memory by
 *                              a launch that does not name it. Pinned in `fast`, where such an access must not meet a
 *                              piece that is moving; in the other modes everything is mapped at all times, and the
 *                              heap notes it, as the mode may change.
 *
 * The block stays pinned for as long as it lives, also if the map or the texture ends before it.
 */
#include "shim/process/enter.h"
#include "shim/entry/hook.h"
#include "shim/base/log.h"
#include "shim/heap/arena.h"
#include "shim/heap/migration.h"
#include "shim/serve/on_use.h"
#include "shim/serve/serve.h"
#include "shim/submit/submission.h"

static struct heap *heap_of(CUdeviceptr address)
{
	struct device *device = device_of(address);

	return device ? atomic_load_explicit(&device->heap, memory_order_acquire) : NULL;
}

/* ---- addresses kept elsewhere ---- */

/* Called after the driver has taken the address: no launch can use it yet. */
static void stay_in_fast(CUdeviceptr address)
{
	struct enter_scope scope;

	if (!enter_serve(&scope))
		return;
	struct heap *heap = heap_of(address);
	CUdeviceptr begin = address;
	uint64_t bytes = 1;
	if (heap)
		arena_extent(heap_arena(heap), address, &begin, &bytes);
	if (heap && !heap_stay_beside(heap, begin, bytes))
		log_once("memory behind a tensor map or a texture is on its way and does not arrive; in mode fast a "
			 "kernel that uses it may stop the job");
	enter_leave(&scope, CUDA_SUCCESS);
}

/* Returns 0 for arrays, which are the driver's and never move. */
static CUdeviceptr address_of_resource(const CUDA_RESOURCE_DESC *resource)
{
	switch (resource->resType) {
	case CU_RESOURCE_TYPE_LINEAR:
		return resource->res.linear.devPtr;
	case CU_RESOURCE_TYPE_PITCH2D:
		return resource->res.pitch2D.devPtr;
	default:
		return 0;
	}
}

/*
 * Returns the address that must be pinned, or 0 if none. Libraries make tensor maps for every matrix that they
 * multiply, and pass them to their kernels by value. If the address can be read in the map, as one of its words, such
 * a launch names the memory like any other, and it need not be pinned.
 *
 * Measured (H200, driver 580): the address is one of the words.
 */
static CUdeviceptr address_in_map(const CUtensorMap *map, const void *address)
{
	for (size_t i = 0; i < sizeof(map->opaque) / sizeof(map->opaque[0]); i++)
		if (map->opaque[i] == (uintptr_t)address)
			return 0;
	return (CUdeviceptr)(uintptr_t)address;
}

#define ADDRESS_cuTensorMapEncodeIm2col     address_in_map(tensorMap, globalAddress)
#define ADDRESS_cuTensorMapEncodeIm2colWide address_in_map(tensorMap, globalAddress)
#define ADDRESS_cuTensorMapEncodeTiled      address_in_map(tensorMap, globalAddress)
#define ADDRESS_cuTensorMapReplaceAddress   address_in_map(tensorMap, globalAddress)
#define ADDRESS_cuTexObjectCreate           address_of_resource(pResDesc)
#define ADDRESS_cuTexRefSetAddress_v2       dptr
#define ADDRESS_cuTexRefSetAddress2D_v2     dptr
#define ADDRESS_cuTexRefSetAddress2D_v3     dptr

/*
 * The driver may look at the memory of a texture when it is made. That of a tensor map is named by launches, if the
 * address can be read there.
 */
#define BEFORE_cuTensorMapEncodeIm2col     0
#define BEFORE_cuTensorMapEncodeIm2colWide 0
#define BEFORE_cuTensorMapEncodeTiled      0
#define BEFORE_cuTensorMapReplaceAddress   0
#define BEFORE_cuTexObjectCreate           (pResDesc ? address_of_resource(pResDesc) : 0)
#define BEFORE_cuTexRefSetAddress_v2       dptr
#define BEFORE_cuTexRefSetAddress2D_v2     dptr
#define BEFORE_cuTexRefSetAddress2D_v3     dptr

/* Memory of an allocation with place: on-use is there from now on, whatever launches name. */
static CUresult back(CUdeviceptr address)
{
	return address && submission_is_watched() ? on_use_take(address, 0, true) : CUDA_SUCCESS;
}

/* clang-format off */
#define HOOK_PIN(name, params, args)                                                                                   \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		stats_call(HOOK_##name);                                                                               \
		CUresult result = back(BEFORE_##name);                                                                 \
		if (result == CUDA_SUCCESS)                                                                            \
			result = REAL(name) args;                                                                      \
		if (result == CUDA_SUCCESS)                                                                            \
			result = back(ADDRESS_##name);                                                                 \
		if (result == CUDA_SUCCESS)                                                                            \
			stay_in_fast(ADDRESS_##name);                                                                                                  \
		return result;                                                                                         \
	}
#include "shim/driver/hooks.def"
/* clang-format on */

/* ---- memory that is exported ---- */

/*
 * Called before the driver looks at what is mapped there. Memory of an allocation with place: on-use is taken first:
 * what is taken later would be in no pin. If the driver then refuses the call, the memory may move again.
 */
static CUresult entry_pin_begin(struct heap *heap, CUdeviceptr address, size_t bytes)
{
	CUresult result = on_use_take_range(address, bytes);

	if (result != CUDA_SUCCESS)
		return result;
	if (heap_pin(heap, address, bytes))
		return CUDA_SUCCESS;
	log_once("memory that is to leave the process is on its way and does not arrive: refused");
	return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult entry_pin_end(struct heap *heap, CUdeviceptr address, size_t bytes, CUresult result)
{
	heap_pin_end(heap, address, bytes, result == CUDA_SUCCESS ? PIN_LEFT : PIN_OFF);
	return result;
}

HOOK_EXPORT CUresult CUDAAPI cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
							   CUmemRangeHandleType handleType, unsigned long long flags)
{
	struct enter_scope scope;

	stats_call(HOOK_cuMemGetHandleForAddressRange);
	if (!enter_serve(&scope))
		return REAL(cuMemGetHandleForAddressRange)(handle, dptr, size, handleType, flags);
	struct heap *heap = heap_of(dptr);
	if (!heap)
		return enter_leave(&scope, REAL(cuMemGetHandleForAddressRange)(handle, dptr, size, handleType, flags));
	CUresult result = entry_pin_begin(heap, dptr, size);
	if (result != CUDA_SUCCESS)
		return enter_leave(&scope, result);
	result = REAL(cuMemGetHandleForAddressRange)(handle, dptr, size, handleType, flags);
	return enter_leave(&scope, entry_pin_end(heap, dptr, size, result));
}

#define BIND_ADDR(name, params, args, memptr)                                                                          \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		struct enter_scope scope;                                                                              \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		if (!enter_serve(&scope))                                                                              \
			return REAL(name) args;                                                                        \
		struct heap *heap = heap_of(memptr);                                                                   \
		if (!heap)                                                                                             \
			return enter_leave(&scope, REAL(name) args);                                                   \
		CUresult result = entry_pin_begin(heap, memptr, size);                                                 \
		if (result != CUDA_SUCCESS)                                                                            \
			return enter_leave(&scope, result);                                                            \
		result = REAL(name) args;                                                                              \
		return enter_leave(&scope, entry_pin_end(heap, memptr, size, result));                                 \
	}
BIND_ADDR(cuMulticastBindAddr,
	  (CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUdeviceptr memptr, size_t size,
	   unsigned long long flags),
	  (mcHandle, mcOffset, memptr, size, flags), memptr)
BIND_ADDR(cuMulticastBindAddr_v2,
	  (CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset, CUdeviceptr memptr, size_t size,
	   unsigned long long flags),
	  (mcHandle, dev, mcOffset, memptr, size, flags), memptr)
BIND_ADDR(cuLogicalEndpointBindAddr,
	  (CUlogicalEndpointId leId, CUdevice dev, cuuint64_t offset, void *ptr, cuuint64_t size,
	   unsigned long long flags),
	  (leId, dev, offset, ptr, size, flags), (CUdeviceptr)(uintptr_t)ptr)
