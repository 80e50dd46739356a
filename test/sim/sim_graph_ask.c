// SPDX-License-Identifier: Apache-2.0
/*
 * sim_graph_ask.c: questions about graphs and their nodes.
 */
#include "sim_context.h"
#include "sim_graph.h"
#include "sim_memory.h"
#include "sim_internal.h"
#include "sim_work.h"

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

static CUresult node_type(CUgraphNode node, CUgraphNodeType *ret_type)
{
	if (!sim_is_node(node) || !ret_type)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_type = node->work->type;
	return CUDA_SUCCESS;
}

/* kernelParams points into the node, as the driver's does: good until the node changes or goes. */
static CUresult node_get_kernel(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *ret_params)
{
	if (!sim_is_node(node) || node->work->type != CU_GRAPH_NODE_TYPE_KERNEL || !ret_params)
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

static CUresult node_get_copy(CUgraphNode node, CUDA_MEMCPY3D *ret_copy)
{
	if (!sim_is_node(node) || node->work->type != CU_GRAPH_NODE_TYPE_MEMCPY || !ret_copy)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_copy = node->work->given;
	return CUDA_SUCCESS;
}

static CUresult node_get_set(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *ret_set)
{
	if (!sim_is_node(node) || node->work->type != CU_GRAPH_NODE_TYPE_MEMSET || !ret_set)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_set = node->work->set;
	return CUDA_SUCCESS;
}

static CUresult node_get_values(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *ret_ops)
{
	if (!sim_is_node(node) || node->work->type != CU_GRAPH_NODE_TYPE_BATCH_MEM_OP || !ret_ops)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_ops = (CUDA_BATCH_MEM_OP_NODE_PARAMS){
	    .ctx = sim_context(),
	    .count = (unsigned)(node->work->owned_bytes / sizeof(CUstreamBatchMemOpParams)),
	    .paramArray = node->work->owned};
	return CUDA_SUCCESS;
}

static CUresult node_get_child(CUgraphNode node, CUgraph *ret_graph)
{
	if (!sim_is_node(node) || node->work->type != CU_GRAPH_NODE_TYPE_GRAPH || !ret_graph)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_graph = node->inside[0];
	return CUDA_SUCCESS;
}

static CUresult node_get_alloc(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *ret_params)
{
	if (!sim_is_node(node) || node->work->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || !node->work->memory->block ||
	    !ret_params)
		return CUDA_ERROR_INVALID_VALUE;
	memset(ret_params, 0, sizeof(*ret_params));
	ret_params->bytesize = node->work->memory->bytes;
	ret_params->dptr = node->work->memory->block->range.start;
	return CUDA_SUCCESS;
}

static CUresult node_get_free(CUgraphNode node, CUdeviceptr *ret_address)
{
	if (!sim_is_node(node) || node->work->type != CU_GRAPH_NODE_TYPE_MEM_FREE || !node->work->memory->block ||
	    !ret_address)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_address = node->work->memory->block->range.start;
	return CUDA_SUCCESS;
}

/* Of the attributes only the one that makes a node's parameters worthless; the others are 0 and stay so. */
static CUresult node_attribute(CUgraphNode node, CUkernelNodeAttrID which, CUkernelNodeAttrValue *ret_value,
			       const CUkernelNodeAttrValue *value)
{
	bool updatable = which == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;

	if (!sim_is_node(node) || node->work->type != CU_GRAPH_NODE_TYPE_KERNEL || !(ret_value || value))
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
SPELL_FREE(cuGraphMemcpyNodeGetParams, (CUgraphNode node, CUDA_MEMCPY3D *copy), node_get_copy(node, copy))
SPELL_FREE(cuGraphMemsetNodeGetParams, (CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *set), node_get_set(node, set))
SPELL_FREE(cuGraphBatchMemOpNodeGetParams, (CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *ops),
	   node_get_values(node, ops))
SPELL_FREE(cuGraphChildGraphNodeGetGraph, (CUgraphNode node, CUgraph *graph), node_get_child(node, graph))
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
SPELL_FREE(cuGraphNodeGetType, (CUgraphNode node, CUgraphNodeType *type), node_type(node, type))
