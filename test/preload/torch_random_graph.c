// SPDX-License-Identifier: Apache-2.0
/* torch_random_graph.c: graphs of torch_random, each with a pool of its own. */
#include "test/preload/torch_random.h"

void graph_drop(struct worker *worker, struct graph *graph)
{
	if (!graph->exec)
		return;
	worker_settle(worker);
	tensor_check(worker, graph->sum);
	tensor_check(worker, graph->out);
	GO(cuGraphExecDestroy(graph->exec));
	GO(cuGraphExecDestroy(graph->other));
	graph->in->pins--;
	graph->sum->pins = graph->out->pins = 0;
	tensor_drop(worker, graph->sum);
	tensor_drop(worker, graph->out);
	torch->drop_pool(torch_cache, graph->pool);
	*graph = (struct graph){0};
}

/* What a launch does, in one buffer for what is in between. */
static void graph_apply(struct worker *worker, const struct graph *graph)
{
	size_t n = graph->in->bytes / 4;
	uint32_t *words = worker->words;

	kernel_apply(words, graph->in->shadow, n, graph->salt, false);
	kernel_apply(words, words, n, graph->salt + 1, false);
	kernel_apply(words, words, n, graph->salt + 2, false);
	kernel_apply(graph->sum->shadow, words, n, graph->salt + 3, true);
	kernel_apply(graph->out->shadow, words, n, graph->salt + 4, false);
}

/* A second thread captures at the same time, and names what the first one names. */
struct second {
	struct graph *graph;
	pthread_barrier_t both;
};

static void *capture_second(void *argument)
{
	struct second *second = argument;
	struct graph *graph = second->graph;
	CUstream stream;
	CUgraph made;

	GO(cuCtxSetCurrent(context));
	GO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	pthread_barrier_wait(&second->both);
	GO(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	kernel_submit(graph->sum, graph->in, graph->in->bytes / 4, graph->salt + 5, true, stream);
	GO(cuStreamEndCapture(stream, &made));
	GO(cuGraphInstantiateWithFlags(&graph->other, made, 0));
	GO(cuGraphDestroy(made));
	pthread_barrier_wait(&second->both);
	GO(cuStreamDestroy_v2(stream));
	return NULL;
}

/*
 * Captures it. Between input and outputs are three tensors, of which the third, or an output, takes the first one's
 * place.
 */
static void graph_capture(struct worker *worker, struct graph *graph)
{
	CUstream stream = worker->stream[0];
	size_t bytes = graph->in->bytes, n = bytes / 4;
	struct tensor *between[3];
	struct second second = {.graph = graph};
	pthread_t thread;
	CUgraph made;

	pthread_barrier_init(&second.both, NULL, 2);
	if (pthread_create(&thread, NULL, capture_second, &second))
		made_up_fail("no thread");
	torch->use_pool(torch_cache, graph->pool, true);
	worker->is_capturing = true;
	pthread_barrier_wait(&second.both);
	GO(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	between[0] = tensor_make(worker, graph->pool, 0, bytes);
	kernel_submit(between[0], graph->in, n, graph->salt, false, stream);
	between[1] = tensor_make(worker, graph->pool, 0, bytes);
	kernel_submit(between[1], between[0], n, graph->salt + 1, false, stream);
	tensor_drop(worker, between[0]);
	between[2] = tensor_make(worker, graph->pool, 0, bytes);
	kernel_submit(between[2], between[1], n, graph->salt + 2, false, stream);
	kernel_submit(graph->sum, between[2], n, graph->salt + 3, true, stream);
	graph->out = tensor_make(worker, graph->pool, 0, bytes);
	kernel_submit(graph->out, between[2], n, graph->salt + 4, false, stream);
	tensor_drop(worker, between[1]);
	tensor_drop(worker, between[2]);
	GO(cuStreamEndCapture(stream, &made));
	pthread_barrier_wait(&second.both); /* nothing is given back to the driver while it captures, too */
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&second.both);
	worker->is_capturing = false;
	torch->use_pool(torch_cache, 0, false);
	GO(cuGraphInstantiateWithFlags(&graph->exec, made, 0));
	GO(cuGraphDestroy(made));
}

static void graph_make(struct worker *worker, struct graph *graph)
{
	graph_drop(worker, graph);
	struct tensor *in = any_tensor(worker);
	if (in->pins || !has_room(worker, 5 * in->bytes) || in->pool == worker->slab_pool)
		return;
	worker_settle(worker);
	graph->pool = torch->new_pool(torch_cache, 0, 0);
	graph->salt = worker_below(worker, 1u << 30);
	graph->in = in;
	graph->sum = tensor_make(worker, graph->pool, 0, in->bytes);
	tensor_fill(worker, graph->sum, 0);
	worker_settle(worker);
	graph_capture(worker, graph);
	in->pins++;
	graph->sum->pins = graph->out->pins = 1;
	tensor_fill(worker, graph->out, 0);
	if (worker_below(worker, 2))
		tensor_die(worker, graph->sum);
}

void graph_play(struct worker *worker)
{
	struct graph *graph = &worker->graph[worker_below(worker, GRAPHS)];

	if (!graph->exec || !worker_below(worker, 8))
		graph_make(worker, graph);
	for (unsigned times = graph->exec ? 1 + worker_below(worker, 3) : 0; times; times--) {
		unsigned stream = any_stream(worker);

		tensor_order(worker, graph->in, stream);
		tensor_order(worker, graph->sum, stream);
		tensor_order(worker, graph->out, stream);
		graph_launch(worker, graph->exec, stream);
		graph_apply(worker, graph);
		if (worker_below(worker, 2))
			continue;
		graph_launch(worker, graph->other, stream);
		kernel_apply(graph->sum->shadow, graph->in->shadow, graph->in->bytes / 4, graph->salt + 5, true);
	}
}
