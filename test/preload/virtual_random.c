/*
 * virtual_random.c: a program that is made up from a seed and makes its memory itself, as PyTorch's expandable segments
 * do: reservations with handles of one size each, which grow and shrink, sleep and wake with other handles at the same
 * addresses, have aliases, and have memory of cuMemAlloc beside them. Kernels, copies, sets and graphs on several streams
 * touch spans of many handles.
 *
 *   virtual_random [--seed N] [--operations N] [--threads N] [--bytes MIB] [--deadline SECONDS]
 *                  [--trouble KINDS]
 *
 * KINDS are those of trouble.h, which befall the process beside its work. VIRTUAL_SEED and VIRTUAL_OPERATIONS in the environment say so for all runs of it. What every word must be is known from
 * a shadow of each handle; any two operations on one handle are in order, by events. Ends with 0, or with 1 and the first
 * word that is wrong, or what the driver refused; 2: usage.
 */
#include "test/preload/trouble.h"
#include "test/sim/sim.h"

#include <cuda.h>
#include <getopt.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

enum {
	STREAMS = 3,
	SEGMENTS = 5,
	SLOTS = 32,  /* of a segment */
	PIECES = 64, /* of a span */
	STEP = 24,   /* operations that are repeated */
	GRAPHS = 4,
	GRAPH_OPS = 6,
	THREADS_MAX = 4,
};

/* Physical memory, or a block of cuMemAlloc. */
struct memory {
	CUmemGenericAllocationHandle handle;
	size_t bytes;
	uint32_t *shadow;
	unsigned slots; /* where it is mapped */
	bool released;
	unsigned stream; /* of the last operation on it */
};
struct segment {
	CUdeviceptr at;
	size_t piece; /* bytes of each handle */
	bool block;   /* of cuMemAlloc: all of it or nothing */
	struct memory *slot[SLOTS];
};
struct span {
	struct segment *segment;
	size_t start, words; /* in words from the segment's start */
};
enum kind { MIX, COPY_KERNEL, SET32, SET8, COPY, UPLOAD, KINDS };
struct op {
	enum kind kind;
	unsigned stream;
	struct span to, from; /* from.words is 0 where there is none */
	uint32_t salt;
};
struct graph {
	CUgraphExec exec;
	struct op op[GRAPH_OPS];
	unsigned n;
	uint32_t *host; /* what its uploads read */
};
struct worker {
	pthread_t thread;
	unsigned id;
	uint64_t random;
	CUstream stream[STREAMS];
	CUevent event;
	struct segment segment[SEGMENTS];
	struct graph graph[GRAPHS];
	uint32_t *pinned, *buffer, *other;
	size_t live, share; /* bytes of handles there are, and may be */
};

static struct {
	uint64_t seed;
	unsigned long operations;
	unsigned threads, deadline;
	size_t bytes;
} options = {.seed = 1, .operations = 1500, .threads = 2, .bytes = 64 * MIB, .deadline = 100};
static CUcontext context;
static CUfunction mix_function;

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...)
{
	va_list list;

	fprintf(trouble_errors, "virtual_random: seed %lu: ", (unsigned long)options.seed);
	va_start(list, format);
	vfprintf(trouble_errors, format, list);
	va_end(list);
	fprintf(trouble_errors, "\n");
	_exit(1);
}

