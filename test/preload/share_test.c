// SPDX-License-Identifier: Apache-2.0
/*
 * Device memory that is not the heap's: what the program takes by other ways counts once, leaves the heap less, and
 * comes back; and what the heap only keeps warm is there for everybody. A part is a process: budgets are fixed at the
 * first allocation.
 */
#include "test/preload/child.h"
#include "test/test.h"

#define SETTINGS(...) ((const char *const[]){"SIM_FILL=0", "SIM_MEMORY=128MiB", __VA_ARGS__, NULL})
#define BUDGETS       SETTINGS("SPILLWAY_SET=device.budget=32MiB,host.budget=64MiB,report.summary=no")

static size_t free_now(void)
{
	size_t free = 0;

	MUST(cu.cuMemGetInfo_v2(&free, NULL));
	return free;
}

/* As another process would: the library knows nothing of it. */
static void take_natively(size_t bytes)
{
	__typeof__(&cuMemAlloc_v2) native = (__typeof__(native))driver_native("cuMemAlloc_v2");
	CUdeviceptr block;

	MUST(native(&block, bytes));
}

/* ---- the budget `auto`: half of a device so small ---- */

CHILD_TEST(what_the_program_took_before_counts_once_in_the_automatic_budget,
	   SETTINGS("SPILLWAY_SET=host.budget=64MiB,report.summary=no"))
{
	CUmemGenericAllocationHandle handle;

	driver_open();
	MUST(cu.cuInit(0));
	MUST(driver_create(&handle, 0, 40 * MIB));
	driver_start(0);
	/* Half of 128 MiB, of which 40 are taken. */
	CUdeviceptr block = child_alloc(24 * MIB);
	CHECK(child_on_device(block, 24 * MIB));
	CUdeviceptr more = child_alloc(2 * MIB);
	CHECK(sim_where(more) == 'H');
	MUST(cu.cuMemRelease(handle));
	CHECK(child_on_device(child_alloc(40 * MIB), 40 * MIB));
}

CHILD_TEST(a_question_about_another_device_fixes_no_budget_from_the_current_one,
	   SETTINGS("SIM_DEVICES=2", "SPILLWAY_SET=host.budget=64MiB,report.capacity=budget,report.summary=no"))
{
	CUcontext first = driver_start(0);
	size_t total = 0;

	driver_start(1);
	take_natively(28 * MIB);
	MUST(cu.cuCtxSetCurrent(first));
	take_natively(100 * MIB);
	/* Nobody can tell from here what is free over there: as far as is known, all of it. */
	MUST(cu.cuDeviceTotalMem_v2(&total, 1));
	CHECK(total == 64 * MIB);
	MUST(cu.cuMemFree_v2(child_alloc(4096)));
	MUST(cu.cuDeviceTotalMem_v2(&total, 0));
	CHECK(total == 14 * MIB);
	/* Once it is current its own free memory decides. */
	driver_start(1);
	CHECK(child_on_device(child_alloc(50 * MIB), 50 * MIB));
	CHECK(sim_where(child_alloc(2 * MIB)) == 'H');
	MUST(cu.cuDeviceTotalMem_v2(&total, 1));
	CHECK(total == 50 * MIB);
}

/* ---- no host memory ---- */

