// SPDX-License-Identifier: Apache-2.0
/*
 * vmm_random_grow.c: blocks that grow where they are and are freed: of cuMemAlloc under a rule's cap (vmm_random.yaml),
 * and of a pool. What the caps and the pools have left is what it was before. Without the library nothing grows.
 */
#include "shim/spillway.h"
#include "test/preload/vmm_random.h"

#define CAPPED (5 * MIB) /* vmm_random.yaml: under a cap in which each worker may have GROWN */
#define GROWN  (8 * MIB)

/* As far as the addresses behind it allow. Returns how long it is then. */
static size_t grow(CUdeviceptr at, size_t bytes, size_t wanted)
{
	return spillway_grow && spillway_grow((const void *)(uintptr_t)at, wanted) == 0 ? wanted : bytes;
}

static void fill_and_check(struct worker *worker, CUdeviceptr at, size_t bytes)
{
	uint32_t value = worker_below(worker, 1u << 30);

	GO(cuMemsetD32Async(at, value, bytes / 4, worker->stream[0]));
	GO(cuMemcpyDtoHAsync_v2(worker->other, at, bytes, worker->stream[0]));
	GO(cuStreamSynchronize(worker->stream[0]));
	for (size_t i = 0; i < bytes / 4; i++)
		if (worker->other[i] != value)
			made_up_fail("worker %u: word %zu of a block of %zu is %#x, not %#x", worker->id, i, bytes,
				     worker->other[i], value);
}

static void capped(struct worker *worker)
{
	size_t bytes = CAPPED;
	CUdeviceptr at;

	GO(cuMemAlloc_v2(&at, bytes));
	if (grow(at, bytes, (size_t)1 << 30) != bytes)
		made_up_fail("worker %u: a block has grown beyond the cap of its rule", worker->id);
	for (unsigned times = worker_below(worker, 3); times; times--)
		bytes = grow(at, bytes, bytes + worker_below(worker, (uint32_t)(GROWN - bytes) / 4) * 4);
	fill_and_check(worker, at, bytes);
	GO(cuMemFree_v2(at));
}

/* Others may have something in it meanwhile: so much for each thread at most. */
static void pooled(struct worker *worker)
{
	size_t bytes = (1 + worker_below(worker, 4)) * MIB;
	CUmemoryPool pool;
	cuuint64_t used;
	CUdeviceptr at;

	GO(cuDeviceGetDefaultMemPool(&pool, 0));
	GO(cuMemAllocAsync(&at, bytes, worker->stream[0]));
	bytes = grow(at, bytes, bytes + worker_below(worker, MIB) * 4);
	fill_and_check(worker, at, bytes);
	GO(cuMemFreeAsync(at, worker->stream[0]));
	GO(cuStreamSynchronize(worker->stream[0]));
	GO(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	if (used > THREADS_MAX * GROWN)
		made_up_fail("worker %u: a pool has %llu bytes in use", worker->id, (unsigned long long)used);
}

void grow_play(struct worker *worker)
{
	if (worker_below(worker, 2))
		capped(worker);
	else
		pooled(worker);
}
