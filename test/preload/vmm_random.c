// SPDX-License-Identifier: Apache-2.0
/*
 * vmm_random.c: a program that is made up from a seed and makes its memory itself, as PyTorch's expandable segments
 * do: reservations with handles of one size each, which grow and shrink, sleep and wake with other handles at the same
 * addresses, have aliases, and have memory of cuMemAlloc beside them. Kernels, copies, sets and graphs on several
 * streams touch spans of many handles.
 *
 *   vmm_random [made_up.h] [--also ACTIONS]
 *
 * ACTIONS are those of the table below, for which the policy is vmm_random.yaml. What every word must be is known from
 * a shadow of each handle; any two operations on one handle are in order, by events.
 */
#include "test/preload/vmm_random.h"
#include "test/sim/sim.h"

struct made_up made_up = {"vmm_random", .seed = 1,         .operations = 1500,
			  .threads = 2, .bytes = 64 * MIB, .deadline = 100};
static CUcontext context;

/* ---- graphs ---- */

static void graph_drop(struct graph *graph)
{
	if (!graph->n)
		return;
	GO(cuGraphExecDestroy(graph->exec));
	graph->n = 0;
}

/* Runs it if all that it names is mapped, by whatever memory. */
static void graph_run(struct worker *worker, struct graph *graph, unsigned stream)
{
	for (unsigned i = 0; i < graph->n; i++) {
		const struct op *op = &graph->op[i];

		if (!span_is_mapped(&op->to) || (op->from.words && !span_is_mapped(&op->from)) || !op_is_defined(op))
			return;
	}
	for (unsigned i = 0; i < graph->n; i++)
		op_order(worker, &graph->op[i], stream);
	GO(cuGraphLaunch(graph->exec, worker->stream[stream]));
	for (unsigned i = 0; i < graph->n; i++)
		op_apply(worker, &graph->op[i], graph->host);
}

