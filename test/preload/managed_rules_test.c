// SPDX-License-Identifier: Apache-2.0
/*
 * managed_rules_test.c: managed memory on the heap and the driver's other rules: queries, memory that runs out, births and
 * discards, graphs, several GPUs. Each part in a process of its own.
 */
#include "shim/spillway.h"
#include "test/preload/managed_heap_help.h"

#include <sys/mman.h>
#include <sys/syscall.h>

/* ---- to the program it is managed memory ---- */

PART_TEST(it_answers_as_managed_memory, assert_int_equal(run(part), 0))
{
	unsigned word;
	void *pointer;
	CUdeviceptr base;
	size_t bytes;
	CUipcMemHandle handle;
	int list[3], value, file;

	driver_start(0);
	CUdeviceptr at = driver_managed(5 * MIB + 100);
	for (int i = 0; i < 2; i++) {
		MUST(cu.cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_IS_MANAGED, at + 5));
		CHECK(word == 1);
		MUST(cu.cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
		CHECK(word == CU_MEMORYTYPE_DEVICE);
		MUST(cu.cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, at + 8));
		CHECK((CUdeviceptr)pointer == at + 8);
		MUST(cu.cuMemGetAddressRange_v2(&base, &bytes, at + MIB));
		CHECK(base == at && bytes == 5 * MIB + 100);
		CHECK(cu.cuIpcGetMemHandle(&handle, at) == CUDA_ERROR_INVALID_VALUE);
		CHECK(cuMemGetHandleForAddressRange(&file, at, 2 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) ==
		      CUDA_ERROR_INVALID_VALUE);
		MUST(cuStreamAttachMemAsync(NULL, at, 0, CU_MEM_ATTACH_GLOBAL));
		CHECK(cuStreamAttachMemAsync(NULL, at + 4, 4, CU_MEM_ATTACH_GLOBAL) == CUDA_ERROR_INVALID_VALUE);
		MUST(cuMemPrefetchAsync(at, MIB, 0, NULL));
	}
	MUST(cuMemRangeGetAttribute(&value, sizeof(value), CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, at, MIB));
	CHECK(value == 0);
	MUST(cuMemRangeGetAttribute(&value, sizeof(value), CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, at, MIB));
	CHECK(value == CU_DEVICE_INVALID);
	MUST(cuMemAdvise(at, MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
	MUST(cuMemAdvise(at, MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
	MUST(cuMemAdvise(at, MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, 0));
	MUST(cuMemRangeGetAttribute(&value, sizeof(value), CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, at, MIB));
	CHECK(value == 1);
	MUST(cuMemRangeGetAttribute(&value, sizeof(value), CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, at, MIB));
	CHECK(value == CU_DEVICE_CPU);
	MUST(cuMemRangeGetAttribute(list, sizeof(list), CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, at, MIB));
	CHECK(list[0] == 0 && list[1] == CU_DEVICE_INVALID && list[2] == CU_DEVICE_INVALID);
	MUST(cuMemAdvise(at, MIB, CU_MEM_ADVISE_UNSET_ACCESSED_BY, 0));
	MUST(cuMemAdvise(at, MIB, CU_MEM_ADVISE_UNSET_READ_MOSTLY, 0));
	MUST(cuMemRangeGetAttribute(list, sizeof(list), CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, at, MIB));
	CHECK(list[0] == CU_DEVICE_INVALID);
	MUST(cu.cuMemFree_v2(at));
	end();
}

/* The first version of the CPU's side of memory of one byte less than a page, and of both flags. */
PART_TEST(both_flags_are_served, assert_int_equal(run(part), 0))
{
	CUdeviceptr a, b, c;

	driver_start(0);
	MUST(cu.cuMemAllocManaged(&a, 4095, CU_MEM_ATTACH_GLOBAL));
	MUST(cu.cuMemAllocManaged(&b, 1, CU_MEM_ATTACH_HOST));
	CHECK(cu.cuMemAllocManaged(&c, 1, 77) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cu.cuMemAllocManaged(&c, 0, CU_MEM_ATTACH_GLOBAL) == CUDA_ERROR_INVALID_VALUE);
	((char *)words(a))[4094] = 5;
	*(char *)words(b) = 6;
	MUST(cu.cuMemFree_v2(a));
	MUST(cu.cuMemFree_v2(b));
	end();
}

/* ---- more than there is ---- */

PART_TEST(what_is_above_both_budgets_goes_to_the_driver,
	  assert_int_equal(run_as("device.budget=32MiB,host.budget=64MiB", NULL, part), 0))
{
	driver_start(0);
	CUdeviceptr large = driver_managed(100 * MIB), fits = driver_managed(90 * MIB);

	CHECK(counted(STAT_managed_made) == 1);
	*words(large + 99 * MIB) = 4;
	MUST(driver_fill(NULL, large, 1, 4));
	MUST(cu.cuCtxSynchronize());
	CHECK(*words(large + 99 * MIB) == 4 && *words(large) == 1);
	/* Untouched it takes nothing. */
	CHECK(page_there()->live[PLACE_DEVICE] == 0 && page_there()->live[PLACE_HOST] == 0);
	MUST(cu.cuMemFree_v2(large));
	MUST(cu.cuMemFree_v2(fits));
	end();
}

/* The use is refused, the CPU keeps all, and when there is room the use succeeds. */
PART_TEST(without_memory_the_use_is_refused,
	  assert_int_equal(run_as("device.budget=16MiB,host.budget=16MiB", NULL, part), 0))
{
	driver_start(0);
	CUdeviceptr full = child_alloc(12 * MIB), a = driver_managed(28 * MIB);

	MUST(driver_fill(NULL, full, 1, 12 * MIB / 4));
	for (size_t i = 0; i < 28; i++)
		*words(a + i * MIB) = (uint32_t)i;
	CHECK(driver_fill(NULL, a + 4, 1, 1) == CUDA_ERROR_OUT_OF_MEMORY);
	for (size_t i = 0; i < 28; i++)
		CHECK(*words(a + i * MIB) == (uint32_t)i);
	*words(a) = 50;
	MUST(cu.cuMemFree_v2(full));
	MUST(driver_fill(NULL, a + 4, 1, 1));
	CHECK(read_back(a) == 50 && read_back(a + 4) == 1 && read_back(a + 27 * MIB) == 27);
	MUST(cu.cuMemFree_v2(a));
	end();
}

/* ---- what the CPU has is alive ---- */

static void evict(void)
{
	CUdeviceptr large = child_alloc(56 * MIB);

	MUST(driver_fill(NULL, large, 1, 14 * MIB));
	MUST(cu.cuCtxSynchronize());
	MUST(cu.cuMemFree_v2(large));
}

/* What is said to be born or dead while the CPU has it is written by the CPU afterwards, which nobody sees. */
static void says_before_it_writes(bool is_born, bool by_batch)
{
	static uint32_t back[24 * MIB / 4];
	const size_t bytes = sizeof(back);

	driver_start(0);
	CUdeviceptr keep = child_alloc(40 * MIB);
	CUstream stream = child_stream();
	MUST(driver_fill(NULL, keep, 3, 10 * MIB));
	for (int i = 0; i < 3; i++)
		evict(); /* so that memory moves */
	CUdeviceptr a = driver_managed(bytes), at = a;
	size_t length = bytes;
	/* Refused, but its memory has been taken. */
	sim_fail("cuMemcpyHtoDAsync_v2", 1, CUDA_ERROR_UNKNOWN);
	*words(a) = 1;
	CHECK(driver_fill(NULL, a, 1, bytes / 4) == CUDA_ERROR_UNKNOWN);
	if (is_born)
		CHECK(!spillway_born(words(a), bytes / 2) && !spillway_born(words(a + bytes / 2), bytes / 2));
	else if (by_batch)
		MUST(cuMemDiscardBatchAsync(&at, &length, 1, 0, stream));
	else
		CHECK(!spillway_discard(words(a), bytes));
	MUST(cu.cuStreamSynchronize(stream));
	for (size_t i = 0; i < bytes / 4; i++)
		words(a)[i] = (uint32_t)i + 1;
	MUST(cuMemPrefetchAsync(a, bytes, 0, NULL));
	MUST(cu.cuCtxSynchronize());
	for (int i = 0; i < 4; i++)
		evict();
	MUST(cu.cuMemcpyDtoH_v2(back, a, bytes));
	for (size_t i = 0; i < bytes / 4; i++)
		CHECK(back[i] == i + 1);
	MUST(cu.cuMemFree_v2(a));
	MUST(cu.cuMemFree_v2(keep));
	end();
}

PART_TEST(what_is_born_at_the_cpu_is_alive, assert_int_equal(run(part), 0))
{
	says_before_it_writes(true, false);
}

PART_TEST(what_is_discarded_at_the_cpu_is_alive, assert_int_equal(run(part), 0))
{
	says_before_it_writes(false, false);
}

PART_TEST(what_a_batch_discards_at_the_cpu_is_alive, assert_int_equal(run(part), 0))
{
	says_before_it_writes(false, true);
}

/* ---- graphs ---- */

/* Managed memory may be given as memory of the host. */
PART_TEST(a_copy_of_a_graph_may_call_it_host_memory, assert_int_equal(run(part), 0))
{
	CUcontext context = driver_start(0);
	CUstream stream = child_stream();
	CUgraph graph;
	CUgraphNode node[2];
	CUdeviceptr a = driver_managed(4 * MIB), b = child_alloc(4096), c = driver_managed(4 * MIB);
	CUDA_MEMCPY3D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
			    .srcHost = words(a),
			    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			    .dstDevice = b,
			    .WidthInBytes = 4096,
			    .Height = 1,
			    .Depth = 1};
	CUDA_MEMCPY3D out = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			     .srcDevice = b,
			     .dstMemoryType = CU_MEMORYTYPE_HOST,
			     .dstHost = words(c),
			     .WidthInBytes = 4096,
			     .Height = 1,
			     .Depth = 1};

	words(a)[7] = 5;
	words(c)[1024] = 6;
	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddMemcpyNode(&node[0], graph, NULL, 0, &in, context));
	MUST(cuGraphAddMemcpyNode(&node[1], graph, &node[0], 1, &out, context));
	MUST(cu.cuGraphLaunch(driver_instance(graph), stream));
	MUST(cu.cuStreamSynchronize(stream));
	CHECK(read_back(c + 28) == 5 && read_back(c + 4096) == 6);
	MUST(cu.cuMemsetD32_v2(a, 1, 1));
	MUST(cu.cuCtxSynchronize());
	MUST(cu.cuGraphLaunch(driver_instance(graph), stream));
	MUST(cu.cuStreamSynchronize(stream));
	CHECK(read_back(c) == 1 && read_back(c + 28) == 5);
}

