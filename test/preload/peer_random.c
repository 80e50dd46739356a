/*
 * peer_random: a program made up from a seed that uses several GPUs as programs do, and knows what every byte must be:
 *
 *   peer_random [--seed N] [--operations N] [--threads N] [--bytes MIB] [--no-hidden]
 *
 * Blocks live on all devices, more of them than the budgets hold. Kernels run on any device that may reach what they
 * touch, copies are made by any device between any two blocks and the host, by every form; peer access comes and goes
 * between kernels. The order of any two accesses that conflict is always established by events. Each thread has its own
 * blocks and streams; contexts, and who may reach whom, are common.
 *
 * Exit status: 0 all bytes are right; 1 the first wrong one, or an error, is told on stderr, with the seed.
 */
#include "test/sim/sim.h"

#include <cuda.h>
#include <getopt.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
enum { DEVICES = 8, THREADS = 4, PER_DEVICE = 2, STREAMS = DEVICES * PER_DEVICE, BLOCKS = 160, HOST_WORDS = 64 << 10 };

static struct {
	uint64_t seed;
	unsigned operations, threads;
	size_t bytes; /* on each device, of all threads */
	int hidden;
} options = {.seed = 1, .operations = 1500, .threads = 2, .bytes = 20 * MIB, .hidden = 1};

static int n_devices;
static CUcontext contexts[DEVICES];
static CUfunction mix[DEVICES], chase[DEVICES];
static pthread_rwlock_t reach_lock = PTHREAD_RWLOCK_INITIALIZER;
static int can_reach[DEVICES][DEVICES], may_reach[DEVICES][DEVICES]; /* by wires; at this moment */

struct block {
	CUdeviceptr at;
	int device;
	size_t words;
	uint32_t *shadow;
	unsigned writer, readers; /* streams, bits; of the work since the last write */
};

struct worker {
	pthread_t thread;
	unsigned id;
	uint64_t random;
	CUstream stream[STREAMS]; /* i: of device i / PER_DEVICE */
	CUevent event[STREAMS];
	struct block block[BLOCKS];
	unsigned n_blocks;
	size_t words[DEVICES]; /* live on each */
	CUdeviceptr table[DEVICES];
	uint32_t *pinned, *pageable;
	unsigned long done;
};

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fail(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	fprintf(stderr, "peer_random: seed %lu: ", (unsigned long)options.seed);
	vfprintf(stderr, format, list);
	fprintf(stderr, "\n");
	va_end(list);
	_exit(1);
}

static void must(CUresult result, const char *call, int line)
{
	if (result != CUDA_SUCCESS)
		fail("line %d: %s: CUDA error %d", line, call, result);
}
#define GO(call) must((call), #call, __LINE__)

static uint32_t next(struct worker *worker)
{
	worker->random = worker->random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(worker->random >> 33);
}

static uint32_t below(struct worker *worker, size_t n)
{
	return next(worker) % (uint32_t)n;
}

/* ---- kernels, and the same on shadows ---- */

static void mix_words(uint32_t *to, const uint32_t *from, size_t n, uint32_t salt)
{
	for (size_t i = 0; i < n; i++)
		to[i] = to[i] * 31 + (from ? from[i] : (uint32_t)i) + salt;
}

static void mix_body(const struct sim_launch *launch, void **args)
{
	(void)launch;
	mix_words(*(uint32_t **)args[0], *(uint32_t **)args[1], *(size_t *)args[2], *(uint32_t *)args[3]);
}

/* The block's address lies in device memory: no argument names it. */
static void chase_body(const struct sim_launch *launch, void **args)
{
	(void)launch;
	mix_words(sim_pointer(**(CUdeviceptr **)args[0]), NULL, *(size_t *)args[1], *(uint32_t *)args[2]);
}

static const size_t mix_params[] = {8, 8, 8, 4}, chase_params[] = {8, 8, 4};
static const struct sim_kernel kernels[] = {{"mix", mix_body, 4, mix_params}, {"chase", chase_body, 3, chase_params}};
static const struct sim_module image = {SIM_MODULE_MAGIC, 2, kernels};

/* ---- order ---- */

static void be(int device)
{
	GO(cuCtxSetCurrent(contexts[device]));
}

static int device_of(unsigned stream)
{
	return (int)stream / PER_DEVICE;
}

/* What the stream does next comes after all that conflicts with it. */
static void order(struct worker *worker, unsigned stream, struct block *block, bool write)
{
	unsigned after = write ? block->writer | block->readers : block->writer;

	for (unsigned other = 0; other < STREAMS; other++)
		if (other != stream && (after >> other & 1))
			GO(cuStreamWaitEvent(worker->stream[stream], worker->event[other], 0));
	if (write) {
		block->writer = 1u << stream;
		block->readers = 0;
	} else {
		block->readers |= 1u << stream;
	}
}

