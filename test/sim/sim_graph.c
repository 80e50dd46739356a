// SPDX-License-Identifier: Apache-2.0
/*
 * sim_graph.c: graphs, built by hand or by capture. Instances are in sim_graph_exec.c, questions in sim_graph_ask.c.
 *
 * A node is a piece of work with dependencies. Whatever way its parameters come in, they are brought into the form of
 * CUgraphNodeParams first. A node with graphs inside (a child, the bodies of a condition) owns those; its work is made
 * from them when the whole is instantiated. Structs of graphs and nodes are kept when destroyed; what they own is
 * freed.
 */
#include "sim_context.h"
#include "sim_graph.h"
#include "sim_memory.h"

static CUgraph dead_graphs, all_graphs;

CUgraph sim_graph_new(void)
{
	CUgraph graph = calloc(1, sizeof(*graph));

	graph->alive = true;
	graph->next_dead = all_graphs;
	all_graphs = graph;
	return graph;
}

static void drop_node(CUgraphNode node)
{
	for (unsigned i = 0; i < node->n_inside; i++)
		sim_graph_free(node->inside[i]);
	sim_graph_memory_unref(node->work);
	sim_work_free(node->work);
	free(node->inside);
	free(node->after);
	free(node->params);
	node->n_inside = 0;
	node->inside = NULL;
	node->work = NULL;
	node->after = NULL;
	node->params = NULL;
	node->alive = false;
}

