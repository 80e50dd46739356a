/*
 * Bodies of the entry points of virtual memory management that programs call themselves. Their handles are counted by
 * place, and the device memory that they take is not available to the heap. Nothing is refused except by a rule.
 * vmm.spill says what happens to the memory:
 *
 *   no     nothing
 *   move   it is heap memory (vmm.h); each of these bodies tries this first
 *
 * A handle lives until every reference (create, retain) is released and every mapping of it is gone, as the driver
 * counts it. Programs may use our address space only where they have reserved it: elsewhere a call is refused as the
 * driver refuses it for cuMemAlloc memory, except for handles of memory that never moves.
 */
#include "shim/process/enter.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/entry/hook.h"
#include "shim/base/call_site.h"
#include "shim/base/log.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/serve/typed_alloc.h"
#include "shim/serve/serve.h"
#include "shim/device/pool.h"
#include "shim/serve/oom_retry.h"
#include "shim/submit/pdl.h"
#include "shim/stats/summary.h"
#include "shim/serve/segments.h"
#include "shim/serve/vmm.h"

#include <stdlib.h>
#include <string.h>

/* Returns true if the heap of the handle's device has made room after the driver ran out of memory. */
static bool has_room(struct oom_retry *room, const CUmemAllocationProp *prop, size_t size)
{
	return prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && oom_retry_make(room, prop->location.id, size);
}

static void note_handle(CUmemGenericAllocationHandle handle, size_t size, const CUmemAllocationProp *prop,
			const struct account_claim *claim)
{
	struct ledger_row *row = ledger_row_new(LEDGER_HANDLE);

	if (!row) {
		account_claim_end(claim, size);
		return;
	}
	/* From the properties, not from the current context: NCCL calls cuMemCreate before it has one. */
	row->handle.on_host = prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE;
	row->device = row->handle.on_host ? 0 : prop->location.id;
	row->key = handle;
	row->bytes = size;
	row->handle.refs = 1;
	row->rule = claim->rule;
	row->cap = claim->cap;
	account_new(row, claim->site);
	if (!row->handle.on_host)
		stats_add(STAT_vmm_bytes, size);
	log_once("the program manages virtual memory itself (cuMemCreate): that part goes round the heap, counted but "
		 "never %s",
		 claim->spill == POLICY_VMM_DRIVER ? "spilled (vmm.spill in the policy lets it)" : "moved");
}

/* Most programs end after this. The message names what would have helped. */
static void say_no_room(const CUmemAllocationProp *prop, size_t size)
{
	char bytes[32];

	if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return;
	stats_add(STAT_refused, 1);
	log_once("the device has no memory for %s of the program's own cuMemCreate, which does not "
		 "move; " SUMMARY_VMM_REMEDY,
		 log_bytes(bytes, sizeof(bytes), size));
}

static CUresult entry_vmm_create(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
				 unsigned long long flags, const struct account_claim *claim)
{
	CUresult result;

	if (vmm_create(handle, size, prop, flags, claim, &result)) {
		if (result != CUDA_SUCCESS)
			account_claim_end(claim, size);
		return result;
	}
	struct oom_retry room = {0};

	do
		result = REAL(cuMemCreate)(handle, size, prop, flags);
	while (result == CUDA_ERROR_OUT_OF_MEMORY && has_room(&room, prop, size));
	oom_retry_end(&room, result);
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		say_no_room(prop, size);
	if (result == CUDA_SUCCESS)
		note_handle(*handle, size, prop, claim);
	else
		account_claim_end(claim, size);
	return result;
}

/* Rules decide about device memory; host memory that the program makes is only counted. */
HOOK_EXPORT CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
					 const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct account_claim claim = {.rule = -1};
	struct enter_scope scope;

	stats_call(HOOK_cuMemCreate);
	if (!lifecycle_enter(&scope))
		return serve_refusal() ? serve_refusal() : REAL(cuMemCreate)(handle, size, prop, flags);
	/* The driver refuses wrong arguments. */
	if (!handle || !prop)
		return enter_leave(&scope, REAL(cuMemCreate)(handle, size, prop, flags));
	if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
	    !typed_alloc_claim(POLICY_API_VMM, device_get(prop->location.id), size, __builtin_return_address(0),
			       &claim))
		return enter_leave(&scope, CUDA_ERROR_OUT_OF_MEMORY);
	return enter_leave(&scope, entry_vmm_create(handle, size, prop, flags, &claim));
}

