// SPDX-License-Identifier: Apache-2.0
/*
 * sim_graph_ask.c: questions about graphs and their nodes.
 */
#include "sim_context.h"
#include "sim_graph.h"
#include "sim_memory.h"

static CUresult get_nodes(CUgraph graph, CUgraphNode *ret_nodes, size_t *n, bool roots)
{
	size_t found = 0;

	if (!graph || !graph->alive || !n)
		return CUDA_ERROR_INVALID_VALUE;
	if (ret_nodes && !*n)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "an array for no nodes"); /* driver 580 */
	for (CUgraphNode node = graph->first; node; node = node->next) {
		if (!node->alive || (roots && node->n_after))
			continue;
		if (ret_nodes && found < *n)
			ret_nodes[found] = node;
		found++;
	}
	for (size_t i = found; ret_nodes && i < *n; i++)
		ret_nodes[i] = NULL;
	if (!ret_nodes || found < *n)
		*n = found;
	return CUDA_SUCCESS;
}

static CUgraphEdgeData edge_to(CUgraphNode node)
{
	CUgraphEdgeData edge = {0};

	if (node->overlaps) {
		edge.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
		edge.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
	}
	return edge;
}

/* Without room for the data of edges, those that have some cannot be told. */
static CUresult get_edges(CUgraph graph, CUgraphNode *ret_from, CUgraphNode *ret_to, CUgraphEdgeData *ret_edges,
			  size_t *n)
{
	size_t found = 0;

	if (!graph || !graph->alive || !n)
		return CUDA_ERROR_INVALID_VALUE;
	for (CUgraphNode node = graph->first; node; node = node->next) {
		for (size_t i = 0; node->alive && i < node->n_after; i++, found++) {
			if (!ret_from || !ret_to || found >= *n)
				continue;
			if (node->overlaps && !ret_edges)
				return sim_why(CUDA_ERROR_LOSSY_QUERY, "an edge is programmatic");
			if (ret_edges)
				ret_edges[found] = edge_to(node);
			ret_from[found] = node->after[i];
			ret_to[found] = node;
		}
	}
	if (!ret_from || found < *n)
		*n = found;
	return CUDA_SUCCESS;
}

static CUresult node_dependencies(CUgraphNode node, CUgraphNode *ret_nodes, size_t *n)
{
	if (!sim_is_node(node) || !n)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; ret_nodes && i < *n && i < node->n_after; i++)
		ret_nodes[i] = node->after[i];
	if (!ret_nodes || node->n_after < *n)
		*n = node->n_after;
	return CUDA_SUCCESS;
}

static bool is_of(CUgraphNode node, CUgraphNodeType type)
{
	return sim_is_node(node) && node->work->type == type;
}

/* What a node of that type was made with. */
#define NODE_ANSWER(node, type, ret_value, value)                                                                      \
	(is_of(node, CU_GRAPH_NODE_TYPE_##type) ? SIM_ANSWER(ret_value, value) : CUDA_ERROR_INVALID_VALUE)

/* kernelParams points into the node, as the driver's does: good until the node changes or goes. */
static CUresult node_get_kernel(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *ret_params)
{
	if (!is_of(node, CU_GRAPH_NODE_TYPE_KERNEL) || !ret_params)
		return CUDA_ERROR_INVALID_VALUE;
	struct sim_function *function = (struct sim_function *)node->work->kernel.function;
	free(node->params);
	node->params = calloc(function->kernel->n_params + 1, sizeof(void *));
	for (unsigned i = 0; i < function->kernel->n_params; i++)
		node->params[i] = (char *)node->work->owned + function->offsets[i];
	const struct sim_launch *l = &node->work->kernel.launch;
	*ret_params = (CUDA_KERNEL_NODE_PARAMS_v1){node->work->kernel.function,
						   l->grid[0],
						   l->grid[1],
						   l->grid[2],
						   l->block[0],
						   l->block[1],
						   l->block[2],
						   l->shared_bytes,
						   node->params,
						   NULL};
	return CUDA_SUCCESS;
}

static CUresult node_get_kernel_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *ret_params)
{
	CUDA_KERNEL_NODE_PARAMS_v1 v1;
	CUresult result = ret_params ? node_get_kernel(node, &v1) : CUDA_ERROR_INVALID_VALUE;

	if (result)
		return result;
	memset(ret_params, 0, sizeof(*ret_params));
	memcpy(ret_params, &v1, sizeof(v1));
	return CUDA_SUCCESS;
}

static CUDA_BATCH_MEM_OP_NODE_PARAMS values_of(CUgraphNode node)
{
	return (CUDA_BATCH_MEM_OP_NODE_PARAMS){
	    .ctx = sim_context(),
	    .count = (unsigned)(node->work->owned_bytes / sizeof(CUstreamBatchMemOpParams)),
	    .paramArray = node->work->owned};
}

static CUresult node_get_alloc(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *ret_params)
{
	if (!is_of(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC) || !node->work->memory->block)
		return CUDA_ERROR_INVALID_VALUE;
	return SIM_ANSWER(ret_params, (CUDA_MEM_ALLOC_NODE_PARAMS){.bytesize = node->work->memory->bytes,
								   .dptr = node->work->memory->block->range.start});
}

static CUresult node_get_free(CUgraphNode node, CUdeviceptr *ret_address)
{
	if (!is_of(node, CU_GRAPH_NODE_TYPE_MEM_FREE) || !node->work->memory->block)
		return CUDA_ERROR_INVALID_VALUE;
	return SIM_ANSWER(ret_address, node->work->memory->block->range.start);
}

/* Of the attributes only the one that makes a node's parameters worthless; the others are 0 and stay so. */
static CUresult node_attribute(CUgraphNode node, CUkernelNodeAttrID which, CUkernelNodeAttrValue *ret_value,
			       const CUkernelNodeAttrValue *value)
{
	bool updatable = which == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;

	if (!is_of(node, CU_GRAPH_NODE_TYPE_KERNEL) || !(ret_value || value))
		return CUDA_ERROR_INVALID_VALUE;
	if (value && updatable && !value->deviceUpdatableKernelNode.deviceUpdatable)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "it cannot be taken back");
	if (value && updatable)
		node->updatable = true;
	if (!ret_value)
		return CUDA_SUCCESS;
	memset(ret_value, 0, sizeof(*ret_value));
	if (updatable)
		ret_value->deviceUpdatableKernelNode.deviceUpdatable = node->updatable;
	return CUDA_SUCCESS;
}