void sim_graph_free(CUgraph graph)
{
	CUgraph *link = &all_graphs;

	for (CUgraphNode node = graph->first; node; node = node->next)
		drop_node(node);
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
	sim_graph_memory_ref(work);
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

bool sim_is_node(CUgraphNode node)
{
	return node && node->alive;
}

static bool is_of_memory(CUgraphNodeType type)
{
	return type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE;
}

static bool clone_node(CUgraphNode twin, CUgraphNode node)
{
	if (node->work->type == CU_GRAPH_NODE_TYPE_CONDITIONAL || is_of_memory(node->work->type))
		return false;
	twin->updatable = node->updatable;
	twin->overlaps = node->overlaps;
	twin->after = calloc(node->n_after + 1, sizeof(CUgraphNode));
	for (size_t i = 0; i < node->n_after; i++)
		twin->after[twin->n_after++] = node->after[i]->twin;
	if (!node->n_inside)
		return true;
	twin->inside = calloc(1, sizeof(CUgraph));
	twin->inside[0] = sim_graph_clone(node->inside[0]);
	twin->n_inside = twin->inside[0] != NULL;
	return twin->n_inside;
}

/* A copy for a node to own, its nodes in the same order; NULL when it holds what cannot be copied. */
CUgraph sim_graph_clone(CUgraph graph)
{
	CUgraph clone = sim_graph_new();
	bool good = true;

	for (CUgraphNode node = graph->first; node; node = node->next) {
		if (!node->alive)
			continue;
		node->twin = sim_graph_add(clone, sim_work_clone(node->work), NULL, 0);
		free(node->twin->after);
		node->twin->after = NULL;
	}
	for (CUgraphNode node = graph->first; node && good; node = node->next)
		good = !node->alive || clone_node(node->twin, node);
	if (good)
		return clone;
	sim_graph_free(clone);
	return NULL;
}

/* ---- from parameters to work ---- */

/*
 * The three versions of kernel parameters begin alike; later ones name a kernel when they have no function. A function
 * runs in the context of its module, whatever stream the graph is launched in; a kernel in the one that is named with
 * it.
 */
static CUresult kernel_work(struct sim_work **ret_work, const CUDA_KERNEL_NODE_PARAMS_v3 *p)
{
	struct sim_launch launch = {
	    {p->gridDimX, p->gridDimY, p->gridDimZ}, {p->blockDimX, p->blockDimY, p->blockDimZ}, p->sharedMemBytes};
	CUfunction function = p->func ? p->func : (CUfunction)p->kern;
	CUresult result = sim_kernel_work(ret_work, function, &launch, p->kernelParams, p->extra);

	if (result)
		return result;
	(*ret_work)->context = sim_function(function)->module->context;
	if (!(*ret_work)->context)
		(*ret_work)->context = p->ctx ? p->ctx : sim_context();
	return CUDA_SUCCESS;
}

static CUresult host_work(struct sim_work **ret_work, const CUDA_HOST_NODE_PARAMS_v2 *host)
{
	if (!host->fn)
		return CUDA_ERROR_INVALID_VALUE;
	struct sim_work *work = sim_work_new("a host node", CU_GRAPH_NODE_TYPE_HOST, sim_run_host);
	work->host.fn = host->fn;
	work->host.data = host->userData;
	*ret_work = work;
	return CUDA_SUCCESS;
}

CUresult sim_node_work(struct sim_work **ret_work, const CUgraphNodeParams *params)
{
	CUcontext context = sim_context();

	switch (params->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return kernel_work(ret_work, &params->kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return sim_copy_work(ret_work, &params->memcpy.copyParams, (struct sim_sides){context, context},
				     SIM_STAGE_NOTHING);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return sim_set_work(ret_work, (const CUDA_MEMSET_NODE_PARAMS *)&params->memset, context);
	case CU_GRAPH_NODE_TYPE_HOST:
		return host_work(ret_work, &params->host);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return sim_values_work(ret_work, params->memOp.count, params->memOp.paramArray);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return sim_graph_alloc_work(ret_work, params->alloc.bytesize);
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return sim_graph_free_work(ret_work, params->free.dptr);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		*ret_work = sim_work_new("a node that does nothing", params->type, sim_nothing);
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_GRAPH:
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		*ret_work = sim_work_new("graphs inside a node", params->type, sim_run_list);
		return CUDA_SUCCESS;
	default:
		return sim_why(CUDA_ERROR_NOT_SUPPORTED, "the model has no node of type %d", params->type);
	}
}

/* ---- adding nodes ---- */

static CUresult add_child(CUgraphNode node, CUgraph child)
{
	CUgraph clone = child && child->alive ? sim_graph_clone(child) : NULL;

	if (!clone)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "not a graph, or one that cannot be a child");
	node->inside = calloc(1, sizeof(CUgraph));
	node->inside[0] = clone;
	node->n_inside = 1;
	return CUDA_SUCCESS;
}

static CUresult add_bodies(CUgraphNode node, CUDA_CONDITIONAL_NODE_PARAMS *params)
{
	if (!params->handle || !params->size)
		return CUDA_ERROR_INVALID_VALUE;
	node->condition = params->handle;
	node->inside = calloc(params->size, sizeof(CUgraph));
	node->n_inside = params->size;
	for (unsigned i = 0; i < params->size; i++)
		node->inside[i] = sim_graph_new();
	params->phGraph_out = node->inside;
	return CUDA_SUCCESS;
}

static CUresult add_insides(CUgraphNode node, CUgraphNodeParams *params)
{
	switch (params->type) {
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return add_child(node, params->graph.graph);
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return add_bodies(node, &params->conditional);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		params->alloc.dptr = node->work->memory->block->range.start;
		return CUDA_SUCCESS;
	default:
		return CUDA_SUCCESS;
	}
}

static CUresult add_node(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *after, size_t n_after,
			 CUgraphNodeParams *params)
{
	bool good = ret_node && params && graph && graph->alive && (after || !n_after);
	struct sim_work *work;

	for (size_t i = 0; good && i < n_after; i++)
		good = sim_is_node(after[i]) && after[i]->graph == graph;
	if (!good)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "not a graph, or a dependency of another graph");
	CUresult result = sim_node_work(&work, params);
	if (result)
		return result;
	CUgraphNode node = sim_graph_add(graph, work, after, n_after);
	result = add_insides(node, params);
	if (result) {
		drop_node(node);
		graph->n_nodes--;
		return result;
	}
	*ret_node = node;
	return CUDA_SUCCESS;
}