#define GO(call)                                                                                                       \
	do {                                                                                                           \
		CUresult result_ = (call);                                                                             \
		if (result_ != CUDA_SUCCESS)                                                                           \
			fail("line %d: %s: CUDA error %d", __LINE__, #call, result_);                                  \
	} while (0)

static uint32_t below(struct worker *worker, uint32_t n)
{
	worker->random = worker->random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(worker->random >> 33) % n;
}

/* ---- the kernel ---- */

static void mix(uint32_t *to, const uint32_t *from, size_t n, uint32_t salt)
{
	for (size_t i = 0; i < n; i++)
		to[i] = (from ? from[i] : to[i] * 2654435761u) + salt + (uint32_t)i;
}

static void mix_body(const struct sim_launch *launch, void **args)
{
	(void)launch;
	mix(*(uint32_t **)args[0], *(const uint32_t **)args[1], *(size_t *)args[2], *(uint32_t *)args[3]);
}

static const size_t mix_bytes[] = {8, 8, 8, 4};
static const struct sim_kernel kernels[] = {{"mix", mix_body, 4, mix_bytes}};
static const struct sim_module image = {SIM_MODULE_MAGIC, 1, kernels};

/* ---- spans: what of which memory ---- */

static CUdeviceptr address(const struct span *span)
{
	return span->segment->at + span->start * 4;
}

/* Calls for every piece of memory that the span lies in: the memory, the word of it, the word of the span, how many. */
static unsigned pieces(const struct span *span, struct memory *ret_memory[PIECES], size_t ret_at[PIECES],
		       size_t ret_words[PIECES])
{
	size_t per = span->segment->piece / 4;
	unsigned n = 0;

	for (size_t word = span->start, left = span->words; left; n++) {
		size_t in = word % per, some = per - in < left ? per - in : left;

		ret_memory[n] = span->segment->slot[word / per];
		ret_at[n] = in;
		ret_words[n] = some;
		word += some;
		left -= some;
	}
	return n;
}

static void gather(const struct span *span, uint32_t *ret_words)
{
	struct memory *memory[PIECES];
	size_t at[PIECES], words[PIECES];

	for (unsigned i = 0, n = pieces(span, memory, at, words); i < n; ret_words += words[i++])
		memcpy(ret_words, memory[i]->shadow + at[i], words[i] * 4);
}

static void scatter(const struct span *span, const uint32_t *from)
{
	struct memory *memory[PIECES];
	size_t at[PIECES], words[PIECES];

	for (unsigned i = 0, n = pieces(span, memory, at, words); i < n; from += words[i++])
		memcpy(memory[i]->shadow + at[i], from, words[i] * 4);
}

/* Both aliases of one memory in one operation: what it does is nobody's business. */
static bool meet(const struct span *a, const struct span *b)
{
	struct memory *of_a[PIECES], *of_b[PIECES];
	size_t at[PIECES], words[PIECES];
	unsigned n = pieces(a, of_a, at, words), m = pieces(b, of_b, at, words);

	for (unsigned i = 0; i < n; i++)
		for (unsigned j = 0; j < m; j++)
			if (of_a[i] == of_b[j])
				return true;
	return false;
}

static bool is_mapped(const struct span *span)
{
	size_t per = span->segment->piece / 4;

	for (size_t slot = span->start / per; slot <= (span->start + span->words - 1) / per; slot++)
		if (!span->segment->slot[slot])
			return false;
	return true;
}

/* The span's memory is used by the stream from now on: after all that was submitted to it. */
static void order(struct worker *worker, const struct span *span, unsigned stream)
{
	struct memory *memory[PIECES];
	size_t at[PIECES], words[PIECES];
	bool waits[STREAMS] = {false};

	for (unsigned i = 0, n = pieces(span, memory, at, words); i < n; i++) {
		waits[memory[i]->stream] = true;
		memory[i]->stream = stream;
	}
	for (unsigned s = 0; s < STREAMS; s++) {
		if (!waits[s] || s == stream)
			continue;
		GO(cuEventRecord(worker->event, worker->stream[s]));
		GO(cuStreamWaitEvent(worker->stream[stream], worker->event, 0));
	}
}

/* Somewhere in a run of mapped slots; false: nothing is mapped there. */
static bool span_make(struct worker *worker, struct span *ret_span, size_t words)
{
	struct segment *segment = &worker->segment[below(worker, SEGMENTS)];
	unsigned first = below(worker, SLOTS), last;
	size_t per = segment->piece / 4, room;

	while (first < SLOTS && !segment->slot[first])
		first++;
	if (first == SLOTS)
		return false;
	for (last = first; last < SLOTS && segment->slot[last];)
		last++;
	room = (last - first) * per;
	size_t start = below(worker, (uint32_t)per);
	if (!words)
		words = 1 + below(worker, (uint32_t)(below(worker, 4) ? room - start : 1000));
	if (words > room - start)
		words = room - start;
	*ret_span = (struct span){segment, first * per + start, words};
	return true;
}

/* ---- operations ---- */

static bool op_make(struct worker *worker, struct op *ret_op)
{
	struct op op = {
	    .kind = below(worker, KINDS), .stream = below(worker, STREAMS), .salt = below(worker, 1u << 30)};

	if (!span_make(worker, &op.to, 0))
		return false;
	if (op.kind == UPLOAD && op.to.words > MIB / 4)
		op.to.words = MIB / 4;
	if (op.kind == COPY_KERNEL || op.kind == COPY) {
		if (!span_make(worker, &op.from, op.to.words) || meet(&op.to, &op.from))
			return false;
		if (op.from.words < op.to.words)
			op.to.words = op.from.words;
		op.from.words = op.to.words;
	}
	*ret_op = op;
	return true;
}

static void op_submit(const struct op *op, CUstream stream, const uint32_t *host)
{
	CUdeviceptr to = address(&op->to), from = op->from.words ? address(&op->from) : 0;
	size_t words = op->to.words;
	uint32_t salt = op->salt;
	void *args[] = {&to, &from, &words, &salt};

	switch (op->kind) {
	case MIX:
	case COPY_KERNEL:
		GO(cuLaunchKernel(mix_function, 4, 1, 1, 64, 1, 1, 0, stream, args, NULL));
		break;
	case SET32:
		GO(cuMemsetD32Async(to, salt, words, stream));
		break;
	case SET8:
		GO(cuMemsetD8Async(to, (unsigned char)salt, words * 4, stream));
		break;
	case COPY:
		GO(cuMemcpyDtoDAsync_v2(to, from, words * 4, stream));
		break;
	default:
		GO(cuMemcpyHtoDAsync_v2(to, host, words * 4, stream));
		break;
	}
}

static void op_apply(struct worker *worker, const struct op *op, const uint32_t *host)
{
	uint32_t *words = worker->buffer;

	switch (op->kind) {
	case MIX:
		gather(&op->to, words);
		mix(words, NULL, op->to.words, op->salt);
		break;
	case COPY_KERNEL:
		gather(&op->from, worker->other);
		mix(words, worker->other, op->to.words, op->salt);
		break;
	case SET32:
		for (size_t i = 0; i < op->to.words; i++)
			words[i] = op->salt;
		break;
	case SET8:
		memset(words, (int)(op->salt & 255), op->to.words * 4);
		break;
	case COPY:
		gather(&op->from, words);
		break;
	default:
		memcpy(words, host, op->to.words * 4);
		break;
	}
	scatter(&op->to, words);
}

static void op_order(struct worker *worker, const struct op *op, unsigned stream)
{
	order(worker, &op->to, stream);
	if (op->from.words)
		order(worker, &op->from, stream);
}

static void op_run(struct worker *worker, const struct op *op)
{
	trouble_step();
	op_order(worker, op, op->stream);
	if (op->kind == UPLOAD) {
		GO(cuStreamSynchronize(worker->stream[op->stream])); /* who may still read the buffer */
		for (size_t i = 0; i < op->to.words; i++)
			worker->pinned[i] = op->salt * 7 + (uint32_t)i;
	}
	op_submit(op, worker->stream[op->stream], worker->pinned);
	op_apply(worker, op, worker->pinned);
	if (op->kind == UPLOAD)
		GO(cuStreamSynchronize(worker->stream[op->stream]));
}

static void check(struct worker *worker, const struct span *span)
{
	gather(span, worker->buffer);
	order(worker, span, 0);
	GO(cuMemcpyDtoHAsync_v2(worker->other, address(span), span->words * 4, worker->stream[0]));
	GO(cuStreamSynchronize(worker->stream[0]));
	for (size_t i = 0; i < span->words; i++)
		if (worker->other[i] != worker->buffer[i])
			fail("worker %u: word %zu of segment %zu (slot %zu) is %#x, not %#x", worker->id,
			     span->start + i, (size_t)(span->segment - worker->segment),
			     (span->start + i) * 4 / span->segment->piece, worker->other[i], worker->buffer[i]);
}

static void check_all(struct worker *worker)
{
	for (unsigned s = 0; s < SEGMENTS; s++)
		for (unsigned i = 0; i < SLOTS; i++) {
			struct segment *segment = &worker->segment[s];
			struct span span = {segment, i * (segment->piece / 4), segment->piece / 4};

			if (segment->slot[i])
				check(worker, &span);
		}
}

/* ---- memory ---- */

static void settle(struct worker *worker)
{
	for (unsigned i = 0; i < STREAMS; i++)
		GO(cuStreamSynchronize(worker->stream[i]));
}

static void memory_drop(struct worker *worker, struct memory *memory)
{
	if (memory->slots || !memory->released)
		return;
	worker->live -= memory->bytes;
	free(memory->shadow);
	free(memory);
}

static void release(struct worker *worker, struct memory *memory)
{
	if (!memory->released)
		GO(cuMemRelease(memory->handle));
	memory->released = true;
	memory_drop(worker, memory);
}

/* NULL: the worker has its share. */
static struct memory *memory_make(struct worker *worker, size_t bytes)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

	if (worker->live + bytes > worker->share)
		return NULL;
	struct memory *memory = calloc(1, sizeof(*memory));
	memory->bytes = bytes;
	memory->shadow = malloc(bytes);
	worker->live += bytes;
	GO(cuMemCreate(&memory->handle, bytes, &prop, 0));
	return memory;
}

