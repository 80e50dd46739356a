// SPDX-License-Identifier: Apache-2.0
/*
 * sim_resolve.c: cuGetProcAddress. It hands out nothing but exported addresses, as the real one does (docs/facts.md,
 * Reaching the driver): the newest spelling of a base name that the asked-for version knew, as _ptsz or _ptds when flag
 * 2 asks for it. Nearly all _vN spellings are as old as the look-up itself; the table holds those that came later.
 */
#include "sim_internal.h"

/* name: the base; spelling: which; since: the first CUDA version that hands it out. Newest first. */
static const struct {
	const char *name, *spelling;
	int since;
} later[] = {
    {"cuGetProcAddress", "cuGetProcAddress_v2", 12000},
    {"cuGetProcAddress", "cuGetProcAddress", 11030},
    {"cuLaunchHostFunc", "cuLaunchHostFunc_v2", 13020},
    {"cuLaunchHostFunc", "cuLaunchHostFunc", 10000},
    {"cuMulticastBindAddr", "cuMulticastBindAddr_v2", 13010},
    {"cuMulticastBindAddr", "cuMulticastBindAddr", 12010},
    {"cuMulticastBindMem", "cuMulticastBindMem_v2", 13010},
    {"cuMulticastBindMem", "cuMulticastBindMem", 12010},
    {"cuMemPrefetchAsync", "cuMemPrefetchAsync_v2", 12020},
    {"cuMemPrefetchAsync", "cuMemPrefetchAsync", 8000},
    {"cuMemAdvise", "cuMemAdvise_v2", 12020},
    {"cuMemAdvise", "cuMemAdvise", 8000},
    {"cuMemcpyBatchAsync", "cuMemcpyBatchAsync_v2", 13000},
    {"cuMemcpyBatchAsync", "cuMemcpyBatchAsync", 12080},
    {"cuMemcpy3DBatchAsync", "cuMemcpy3DBatchAsync_v2", 13000},
    {"cuMemcpy3DBatchAsync", "cuMemcpy3DBatchAsync", 12080},
    {"cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v3", 12030},
    {"cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v2", 11030},
    {"cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo", 10010},
    {"cuStreamUpdateCaptureDependencies", "cuStreamUpdateCaptureDependencies_v2", 12030},
    {"cuStreamUpdateCaptureDependencies", "cuStreamUpdateCaptureDependencies", 11030},
    {"cuStreamGetCtx", "cuStreamGetCtx_v2", 12050},
    {"cuStreamGetCtx", "cuStreamGetCtx", 9020},
    {"cuGraphInstantiate", "cuGraphInstantiateWithFlags", 12000},
    {"cuGraphInstantiate", "cuGraphInstantiate_v2", 11000},
    {"cuGraphInstantiate", "cuGraphInstantiate", 10000},
    {"cuGraphExecUpdate", "cuGraphExecUpdate_v2", 12000},
    {"cuGraphExecUpdate", "cuGraphExecUpdate", 10020},
    {"cuGraphAddKernelNode", "cuGraphAddKernelNode_v2", 12000},
    {"cuGraphAddKernelNode", "cuGraphAddKernelNode", 10000},
    {"cuGraphKernelNodeGetParams", "cuGraphKernelNodeGetParams_v2", 12000},
    {"cuGraphKernelNodeGetParams", "cuGraphKernelNodeGetParams", 10000},
    {"cuGraphKernelNodeSetParams", "cuGraphKernelNodeSetParams_v2", 12000},
    {"cuGraphKernelNodeSetParams", "cuGraphKernelNodeSetParams", 10000},
    {"cuGraphExecKernelNodeSetParams", "cuGraphExecKernelNodeSetParams_v2", 12000},
    {"cuGraphExecKernelNodeSetParams", "cuGraphExecKernelNodeSetParams", 10010},
    {"cuGraphGetEdges", "cuGraphGetEdges_v2", 12030},
    {"cuGraphGetEdges", "cuGraphGetEdges", 10000},
    {"cuGraphNodeGetDependencies", "cuGraphNodeGetDependencies_v2", 12030},
    {"cuGraphNodeGetDependencies", "cuGraphNodeGetDependencies", 10000},
    {"cuGraphAddDependencies", "cuGraphAddDependencies_v2", 12030},
    {"cuGraphAddDependencies", "cuGraphAddDependencies", 10000},
    {"cuGraphAddNode", "cuGraphAddNode_v3", 13040},
    {"cuGraphAddNode", "cuGraphAddNode_v2", 12030},
    {"cuGraphAddNode", "cuGraphAddNode", 12020},
    {"cuGraphNodeSetParams", "cuGraphNodeSetParams_v2", 13040},
    {"cuGraphNodeSetParams", "cuGraphNodeSetParams", 12020},
    {"cuStreamWaitValue32", "cuStreamWaitValue32_v2", 11070},
    {"cuStreamWaitValue32", "cuStreamWaitValue32", 8000},
    {"cuStreamWaitValue64", "cuStreamWaitValue64_v2", 11070},
    {"cuStreamWaitValue64", "cuStreamWaitValue64", 9000},
    {"cuStreamWriteValue32", "cuStreamWriteValue32_v2", 11070},
    {"cuStreamWriteValue32", "cuStreamWriteValue32", 8000},
    {"cuStreamWriteValue64", "cuStreamWriteValue64_v2", 11070},
    {"cuStreamWriteValue64", "cuStreamWriteValue64", 9000},
    {"cuStreamBatchMemOp", "cuStreamBatchMemOp_v2", 11070},
    {"cuStreamBatchMemOp", "cuStreamBatchMemOp", 8000},
    {"cuCtxCreate", "cuCtxCreate_v4", 12050},
    {"cuCtxCreate", "cuCtxCreate_v3", 11040},
    {"cuCtxCreate", "cuCtxCreate_v2", 3020},
    {"cuCtxGetDevice", "cuCtxGetDevice_v2", 13000},
    {"cuCtxGetDevice", "cuCtxGetDevice", 2000},
    {"cuCtxSynchronize", "cuCtxSynchronize_v2", 13000},
    {"cuCtxSynchronize", "cuCtxSynchronize", 2000},
    {"cuEventElapsedTime", "cuEventElapsedTime_v2", 12080},
    {"cuEventElapsedTime", "cuEventElapsedTime", 2000},
};
#define N_LATER (sizeof(later) / sizeof(later[0]))

