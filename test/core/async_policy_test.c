// SPDX-License-Identifier: Apache-2.0
/*
 * async_policy_test.c: `async.use: heap` in the policy brings memory in stream order into the heap, and its rules
 * decide about it like about any other; nothing else is switched on here. What becomes of it there: async_test.c.
 */
#include "test/core/async_help.h"

TEST(the_policy_sends_memory_in_stream_order_to_the_heap)
{
	CUstream stream = core_stream();
	CUdeviceptr address = async_get(4 * MIB, stream);

	assert_non_null(device_of(address));
}

TEST(a_rule_about_it_is_heard)
{
	CUstream stream = core_stream();
	CUdeviceptr address = async_get(2 * MIB, stream);

	assert_null(device_of(address)); /* the rule's: small ones stay with the driver */
}

static bool is_in_heap(CUresult result, const CUdeviceptr *address)
{
	assert_int_equal(result, CUDA_SUCCESS);
	bool in_heap = device_of(*address) != NULL;
	assert_ok(cuMemFreeAsync(*address, NULL));
	assert_ok(cuStreamSynchronize(NULL));
	return in_heap;
}

TEST(rules_tell_a_named_pool_from_the_streams_own)
{
	CUmemoryPool pool = async_default_pool();
	CUdeviceptr address;

	/* Below 3 MiB the rule is about async alone, at 5 MiB about pool. */
	assert_true(is_in_heap(cuMemAllocFromPoolAsync(&address, 2 * MIB, pool, NULL), &address));
	assert_false(is_in_heap(cuMemAllocFromPoolAsync(&address, 5 * MIB, pool, NULL), &address));
	assert_false(is_in_heap(cuMemAllocFromPoolAsync_ptsz(&address, 5 * MIB, pool, NULL), &address));
	assert_true(is_in_heap(cuMemAllocAsync(&address, 5 * MIB, NULL), &address));
	assert_true(is_in_heap(cuMemAllocAsync_ptsz(&address, 5 * MIB, NULL), &address));
	assert_int_equal(cuMemAllocFromPoolAsync(&address, 6 * MIB, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(cuMemAllocAsync(&address, 6 * MIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST(caps_fallbacks_and_who_calls_hold_in_stream_order)
{
	CUdeviceptr first = async_get(7 * MIB, NULL), second = async_get(7 * MIB, NULL);
	assert_non_null(device_of(first));
	assert_null(device_of(second)); /* over the cap */
	assert_ok(cuMemFreeAsync(first, NULL));
	assert_ok(cuMemFreeAsync(second, NULL));
	assert_ok(cuStreamSynchronize(NULL));
	assert_false(is_in_heap(cuMemAllocAsync(&first, 9 * MIB, NULL), &first));
	assert_true(is_in_heap(cuMemAllocAsync(&first, 10 * MIB, NULL), &first)); /* nothing managed in stream order */
	assert_false(is_in_heap(cuMemAllocAsync(&first, 160 * MIB, NULL), &first)); /* both budgets are 128 MiB */
}

EACH_TEST(NULL, async_check)

CORE_START("SIM_MEMORY=256MiB", "SPILLWAY_POLICY=" ASYNC_POLICY)
