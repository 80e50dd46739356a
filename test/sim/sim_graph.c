/*
 * sim_graph.c: graphs, built by hand or by capture, and their instances.
 *
 * A node is a piece of work with dependencies. An instance is a copy of that work in an order that respects them; a
 * launch is one piece of work of type GRAPH that does the copies one after the other on its stream. Structs of graphs
 * and nodes are kept when destroyed; what they own is freed.
 */
#include "sim_internal.h"
#include <stdlib.h>

struct CUgraphExec_st {
	CUgraphExec next;
	bool alive;
	CUcontext context;
	cuuint64_t flags;
	struct sim_work **parts;
	CUgraphNode *nodes; /* the node each part was made from */
	size_t n;
};

static CUgraph dead_graphs, all_graphs;
static CUgraphExec instances;

CUgraph sim_graph_new(void)
{
	CUgraph graph = calloc(1, sizeof(*graph));

	graph->alive = true;
	graph->next_dead = all_graphs;
	all_graphs = graph;
	return graph;
}

void sim_graph_free(CUgraph graph)
{
	CUgraph *link = &all_graphs;

	for (CUgraphNode node = graph->first; node; node = node->next) {
		sim_work_free(node->work);
		free(node->after);
		free(node->params);
		node->work = NULL;
		node->after = NULL;
		node->params = NULL;
		node->alive = false;
	}
	graph->alive = false;
	while (*link != graph)
		link = &(*link)->next_dead;
	*link = graph->next_dead;
	graph->next_dead = dead_graphs;
	dead_graphs = graph;
}

CUgraphNode sim_graph_add(CUgraph graph, struct sim_work *work, const CUgraphNode *after, size_t n_after)
{
	CUgraphNode node = calloc(1, sizeof(*node));

	node->graph = graph;
	node->alive = true;
	node->work = work;
	node->after = calloc(n_after + 1, sizeof(*node->after));
	if (n_after)
		memcpy(node->after, after, n_after * sizeof(*after));
	node->n_after = n_after;
	if (graph->last)
		graph->last->next = node;
	else
		graph->first = node;
	graph->last = node;
	graph->n_nodes++;
	return node;
}

static bool is_node(CUgraphNode node)
{
	return node && node->alive;
}

static CUresult add(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *after, size_t n_after,
		    struct sim_work *work)
{
	bool good = ret_node && graph && graph->alive && (after || !n_after);

	for (size_t i = 0; good && i < n_after; i++)
		good = is_node(after[i]) && after[i]->graph == graph;
	if (!good) {
		sim_work_free(work);
		return sim_why(CUDA_ERROR_INVALID_VALUE, "not a graph, or a dependency of another graph");
	}
	*ret_node = sim_graph_add(graph, work, after, n_after);
	return CUDA_SUCCESS;
}

static CUresult kernel_work(struct sim_work **ret_work, CUfunction function, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	struct sim_launch launch = {
	    {p->gridDimX, p->gridDimY, p->gridDimZ}, {p->blockDimX, p->blockDimY, p->blockDimZ}, p->sharedMemBytes};

	return sim_kernel_work(ret_work, function, &launch, p->kernelParams, p->extra);
}

/* The v2 parameters begin as v1 and name a kernel when they have no function. */
static CUfunction node_function(const CUDA_KERNEL_NODE_PARAMS *p)
{
	return p->func ? p->func : (CUfunction)p->kern;
}

static CUresult add_kernel(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *after, size_t n_after,
			   CUfunction function, const void *params)
{
	struct sim_work *work;
	CUresult result = kernel_work(&work, function, params);

	return result ? result : add(ret_node, graph, after, n_after, work);
}

static CUresult add_copy(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *after, size_t n_after,
			 const CUDA_MEMCPY3D *copy)
{
	struct sim_work *work;
	CUresult result = copy ? sim_copy_work(&work, copy, sim_context()->device, false) : CUDA_ERROR_INVALID_VALUE;

	return result ? result : add(ret_node, graph, after, n_after, work);
}

static CUresult add_set(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *after, size_t n_after,
			const CUDA_MEMSET_NODE_PARAMS *set)
{
	struct sim_work *work;
	CUresult result = set ? sim_set_work(&work, set, sim_context()->device) : CUDA_ERROR_INVALID_VALUE;

	return result ? result : add(ret_node, graph, after, n_after, work);
}