/*
 * Of a handle that was retained from a block on the host the program gets the properties that it expects, because it
 * takes from them the device to grant access to.
 */
HOOK_EXPORT CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
								    CUmemGenericAllocationHandle handle)
{
	struct enter_scope scope;
	struct ledger_row row;

	CUresult result;

	stats_call(HOOK_cuMemGetAllocationPropertiesFromHandle);
	if (!enter_serve(&scope))
		return REAL(cuMemGetAllocationPropertiesFromHandle)(prop, handle);
	if (vmm_properties(handle, prop, &result))
		return enter_leave(&scope, result);
	result = REAL(cuMemGetAllocationPropertiesFromHandle)(prop, handle);
	if (result == CUDA_SUCCESS && ledger_get(LEDGER_HANDLE, handle, &row) && row.handle.borrowed) {
		prop->location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = row.device};
		memcpy(&prop->allocFlags, &row.handle.asked_flags, sizeof(row.handle.asked_flags));
	}
	return enter_leave(&scope, result);
}

HOOK_EXPORT CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct enter_scope scope;

	stats_call(HOOK_cuMemRelease);
	/* At exit the driver releases the rest with the process. */
	if (!enter_serve(&scope))
		return vmm_is_handle(handle) ? CUDA_SUCCESS : REAL(cuMemRelease)(handle);
	/* The reference is dropped from the ledger before the driver may give the handle to another thread. */
	struct ledger_row *row;
	bool known = ledger_handle_unref(handle, &row);
	CUresult result = CUDA_SUCCESS;
	if (!vmm_is_handle(handle))
		result = REAL(cuMemRelease)(handle);
	else if (!known)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS) {
		account_drop(row);
	} else if (row) {
		row->handle.refs = 1;
		ledger_commit(row);
	} else if (known) {
		ledger_handle_ref(handle);
	}
	return enter_leave(&scope, result);
}

/*
 * A block that found no room on the device is on the host, and its handle would say so; a library that asks (Open
 * MPI) would then read the block with the CPU, which is not possible. So the program gets the properties of memory
 * of the device.
 */