/* Of an array's side nothing else counts: its pitch may be anything. */
PART_TEST(a_copy_of_a_graph_from_an_array_names_no_memory, assert_int_equal(run(part), 0))
{
	const CUDA_ARRAY3D_DESCRIPTOR shape = {
	    .Width = 64, .Height = 64, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
	CUcontext context = driver_start(0);
	CUdeviceptr other = driver_managed(4 * MIB), to = driver_managed(4 * MIB);
	CUarray array;
	CUgraph graph;
	CUgraphNode node;

	MUST(cuArray3DCreate_v2(&array, &shape));
	const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
				    .srcArray = array,
				    .srcY = 1,
				    .srcPitch = other,
				    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				    .dstDevice = to,
				    .WidthInBytes = 64,
				    .Height = 1,
				    .Depth = 1};
	*words(other) = 1;
	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context));
	*words(other) += 1;
	CHECK(*words(other) == 2 && counted(STAT_managed_moved) == 1);
}

/* ---- several GPUs ---- */

PART_TEST(each_gpu_reaches_it,
	  assert_int_equal(run_as("device.budget=64MiB,host.budget=384MiB", "SIM_DEVICES=2", part), 0))
{
	CUcontext first = driver_start(0);
	CUdeviceptr a = driver_managed(4 * MIB), b;

	*words(a) = 1;
	driver_start(1);
	MUST(driver_fill(NULL, a + 4, 2, 1));
	MUST(cu.cuCtxSynchronize());
	b = driver_managed(4 * MIB);
	*words(b) = 3;
	MUST(cu.cuCtxSetCurrent(first));
	MUST(driver_copy(NULL, a + 8, b, 1));
	MUST(cu.cuCtxSynchronize());
	CHECK(read_back(a) == 1 && read_back(a + 4) == 2 && read_back(a + 8) == 3);
	MUST(cu.cuMemFree_v2(a));
	MUST(cu.cuMemFree_v2(b));
	end();
}