static CUresult add_host(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *after, size_t n_after,
			 const CUDA_HOST_NODE_PARAMS *host)
{
	struct sim_work *work;

	if (!host || !host->fn)
		return CUDA_ERROR_INVALID_VALUE;
	work = sim_work_new("a host node", CU_GRAPH_NODE_TYPE_HOST, sim_run_host);
	work->host.fn = host->fn;
	work->host.data = host->userData;
	return add(ret_node, graph, after, n_after, work);
}

static CUresult add_node(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *after, size_t n_after,
			 CUgraphNodeParams *params)
{
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	switch (params->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return add_kernel(ret_node, graph, after, n_after,
				  params->kernel.func ? params->kernel.func : (CUfunction)params->kernel.kern,
				  &params->kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return add_copy(ret_node, graph, after, n_after, &params->memcpy.copyParams);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return add_set(ret_node, graph, after, n_after, (const CUDA_MEMSET_NODE_PARAMS *)&params->memset);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		return add(ret_node, graph, after, n_after,
			   sim_work_new("an empty node", CU_GRAPH_NODE_TYPE_EMPTY, sim_nothing));
	default:
		return sim_why(CUDA_ERROR_NOT_SUPPORTED, "the model has no node of type %d", params->type);
	}
}

/* ---- order, instances, launches ---- */

/* Nodes in an order in which each comes after what it depends on; false when they form a circle. */
static bool order(CUgraph graph, CUgraphNode *ret_nodes)
{
	size_t done = 0, before;

	for (CUgraphNode node = graph->first; node; node = node->next)
		node->mark = 0;
	do {
		before = done;
		for (CUgraphNode node = graph->first; node; node = node->next) {
			bool ready = node->alive && !node->mark;

			for (size_t i = 0; ready && i < node->n_after; i++)
				ready = node->after[i]->mark || !node->after[i]->alive;
			if (!ready)
				continue;
			node->mark = 1;
			ret_nodes[done++] = node;
		}
	} while (done > before);
	return done == graph->n_nodes;
}

static struct sim_work *list_of(struct sim_work *const *parts, size_t n)
{
	struct sim_work *work = sim_work_new("cuGraphLaunch", CU_GRAPH_NODE_TYPE_GRAPH, sim_run_list);
	struct sim_work **link = &work->list;

	for (size_t i = 0; i < n; i++) {
		*link = sim_work_clone(parts[i]);
		link = &(*link)->next;
	}
	return work;
}

static CUresult copy_parts(CUgraph graph, CUgraphNode **ret_nodes, struct sim_work ***ret_parts)
{
	CUgraphNode *nodes = calloc(graph->n_nodes + 1, sizeof(CUgraphNode));
	struct sim_work **parts;

	if (!order(graph, nodes)) {
		free(nodes);
		return sim_why(CUDA_ERROR_INVALID_VALUE, "the dependencies form a circle");
	}
	parts = calloc(graph->n_nodes + 1, sizeof(struct sim_work *));
	for (size_t i = 0; i < graph->n_nodes; i++)
		parts[i] = sim_work_clone(nodes[i]->work);
	*ret_nodes = nodes;
	*ret_parts = parts;
	return CUDA_SUCCESS;
}

static void free_parts(CUgraphExec exec)
{
	for (size_t i = 0; i < exec->n; i++)
		sim_work_free(exec->parts[i]);
	free(exec->parts);
	free(exec->nodes);
	exec->parts = NULL;
	exec->nodes = NULL;
	exec->n = 0;
}

static CUresult instantiate(CUgraphExec *ret_exec, CUgraph graph, cuuint64_t flags)
{
	struct sim_work **parts;
	CUgraphNode *nodes;
	CUgraphExec exec;
	CUresult result;

	if (!ret_exec || !graph || !graph->alive)
		return CUDA_ERROR_INVALID_VALUE;
	result = copy_parts(graph, &nodes, &parts);
	if (result)
		return result;
	exec = calloc(1, sizeof(*exec));
	exec->alive = true;
	exec->context = sim_context();
	exec->flags = flags;
	exec->nodes = nodes;
	exec->parts = parts;
	exec->n = graph->n_nodes;
	exec->next = instances;
	instances = exec;
	*ret_exec = exec;
	return CUDA_SUCCESS;
}

static CUresult launch(CUgraphExec exec, CUstream stream)
{
	if (!exec || !exec->alive)
		return CUDA_ERROR_INVALID_HANDLE;
	return sim_submit(stream, list_of(exec->parts, exec->n));
}

static CUresult exec_destroy(CUgraphExec exec)
{
	if (!exec || !exec->alive)
		return CUDA_ERROR_INVALID_HANDLE;
	exec->alive = false;
	free_parts(exec);
	return CUDA_SUCCESS;
}

static CUresult exec_update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResult *ret_result)
{
	CUgraphExecUpdateResult reason = CU_GRAPH_EXEC_UPDATE_SUCCESS;
	struct sim_work **parts;
	CUgraphNode *nodes;

	if (!exec || !exec->alive || !graph || !graph->alive)
		return CUDA_ERROR_INVALID_VALUE;
	if (copy_parts(graph, &nodes, &parts))
		return CUDA_ERROR_INVALID_VALUE;
	if (exec->n != graph->n_nodes)
		reason = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	for (size_t i = 0; !reason && i < exec->n; i++)
		if (exec->parts[i]->type != parts[i]->type)
			reason = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
	if (ret_result)
		*ret_result = reason;
	if (reason) {
		for (size_t i = 0; i < graph->n_nodes; i++)
			sim_work_free(parts[i]);
		free(parts);
		free(nodes);
		return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	}
	free_parts(exec);
	exec->nodes = nodes;
	exec->parts = parts;
	exec->n = graph->n_nodes;
	return CUDA_SUCCESS;
}

