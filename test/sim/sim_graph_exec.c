// SPDX-License-Identifier: Apache-2.0
/*
 * sim_graph_exec.c: instances of graphs. One is a copy of the graph's work in an order that respects dependencies; a
 * launch is one piece of work of type GRAPH that does the copies one after the other on its stream.
 */
#include "sim_context.h"
#include "sim_graph.h"
#include "sim_work.h"

struct CUgraphExec_st {
	CUgraphExec next;
	bool alive, has_memory;
	CUcontext context;
	cuuint64_t flags;
	struct sim_work **parts;
	CUgraphNode *nodes; /* the node each part was made from */
	size_t n;
};

static CUgraphExec instances;

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

static struct sim_work *part_of(CUgraphNode node);

/* The parts of a graph one after the other; NULL when there is no order. */
static struct sim_work *list_of(CUgraph graph, CUgraphNodeType type)
{
	CUgraphNode *nodes = calloc(graph->n_nodes + 1, sizeof(CUgraphNode));
	struct sim_work *work = sim_work_new("a graph in a graph", type, sim_run_list);
	struct sim_work **link = &work->list;
	bool good = order(graph, nodes);

	for (size_t i = 0; good && i < graph->n_nodes; i++) {
		*link = part_of(nodes[i]);
		good = *link;
		if (good)
			link = &(*link)->next;
	}
	free(nodes);
	if (good)
		return work;
	sim_work_free(work);
	return NULL;
}

/* Of the bodies of a condition, the one that its first value chooses: a loop runs once. */
static CUgraph chosen(CUgraphNode node)
{
	unsigned value;

	if (!node->condition)
		return node->inside[0];
	memcpy(&value, (const void *)node->condition, sizeof(value));
	if (node->n_inside <= 2)
		value = !value; /* of an `if`, the second is for 0 */
	return value < node->n_inside ? node->inside[value] : NULL;
}

static struct sim_work *part_of(CUgraphNode node)
{
	CUgraph graph = node->n_inside ? chosen(node) : NULL;

	return graph ? list_of(graph, node->work->type) : sim_work_clone(node->work);
}

/* A kernel that may overlap with the one before it comes first, as on a stream (sim_work.c). */
static void overtake(CUgraphNode *nodes, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		CUgraphNode node = nodes[i];

		if (!node->overlaps || node->after[0] != nodes[i - 1])
			continue;
		nodes[i] = nodes[i - 1];
		nodes[i - 1] = node;
	}
}

static CUresult copy_parts(CUgraph graph, CUgraphNode **ret_nodes, struct sim_work ***ret_parts)
{
	CUgraphNode *nodes = calloc(graph->n_nodes + 1, sizeof(CUgraphNode));
	struct sim_work **parts = calloc(graph->n_nodes + 1, sizeof(struct sim_work *));
	bool good = order(graph, nodes);

	if (good)
		overtake(nodes, graph->n_nodes);

	for (size_t i = 0; good && i < graph->n_nodes; i++) {
		parts[i] = part_of(nodes[i]);
		good = parts[i];
	}
	if (good) {
		*ret_nodes = nodes;
		*ret_parts = parts;
		return CUDA_SUCCESS;
	}
	for (size_t i = 0; i < graph->n_nodes; i++)
		sim_work_free(parts[i]);
	free(parts);
	free(nodes);
	return sim_why(CUDA_ERROR_INVALID_VALUE, "the dependencies form a circle");
}

static void free_parts(CUgraphExec exec)
{
	for (size_t i = 0; i < exec->n; i++) {
		sim_graph_memory_unref(exec->parts[i]);
		sim_work_free(exec->parts[i]);
	}
	free(exec->parts);
	free(exec->nodes);
	exec->parts = NULL;
	exec->nodes = NULL;
	exec->n = 0;
}

static bool ref_memory(CUgraphExec exec)
{
	bool any = false;

	for (size_t i = 0; i < exec->n; i++)
		any |= sim_graph_memory_ref(exec->parts[i]);
	return any;
}

static bool sets_are_mapped(const struct sim_work *work)
{
	if (work->type == CU_GRAPH_NODE_TYPE_MEMSET)
		return sim_set_is_mapped(work);
	if (work->type != CU_GRAPH_NODE_TYPE_GRAPH)
		return true;
	for (const struct sim_work *inner = work->list; inner; inner = inner->next)
		if (!sets_are_mapped(inner))
			return false;
	return true;
}