static void graph_make(struct worker *worker, struct graph *graph)
{
	CUstream stream = worker->stream[0];
	CUgraph made;

	worker_settle(worker);
	graph_drop(graph);
	/* Blocks come and go: not in graphs, which would outlive their addresses. */
	for (int tries = 0; tries < 40 && graph->n < GRAPH_OPS; tries++) {
		struct op *op = &graph->op[graph->n];

		if (op_make(worker, op) && !op->to.segment->block && !(op->from.words && op->from.segment->block))
			graph->n++;
	}
	if (!graph->n)
		return;
	GO(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	for (unsigned i = 0; i < graph->n; i++)
		op_submit(&graph->op[i], stream, graph->host);
	GO(cuStreamEndCapture(stream, &made));
	GO(cuGraphInstantiateWithFlags(&graph->exec, made, 0));
	GO(cuGraphDestroy(made));
}

static void graph_play(struct worker *worker)
{
	struct graph *graph = &worker->graph[worker_below(worker, GRAPHS)];

	if (!graph->n || !worker_below(worker, 4))
		graph_make(worker, graph);
	for (unsigned times = graph->n ? 1 + worker_below(worker, 3) : 0; times; times--)
		graph_run(worker, graph, worker_below(worker, STREAMS));
}

/* ---- what --also names ---- */

static struct {
	const char *name;
	void (*play)(struct worker *worker);
} also[] = {{"known", known_play}, {"ask", ask_play}, {"stray", stray_play}, {"grow", grow_play}};
enum { ALSO = sizeof(also) / sizeof(also[0]) };
static unsigned n_also; /* so many of them are asked for, and stand first */

static bool read_also(char *list)
{
	for (char *word = strtok(list, ","); word; word = strtok(NULL, ",")) {
		unsigned i = n_also;

		while (i < ALSO && strcmp(also[i].name, word) != 0)
			i++;
		if (i == ALSO)
			return false;
		__typeof__(also[0]) first = also[n_also];
		also[n_also++] = also[i];
		also[i] = first;
	}
	return true;
}

/* ---- the whole ---- */

static void at_random(struct worker *worker)
{
	struct span span;
	struct op op;

	if (n_also && !worker_below(worker, 6)) {
		also[worker_below(worker, n_also)].play(worker);
		return;
	}
	switch (worker_below(worker, 12)) {
	case 0:
		worker_change(worker);
		break;
	case 1:
		graph_play(worker);
		break;
	case 2:
		if (span_make(worker, &span, 0))
			span_check(worker, &span);
		break;
	default:
		if (op_make(worker, &op))
			op_run(worker, &op);
		break;
	}
}

/* As training does: the same again and again, in which the library finds what comes next. */
static unsigned long again_and_again(struct worker *worker)
{
	unsigned n = 0, times = 4 + worker_below(worker, 8);
	struct op op[STEP];

	for (int tries = 0; tries < 4 * STEP && n < STEP; tries++)
		n += op_make(worker, &op[n]);
	for (unsigned i = 0; i < times; i++)
		for (unsigned j = 0; j < n; j++)
			op_run(worker, &op[j]);
	return (unsigned long)n * times;
}

static void open_worker(struct worker *worker)
{
	static const size_t piece[SEGMENTS] = {2 * MIB, 2 * MIB, 8 * MIB, 4 * MIB, 1 * MIB};
	const size_t largest = SLOTS * 8 * MIB;

	GO(cuCtxSetCurrent(context));
	for (unsigned i = 0; i < STREAMS; i++)
		GO(cuStreamCreate(&worker->stream[i], CU_STREAM_NON_BLOCKING));
	GO(cuEventCreate(&worker->event, CU_EVENT_DISABLE_TIMING));
	GO(cuMemHostAlloc((void **)&worker->pinned, MIB, CU_MEMHOSTALLOC_PORTABLE));
	for (unsigned i = 0; i < SEGMENTS; i++) {
		worker->segment[i].piece = piece[i];
		worker->segment[i].block = i == SEGMENTS - 1;
		if (!worker->segment[i].block)
			GO(cuMemAddressReserve(&worker->segment[i].at, SLOTS * piece[i], 0, 0, 0));
	}
	for (unsigned i = 0; i < GRAPHS; i++) {
		GO(cuMemHostAlloc((void **)&worker->graph[i].host, MIB, CU_MEMHOSTALLOC_PORTABLE));
		for (size_t j = 0; j < MIB / 4; j++)
			worker->graph[i].host[j] = worker_below(worker, 1u << 30);
	}
	worker->buffer = malloc(largest);
	worker->other = malloc(largest);
	/* As much as it may have, to begin with. */
	for (unsigned i = 0; i < 40; i++)
		segment_grow(worker, &worker->segment[i % (SEGMENTS - 1)]);
}

static void close_worker(struct worker *worker)
{
	worker_settle(worker);
	for (unsigned i = 0; i < GRAPHS; i++) {
		graph_drop(&worker->graph[i]);
		GO(cuMemFreeHost(worker->graph[i].host));
	}
	for (unsigned s = 0; s < SEGMENTS; s++) {
		struct segment *segment = &worker->segment[s];

		if (segment->block) {
			if (segment->slot[0])
				block_change(worker, segment);
			continue;
		}
		for (unsigned i = 0; i < SLOTS; i++)
			if (segment->slot[i])
				segment_unmap(worker, segment, i, 1);
		GO(cuMemAddressFree(segment->at, SLOTS * segment->piece));
	}
	if (worker->live)
		made_up_fail("worker %u: %zu bytes are left", worker->id, worker->live);
	GO(cuMemFreeHost(worker->pinned));
	free(worker->buffer);
	free(worker->other);
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	unsigned long done = 0, quota = made_up.operations / made_up.threads;

	open_worker(worker);
	while (done < quota) {
		for (unsigned i = 0; i < 60; i++, done++)
			at_random(worker);
		done += again_and_again(worker);
		worker_check(worker);
	}
	close_worker(worker);
	return NULL;
}

int main(int argc, char **argv)
{
	static struct worker workers[THREADS_MAX];
	static const struct made_up_option own[] = {{"also", .read = read_also}, {NULL}};

	made_up_begin(argc, argv, own, THREADS_MAX, 16 * MIB);
	printf("vmm_random: seed %lu, %lu operations\n", (unsigned long)made_up.seed, made_up.operations);
	fflush(stdout);
	GO(cuInit(0));
	GO(cuDevicePrimaryCtxRetain(&context, 0));
	GO(cuCtxSetCurrent(context));
	op_prepare();
	for (unsigned i = 0; i < made_up.threads; i++) {
		workers[i].id = i;
		workers[i].random = made_up_chance(i);
		workers[i].share = made_up.bytes / made_up.threads;
	}
	made_up_start(work, workers, sizeof(workers[0]));
	made_up_join();
	made_up_check();
	return 0;
}
