// SPDX-License-Identifier: Apache-2.0
/*
 * Advice, prefetches and questions about them, as for managed memory, on memory that the program takes for managed and
 * that is a heap block (entry_submit.c); and that managed memory of the program itself still gets them.
 */
#include "test/preload/driver.h"
#include "test/test.h"

#define BYTES    (3 * MIB)
#define GPU_0    ((CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE})
#define GPU_9    ((CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 9})
#define HOST     ((CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST})
#define NOWHERE  ((CUmemLocation){.type = CU_MEM_LOCATION_TYPE_INVALID})
#define ok(call) assert_int_equal((call), CUDA_SUCCESS)
#define is(e, c) assert_int_equal((c), CUDA_ERROR_##e)

static CUdeviceptr heap;

FIXTURE(set_up)
{
	driver_start(0);
	ok(cu.cuMemAlloc_v2(&heap, BYTES));
	assert_true(driver_is_heap(heap));
	ok(driver_fill(NULL, heap, 7, BYTES / 4));
}

FIXTURE(tear_down)
{
	assert_true(driver_holds(heap, 7, BYTES / 4));
	ok(cu.cuMemFree_v2(heap));
	assert_int_equal(sim_broken_rules(), 0);
}

GROUP(set_up, tear_down)

TEST(a_prefetch_is_taken_as_a_hint)
{
	unsigned long calls = sim_calls("cuMemPrefetchAsync") + sim_calls("cuMemPrefetchAsync_v2");

	ok(cuMemPrefetchAsync(heap, BYTES, 0, NULL));
	ok(cuMemPrefetchAsync(heap + 100, 5, CU_DEVICE_CPU, NULL));
	ok(cuMemPrefetchAsync_ptsz(heap, BYTES, 0, NULL));
	ok(cuMemPrefetchAsync_v2(heap, BYTES, GPU_0, 0, NULL));
	ok(cuMemPrefetchAsync_v2(heap + BYTES - 1, 1, HOST, 0, NULL));
	ok(cuMemPrefetchAsync_v2_ptsz(heap, BYTES, GPU_0, 0, NULL));
	assert_int_equal(sim_calls("cuMemPrefetchAsync") + sim_calls("cuMemPrefetchAsync_v2"), calls);
}

TEST(a_wrong_prefetch_is_refused_as_by_the_driver)
{
	is(INVALID_VALUE, cuMemPrefetchAsync(heap, 0, 0, NULL));
	is(INVALID_VALUE, cuMemPrefetchAsync(heap + 1, BYTES, 0, NULL));
	is(INVALID_VALUE, cuMemPrefetchAsync(heap + BYTES + 64 * MIB, 1, 0, NULL));
	is(INVALID_DEVICE, cuMemPrefetchAsync(heap, BYTES, 9, NULL));
	is(INVALID_DEVICE, cuMemPrefetchAsync_v2(heap, BYTES, GPU_9, 0, NULL));
	is(INVALID_VALUE, cuMemPrefetchAsync_v2(heap, BYTES, NOWHERE, 0, NULL));
	is(INVALID_VALUE, cuMemPrefetchAsync_v2(heap, BYTES, GPU_0, 1, NULL));
}

