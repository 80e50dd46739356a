// SPDX-License-Identifier: Apache-2.0
/*
 * Bodies of the entry points of graphs and of objects that keep addresses.
 *
 * Instances of graphs are recorded as they are made, changed and destroyed (submit/graph.h). The real function always
 * gets the program's arguments; the library reads them afterwards, if the call succeeded. Recording starts with the
 * first call, also before the first allocation: an instance that was not seen when it was made can never be read.
 *
 * Nodes: memory that copies and sets name is pinned, mapped, while the driver checks it (named.h). Memory of
 * allocation nodes is the driver's: its address is fixed when the node is made, and its memory comes and goes with
 * launches, so the ledger has no rows for it. It is counted, and what the driver reserves for graphs is charged to the
 * device's budget (device.h). For captured allocations see entry_alloc.c.
 */
#include "shim/base/log.h"
#include "shim/device/device.h"
#include "shim/entry/entry.h"
#include "shim/heap/arena.h"
#include "shim/process/process.h"
#include "shim/serve/make_room.h"
#include "shim/serve/managed.h"
#include "shim/serve/named.h"
#include "shim/submit/graph.h"
#include "shim/submit/submission.h"

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
 * Its copies are given again first, so that they can be changed later. Room for the second try is made from memory
 * other than the blocks that are pinned for it.
 */
#define INSTANTIATE(name, params, args, flags)                                                                         \
	static CUresult held_##name params                                                                             \
	{                                                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		OOM_RETRY_CALL_INSIDE(result, -1, 0, REAL(name) args);                                                 \
		return result;                                                                                         \
	}                                                                                                              \
	static CUresult serve_##name params                                                                            \
	{                                                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		graph_give_again(hGraph);                                                                              \
		OOM_RETRY_CALL(result, -1, REAL(name) args);                                                           \
		GRAPH_PINNED_AGAIN(result, sets, hGraph, held_##name args);                                            \
		/* If refused, instantiateParams may be invalid. */                                                    \
		return result == CUDA_SUCCESS ? entry_graph_instantiated(phGraphExec, hGraph, flags) : result;         \
	}

#define WRAP_cuGraphInstantiate(...)                INSTANTIATE(__VA_ARGS__, 0)
#define WRAP_cuGraphInstantiate_v2(...)             INSTANTIATE(__VA_ARGS__, 0)
#define WRAP_cuGraphInstantiateWithFlags(...)       INSTANTIATE(__VA_ARGS__, flags)
#define WRAP_cuGraphInstantiateWithParams(...)      INSTANTIATE(__VA_ARGS__, instantiateParams->flags)
#define WRAP_cuGraphInstantiateWithParams_ptsz(...) INSTANTIATE(__VA_ARGS__, instantiateParams->flags)

/* ---- changing ---- */

/* If the program passes no place for the reason of a refusal, the most likely reason is assumed: changed parameters. */
static CUresult updated_from(CUresult result, bool names_heap, CUgraphExec exec, CUgraph graph,
			     const CUgraphExecUpdateResult *reason)
{
	if (names_heap && result == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE &&
	    (!reason || *reason == CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED))
		graph_refused();
	int saved = errno;
	if (is_ours(result))
		graph_updated(exec, graph);
	errno = saved;
	return result;
}

static CUresult serve_cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
					CUgraphExecUpdateResult *updateResult_out)
{
	bool names_heap = graph_give_again(hGraph);

	return updated_from(REAL(cuGraphExecUpdate)(hGraphExec, hGraph, hErrorNode_out, updateResult_out), names_heap,
			    hGraphExec, hGraph, updateResult_out);
}

static CUresult serve_cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
					   CUgraphExecUpdateResultInfo *resultInfo)
{
	bool names_heap = graph_give_again(hGraph);

	return updated_from(REAL(cuGraphExecUpdate_v2)(hGraphExec, hGraph, resultInfo), names_heap, hGraphExec, hGraph,
			    resultInfo ? &resultInfo->result : NULL);
}

/* What the driver takes is read afterwards. filled: the fields that name memory. */
#define CHANGE(name, given, kind, filled)                                                                              \
	static CUresult serve_##name(CUgraphExec hGraphExec, CUgraphNode hNode, given nodeParams)                      \
	{                                                                                                              \
		CUresult result = REAL(name)(hGraphExec, hNode, nodeParams);                                           \
                                                                                                                       \
		if (result != CUDA_SUCCESS)                                                                            \
			return result;                                                                                 \
		CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_##kind, filled};                                \
		return entry_graph_set(result, hGraphExec, &params);                                                   \
	}
#define FROM(field, member) .field.member = nodeParams->member
#define ALL(...)            __VA_ARGS__
/* The first version of the parameters has no CUkernel; otherwise both versions begin with the same fields. */
CHANGE(cuGraphExecKernelNodeSetParams, const CUDA_KERNEL_NODE_PARAMS_v1 *, KERNEL,
       ALL(FROM(kernel, func), FROM(kernel, kernelParams), FROM(kernel, extra)))