/* One is to be had by all: also by a GPU that the process begins to use later, or at that moment. */
PART_TEST(gpus_that_do_not_reach_each_other_leave_it_to_the_driver,
	  assert_int_equal(child_run((const char *const[]){"SIM_DEVICES=2", "SIM_PEERS=none", runtime,
							   "SPILLWAY_POLICY=" MANAGED_POLICY, NULL},
				     part),
			   0))
{
	driver_start(0);
	CUdeviceptr a = driver_managed(4 * MIB);

	CHECK(counted(STAT_managed_made) == 0);
	*words(a) = 1;
	driver_start(1);
	MUST(driver_fill(NULL, a + 4, 2, 1));
	MUST(cu.cuCtxSynchronize());
	CHECK(words(a)[0] == 1 && words(a)[1] == 2);
	MUST(cu.cuMemFree_v2(a));
}

PART_TEST(gpus_that_cannot_be_opened_to_each_other_leave_it_to_the_driver,
	  assert_int_equal(run_as("device.budget=64MiB,host.budget=384MiB", "SIM_DEVICES=2", part), 0))
{
	CUcontext first = driver_start(0), other;

	child_alloc(4096);
	driver_start(1);
	other = driver_current();
	MUST(cu.cuCtxSetCurrent(first));
	sim_fail("cuMemSetAccess", 1, CUDA_ERROR_OUT_OF_MEMORY);
	CUdeviceptr a = driver_managed(4 * MIB);
	*words(a) = 1;
	MUST(cu.cuCtxSetCurrent(other));
	MUST(driver_fill(NULL, a + 4, 2, 1));
	MUST(cu.cuCtxSynchronize());
	CHECK(read_back(a) == 1 && read_back(a + 4) == 2);
	MUST(cu.cuMemFree_v2(a));
}

