// SPDX-License-Identifier: Apache-2.0
/*
 * async_random_test.c: several threads with two streams each allocate, use and free in stream order at random, over the
 * budget, while the streams lag behind at random. Every block is filled behind its allocation and read before its free,
 * in the order of its stream; a block that was given to two at a time shows a stranger's bytes. A third stream is of a
 * context, or a green one, that ends with frees pending and leaves blocks behind. Half way the primary context is
 * reset, which leaves all memory as it is. All of it in the heap, or, with ASYNC_USE=auto in the environment, in the
 * driver's pools while there is room.
 */
#include "test/core/core.h"

#include "shim/serve/deferred_free.h"
#include "shim/stats/stats.h"
#include "test/unit/seed.h"
#include "test/ledger_check.h"

#define THREADS 3
#define STREAMS 2 /* of the primary context */
#define GUEST   STREAMS
#define ROUNDS  400 /* two halves */
#define LIVE    6

struct held {
	CUdeviceptr address;
	size_t bytes;
	unsigned tag;
	unsigned stream;
	bool left; /* by a context that has ended: cuMemFree waits for none but that */
};

struct worker {
	struct seed seed;
	unsigned number;
	CUstream stream[STREAMS + 1];
	CUcontext context, guest; /* guest: NULL while there is none */
	CUgreenCtx green;         /* whose context that is; NULL: a context of its own */
	struct held held[LIVE];
	CUdeviceptr seen; /* two words for each allocation: what its first and last were before the free */
	unsigned n;       /* allocations */
	bool last;        /* the second half: nothing is left */
};

static bool is_auto;
static _Atomic unsigned n_at_driver;

static unsigned tag_of(const struct worker *worker, unsigned n)
{
	return (worker->number + 1) << 24 | (n + 1);
}

static void be_of(const struct worker *worker, unsigned stream)
{
	CHECK(cuCtxSetCurrent(stream == GUEST ? worker->guest : worker->context) == CUDA_SUCCESS);
}

static void give(struct worker *worker, struct held *held)
{
	CUstream stream = worker->stream[held->stream];
	CUdeviceptr seen = worker->seen + (held->tag & 0xffffff) * 8 - 8;

	be_of(worker, held->stream);
	CHECK(cuMemcpyDtoDAsync_v2(seen, held->address, 4, stream) == CUDA_SUCCESS);
	CHECK(cuMemcpyDtoDAsync_v2(seen + 4, held->address + held->bytes - 4, 4, stream) == CUDA_SUCCESS);
	if (held->left || seed_below(&worker->seed, 8))
		CHECK(cuMemFreeAsync(held->address, stream) == CUDA_SUCCESS);
	else
		CHECK(cuMemFree_v2(held->address) == CUDA_SUCCESS);
	held->address = 0;
}

static void take(struct worker *worker, struct held *held)
{
	static const size_t sizes[] = {4096, 100000, 3 * MIB, 4 * MIB, 8 * MIB, 11 * MIB};

	*held = (struct held){.bytes = sizes[seed_below(&worker->seed, 6)],
			      .stream = (unsigned)seed_below(&worker->seed, STREAMS + (worker->guest != NULL))};
	CUstream stream = worker->stream[held->stream];
	be_of(worker, held->stream);
	CUresult result = cuMemAllocAsync(&held->address, held->bytes, stream);
	if (result == CUDA_ERROR_OUT_OF_MEMORY) {
		held->address = 0;
		return;
	}
	CHECK(result == CUDA_SUCCESS && (is_auto || device_of(held->address)));
	n_at_driver += !device_of(held->address);
	held->tag = tag_of(worker, worker->n++);
	CHECK(cuMemsetD32Async(held->address, held->tag, held->bytes / 4, stream) == CUDA_SUCCESS);
}

/* ---- the context that comes and goes ---- */

