// SPDX-License-Identifier: Apache-2.0
/*
 * managed_test.c: managed memory for a program that asked for device memory (backend.c): where it may be touched,
 * what it answers, and how it ends.
 */
#include "test/core/home.h"

static const struct policy_managed plain;

static CUdeviceptr managed(size_t bytes, const struct policy_managed *settings)
{
	const struct policy_decision decision = {.managed = settings ? settings : &plain};

	return home_get(&backend_managed, &(struct backend_request){.bytes = bytes, .decision = &decision});
}

TEST(more_than_the_device_has_serves_both_sides)
{
	const size_t bytes = 3 * 64 * MIB;
	CUdeviceptr at = managed(bytes, NULL);

	assert_int_equal(stats_live(PLACE_MANAGED), bytes);
	assert_ok(home_fill(at, 7, bytes / 4, NULL));
	assert_ok(cuCtxSynchronize());
	assert_true(home_holds(at, 7, bytes / 4));
	((uint32_t *)(uintptr_t)at)[1000] = 8;
	uint32_t word = 0;
	assert_ok(cuMemcpyDtoH_v2(&word, at + 4000, 4));
	assert_int_equal(word, 8);
	assert_ok(cuMemFree_v2(at));
	assert_int_equal(stats_live(PLACE_MANAGED), 0);
}

TEST(it_answers_as_device_memory_that_is_managed)
{
	CUdeviceptr at = managed(MIB, NULL), base, pointer;
	unsigned type = 0, is_managed = 0;
	void *data[] = {&type, &is_managed};
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED};
	size_t bytes;

	assert_int_equal(home_ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + 5), CU_MEMORYTYPE_DEVICE);
	assert_int_equal(home_ask(CU_POINTER_ATTRIBUTE_IS_MANAGED, at + 5), 1);
	assert_int_equal(home_ask(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at), 0);
	assert_ok(cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, at + 5));
	assert_int_equal(pointer, at + 5);
	assert_ok(cuPointerGetAttributes(2, which, data, at + 5));
	assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
	assert_int_equal(is_managed, 1);
	assert_ok(cuMemGetAddressRange_v2(&base, &bytes, at + 5000));
	assert_int_equal(base, at);
	assert_int_equal(bytes, MIB);
	assert_ok(cuMemFree_v2(at));
	assert_int_equal(cuPointerGetAttribute(&type, which[0], at), CUDA_ERROR_INVALID_VALUE);
}

TEST(synchronous_copies_can_be_asked_for)
{
	CUdeviceptr at = managed(MIB, NULL), own;
	unsigned on = 1;

	assert_ok(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at + 8));
	assert_int_equal(home_ask(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at), 1);
	assert_int_equal(ledger_n_sync_memops(), 1);
	assert_ok(cuMemFree_v2(at));
	assert_int_equal(ledger_n_sync_memops(), 0);
	/* The program's own managed memory is the driver's business alone. */
	assert_ok(cuMemAllocManaged(&own, MIB, CU_MEM_ATTACH_GLOBAL));
	assert_int_equal(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, own), CUDA_ERROR_NOT_SUPPORTED);
	assert_ok(cuMemFree_v2(own));
}

static int range_attribute(CUdeviceptr at, CUmem_range_attribute attribute)
{
	int value = 77;

	assert_ok(cuMemRangeGetAttribute(&value, sizeof(value), attribute, at, MIB));
	return value;
}

TEST(advice_of_the_policy_is_given)
{
	struct policy_managed settings = {.advise = 1 << POLICY_ADVISE_READ_MOSTLY | 1 << POLICY_ADVISE_PREFERRED_HOST |
						    1 << POLICY_ADVISE_ACCESSED_BY};
	CUdeviceptr at = managed(MIB, &settings);

	assert_int_equal(range_attribute(at, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), 1);
	assert_int_equal(range_attribute(at, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION), CU_DEVICE_CPU);
	assert_int_equal(range_attribute(at, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY), 0);
	assert_ok(cuMemFree_v2(at));
	settings.advise = 1 << POLICY_ADVISE_PREFERRED_DEVICE | 1 << POLICY_ADVISE_PREFERRED_HOST;
	at = managed(MIB, &settings);
	assert_int_equal(range_attribute(at, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), 0);
	assert_int_equal(range_attribute(at, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION), 0);
	assert_int_equal(range_attribute(at, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY), CU_DEVICE_INVALID);
	assert_ok(cuMemFree_v2(at));
}