TEST(advice_is_taken_as_a_hint)
{
	ok(cuMemAdvise(heap, BYTES, CU_MEM_ADVISE_SET_READ_MOSTLY, 9)); /* the device is ignored */
	ok(cuMemAdvise(heap, BYTES, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
	ok(cuMemAdvise_v2(heap, BYTES, CU_MEM_ADVISE_SET_ACCESSED_BY, GPU_0));
	ok(cuMemAdvise_v2(heap, BYTES, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, NOWHERE));
	is(INVALID_DEVICE, cuMemAdvise(heap, BYTES, CU_MEM_ADVISE_SET_ACCESSED_BY, 9));
	is(INVALID_VALUE, cuMemAdvise_v2(heap, BYTES, (CUmem_advise)77, GPU_0));
	is(INVALID_VALUE, cuMemAdvise_v2(heap, BYTES + 1, CU_MEM_ADVISE_SET_READ_MOSTLY, GPU_0));
}

TEST(a_range_has_no_advice)
{
	int value[3] = {7, 7, 7}, more = 7;
	void *data[] = {value, &more};
	size_t sizes[] = {12, 4};
	CUmem_range_attribute which[] = {CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY};

	ok(cuMemRangeGetAttributes(data, sizes, which, 2, heap, BYTES));
	assert_int_equal(value[0], CU_DEVICE_INVALID);
	assert_int_equal(value[2], CU_DEVICE_INVALID);
	assert_int_equal(more, 0);
	ok(cuMemRangeGetAttribute(&more, 4, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, heap, BYTES));
	assert_int_equal(more, CU_DEVICE_INVALID);
	is(INVALID_VALUE, cuMemRangeGetAttribute(&more, 8, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, heap, BYTES));
	is(INVALID_VALUE, cuMemRangeGetAttribute(&more, 4, (CUmem_range_attribute)77, heap, BYTES));
	is(INVALID_VALUE, cuMemRangeGetAttribute(&more, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, heap, BYTES + 1));
}

TEST(the_programs_own_managed_memory_is_the_drivers)
{
	int value = 0;
	CUdeviceptr managed = driver_managed(BYTES);

	ok(cuMemAdvise(managed, BYTES, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
	ok(cuMemPrefetchAsync_v2(managed, BYTES, GPU_0, 0, NULL));
	ok(cu.cuCtxSynchronize());
	assert_int_equal(sim_managed_where(managed), 2);
	ok(cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, managed, BYTES));
	assert_int_equal(value, 1);
	is(INVALID_VALUE, cuMemPrefetchAsync_v2(managed, BYTES + 1, GPU_0, 0, NULL));
	ok(cu.cuMemFree_v2(managed));
}

/* ---- batches ---- */

static unsigned long batches(void)
{
	return sim_calls("cuMemPrefetchBatchAsync") + sim_calls("cuMemPrefetchBatchAsync_ptsz") +
	       sim_calls("cuMemDiscardBatchAsync") + sim_calls("cuMemDiscardBatchAsync_ptsz") +
	       sim_calls("cuMemDiscardAndPrefetchBatchAsync") + sim_calls("cuMemDiscardAndPrefetchBatchAsync_ptsz");
}

TEST(batches_of_heap_memory_are_taken_as_hints)
{
	CUdeviceptr at[] = {heap, heap + MIB, heap + 5};
	CUmemLocation to[] = {GPU_0, HOST};
	size_t sizes[] = {4096, MIB, 1}, first[] = {0, 2};
	unsigned long calls = batches();
	CUstream stream;

	ok(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(cuMemPrefetchBatchAsync(at, sizes, 3, to, first, 2, 0, stream));
	ok(cuMemPrefetchBatchAsync_ptsz(at, sizes, 3, to, first, 1, 0, NULL));
	ok(cuMemPrefetchBatchAsync(at, sizes, 3, to, first, 2, 0, CU_STREAM_PER_THREAD));
	ok(cuMemDiscardBatchAsync(at, sizes, 3, 0, stream));
	ok(cuMemDiscardBatchAsync_ptsz(at, sizes, 3, 0, NULL));
	ok(cuMemDiscardAndPrefetchBatchAsync(at, sizes, 3, to, first, 2, 0, stream));
	ok(cuMemDiscardAndPrefetchBatchAsync_ptsz(at, sizes, 3, to, first, 2, 0, stream));
	assert_int_equal(batches(), calls);
	ok(cu.cuStreamDestroy_v2(stream));
}

TEST(a_wrong_batch_is_refused_whole)
{
	CUdeviceptr at[] = {heap, heap + MIB};
	CUmemLocation to[] = {GPU_0, HOST}, wrong[] = {GPU_0, GPU_9};
	size_t sizes[] = {4096, MIB}, long_ones[] = {1, 3 * MIB}, none[] = {1, 0};
	size_t first[] = {0, 1}, late[] = {1, 1}, equal[] = {0, 0}, far[] = {0, 2};
	unsigned long calls = batches();
	const CUstream own = CU_STREAM_PER_THREAD;

	is(INVALID_VALUE, cuMemDiscardBatchAsync(at, sizes, 2, 1, own));
	is(INVALID_VALUE, cuMemDiscardBatchAsync(at, sizes, 2, 0, NULL));
	is(INVALID_VALUE, cuMemDiscardBatchAsync_ptsz(at, sizes, 2, 0, CU_STREAM_LEGACY));
	is(INVALID_VALUE, cuMemDiscardBatchAsync(at, long_ones, 2, 0, own));
	is(INVALID_VALUE, cuMemDiscardBatchAsync(at, none, 2, 0, own));
	is(INVALID_VALUE, cuMemPrefetchBatchAsync(at, sizes, 2, NULL, first, 1, 0, own));
	is(INVALID_VALUE, cuMemPrefetchBatchAsync(at, sizes, 2, to, NULL, 1, 0, own));
	is(INVALID_VALUE, cuMemPrefetchBatchAsync(at, sizes, 2, to, first, 0, 0, own));
	is(INVALID_VALUE, cuMemPrefetchBatchAsync(at, sizes, 1, to, first, 2, 0, own));
	is(INVALID_VALUE, cuMemPrefetchBatchAsync(at, sizes, 2, to, late, 2, 0, own));
	is(INVALID_VALUE, cuMemPrefetchBatchAsync(at, sizes, 2, to, equal, 2, 0, own));
	is(INVALID_VALUE, cuMemPrefetchBatchAsync(at, sizes, 2, to, far, 2, 0, own));
	is(INVALID_DEVICE, cuMemDiscardAndPrefetchBatchAsync(at, sizes, 2, wrong, first, 2, 0, own));
	assert_int_equal(batches(), calls);
	/* Nothing of ours in it, or nothing at all: the driver judges. */
	is(INVALID_VALUE, cuMemDiscardBatchAsync(NULL, NULL, 2, 0, own));
	is(INVALID_VALUE, cuMemPrefetchBatchAsync(at, sizes, 0, to, first, 1, 0, own));
	assert_int_equal(batches(), calls + 2);
}

TEST(a_mixed_batch_gives_the_driver_its_own_part)
{
	CUdeviceptr at[4];
	CUmemLocation to[] = {HOST, GPU_0}, wrong[] = {HOST, GPU_9};
	size_t sizes[] = {MIB, MIB, MIB, MIB}, first[] = {0, 3};
	unsigned long calls = batches();
	CUstream stream;

	ok(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CUdeviceptr managed = driver_managed(BYTES), other = driver_managed(BYTES);
	at[0] = heap;
	at[1] = managed;
	at[2] = heap + MIB;
	at[3] = other;
	/* One call for the driver, with the location of each range. */
	ok(cuMemPrefetchBatchAsync(at, sizes, 4, to, first, 2, 0, stream));
	ok(cu.cuStreamSynchronize(stream));
	assert_int_equal(batches(), calls + 1);
	assert_int_equal(sim_managed_where(managed), 1);
	assert_int_equal(sim_managed_where(other), 2);
	ok(cuMemDiscardAndPrefetchBatchAsync_ptsz(at, sizes, 4, to, first, 1, 0, stream));
	ok(cuMemDiscardBatchAsync(at, sizes, 4, 0, stream));
	assert_int_equal(batches(), calls + 3);
	/* What is wrong in ours keeps all of it from the driver, what is wrong in the driver's is its answer. */
	sizes[2] = BYTES;
	is(INVALID_VALUE, cuMemDiscardBatchAsync(at, sizes, 4, 0, stream));
	assert_int_equal(batches(), calls + 3);
	sizes[2] = MIB;
	sizes[3] = BYTES + 1;
	is(INVALID_VALUE, cuMemDiscardBatchAsync(at, sizes, 4, 0, stream));
	sizes[3] = MIB;
	is(INVALID_DEVICE, cuMemPrefetchBatchAsync(at, sizes, 4, wrong, first, 2, 0, stream));
	/* All of it the driver's: as it was given. */
	ok(cuMemPrefetchBatchAsync(at + 1, sizes, 1, to + 1, first, 1, 0, stream));
	ok(cu.cuStreamSynchronize(stream));
	assert_int_equal(sim_managed_where(managed), 2);
	ok(cu.cuMemFree_v2(managed));
	ok(cu.cuMemFree_v2(other));
	ok(cu.cuStreamDestroy_v2(stream));
}
