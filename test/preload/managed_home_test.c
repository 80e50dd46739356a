// SPDX-License-Identifier: Apache-2.0
/*
 * Programs whose device memory is managed memory by policy: one address for both sides, more of it than the device has,
 * what the policy says of advice and prefetch, and everything that is asked or done with a block. On a device of 64
 * MiB.
 */
#include "test/preload/home.h"
#include "test/test.h"

#include "shim/spillway.h"

static bool is_managed(CUdeviceptr block)
{
	unsigned managed = 0;

	return !driver_is_heap(block) &&
	       cu.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, block) == CUDA_SUCCESS && managed;
}

static CUdeviceptr managed(size_t bytes)
{
	CUdeviceptr block = child_alloc(bytes);

	CHECK(is_managed(block));
	return block;
}

CHILD_TEST(large_blocks_have_one_address_for_both_sides, HOME_SETTINGS("managed", HOME_BUDGETS))
{
	driver_start(0);
	CUdeviceptr block = managed(3 * MIB), small = child_alloc(4096), odd = managed(MIB + 4);

	CHECK(driver_is_heap(small));
	home_serves_both_sides(block, 3 * MIB);
	home_serves_both_sides(odd, MIB + 4);
	home_copies_and_sets(block, 3 * MIB);
	MUST(cu.cuMemcpyDtoD_v2(small, block, 4096));
	MUST(cu.cuMemFree_v2(block));
	MUST(cu.cuMemFree_v2(small));
	MUST(cu.cuMemFree_v2(odd));
}

CHILD_TEST(more_than_the_device_has_works, HOME_SETTINGS("managed", HOME_BUDGETS))
{
	enum { N = 5 };
	const size_t bytes = 40 * MIB;
	CUdeviceptr block[N];

	driver_start(0);
	for (unsigned i = 0; i < N; i++) {
		block[i] = managed(bytes);
		MUST(driver_fill(NULL, block[i], i + 1, bytes / 4));
	}
	MUST(cu.cuCtxSynchronize());
	CHECK(sim_managed().evictions > 0);
	for (unsigned i = 0; i < N; i++) {
		CHECK(driver_holds(block[i], i + 1, bytes / 4));
		CHECK(home_words(block[i])[0] == i + 1 && home_words(block[i])[bytes / 4 - 1] == i + 1);
		MUST(cu.cuMemFree_v2(block[i]));
	}
	/* One that is larger by itself. */
	CUdeviceptr large = managed(3 * 64 * MIB);
	MUST(driver_fill(NULL, large, 77, 3 * 64 * MIB / 4));
	MUST(cu.cuCtxSynchronize());
	CHECK(home_words(large)[0] == 77 && home_words(large)[48 * MIB - 1] == 77);
	MUST(cu.cuMemFree_v2(large));
	CHECK(sim_live().allocations == 0 && sim_managed().resident == 0);
}

CHILD_TEST(a_block_answers_as_device_memory_that_is_managed, HOME_SETTINGS("managed", HOME_BUDGETS))
{
	struct spillway_place place;

	driver_start(0);
	CUdeviceptr block = managed(3 * MIB), pitched;
	size_t pitch;

	home_answers(block, 3 * MIB, true);
	CHECK(spillway_where((void *)(uintptr_t)(block + MIB), &place) == 0);
	CHECK(place.backend == SPILLWAY_MANAGED && place.bytes == 3 * MIB && !place.movable);
	CHECK(spillway_pin((void *)(uintptr_t)block) == -ENOTSUP);
	MUST(cu.cuMemAllocPitch_v2(&pitched, &pitch, 5000, 300, 4));
	CHECK(is_managed(pitched) && pitch == 5120);
	MUST(cu.cuMemFree_v2(pitched));
	MUST(cu.cuMemFree_v2(block));
	/* The program's own is the driver's own. */
	MUST(cu.cuMemAllocManaged(&block, 3 * MIB, CU_MEM_ATTACH_GLOBAL));
	uint64_t type = driver_attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block);
	CHECK(type == CU_MEMORYTYPE_UNIFIED || type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_DEVICE);
	MUST(cu.cuMemFree_v2(block));
	CHECK(cu.cuMemFree_v2(block) == CUDA_ERROR_INVALID_VALUE);
}

CHILD_TEST(a_block_is_freed_in_every_way_and_once, HOME_SETTINGS("managed", HOME_BUDGETS))
{
	driver_start(0);
	home_frees(3 * MIB, is_managed);
}

CHILD_TEST(the_allocators_of_frameworks_take_and_free_it, HOME_SETTINGS("managed", HOME_BUDGETS))
{
	driver_start(0);
	void *block = spillway_torch_alloc(3 << 20, 0, NULL);

	CHECK(block && is_managed((CUdeviceptr)(uintptr_t)block));
	size_t n = sim_live().allocations;
	spillway_torch_free(block, 3 << 20, 0, NULL);
	spillway_torch_free(spillway_torch_alloc(3 << 20, 0, NULL), 3 << 20, 0, NULL);
	MUST(cu.cuCtxSynchronize());
	MUST(cu.cuMemFree_v2(managed(MIB)));
	CHECK(sim_live().allocations < n + 1);
}

/* ---- in stream order: the driver's pools, or the heap's rows beside managed ones ---- */

