/*
 * Bodies of legacy IPC of memory (ipc.h). Calls on memory and handles of the driver go to the driver. Handles of
 * events are not hooked.
 */
#include "shim/process/enter.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/entry/hook.h"
#include "shim/serve/ipc.h"
#include "shim/base/log.h"
#include "shim/serve/serve.h"

HOOK_EXPORT CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	struct enter_scope scope;
	struct ledger_row row;

	stats_call(HOOK_cuIpcGetMemHandle);
	if (!enter_serve(&scope))
		return REAL(cuIpcGetMemHandle)(pHandle, dptr);
	if (!serve_is_ours(dptr))
		return enter_leave(&scope, REAL(cuIpcGetMemHandle)(pHandle, dptr));
	struct device *device = device_of(dptr);
	if (device && pHandle && serve_find(dptr, &row))
		return enter_leave(&scope, ipc_give(atomic_load(&device->heap), &row, pHandle));
	if (!device)
		log_once("cuIpcGetMemHandle on managed or system memory is not possible: give such allocations to the "
			 "driver with a rule (use: driver)");
	return enter_leave(&scope, CUDA_ERROR_INVALID_VALUE);
}

static CUresult open_handle(CUdeviceptr *ret_address, const CUipcMemHandle *handle, unsigned flags)
{
	if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		return CUDA_ERROR_INVALID_VALUE;
	return ipc_open(handle, ret_address);
}

#define OPEN(name)                                                                                                     \
	HOOK_EXPORT CUresult CUDAAPI name(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)               \
	{                                                                                                              \
		struct enter_scope scope;                                                                              \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		if (!ipc_is_ours(&handle) || !lifecycle_enter(&scope))                                                 \
			return REAL(name)(pdptr, handle, Flags);                                                       \
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