/* The instance's copy of a node's work, replaced by other work; takes the work over. */
static CUresult exec_set(CUgraphExec exec, CUgraphNode node, struct sim_work *work)
{
	for (size_t i = 0; exec && exec->alive && i < exec->n; i++) {
		if (exec->nodes[i] != node || exec->parts[i]->type != work->type)
			continue;
		sim_work_free(exec->parts[i]);
		exec->parts[i] = work;
		return CUDA_SUCCESS;
	}
	sim_work_free(work);
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult exec_set_kernel(CUgraphExec exec, CUgraphNode node, CUfunction function, const void *params)
{
	struct sim_work *work;
	CUresult result = params ? kernel_work(&work, function, params) : CUDA_ERROR_INVALID_VALUE;

	return result ? result : exec_set(exec, node, work);
}

static CUresult node_set_kernel(CUgraphNode node, CUfunction function, const void *params)
{
	struct sim_work *work;
	CUresult result;

	if (!is_node(node) || node->work->type != CU_GRAPH_NODE_TYPE_KERNEL || !params)
		return CUDA_ERROR_INVALID_VALUE;
	result = kernel_work(&work, function, params);
	if (result)
		return result;
	sim_work_free(node->work);
	node->work = work;
	return CUDA_SUCCESS;
}

static CUresult exec_set_copy(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy)
{
	struct sim_work *work;
	CUresult result = copy ? sim_copy_work(&work, copy, sim_context()->device, false) : CUDA_ERROR_INVALID_VALUE;

	return result ? result : exec_set(exec, node, work);
}

static CUresult exec_set_set(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *set)
{
	struct sim_work *work;
	CUresult result = set ? sim_set_work(&work, set, sim_context()->device) : CUDA_ERROR_INVALID_VALUE;

	return result ? result : exec_set(exec, node, work);
}

/* ---- questions ---- */

static CUresult get_nodes(CUgraph graph, CUgraphNode *ret_nodes, size_t *n, bool roots)
{
	size_t found = 0;

	if (!graph || !graph->alive || !n)
		return CUDA_ERROR_INVALID_VALUE;
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

static CUresult get_edges(CUgraph graph, CUgraphNode *ret_from, CUgraphNode *ret_to, size_t *n)
{
	size_t found = 0;

	if (!graph || !graph->alive || !n)
		return CUDA_ERROR_INVALID_VALUE;
	for (CUgraphNode node = graph->first; node; node = node->next) {
		for (size_t i = 0; node->alive && i < node->n_after; i++, found++) {
			if (!ret_from || !ret_to || found >= *n)
				continue;
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
	if (!is_node(node) || !n)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; ret_nodes && i < *n && i < node->n_after; i++)
		ret_nodes[i] = node->after[i];
	if (!ret_nodes || node->n_after < *n)
		*n = node->n_after;
	return CUDA_SUCCESS;
}

static CUresult node_type(CUgraphNode node, CUgraphNodeType *ret_type)
{
	if (!is_node(node) || !ret_type)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_type = node->work->type;
	return CUDA_SUCCESS;
}

/* kernelParams points into the node, as the driver's does: good until the node changes or goes. */
static CUresult node_get_kernel(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *ret_params)
{
	struct sim_function *function;
	const struct sim_launch *l;

	if (!is_node(node) || node->work->type != CU_GRAPH_NODE_TYPE_KERNEL || !ret_params)
		return CUDA_ERROR_INVALID_VALUE;
	function = (struct sim_function *)node->work->kernel.function;
	free(node->params);
	node->params = calloc(function->kernel->n_params + 1, sizeof(void *));
	for (unsigned i = 0; i < function->kernel->n_params; i++)
		node->params[i] = (char *)node->work->owned + function->offsets[i];
	l = &node->work->kernel.launch;
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
	if (!is_node(node) || node->work->type != CU_GRAPH_NODE_TYPE_MEMCPY || !ret_copy)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_copy = node->work->copy;
	return CUDA_SUCCESS;
}

static CUresult node_get_set(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *ret_set)
{
	if (!is_node(node) || node->work->type != CU_GRAPH_NODE_TYPE_MEMSET || !ret_set)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_set = node->work->set;
	return CUDA_SUCCESS;
}

static CUresult add_edges(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n)
{
	if (!graph || !graph->alive || (n && (!from || !to)))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n; i++) {
		if (!is_node(from[i]) || !is_node(to[i]))
			return CUDA_ERROR_INVALID_VALUE;
		to[i]->after = realloc(to[i]->after, (to[i]->n_after + 1) * sizeof(CUgraphNode));
		to[i]->after[to[i]->n_after++] = from[i];
	}
	return CUDA_SUCCESS;
}

static CUresult create(CUgraph *ret_graph, unsigned flags)
{
	if (!ret_graph || flags)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_graph = sim_graph_new();
	return CUDA_SUCCESS;
}

static CUresult destroy(CUgraph graph)
{
	if (!graph || !graph->alive)
		return CUDA_ERROR_INVALID_VALUE;
	sim_graph_free(graph);
	return CUDA_SUCCESS;
}

#define NODE_PARAMS CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n
SPELL_FREE(cuGraphCreate, (CUgraph * graph, unsigned flags), create(graph, flags))
SPELL_FREE(cuGraphDestroy, (CUgraph graph), destroy(graph))
SPELL(cuGraphAddKernelNode, (NODE_PARAMS, const CUDA_KERNEL_NODE_PARAMS_v1 *params),
      add_kernel(node, graph, after, n, params->func, params))
SPELL(cuGraphAddKernelNode_v2, (NODE_PARAMS, const CUDA_KERNEL_NODE_PARAMS *params),
      add_kernel(node, graph, after, n, node_function(params), params))
SPELL(cuGraphAddMemcpyNode, (NODE_PARAMS, const CUDA_MEMCPY3D *copy, CUcontext context),
      ((void)context, add_copy(node, graph, after, n, copy)))
SPELL(cuGraphAddMemsetNode, (NODE_PARAMS, const CUDA_MEMSET_NODE_PARAMS *set, CUcontext context),
      ((void)context, add_set(node, graph, after, n, set)))
SPELL(cuGraphAddHostNode, (NODE_PARAMS, const CUDA_HOST_NODE_PARAMS *host), add_host(node, graph, after, n, host))
SPELL(cuGraphAddEmptyNode, (NODE_PARAMS),
      add(node, graph, after, n, sim_work_new("an empty node", CU_GRAPH_NODE_TYPE_EMPTY, sim_nothing)))
SPELL(cuGraphAddNode, (NODE_PARAMS, CUgraphNodeParams *params), add_node(node, graph, after, n, params))
SPELL(cuGraphAddNode_v2,
      (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges, size_t n,
       CUgraphNodeParams *params),
      ((void)edges, add_node(node, graph, after, n, params)))
SPELL_FREE(cuGraphAddDependencies, (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n),
	   add_edges(graph, from, to, n))
SPELL_FREE(cuGraphAddDependencies_v2,
	   (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *edges, size_t n),
	   ((void)edges, add_edges(graph, from, to, n)))
SPELL(cuGraphInstantiate, (CUgraphExec * exec, CUgraph graph, CUgraphNode *error, char *log, size_t bytes),
      ((void)error, (void)log, (void)bytes, instantiate(exec, graph, 0)))
SPELL(cuGraphInstantiate_v2, (CUgraphExec * exec, CUgraph graph, CUgraphNode *error, char *log, size_t bytes),
      ((void)error, (void)log, (void)bytes, instantiate(exec, graph, 0)))
SPELL(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
      instantiate(exec, graph, flags))
SPELL(cuGraphInstantiateWithParams, (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
      (params->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS, instantiate(exec, graph, params->flags)))
SPELL(cuGraphInstantiateWithParams_ptsz, (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
      (params->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS, instantiate(exec, graph, params->flags)))
SPELL_STREAM(cuGraphLaunch, (CUgraphExec exec, CUstream stream), stream, launch(exec, stream))
SPELL_STREAM(cuGraphUpload, (CUgraphExec exec, CUstream stream), stream,
	     ((void)stream, exec && exec->alive ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE))
SPELL_FREE(cuGraphExecDestroy, (CUgraphExec exec), exec_destroy(exec))
SPELL_FREE(cuGraphExecGetFlags, (CUgraphExec exec, cuuint64_t *flags), (*flags = exec->flags, CUDA_SUCCESS))
SPELL(cuGraphExecUpdate, (CUgraphExec exec, CUgraph graph, CUgraphNode *error, CUgraphExecUpdateResult *reason),
      (error ? (void)(*error = NULL) : (void)0, exec_update(exec, graph, reason)))
SPELL(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info),
      exec_update(exec, graph, info ? &info->result : NULL))
SPELL(cuGraphExecKernelNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params),
      exec_set_kernel(exec, node, params->func, params))
SPELL(cuGraphExecKernelNodeSetParams_v2, (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params),
      exec_set_kernel(exec, node, node_function(params), params))
SPELL(cuGraphExecMemcpyNodeSetParams,
      (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy, CUcontext context),
      ((void)context, exec_set_copy(exec, node, copy)))
SPELL(cuGraphExecMemsetNodeSetParams,
      (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *set, CUcontext context),
      ((void)context, exec_set_set(exec, node, set)))
SPELL_FREE(cuGraphKernelNodeGetParams, (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *params),
	   node_get_kernel(node, params))
SPELL_FREE(cuGraphKernelNodeGetParams_v2, (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params),
	   node_get_kernel_v2(node, params))
SPELL_FREE(cuGraphKernelNodeSetParams, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params),
	   node_set_kernel(node, params->func, params))
SPELL_FREE(cuGraphKernelNodeSetParams_v2, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params),
	   node_set_kernel(node, node_function(params), params))