TEST(advice_that_fails_leaves_good_memory)
{
	struct policy_managed settings = {.advise = 1 << POLICY_ADVISE_PREFERRED_DEVICE};

	sim_fail("cuMemAdvise", 1, CUDA_ERROR_INVALID_DEVICE);
	CUdeviceptr at = managed(MIB, &settings);

	assert_int_equal(range_attribute(at, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION), CU_DEVICE_INVALID);
	assert_ok(home_fill(at, 1, 100, NULL));
	assert_ok(cuMemFree_v2(at));
}

TEST(a_driver_without_memory_says_so)
{
	struct backend_request request = {.bytes = MIB, .decision = &(struct policy_decision){.managed = &plain}};
	CUdeviceptr at = 4711;

	sim_fail("cuMemAllocManaged", 1, CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(home_alloc(&backend_managed, &request, &at), SW_NO_MEMORY);
	device_get(0)->managed = false;
	assert_int_equal(home_alloc(&backend_managed, &request, &at), SW_NOT_SUPPORTED);
	device_get(0)->managed = true;
	assert_int_equal(at, 4711);
}

/* ---- freeing ---- */

TEST(a_free_that_the_driver_refuses_leaves_it_alive)
{
	CUdeviceptr at = managed(MIB, NULL);

	uint64_t frees = stats_get(STAT_frees);

	sim_fail("cuMemFree_v2", 1, CUDA_ERROR_UNKNOWN);
	assert_int_equal(cuMemFree_v2(at), CUDA_ERROR_UNKNOWN);
	assert_int_equal(stats_live(PLACE_MANAGED), MIB);
	assert_int_equal(stats_get(STAT_frees), frees);
	assert_int_equal(cuMemFree_v2(at + 4096), CUDA_ERROR_INVALID_VALUE);
	assert_ok(cuMemFree_v2(at));
	assert_int_equal(cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_free_behind_a_stream_waits_for_it_and_not_the_program)
{
	CUdeviceptr at = managed(MIB, NULL);
	CUstream stream = home_stream();
	unsigned long frees = sim_calls("cuMemFree_v2");

	sim_hold();
	assert_ok(home_fill(at, 3, MIB / 4, stream));
	assert_ok(cuMemFreeAsync(at, stream));
	deferred_free_reap(0);
	assert_int_equal(sim_calls("cuMemFree_v2"), frees);
	sim_release();
	assert_ok(cuStreamSynchronize(stream));
	core_drain();
	assert_int_equal(stats_live(PLACE_MANAGED), 0);
	assert_ok(cuStreamDestroy_v2(stream));
}

TEST(a_free_in_a_capture_is_put_off_and_harms_it_not)
{
	CUdeviceptr at = managed(MIB, NULL);
	CUstream stream = home_capture();

	assert_ok(cuMemFree_v2(at));
	assert_int_equal(stats_live(PLACE_MANAGED), MIB);
	deferred_free_reap(0);
	home_end_capture(stream);
	assert_int_equal(stats_live(PLACE_MANAGED), 0);
}

/* The driver has freed it then: a second time it would be somebody else's. */
TEST(with_its_context_it_is_gone)
{
	CUcontext first = core_current(), second = core_new_context();

	managed(MIB, NULL);
	CUdeviceptr other = managed(2 * MIB, NULL);
	CUstream stream = home_stream();
	assert_ok(cuMemFreeAsync(other, stream));
	unsigned long frees = sim_calls("cuMemFree_v2");
	assert_ok(cuCtxDestroy_v2(second));
	assert_int_equal(stats_live(PLACE_MANAGED), 0);
	assert_int_equal(sim_calls("cuMemFree_v2"), frees);
	assert_ok(cuCtxSetCurrent(first));
}

/* Freed behind a stream of another context, which ends first: its own context lives, and so it is freed as ever. */
TEST(the_end_of_another_context_frees_it_as_ever)
{
	CUdeviceptr at = managed(MIB, NULL);
	CUcontext first = core_current(), second = core_new_context();
	CUstream stream = home_stream();

	/* When the stream is done at once it is freed at once. */
	unsigned long frees = sim_calls("cuMemFree_v2");
	assert_ok(cuMemFreeAsync(at, stream));
	assert_ok(cuCtxSetCurrent(first));
	assert_ok(cuCtxDestroy_v2(second));
	core_drain();
	assert_int_equal(sim_calls("cuMemFree_v2"), frees + 1);
	assert_int_equal(stats_live(PLACE_MANAGED), 0);
}

EACH_TEST(home_set_up, home_tear_down)

START(home_start())