CHILD_TEST(host_memory_that_cannot_be_had_is_out_of_memory, BUDGETS)
{
	static const CUresult errors[] = {CUDA_ERROR_OPERATING_SYSTEM, CUDA_ERROR_NOT_SUPPORTED,
					  CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_UNKNOWN};
	CUdeviceptr block;

	driver_start(0);
	child_alloc(32 * MIB);
	for (int i = 0; i < 5; i++) {
		block = 4711;
		sim_fail("cuMemCreate", 1, errors[i]);
		CHECK(cu.cuMemAlloc_v2(&block, 2 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(block == 4711 && !sim_fail_pending());
		sim_fail("cuMemCreate", 1, errors[i]);
		CHECK(cu.cuMemAlloc_v2(&block, 100) == CUDA_ERROR_OUT_OF_MEMORY);
		/* A piece that cannot be had as one may be had as two. */
		sim_fail("cuMemCreate", 1, errors[i]);
		MUST(cu.cuMemAlloc_v2(&block, 8 * MIB));
		CHECK(sim_where(block) == 'H' && !sim_fail_pending());
		MUST(cu.cuMemFree_v2(block));
		/* Warm memory would be taken without asking the driver: fill it again. */
		child_alloc(8 * MIB);
	}
}

/* ---- warm memory is everybody's ---- */

/* 24 MiB are warm (a quarter of 100 may be), 104 MiB free, 110 MiB asked for. */
#define WARM_SET "device.budget=100MiB,host.budget=16MiB,async.use=driver,report.summary=no"
#define WARM     (24 * MIB)
#define MUCH     (110 * MIB)

static void keep_warm(void)
{
	driver_start(0);
	MUST(cu.cuMemFree_v2(child_alloc(WARM)));
	CHECK(sim_live().device_bytes == WARM);
}

static void allocates_much_asynchronously(void)
{
	CUdeviceptr block;

	keep_warm();
	MUST(cu.cuMemAllocAsync(&block, MUCH, NULL));
	/* With nothing warm left, out of memory is out of memory, asked for once. */
	unsigned long calls = sim_calls("cuMemAllocAsync");
	CHECK(cu.cuMemAllocAsync(&block, MUCH, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(sim_calls("cuMemAllocAsync") == calls + 1);
}

static void allocates_much_from_its_own_stream(void)
{
	CUdeviceptr block;

	keep_warm();
	MUST(cuMemAllocAsync_ptsz(&block, MUCH, NULL));
}

static void allocates_much_from_a_pool(void)
{
	CUmemPoolProps props = form_pool(0, 0);
	CUmemoryPool pool;
	CUdeviceptr block;

	keep_warm();
	MUST(cuMemPoolCreate(&pool, &props));
	MUST(cuMemAllocFromPoolAsync(&block, MUCH, pool, NULL));
}

static void creates_much(void)
{
	CUmemGenericAllocationHandle handle;

	keep_warm();
	MUST(driver_create(&handle, 0, MUCH));
	unsigned long calls = sim_calls("cuMemCreate");
	CHECK(driver_create(&handle, 0, MUCH) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(sim_calls("cuMemCreate") == calls + 1);
}

/* The model has managed memory on the host, and the array is small: the driver's out of memory is made. */
static void allocates_managed_in_need(void)
{
	keep_warm();
	sim_fail("cuMemAllocManaged", 1, CUDA_ERROR_OUT_OF_MEMORY);
	CUdeviceptr block = driver_managed(MUCH);
	CHECK(sim_live().device_bytes == 0);
	sim_fail("cuMemAllocManaged", 1, CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(cu.cuMemAllocManaged(&block, MUCH, CU_MEM_ATTACH_GLOBAL) == CUDA_ERROR_OUT_OF_MEMORY);
}

static void makes_an_array_in_need(void)
{
	CUDA_ARRAY_DESCRIPTOR description = {.Width = 4, .Height = 4, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	CUarray array;

	keep_warm();
	unsigned long calls = sim_calls("cuArrayCreate_v2");
	sim_fail("cuArrayCreate_v2", 1, CUDA_ERROR_OUT_OF_MEMORY);
	MUST(cuArrayCreate_v2(&array, &description));
	CHECK(sim_calls("cuArrayCreate_v2") == calls + 2);
	MUST(cuArrayDestroy(array));
	CHECK(sim_live().device_bytes == 0);
}

/* By share.yaml requests from 100 MiB on are the driver's. */
CHILD_TEST(warm_memory_is_given_back_for_what_a_rule_gives_the_driver,
	   SETTINGS("SPILLWAY_POLICY=" SHARE_POLICY, "SPILLWAY_SET=" WARM_SET))
{
	keep_warm();
	CUdeviceptr block = child_alloc(MUCH);
	CHECK(!driver_is_heap(block));
	MUST(cu.cuMemFree_v2(block));
	keep_warm();
	size_t pitch;
	MUST(cu.cuMemAllocPitch_v2(&block, &pitch, MIB, 110, 4));
	CHECK(!driver_is_heap(block));
}

TEST(warm_memory_is_given_back_when_the_driver_has_none)
{
	const char *const *settings = SETTINGS("SPILLWAY_SET=" WARM_SET);

	assert_int_equal(child_run(settings, allocates_much_asynchronously), 0);
	assert_int_equal(child_run(settings, allocates_much_from_its_own_stream), 0);
	assert_int_equal(child_run(settings, allocates_much_from_a_pool), 0);
	assert_int_equal(child_run(settings, creates_much), 0);
	assert_int_equal(child_run(settings, allocates_managed_in_need), 0);
	assert_int_equal(child_run(settings, makes_an_array_in_need), 0);
}

/* ---- pools of the program ---- */

static CUmemoryPool new_pool(void)
{
	CUmemPoolProps props = form_pool(0, 0);
	cuuint64_t all = UINT64_MAX;
	CUmemoryPool pool;

	MUST(cuMemPoolCreate(&pool, &props));
	/* What is freed stays reserved. */
	MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
	return pool;
}

static void use_pool(CUmemoryPool pool, size_t bytes)
{
	CUdeviceptr block;

	MUST(cuMemAllocFromPoolAsync(&block, bytes, pool, NULL));
	MUST(cu.cuMemFreeAsync(block, NULL));
	MUST(cu.cuCtxSynchronize());
}

CHILD_TEST(a_pool_leaves_the_heap_less_until_it_is_destroyed, BUDGETS)
{
	driver_start(0);
	CUmemoryPool pool = new_pool(); /* before the heap is */
	use_pool(pool, 16 * MIB);
	CUdeviceptr block = child_alloc(24 * MIB);
	CHECK(child_on_device(block, 16 * MIB) && sim_where(block + 16 * MIB) == 'H');
	MUST(cu.cuMemFree_v2(block));
	MUST(cuMemPoolDestroy(pool));
	block = child_alloc(32 * MIB);
	CHECK(child_on_device(block, 32 * MIB));
	MUST(cu.cuMemFree_v2(block));
}

CHILD_TEST(a_pool_whose_end_fails_still_counts, BUDGETS)
{
	driver_start(0);
	size_t before = free_now();
	CUmemoryPool first = new_pool(), second = new_pool();

	use_pool(first, 16 * MIB);
	CHECK(before - free_now() == 16 * MIB);
	use_pool(second, 8 * MIB);
	CHECK(before - free_now() == 24 * MIB);
	sim_fail("cuMemPoolDestroy", 1, CUDA_ERROR_UNKNOWN);
	CHECK(cuMemPoolDestroy(first) == CUDA_ERROR_UNKNOWN);
	CHECK(before - free_now() == 24 * MIB);
	CUdeviceptr block = child_alloc(10 * MIB);
	CHECK(child_on_device(block, 8 * MIB) && sim_where(block + 8 * MIB) == 'H');
	MUST(cu.cuMemFree_v2(block));
	MUST(cuMemPoolDestroy(first));
	CHECK(before - free_now() == 8 * MIB);
	CHECK(cuMemPoolDestroy(first) != CUDA_SUCCESS);
	CHECK(before - free_now() == 8 * MIB);
	MUST(cuMemPoolDestroy(second));
	CHECK(before == free_now());
}

/* ---- no device memory, whatever the budget ---- */

CHILD_TEST(a_device_without_memory_is_asked_once_for_each_size,
	   SETTINGS("SPILLWAY_SET=device.budget=64MiB,spill.mode=off,report.summary=no"))
{
	CUdeviceptr block = 4711;

	driver_start(0);
	take_natively(128 * MIB);
	unsigned long calls = sim_calls("cuMemCreate");
	/* 4 MiB, the largest piece under this budget, and 2. */
	CHECK(cu.cuMemAlloc_v2(&block, 32 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(sim_calls("cuMemCreate") == calls + 2);
	CHECK(cu.cuMemAlloc_v2(&block, 2 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(sim_calls("cuMemCreate") == calls + 3);
	CHECK(cu.cuMemAlloc_v2(&block, 1) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(sim_calls("cuMemCreate") == calls + 4);
	CHECK(block == 4711);
}
