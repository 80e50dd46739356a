// SPDX-License-Identifier: Apache-2.0
/*
 * random_graph.c: captures and graphs of spill_random (random.h). Some operations are captured on a non-blocking
 * stream, the last of them perhaps on a branch, while other threads go on; the graph is launched a few times, its
 * instance destroyed while it may still run. Another thread's capture is no reason to wait, but for cuCtxSynchronize.
 */
#include "test/preload/random.h"

static bool names(const struct op *op, const struct block *block)
{
	if (op->hidden) {
		for (unsigned i = 0; i < op->hidden->n; i++)
			if (op->hidden->target[i].block == block)
				return true;
		return op->hidden->table == block;
	}
	return op->to == block || op->from == block;
}

/* Do the two touch a block in common? Shared ones are only read. */
static bool conflict(const struct op *a, const struct op *b)
{
	if (a->hidden) {
		for (unsigned i = 0; i < a->hidden->n; i++)
			if (names(b, a->hidden->target[i].block))
				return true;
		return names(b, a->hidden->table);
	}
	return names(b, a->to) || (a->from && a->from->owner != THREADS_MAX && names(b, a->from));
}

/* As many of the last operations as conflict with none of the others are the branch. */
static void find_branch(struct graph *graph)
{
	unsigned n = graph->n;

	while (n > 1) {
		bool free = true;

		for (unsigned i = 0; i < n - 1 && free; i++)
			for (unsigned j = n - 1; j < graph->n && free; j++)
				free = !conflict(&graph->op[i], &graph->op[j]);
		if (!free)
			break;
		n--;
	}
	graph->n_left = n;
}

static void make(struct worker *worker, struct graph *graph)
{
	graph->n = 2 + random_below(worker, 14);
	graph->host = NULL;
	for (unsigned i = 0; i < graph->n; i++) {
		struct op *op = &graph->op[i];

		op_make(worker, op, true);
		op_pin(op, 1);
		if (op->kind != OP_HTOD_PINNED && op->kind != OP_HOST_FUNCTION)
			continue;
		/* Each with pinned memory of its own, that does not change: one is enough for a graph. */
		if (graph->host) {
			op->kind = OP_SET32;
			continue;
		}
		GO(cuMemHostAlloc(&graph->host, RING_BYTES, CU_MEMHOSTALLOC_PORTABLE));
		op->kind = OP_HTOD_PINNED;
		op->host = graph->host;
		kernel_fill(graph->host, op->words, op->salt);
	}
	graph->n_left = graph->n;
	if (random_one_in(worker, 2))
		find_branch(graph);
}

static void capture(struct worker *worker, struct graph *graph)
{
	CUstream stream = worker->slot[SLOT_FREE].handle, side = worker->slot[SLOT_FREE + 1].handle;
	CUstreamCaptureMode mode = made_up.threads == 1 && random_one_in(worker, 2)
				       ? CU_STREAM_CAPTURE_MODE_GLOBAL
				       : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
	unsigned pauses = random_one_in(worker, 2) ? 0 : random_below(worker, 200);
	CUgraph made;

	if (random_one_in(worker, 3))
		mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	pthread_rwlock_rdlock(&random_captures);
	GO(cuStreamBeginCapture_v2(stream, mode));
	if (graph->n_left < graph->n) {
		GO(cuEventRecord(worker->fork, stream));
		GO(cuStreamWaitEvent(side, worker->fork, 0));
	}
	for (unsigned i = 0; i < graph->n; i++) {
		op_submit(worker, &graph->op[i], i < graph->n_left ? stream : side, SLOT_FREE);
		worker->submitted--; /* it is one with each launch */
	}
	for (; pauses; pauses--)
		sched_yield();
	if (graph->n_left < graph->n) {
		GO(cuEventRecord(worker->join, side));
		GO(cuStreamWaitEvent(stream, worker->join, 0));
	}
	GO(cuStreamEndCapture(stream, &made));
	pthread_rwlock_unlock(&random_captures);
	GO(cuGraphInstantiateWithFlags(&graph->exec, made, 0));
	GO(cuGraphDestroy(made));
}

/* A chain of launches, built node by node. */
static void build(struct worker *worker, struct graph *graph)
{
	CUgraph made;

	graph->host = NULL;
	graph->n = graph->n_left = 2 + random_below(worker, 6);
	GO(cuGraphCreate(&made, 0));
	for (unsigned i = 0; i < graph->n; i++) {
		struct op_params params;

		op_make_launch(worker, &graph->op[i]);
		op_pin(&graph->op[i], 1);
		op_params(&graph->op[i], &params);
		CUDA_KERNEL_NODE_PARAMS node = form_kernel(kernel_function[KERNEL_MIX], params.at, NULL);
		GO(cuGraphAddKernelNode_v2(&graph->node[i], made, i ? &graph->node[i - 1] : NULL, i > 0, &node));
	}
	GO(cuGraphInstantiateWithFlags(&graph->exec, made, 0));
	graph->built = made;
}

/* One launch of the instance works on other blocks from now on. */
static void change(struct worker *worker, struct graph *graph)
{
	unsigned i = random_below(worker, graph->n);
	CUDA_KERNEL_NODE_PARAMS node;
	struct op_params params;

	GO(cuGraphKernelNodeGetParams_v2(graph->node[i], &node));
	op_pin(&graph->op[i], -1);
	op_make_launch(worker, &graph->op[i]);
	op_pin(&graph->op[i], 1);
	op_params(&graph->op[i], &params);
	node.kernelParams = params.at;
	node.extra = NULL;
	GO(cuGraphExecKernelNodeSetParams_v2(graph->exec, graph->node[i], &node));
}

static void replay(struct worker *worker, struct graph *graph)
{
	unsigned slot = random_below(worker, SLOTS);

	for (unsigned i = 0; i < graph->n; i++)
		if (graph->op[i].hidden)
			hidden_renew(worker, graph->op[i].hidden, slot);
	for (unsigned i = 0; i < graph->n; i++)
		op_order(worker, &graph->op[i], slot);
	GO(cuGraphLaunch(graph->exec, worker->slot[slot].handle));
	for (unsigned i = 0; i < graph->n; i++) {
		op_apply(worker, &graph->op[i]);
		op_submitted(worker);
	}
	worker->slot[slot].n++;
}

void graph_play(struct worker *worker)
{
	struct graph graph;
	struct op between;

	graph.built = NULL;
	if (random_one_in(worker, 3)) {
		build(worker, &graph);
	} else {
		make(worker, &graph);
		capture(worker, &graph);
	}
	for (unsigned times = 1 + random_below(worker, 12); times; times--) {
		replay(worker, &graph);
		if (graph.built && random_one_in(worker, 2))
			change(worker, &graph);
		if (random_one_in(worker, 2))
			continue;
		op_make(worker, &between, false);
		op_run(worker, &between);
	}
	for (unsigned i = 0; i < graph.n; i++)
		op_pin(&graph.op[i], -1);
	GO(cuGraphExecDestroy(graph.exec));
	if (graph.built)
		GO(cuGraphDestroy(graph.built));
	if (graph.host)
		GO(cuMemFreeHost(graph.host)); /* waits for what may still read it */
	worker->n_captures++;
}