static void map(struct segment *segment, unsigned slot, struct memory *memory)
{
	const CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
				      .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr at = segment->at + slot * segment->piece;

	GO(cuMemMap(at, segment->piece, 0, memory->handle, 0));
	GO(cuMemSetAccess(at, segment->piece, &desc, 1));
	segment->slot[slot] = memory;
	memory->slots++;
}

static void fill(struct worker *worker, struct segment *segment, unsigned slot)
{
	struct op op = {.kind = SET32,
			.stream = below(worker, STREAMS),
			.to = {segment, slot * (segment->piece / 4), segment->piece / 4},
			.salt = below(worker, 1u << 30)};

	op_run(worker, &op);
}

static void grow(struct worker *worker, struct segment *segment)
{
	unsigned n = 1 + below(worker, segment->piece > 4 * MIB ? 2 : 6);

	for (unsigned i = 0; i < SLOTS && n; i++) {
		struct memory *memory;

		if (segment->slot[i])
			continue;
		memory = memory_make(worker, segment->piece);
		if (!memory)
			return;
		map(segment, i, memory);
		if (below(worker, 3))
			release(worker, memory); /* as who will never need it but by its address */
		fill(worker, segment, i);
		n--;
	}
}

/* The streams have nothing to do. */
static void unmap(struct worker *worker, struct segment *segment, unsigned first, unsigned n)
{
	GO(cuMemUnmap(segment->at + first * segment->piece, n * segment->piece));
	for (unsigned i = first; i < first + n; i++) {
		struct memory *memory = segment->slot[i];

		segment->slot[i] = NULL;
		memory->slots--;
		if (!memory->slots && !memory->released)
			release(worker, memory);
		else
			memory_drop(worker, memory);
	}
}

