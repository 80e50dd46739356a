/*
 * Bodies that record instances of graphs as they are made, changed and destroyed (submit/graph.h). The real function
 * always gets the program's arguments; the library reads them afterwards, if the call succeeded. Recording starts
 * with the first call, also before the first allocation: an instance that was not seen when it was made can never be
 * read.
 */
#include "shim/process/process.h"
#include "shim/stats/stats.h"
#include "shim/serve/graph_pin.h"
#include "shim/entry/hook.h"
#include "shim/serve/oom_retry.h"
#include "shim/submit/graph.h"

#include <errno.h>

/* Returns true if the call succeeded and the library records. */
static bool is_ours(CUresult result)
{
	return result == CUDA_SUCCESS && process_counts();
}

static CUresult entry_graph_instantiated(CUgraphExec *exec, CUgraph graph, cuuint64_t flags)
{
	int saved = errno;

	if (process_counts())
		graph_instantiated(*exec, graph, flags);
	errno = saved;
	return CUDA_SUCCESS;
}

static CUresult entry_graph_updated(CUresult result, CUgraphExec exec, CUgraph graph)
{
	int saved = errno;

	if (is_ours(result))
		graph_updated(exec, graph);
	errno = saved;
	return result;
}

static CUresult entry_graph_set(CUresult result, CUgraphExec exec, const CUgraphNodeParams *params)
{
	int saved = errno;

	if (is_ours(result))
		graph_set(exec, params);
	errno = saved;
	return result;
}

/* ---- making ---- */

/*
 * Its copies are given again first, so that they can be changed later. Room for the second try is made from memory other than the
 * blocks that are pinned for it.
 */
#define INSTANTIATE(name, flags, params, args)                                                                         \
	static CUresult held_##name params                                                                             \
	{                                                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		OOM_RETRY_CALL_INSIDE(result, -1, REAL(name) args);                                                    \
		return result;                                                                                         \
	}                                                                                                              \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		graph_give_again(hGraph);                                                                              \
		OOM_RETRY_CALL(result, -1, REAL(name) args);                                                           \
		GRAPH_PINNED_AGAIN(result, sets, hGraph, held_##name args);                                            \
		/* If refused, instantiateParams may be invalid. */                                                    \
		return result == CUDA_SUCCESS ? entry_graph_instantiated(phGraphExec, hGraph, flags) : result;         \
	}

INSTANTIATE(cuGraphInstantiate, 0,
	    (CUgraphExec * phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize),
	    (phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize))
INSTANTIATE(cuGraphInstantiate_v2, 0,
	    (CUgraphExec * phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize),
	    (phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize))
INSTANTIATE(cuGraphInstantiateWithFlags, flags, (CUgraphExec * phGraphExec, CUgraph hGraph, unsigned long long flags),
	    (phGraphExec, hGraph, flags))
INSTANTIATE(cuGraphInstantiateWithParams, instantiateParams->flags,
	    (CUgraphExec * phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams),
	    (phGraphExec, hGraph, instantiateParams))
INSTANTIATE(cuGraphInstantiateWithParams_ptsz, instantiateParams->flags,
	    (CUgraphExec * phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams),
	    (phGraphExec, hGraph, instantiateParams))

/* ---- changing ---- */

/* If the program passes no place for the reason of a refusal, the most likely reason is assumed: changed parameters. */
static CUresult updated_from(CUresult result, bool names_heap, CUgraphExec exec, CUgraph graph,
			     const CUgraphExecUpdateResult *reason)
{
	if (names_heap && result == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE &&
	    (!reason || *reason == CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED))
		graph_refused();
	return entry_graph_updated(result, exec, graph);
}

HOOK_EXPORT CUresult CUDAAPI cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
					       CUgraphExecUpdateResult *updateResult_out)
{
	stats_call(HOOK_cuGraphExecUpdate);
	bool names_heap = graph_give_again(hGraph);
	return updated_from(REAL(cuGraphExecUpdate)(hGraphExec, hGraph, hErrorNode_out, updateResult_out), names_heap,
			    hGraphExec, hGraph, updateResult_out);
}

HOOK_EXPORT CUresult CUDAAPI cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
						  CUgraphExecUpdateResultInfo *resultInfo)
{
	stats_call(HOOK_cuGraphExecUpdate_v2);
	bool names_heap = graph_give_again(hGraph);
	return updated_from(REAL(cuGraphExecUpdate_v2)(hGraphExec, hGraph, resultInfo), names_heap, hGraphExec, hGraph,
			    resultInfo ? &resultInfo->result : NULL);
}

