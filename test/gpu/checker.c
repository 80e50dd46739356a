// SPDX-License-Identifier: Apache-2.0
/*
 * checker: does every byte of device memory stay what it should be while something moves that memory about? A program
 * of several threads and streams whose kernels find their data in every way there is: by parameters, by pointer arrays
 * and linked lists in device memory, by addresses that no launch shows; directly, by copies and sets, and in graphs.
 * Blocks come and go in between.
 *
 *   checker [MIB [THREADS [ROUNDS [SEED [all|visible|spoil [SECONDS]]]]]]
 *
 * visible: only memory that a launch names itself. spoil: one byte is changed behind its back, which it has to find.
 * ROUNDS times the same sequence of work, so that a period can be
 * found, with now and then something else; no round begins after SECONDS.
 *
 * One source: gcc builds it for the simulated GPU, nvcc (-x cu) for a real one; see test/portable.h.
 *
 * How it knows: word i of a block is always HASH(i) * a + c with a pair (a, c) that the host keeps for each block. All
 * that kernels do (add a block to a block, scale, copy, set) is done to the pairs as well, so each word of each block
 * can be told at any time.
 *
 * Exit status: 0 every byte was right, 1 not, or a CUDA call failed, 2 bad arguments.
 */
#include <cuda_runtime_api.h>
#include "test/gpu/checker_kernels.h"

#define GRID_BLOCKS  64
#define GRID_THREADS 256

enum { MOST_BLOCKS = 64, OPS = 40, GRAPH_OPS = 6, STREAMS = 2, CHANGING = 2, VERIFY_EVERY = 8, DISTURB_EVERY = 5 };

/* ---- settings, errors, chance ---- */

static size_t total_mib = 64;
static unsigned threads = 2, rounds = 20, most_seconds = 100;
static uint64_t seed = 1;
static bool visible_only, spoil;
static time_t begun;

static void fail(const char *what, cudaError_t error)
{
	fprintf(stderr, "checker: %s: %s\n", what, cudaGetErrorName(error));
	exit(1);
}