static void shrink(struct worker *worker, struct segment *segment)
{
	unsigned first = below(worker, SLOTS), n = 0, most = 1 + below(worker, 6);

	while (first < SLOTS && !segment->slot[first])
		first++;
	while (first + n < SLOTS && n < most && segment->slot[first + n])
		n++;
	if (!n)
		return;
	settle(worker);
	unmap(worker, segment, first, n);
}

/* All that is mapped goes, runs of slots in one call each; some comes back at other places, the rest is new. */
static void sleep_and_wake(struct worker *worker, struct segment *segment)
{
	struct memory *kept[SLOTS];
	bool was[SLOTS];
	unsigned n_kept = 0;

	settle(worker);
	for (unsigned i = 0; i < SLOTS; i++) {
		struct memory *memory = segment->slot[i];

		was[i] = memory;
		if (!memory || below(worker, 2))
			continue;
		if (memory->released) /* its handle can be had by its address */
			GO(cuMemRetainAllocationHandle(&memory->handle, (void *)(segment->at + i * segment->piece)));
		memory->released = false;
		memory->slots++; /* so that it is not released when it is unmapped */
		kept[n_kept++] = memory;
	}
	for (unsigned i = 0, n; i < SLOTS; i += n ? n : 1) {
		for (n = 0; i + n < SLOTS && segment->slot[i + n];)
			n++;
		if (n)
			unmap(worker, segment, i, n);
	}
	for (unsigned i = 0; i < SLOTS; i++) {
		struct memory *memory = NULL;

		if (!was[i])
			continue;
		if (n_kept && below(worker, 2)) {
			memory = kept[--n_kept];
			memory->slots--;
			map(segment, i, memory);
			continue;
		}
		memory = memory_make(worker, segment->piece);
		if (!memory)
			continue;
		map(segment, i, memory);
		fill(worker, segment, i);
	}
	while (n_kept) {
		struct memory *memory = kept[--n_kept];

		memory->slots--;
		if (!memory->slots)
			release(worker, memory);
	}
}