SPELL_FREE(cuGraphMemcpyNodeGetParams, (CUgraphNode node, CUDA_MEMCPY3D *copy), node_get_copy(node, copy))
SPELL_FREE(cuGraphMemsetNodeGetParams, (CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *set), node_get_set(node, set))
SPELL_FREE(cuGraphGetNodes, (CUgraph graph, CUgraphNode *nodes, size_t *n), get_nodes(graph, nodes, n, false))
SPELL_FREE(cuGraphGetRootNodes, (CUgraph graph, CUgraphNode *nodes, size_t *n), get_nodes(graph, nodes, n, true))
SPELL_FREE(cuGraphGetEdges, (CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *n),
	   get_edges(graph, from, to, n))
SPELL_FREE(cuGraphGetEdges_v2, (CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges, size_t *n),
	   ((void)edges, get_edges(graph, from, to, n)))
SPELL_FREE(cuGraphNodeGetDependencies, (CUgraphNode node, CUgraphNode *nodes, size_t *n),
	   node_dependencies(node, nodes, n))
SPELL_FREE(cuGraphNodeGetDependencies_v2, (CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *n),
	   ((void)edges, node_dependencies(node, nodes, n)))
SPELL_FREE(cuGraphNodeGetType, (CUgraphNode node, CUgraphNodeType *type), node_type(node, type))
