/*
 * Bodies of legacy IPC of memory (ipc.h) and of events, and of what is imported. Calls on memory and handles of the
 * driver go to the driver. Who opens a handle is of one job with who has given it out (job_links.h).
 */
#include "shim/accounting/job_links.h"
#include "shim/process/enter.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/entry/hook.h"
#include "shim/serve/ipc.h"
#include "shim/base/log.h"
#include "shim/serve/serve.h"

static CUresult get_handle(CUipcMemHandle *ret_handle, CUdeviceptr address)
{
	struct ledger_row row;

	if (!serve_is_ours(address))
		return REAL(cuIpcGetMemHandle)(ret_handle, address);
	struct device *device = device_of(address);
	if (device && ret_handle && serve_find(address, &row))
		return ipc_give(atomic_load(&device->heap), &row, ret_handle);
	if (!device)
		log_once("cuIpcGetMemHandle on managed or system memory is not possible: give such allocations to the "
			 "driver with a rule (use: driver)");
	return CUDA_ERROR_INVALID_VALUE;
}

HOOK_EXPORT CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	struct enter_scope scope;

	stats_call(HOOK_cuIpcGetMemHandle);
	if (!enter_serve(&scope))
		return REAL(cuIpcGetMemHandle)(pHandle, dptr);
	CUresult result = get_handle(pHandle, dptr);
	if (result == CUDA_SUCCESS)
		job_links_gave(pHandle, sizeof(*pHandle));
	return enter_leave(&scope, result);
}

HOOK_EXPORT CUresult CUDAAPI cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event)
{
	stats_call(HOOK_cuIpcGetEventHandle);
	CUresult result = REAL(cuIpcGetEventHandle)(pHandle, event);
	if (result == CUDA_SUCCESS)
		job_links_gave(pHandle, sizeof(*pHandle));
	return result;
}

HOOK_EXPORT CUresult CUDAAPI cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
	stats_call(HOOK_cuIpcOpenEventHandle);
	CUresult result = REAL(cuIpcOpenEventHandle)(phEvent, handle);
	if (result == CUDA_SUCCESS)
		job_links_took(&handle, sizeof(handle));
	return result;
}

static CUresult open_handle(CUdeviceptr *ret_address, const CUipcMemHandle *handle, unsigned flags)
{
	if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = ipc_open(handle, ret_address);
	if (result == CUDA_SUCCESS)
		job_links_took(handle, sizeof(*handle));
	return result;
}

/* A handle of the driver's. */
static CUresult opened(CUresult result, const CUipcMemHandle *handle)
{
	if (result == CUDA_SUCCESS)
		job_links_took(handle, sizeof(*handle));
	return result;
}

#define OPEN(name)                                                                                                     \
	HOOK_EXPORT CUresult CUDAAPI name(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)               \
	{                                                                                                              \
		struct enter_scope scope;                                                                              \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		if (!ipc_is_ours(&handle) || !lifecycle_enter(&scope))                                                 \
			return opened(REAL(name)(pdptr, handle, Flags), &handle);                                      \
		return enter_leave(&scope, open_handle(pdptr, &handle, Flags));                                        \
	}
OPEN(cuIpcOpenMemHandle)
OPEN(cuIpcOpenMemHandle_v2)

HOOK_EXPORT CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	struct enter_scope scope;
	CUresult result;

	stats_call(HOOK_cuIpcCloseMemHandle);
	if (!enter_serve(&scope))
		return REAL(cuIpcCloseMemHandle)(dptr);
	if (!ipc_close(dptr, &result))
		result = REAL(cuIpcCloseMemHandle)(dptr);
	return enter_leave(&scope, result);
}

/* ---- what is exported by the driver (for memory see entry_vmm.c) ---- */

HOOK_EXPORT CUresult CUDAAPI cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool,
							      CUmemAllocationHandleType handleType,
							      unsigned long long flags)
{
	struct enter_scope scope;

	stats_call(HOOK_cuMemPoolExportToShareableHandle);
	if (!enter_serve(&scope))
		return REAL(cuMemPoolExportToShareableHandle)(handle_out, pool, handleType, flags);
	CUresult result = REAL(cuMemPoolExportToShareableHandle)(handle_out, pool, handleType, flags);
	if (result == CUDA_SUCCESS)
		job_links_exported(handle_out, handleType);
	return enter_leave(&scope, result);
}

/* It may be the first that the process asks for. */
HOOK_EXPORT CUresult CUDAAPI cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
								CUmemAllocationHandleType handleType,
								unsigned long long flags)
{
	stats_call(HOOK_cuMemPoolImportFromShareableHandle);
	CUresult result = REAL(cuMemPoolImportFromShareableHandle)(pool_out, handle, handleType, flags);
	if (result == CUDA_SUCCESS)
		job_links_imported(handle, handleType);
	return result;
}

HOOK_EXPORT CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
							    CUmemAllocationHandleType shHandleType)
{
	stats_call(HOOK_cuMemImportFromShareableHandle);
	CUresult result = REAL(cuMemImportFromShareableHandle)(handle, osHandle, shHandleType);
	if (result == CUDA_SUCCESS)
		job_links_imported(osHandle, shHandleType);
	return result;
}