CHANGE(cuGraphExecKernelNodeSetParams_v2, const CUDA_KERNEL_NODE_PARAMS *, KERNEL,
       ALL(FROM(kernel, func), FROM(kernel, kern), FROM(kernel, kernelParams), FROM(kernel, extra)))
CHANGE(cuGraphExecBatchMemOpNodeSetParams, const CUDA_BATCH_MEM_OP_NODE_PARAMS *, BATCH_MEM_OP,
       ALL(FROM(memOp, count), FROM(memOp, paramArray)))

static CUresult serve_cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph.graph = childGraph};

	graph_give_again(childGraph);
	return entry_graph_set(REAL(cuGraphExecChildGraphNodeSetParams)(hGraphExec, hNode, childGraph), hGraphExec,
			       &params);
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

static CUresult serve_cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
						     const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
	CUresult result;

	PINNED_HERE(result, copyParams, REAL(cuGraphExecMemcpyNodeSetParams)(hGraphExec, hNode, copyParams, ctx));
	if (result != CUDA_SUCCESS)
		return result;
	params.memcpy.copyParams = *copyParams;
	return entry_graph_set(result, hGraphExec, &params);
}

static CUresult serve_cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
						     const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
	CUresult result;

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

static CUresult serve_cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	CUresult result;

	if (nodeParams && nodeParams->type == CU_GRAPH_NODE_TYPE_MEMCPY)
		PINNED_HERE(result, &nodeParams->memcpy.copyParams,
			    REAL(cuGraphExecNodeSetParams)(hGraphExec, hNode, nodeParams));
	else
		GRAPH_PINNED(result, params, nodeParams, REAL(cuGraphExecNodeSetParams)(hGraphExec, hNode, nodeParams));
	return entry_graph_set(result, hGraphExec, nodeParams);
}

/* ---- ends ---- */

static CUresult serve_cuGraphExecDestroy(CUgraphExec hGraphExec)
{
	int saved = errno;

	struct graph_exec *ending = process_counts() ? graph_ending(hGraphExec) : NULL;
	errno = saved;
	CUresult result = REAL(cuGraphExecDestroy)(hGraphExec);
	saved = errno;
	graph_ended(ending, result == CUDA_SUCCESS);
	errno = saved;
	return result;
}

/* ---- nodes ---- */

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

static CUresult serve_cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
					     size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
	CUresult result = REAL(cuGraphAddMemAllocNode)(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
	return result == CUDA_SUCCESS ? entry_node_added(result, &nodeParams->poolProps) : result;
}

static CUresult added_any(CUresult result, const CUgraphNodeParams *params)
{
	if (result == CUDA_SUCCESS && params->type == CU_GRAPH_NODE_TYPE_HOST)
		managed_host_function();
	if (result != CUDA_SUCCESS || params->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		return result;
	return entry_node_added(result, &params->alloc.poolProps);
}

static CUresult serve_cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				     size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	CUresult result;

	GRAPH_PINNED(result, params, nodeParams,
		     REAL(cuGraphAddNode)(phGraphNode, hGraph, dependencies, numDependencies, nodeParams));
	return added_any(result, nodeParams);
}

#define ADD_NODE(name)                                                                                                 \
	static CUresult serve_##name(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,        \
				     const CUgraphEdgeData *dependencyData, size_t numDependencies,                    \
				     CUgraphNodeParams *nodeParams)                                                    \
	{                                                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		GRAPH_PINNED(                                                                                          \
		    result, params, nodeParams,                                                                        \
		    REAL(name)(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams));       \
		return added_any(result, nodeParams);                                                                  \
	}
ADD_NODE(cuGraphAddNode_v2)
ADD_NODE(cuGraphAddNode_v3)

/* named: what the call names, of that kind (named.h). */
#define NAMED(name, params, args, kind, named)                                                                         \
	static CUresult serve_##name params                                                                            \
	{                                                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		GRAPH_PINNED(result, kind, named, REAL(name) args);                                                    \
		return result;                                                                                         \
	}
#define WRAP_cuGraphAddMemcpyNode(...)       NAMED(__VA_ARGS__, copy, copyParams)
#define WRAP_cuGraphAddMemsetNode(...)       NAMED(__VA_ARGS__, set, memsetParams)
#define WRAP_cuGraphMemcpyNodeSetParams(...) NAMED(__VA_ARGS__, copy, nodeParams)
#define WRAP_cuGraphMemsetNodeSetParams(...) NAMED(__VA_ARGS__, set, nodeParams)
#define WRAP_cuGraphNodeSetParams(...)       NAMED(__VA_ARGS__, params, nodeParams)
#define WRAP_cuGraphNodeSetParams_v2(...)    NAMED(__VA_ARGS__, params, nodeParams)

