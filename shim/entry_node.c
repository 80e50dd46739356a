/*
 * Bodies for allocation nodes of graphs. What they allocate is the driver's: its address is fixed when the node is made,
 * its memory comes and goes with launches, so the ledger has no rows for it. It is counted, and what the driver reserves
 * for graphs is charged to the device's budget (pool.h). Captured allocations: entry_async.c.
 */
#include "shim/enter.h"
#include "shim/hook.h"
#include "shim/pool.h"
#include "shim/serve.h"

static CUresult added(CUresult result, const CUmemPoolProps *where)
{
	struct enter_scope scope;

	if (result != CUDA_SUCCESS || !enter_serve(&scope, true))
		return result;
	stats_add(STAT_graph_allocations, 1);
	struct device *device =
	    where->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? device_get(where->location.id) : NULL;
	if (device)
		pool_graphs_used(device);
	return enter_leave(&scope, result);
}

HOOK_EXPORT CUresult CUDAAPI cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph,
						    const CUgraphNode *dependencies, size_t numDependencies,
						    CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
	stats_call(HOOK_cuGraphAddMemAllocNode);
	CUresult result = REAL(cuGraphAddMemAllocNode)(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
	return result == CUDA_SUCCESS ? added(result, &nodeParams->poolProps) : result;
}

static CUresult added_any(CUresult result, const CUgraphNodeParams *params)
{
	if (result != CUDA_SUCCESS || params->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		return result;
	return added(result, &params->alloc.poolProps);
}

HOOK_EXPORT CUresult CUDAAPI cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
					    size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	stats_call(HOOK_cuGraphAddNode);
	return added_any(REAL(cuGraphAddNode)(phGraphNode, hGraph, dependencies, numDependencies, nodeParams),
			 nodeParams);
}

HOOK_EXPORT CUresult CUDAAPI cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
					       const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
					       size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	stats_call(HOOK_cuGraphAddNode_v2);
	return added_any(
	    REAL(cuGraphAddNode_v2)(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams),
	    nodeParams);
}
