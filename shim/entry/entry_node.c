/*
 * Bodies of the entry points that add and change nodes of graphs. Memory that copies and sets name is pinned, mapped,
 * while the driver checks it (graph_pin.h). Memory of allocation nodes is the driver's: its address is fixed when the
 * node is made, and its memory comes and goes with launches, so the ledger has no rows for it. It is counted, and
 * what the driver reserves for graphs is charged to the device's budget (pool.h). For captured allocations see
 * entry_async.c.
 */
#include "shim/process/enter.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/serve/graph_pin.h"
#include "shim/entry/hook.h"
#include "shim/device/pool.h"
#include "shim/serve/serve.h"

static CUresult entry_node_added(CUresult result, const CUmemPoolProps *where)
{
	struct enter_scope scope;

	if (result != CUDA_SUCCESS || !lifecycle_enter(&scope))
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
	return result == CUDA_SUCCESS ? entry_node_added(result, &nodeParams->poolProps) : result;
}

static CUresult added_any(CUresult result, const CUgraphNodeParams *params)
{
	if (result != CUDA_SUCCESS || params->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		return result;
	return entry_node_added(result, &params->alloc.poolProps);
}

HOOK_EXPORT CUresult CUDAAPI cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
					    size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	CUresult result;

	stats_call(HOOK_cuGraphAddNode);
	GRAPH_PINNED(result, params, nodeParams,
		     REAL(cuGraphAddNode)(phGraphNode, hGraph, dependencies, numDependencies, nodeParams));
	return added_any(result, nodeParams);
}

#define ADD_NODE(name)                                                                                                 \
	HOOK_EXPORT CUresult CUDAAPI name(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,   \
					  const CUgraphEdgeData *dependencyData, size_t numDependencies,               \
					  CUgraphNodeParams *nodeParams)                                               \
	{                                                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		GRAPH_PINNED(                                                                                          \
		    result, params, nodeParams,                                                                        \
		    REAL(name)(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams));       \
		return added_any(result, nodeParams);                                                                  \
	}
ADD_NODE(cuGraphAddNode_v2)
ADD_NODE(cuGraphAddNode_v3)

HOOK_EXPORT CUresult CUDAAPI cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
						  const CUgraphNode *dependencies, size_t numDependencies,
						  const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	CUresult result;

	stats_call(HOOK_cuGraphAddMemcpyNode);
	GRAPH_PINNED(result, copy, copyParams,
		     REAL(cuGraphAddMemcpyNode)(phGraphNode, hGraph, dependencies, numDependencies, copyParams, ctx));
	return result;
}

HOOK_EXPORT CUresult CUDAAPI cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph,
						  const CUgraphNode *dependencies, size_t numDependencies,
						  const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
	CUresult result;

	stats_call(HOOK_cuGraphAddMemsetNode);
	GRAPH_PINNED(result, set, memsetParams,
		     REAL(cuGraphAddMemsetNode)(phGraphNode, hGraph, dependencies, numDependencies, memsetParams, ctx));
	return result;
}

HOOK_EXPORT CUresult CUDAAPI cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams)
{
	CUresult result;

	stats_call(HOOK_cuGraphMemcpyNodeSetParams);
	GRAPH_PINNED(result, copy, nodeParams, REAL(cuGraphMemcpyNodeSetParams)(hNode, nodeParams));
	return result;
}

HOOK_EXPORT CUresult CUDAAPI cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
	CUresult result;

	stats_call(HOOK_cuGraphMemsetNodeSetParams);
	GRAPH_PINNED(result, set, nodeParams, REAL(cuGraphMemsetNodeSetParams)(hNode, nodeParams));
	return result;
}

#define SET_PARAMS(name)                                                                                               \
	HOOK_EXPORT CUresult CUDAAPI name(CUgraphNode hNode, CUgraphNodeParams *nodeParams)                            \
	{                                                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		GRAPH_PINNED(result, params, nodeParams, REAL(name)(hNode, nodeParams));                               \
		return result;                                                                                         \
	}
SET_PARAMS(cuGraphNodeSetParams)
SET_PARAMS(cuGraphNodeSetParams_v2)