/* The first version of the parameters has no CUkernel; otherwise both versions begin with the same fields. */
HOOK_EXPORT CUresult CUDAAPI cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
							    const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};

	stats_call(HOOK_cuGraphExecKernelNodeSetParams);
	CUresult result = REAL(cuGraphExecKernelNodeSetParams)(hGraphExec, hNode, nodeParams);
	if (result != CUDA_SUCCESS)
		return result;
	params.kernel.func = nodeParams->func;
	params.kernel.kernelParams = nodeParams->kernelParams;
	params.kernel.extra = nodeParams->extra;
	return entry_graph_set(result, hGraphExec, &params);
}

HOOK_EXPORT CUresult CUDAAPI cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
							       const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};

	stats_call(HOOK_cuGraphExecKernelNodeSetParams_v2);
	CUresult result = REAL(cuGraphExecKernelNodeSetParams_v2)(hGraphExec, hNode, nodeParams);
	if (result != CUDA_SUCCESS)
		return result;
	params.kernel.func = nodeParams->func;
	params.kernel.kern = nodeParams->kern;
	params.kernel.kernelParams = nodeParams->kernelParams;
	params.kernel.extra = nodeParams->extra;
	return entry_graph_set(result, hGraphExec, &params);
}

/* The copy has its operands on the device when it is given them. */
#define PINNED_HERE(result, copy, call)                                                                                \
	do {                                                                                                           \
		struct graph_pin hold_;                                                                                \
		bool held_ = graph_pin_here(&hold_, copy);                                                             \
                                                                                                                       \
		(result) = (call);                                                                                     \
		if (held_)                                                                                             \
			graph_pin_end(&hold_);                                                                         \
		if (held_ && (result) == CUDA_ERROR_INVALID_VALUE)                                                     \
			graph_refused();                                                                               \
	} while (0)

HOOK_EXPORT CUresult CUDAAPI cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
							    const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};

	stats_call(HOOK_cuGraphExecMemcpyNodeSetParams);
	CUresult result;

	PINNED_HERE(result, copyParams, REAL(cuGraphExecMemcpyNodeSetParams)(hGraphExec, hNode, copyParams, ctx));
	if (result != CUDA_SUCCESS)
		return result;
	params.memcpy.copyParams = *copyParams;
	return entry_graph_set(result, hGraphExec, &params);
}

HOOK_EXPORT CUresult CUDAAPI cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
							    const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
	CUresult result;

	stats_call(HOOK_cuGraphExecMemsetNodeSetParams);
	GRAPH_PINNED(result, set, memsetParams,
		     REAL(cuGraphExecMemsetNodeSetParams)(hGraphExec, hNode, memsetParams, ctx));
	if (result != CUDA_SUCCESS)
		return result;
	params.memset.dst = memsetParams->dst;
	params.memset.pitch = memsetParams->pitch;
	params.memset.elementSize = memsetParams->elementSize;
	params.memset.width = memsetParams->width;
	params.memset.height = memsetParams->height;
	return entry_graph_set(result, hGraphExec, &params);
}

HOOK_EXPORT CUresult CUDAAPI cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
								const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP};

	stats_call(HOOK_cuGraphExecBatchMemOpNodeSetParams);
	CUresult result = REAL(cuGraphExecBatchMemOpNodeSetParams)(hGraphExec, hNode, nodeParams);
	if (result != CUDA_SUCCESS)
		return result;
	params.memOp.count = nodeParams->count;
	params.memOp.paramArray = nodeParams->paramArray;
	return entry_graph_set(result, hGraphExec, &params);
}

HOOK_EXPORT CUresult CUDAAPI cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
								CUgraph childGraph)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH};

	stats_call(HOOK_cuGraphExecChildGraphNodeSetParams);
	params.graph.graph = childGraph;
	graph_give_again(childGraph);
	return entry_graph_set(REAL(cuGraphExecChildGraphNodeSetParams)(hGraphExec, hNode, childGraph), hGraphExec,
			       &params);
}

HOOK_EXPORT CUresult CUDAAPI cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
						      CUgraphNodeParams *nodeParams)
{
	CUresult result;

	stats_call(HOOK_cuGraphExecNodeSetParams);
	if (nodeParams && nodeParams->type == CU_GRAPH_NODE_TYPE_MEMCPY)
		PINNED_HERE(result, &nodeParams->memcpy.copyParams,
			    REAL(cuGraphExecNodeSetParams)(hGraphExec, hNode, nodeParams));
	else
		GRAPH_PINNED(result, params, nodeParams, REAL(cuGraphExecNodeSetParams)(hGraphExec, hNode, nodeParams));
	return entry_graph_set(result, hGraphExec, nodeParams);
}

/* ---- ends ---- */

HOOK_EXPORT CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec hGraphExec)
{
	int saved = errno;

	stats_call(HOOK_cuGraphExecDestroy);
	struct graph_exec *ending = process_counts() ? graph_ending(hGraphExec) : NULL;
	errno = saved;
	CUresult result = REAL(cuGraphExecDestroy)(hGraphExec);
	saved = errno;
	graph_ended(ending, result == CUDA_SUCCESS);
	errno = saved;
	return result;
}
