/*
 * Bodies that record instances of graphs as they are made, changed and destroyed (submit/graph.h). The real function
 * always gets the program's arguments; the library reads them afterwards, if the call succeeded. Recording starts
 * with the first call, also before the first allocation: an instance that was not seen when it was made can never be
 * read.
 */
#include "shim/process/process.h"
#include "shim/stats/stats.h"
#include "shim/serve/graph_pin.h"
#include "shim/serve/graph_mend.h"
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

/* Room for the second try is made from memory other than the blocks that are pinned for it. */
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

/*
 * If the program passes no place for the reason of a refusal, the most likely reason is assumed: changed parameters.
 */
HOOK_EXPORT CUresult CUDAAPI cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
					       CUgraphExecUpdateResult *updateResult_out)
{
	stats_call(HOOK_cuGraphExecUpdate);
	CUresult refused = REAL(cuGraphExecUpdate)(hGraphExec, hGraph, hErrorNode_out, updateResult_out);
	CUresult result =
	    mend_update(refused, hGraphExec, hGraph,
			updateResult_out ? *updateResult_out : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
	if (result != refused && hErrorNode_out)
		*hErrorNode_out = NULL;
	if (result != refused && updateResult_out)
		*updateResult_out = CU_GRAPH_EXEC_UPDATE_SUCCESS;
	return entry_graph_updated(result, hGraphExec, hGraph);
}

HOOK_EXPORT CUresult CUDAAPI cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
						  CUgraphExecUpdateResultInfo *resultInfo)
{
	stats_call(HOOK_cuGraphExecUpdate_v2);
	CUresult refused = REAL(cuGraphExecUpdate_v2)(hGraphExec, hGraph, resultInfo);
	CUresult result = mend_update(refused, hGraphExec, hGraph,
				      resultInfo ? resultInfo->result : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
	if (result != refused && resultInfo)
		*resultInfo = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_SUCCESS};
	return entry_graph_updated(result, hGraphExec, hGraph);
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

HOOK_EXPORT CUresult CUDAAPI cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
							    const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};

	stats_call(HOOK_cuGraphExecMemcpyNodeSetParams);
	CUresult result = mend_set(REAL(cuGraphExecMemcpyNodeSetParams)(hGraphExec, hNode, copyParams, ctx), hGraphExec,
				   hNode, copyParams, ctx);
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
	return entry_graph_set(REAL(cuGraphExecChildGraphNodeSetParams)(hGraphExec, hNode, childGraph), hGraphExec,
			       &params);
}

HOOK_EXPORT CUresult CUDAAPI cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
						      CUgraphNodeParams *nodeParams)
{
	CUresult result;

	stats_call(HOOK_cuGraphExecNodeSetParams);
	GRAPH_PINNED(result, params, nodeParams, REAL(cuGraphExecNodeSetParams)(hGraphExec, hNode, nodeParams));
	if (nodeParams && nodeParams->type == CU_GRAPH_NODE_TYPE_MEMCPY)
		result =
		    mend_set(result, hGraphExec, hNode, &nodeParams->memcpy.copyParams, nodeParams->memcpy.copyCtx);
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
