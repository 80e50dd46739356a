/*
 * Bodies of the entry points that open the memory of one GPU to another. The driver is asked first: a refusal (no
 * link, too many peers, enabled already) is returned unchanged. Access that it grants holds for the driver's memory
 * at once, and for heap memory when peer.c has opened the heap, before the call returns. Peer access is recorded also
 * before the first allocation, because programs enable their peers before they allocate.
 */
#include "shim/process/process.h"
#include "shim/stats/stats.h"
#include "shim/entry/hook.h"
#include "shim/device/peer.h"

#include <errno.h>

/* Returns false for a call from inside the library, and where everything is passed through. */
static bool entry_peer_begin(int *ret_errno)
{
	if (enter_depth || !process_counts())
		return false;
	*ret_errno = errno;
	enter_depth = 1;
	return true;
}

static void entry_peer_end(int saved_errno)
{
	enter_depth = 0;
	errno = saved_errno;
}

HOOK_EXPORT CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
	int saved;

	stats_call(HOOK_cuCtxEnablePeerAccess);
	CUresult result = REAL(cuCtxEnablePeerAccess)(peerContext, Flags);
	if (result != CUDA_SUCCESS || !entry_peer_begin(&saved))
		return result;
	result = peer_enabled(peerContext);
	if (result != CUDA_SUCCESS)
		REAL(cuCtxDisablePeerAccess)(peerContext);
	entry_peer_end(saved);
	return result;
}

HOOK_EXPORT CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peerContext)
{
	int saved;

	stats_call(HOOK_cuCtxDisablePeerAccess);
	CUresult result = REAL(cuCtxDisablePeerAccess)(peerContext);
	if (result != CUDA_SUCCESS || !entry_peer_begin(&saved))
		return result;
	peer_disabled(peerContext);
	entry_peer_end(saved);
	return result;
}
