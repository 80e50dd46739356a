// SPDX-License-Identifier: Apache-2.0
/*
 * Bodies of the entry points of virtual memory management that programs call themselves. Their handles are counted by
 * place, and the device memory that they take is not available to the heap. Nothing is refused except by a rule.
 * vmm.spill says what happens to the memory:
 *
 *   no     nothing
 *   move   it is heap memory (serve.h); each of these bodies tries this first
 *
 * A handle lives until every reference (create, retain) is released and every mapping of it is gone, as the driver
 * counts it. Programs may use our address space only where they have reserved it: elsewhere a call is refused as the
 * driver refuses it for cuMemAlloc memory, except for handles of memory that never moves.
 */
#include "shim/base/call_site.h"
#include "shim/base/log.h"
#include "shim/device/device.h"
#include "shim/entry/entry.h"
#include "shim/heap/arena.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/process/process.h"
#include "shim/serve/make_room.h"
#include "shim/serve/named.h"
#include "shim/serve/segments.h"
#include "shim/stats/summary.h"
#include "shim/submit/arguments.h"
#include "shim/submit/submission.h"

#include <stdlib.h>
#include <string.h>

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
	OOM_RETRY_CALL_BY(prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
			      make_room_for_driver(&room_, prop->location.id, size),
			  result, REAL(cuMemCreate)(handle, size, prop, flags));
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		say_no_room(prop, size);
	if (result == CUDA_SUCCESS)
		note_handle(*handle, size, prop, claim);
	else
		account_claim_end(claim, size);
	return result;
}

/* Rules decide about device memory; host memory that the program makes is only counted. */
HOOK_INLINE CUresult serve_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
				       const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct account_claim claim = {.rule = -1};

	/* The driver refuses wrong arguments. */
	if (!handle || !prop)
		return REAL(cuMemCreate)(handle, size, prop, flags);
	if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
	    !typed_alloc_claim(POLICY_API_VMM, device_get(prop->location.id), size, __builtin_return_address(0),
			       &claim))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return entry_vmm_create(handle, size, prop, flags, &claim);
}

/*
 * Of a handle that was retained from a block on the host the program gets the properties that it expects, because it
 * takes from them the device to grant access to.
 */
static CUresult serve_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
							     CUmemGenericAllocationHandle handle)
{
	struct ledger_row row;

	CUresult result;

	if (vmm_properties(handle, prop, &result))
		return result;
	result = REAL(cuMemGetAllocationPropertiesFromHandle)(prop, handle);
	if (result == CUDA_SUCCESS && ledger_get(LEDGER_HANDLE, handle, &row) && row.handle.borrowed) {
		prop->location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = row.device};
		memcpy(&prop->allocFlags, &row.handle.asked_flags, sizeof(row.handle.asked_flags));
	}
	return result;
}

static CUresult serve_cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct enter_scope scope;

	/* At exit the driver releases the rest with the process. */
	if (!enter_serve(&scope))
		return vmm_is_handle(handle) ? CUDA_SUCCESS : REAL(cuMemRelease)(handle);
	/* The reference is dropped from the ledger before the driver may give the handle to another thread. */
	struct ledger_row *row;
	bool known = ledger_handle_unref(handle, false, &row);
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
		ledger_handle_ref(handle, false);
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

	if (ledger_handle_ref(handle, false) ||
	    REAL(cuMemGetAllocationPropertiesFromHandle)(&prop, handle) != CUDA_SUCCESS ||
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

static CUresult serve_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	struct ledger_row row;

	CUdeviceptr address = (CUdeviceptr)(uintptr_t)addr;
	CUresult result;
	if (handle && vmm_retain(address, handle, &result))
		return result;
	if (device_of(address))
		return retain_of_heap(handle, addr);
	/* For the program this is cuMemAlloc memory of another process; it would believe a handle that says host. */
	if (ledger_find(LEDGER_TAKEN, address, &row))
		return CUDA_ERROR_INVALID_VALUE;
	result = REAL(cuMemRetainAllocationHandle)(handle, addr);
	if (result == CUDA_SUCCESS)
		ledger_handle_ref(*handle, false);
	return result;
}