static void submitted(struct worker *worker, unsigned stream)
{
	be(device_of(stream));
	GO(cuEventRecord(worker->event[stream], worker->stream[stream]));
	worker->done++;
}

/* All that uses the block is done. */
static void settle(struct worker *worker, struct block *block)
{
	for (unsigned stream = 0; stream < STREAMS; stream++)
		if ((block->writer | block->readers) >> stream & 1)
			GO(cuStreamSynchronize(worker->stream[stream]));
	block->writer = block->readers = 0;
}

/* ---- blocks ---- */

static void check(struct worker *worker, struct block *block)
{
	uint32_t *got = malloc(block->words * 4);

	settle(worker, block);
	/* From any device: that is a copy, too. */
	be((int)below(worker, n_devices));
	GO(cuMemcpyDtoH_v2(got, block->at, block->words * 4));
	for (size_t i = 0; i < block->words; i++)
		if (got[i] != block->shadow[i])
			fail("thread %u, after %lu operations: word %zu of %zu on device %d is %08x, not %08x",
			     worker->id, worker->done, i, block->words, block->device, got[i], block->shadow[i]);
	free(got);
}

static void make_block(struct worker *worker)
{
	struct block *block = &worker->block[worker->n_blocks];
	int device = (int)below(worker, n_devices);
	size_t words = below(worker, 3) ? 300000 + below(worker, 600000) : 16 + below(worker, 3000);

	if (worker->n_blocks == BLOCKS || (worker->words[device] + words) * 4 > options.bytes / options.threads)
		return;
	be(device);
	GO(cuMemAlloc_v2(&block->at, words * 4));
	block->device = device;
	block->words = words;
	block->writer = block->readers = 0;
	block->shadow = malloc(words * 4);
	for (size_t i = 0; i < words; i++)
		block->shadow[i] = next(worker);
	GO(cuMemcpyHtoD_v2(block->at, block->shadow, words * 4));
	GO(cuCtxSynchronize());
	worker->words[device] += words;
	worker->n_blocks++;
}

static void free_block(struct worker *worker, unsigned i)
{
	struct block *block = &worker->block[i];

	check(worker, block);
	be(block->device);
	GO(cuMemFree_v2(block->at));
	worker->words[block->device] -= block->words;
	free(block->shadow);
	*block = worker->block[--worker->n_blocks];
}

/* ---- operations ---- */

static struct block *any_block(struct worker *worker)
{
	return &worker->block[below(worker, worker->n_blocks)];
}

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Under the lock of who may reach whom. */
static void launch(struct worker *worker, unsigned stream, struct block *to, struct block *from)
{
	size_t n = from ? smaller(to->words, from->words) : to->words;
	CUdeviceptr source = from ? from->at : 0;
	uint32_t salt = next(worker);
	void *params[] = {&to->at, &source, &n, &salt};

	order(worker, stream, to, true);
	if (from && from != to)
		order(worker, stream, from, false);
	GO(cuLaunchKernel(mix[device_of(stream)], 1, 1, 1, 32, 1, 1, 0, worker->stream[stream], params, NULL));
	mix_words(to->shadow, from ? from->shadow : NULL, n, salt);
}

static void launch_hidden(struct worker *worker, unsigned stream, struct block *to)
{
	int device = device_of(stream);
	size_t n = to->words;
	uint32_t salt = next(worker);
	void *params[] = {&worker->table[device], &n, &salt};

	order(worker, stream, to, true);
	/* Nobody else reads the table by now. */
	for (int i = 0; i < PER_DEVICE; i++)
		GO(cuStreamSynchronize(worker->stream[device * PER_DEVICE + i]));
	GO(cuMemcpyHtoD_v2(worker->table[device], &to->at, 8));
	GO(cuCtxSynchronize());
	GO(cuLaunchKernel(chase[device], 1, 1, 1, 32, 1, 1, 0, worker->stream[stream], params, NULL));
	mix_words(to->shadow, NULL, n, salt);
}

static void op_launch(struct worker *worker, unsigned stream)
{
	int device = device_of(stream);
	struct block *to = any_block(worker), *from = any_block(worker);

	be(device);
	pthread_rwlock_rdlock(&reach_lock);
	if (may_reach[device][to->device]) {
		if (options.hidden && !below(worker, 6))
			launch_hidden(worker, stream, to);
		else
			launch(worker, stream, to, may_reach[device][from->device] ? from : NULL);
	}
	pthread_rwlock_unlock(&reach_lock);
}

