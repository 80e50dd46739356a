// SPDX-License-Identifier: Apache-2.0
/*
 * Many threads that allocate, fill, copy and free at once, over the budget, while others fork and ask questions.
 */
#include "test/preload/driver.h"
#include "test/test.h"

#include <stdatomic.h>

enum { THREADS = 6, ROUNDS = 60, HELD = 8 };

static CUcontext context;

BEFORE_ALL
{
	context = driver_start(0);
}

AFTER_EACH
{
	CUdeviceptr block;

	assert_int_equal(cu.cuCtxSynchronize(), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemAlloc_v2(&block, 96 * MIB), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemFree_v2(block), CUDA_SUCCESS);
	if (driver_native("sim_broken_rules"))
		assert_int_equal(sim_broken_rules(), 0);
}

struct worker {
	unsigned seed;
	const char *failed; /* what went wrong first; cmocka's asserts are for the main thread alone */
};

static unsigned next(struct worker *worker)
{
	worker->seed = worker->seed * 1664525 + 1013904223;
	return worker->seed >> 8;
}

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition) && !worker->failed)                                                                   \
			worker->failed = #condition;                                                                   \
	} while (0)

/* Each thread's blocks hold a word of its own; another's write, or an early reuse, shows. */
static void *work(void *argument)
{
	struct worker *worker = argument;
	CUdeviceptr held[HELD] = {0};
	unsigned words[HELD], mark = worker->seed;
	CUstream stream;

	CHECK(cu.cuCtxSetCurrent(context) == CUDA_SUCCESS);
	CHECK(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
	for (int round = 0; round < ROUNDS && !worker->failed; round++) {
		unsigned slot = next(worker) % HELD;

		if (held[slot]) {
			CHECK(driver_holds(held[slot], mark + slot, words[slot]));
			CHECK((next(worker) % 2 ? cu.cuMemFree_v2(held[slot])
						: cu.cuMemFreeAsync(held[slot], stream)) == CUDA_SUCCESS);
			held[slot] = 0;
			continue;
		}
		size_t bytes =
		    next(worker) % 3 ? 4 * (1 + next(worker) % 50000) : 2 * MIB + 4 * (next(worker) % 100000);
		CUresult result = cu.cuMemAlloc_v2(&held[slot], bytes);

		CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
		if (result != CUDA_SUCCESS) {
			held[slot] = 0;
			continue;
		}
		words[slot] = (unsigned)(bytes / 4);
		CHECK(cu.cuMemsetD32_v2(held[slot], mark + slot, words[slot]) == CUDA_SUCCESS);
		CHECK(cu.cuMemGetAddressRange_v2(NULL, &bytes, held[slot] + 1) == CUDA_SUCCESS);
	}
	for (unsigned slot = 0; slot < HELD; slot++)
		CHECK(!held[slot] || cu.cuMemFree_v2(held[slot]) == CUDA_SUCCESS);
	CHECK(cu.cuStreamDestroy_v2(stream) == CUDA_SUCCESS);
	return NULL;
}

static atomic_bool stop;

static void *ask(void *argument)
{
	struct worker *worker = argument;
	size_t free, total;

	CHECK(cu.cuCtxSetCurrent(context) == CUDA_SUCCESS);
	while (!atomic_load(&stop)) {
		CHECK(cu.cuMemGetInfo_v2(&free, &total) == CUDA_SUCCESS);
		CHECK(free <= total);
	}
	return NULL;
}

TEST(threads_allocate_copy_and_free_at_once_and_figures_stay_sane)
{
	struct worker asker = {0}, worker[THREADS] = {0};
	pthread_t thread[THREADS];

	pthread_t asking = test_thread(ask, &asker);
	for (unsigned i = 0; i < THREADS; i++) {
		worker[i].seed = 1000000 * (i + 1);
		thread[i] = test_thread(work, &worker[i]);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	atomic_store(&stop, true);
	pthread_join(asking, NULL);
	assert_null(asker.failed);
	for (unsigned i = 0; i < THREADS; i++)
		if (worker[i].failed)
			fail_msg("thread %u: %s", i, worker[i].failed);
}

/* A block may be freed by any thread; every one exactly once. */
static void *give_back(void *argument)
{
	CUdeviceptr *blocks = argument;
	intptr_t freed = 0;

	cu.cuCtxSetCurrent(context);
	for (int i = 0; i < 200; i++)
		freed += cu.cuMemFree_v2(blocks[i]) == CUDA_SUCCESS;
	return (void *)freed;
}

TEST(of_many_frees_of_a_block_one_succeeds)
{
	CUdeviceptr blocks[200];
	pthread_t thread[4];
	intptr_t sum = 0;

	for (int i = 0; i < 200; i++)
		assert_int_equal(cu.cuMemAlloc_v2(&blocks[i], 1000), CUDA_SUCCESS);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, give_back, blocks), 0);
	for (int i = 0; i < 4; i++) {
		void *freed;

		pthread_join(thread[i], &freed);
		sum += (intptr_t)freed;
	}
	assert_int_equal(sum, 200);
}