/*
 * Addresses that are kept elsewhere: a tensor map, a texture object, a texture reference. The GPU may access the
 * memory by a launch that does not name it. Pinned in `fast`, where such an access must not meet a piece that is
 * moving; in the other modes everything is mapped at all times, and the heap notes it, as the mode may change. The
 * block stays pinned for as long as it lives, also if the map or the texture ends before it.
 */

/* Called after the driver has taken the address: no launch can use it yet. */
static void stay_in_fast(CUdeviceptr address)
{
	struct enter_scope scope;

	if (!enter_serve(&scope))
		return;
	struct heap *heap = entry_heap_of(address);
	CUdeviceptr begin = address;
	uint64_t bytes = 1;
	if (heap)
		arena_extent(heap_arena(heap), address, &begin, &bytes);
	if (heap && !heap_stay_beside(heap, begin, bytes))
		log_once("memory behind a tensor map or a texture is on its way and does not arrive; in mode fast a "
			 "kernel that uses it may stop the job");
	enter_leave(&scope, CUDA_SUCCESS);
}

/* Returns 0 for arrays, which are the driver's and never move. */
static CUdeviceptr address_of_resource(const CUDA_RESOURCE_DESC *resource)
{
	switch (resource->resType) {
	case CU_RESOURCE_TYPE_LINEAR:
		return resource->res.linear.devPtr;
	case CU_RESOURCE_TYPE_PITCH2D:
		return resource->res.pitch2D.devPtr;
	default:
		return 0;
	}
}

/*
 * Returns the address that must be pinned, or 0 if none. Libraries make tensor maps for every matrix that they
 * multiply, and pass them to their kernels by value. If the address can be read in the map, as one of its words, such
 * a launch names the memory like any other, and it need not be pinned.
 *
 * Measured (H200, driver 580): the address is one of the words.
 */
static CUdeviceptr address_in_map(const CUtensorMap *map, const void *address)
{
	for (size_t i = 0; i < sizeof(map->opaque) / sizeof(map->opaque[0]); i++)
		if (map->opaque[i] == (uintptr_t)address)
			return 0;
	return (CUdeviceptr)(uintptr_t)address;
}

#define ADDRESS_cuTensorMapEncodeIm2col     address_in_map(tensorMap, globalAddress)
#define ADDRESS_cuTensorMapEncodeIm2colWide address_in_map(tensorMap, globalAddress)
#define ADDRESS_cuTensorMapEncodeTiled      address_in_map(tensorMap, globalAddress)
#define ADDRESS_cuTensorMapReplaceAddress   address_in_map(tensorMap, globalAddress)
#define ADDRESS_cuTexObjectCreate           address_of_resource(pResDesc)
#define ADDRESS_cuTexRefSetAddress_v2       dptr
#define ADDRESS_cuTexRefSetAddress2D_v2     dptr
#define ADDRESS_cuTexRefSetAddress2D_v3     dptr

/*
 * The driver may look at the memory of a texture when it is made. That of a tensor map is named by launches, if the
 * address can be read there.
 */
#define BEFORE_cuTensorMapEncodeIm2col     0
#define BEFORE_cuTensorMapEncodeIm2colWide 0
#define BEFORE_cuTensorMapEncodeTiled      0
#define BEFORE_cuTensorMapReplaceAddress   0
#define BEFORE_cuTexObjectCreate           (pResDesc ? address_of_resource(pResDesc) : 0)
#define BEFORE_cuTexRefSetAddress_v2       dptr
#define BEFORE_cuTexRefSetAddress2D_v2     dptr
#define BEFORE_cuTexRefSetAddress2D_v3     dptr

/* Memory of an allocation with place: on-use is there from now on, whatever launches name. */
static CUresult back(CUdeviceptr address)
{
	return address && submission_is_watched() ? on_use_take(address, 0, true) : CUDA_SUCCESS;
}

/* clang-format off */
#define HOOK_PIN(name, params, args) \
	static CUresult serve_##name params \
	{ \
		CUresult result; \
\
		/* The first error of these, in order. */ \
		RESULT_CALL(FIRST args, result, result = back(BEFORE_##name) ?: REAL(name) args ?: back(ADDRESS_##name)); \
\
		if (result == CUDA_SUCCESS) \
			stay_in_fast(ADDRESS_##name); \
		return result; \
	}
#include "shim/driver/hooks.def"
/* clang-format on */

#define HOOK_WRAP HOOK_AROUND
#define HOOKS_OF  HOOKS_GRAPH
#include "shim/driver/hooks.def"
#define HOOK_BODY HOOK_SHELL
#define HOOKS_OF  HOOKS_GRAPH
#include "shim/driver/hooks.def"