struct sim_node_form sim_node_form(CUgraphNodeType type, const void *params, size_t bytes)
{
	struct sim_node_form form = {.good = params != NULL, .params = {.type = type}};

	if (params && type == CU_GRAPH_NODE_TYPE_MEMCPY)
		memcpy(&form.params.memcpy.copyParams, params, bytes);
	else if (params)
		memcpy(&form.params.kernel, params, bytes); /* all others begin where the union begins */
	return form;
}

static CUresult add(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *after, size_t n_after,
		    struct sim_node_form form)
{
	return add_node(ret_node, graph, after, n_after, form.good ? &form.params : NULL);
}

static CUresult add_memory(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *after, size_t n_after,
			   CUDA_MEM_ALLOC_NODE_PARAMS *alloc)
{
	struct sim_node_form form = sim_node_form(CU_GRAPH_NODE_TYPE_MEM_ALLOC, alloc, sizeof(*alloc));
	CUresult result = add_node(ret_node, graph, after, n_after, form.good ? &form.params : NULL);

	if (!result)
		alloc->dptr = form.params.alloc.dptr;
	return result;
}

CUresult sim_node_set(CUgraphNode node, const CUgraphNodeParams *params)
{
	struct sim_work *work;

	if (!sim_is_node(node) || !params || node->work->type != params->type || node->n_inside ||
	    is_of_memory(params->type))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = sim_node_work(&work, params);
	if (result)
		return result;
	sim_work_free(node->work);
	node->work = work;
	return CUDA_SUCCESS;
}

static CUresult set(CUgraphNode node, struct sim_node_form form)
{
	return sim_node_set(node, form.good ? &form.params : NULL);
}

static bool is_programmatic(const CUgraphEdgeData *edges, size_t i)
{
	return edges && edges[i].type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
}

static CUresult add_node_by(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *after,
			    const CUgraphEdgeData *edges, size_t n_after, CUgraphNodeParams *params)
{
	CUresult result = add_node(ret_node, graph, after, n_after, params);

	if (!result)
		(*ret_node)->overlaps = n_after == 1 && is_programmatic(edges, 0);
	return result;
}

/* A handle is the address of the value it starts with; no kernel of ours can change that. */
static CUresult condition(CUgraphConditionalHandle *ret_handle, unsigned value)
{
	unsigned *start = malloc(sizeof(*start));

	*start = value;
	*ret_handle = (uintptr_t)start;
	return CUDA_SUCCESS;
}

static CUresult add_edges(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *edges,
			  size_t n)
{
	if (!graph || !graph->alive || (n && (!from || !to)))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n; i++) {
		if (!sim_is_node(from[i]) || !sim_is_node(to[i]))
			return CUDA_ERROR_INVALID_VALUE;
		/* Among several edges the kernel waits for the others. */
		to[i]->overlaps = is_programmatic(edges, i) && !to[i]->n_after;
		to[i]->after = realloc(to[i]->after, (to[i]->n_after + 1) * sizeof(CUgraphNode));
		to[i]->after[to[i]->n_after++] = from[i];
	}
	return CUDA_SUCCESS;
}

static CUresult clone_graph(CUgraph *ret_clone, CUgraph graph)
{
	CUgraph made = ret_clone && graph && graph->alive ? sim_graph_clone(graph) : NULL;

	if (!made)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "not a graph, or one that cannot be cloned");
	*ret_clone = made;
	return CUDA_SUCCESS;
}

static CUresult destroy(CUgraph graph)
{
	if (!graph || !graph->alive)
		return CUDA_ERROR_INVALID_VALUE;
	sim_graph_free(graph);
	return CUDA_SUCCESS;
}

#define NODE_PARAMS        CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n
#define FORM(type, params) sim_node_form(CU_GRAPH_NODE_TYPE_##type, params, sizeof(*(params)))
SPELL_FREE(cuGraphCreate, (CUgraph * graph, unsigned flags),
	   flags ? CUDA_ERROR_INVALID_VALUE : SIM_ANSWER(graph, sim_graph_new()))
