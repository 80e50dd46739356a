/*
 * Advice, prefetches and questions about them, as for managed memory, on memory that the program takes for managed and
 * that is a heap block (entry_hint.c); and that managed memory of the program itself still gets them.
 */
#include "test/preload/driver.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define BYTES    (3 * MIB)
#define GPU_0    ((CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE})
#define GPU_9    ((CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 9})
#define HOST     ((CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST})
#define NOWHERE  ((CUmemLocation){.type = CU_MEM_LOCATION_TYPE_INVALID})
#define ok(call) assert_int_equal((call), CUDA_SUCCESS)
#define is(e, c) assert_int_equal((c), CUDA_ERROR_##e)

static CUdeviceptr heap;

static int set_up(void **state)
{
	(void)state;
	driver_start(0);
	ok(cu.cuMemAlloc_v2(&heap, BYTES));
	assert_true(driver_is_heap(heap));
	ok(driver_fill(NULL, heap, 7, BYTES / 4));
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	assert_true(driver_holds(heap, 7, BYTES / 4));
	ok(cu.cuMemFree_v2(heap));
	assert_int_equal(sim_broken_rules(), 0);
	return 0;
}

static void a_prefetch_is_taken_as_a_hint(void **state)
{
	unsigned long calls = sim_calls("cuMemPrefetchAsync") + sim_calls("cuMemPrefetchAsync_v2");

	(void)state;
	ok(cuMemPrefetchAsync(heap, BYTES, 0, NULL));
	ok(cuMemPrefetchAsync(heap + 100, 5, CU_DEVICE_CPU, NULL));
	ok(cuMemPrefetchAsync_ptsz(heap, BYTES, 0, NULL));
	ok(cuMemPrefetchAsync_v2(heap, BYTES, GPU_0, 0, NULL));
	ok(cuMemPrefetchAsync_v2(heap + BYTES - 1, 1, HOST, 0, NULL));
	ok(cuMemPrefetchAsync_v2_ptsz(heap, BYTES, GPU_0, 0, NULL));
	assert_int_equal(sim_calls("cuMemPrefetchAsync") + sim_calls("cuMemPrefetchAsync_v2"), calls);
}

static void a_wrong_prefetch_is_refused_as_by_the_driver(void **state)
{
	(void)state;
	is(INVALID_VALUE, cuMemPrefetchAsync(heap, 0, 0, NULL));
	is(INVALID_VALUE, cuMemPrefetchAsync(heap + 1, BYTES, 0, NULL));
	is(INVALID_VALUE, cuMemPrefetchAsync(heap + BYTES + 64 * MIB, 1, 0, NULL));
	is(INVALID_DEVICE, cuMemPrefetchAsync(heap, BYTES, 9, NULL));
	is(INVALID_DEVICE, cuMemPrefetchAsync_v2(heap, BYTES, GPU_9, 0, NULL));
	is(INVALID_VALUE, cuMemPrefetchAsync_v2(heap, BYTES, NOWHERE, 0, NULL));
	is(INVALID_VALUE, cuMemPrefetchAsync_v2(heap, BYTES, GPU_0, 1, NULL));
}

static void advice_is_taken_as_a_hint(void **state)
{
	(void)state;
	ok(cuMemAdvise(heap, BYTES, CU_MEM_ADVISE_SET_READ_MOSTLY, 9)); /* the device is ignored */
	ok(cuMemAdvise(heap, BYTES, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
	ok(cuMemAdvise_v2(heap, BYTES, CU_MEM_ADVISE_SET_ACCESSED_BY, GPU_0));
	ok(cuMemAdvise_v2(heap, BYTES, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, NOWHERE));
	is(INVALID_DEVICE, cuMemAdvise(heap, BYTES, CU_MEM_ADVISE_SET_ACCESSED_BY, 9));
	is(INVALID_VALUE, cuMemAdvise_v2(heap, BYTES, (CUmem_advise)77, GPU_0));
	is(INVALID_VALUE, cuMemAdvise_v2(heap, BYTES + 1, CU_MEM_ADVISE_SET_READ_MOSTLY, GPU_0));
}

static void a_range_has_no_advice(void **state)
{
	int value[3] = {7, 7, 7}, more = 7;
	void *data[] = {value, &more};
	size_t sizes[] = {12, 4};
	CUmem_range_attribute which[] = {CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY};

	(void)state;
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

static void the_programs_own_managed_memory_is_the_drivers(void **state)
{
	CUdeviceptr managed;
	int value = 0;

	(void)state;
	ok(cu.cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL));
	ok(cuMemAdvise(managed, BYTES, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
	ok(cuMemPrefetchAsync_v2(managed, BYTES, GPU_0, 0, NULL));
	ok(cu.cuCtxSynchronize());
	assert_int_equal(sim_managed_where(managed), 2);
	ok(cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, managed, BYTES));
	assert_int_equal(value, 1);
	is(INVALID_VALUE, cuMemPrefetchAsync_v2(managed, BYTES + 1, GPU_0, 0, NULL));
	ok(cu.cuMemFree_v2(managed));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_prefetch_is_taken_as_a_hint),
	    cmocka_unit_test(a_wrong_prefetch_is_refused_as_by_the_driver),
	    cmocka_unit_test(advice_is_taken_as_a_hint),
	    cmocka_unit_test(a_range_has_no_advice),
	    cmocka_unit_test(the_programs_own_managed_memory_is_the_drivers),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