HOOK_INLINE CUresult serve_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
				    unsigned long long flags)
{
	CUresult result;

	if (vmm_map(ptr, size, offset, handle, flags, call_site_asker(__builtin_return_address(0)), &result))
		return result;
	if (device_of(ptr))
		return CUDA_ERROR_INVALID_VALUE;
	struct ledger_row *row = ledger_row_new(LEDGER_MAPPING);
	result = REAL(cuMemMap)(ptr, size, offset, handle, flags);
	if (row && result == CUDA_SUCCESS && ledger_handle_ref(handle, true)) {
		row->key = ptr;
		row->bytes = size;
		row->mapping.handle = handle;
		ledger_commit(row);
	} else {
		ledger_row_free(row);
	}
	return result;
}

static CUresult serve_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	return vmm_unmap(ptr, size);
}

/*
 * Handles memory of the heap first. The rest of the heap's address space is cuMemAlloc memory, on which these calls
 * are refused.
 */
#define BUT_FOR_DEVICE_MEMORY(name, params, args, ours)                                                                \
	static CUresult serve_##name params                                                                            \
	{                                                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		if (ours)                                                                                              \
			return result;                                                                                 \
		if (device_of(ptr))                                                                                    \
			return CUDA_ERROR_INVALID_VALUE;                                                               \
		return REAL(name) args;                                                                                \
	}
#define WRAP_cuMemSetAccess(...)   BUT_FOR_DEVICE_MEMORY(__VA_ARGS__, vmm_set_access(ptr, size, desc, count, &result))
#define WRAP_cuMemGetAccess(...)   BUT_FOR_DEVICE_MEMORY(__VA_ARGS__, vmm_get_access(flags, location, ptr, &result))
#define WRAP_cuMemAddressFree(...) BUT_FOR_DEVICE_MEMORY(__VA_ARGS__, vmm_unreserve(ptr, size, &result))

static CUresult serve_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
					  unsigned long long flags)
{
	if (ptr && vmm_reserve(ptr, size, alignment, addr, flags))
		return CUDA_SUCCESS;
	return REAL(cuMemAddressReserve)(ptr, size, alignment, addr, flags);
}

/* ---- handles that are exported ---- */

/*
 * Other processes and devices need the driver's handle. mine: the argument that may hold a handle of ours; as: the
 * type that it is to be exported as.
 */
#define WITH_HANDLE(name, params, args, mine, as)                                                                      \
	static CUresult serve_##name params                                                                            \
	{                                                                                                              \
		return vmm_expose(&(mine), as) ?: REAL(name) args;                                                     \
	}

#define WRAP_cuMemExportToShareableHandle(...) WITH_HANDLE(__VA_ARGS__, handle, handleType)
#define WRAP_cuMulticastBindMem(...)           WITH_HANDLE(__VA_ARGS__, memHandle, 0)
#define WRAP_cuMulticastBindMem_v2(...)        WITH_HANDLE(__VA_ARGS__, memHandle, 0)
#define WRAP_cuLogicalEndpointBindMem(...)     WITH_HANDLE(__VA_ARGS__, memHandle, 0)

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
	static CUresult serve_##name(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream)                \
	{                                                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		if (!mapInfoList || !count)                                                                            \
			return REAL(name)(mapInfoList, count, hStream);                                                \
		CUarrayMapInfo *list = entry_vmm_exposed(mapInfoList, count, &result);                                 \
		if (result == CUDA_SUCCESS)                                                                            \
			result = REAL(name)(list, count, hStream);                                                     \
		free(list);                                                                                            \
		return result;                                                                                         \
	}
MAP_ARRAYS(cuMemMapArrayAsync)
MAP_ARRAYS(cuMemMapArrayAsync_ptsz)

