/*
 * Bodies for programs that use virtual memory management themselves. Their handles are counted where they lie, and
 * device memory they take is room the heap does not have; nothing is refused. A handle lives until every reference
 * (create, retain) is released and every mapping of it is gone, as the driver counts it. Our own address space is not
 * theirs: what they try there is refused as the driver refuses it for cuMemAlloc memory.
 */
#include "shim/enter.h"
#include "shim/hook.h"
#include "shim/log.h"
#include "shim/serve.h"

HOOK_EXPORT CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
					 const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct enter_scope scope;

	stats_call(HOOK_cuMemCreate);
	bool serving = enter_serve(&scope, true);
	CUresult result = serving ? CUDA_SUCCESS : serve_refusal();
	if (result == CUDA_SUCCESS)
		result = REAL(cuMemCreate)(handle, size, prop, flags);
	if (!serving)
		return result;
	struct ledger_row *row = result == CUDA_SUCCESS ? ledger_row_new(LEDGER_HANDLE) : NULL;
	if (row) {
		/* From the properties, not from a context: NCCL comes here before there is one (facts 7). */
		row->on_host = prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE;
		row->device = row->on_host ? 0 : prop->location.id;
		row->key = *handle;
		row->bytes = size;
		row->refs = 1;
		serve_count_new(row);
		log_once("the program manages virtual memory itself (cuMemCreate): that part goes round the heap, "
			 "counted but never spilled");
	}
	return enter_leave(&scope, result);
}

HOOK_EXPORT CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct enter_scope scope;

	stats_call(HOOK_cuMemRelease);
	CUresult result = REAL(cuMemRelease)(handle);
	if (result != CUDA_SUCCESS || !enter_serve(&scope, false))
		return result;
	serve_drop(ledger_handle_unref(handle));
	return enter_leave(&scope, result);
}

HOOK_EXPORT CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	struct enter_scope scope;

	stats_call(HOOK_cuMemRetainAllocationHandle);
	if (!enter_serve(&scope, false))
		return REAL(cuMemRetainAllocationHandle)(handle, addr);
	if (device_of((CUdeviceptr)(uintptr_t)addr))
		return enter_leave(&scope, CUDA_ERROR_INVALID_VALUE);
	CUresult result = REAL(cuMemRetainAllocationHandle)(handle, addr);
	if (result == CUDA_SUCCESS)
		ledger_handle_ref(*handle);
	return enter_leave(&scope, result);
}

HOOK_EXPORT CUresult CUDAAPI cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
				      unsigned long long flags)
{
	struct enter_scope scope;

	stats_call(HOOK_cuMemMap);
	if (!enter_serve(&scope, false))
		return REAL(cuMemMap)(ptr, size, offset, handle, flags);
	if (device_of(ptr))
		return enter_leave(&scope, CUDA_ERROR_INVALID_VALUE);
	struct ledger_row *row = ledger_row_new(LEDGER_MAPPING);
	CUresult result = REAL(cuMemMap)(ptr, size, offset, handle, flags);
	if (row && result == CUDA_SUCCESS && ledger_handle_ref(handle)) {
		row->key = ptr;
		row->bytes = size;
		row->handle = handle;
		ledger_commit(row);
	} else {
		ledger_row_free(row);
	}
	return enter_leave(&scope, result);
}

/* One call may undo several mappings; each that we know starts at a multiple of the granularity. */
static void forget_mappings(CUdeviceptr address, size_t bytes)
{
	for (CUdeviceptr at = address; at < address + bytes;) {
		struct ledger_row *row = ledger_take(LEDGER_MAPPING, at);

		at += row && row->bytes ? row->bytes : HEAP_UNIT;
		if (!row)
			continue;
		serve_drop(ledger_handle_unref(row->handle));
		ledger_row_free(row);
	}
}

HOOK_EXPORT CUresult CUDAAPI cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	struct enter_scope scope;

	stats_call(HOOK_cuMemUnmap);
	if (!enter_serve(&scope, false))
		return REAL(cuMemUnmap)(ptr, size);
	if (device_of(ptr))
		return enter_leave(&scope, CUDA_ERROR_INVALID_VALUE);
	CUresult result = REAL(cuMemUnmap)(ptr, size);
	if (result == CUDA_SUCCESS)
		forget_mappings(ptr, size);
	return enter_leave(&scope, result);
}

HOOK_EXPORT CUresult CUDAAPI cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	struct enter_scope scope;

	stats_call(HOOK_cuMemSetAccess);
	if (!enter_serve(&scope, false))
		return REAL(cuMemSetAccess)(ptr, size, desc, count);
	if (device_of(ptr))
		return enter_leave(&scope, CUDA_ERROR_INVALID_VALUE);
	return enter_leave(&scope, REAL(cuMemSetAccess)(ptr, size, desc, count));
}

HOOK_EXPORT CUresult CUDAAPI cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	struct enter_scope scope;

	stats_call(HOOK_cuMemAddressFree);
	if (!enter_serve(&scope, false))
		return REAL(cuMemAddressFree)(ptr, size);
	if (device_of(ptr))
		return enter_leave(&scope, CUDA_ERROR_INVALID_VALUE);
	return enter_leave(&scope, REAL(cuMemAddressFree)(ptr, size));
}