SPELL_FREE(cuGraphClone, (CUgraph * made, CUgraph graph), clone_graph(made, graph))
SPELL_FREE(cuGraphDestroy, (CUgraph graph), destroy(graph))
SPELL(cuGraphAddKernelNode, (NODE_PARAMS, const CUDA_KERNEL_NODE_PARAMS_v1 *params),
      add(node, graph, after, n, FORM(KERNEL, params)))
SPELL(cuGraphAddKernelNode_v2, (NODE_PARAMS, const CUDA_KERNEL_NODE_PARAMS *params),
      add(node, graph, after, n, FORM(KERNEL, params)))
SPELL(cuGraphAddMemcpyNode, (NODE_PARAMS, const CUDA_MEMCPY3D *copy, CUcontext context),
      ((void)context, add(node, graph, after, n, FORM(MEMCPY, copy))))
SPELL(cuGraphAddMemsetNode, (NODE_PARAMS, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context),
      ((void)context, add(node, graph, after, n, FORM(MEMSET, params))))
SPELL(cuGraphAddHostNode, (NODE_PARAMS, const CUDA_HOST_NODE_PARAMS *host),
      add(node, graph, after, n, FORM(HOST, host)))
SPELL(cuGraphAddBatchMemOpNode, (NODE_PARAMS, const CUDA_BATCH_MEM_OP_NODE_PARAMS *ops),
      add(node, graph, after, n, FORM(BATCH_MEM_OP, ops)))
SPELL(cuGraphAddChildGraphNode, (NODE_PARAMS, CUgraph child), add(node, graph, after, n, FORM(GRAPH, &child)))
SPELL(cuGraphAddMemAllocNode, (NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS *alloc),
      add_memory(node, graph, after, n, alloc))
SPELL(cuGraphAddMemFreeNode, (NODE_PARAMS, CUdeviceptr address), add(node, graph, after, n, FORM(MEM_FREE, &address)))
SPELL(cuGraphAddEmptyNode, (NODE_PARAMS), add(node, graph, after, n, FORM(EMPTY, (const char *)"")))
SPELL(cuGraphAddNode, (NODE_PARAMS, CUgraphNodeParams *params), add_node(node, graph, after, n, params))
SPELL(cuGraphAddNode_v2,
      (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges, size_t n,
       CUgraphNodeParams *params),
      add_node_by(node, graph, after, edges, n, params))
SPELL(cuGraphAddNode_v3,
      (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges, size_t n,
       CUgraphNodeParams *params),
      add_node_by(node, graph, after, edges, n, params))
SPELL(cuGraphConditionalHandleCreate,
      (CUgraphConditionalHandle * handle, CUgraph graph, CUcontext context, unsigned value, unsigned flags),
      ((void)graph, (void)context, (void)flags, condition(handle, value)))
SPELL_FREE(cuGraphAddDependencies, (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n),
	   add_edges(graph, from, to, NULL, n))
SPELL_FREE(cuGraphAddDependencies_v2,
	   (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *edges, size_t n),
	   add_edges(graph, from, to, edges, n))
SPELL(cuGraphKernelNodeSetParams, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params),
      set(node, FORM(KERNEL, params)))
SPELL(cuGraphKernelNodeSetParams_v2, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params),
      set(node, FORM(KERNEL, params)))
SPELL(cuGraphMemcpyNodeSetParams, (CUgraphNode node, const CUDA_MEMCPY3D *copy), set(node, FORM(MEMCPY, copy)))
SPELL(cuGraphMemsetNodeSetParams, (CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params),
      set(node, FORM(MEMSET, params)))
SPELL(cuGraphBatchMemOpNodeSetParams, (CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *ops),
      set(node, FORM(BATCH_MEM_OP, ops)))
SPELL_2(cuGraphNodeSetParams, (CUgraphNode node, CUgraphNodeParams *params), sim_node_set(node, params))