/*
 * A range exported as a file descriptor, or bound to a multicast object: other processes or devices use its physical
 * memory. Pinned in every mode, for as long as the block lives, and the memory is never reused.
 */

/*
 * Called before the driver looks at what is mapped there. Memory of an allocation with place: on-use is taken first:
 * what is taken later would be in no pin. If the driver then refuses the call, the memory may move again.
 */
static CUresult entry_pin_begin(struct heap *heap, CUdeviceptr address, size_t bytes)
{
	struct ledger_row row;

	if (serve_find(address, &row) && row.kind == LEDGER_HEAP && row.heap.managed)
		return CUDA_ERROR_INVALID_VALUE; /* as natively */
	CUresult result = on_use_take_range(address, bytes);
	if (result != CUDA_SUCCESS)
		return result;
	if (heap_pin(heap, address, bytes))
		return CUDA_SUCCESS;
	log_once("memory that is to leave the process is on its way and does not arrive: refused");
	return CUDA_ERROR_NOT_SUPPORTED;
}

#define PINNED_RANGE(name, params, args, start)                                                                        \
	static CUresult serve_##name params                                                                            \
	{                                                                                                              \
		struct heap *heap = entry_heap_of(start);                                                              \
		if (!heap)                                                                                             \
			return REAL(name) args;                                                                        \
		CUresult result = entry_pin_begin(heap, start, size);                                                  \
		if (result != CUDA_SUCCESS)                                                                            \
			return result;                                                                                 \
		result = REAL(name) args;                                                                              \
		heap_pin_end(heap, start, size, result == CUDA_SUCCESS ? PIN_LEFT : PIN_OFF);                          \
		return result;                                                                                         \
	}
#define WRAP_cuMemGetHandleForAddressRange(...) PINNED_RANGE(__VA_ARGS__, dptr)
#define WRAP_cuMulticastBindAddr(...)           PINNED_RANGE(__VA_ARGS__, memptr)
#define WRAP_cuMulticastBindAddr_v2(...)        PINNED_RANGE(__VA_ARGS__, memptr)
#define WRAP_cuLogicalEndpointBindAddr(...)     PINNED_RANGE(__VA_ARGS__, (CUdeviceptr)(uintptr_t)ptr)

/* ---- legacy IPC of memory (serve.h) ---- */

static CUresult serve_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	struct ledger_row row;

	if (!serve_is_ours(dptr))
		return REAL(cuIpcGetMemHandle)(pHandle, dptr);
	struct device *device = device_of(dptr);
	if (device && pHandle && serve_find(dptr, &row))
		return ipc_give(atomic_load(&device->heap), &row, pHandle);
	if (!device)
		log_once("cuIpcGetMemHandle on managed or system memory is not possible: give such allocations to the "
			 "driver with a rule (use: driver)");
	return CUDA_ERROR_INVALID_VALUE;
}

#define OPEN(name)                                                                                                     \
	static CUresult serve_##name(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)                    \
	{                                                                                                              \
		struct enter_scope scope;                                                                              \
                                                                                                                       \
		if (!ipc_is_ours(&handle) || !lifecycle_enter(&scope))                                                 \
			return REAL(name)(pdptr, handle, Flags);                                                       \
		return enter_leave(&scope, Flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ? ipc_open(&handle, pdptr)      \
										       : CUDA_ERROR_INVALID_VALUE);    \
	}
OPEN(cuIpcOpenMemHandle)
OPEN(cuIpcOpenMemHandle_v2)

static CUresult serve_cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	CUresult result;

	return ipc_close(dptr, &result) ? result : REAL(cuIpcCloseMemHandle)(dptr);
}

#define HOOK_WRAP HOOK_AROUND
#define HOOKS_OF  HOOKS_VMM
#include "shim/driver/hooks.def"
#define HOOK_BODY HOOK_SHELL
#define HOOKS_OF  HOOKS_VMM
#include "shim/driver/hooks.def"