static void guest_begin(struct worker *worker)
{
	worker->green = NULL;
	if (seed_below(&worker->seed, 2)) {
		CHECK(cuGreenCtxCreate(&worker->green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM) == CUDA_SUCCESS);
		CHECK(cuCtxFromGreenCtx(&worker->guest, worker->green) == CUDA_SUCCESS);
	} else {
		CHECK(cuCtxCreate_v2(&worker->guest, 0, 0) == CUDA_SUCCESS);
		CHECK(cuCtxPopCurrent_v2(NULL) == CUDA_SUCCESS);
	}
	be_of(worker, GUEST);
	CHECK(cuStreamCreate(&worker->stream[GUEST], CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
}

/* What it leaves behind is used in the first stream, after what it was given; a green context's work may go on. */
static void guest_end(struct worker *worker)
{
	CUstream stream = worker->stream[GUEST];
	CUevent event;

	for (unsigned i = 0; i < LIVE; i++) {
		if (!worker->held[i].address || worker->held[i].stream != GUEST)
			continue;
		if (seed_below(&worker->seed, 2))
			give(worker, &worker->held[i]);
		else
			worker->held[i].stream = 0, worker->held[i].left = true;
	}
	be_of(worker, GUEST);
	CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
	CHECK(cuEventRecord(event, stream) == CUDA_SUCCESS);
	CHECK(cuStreamWaitEvent(worker->stream[0], event, 0) == CUDA_SUCCESS);
	CHECK(cuEventDestroy_v2(event) == CUDA_SUCCESS);
	if (worker->green || seed_below(&worker->seed, 2))
		CHECK(cuStreamDestroy_v2(stream) == CUDA_SUCCESS);
	be_of(worker, 0);
	if (worker->green)
		CHECK(cuGreenCtxDestroy(worker->green) == CUDA_SUCCESS);
	else
		CHECK(cuCtxDestroy_v2(worker->guest) == CUDA_SUCCESS);
	worker->guest = NULL;
}

static void *work(void *argument)
{
	struct worker *worker = argument;

	CHECK(cuDevicePrimaryCtxRetain(&worker->context, 0) == CUDA_SUCCESS);
	be_of(worker, 0);
	for (unsigned i = 0; i < STREAMS; i++)
		CHECK(cuStreamCreate(&worker->stream[i], CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
	for (unsigned i = 0; i < ROUNDS / 2; i++) {
		struct held *held = &worker->held[seed_below(&worker->seed, LIVE)];

		if (held->address)
			give(worker, held);
		else
			take(worker, held);
		if (!seed_below(&worker->seed, worker->guest ? 8 : 4))
			(worker->guest ? guest_end : guest_begin)(worker);
	}
	if (worker->guest)
		guest_end(worker);
	for (unsigned i = 0; i < LIVE; i++)
		if (worker->held[i].address && worker->last)
			give(worker, &worker->held[i]);
	be_of(worker, 0);
	for (unsigned i = 0; i < STREAMS; i++) {
		CHECK(cuStreamSynchronize(worker->stream[i]) == CUDA_SUCCESS);
		CHECK(cuStreamDestroy_v2(worker->stream[i]) == CUDA_SUCCESS);
	}
	CHECK(cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS);
	return NULL;
}

static void all_work(struct worker workers[THREADS], bool last)
{
	pthread_t thread[THREADS];

	for (unsigned i = 0; i < THREADS; i++) {
		workers[i].last = last;
		assert_int_equal(pthread_create(&thread[i], NULL, work, &workers[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
}

TEST(nobodys_memory_is_anothers)
{
	static struct worker workers[THREADS];
	static unsigned seen[ROUNDS * 2];
	struct seed seed = seed_start("async_random_test");
	CUcontext context;

	for (unsigned i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.seed = {seed_next(&seed)}, .number = i};
		assert_ok(cuMemAllocAsync(&workers[i].seen, sizeof(seen), NULL));
	}
	assert_ok(cuStreamSynchronize(NULL));
	all_work(workers, false);
	assert_ok(cuDevicePrimaryCtxReset_v2(0));
	assert_ok(cuDevicePrimaryCtxRetain(&context, 0));
	assert_ok(cuCtxSetCurrent(context));
	all_work(workers, true);
	assert_true(stats_get(STAT_stream_allocations) > 0);
	if (is_auto)
		assert_true(n_at_driver > 0);
	else
		assert_true(stats_get(STAT_stream_reuses) > 0);
	for (unsigned i = 0; i < THREADS; i++) {
		assert_ok(cuMemcpyDtoH_v2(seen, workers[i].seen, sizeof(seen)));
		for (unsigned n = 0; n < workers[i].n * 2; n++)
			assert_int_equal(seen[n], tag_of(&workers[i], n / 2));
		assert_ok(cuMemFreeAsync(workers[i].seen, NULL));
	}
	/* What the driver's pools had is theirs until the stream has freed it. */
	assert_ok(cuStreamSynchronize(NULL));
	core_drain();
	assert_int_equal(ledger_n_rows(), 0);
	struct heap *heap = atomic_load(&device_get(0)->heap);
	assert_true(heap_is_valid(heap));
	heap_trim(heap, 0, 0);
	/* Nothing is claimed any more, so the pools are charged with what they have reserved: nothing. */
	pool_refresh(device_get(0), false);
	assert_int_equal(device_get(0)->budget.used, 0);
	assert_int_equal(sim_live().handles, 0);
	assert_int_equal(sim_broken_rules(), 0);
}

int main(void)
{
	const char *use = getenv("ASYNC_USE");
	char set[160];
	const char *const settings[] = {
	    "SIM_MEMORY=256MiB", "SIM_DELAY_US=200", "SPILLWAY_POLICY=" STREAMS_POLICY, set, NULL,
	};
	use = use ? use : "heap";
	is_auto = strcmp(use, "auto") == 0;
	/* The pools take at once what their streams have freed. */
	snprintf(set, sizeof(set),
		 "SPILLWAY_SET=async.use=%s,device.budget=%uMiB,host.budget=64MiB,spill.mode=static,report.summary=no",
		 use, is_auto ? 24 : 64);
	core_start(settings);
	return test_run();
}