static void note_retained(CUmemGenericAllocationHandle handle, int device)
{
	CUmemAllocationProp prop;

	if (ledger_handle_ref(handle) || REAL(cuMemGetAllocationPropertiesFromHandle)(&prop, handle) != CUDA_SUCCESS ||
	    prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		return;
	struct ledger_row *row = ledger_row_new(LEDGER_HANDLE);
	if (!row)
		return;
	row->key = handle;
	row->device = device;
	row->handle.refs = 1;
	row->handle.borrowed = true;
	_Static_assert(sizeof(row->handle.asked_flags) == sizeof(prop.allocFlags), "they are kept whole");
	memcpy(&row->handle.asked_flags, &prop.allocFlags, sizeof(row->handle.asked_flags));
	ledger_commit(row);
}

/*
 * A handle stands for one chunk of memory, so it is given out only for memory that never moves. A library that
 * retains a handle takes it for the whole range that cuMemGetAddressRange returns, and maps that much of it elsewhere
 * (NCCL, in another process), so the block must be one chunk. Without Spillway memory of cuMemAlloc has no handle at
 * all, and libraries manage. The heap never reuses the chunk.
 */
static CUresult retain_of_heap(CUmemGenericAllocationHandle *handle, void *addr)
{
	CUdeviceptr address = (CUdeviceptr)(uintptr_t)addr;
	struct ledger_row row;

	if (!serve_find(address, &row) || !row.fixed) {
		log_once("cuMemRetainAllocationHandle on heap memory is possible where a rule says movable: no");
		return CUDA_ERROR_INVALID_VALUE;
	}
	struct heap *heap = atomic_load(&device_of(address)->heap);
	if (!heap_is_one_chunk(heap, address)) {
		log_once(
		    "cuMemRetainAllocationHandle: a block of more than 128 MiB, or of less than 1 MiB, has no handle "
		    "of its own, nor has one that was made of what was left in several places");
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (!heap_pin(heap, address, 1))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = REAL(cuMemRetainAllocationHandle)(handle, addr);
	heap_pin_end(heap, address, 1, result == CUDA_SUCCESS ? PIN_LEFT : PIN_OFF);
	if (result == CUDA_SUCCESS)
		note_retained(*handle, row.device);
	return result;
}

HOOK_EXPORT CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	struct enter_scope scope;
	struct ledger_row row;

	stats_call(HOOK_cuMemRetainAllocationHandle);
	if (!enter_serve(&scope))
		return REAL(cuMemRetainAllocationHandle)(handle, addr);
	CUdeviceptr address = (CUdeviceptr)(uintptr_t)addr;
	CUresult result;
	if (handle && vmm_retain(address, handle, &result))
		return enter_leave(&scope, result);
	if (device_of(address))
		return enter_leave(&scope, retain_of_heap(handle, addr));
	/* For the program this is cuMemAlloc memory of another process; it would believe a handle that says host. */
	if (ledger_find(LEDGER_TAKEN, address, &row))
		return enter_leave(&scope, CUDA_ERROR_INVALID_VALUE);
	result = REAL(cuMemRetainAllocationHandle)(handle, addr);
	if (result == CUDA_SUCCESS)
		ledger_handle_ref(*handle);
	return enter_leave(&scope, result);
}

HOOK_EXPORT CUresult CUDAAPI cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
				      unsigned long long flags)
{
	struct enter_scope scope;
	CUresult result;

	stats_call(HOOK_cuMemMap);
	if (!enter_serve(&scope))
		return REAL(cuMemMap)(ptr, size, offset, handle, flags);
	lifetimes_asked(call_site_asker(__builtin_return_address(0)));
	bool ours = vmm_map(ptr, size, offset, handle, flags, &result);
	lifetimes_asked(NULL);
	if (ours)
		return enter_leave(&scope, result);
	if (device_of(ptr))
		return enter_leave(&scope, CUDA_ERROR_INVALID_VALUE);
	struct ledger_row *row = ledger_row_new(LEDGER_MAPPING);
	result = REAL(cuMemMap)(ptr, size, offset, handle, flags);
	if (row && result == CUDA_SUCCESS && ledger_handle_map(handle)) {
		row->key = ptr;
		row->bytes = size;
		row->mapping.handle = handle;
		ledger_commit(row);
	} else {
		ledger_row_free(row);
	}
	return enter_leave(&scope, result);
}

HOOK_EXPORT CUresult CUDAAPI cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	struct enter_scope scope;

	stats_call(HOOK_cuMemUnmap);
	if (!enter_serve(&scope))
		return serve_is_late_free(ptr) ? CUDA_SUCCESS : REAL(cuMemUnmap)(ptr, size);
	return enter_leave(&scope, vmm_unmap(ptr, size));
}

/*
 * Handles memory of the heap first. The rest of the heap's address space is cuMemAlloc memory, on which these calls
 * are refused.
 */
#define BUT_FOR_DEVICE_MEMORY(name, params, args, ours)                                                                \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		struct enter_scope scope;                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		if (!enter_serve(&scope))                                                                              \
			return REAL(name) args;                                                                        \
		if (ours)                                                                                              \
			return enter_leave(&scope, result);                                                            \
		if (device_of(ptr))                                                                                    \
			return enter_leave(&scope, CUDA_ERROR_INVALID_VALUE);                                          \
		return enter_leave(&scope, REAL(name) args);                                                           \
	}
BUT_FOR_DEVICE_MEMORY(cuMemSetAccess, (CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count),
		      (ptr, size, desc, count), vmm_set_access(ptr, size, desc, count, &result))
BUT_FOR_DEVICE_MEMORY(cuMemGetAccess, (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr),
		      (flags, location, ptr), vmm_get_access(flags, location, ptr, &result))

