// SPDX-License-Identifier: Apache-2.0
/*
 * pdl_check: when does the driver say that work is done, if kernels overlap by programmatic dependent launch?
 *
 * A primary kernel lets its successor start at once and goes on for PRIMARY_MS. The successor, launched with the attribute
 * of programmatic stream serialization, returns without waiting for it. Then each way of learning that the stream is done
 * is asked whether it says so before the primary has ended:
 *
 *   event      an event recorded behind the successor        query    cudaStreamQuery
 *   context    an event of the whole context (cuCtxRecordEvent)
 *   other      a kernel on another stream that waits for the event
 *   kernel     a kernel behind the successor, without the attribute
 *   copy       a copy to the host behind the successor
 *
 * for chains of 1 to CHAIN successors, launched by the stream and in a graph made by capture. A row says whether kernels
 * did overlap (a row without overlap proves nothing), and "EARLY" where the answer came before the primary's end.
 *
 * `pdl_check cost MIB` allocates that many MiB first, for Spillway to spill, and prints what a launch costs the thread and
 * what a short kernel takes in a row of kernels that allow overlap, both in us.
 *
 * Build: nvcc -arch=sm_90 -o pdl_check pdl_check.cu -lcuda. Needs compute capability 9.0.
 * Exit status: 0 nothing came early, 1 something did, 2 a CUDA call failed or nothing overlapped, 77 no such GPU.
 */
#include <cuda.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PRIMARY_MS = 50, CHAIN = 3, TRIALS = 5 };

