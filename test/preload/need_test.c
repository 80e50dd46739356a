// SPDX-License-Identifier: Apache-2.0
/*
 * Who is in need: a thread that is being cancelled, a driver out of memory, a program whose policy is bad and that
 * wants no memory then, and the first entry point of all being another than cuMemAlloc.
 */
#include "test/preload/child.h"
#include "test/test.h"

#define SETTINGS(...) ((const char *const[]){"SIM_FILL=0", "SIM_MEMORY=128MiB", __VA_ARGS__, NULL})
#define BUDGETS       "device.budget=32MiB,host.budget=64MiB,report.summary=no"

/* ---- cancelled threads ---- */

struct cancelled {
	CUcontext context;
	size_t bytes;
};

/* Ends inside the call where the library lets it, and right after it otherwise. */
static void *allocate_cancelled(void *argument)
{
	struct cancelled *cancelled = argument;
	CUdeviceptr block;

	MUST(cu.cuCtxSetCurrent(cancelled->context));
	pthread_cancel(pthread_self());
	cu.cuMemAlloc_v2(&block, cancelled->bytes);
	pthread_testcancel();
	return NULL;
}

/* Locks that ended with the thread would be waited for until the watchdog comes. */
static void allocate_in_a_cancelled_thread(CUcontext context, size_t bytes)
{
	struct cancelled cancelled = {context, bytes};
	void *result;
	pthread_t thread = test_thread(allocate_cancelled, &cancelled);

	pthread_join(thread, &result);
	CHECK(result == PTHREAD_CANCELED);
}

CHILD_TEST(other_threads_allocate_after_one_was_cancelled_in_an_allocation,
	   SETTINGS("SPILLWAY_POLICY=" SHARE_POLICY, "SPILLWAY_SET=" BUDGETS))
{
	allocate_in_a_cancelled_thread(driver_start(0), 4096);
	MUST(cu.cuMemFree_v2(child_alloc(MIB)));
}

/*
 * Under the heap's lock: the driver refuses host memory, which is said, and a smaller piece is taken. Nothing is
 * released there: the simulated driver closes files then, and is itself not made for being cancelled.
 */
CHILD_TEST(other_threads_allocate_after_one_was_cancelled_where_it_spills, SETTINGS("SPILLWAY_SET=" BUDGETS))
{
	CUcontext context = driver_start(0);

	child_alloc(30 * MIB);
	sim_fail("cuMemCreate", 2, CUDA_ERROR_UNKNOWN);
	allocate_in_a_cancelled_thread(context, 10 * MIB);
	CHECK(!sim_fail_pending());
	CHECK(sim_where(child_alloc(20 * MIB)) == 'H');
}

/* A full heap waits for what is pending, between two looks with a sleep. */
CHILD_TEST(other_threads_allocate_after_one_was_cancelled_where_it_waits, SETTINGS("SPILLWAY_SET=" BUDGETS))
{
	CUcontext context = driver_start(0);
	CUdeviceptr block = child_alloc(90 * MIB);
	CUstream stream = child_stream();

	unsigned *word = child_hold(stream);
	MUST(cu.cuMemFreeAsync(block, stream));
	allocate_in_a_cancelled_thread(context, 20 * MIB);
	child_release(word);
	MUST(cu.cuStreamSynchronize(stream));
	MUST(cu.cuMemFree_v2(child_alloc(70 * MIB)));
}

/* ---- the driver out of memory ---- */

CHILD_TEST(empty_slabs_are_given_back_when_the_driver_has_none_and_host_memory_is_kept,
	   SETTINGS("SPILLWAY_SET=device.budget=100MiB,host.budget=32MiB,report.summary=no"))
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr small[8];

	driver_start(0);
	for (int i = 0; i < 8; i++)
		small[i] = child_alloc(4096);
	MUST(cu.cuMemFree_v2(child_alloc(104 * MIB))); /* some of it on the host, where it stays warm */
	CHECK(sim_live().host_bytes > 0);
	for (int i = 0; i < 8; i++)
		MUST(cu.cuMemFree_v2(small[i]));
	CHECK(sim_live().device_bytes > 0);
	MUST(driver_create(&handle, 0, 128 * MIB));
	CHECK(sim_live().host_bytes > 0);
	MUST(cu.cuMemRelease(handle));
}

/* ---- a bad policy ---- */

#define STRICT SETTINGS("SPILLWAY_POLICY=/nonexistent.yaml", "SPILLWAY_STRICT=1")
/* As the first call, and with the driver not asked. */
#define REFUSES(name, call)                                                                                            \
	do {                                                                                                           \
		unsigned long calls = sim_calls(name);                                                                 \
		CHECK((call) == CUDA_ERROR_NOT_PERMITTED);                                                             \
		CHECK(sim_calls(name) == calls);                                                                       \
	} while (0)

static enum { ASYNCHRONOUSLY, MANAGED, OF_ITS_OWN, AN_ARRAY, WAYS } way;

static void allocates(void)
{
	CUDA_ARRAY_DESCRIPTOR description = {.Width = 4, .Height = 4, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr block;
	CUarray array;

	driver_start(0);
	if (way == ASYNCHRONOUSLY)
		REFUSES("cuMemAllocAsync", cu.cuMemAllocAsync(&block, MIB, NULL));
	else if (way == MANAGED)
		REFUSES("cuMemAllocManaged", cu.cuMemAllocManaged(&block, MIB, CU_MEM_ATTACH_GLOBAL));
	else if (way == OF_ITS_OWN)
		REFUSES("cuMemCreate", driver_create(&handle, 0, 2 * MIB));
	else
		REFUSES("cuArrayCreate_v2", cuArrayCreate_v2(&array, &description));
}

TEST(a_strict_bad_policy_permits_no_device_memory_by_any_entry_point)
{
	for (way = 0; way < WAYS; way++)
		child_passes(STRICT, allocates);
}

/* ---- pools ---- */

CHILD_TEST(a_pool_made_before_the_first_allocation_leaves_the_heap_less, SETTINGS("SPILLWAY_SET=" BUDGETS))
{
	CUmemPoolProps props = form_pool(0, 0);
	cuuint64_t all = UINT64_MAX;
	CUmemoryPool pool;
	CUdeviceptr block;

	/*
	 * Before there is a context, let alone an allocation; and what we may want to know of the device cannot be had.
	 */
	driver_open();
	MUST(cu.cuInit(0));
	sim_fail("cuDeviceTotalMem_v2", 1, CUDA_ERROR_UNKNOWN);
	MUST(cuMemPoolCreate(&pool, &props));
	sim_fail("cuDeviceTotalMem_v2", 0, CUDA_SUCCESS);
	MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
	driver_start(0);
	MUST(cuMemAllocFromPoolAsync(&block, 16 * MIB, pool, NULL));
	MUST(cu.cuMemFreeAsync(block, NULL));
	MUST(cu.cuCtxSynchronize());
	block = child_alloc(24 * MIB);
	CHECK(child_on_device(block, 16 * MIB) && sim_where(block + 16 * MIB) == 'H');
	MUST(cu.cuMemFree_v2(block));
	MUST(cuMemPoolDestroy(pool));
	CHECK(child_on_device(child_alloc(32 * MIB), 32 * MIB));
}