/* Memory of one segment in another one of the same size of pieces, beside where it is. */
static void alias(struct worker *worker, struct segment *from, struct segment *to)
{
	unsigned i = below(worker, SLOTS), j = below(worker, SLOTS);

	if (!from->slot[i] || to->slot[j])
		return;
	if (from->slot[i]->released) {
		GO(cuMemRetainAllocationHandle(&from->slot[i]->handle, (void *)(from->at + i * from->piece)));
		from->slot[i]->released = false;
	}
	map(to, j, from->slot[i]);
}

static void block_change(struct worker *worker, struct segment *segment)
{
	struct memory *memory = segment->slot[0];

	if (memory) {
		segment->slot[0] = NULL;
		GO(cuMemFree_v2(segment->at)); /* waits for what uses it */
		memory->slots = 0;
		memory->released = true;
		memory_drop(worker, memory);
		return;
	}
	segment->piece = (1 + below(worker, 10)) * MIB;
	if (worker->live + segment->piece > worker->share)
		return;
	memory = calloc(1, sizeof(*memory));
	memory->bytes = segment->piece;
	memory->shadow = malloc(segment->piece);
	memory->slots = 1;
	memory->released = true;
	worker->live += memory->bytes;
	GO(cuMemAlloc_v2(&segment->at, segment->piece));
	segment->slot[0] = memory;
	fill(worker, segment, 0);
}

static void change(struct worker *worker)
{
	struct segment *segment = &worker->segment[below(worker, SEGMENTS)];

	if (segment->block) {
		block_change(worker, segment);
		return;
	}
	switch (below(worker, 8)) {
	case 0:
		sleep_and_wake(worker, segment);
		break;
	case 1:
	case 2:
		shrink(worker, segment);
		break;
	case 3:
		alias(worker, &worker->segment[0], &worker->segment[1]);
		break;
	default:
		grow(worker, segment);
		break;
	}
}

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

		if (!is_mapped(&op->to) || (op->from.words && (!is_mapped(&op->from) || meet(&op->to, &op->from))))
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

	settle(worker);
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
	struct graph *graph = &worker->graph[below(worker, GRAPHS)];

	if (!graph->n || !below(worker, 4))
		graph_make(worker, graph);
	for (unsigned times = graph->n ? 1 + below(worker, 3) : 0; times; times--)
		graph_run(worker, graph, below(worker, STREAMS));
}

/* ---- the whole ---- */