static void op_set(struct worker *worker, unsigned stream)
{
	int device = device_of(stream);
	struct block *to = any_block(worker);
	size_t at = below(worker, to->words), n = 1 + below(worker, to->words - at);
	uint32_t value = next(worker);

	be(device);
	pthread_rwlock_rdlock(&reach_lock);
	if (may_reach[device][to->device]) {
		order(worker, stream, to, true);
		GO(cuMemsetD32Async(to->at + 4 * at, value, n, worker->stream[stream]));
		for (size_t i = 0; i < n; i++)
			to->shadow[at + i] = value;
	}
	pthread_rwlock_unlock(&reach_lock);
}

/* The same rows by a form that has a pitch. */
static void copy_box(CUdeviceptr to, CUdeviceptr from, size_t row, size_t rows, bool three, CUstream stream)
{
	CUDA_MEMCPY2D two = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			     .srcDevice = from,
			     .srcPitch = row,
			     .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
			     .dstDevice = to,
			     .dstPitch = row,
			     .WidthInBytes = row,
			     .Height = rows};
	CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
			     .srcDevice = from,
			     .srcPitch = row,
			     .srcHeight = rows,
			     .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			     .dstDevice = to,
			     .dstPitch = row,
			     .dstHeight = rows,
			     .WidthInBytes = row,
			     .Height = rows,
			     .Depth = 1};

	GO(three ? cuMemcpy3DAsync_v2(&box, stream) : cuMemcpy2DAsync_v2(&two, stream));
}

static void op_copy(struct worker *worker, unsigned stream)
{
	struct block *to = any_block(worker), *from = any_block(worker);
	size_t n = 1 + below(worker, smaller(to->words, from->words));
	size_t to_at = below(worker, to->words - n + 1), from_at = below(worker, from->words - n + 1);
	CUdeviceptr dst = to->at + 4 * to_at, src = from->at + 4 * from_at;
	CUstream s = worker->stream[stream];
	CUmemcpyAttributes in_order = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	size_t bytes = 4 * n, first = 0, failed;

	if (to == from)
		return;
	be(device_of(stream));
	order(worker, stream, to, true);
	order(worker, stream, from, false);
	switch (below(worker, 6)) {
	case 0:
		GO(cuMemcpyDtoDAsync_v2(dst, src, bytes, s));
		break;
	case 1:
		GO(cuMemcpyAsync(dst, src, bytes, s));
		break;
	case 2:
		GO(cuMemcpyPeerAsync(dst, contexts[to->device], src, contexts[from->device], bytes, s));
		break;
	case 3:
		GO(cuMemcpyBatchAsync(&dst, &src, &bytes, 1, &in_order, &first, 1, &failed, s));
		break;
	default:
		n = n > 64 ? n / 64 * 64 : n;
		copy_box(dst, src, n > 64 ? 256 : 4 * n, n > 64 ? n / 64 : 1, below(worker, 2), s);
	}
	memcpy(to->shadow + to_at, from->shadow + from_at, 4 * n);
}

static void op_in(struct worker *worker, unsigned stream)
{
	struct block *to = any_block(worker);
	size_t n = 1 + below(worker, smaller(to->words, HOST_WORDS)), at = below(worker, to->words - n + 1);
	uint32_t *memory = below(worker, 2) ? worker->pinned : worker->pageable;

	be(device_of(stream));
	order(worker, stream, to, true);
	for (size_t i = 0; i < n; i++)
		memory[i] = next(worker);
	GO(cuMemcpyHtoDAsync_v2(to->at + 4 * at, memory, 4 * n, worker->stream[stream]));
	memcpy(to->shadow + at, memory, 4 * n);
	GO(cuStreamSynchronize(worker->stream[stream])); /* the memory is used again */
}

static void op_out(struct worker *worker, unsigned stream)
{
	struct block *from = any_block(worker);
	size_t n = 1 + below(worker, smaller(from->words, HOST_WORDS)), at = below(worker, from->words - n + 1);
	uint32_t *memory = below(worker, 2) ? worker->pinned : worker->pageable;

	be(device_of(stream));
	order(worker, stream, from, false);
	GO(cuMemcpyDtoHAsync_v2(memory, from->at + 4 * at, 4 * n, worker->stream[stream]));
	GO(cuStreamSynchronize(worker->stream[stream]));
	for (size_t i = 0; i < n; i++)
		if (memory[i] != from->shadow[at + i])
			fail("thread %u, after %lu operations: word %zu read from device %d by %d is %08x, not %08x",
			     worker->id, worker->done, at + i, from->device, device_of(stream), memory[i],
			     from->shadow[at + i]);
}