PART_TEST(memory_in_stream_order_is_not_mixed_up_with_it, child_passes(HOME_SETTINGS("managed", HOME_BUDGETS), part);
	  child_passes(HOME_SETTINGS("managed", HOME_BUDGETS ",async.use=heap"), part);
	  child_passes(HOME_SETTINGS(HOMES_POLICY, HOME_BUDGETS ",async.use=heap"), part))
{
	CUdeviceptr pooled[3], block;

	driver_start(0);
	CUstream stream = child_stream();
	block = managed(3 * MIB);
	unsigned *word = child_hold(stream);
	/* A managed block that waits for the stream is nobody's to use again, whatever its size. */
	MUST(cu.cuMemFreeAsync(block, stream));
	for (unsigned i = 0; i < 3; i++) {
		MUST(cu.cuMemAllocAsync(&pooled[i], 3 * MIB, stream));
		CHECK(!is_managed(pooled[i]) && pooled[i] != block);
		MUST(driver_fill(stream, pooled[i], i, 3 * MIB / 4));
	}
	MUST(cu.cuMemFreeAsync(pooled[0], stream));
	MUST(cu.cuMemAllocAsync(&pooled[0], 3 * MIB, stream));
	child_release(word);
	MUST(cu.cuStreamSynchronize(stream));
	CHECK(driver_holds(pooled[2], 2, 3 * MIB / 4));
	MUST(cu.cuMemFree_v2(pooled[0]));
	MUST(cu.cuMemFreeAsync(pooled[1], stream));
	MUST(cu.cuMemFreeAsync(pooled[2], stream));
	MUST(cu.cuCtxSynchronize());
	MUST(cu.cuMemFree_v2(managed(MIB)));
}

/* ---- settings ---- */

static int range_attribute(CUdeviceptr block, CUmem_range_attribute attribute)
{
	int value = 77;

	MUST(cuMemRangeGetAttribute(&value, sizeof(value), attribute, block, 3 * MIB));
	return value;
}

CHILD_TEST(advice_is_what_the_shipped_policy_says, HOME_SETTINGS("managed", HOME_BUDGETS))
{
	driver_start(0);
	CUdeviceptr block = managed(3 * MIB);

	CHECK(range_attribute(block, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION) == 0);
	CHECK(range_attribute(block, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY) == 0);
	CHECK(range_attribute(block, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY) == CU_DEVICE_INVALID);
	MUST(cu.cuCtxSynchronize());
	CHECK(sim_managed().resident == 0);
	MUST(cuMemAdvise(block, 3 * MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
	CHECK(range_attribute(block, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY) == 1);
	MUST(cu.cuMemFree_v2(block));
}

CHILD_TEST(advice_is_what_the_policy_says, HOME_SETTINGS(HOMES_POLICY, HOME_BUDGETS))
{
	driver_start(0);
	CUdeviceptr block = managed(3 * MIB);

	CHECK(range_attribute(block, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION) == CU_DEVICE_CPU);
	CHECK(range_attribute(block, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY) == 1);
	CHECK(range_attribute(block, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY) == 0);
	MUST(cu.cuMemFree_v2(block));
}

CHILD_TEST(it_is_prefetched_when_the_policy_says, HOME_SETTINGS("managed", HOME_BUDGETS ",managed.prefetch=on-alloc"))
{
	driver_start(0);
	CUdeviceptr block = managed(8 * MIB), large;

	MUST(cu.cuCtxSynchronize());
	CHECK(sim_managed().resident == 8 * MIB && sim_managed().gpu_faults == 0);
	/* An eighth stays free: not more than 56 of the 64 MiB. */
	large = managed(80 * MIB);
	MUST(cu.cuCtxSynchronize());
	CHECK(sim_managed().resident > 8 * MIB && sim_managed().resident <= 56 * MIB);
	MUST(cu.cuMemFree_v2(block));
	MUST(cu.cuMemFree_v2(large));
}

/* ---- where there is none ---- */

CHILD_TEST(without_concurrent_access_the_next_choice_is_taken,
	   HOME_SETTINGS("managed", HOME_BUDGETS, "SIM_CONCURRENT_MANAGED=0"))
{
	driver_start(0);
	CUdeviceptr block = child_alloc(3 * MIB);

	CHECK(driver_is_heap(block) && sim_calls("cuMemAllocManaged") == 0);
	MUST(driver_fill(NULL, block, 4, 3 * MIB / 4));
	CHECK(driver_holds(block, 4, 3 * MIB / 4));
	/* What the program asks for by name it gets, such as it is. */
	CUdeviceptr own = driver_managed(MIB);
	MUST(cu.cuMemFree_v2(own));
	MUST(cu.cuMemFree_v2(block));
}

CHILD_TEST(whom_nobody_on_the_list_can_serve_the_driver_serves,
	   HOME_SETTINGS(HOMES_POLICY, HOME_BUDGETS, "SIM_CONCURRENT_MANAGED=0"))
{
	driver_start(0);
	CUdeviceptr block = child_alloc(3 * MIB);

	CHECK(!driver_is_heap(block) && !is_managed(block) && sim_calls("cuMemAllocManaged") == 0);
	MUST(cu.cuMemFree_v2(block));
}