static void at_random(struct worker *worker)
{
	struct span span;
	struct op op;

	switch (below(worker, 12)) {
	case 0:
		change(worker);
		break;
	case 1:
		graph_play(worker);
		break;
	case 2:
		if (span_make(worker, &span, 0))
			check(worker, &span);
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
	unsigned n = 0, times = 4 + below(worker, 8);
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
			worker->graph[i].host[j] = below(worker, 1u << 30);
	}
	worker->buffer = malloc(largest);
	worker->other = malloc(largest);
	/* As much as it may have, to begin with. */
	for (unsigned i = 0; i < 40; i++)
		grow(worker, &worker->segment[i % (SEGMENTS - 1)]);
}

static void close_worker(struct worker *worker)
{
	settle(worker);
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
				unmap(worker, segment, i, 1);
		GO(cuMemAddressFree(segment->at, SLOTS * segment->piece));
	}
	if (worker->live)
		fail("worker %u: %zu bytes are left", worker->id, worker->live);
	GO(cuMemFreeHost(worker->pinned));
	free(worker->buffer);
	free(worker->other);
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	unsigned long done = 0, quota = options.operations / options.threads;

	open_worker(worker);
	while (done < quota) {
		for (unsigned i = 0; i < 60; i++, done++)
			at_random(worker);
		done += again_and_again(worker);
		check_all(worker);
	}
	close_worker(worker);
	return NULL;
}

static bool parse(int argc, char **argv)
{
	static const struct option all[] = {{"seed", 1, NULL, 's'},     {"operations", 1, NULL, 'n'},
					    {"threads", 1, NULL, 't'},  {"bytes", 1, NULL, 'b'},
					    {"deadline", 1, NULL, 'd'}, {"trouble", 1, NULL, 'w'},
					    {NULL, 0, NULL, 0}};
	int which;

	while ((which = getopt_long(argc, argv, "", all, NULL)) != -1) {
		unsigned long value = optarg ? strtoul(optarg, NULL, 0) : 0;

		switch (which) {
		case 's':
			options.seed = value;
			break;
		case 'n':
			options.operations = value;
			break;
		case 't':
			options.threads = (unsigned)value;
			break;
		case 'b':
			options.bytes = value * MIB;
			break;
		case 'd':
			options.deadline = (unsigned)value;
			break;
		case 'w':
			if (!trouble_read(optarg))
				return false;
			break;
		default:
			return false;
		}
	}
	if (getenv("VIRTUAL_SEED"))
		options.seed = strtoul(getenv("VIRTUAL_SEED"), NULL, 0);
	if (getenv("VIRTUAL_OPERATIONS")) {
		options.operations = strtoul(getenv("VIRTUAL_OPERATIONS"), NULL, 0);
		options.deadline = 0;
	}
	return optind == argc && options.threads >= 1 && options.threads <= THREADS_MAX &&
	       options.bytes / options.threads >= 16 * MIB;
}

int main(int argc, char **argv)
{
	static struct worker workers[THREADS_MAX];
	const char *wrong;
	CUmodule module;

	if (!parse(argc, argv)) {
		fprintf(stderr, "usage: see the head of virtual_random.c\n");
		return 2;
	}
	trouble_begin(options.seed);
	alarm(options.deadline);
	printf("virtual_random: seed %lu, %lu operations\n", (unsigned long)options.seed, options.operations);
	fflush(stdout);
	GO(cuInit(0));
	GO(cuDevicePrimaryCtxRetain(&context, 0));
	GO(cuCtxSetCurrent(context));
	GO(cuModuleLoadData(&module, &image));
	GO(cuModuleGetFunction(&mix_function, module, "mix"));
	for (unsigned i = 0; i < options.threads; i++) {
		workers[i].id = i;
		workers[i].random = options.seed * 0x9e3779b97f4a7c15u + i * 0x632be59bd9b4e019u;
		workers[i].share = options.bytes / options.threads;
		if (trouble_thread(&workers[i].thread, work, &workers[i]))
			fail("no thread");
	}
	for (unsigned i = 0; i < options.threads; i++)
		pthread_join(workers[i].thread, NULL);
	wrong = trouble_end();
	if (wrong)
		fail("%s", wrong);
	if (sim_broken_rules())
		fail("the model has seen %lu rules broken", sim_broken_rules());
	return 0;
}
