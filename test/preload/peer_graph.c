// SPDX-License-Identifier: Apache-2.0
/*
 * peer_graph.c: graphs of peer_random (peers.h): captured across streams of several devices, which events join, or
 * built of kernels of several devices; launched again and again by lanes of any device, and changed between launches.
 */
#include "test/preload/peers.h"

/* ---- capturing ---- */

static void wait_in_capture(struct worker *worker, unsigned lane, unsigned other)
{
	lane_be(worker, other);
	GO(cuEventRecord(worker->lane[other].fork, worker->lane[other].stream));
	lane_be(worker, lane);
	GO(cuStreamWaitEvent(worker->lane[lane].stream, worker->lane[other].fork, 0));
}

/* The lane takes part from now on, and its next operation comes after those before it that conflict with it. */
static void join_for(struct worker *worker, const struct graph *graph, unsigned i, uint64_t *joined)
{
	unsigned lane = graph->op[i].lane;
	uint64_t waited = 0;

	if (!(*joined >> lane & 1))
		wait_in_capture(worker, lane, graph->op[0].lane);
	*joined |= (uint64_t)1 << lane;
	for (unsigned j = graph->chain && i ? i - 1 : 0; j < i; j++) {
		unsigned other = graph->op[j].lane;

		if (other == lane || (waited >> other & 1) ||
		    (!graph->chain && !op_conflict(&graph->op[j], &graph->op[i])))
			continue;
		waited |= (uint64_t)1 << other;
		wait_in_capture(worker, lane, other);
	}
}

static CUgraph capture(struct worker *worker, const struct graph *graph)
{
	unsigned origin = graph->op[0].lane;
	uint64_t joined = (uint64_t)1 << origin;
	CUstreamCaptureMode mode =
	    peers_one_in(worker, 2) ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL : CU_STREAM_CAPTURE_MODE_RELAXED;
	CUgraph made;

	lane_be(worker, origin);
	GO(cuStreamBeginCapture_v2(worker->lane[origin].stream, mode));
	for (unsigned i = 0; i < graph->n; i++) {
		join_for(worker, graph, i, &joined);
		op_submit(worker, &graph->op[i]);
	}
	for (unsigned lane = 0; lane < LANES; lane++)
		if (lane != origin && (joined >> lane & 1))
			wait_in_capture(worker, origin, lane);
	lane_be(worker, origin);
	GO(cuStreamEndCapture(worker->lane[origin].stream, &made));
	return made;
}

/* ---- building ---- */

static void fill_node(const struct worker *worker, const struct op *op, struct op_params *params,
		      CUDA_KERNEL_NODE_PARAMS *ret_node)
{
	op_params(op, params);
	*ret_node = form_kernel(op_functions(worker, op->lane)->mix, params->at, worker->lane[op->lane].context);
}

/* Each after those before it that conflict with it. */
static void build(struct worker *worker, struct graph *graph)
{
	GO(cuGraphCreate(&graph->built, 0));
	for (unsigned i = 0; i < graph->n; i++) {
		CUDA_KERNEL_NODE_PARAMS node;
		struct op_params params;

		fill_node(worker, &graph->op[i], &params, &node);
		lane_be(worker, graph->op[i].lane);
		GO(cuGraphAddKernelNode_v2(&graph->node[i], graph->built, i ? &graph->node[i - 1] : NULL, i > 0,
					   &node));
	}
}

/* ---- making, launching, changing, dropping ---- */

void graph_make(struct worker *worker)
{
	struct graph *graph;
	bool kernels = peers_one_in(worker, 2), by_hand = kernels && peers_one_in(worker, 2);

	if (worker->n_graphs == GRAPHS)
		return;
	graph = calloc(1, sizeof(*graph));
	graph->chain = kernels;
	for (unsigned wanted = 2 + peers_below(worker, GRAPH_OPS - 2); graph->n < wanted; graph->n++)
		if (!op_make(worker, &graph->op[graph->n], kernels ? OP_KERNEL : OP_OF_GRAPH))
			break;
	if (!graph->n) {
		free(graph);
		return;
	}
	for (unsigned i = 0; i < graph->n; i++)
		op_pin(&graph->op[i], 1);
	if (by_hand)
		build(worker, graph);
	CUgraph made = by_hand ? graph->built : capture(worker, graph);
	GO(cuGraphInstantiateWithFlags(&graph->exec, made, 0));
	if (!by_hand)
		GO(cuGraphDestroy(made));
	worker->graph[worker->n_graphs++] = graph;
}

/* What it needs may have been taken away since. */
static bool may_launch(const struct worker *worker, const struct graph *graph)
{
	for (unsigned i = 0; i < graph->n; i++)
		if (!op_may(worker, &graph->op[i]))
			return false;
	return true;
}

static void launch(struct worker *worker, struct graph *graph)
{
	unsigned lane = lane_of(worker, (int)peers_below(worker, (size_t)world.devices));

	if (!may_launch(worker, graph))
		return;
	for (unsigned i = 0; i < graph->n; i++)
		op_order(worker, &graph->op[i], lane);
	lane_be(worker, lane);
	GO(cuGraphLaunch(graph->exec, worker->lane[lane].stream));
	for (unsigned i = 0; i < graph->n; i++)
		op_apply(&graph->op[i]);
	lane_submitted(worker, lane);
}

/* One kernel of the instance works on other blocks from now on, or all of them do. */
static void change(struct worker *worker, struct graph *graph)
{
	unsigned one = peers_below(worker, graph->n);
	CUgraphExecUpdateResultInfo info;
	CUDA_KERNEL_NODE_PARAMS node;
	struct op_params params;

	for (unsigned i = graph->built ? one : 0; i < (graph->built ? one + 1 : graph->n); i++) {
		struct op op = graph->op[i];

		if (!op_change_blocks(worker, &op))
			continue;
		op_pin(&graph->op[i], -1);
		op_pin(&op, 1);
		graph->op[i] = op;
	}
	if (graph->built) {
		fill_node(worker, &graph->op[one], &params, &node);
		lane_be(worker, graph->op[one].lane);
		GO(cuGraphExecKernelNodeSetParams_v2(graph->exec, graph->node[one], &node));
		return;
	}
	CUgraph made = capture(worker, graph);
	GO(cuGraphExecUpdate_v2(graph->exec, made, &info));
	GO(cuGraphDestroy(made));
}

void graph_drop(struct worker *worker, unsigned index)
{
	struct graph *graph = worker->graph[index];

	for (unsigned i = 0; i < graph->n; i++)
		op_pin(&graph->op[i], -1);
	lane_be(worker, lane_any(worker));
	GO(cuGraphExecDestroy(graph->exec)); /* what was launched goes on */
	if (graph->built)
		GO(cuGraphDestroy(graph->built));
	free(graph);
	worker->graph[index] = worker->graph[--worker->n_graphs];
}

void graph_play(struct worker *worker)
{
	if (!worker->n_graphs)
		return;
	unsigned index = peers_below(worker, worker->n_graphs);
	struct graph *graph = worker->graph[index];
	if (peers_one_in(worker, 12))
		graph_drop(worker, index);
	else if (graph->chain && peers_one_in(worker, 4))
		change(worker, graph);
	else
		launch(worker, graph);
}