#define CHECK(call)                                                                                                    \
	do {                                                                                                           \
		cudaError_t check_error = (call);                                                                      \
		if (check_error != cudaSuccess)                                                                        \
			fail(#call, check_error);                                                                      \
	} while (0)

#define RUN(stream, name, ...) CHECK(LAUNCH(name, GRID_BLOCKS, GRID_THREADS, stream, __VA_ARGS__))

static uint64_t chance(uint64_t *state)
{
	uint64_t x = *state += 0x9E3779B97F4A7C15ull;

	x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
	x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
	return x ^ (x >> 31);
}

/* ---- blocks ---- */

struct block {
	uint64_t *words;
	size_t n;
	uint64_t a, c; /* word i is HASH(i) * a + c */
};

/* What one thread works on; nobody else does. The last CHANGING blocks are replaced now and then. */
struct lane {
	unsigned number, n_blocks;
	uint64_t chance;
	struct block blocks[MOST_BLOCKS];
	cudaStream_t streams[STREAMS];
	cudaEvent_t event;
	unsigned turn;         /* the stream of the latest work */
	uint64_t **table;      /* on the device: the blocks' addresses */
	size_t *sizes;         /* and their sizes in words */
	struct node *list;     /* and a list of them, back to front */
	unsigned *wrong;       /* counts of count_wrong */
	unsigned *host_wrong;  /* pinned */
	uint64_t *host_words;  /* pinned, as large as the largest block */
	cudaGraphExec_t graph; /* does graph_ops */
	unsigned host_calls;   /* by host functions */
	unsigned host_calls_expected;
	unsigned long operations, words_wrong, words_checked;
};

static size_t largest_words;

static void *device_memory(size_t bytes)
{
	void *memory = NULL;

	CHECK(cudaMalloc(&memory, bytes));
	return memory;
}

static void block_init(struct lane *lane, struct block *block, size_t n)
{
	block->words = (uint64_t *)device_memory(n * sizeof(uint64_t));
	block->n = n;
	block->a = chance(&lane->chance) | 1;
	block->c = chance(&lane->chance);
	RUN(lane->streams[lane->turn], fill, block->words, block->n, block->a, block->c);
}

/* Tell the device where the blocks are. */
static void lane_upload(struct lane *lane)
{
	uint64_t *words[MOST_BLOCKS];
	size_t sizes[MOST_BLOCKS];
	struct node nodes[MOST_BLOCKS];

	for (unsigned i = 0; i < lane->n_blocks; i++) {
		words[i] = lane->blocks[i].words;
		sizes[i] = lane->blocks[i].n;
		nodes[i].words = words[i];
		nodes[i].n = sizes[i];
		nodes[i].next = i ? lane->list + i - 1 : NULL;
	}
	for (unsigned i = 0; i < STREAMS; i++)
		CHECK(cudaStreamSynchronize(lane->streams[i]));
	CHECK(cudaMemcpy(lane->table, words, lane->n_blocks * sizeof(words[0]), cudaMemcpyHostToDevice));
	CHECK(cudaMemcpy(lane->sizes, sizes, lane->n_blocks * sizeof(sizes[0]), cudaMemcpyHostToDevice));
	CHECK(cudaMemcpy(lane->list, nodes, lane->n_blocks * sizeof(nodes[0]), cudaMemcpyHostToDevice));
}

/* ---- operations ---- */

enum kind {
	SCALE,
	ADD,
	COPY,
	SET,
	THROUGH_HOST, /* out to pinned memory and back */
	HOST_CALL,
	GRAPH, /* not in a graph itself */
	LAST_VISIBLE = GRAPH,
	TABLE_ADD,
	GROUP_SCALE,
	LIST_SCALE,
	MASKED_SCALE,
	KINDS
};

struct operation {
	enum kind kind;
	unsigned to, from;
	uint64_t a, c;
};

static struct operation operation_choose(uint64_t *state, unsigned n_blocks, bool in_graph)
{
	struct operation o;

	do
		o.kind = (enum kind)(chance(state) % (visible_only ? LAST_VISIBLE + 1 : KINDS));
	while (in_graph && (o.kind == GRAPH || o.kind == HOST_CALL));
	o.to = (unsigned)(chance(state) % n_blocks);
	o.from = (unsigned)(chance(state) % n_blocks);
	o.a = chance(state) | 1;
	o.c = chance(state);
	return o;
}

static void CUDART_CB host_call(void *data)
{
	++*(unsigned *)data;
}

static void scale_pair(struct block *block, uint64_t a, uint64_t c)
{
	block->a *= a;
	block->c = block->c * a + c;
}

/* The operation on the pairs: what it will have done to the words. false: it is not possible with these blocks. */
static bool operation_expect(struct lane *lane, const struct operation *o)
{
	struct block *to = &lane->blocks[o->to];
	const struct block *from = &lane->blocks[o->from];

	switch (o->kind) {
	case SCALE:
	case MASKED_SCALE:
		scale_pair(to, o->a, o->c);
		break;
	case ADD:
	case TABLE_ADD:
	case COPY:
		if (from->n < to->n || from == to)
			return false;
		to->a = from->a + (o->kind == COPY ? 0 : to->a);
		to->c = from->c + (o->kind == COPY ? 0 : to->c);
		break;
	case SET:
		to->a = 0;
		to->c = (o->c & 0xFF) * 0x0101010101010101ull;
		break;
	case GROUP_SCALE:
	case LIST_SCALE:
		for (unsigned i = 0; i < lane->n_blocks; i++)
			scale_pair(&lane->blocks[i], o->a, o->kind == LIST_SCALE ? o->c : 0);
		break;
	case HOST_CALL:
		lane->host_calls_expected++;
		break;
	default:
		break;
	}
	return true;
}

static void graph_expect(struct lane *lane);

/* The operation on the words. */
static void operation_submit(struct lane *lane, const struct operation *o, cudaStream_t stream)
{
	struct block *to = &lane->blocks[o->to], *from = &lane->blocks[o->from];
	size_t bytes = to->n * sizeof(uint64_t);

	switch (o->kind) {
	case SCALE:
		RUN(stream, scale, to->words, to->n, o->a, o->c);
		break;
	case ADD:
		RUN(stream, add, to->words, from->words, to->n);
		break;
	case COPY:
		CHECK(cudaMemcpyAsync(to->words, from->words, bytes, cudaMemcpyDeviceToDevice, stream));
		break;
	case SET:
		CHECK(cudaMemsetAsync(to->words, (int)(o->c & 0xFF), bytes, stream));
		break;
	case THROUGH_HOST:
		CHECK(cudaMemcpyAsync(lane->host_words, to->words, bytes, cudaMemcpyDeviceToHost, stream));
		CHECK(cudaMemcpyAsync(to->words, lane->host_words, bytes, cudaMemcpyHostToDevice, stream));
		break;
	case HOST_CALL:
		CHECK(cudaLaunchHostFunc(stream, host_call, &lane->host_calls));
		break;
	case GRAPH:
		CHECK(cudaGraphLaunch(lane->graph, stream));
		graph_expect(lane);
		break;
	case TABLE_ADD:
		RUN(stream, table_add, lane->table, o->to, o->from, to->n);
		break;
	case GROUP_SCALE:
		RUN(stream, group_scale, lane->table, lane->sizes, lane->n_blocks, o->a);
		break;
	case LIST_SCALE:
		RUN(stream, list_scale, lane->list + lane->n_blocks - 1, o->a, o->c);
		break;
	case MASKED_SCALE:
		RUN(stream, masked_scale, (uint64_t)(uintptr_t)to->words ^ MASK, to->n, o->a, o->c);
		break;
	default:
		break;
	}
}

/* On the other stream than the one before, after it. */
static void operation_run(struct lane *lane, const struct operation *o)
{
	cudaStream_t before = lane->streams[lane->turn], stream;

	if (!operation_expect(lane, o))
		return;
	lane->turn = (lane->turn + 1) % STREAMS;
	stream = lane->streams[lane->turn];
	CHECK(cudaEventRecord(lane->event, before));
	CHECK(cudaStreamWaitEvent(stream, lane->event, 0));
	operation_submit(lane, o, stream);
	lane->operations++;
}

/* What a lane's graph does: the same each time, by the lane's number. Possible or not, sizes do not change. */
static void graph_operation(const struct lane *lane, unsigned i, struct operation *ret_operation)
{
	uint64_t state = seed * 1000 + lane->number;

	for (unsigned k = 0; k <= i; k++)
		*ret_operation = operation_choose(&state, lane->n_blocks - CHANGING, true);
}

static void graph_expect(struct lane *lane)
{
	struct operation o;

	for (unsigned i = 0; i < GRAPH_OPS; i++) {
		graph_operation(lane, i, &o);
		operation_expect(lane, &o);
	}
}

static void graph_init(struct lane *lane)
{
	struct block saved[MOST_BLOCKS];
	struct operation o;
	cudaGraph_t graph;

	memcpy(saved, lane->blocks, sizeof(saved));
	CHECK(cudaStreamBeginCapture(lane->streams[0], cudaStreamCaptureModeThreadLocal));
	for (unsigned i = 0; i < GRAPH_OPS; i++) {
		graph_operation(lane, i, &o);
		if (operation_expect(lane, &o))
			operation_submit(lane, &o, lane->streams[0]);
	}
	CHECK(cudaStreamEndCapture(lane->streams[0], &graph));
	memcpy(lane->blocks, saved, sizeof(saved)); /* nothing ran yet */
	CHECK(cudaGraphInstantiate(&lane->graph, graph, 0));
	CHECK(cudaGraphDestroy(graph));
}

/* ---- checking ---- */

static void lane_wait(struct lane *lane)
{
	for (unsigned i = 0; i < STREAMS; i++)
		CHECK(cudaStreamSynchronize(lane->streams[i]));
}

static void blame(struct lane *lane, unsigned i, unsigned long wrong, const char *how)
{
	if (wrong)
		fprintf(stderr, "checker: thread %u, block %u (%zu words at %p): %lu words are wrong, %s\n",
			lane->number, i, lane->blocks[i].n, (void *)lane->blocks[i].words, wrong, how);
	lane->words_wrong += wrong;
}

static void verify_on_device(struct lane *lane, unsigned i)
{
	const struct block *block = &lane->blocks[i];
	size_t bytes = GRID_BLOCKS * GRID_THREADS * sizeof(unsigned);
	unsigned long wrong = 0;
	cudaStream_t stream = lane->streams[0];

	CHECK(cudaMemsetAsync(lane->wrong, 0, bytes, stream));
	RUN(stream, count_wrong, block->words, block->n, block->a, block->c, lane->wrong);
	CHECK(cudaMemcpyAsync(lane->host_wrong, lane->wrong, bytes, cudaMemcpyDeviceToHost, stream));
	CHECK(cudaStreamSynchronize(stream));
	for (unsigned k = 0; k < GRID_BLOCKS * GRID_THREADS; k++)
		wrong += lane->host_wrong[k];
	blame(lane, i, wrong, "seen on the GPU");
	lane->words_checked += block->n;
}

static void verify_on_host(struct lane *lane, unsigned i)
{
	const struct block *block = &lane->blocks[i];
	unsigned long wrong = 0;

	CHECK(cudaMemcpy(lane->host_words, block->words, block->n * sizeof(uint64_t), cudaMemcpyDeviceToHost));
	for (size_t k = 0; k < block->n; k++)
		wrong += lane->host_words[k] != HASH(k) * block->a + block->c;
	blame(lane, i, wrong, "copied out");
	lane->words_checked += block->n;
}

static void lane_verify(struct lane *lane, bool on_host)
{
	lane_wait(lane);
	for (unsigned i = 0; i < lane->n_blocks; i++) {
		verify_on_device(lane, i);
		if (on_host)
			verify_on_host(lane, i);
	}
	if (lane->host_calls != lane->host_calls_expected)
		blame(lane, 0, 1, "a host function did not run once");
}

/* ---- threads ---- */

/* A block goes, its memory perhaps with work on it still under way, and another one comes. */
static void lane_replace(struct lane *lane)
{
	struct block *block = &lane->blocks[lane->n_blocks - 1 - chance(&lane->chance) % CHANGING];
	size_t n = block->n;

	CHECK(cudaFree(block->words));
	block_init(lane, block, n);
	lane_upload(lane);
}

static void lane_round(struct lane *lane, unsigned round)
{
	uint64_t same = seed * 77 + lane->number;

	for (unsigned i = 0; i < OPS; i++) {
		struct operation o = operation_choose(&same, lane->n_blocks, false);

		operation_run(lane, &o);
	}
	if (round % DISTURB_EVERY == DISTURB_EVERY - 1) {
		struct operation o = operation_choose(&lane->chance, lane->n_blocks, false);

		operation_run(lane, &o);
		lane_replace(lane);
	}
	if (round % VERIFY_EVERY == VERIFY_EVERY - 1)
		lane_verify(lane, false);
}

static void lane_init(struct lane *lane, unsigned number)
{
	size_t words = (total_mib << 20) / sizeof(uint64_t) / threads, taken = 0;

	lane->number = number;
	lane->chance = seed * 131 + number;
	for (unsigned i = 0; i < STREAMS; i++)
		CHECK(cudaStreamCreateWithFlags(&lane->streams[i], cudaStreamNonBlocking));
	CHECK(cudaEventCreateWithFlags(&lane->event, cudaEventDisableTiming));
	while (lane->n_blocks < MOST_BLOCKS && taken < words) {
		/* From a few KiB, which share pages, to an eighth of all. */
		size_t n = (largest_words >> chance(&lane->chance) % 6) - 64 * (chance(&lane->chance) % 5);

		if (chance(&lane->chance) % 8 == 0)
			n = 512 + chance(&lane->chance) % 8192;
		block_init(lane, &lane->blocks[lane->n_blocks++], n);
		taken += n;
	}
	lane->table = (uint64_t **)device_memory(MOST_BLOCKS * sizeof(lane->table[0]));
	lane->sizes = (size_t *)device_memory(MOST_BLOCKS * sizeof(lane->sizes[0]));
	lane->list = (struct node *)device_memory(MOST_BLOCKS * sizeof(lane->list[0]));
	lane->wrong = (unsigned *)device_memory(GRID_BLOCKS * GRID_THREADS * sizeof(unsigned));
	CHECK(cudaMallocHost((void **)&lane->host_wrong, GRID_BLOCKS * GRID_THREADS * sizeof(unsigned)));
	CHECK(cudaMallocHost((void **)&lane->host_words, largest_words * sizeof(uint64_t)));
	lane_upload(lane);
	graph_init(lane);
}

static void *lane_main(void *argument)
{
	struct lane *lane = (struct lane *)argument;

	CHECK(cudaSetDevice(0));
	for (unsigned round = 0; round < rounds && time(NULL) - begun < (time_t)most_seconds; round++)
		lane_round(lane, round);
	lane_wait(lane);
	if (spoil) {
		unsigned char byte;

		CHECK(cudaMemcpy(&byte, lane->blocks[0].words, 1, cudaMemcpyDeviceToHost));
		CHECK(cudaMemset(lane->blocks[0].words, byte ^ 1, 1));
	}
	lane_verify(lane, true);
	return NULL;
}

static void lane_fini(struct lane *lane)
{
	CHECK(cudaGraphExecDestroy(lane->graph));
	for (unsigned i = 0; i < lane->n_blocks; i++)
		CHECK(cudaFree(lane->blocks[i].words));
	CHECK(cudaFree(lane->table));
	CHECK(cudaFree(lane->sizes));
	CHECK(cudaFree(lane->list));
	CHECK(cudaFree(lane->wrong));
	CHECK(cudaFreeHost(lane->host_wrong));
	CHECK(cudaFreeHost(lane->host_words));
}

static unsigned long number(int argc, char **argv, int i, unsigned long standard, unsigned long most)
{
	char *end;
	unsigned long value = i < argc ? strtoul(argv[i], &end, 10) : standard;

	if (i < argc && (*end || value == 0 || value > most)) {
		fprintf(stderr, "usage: checker [MIB [THREADS [ROUNDS [SEED [all|visible|spoil [SECONDS]]]]]]\n");
		exit(2);
	}
	return value;
}

int main(int argc, char **argv)
{
	unsigned long operations = 0, wrong = 0, checked = 0;
	size_t bytes = 0;
	pthread_t *ids;
	struct lane *lanes;

	total_mib = number(argc, argv, 1, total_mib, 1 << 20);
	threads = (unsigned)number(argc, argv, 2, threads, 64);
	rounds = (unsigned)number(argc, argv, 3, rounds, 1000000);
	seed = number(argc, argv, 4, 1, UINT32_MAX);
	visible_only = argc > 5 && !strcmp(argv[5], "visible");
	spoil = argc > 5 && !strcmp(argv[5], "spoil");
	most_seconds = (unsigned)number(argc, argv, 6, most_seconds, 1000000);
	largest_words = (total_mib << 20) / sizeof(uint64_t) / threads / 8;
	begun = time(NULL);

	lanes = (struct lane *)calloc(threads, sizeof(*lanes));
	ids = (pthread_t *)calloc(threads, sizeof(*ids));
	if (!lanes || !ids)
		fail("memory", cudaErrorMemoryAllocation);
	for (unsigned i = 0; i < threads; i++)
		lane_init(&lanes[i], i);
	for (unsigned i = 0; i < threads; i++)
		if (pthread_create(&ids[i], NULL, lane_main, &lanes[i]))
			fail("a thread", cudaErrorUnknown);
	for (unsigned i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	for (unsigned i = 0; i < threads; i++) {
		for (unsigned k = 0; k < lanes[i].n_blocks; k++)
			bytes += lanes[i].blocks[k].n * sizeof(uint64_t);
		operations += lanes[i].operations;
		wrong += lanes[i].words_wrong;
		checked += lanes[i].words_checked;
		lane_fini(&lanes[i]);
	}
	CHECK(cudaDeviceSynchronize());
	printf("checker: seed %llu, %lu operations, %lu words checked, %lu wrong, %ld s\n", (unsigned long long)seed,
	       operations, checked, wrong, (long)(time(NULL) - begun));
	printf("need %zu bytes\n", bytes);
	free(lanes);
	free(ids);
	return wrong ? 1 : 0;
}