static bool makes_context;
static CUcontext second;

static void *make_context(void *unused)
{
	second = driver_start(1);
	return unused;
}

/* The library's mapping for the CPU is the moment. */
void *mmap(void *at, size_t bytes, int access, int flags, int file, off_t offset)
{
	pthread_t thread;

	if (makes_context && flags & MAP_FIXED && access == (PROT_READ | PROT_WRITE) && bytes == 4 * MIB) {
		makes_context = false;
		CHECK(!pthread_create(&thread, NULL, make_context, NULL) && !pthread_join(thread, NULL));
	}
	return (void *)syscall(SYS_mmap, at, bytes, access, flags, file, offset);
}

static void failing_body(const struct sim_launch *launch, void **args)
{
	(void)launch;
	(void)args;
	sim_assert_fails();
}

static const size_t failing_params[] = {8};
static const struct sim_kernel failing_kernel = {"failing", failing_body, 1, failing_params};
static const struct sim_module failing_module = {SIM_MODULE_MAGIC, 1, &failing_kernel};

/* A context that is well goes on as natively, though another one of its device was there before. */
PART_TEST(a_context_that_has_died_is_not_used, assert_int_equal(run(part), 0))
{
	CUcontext died = driver_start(0), other;
	uint64_t none = 0;
	void *params[] = {&none};

	MUST(cu.cuCtxCreate_v2(&other, 0, 0));
	CUdeviceptr a = driver_managed(4096);
	*words(a) = 1;
	MUST(cu.cuCtxSetCurrent(died));
	cu.cuLaunchKernel(driver_function(&failing_module, "failing"), 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
	CHECK(cu.cuCtxSynchronize() != CUDA_SUCCESS);
	MUST(cu.cuCtxSetCurrent(other));
	MUST(driver_fill(NULL, a + 4, 2, 1));
	CHECK(read_back(a) == 1 && read_back(a + 4) == 2);
	MUST(cu.cuMemFree_v2(a));
}

PART_TEST(a_gpu_that_is_used_from_that_moment_on_reaches_it,
	  assert_int_equal(run_as("device.budget=64MiB,host.budget=384MiB", "SIM_DEVICES=2", part), 0))
{
	driver_start(0);
	makes_context = true;
	CUdeviceptr a = driver_managed(4 * MIB);
	CHECK(!makes_context);
	*words(a) = 1;
	MUST(cu.cuCtxSetCurrent(second));
	MUST(driver_fill(NULL, a + 4, 2, 1));
	MUST(cu.cuCtxSynchronize());
	CHECK(read_back(a) == 1 && read_back(a + 4) == 2);
	MUST(cu.cuMemFree_v2(a));
	end();
}

EACH_TEST(folder_make, folder_remove)