HOOK_EXPORT CUresult CUDAAPI cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	struct enter_scope scope;
	CUresult result;

	stats_call(HOOK_cuMemAddressFree);
	if (!enter_serve(&scope))
		return serve_is_late_free(ptr) ? CUDA_SUCCESS : REAL(cuMemAddressFree)(ptr, size);
	if (vmm_unreserve(ptr, size, &result))
		return enter_leave(&scope, result);
	if (device_of(ptr))
		return enter_leave(&scope, CUDA_ERROR_INVALID_VALUE);
	return enter_leave(&scope, REAL(cuMemAddressFree)(ptr, size));
}

HOOK_EXPORT CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
						 unsigned long long flags)
{
	struct enter_scope scope;

	stats_call(HOOK_cuMemAddressReserve);
	if (!lifecycle_enter(&scope))
		return REAL(cuMemAddressReserve)(ptr, size, alignment, addr, flags);
	if (ptr && vmm_reserve(ptr, size, alignment, addr, flags))
		return enter_leave(&scope, CUDA_SUCCESS);
	return enter_leave(&scope, REAL(cuMemAddressReserve)(ptr, size, alignment, addr, flags));
}

/* ---- handles that are exported ---- */

/*
 * Other processes and devices need the driver's handle. mine: the argument that may hold a handle of ours; as: the
 * type that it is to be exported as.
 */
#define WITH_HANDLE(name, params, args, mine, as)                                                                      \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		struct enter_scope scope;                                                                              \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		if (!enter_serve(&scope))                                                                              \
			return REAL(name) args;                                                                        \
		CUresult result = vmm_expose(&(mine), as);                                                             \
		return enter_leave(&scope, result == CUDA_SUCCESS ? REAL(name) args : result);                         \
	}

WITH_HANDLE(cuMemExportToShareableHandle,
	    (void *shareableHandle, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType handleType,
	     unsigned long long flags),
	    (shareableHandle, handle, handleType, flags), handle, handleType)
WITH_HANDLE(cuMulticastBindMem,
	    (CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUmemGenericAllocationHandle memHandle,
	     size_t memOffset, size_t size, unsigned long long flags),
	    (mcHandle, mcOffset, memHandle, memOffset, size, flags), memHandle, 0)
WITH_HANDLE(cuMulticastBindMem_v2,
	    (CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
	     CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size, unsigned long long flags),
	    (mcHandle, dev, mcOffset, memHandle, memOffset, size, flags), memHandle, 0)
WITH_HANDLE(cuLogicalEndpointBindMem,
	    (CUlogicalEndpointId leId, CUdevice dev, cuuint64_t offset, CUmemGenericAllocationHandle memHandle,
	     cuuint64_t memOffset, cuuint64_t size, unsigned long long flags),
	    (leId, dev, offset, memHandle, memOffset, size, flags), memHandle, 0)

/*
 * Returns a copy of the list with the driver's handles in place of ours, or NULL if there is no memory. The caller
 * frees it.
 */
static CUarrayMapInfo *entry_vmm_exposed(const CUarrayMapInfo *list, unsigned n, CUresult *ret)
{
	CUarrayMapInfo *copy = malloc(n * sizeof(*copy));

	*ret = CUDA_ERROR_OUT_OF_MEMORY;
	if (!copy)
		return NULL;
	*ret = CUDA_SUCCESS;
	memcpy(copy, list, n * sizeof(*copy));
	for (unsigned i = 0; i < n && *ret == CUDA_SUCCESS; i++)
		if (copy[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP)
			*ret = vmm_expose(&copy[i].memHandle.memHandle, 0);
	return copy;
}

#define MAP_ARRAYS(name)                                                                                               \
	HOOK_EXPORT CUresult CUDAAPI name(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream)           \
	{                                                                                                              \
		struct enter_scope scope;                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		if (!mapInfoList || !count || !enter_serve(&scope))                                                    \
			return REAL(name)(mapInfoList, count, hStream);                                                \
		CUarrayMapInfo *list = entry_vmm_exposed(mapInfoList, count, &result);                                 \
		if (result == CUDA_SUCCESS)                                                                            \
			result = REAL(name)(list, count, hStream);                                                     \
		free(list);                                                                                            \
		return enter_leave(&scope, result);                                                                    \
	}
MAP_ARRAYS(cuMemMapArrayAsync)
MAP_ARRAYS(cuMemMapArrayAsync_ptsz)