/* Access between two devices comes or goes. Work that needs it is done by then, as CUDA wants it. */
static void op_reach(struct worker *worker)
{
	int device = (int)below(worker, n_devices), owner = (int)below(worker, n_devices);

	if (device == owner || !can_reach[device][owner])
		return;
	be(device);
	pthread_rwlock_wrlock(&reach_lock);
	if (may_reach[device][owner]) {
		GO(cuCtxSynchronize());
		GO(cuCtxDisablePeerAccess(contexts[owner]));
	} else {
		GO(cuCtxEnablePeerAccess(contexts[owner], 0));
	}
	may_reach[device][owner] ^= 1;
	pthread_rwlock_unlock(&reach_lock);
}

static void operate(struct worker *worker)
{
	unsigned stream = below(worker, (size_t)n_devices * PER_DEVICE), what = below(worker, 100);

	if (what < 40)
		op_launch(worker, stream);
	else if (what < 48)
		op_set(worker, stream);
	else if (what < 76)
		op_copy(worker, stream);
	else if (what < 82)
		op_in(worker, stream);
	else if (what < 87)
		op_out(worker, stream);
	else if (what < 90)
		op_reach(worker);
	else if (what < 93 && worker->n_blocks > 4)
		free_block(worker, below(worker, worker->n_blocks));
	else
		make_block(worker);
	submitted(worker, stream);
}

static void *work(void *argument)
{
	struct worker *worker = argument;

	for (unsigned i = 0; i < options.operations || worker->n_blocks < 2; i++) {
		if (worker->n_blocks < 2)
			make_block(worker);
		else
			operate(worker);
	}
	while (worker->n_blocks)
		free_block(worker, worker->n_blocks - 1);
	return NULL;
}

/* ---- the program ---- */

static void open_devices(void)
{
	GO(cuInit(0));
	GO(cuDeviceGetCount(&n_devices));
	for (int i = 0; i < n_devices; i++) {
		CUmodule module;

		GO(cuDevicePrimaryCtxRetain(&contexts[i], i));
		be(i);
		GO(cuModuleLoadData(&module, &image));
		GO(cuModuleGetFunction(&mix[i], module, "mix"));
		GO(cuModuleGetFunction(&chase[i], module, "chase"));
		may_reach[i][i] = 1;
		for (int j = 0; j < n_devices; j++)
			GO(cuDeviceCanAccessPeer(&can_reach[i][j], i, j));
	}
}

static void open_worker(struct worker *worker, unsigned id)
{
	worker->id = id;
	worker->random = options.seed * 7919 + id;
	for (unsigned i = 0; i < (unsigned)n_devices * PER_DEVICE; i++) {
		be(device_of(i));
		GO(cuStreamCreate(&worker->stream[i], CU_STREAM_NON_BLOCKING));
		GO(cuEventCreate(&worker->event[i], CU_EVENT_DISABLE_TIMING));
	}
	for (int i = 0; i < n_devices; i++) {
		be(i);
		GO(cuMemAlloc_v2(&worker->table[i], 8));
	}
	GO(cuMemHostAlloc((void **)&worker->pinned, 4 * HOST_WORDS, CU_MEMHOSTALLOC_PORTABLE));
	worker->pageable = malloc(4 * HOST_WORDS);
}

static void read_options(int argc, char **argv)
{
	static const struct option names[] = {{"seed", 1, NULL, 's'},      {"operations", 1, NULL, 'n'},
					      {"threads", 1, NULL, 't'},   {"bytes", 1, NULL, 'b'},
					      {"no-hidden", 0, NULL, 'h'}, {NULL, 0, NULL, 0}};
	int option;

	while ((option = getopt_long(argc, argv, "", names, NULL)) != -1)
		switch (option) {
		case 's':
			options.seed = strtoull(optarg, NULL, 0);
			break;
		case 'n':
			options.operations = (unsigned)atoi(optarg);
			break;
		case 't':
			options.threads = (unsigned)atoi(optarg);
			break;
		case 'b':
			options.bytes = (size_t)atoi(optarg) * MIB;
			break;
		case 'h':
			options.hidden = 0;
			break;
		default:
			exit(2);
		}
	if (!options.threads || options.threads > THREADS)
		exit(2);
}

int main(int argc, char **argv)
{
	static struct worker workers[THREADS];

	read_options(argc, argv);
	printf("peer_random: seed %lu\n", (unsigned long)options.seed);
	fflush(stdout);
	open_devices();
	for (unsigned i = 0; i < options.threads; i++)
		open_worker(&workers[i], i);
	for (unsigned i = 0; i < options.threads; i++)
		pthread_create(&workers[i].thread, NULL, work, &workers[i]);
	for (unsigned i = 0; i < options.threads; i++)
		pthread_join(workers[i].thread, NULL);
	if (sim_broken_rules())
		fail("%lu rules of the model were broken", sim_broken_rules());
	return 0;
}
