// SPDX-License-Identifier: Apache-2.0
#include "test/core/async_help.h"
#include "test/ledger_check.h"

#include "shim/serve/segments.h"

static CUdeviceptr got[4096];
static _Atomic unsigned n_got;

CUdeviceptr async_get(size_t bytes, CUstream stream)
{
	unsigned i = n_got++;

	CHECK(i < sizeof(got) / sizeof(*got));
	CHECK(cuMemAllocAsync(&got[i], bytes, stream) == CUDA_SUCCESS);
	return got[i];
}

/* The streams that are held. */
static struct gate {
	sem_t reached, open;
	CUstream stream;
	bool held;
} gates[2];

static void gate_work(void *argument)
{
	struct gate *gate = argument;

	sem_post(&gate->reached);
	sem_wait(&gate->open);
}

void async_hold(CUstream stream)
{
	struct gate *gate = &gates[gates[0].held];

	CHECK(!gate->held);
	sem_init(&gate->reached, 0, 0);
	sem_init(&gate->open, 0, 0);
	gate->stream = stream;
	gate->held = true;
	CHECK(cuLaunchHostFunc(stream, gate_work, gate) == CUDA_SUCCESS);
	sem_wait(&gate->reached);
}

void async_open(CUstream stream)
{
	for (struct gate *gate = gates; gate < gates + 2; gate++)
		if (gate->stream == stream && gate->held) {
			gate->held = false;
			sem_post(&gate->open);
		}
}

void async_let_go(CUstream stream)
{
	async_open(stream);
	CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS);
}

void async_end(void)
{
	async_open(gates[0].stream);
	async_open(gates[1].stream);
	assert_ok(cuCtxSynchronize());
	/* The test has freed some of them: that is refused. What is not freed so the tear-down finds. */
	while (n_got)
		cuMemFreeAsync(got[--n_got], NULL);
	assert_ok(cuStreamSynchronize(NULL));
	core_streams_end(NULL);
}

void async_give(CUdeviceptr address)
{
	assert_ok(cuMemFreeAsync(address, NULL));
	assert_ok(cuStreamSynchronize(NULL));
}

bool async_in_heap(CUdeviceptr address)
{
	return device_of(address) != NULL;
}

CUmemoryPool async_default_pool(void)
{
	CUmemoryPool pool;

	CHECK(cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS);
	return pool;
}

void async_keep_in(CUmemoryPool pool, cuuint64_t bytes)
{
	CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes) == CUDA_SUCCESS);
}

void async_leave_to_pools(bool pools)
{
	CHECK(pthread_setname_np(pthread_self(), pools ? "pools" : "heap") == 0);
}

int async_check(void **state)
{
	struct heap *heap = atomic_load(&device_get(0)->heap);

	async_end();
	async_leave_to_pools(false);
	core_drain();
	assert_int_equal(ledger_n_rows(), 0);
	if (heap) {
		segments_give_up(device_get(0));
		assert_true(heap_is_valid(heap));
		heap_trim(heap, 0, 0);
	}
	assert_ok(cuMemPoolTrimTo(async_default_pool(), 0));
	assert_int_equal(host_budget.used, 0);
	assert_int_equal(sim_live().handles + sim_live().allocations, 0);
	assert_int_equal(sim_broken_rules(), 0);
	return 0;
}

int async_check_pools(void **state)
{
	async_keep_in(async_default_pool(), 0);
	if (async_check(state))
		return 1;
	pool_refresh(device_get(0), false);
	assert_int_equal(device_get(0)->pools_charged, 0);
	assert_int_equal(device_get(0)->budget.used, 0);
	return 0;
}
