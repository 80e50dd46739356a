/* Bodies of legacy IPC of memory (ipc.h). Calls on memory and handles of the driver go to the driver. */
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
	return enter_leave(&scope, get_handle(pHandle, dptr));
}

#define OPEN(name)                                                                                                     \
	HOOK_EXPORT CUresult CUDAAPI name(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)               \
	{                                                                                                              \
		struct enter_scope scope;                                                                              \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		if (!ipc_is_ours(&handle) || !lifecycle_enter(&scope))                                                 \
			return REAL(name)(pdptr, handle, Flags);                                                       \
		return enter_leave(&scope, Flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ? ipc_open(&handle, pdptr)      \
										       : CUDA_ERROR_INVALID_VALUE);    \
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