static CUresult instantiate(CUgraphExec *ret_exec, CUgraph graph, cuuint64_t flags)
{
	struct sim_work **parts;
	CUgraphNode *nodes;
	CUgraphExec exec;

	if (!ret_exec || !graph || !graph->alive)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = sim_unsafe() ?: copy_parts(graph, &nodes, &parts);
	if (result)
		return result;
	for (size_t i = 0; !result && i < graph->n_nodes; i++)
		if (!sets_are_mapped(parts[i]))
			result = sim_why(CUDA_ERROR_INVALID_VALUE, "a set of memory that is not mapped");
	if (result) {
		for (size_t i = 0; i < graph->n_nodes; i++)
			sim_work_free(parts[i]);
		free(parts);
		free(nodes);
		return result;
	}
	exec = calloc(1, sizeof(*exec));
	exec->alive = true;
	exec->context = sim_context();
	exec->flags = flags;
	exec->nodes = nodes;
	exec->parts = parts;
	exec->n = graph->n_nodes;
	exec->has_memory = ref_memory(exec);
	exec->next = instances;
	instances = exec;
	*ret_exec = exec;
	return CUDA_SUCCESS;
}

static CUresult launch(CUgraphExec exec, CUstream handle)
{
	CUstream stream;
	CUresult result = sim_stream(handle, &stream);

	if (!exec || !exec->alive)
		return CUDA_ERROR_INVALID_HANDLE;
	if (result)
		return result;
	if (stream->capture) { /* driver 580, whatever the documentation says */
		sim_capture_invalidate(stream->capture, "cuGraphLaunch cannot be captured");
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	struct sim_work *work = sim_work_new("cuGraphLaunch", CU_GRAPH_NODE_TYPE_GRAPH, sim_run_list);
	struct sim_work **link = &work->list;
	for (size_t i = 0; i < exec->n; i++) {
		*link = sim_work_clone(exec->parts[i]);
		link = &(*link)->next;
	}
	return sim_submit(handle, work);
}

static CUresult instantiate_with(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	params->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
	return instantiate(exec, graph, params->flags);
}

static CUresult exec_destroy(CUgraphExec exec)
{
	if (!exec || !exec->alive)
		return CUDA_ERROR_INVALID_HANDLE;
	exec->alive = false;
	if (exec->has_memory) /* what is launched still uses it */
		sim_wait_context(exec->context);
	free_parts(exec);
	return CUDA_SUCCESS;
}

static CUgraphNode refusing_inside(const struct sim_work *old, const struct sim_work *new, CUgraph graph);

/* The node that must not become what it is to be, itself or one in its child graph; NULL: it may. */
static CUgraphNode refusing(const struct sim_work *old, const struct sim_work *new, CUgraphNode node)
{
	if (old->type == CU_GRAPH_NODE_TYPE_MEMCPY)
		return sim_copy_may_become(old, new) ? NULL : node;
	return old->type == CU_GRAPH_NODE_TYPE_GRAPH ? refusing_inside(old->list, new->list, node->inside[0]) : NULL;
}

static CUgraphNode refusing_inside(const struct sim_work *old, const struct sim_work *new, CUgraph graph)
{
	CUgraphNode *nodes = calloc(graph->n_nodes + 1, sizeof(CUgraphNode)), found = NULL;

	order(graph, nodes);
	for (size_t i = 0; !found && old && new; i++, old = old->next, new = new->next)
		found = old->type == new->type ? refusing(old, new, nodes[i]) : nodes[i];
	free(nodes);
	return found;
}

/* All or nothing; the instance's nodes go on under the names of those it was made from. */
static CUresult exec_update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResult *ret_result,
			    CUgraphNode *ret_error)
{
	CUgraphExecUpdateResult reason = CU_GRAPH_EXEC_UPDATE_SUCCESS;
	CUgraphNode error = NULL;
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
	for (size_t i = 0; !reason && i < exec->n; i++) {
		error = refusing(exec->parts[i], parts[i], nodes[i]);
		if (error)
			reason = CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
	}
	if (ret_result)
		*ret_result = reason;
	if (ret_error)
		*ret_error = error;
	if (reason) {
		for (size_t i = 0; i < graph->n_nodes; i++)
			sim_work_free(parts[i]);
		free(parts);
		free(nodes);
		return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	}
	free(nodes);
	nodes = exec->nodes;
	exec->nodes = NULL;
	free_parts(exec);
	exec->nodes = nodes;
	exec->parts = parts;
	exec->n = graph->n_nodes;
	exec->has_memory = ref_memory(exec);
	return CUDA_SUCCESS;
}