#define CHECK(call)                                                                                                    \
	do {                                                                                                           \
		cudaError_t check_error = (call);                                                                      \
		if (check_error != cudaSuccess) {                                                                      \
			fprintf(stderr, "pdl_check: %s: %s\n", #call, cudaGetErrorString(check_error));                \
			exit(2);                                                                                       \
		}                                                                                                      \
	} while (0)

/* In host memory that the GPU writes: what has happened, as times of the GPU's own clock in ns; 0: not yet. */
struct seen {
	volatile uint64_t primary_began, primary_ended, successor[CHAIN], probe, copied;
};

static __device__ uint64_t now(void)
{
	uint64_t time;

	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
	return time;
}

static __global__ void primary(struct seen *seen)
{
	uint64_t began = now();

	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
	seen->primary_began = began;
	while (now() - began < PRIMARY_MS * 1000000ull)
		;
	seen->primary_ended = now();
	__threadfence_system();
}

/* Does not wait for what came before it. */
static __global__ void successor(struct seen *seen, int i)
{
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
	seen->successor[i] = now();
	__threadfence_system();
}

static __global__ void probe(struct seen *seen)
{
	seen->probe = now();
	__threadfence_system();
}

static __global__ void copy_primary(uint64_t *to, const struct seen *seen)
{
	*to = seen->primary_ended;
}

static void launch_successor(cudaStream_t stream, struct seen *seen, int i)
{
	cudaLaunchAttribute attribute = {};
	cudaLaunchConfig_t config = {};

	attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	attribute.val.programmaticStreamSerializationAllowed = 1;
	config.gridDim = config.blockDim = dim3(1);
	config.stream = stream;
	config.attrs = &attribute;
	config.numAttrs = 1;
	CHECK(cudaLaunchKernelEx(&config, successor, seen, i));
}

static void launch_chain(cudaStream_t stream, struct seen *seen, int n, bool event_between, cudaEvent_t between)
{
	primary<<<1, 1, 0, stream>>>(seen);
	for (int i = 0; i < n; i++) {
		if (event_between)
			CHECK(cudaEventRecord(between, stream));
		launch_successor(stream, seen, i);
	}
}

enum way { BY_EVENT, BY_QUERY, BY_CONTEXT, BY_OTHER, BY_KERNEL, BY_COPY, WAYS };
static const char *const way_names[] = {"event", "query", "context", "other", "kernel", "copy"};
static const char *const how_names[] = {"stream", "stream, events between", "graph"};

struct outcome {
	unsigned early, overlapped, trials;
};

static cudaStream_t stream, second;
static cudaEvent_t event, between;
static struct seen *seen;
static uint64_t *device_word;

static bool is_said(enum way way)
{
	cudaError_t error = cudaErrorNotReady;

	if (way == BY_QUERY)
		error = cudaStreamQuery(stream);
	else if (way == BY_EVENT || way == BY_CONTEXT)
		error = cudaEventQuery(event);
	else
		return seen->probe != 0 || seen->copied != 0;
	if (error != cudaSuccess && error != cudaErrorNotReady)
		CHECK(error);
	return error == cudaSuccess;
}

static void submit_probe(enum way way)
{
	switch (way) {
	case BY_EVENT: CHECK(cudaEventRecord(event, stream)); break;
	case BY_CONTEXT: {
		CUcontext context;

		cuCtxGetCurrent(&context);
		if (cuCtxRecordEvent(context, event) != CUDA_SUCCESS)
			exit(2);
		break;
	}
	case BY_OTHER:
		CHECK(cudaEventRecord(event, stream));
		CHECK(cudaStreamWaitEvent(second, event, 0));
		probe<<<1, 1, 0, second>>>(seen);
		break;
	case BY_KERNEL: probe<<<1, 1, 0, stream>>>(seen); break;
	case BY_COPY:
		CHECK(cudaMemcpyAsync((void *)&seen->copied, device_word, sizeof(uint64_t), cudaMemcpyDeviceToHost,
				      stream));
		break;
	default: break;
	}
}

/* how: 0 by the stream, 1 with an event recorded behind each kernel, 2 in a graph. */
static void try_one(enum way way, int how, int chain, struct outcome *outcome)
{
	cudaGraph_t graph = NULL;
	cudaGraphExec_t exec = NULL;

	CHECK(cudaDeviceSynchronize());
	*seen = (struct seen){};
	uint64_t one = 1;
	CHECK(cudaMemcpy(device_word, &one, sizeof(one), cudaMemcpyHostToDevice));
	if (how == 2) {
		CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
		launch_chain(stream, seen, chain, false, NULL);
		CHECK(cudaStreamEndCapture(stream, &graph));
		CHECK(cudaGraphInstantiate(&exec, graph, 0));
		CHECK(cudaGraphLaunch(exec, stream));
	} else {
		launch_chain(stream, seen, chain, how == 1, between);
	}
	submit_probe(way);
	while (!is_said(way))
		;
	bool ended = seen->primary_ended != 0;
	CHECK(cudaDeviceSynchronize());
	bool overlapped = true;
	for (int i = 0; i < chain; i++)
		overlapped &= seen->successor[i] < seen->primary_ended;
	outcome->early += !ended;
	outcome->overlapped += overlapped;
	outcome->trials++;
	if (exec)
		CHECK(cudaGraphExecDestroy(exec));
	if (graph)
		CHECK(cudaGraphDestroy(graph));
}

/* What a capture of two kernels makes of the attribute, and what the question without room for edge data answers. */
static void print_edges(void)
{
	CUgraphNode from[2], to[2];
	CUgraphEdgeData edges[2] = {};
	cudaGraph_t graph;
	size_t n = 2, more = 2;

	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	launch_chain(stream, seen, 1, false, NULL);
	CHECK(cudaStreamEndCapture(stream, &graph));
	CUresult result = cuGraphGetEdges(graph, from, to, edges, &n);
	CUresult lossy = cuGraphGetEdges(graph, from, to, NULL, &more);
	printf("pdl_check: captured edge: result %d, %zu edges, type %d, ports %d to %d; without edge data: result %d\n",
	       (int)result, n, (int)edges[0].type, edges[0].from_port, edges[0].to_port, (int)lossy);
	CHECK(cudaGraphDestroy(graph));
}

static double seconds(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Rows short enough that the queue of launches is never full. */
static void measure_cost(size_t mib)
{
	enum { ROW = 500, ROWS = 40 };
	double launching = 0, running = 0;
	void *ballast = NULL;

	if (mib)
		CHECK(cudaMalloc(&ballast, mib << 20));
	for (int row = -5; row < ROWS; row++) {
		CHECK(cudaDeviceSynchronize());
		double start = seconds();
		for (int i = 0; i < ROW; i++)
			launch_successor(stream, seen, 0);
		double launched = seconds();
		CHECK(cudaStreamSynchronize(stream));
		if (row >= 0) {
			launching += launched - start;
			running += seconds() - start;
		}
	}
	printf("cost launch %.3f %.3f\n", launching / ROW / ROWS * 1e6, running / ROW / ROWS * 1e6);
	CHECK(cudaFree(ballast));
}

int main(int argc, char **argv)
{
	struct cudaDeviceProp properties;
	unsigned early = 0, overlapped = 0;

	if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess || properties.major < 9) {
		printf("pdl_check: no GPU of compute capability 9.0 or more\n");
		return 77;
	}
	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
	CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	CHECK(cudaEventCreateWithFlags(&between, cudaEventDisableTiming));
	CHECK(cudaHostAlloc((void **)&seen, sizeof(*seen), cudaHostAllocMapped));
	CHECK(cudaMalloc((void **)&device_word, sizeof(*device_word)));
	/* Every kernel is loaded before it is timed. */
	successor<<<1, 1, 0, stream>>>(seen, 0);
	probe<<<1, 1, 0, stream>>>(seen);
	copy_primary<<<1, 1, 0, stream>>>(device_word, seen);
	primary<<<1, 1, 0, stream>>>(seen);
	CHECK(cudaDeviceSynchronize());

	if (argc > 2 && !strcmp(argv[1], "cost")) {
		measure_cost((size_t)atoi(argv[2]));
		return 0;
	}
	print_edges();
	printf("%-24s %-6s %-8s %-12s %s\n", "submitted by", "chain", "asked by", "overlapped", "said before the primary's end");
	for (int how = 0; how < 3; how++)
		for (int chain = 1; chain <= CHAIN; chain += CHAIN - 1)
			for (int way = 0; way < WAYS; way++) {
				struct outcome outcome = {};

				for (int i = 0; i < TRIALS; i++)
					try_one((enum way)way, how, chain, &outcome);
				printf("%-24s %-6d %-8s %u of %-7u %u of %u%s\n", how_names[how], chain, way_names[way],
				       outcome.overlapped, outcome.trials, outcome.early, outcome.trials,
				       outcome.early ? "  EARLY" : "");
				early += outcome.early;
				overlapped += outcome.overlapped;
			}
	printf("pdl_check: %s; kernels overlapped in %u trials\n",
	       early ? "work was said to be done that was not" : "nothing was said too early", overlapped);
	return !overlapped ? 2 : early ? 1 : 0;
}
