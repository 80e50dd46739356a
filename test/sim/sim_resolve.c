// SPDX-License-Identifier: Apache-2.0
/*
 * sim_resolve.c: cuGetProcAddress. It hands out nothing but exported addresses, as the real one does (docs/facts.md,
 * Reaching the driver): the newest spelling of a base name that the asked-for version knew, as _ptsz or _ptds when flag
 * 2 asks for it. Nearly all _vN spellings are as old as the look-up itself; the table holds those that came later.
 */
#include "sim_internal.h"

/* name: the base; then what is behind it, and the first CUDA version that hands it out. Newest first. */
static const struct {
	const char *name;
	struct {
		const char *tail;
		int since;
	} spelling[3];
} later[] = {
    {"cuGetProcAddress", {{"_v2", 12000}, {"", 11030}}},
    {"cuLaunchHostFunc", {{"_v2", 13020}, {"", 10000}}},
    {"cuMulticastBindAddr", {{"_v2", 13010}, {"", 12010}}},
    {"cuMulticastBindMem", {{"_v2", 13010}, {"", 12010}}},
    {"cuMemPrefetchAsync", {{"_v2", 12020}, {"", 8000}}},
    {"cuMemAdvise", {{"_v2", 12020}, {"", 8000}}},
    {"cuMemcpyBatchAsync", {{"_v2", 13000}, {"", 12080}}},
    {"cuMemcpy3DBatchAsync", {{"_v2", 13000}, {"", 12080}}},
    {"cuStreamGetCaptureInfo", {{"_v3", 12030}, {"_v2", 11030}, {"", 10010}}},
    {"cuStreamUpdateCaptureDependencies", {{"_v2", 12030}, {"", 11030}}},
    {"cuStreamGetCtx", {{"_v2", 12050}, {"", 9020}}},
    {"cuGraphInstantiate", {{"WithFlags", 12000}, {"_v2", 11000}, {"", 10000}}},
    {"cuGraphExecUpdate", {{"_v2", 12000}, {"", 10020}}},
    {"cuGraphAddKernelNode", {{"_v2", 12000}, {"", 10000}}},
    {"cuGraphKernelNodeGetParams", {{"_v2", 12000}, {"", 10000}}},
    {"cuGraphKernelNodeSetParams", {{"_v2", 12000}, {"", 10000}}},
    {"cuGraphExecKernelNodeSetParams", {{"_v2", 12000}, {"", 10010}}},
    {"cuGraphGetEdges", {{"_v2", 12030}, {"", 10000}}},
    {"cuGraphNodeGetDependencies", {{"_v2", 12030}, {"", 10000}}},
    {"cuGraphAddDependencies", {{"_v2", 12030}, {"", 10000}}},
    {"cuGraphAddNode", {{"_v3", 13040}, {"_v2", 12030}, {"", 12020}}},
    {"cuGraphNodeSetParams", {{"_v2", 13040}, {"", 12020}}},
    {"cuStreamWaitValue32", {{"_v2", 11070}, {"", 8000}}},
    {"cuStreamWaitValue64", {{"_v2", 11070}, {"", 9000}}},
    {"cuStreamWriteValue32", {{"_v2", 11070}, {"", 8000}}},
    {"cuStreamWriteValue64", {{"_v2", 11070}, {"", 9000}}},
    {"cuStreamBatchMemOp", {{"_v2", 11070}, {"", 8000}}},
    {"cuCtxCreate", {{"_v4", 12050}, {"_v3", 11040}, {"_v2", 3020}}},
    {"cuCtxGetDevice", {{"_v2", 13000}, {"", 2000}}},
    {"cuCtxSynchronize", {{"_v2", 13000}, {"", 2000}}},
    {"cuEventElapsedTime", {{"_v2", 12080}, {"", 2000}}},
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

	for (size_t i = 0; i < N_LATER; i++) {
		if (strcmp(later[i].name, name))
			continue;
		*ret_too_new = true;
		for (unsigned k = 0; k < 3 && later[i].spelling[k].tail; k++) {
			snprintf(text, sizeof(text), "%s%s", name, later[i].spelling[k].tail);
			if (later[i].spelling[k].since <= version)
				return spelled(text, own_stream);
		}
		return NULL;
	}
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