/* The instance's copy of a node's work, replaced by other work; takes the work over. */
static CUresult exec_set(CUgraphExec exec, CUgraphNode node, struct sim_work *work)
{
	for (size_t i = 0; exec && exec->alive && i < exec->n; i++) {
		if (exec->nodes[i] != node || exec->parts[i]->type != work->type)
			continue;
		if (work->type == CU_GRAPH_NODE_TYPE_MEMCPY && !sim_copy_may_become(exec->parts[i], work))
			break;
		sim_work_free(exec->parts[i]);
		exec->parts[i] = work;
		return CUDA_SUCCESS;
	}
	sim_work_free(work);
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult exec_set_params(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *params)
{
	struct sim_work *work;

	if (!params || params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || params->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
		return CUDA_ERROR_INVALID_VALUE;
	if (params->type == CU_GRAPH_NODE_TYPE_GRAPH) {
		work = params->graph.graph && params->graph.graph->alive
			   ? list_of(params->graph.graph, CU_GRAPH_NODE_TYPE_GRAPH)
			   : NULL;
		return work ? exec_set(exec, node, work) : CUDA_ERROR_INVALID_VALUE;
	}
	CUresult result = sim_node_work(&work, params);
	return result ? result : exec_set(exec, node, work);
}

static CUresult set(CUgraphExec exec, CUgraphNode node, struct sim_node_form form)
{
	return exec_set_params(exec, node, form.good ? &form.params : NULL);
}

#define FORM(type, params) sim_node_form(CU_GRAPH_NODE_TYPE_##type, params, sizeof(*(params)))
SPELL_2(cuGraphInstantiate, (CUgraphExec * exec, CUgraph graph, CUgraphNode *error, char *log, size_t bytes),
	((void)error, (void)log, (void)bytes, instantiate(exec, graph, 0)))
SPELL(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
      instantiate(exec, graph, flags))
SPELL(cuGraphInstantiateWithParams, (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
      instantiate_with(exec, graph, params))
SPELL(cuGraphInstantiateWithParams_ptsz, (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
      instantiate_with(exec, graph, params))
SPELL_STREAM(cuGraphLaunch, (CUgraphExec exec, CUstream stream), stream, launch(exec, stream))
SPELL_STREAM(cuGraphUpload, (CUgraphExec exec, CUstream stream), stream,
	     ((void)stream, exec && exec->alive ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE))
SPELL_FREE(cuGraphExecDestroy, (CUgraphExec exec), exec_destroy(exec))
SPELL_FREE(cuGraphExecGetFlags, (CUgraphExec exec, cuuint64_t *flags), (*flags = exec->flags, CUDA_SUCCESS))
SPELL(cuGraphExecUpdate, (CUgraphExec exec, CUgraph graph, CUgraphNode *error, CUgraphExecUpdateResult *reason),
      exec_update(exec, graph, reason, error))
SPELL(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info),
      exec_update(exec, graph, info ? &info->result : NULL, info ? &info->errorNode : NULL))
SPELL(cuGraphExecKernelNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params),
      set(exec, node, FORM(KERNEL, params)))
SPELL(cuGraphExecKernelNodeSetParams_v2, (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params),
      set(exec, node, FORM(KERNEL, params)))
SPELL(cuGraphExecMemcpyNodeSetParams,
      (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy, CUcontext context),
      ((void)context, set(exec, node, FORM(MEMCPY, copy))))
SPELL(cuGraphExecMemsetNodeSetParams,
      (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context),
      ((void)context, set(exec, node, FORM(MEMSET, params))))
SPELL(cuGraphExecBatchMemOpNodeSetParams,
      (CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *ops),
      set(exec, node, FORM(BATCH_MEM_OP, ops)))
SPELL(cuGraphExecHostNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *host),
      set(exec, node, FORM(HOST, host)))
SPELL(cuGraphExecChildGraphNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraph child),
      set(exec, node, FORM(GRAPH, &child)))
SPELL(cuGraphExecNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params),
      exec_set_params(exec, node, params))