SPELL_FREE(cuGraphKernelNodeGetParams, (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *params),
	   node_get_kernel(node, params))
SPELL_FREE(cuGraphKernelNodeGetParams_v2, (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params),
	   node_get_kernel_v2(node, params))
SPELL_FREE(cuGraphKernelNodeGetAttribute,
	   (CUgraphNode node, CUkernelNodeAttrID which, CUkernelNodeAttrValue *ret_value),
	   node_attribute(node, which, ret_value, NULL))
SPELL_FREE(cuGraphKernelNodeSetAttribute,
	   (CUgraphNode node, CUkernelNodeAttrID which, const CUkernelNodeAttrValue *value),
	   node_attribute(node, which, NULL, value))
SPELL_FREE(cuGraphMemcpyNodeGetParams, (CUgraphNode node, CUDA_MEMCPY3D *copy),
	   NODE_ANSWER(node, MEMCPY, copy, node->work->given))
SPELL_FREE(cuGraphMemsetNodeGetParams, (CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *set),
	   NODE_ANSWER(node, MEMSET, set, node->work->set))
SPELL_FREE(cuGraphBatchMemOpNodeGetParams, (CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *ops),
	   NODE_ANSWER(node, BATCH_MEM_OP, ops, values_of(node)))
SPELL_FREE(cuGraphChildGraphNodeGetGraph, (CUgraphNode node, CUgraph *graph),
	   NODE_ANSWER(node, GRAPH, graph, node->inside[0]))
SPELL_FREE(cuGraphMemAllocNodeGetParams, (CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params),
	   node_get_alloc(node, params))
SPELL_FREE(cuGraphMemFreeNodeGetParams, (CUgraphNode node, CUdeviceptr *address), node_get_free(node, address))
SPELL_FREE(cuGraphGetNodes, (CUgraph graph, CUgraphNode *nodes, size_t *n), get_nodes(graph, nodes, n, false))
SPELL_FREE(cuGraphGetRootNodes, (CUgraph graph, CUgraphNode *nodes, size_t *n), get_nodes(graph, nodes, n, true))
SPELL_FREE(cuGraphGetEdges, (CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *n),
	   get_edges(graph, from, to, NULL, n))
SPELL_FREE(cuGraphGetEdges_v2, (CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges, size_t *n),
	   get_edges(graph, from, to, edges, n))
SPELL_FREE(cuGraphNodeGetDependencies, (CUgraphNode node, CUgraphNode *nodes, size_t *n),
	   node_dependencies(node, nodes, n))
SPELL_FREE(cuGraphNodeGetDependencies_v2, (CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *n),
	   ((void)edges, node_dependencies(node, nodes, n)))
SPELL_FREE(cuGraphNodeGetType, (CUgraphNode node, CUgraphNodeType *type),
	   sim_is_node(node) ? SIM_ANSWER(type, node->work->type) : CUDA_ERROR_INVALID_VALUE)