static void *spelled(const char *name, bool own_stream)
{
	static const char *const own[] = {"_ptsz", "_ptds"};
	char text[128];
	void *address;

	for (int i = 0; own_stream && i < 2; i++) {
		snprintf(text, sizeof(text), "%s%s", name, own[i]);
		address = sim_export(text);
		if (address)
			return address;
	}
	return sim_export(name);
}

static void *find(const char *name, int version, bool own_stream, bool *ret_too_new)
{
	char text[128];
	void *address;

	*ret_too_new = false;
	for (size_t i = 0; i < N_LATER; i++) {
		if (strcmp(later[i].name, name))
			continue;
		*ret_too_new = true;
		if (later[i].since <= version)
			return spelled(later[i].spelling, own_stream);
	}
	if (*ret_too_new)
		return NULL;
	for (int v = 4; v >= 2; v--) {
		snprintf(text, sizeof(text), "%s_v%d", name, v);
		address = spelled(text, own_stream);
		if (address)
			return address;
	}
	return spelled(name, own_stream);
}

static CUresult look_up(const char *name, void **ret_address, int version, cuuint64_t flags,
			CUdriverProcAddressQueryResult *ret_status)
{
	bool too_new = false;
	void *address = NULL;

	if (!name || !ret_address || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	if (!strncmp(name, "cu", 2))
		address = find(name, version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &too_new);
	*ret_address = address;
	if (ret_status)
		*ret_status = address   ? CU_GET_PROC_ADDRESS_SUCCESS
			      : too_new ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
					: CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return address ? CUDA_SUCCESS : sim_why(CUDA_ERROR_NOT_FOUND, "no \"%s\" for version %d", name, version);
}

static CUresult no_table(const void **ret_table)
{
	if (ret_table)
		*ret_table = NULL;
	return CUDA_ERROR_NOT_FOUND;
}

SPELL_RAW(cuGetProcAddress, (const char *name, void **address, int version, cuuint64_t flags),
	  look_up(name, address, version, flags, NULL))
SPELL_RAW(cuGetProcAddress_v2,
	  (const char *name, void **address, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status),
	  look_up(name, address, version, flags, status))
SPELL_RAW(cuGetExportTable, (const void **table, const CUuuid *id), ((void)id, no_table(table)))
