// SPDX-License-Identifier: Apache-2.0
/*
 * managed_heap_test.c: managed memory on the heap (match: {api: managed}, use: heap), in all modes. The CPU has it until
 * the GPU's first use, the GPU from then on. Each part in a process of its own.
 */
#include "test/preload/managed_heap_help.h"

#include <sys/resource.h>

/* What a first argument points to is not always one result. */
PART_TEST(a_list_of_places_is_in_managed_memory, assert_int_equal(run(part), 0))
{
	driver_start(0);
	CUdeviceptr a = driver_managed(MIB);
	int mostly = -9, preferred = -9;
	void **list = (void **)words(a);
	CUmem_range_attribute asked[] = {CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION};

	list[0] = &mostly;
	list[1] = &preferred;
	MUST(cu.cuMemRangeGetAttributes(list, (size_t[]){sizeof(int), sizeof(int)}, asked, 2, a, MIB));
	CHECK(mostly == 0 && preferred == CU_DEVICE_INVALID && list[0] == &mostly && list[1] == &preferred);
	MUST(cu.cuMemFree_v2(a));
}

/* ---- contents ---- */

PART_TEST(the_cpu_fills_it_and_the_gpu_reads_it, assert_int_equal(run(part), 0))
{
	size_t n = 3 * MIB / 4;

	driver_start(0);
	CUdeviceptr a = driver_managed(5 * MIB), b = driver_managed(5 * MIB);
	CHECK(counted(STAT_managed_made) == 2);
	for (size_t i = 0; i < n; i++)
		words(a)[i] = (uint32_t)i * 7;
	CHECK(words(a)[n - 1] == (uint32_t)(n - 1) * 7);
	MUST(driver_copy(NULL, b, a, n));
	MUST(cu.cuCtxSynchronize());
	for (size_t i = 0; i < n; i += 1001)
		CHECK(read_back(b + i * 4) == (uint32_t)i * 7);
	CHECK(counted(STAT_managed_moved) == 2);
	MUST(cu.cuMemFree_v2(a));
	MUST(cu.cuMemFree_v2(b));
	end();
}

/* What nobody has written is zeros as far as the first use reaches. */
PART_TEST(pages_that_were_not_written_are_zeros, assert_int_equal(run(part), 0))
{
	driver_start(0);
	CUdeviceptr a = driver_managed(8 * MIB);

	words(a)[5] = 9;
	MUST(driver_fill(NULL, a + 4 * MIB, 3, 1));
	CHECK(read_back(a) == 0 && read_back(a + 20) == 9 && read_back(a + 8 * MIB - 4) == 0);
	CHECK(read_back(a + 4 * MIB) == 3 && read_back(a + 4 * MIB + 4) == 0);
	MUST(cu.cuMemFree_v2(a));
	end();
}

/* Each takes 2 MiB. Those beyond their own share do not use that of small blocks, which libraries need. */
PART_TEST(small_ones_stay_on_the_device_in_fast, assert_int_equal(run(part), 0))
{
	const bool fast = !strcmp(getenv("SPILL_MODE"), "fast");
	CUdeviceptr small[12], large[8];

	driver_start(0);
	for (uint32_t i = 0; i < 12; i++)
		small[i] = used_by_gpu(4096, i);
	CUdeviceptr table = child_alloc(2 * MIB);
	MUST(driver_fill(NULL, table, 3, 2 * MIB / 4));
	for (unsigned i = 0; i < 8; i++)
		large[i] = driver_managed(20 * MIB);
	for (uint32_t round = 0; round < 10; round++)
		for (unsigned i = 0; i < 8; i++)
			MUST(driver_fill(NULL, large[i], round, 20 * MIB / 4));
	MUST(cu.cuCtxSynchronize());
	CHECK(!fast || sim_where(table) == 'D');
	for (uint32_t i = 0; i < 12; i++) {
		CHECK(!fast || sim_where(small[i]) == 'D' || i >= 3);
		CHECK(read_back(small[i]) == i);
		MUST(cu.cuMemFree_v2(small[i]));
	}
	for (unsigned i = 0; i < 8; i++) {
		CHECK(read_back(large[i] + 20 * MIB - 4) == 9);
		MUST(cu.cuMemFree_v2(large[i]));
	}
	MUST(cu.cuMemFree_v2(table));
	end();
}

/* Where the kernel cannot be asked what has been written, all has. */
PART_TEST(zeros_that_were_written_are_there_without_proc, assert_int_equal(run(part), 0))
{
	struct rlimit files, none;

	driver_start(0);
	CUdeviceptr a = driver_managed(8 * MIB), other = driver_managed(4096);
	MUST(driver_fill(NULL, other, 1, 1));
	memset(words(a), 0, 8 * MIB);
	CHECK(!getrlimit(RLIMIT_NOFILE, &files));
	none = files;
	none.rlim_cur = 0;
	CHECK(!setrlimit(RLIMIT_NOFILE, &none));
	MUST(cu.cuMemsetD32_v2(a + 4 * MIB, 3, 1));
	CHECK(!setrlimit(RLIMIT_NOFILE, &files));
	CHECK(read_back(a) == 0 && read_back(a + 8 * MIB - 4) == 0 && read_back(a + 4 * MIB) == 3);
	MUST(cu.cuMemFree_v2(a));
	MUST(cu.cuMemFree_v2(other));
	end();
}

/* Every kind of first use, one block each. */
PART_TEST(each_use_brings_it, assert_int_equal(run(part), 0))
{
	enum { USES = 9 };
	CUdeviceptr at[USES], other;
	static uint32_t host[1024];

	driver_start(0);
	CUstream stream = child_stream();
	other = child_alloc(4 * MIB);
	for (int i = 0; i < USES; i++) {
		at[i] = driver_managed(2 * MIB + 4096);
		for (int k = 0; k < 1024; k++)
			words(at[i])[k] = (uint32_t)(1000 * i + k);
	}
	MUST(cu.cuMemcpyHtoD_v2(other, words(at[0]), 4096));
	MUST(cu.cuMemcpyDtoH_v2(host, at[1], 4096));
	CHECK(host[77] == 1077);
	MUST(cu.cuMemcpyDtoD_v2(other + 4096, at[2], 4096));
	CUDA_MEMCPY2D flat = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
			      .srcDevice = at[3],
			      .srcPitch = 256,
			      .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			      .dstDevice = other + 8192,
			      .dstPitch = 256,
			      .WidthInBytes = 128,
			      .Height = 4};
	MUST(cuMemcpy2D_v2(&flat));
	CUDA_MEMCPY3D solid = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
			       .srcDevice = at[4],
			       .srcPitch = 256,
			       .srcHeight = 4,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstDevice = other + 12288,
			       .dstPitch = 256,
			       .dstHeight = 4,
			       .WidthInBytes = 128,
			       .Height = 4,
			       .Depth = 2};
	MUST(cuMemcpy3D_v2(&solid));
	MUST(cuMemsetD2D8_v2(at[5] + 64, 256, 1, 16, 4));
	CUdeviceptr to = other + 16384, from = at[6];
	size_t bytes = 4096, first = 0, failed;
	CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	MUST(cuMemcpyBatchAsync(&to, &from, &bytes, 1, &attributes, &first, 1, &failed, stream));
	MUST(cuMemPrefetchAsync(at[7], 2 * MIB, 0, stream));
	MUST(driver_fill(stream, at[8] + 2 * MIB, 1, 1));
	MUST(cu.cuCtxSynchronize());
	CHECK(counted(STAT_managed_moved) == USES);
	CHECK(read_back(other + 4 * 9) == 9 && read_back(other + 4096 + 4 * 9) == 2009);
	CHECK(read_back(other + 8192 + 256 + 4) == 3065 && read_back(other + 12288 + 1024 + 4) == 4257);
	CHECK(read_back(at[5] + 64 + 256) == 0x01010101 && read_back(at[5]) == 5000);
	CHECK(read_back(other + 16384 + 40) == 6010 && read_back(at[7] + 12) == 7003 && read_back(at[8] + 8) == 8002);
	for (int i = 0; i < USES; i++)
		MUST(cu.cuMemFree_v2(at[i]));
	MUST(cu.cuMemFree_v2(other));
	end();
}

/* ---- pointers ---- */

/* Each node points to the next one, and has a number. */
static void walk_body(const struct sim_launch *launch, void **args)
{
	const uint64_t *node = *(const uint64_t **)args[0];
	uint64_t *sum = *(uint64_t **)args[1];

	*sum = 0;
	while (node) {
		*sum += node[1];
		node = node[0] ? sim_pointer(node[0]) : NULL;
	}
}

static const size_t walk_params[] = {8, 8};
static const struct sim_kernel walk_kernel = {"walk", walk_body, 2, walk_params};
static const struct sim_module walk_module = {SIM_MODULE_MAGIC, 1, &walk_kernel};

static uint64_t walk(CUdeviceptr list, CUdeviceptr sum)
{
	static CUfunction function;
	void *params[] = {&list, &sum};
	uint64_t found;

	if (!function)
		function = driver_function(&walk_module, "walk");
	MUST(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	MUST(cu.cuMemcpyDtoH_v2(&found, sum, sizeof(found)));
	return found;
}

PART_TEST(what_pointers_reach_goes_along, assert_int_equal(run(part), 0))
{
	enum { NODES = 120 };
	CUdeviceptr node[NODES], sum, apart;

	driver_start(0);
	sum = child_alloc(4096);
	apart = driver_managed(4096);
	*words(apart) = 5;
	for (int i = 0; i < NODES; i++)
		node[i] = driver_managed(4096 + (size_t)(i % 3) * MIB);
	for (int i = 0; i < NODES; i++) {
		/* In a failing order, with a cycle of pointers that nobody follows. */
		uint64_t *at = (uint64_t *)words(node[i * 37 % NODES]);

		at[0] = i + 1 < NODES ? node[(i + 1) * 37 % NODES] : 0;
		at[1] = (uint64_t)i;
		at[2] = node[0] + 8;
	}
	CHECK(walk(node[0], sum) == NODES * (NODES - 1) / 2);
	CHECK(counted(STAT_managed_moved) == NODES);
	/* Nobody points there, so the CPU goes on. */
	*words(apart) += 1;
	CHECK(*words(apart) == 6);
	/* Evicted and used again; what is only reached by pointers is there in any mode. */
	for (int round = 0; round < 3; round++) {
		CUdeviceptr large = child_alloc(48 * MIB);

		MUST(driver_fill(NULL, large, 1, 48 * MIB / 4));
		CHECK(walk(node[0], sum) == NODES * (NODES - 1) / 2);
		MUST(cu.cuMemFree_v2(large));
	}
	for (int i = 0; i < NODES; i++)
		MUST(cu.cuMemFree_v2(node[i]));
	MUST(cu.cuMemFree_v2(apart));
	MUST(cu.cuMemFree_v2(sum));
	end();
}

/* Nothing has gone then, so that the next launch finds what pointers lead to. */
PART_TEST(what_pointers_reach_goes_with_it_or_not_at_all,
	  assert_int_equal(run_as("device.budget=16MiB,host.budget=16MiB", NULL, part), 0))
{
	CUdeviceptr full[12], x, y, sum;

	driver_start(0);
	sum = child_alloc(4096);
	x = driver_managed(4096);
	y = driver_managed(12 * MIB);
	((uint64_t *)words(x))[0] = y;
	((uint64_t *)words(x))[1] = 1;
	((uint64_t *)words(y))[1] = 41;
	for (int i = 0; i < 12; i++)
		full[i] = child_alloc(2 * MIB);
	CUfunction function = driver_function(&walk_module, "walk");
	void *params[] = {&x, &sum};
	for (int i = 0; i < 2; i++) {
		CHECK(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(counted(STAT_managed_moved) == 0);
		((uint64_t *)words(x))[1]++;
		((uint64_t *)words(y))[1]++;
	}
	for (int i = 0; i < 12; i++)
		MUST(cu.cuMemFree_v2(full[i]));
	CHECK(walk(x, sum) == 46 && counted(STAT_managed_moved) == 2);
	MUST(cu.cuMemFree_v2(x));
	MUST(cu.cuMemFree_v2(y));
	MUST(cu.cuMemFree_v2(sum));
	end();
}

/* Of two arguments, too. */
PART_TEST(all_arguments_go_or_none, assert_int_equal(run_as("device.budget=16MiB,host.budget=16MiB", NULL, part), 0))
{
	driver_start(0);
	CUdeviceptr full = child_alloc(12 * MIB), a = driver_managed(4096), b = driver_managed(28 * MIB);

	MUST(driver_fill(NULL, full, 1, 12 * MIB / 4));
	for (size_t i = 0; i < 28; i++)
		*words(b + i * MIB) = (uint32_t)i;
	*words(a) = 3;
	CHECK(driver_copy(NULL, b + 4, a, 1) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(driver_copy(NULL, a + 4, b, 1) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(*words(a) == 3 && *words(b + 27 * MIB) == 27 && counted(STAT_managed_moved) == 0);
	*words(a) = 4;
	MUST(cu.cuMemFree_v2(full));
	MUST(driver_copy(NULL, b + 4, a, 1));
	CHECK(read_back(b + 4) == 4 && read_back(b + 27 * MIB) == 27);
	MUST(cu.cuMemFree_v2(a));
	MUST(cu.cuMemFree_v2(b));
	end();
}

/* Stores at the pointer that is stored there. */
static void store_body(const struct sim_launch *launch, void **args)
{
	const uint64_t *head = *(const uint64_t **)args[0];

	*(uint32_t *)sim_pointer(head[0]) = 9;
}

static const size_t store_params[] = {8};
static const struct sim_kernel store_kernel = {"store", store_body, 1, store_params};
static const struct sim_module store_module = {SIM_MODULE_MAGIC, 1, &store_kernel};

/* What the GPU has of it was as much as was named. */
PART_TEST(a_pointer_to_what_the_gpu_has_takes_all_of_that, assert_int_equal(run(part), 0))
{
	driver_start(0);
	CUdeviceptr a = driver_managed(48 * MIB), b = driver_managed(4096);
	void *params[] = {&b};

	words(a)[0] = 1;
	MUST(cu.cuMemsetD32_v2(a + 4, 2, 1));
	((uint64_t *)words(b))[0] = a + 44 * MIB;
	MUST(cu.cuLaunchKernel(driver_function(&store_module, "store"), 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	MUST(cu.cuCtxSynchronize());
	CHECK(read_back(a + 44 * MIB) == 9 && read_back(a) == 1 && read_back(a + 4) == 2);
	MUST(cu.cuMemFree_v2(a));
	MUST(cu.cuMemFree_v2(b));
	end();
}

/* What went because it was named is there in any mode, too, if a pointer leads there. */
PART_TEST(what_is_named_and_reached_is_there_in_any_mode, assert_int_equal(run(part), 0))
{
	driver_start(0);
	CUdeviceptr sum = child_alloc(4096), a = driver_managed(4096), b = driver_managed(4096);

	((uint64_t *)words(a))[1] = 2;
	((uint64_t *)words(b))[0] = a;
	((uint64_t *)words(b))[1] = 1;
	MUST(driver_copy(NULL, a + 64, b + 64, 1));
	for (int round = 0; round < 3; round++) {
		CUdeviceptr large = child_alloc(60 * MIB);

		MUST(driver_fill(NULL, large, 1, 60 * MIB / 4));
		CHECK(walk(b, sum) == 3);
		MUST(cu.cuMemFree_v2(large));
	}
	CHECK(counted(STAT_pinned_blocks) == !strcmp(getenv("SPILL_MODE"), "fast"));
	MUST(cu.cuMemFree_v2(a));
	MUST(cu.cuMemFree_v2(b));
	MUST(cu.cuMemFree_v2(sum));
	end();
}

/* Rows of int32 have such words, if they are of indices above 8192. They lead close behind multiples of 4 GiB. */
PART_TEST(numbers_of_four_bytes_are_no_pointers,
	  assert_int_equal(run_as("device.budget=64MiB,host.budget=16GiB", NULL, part), 0))
{
	enum { BLOCKS = 72 };
	CUdeviceptr at[BLOCKS];

	driver_start(0);
	CUdeviceptr index = driver_managed(4096);
	for (int i = 0; i < BLOCKS; i++) {
		at[i] = driver_managed(i % 3 ? (size_t)(100 + 83 * i % 300) * MIB : 4096);
		*words(at[i]) = 1;
	}
	CHECK(at[BLOCKS - 1] - at[0] > (CUdeviceptr)8 << 30);
	for (uint32_t i = 0; i < 512; i++) {
		words(index)[2 * i] = i / 4 * 500000; /* up to 64 million */
		words(index)[2 * i + 1] = (uint32_t)(at[0] >> 32) + i % 4;
	}
	MUST(cu.cuMemsetD32_v2(index + 4, 1, 1));
	for (int i = 0; i < BLOCKS; i++)
		*words(at[i]) += 1;
	CHECK(counted(STAT_managed_moved) == 1);
	for (int i = 0; i < BLOCKS; i++)
		MUST(cu.cuMemFree_v2(at[i]));
	MUST(cu.cuMemFree_v2(index));
	end();
}

/* Its address space has room for some 30 of these. */
PART_TEST(addresses_are_not_used_up_by_looking_for_a_place,
	  assert_int_equal(run_as("device.budget=64MiB,host.budget=16GiB", NULL, part), 0))
{
	enum { TIMES = 40 };

	driver_start(0);
	for (size_t before = 1780; before <= 1820; before += 4) {
		CUdeviceptr first = driver_managed(before * MIB);

		for (int i = 0; i < TIMES; i++)
			MUST(cu.cuMemFree_v2(driver_managed(2044 * MIB)));
		MUST(cu.cuMemFree_v2(first));
	}
	CHECK(counted(STAT_managed_made) == 11 * (TIMES + 1));
	end();
}

/* A pointer may be given where the memory ends, or close beside it. */
PART_TEST(pointers_to_the_ends_are_followed, assert_int_equal(run(part), 0))
{
	static const int64_t beside[] = {2 * MIB, 2 * MIB + 511, -511, 2 * MIB + 512, -512};

	driver_start(0);
	for (unsigned i = 0; i < 5; i++) {
		CUdeviceptr a = driver_managed(2 * MIB), b = driver_managed(2 * MIB);
		uint64_t before = counted(STAT_managed_moved);

		((uint64_t *)words(a))[0] = b + (uint64_t)beside[i];
		*words(b) = 1;
		MUST(cu.cuMemsetD32_v2(a + 64, 1, 16));
		CHECK(counted(STAT_managed_moved) - before == (i < 3 ? 2 : 1));
		MUST(cu.cuMemFree_v2(a));
		MUST(cu.cuMemFree_v2(b));
	}
	end();
}

/* It means what is at those addresses now. */
PART_TEST(a_table_of_pointers_names_what_it_points_to, assert_int_equal(run(part), 0))
{
	const uint64_t apart = 1024; /* a pointer close to managed memory may mean that */
	uint64_t pointers[4];

	driver_start(0);
	CUdeviceptr table = child_alloc(4096), sum = child_alloc(4096);
	CUdeviceptr another = driver_managed(4096), a = driver_managed(4096); /* one always is the CPU's */
	for (int i = 0; i < 4; i++)
		pointers[i] = a;
	MUST(cu.cuMemcpyHtoD_v2(table + apart, pointers, sizeof(pointers)));
	MUST(cu.cuMemsetD32_v2(sum, 0, 1024));
	CHECK(walk(sum + 2048, sum + apart) == 0); /* so that the parameters are known */
	MUST(cu.cuMemFree_v2(a));
	CUdeviceptr b = driver_managed(4096);
	CHECK(a == b);
	((uint64_t *)words(b))[1] = 41;
	CHECK(walk(table + apart, sum + apart) == a + 41);
	MUST(cu.cuMemFree_v2(another));
	MUST(cu.cuMemFree_v2(b));
	MUST(cu.cuMemFree_v2(table));
	MUST(cu.cuMemFree_v2(sum));
	end();
}

/* A block that was pointed to, and one at its address later, stay the CPU's as long as the GPU uses others. */
PART_TEST(nothing_is_remembered_of_what_was_freed, assert_int_equal(run(part), 0))
{
	driver_start(0);
	CUdeviceptr other = child_alloc(4 * MIB);

	for (uint32_t round = 0; round < 20; round++) {
		CUdeviceptr a = driver_managed(4096), b = driver_managed(4096);

		*(uint64_t *)words(a) = b;
		*words(b) = round;
		if (round % 2)
			MUST(driver_fill(NULL, a + 8, 1, 1)); /* takes b along */
		MUST(cu.cuMemFree_v2(a));
		if (round % 3)
			MUST(cu.cuMemFree_v2(b));
		CUdeviceptr c = driver_managed(4096);
		*words(c) = round;
		MUST(driver_fill(NULL, other, round, MIB / 4));
		*words(c) += 1;
		CHECK(*words(c) == round + 1);
		MUST(driver_fill(NULL, c + 4, 7, 1));
		CHECK(read_back(c) == round + 1);
		MUST(cu.cuMemFree_v2(c));
		if (round % 3 == 0)
			MUST(cu.cuMemFree_v2(b));
	}
	MUST(cu.cuMemFree_v2(other));
	end();
}

/* ---- order ---- */

static CUdeviceptr filled;
static unsigned hold;

static void fill_on_host(void *argument)
{
	while (!__atomic_load_n(&hold, __ATOMIC_ACQUIRE))
		usleep(1000);
	usleep(20000);
	words(filled)[1] = *(uint32_t *)argument;
}

static void fill_in_callback(CUstream stream, CUresult result, void *argument)
{
	CHECK(stream && result == CUDA_SUCCESS);
	fill_on_host(argument);
}

static void submit_function(CUstream stream, uint32_t *value)
{
	MUST(cuLaunchHostFunc(stream, fill_on_host, value));
}

static void submit_callback(CUstream stream, uint32_t *value)
{
	MUST(cuStreamAddCallback(stream, fill_in_callback, value, 0));
}

static CUgraphExec function_graph;

static void submit_node(CUstream stream, uint32_t *value)
{
	CUDA_HOST_NODE_PARAMS function = {.fn = fill_on_host, .userData = value};
	CUgraph graph;
	CUgraphNode node;

	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddHostNode(&node, graph, NULL, 0, &function));
	function_graph = driver_instance(graph);
	MUST(cu.cuGraphLaunch(function_graph, stream));
}

static void submit_any_node(CUstream stream, uint32_t *value)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_HOST, .host = {.fn = fill_on_host, .userData = value}};
	CUgraph graph;
	CUgraphNode node;

	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddNode(&node, graph, NULL, 0, &params));
	function_graph = driver_instance(graph);
	MUST(cu.cuGraphLaunch(function_graph, stream));
}

static void host_writes_before(void (*submit)(CUstream stream, uint32_t *value))
{
	uint32_t value = 77;

	driver_start(0);
	CUstream stream = child_stream();
	filled = driver_managed(MIB);
	words(filled)[0] = 1;
	submit(stream, &value);
	__atomic_store_n(&hold, 1, __ATOMIC_RELEASE);
	MUST(driver_fill(stream, filled + 8, 5, 1));
	MUST(cu.cuStreamSynchronize(stream));
	CHECK(read_back(filled) == 1 && read_back(filled + 4) == 77 && read_back(filled + 8) == 5);
	MUST(cu.cuMemFree_v2(filled));
	end();
}

#define HOST_WRITES(name, submit)                                                                                      \
	PART_TEST(name, assert_int_equal(run(part), 0))                                                                \
	{                                                                                                              \
		host_writes_before(submit);                                                                            \
	}
HOST_WRITES(a_host_function_before_it_has_written, submit_function)
HOST_WRITES(a_callback_before_it_has_written, submit_callback)
HOST_WRITES(a_host_node_before_it_has_written, submit_node)
HOST_WRITES(a_node_of_any_kind_before_it_has_written, submit_any_node)

PART_TEST(a_graph_uses_what_it_names, assert_int_equal(run(part), 0))
{
	CUgraph graph;

	driver_start(0);
	CUstream stream = child_stream();
	CUdeviceptr a = driver_managed(3 * MIB), b = driver_managed(3 * MIB);
	for (size_t i = 0; i < 3 * MIB / 4; i++)
		words(a)[i] = (uint32_t)i;
	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	MUST(driver_copy(stream, b, a, 3 * MIB / 4));
	MUST(cu.cuStreamEndCapture(stream, &graph));
	CUgraphExec instance = driver_instance(graph);
	for (int i = 0; i < 3; i++)
		MUST(cu.cuGraphLaunch(instance, stream));
	MUST(cu.cuStreamSynchronize(stream));
	CHECK(read_back(b + 3 * MIB - 4) == 3 * MIB / 4 - 1 && counted(STAT_managed_moved) == 2);
	MUST(cu.cuGraphExecDestroy(instance));
	MUST(cu.cuGraphDestroy(graph));
	MUST(cu.cuMemFree_v2(a));
	MUST(cu.cuMemFree_v2(b));
	end();
}

/* ---- threads ---- */

static void *use_all(void *argument)
{
	const CUdeviceptr *at = argument;
	CUcontext context = driver_start(0);
	CUstream stream = child_stream();

	(void)context;
	for (int i = 0; i < 24; i++)
		MUST(driver_fill(stream, at[i] + 4, 9, 1));
	MUST(cu.cuStreamSynchronize(stream));
	return NULL;
}

PART_TEST(threads_use_the_same_blocks_first, assert_int_equal(run(part), 0))
{
	CUdeviceptr at[24];
	pthread_t thread[4];

	driver_start(0);
	driver_kernel("fill");
	for (int i = 0; i < 24; i++) {
		at[i] = driver_managed(4096);
		words(at[i])[0] = (uint32_t)i;
	}
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_create(&thread[i], NULL, use_all, at));
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	CHECK(counted(STAT_managed_moved) == 24);
	for (int i = 0; i < 24; i++) {
		CHECK(read_back(at[i]) == (uint32_t)i && read_back(at[i] + 4) == 9);
		MUST(cu.cuMemFree_v2(at[i]));
	}
	end();
}

#define CHAIN 31

static CUdeviceptr chain_first, chain_sum[2];
static CUcontext chain_context;

static void *walk_the_chain(void *argument)
{
	int which = (int)(intptr_t)argument;

	MUST(cu.cuCtxSetCurrent(chain_context));
	/* The second one comes when the first one has begun. */
	while (which && !counted(STAT_on_use_bytes))
		sched_yield();
	CHECK(walk(chain_first, chain_sum[which]) == CHAIN);
	return NULL;
}

/* Whoever finds that the GPU has the first one may rely on the others. */
PART_TEST(two_threads_use_one_chain, assert_int_equal(run_as("device.budget=128MiB,host.budget=384MiB", NULL, part), 0))
{
	CUdeviceptr node[CHAIN];
	pthread_t thread[2];

	chain_context = driver_start(0);
	driver_function(&walk_module, "walk");
	for (int i = 0; i < 2; i++)
		chain_sum[i] = child_alloc(4096);
	for (int i = 0; i < CHAIN; i++)
		node[i] = driver_managed(3 * MIB);
	for (int i = 0; i < CHAIN; i++) {
		for (size_t at = 0; at < 3 * MIB; at += 4096)
			*words(node[i] + at + 64) = 1;
		((uint64_t *)words(node[i]))[0] = i + 1 < CHAIN ? node[i + 1] : 0;
		((uint64_t *)words(node[i]))[1] = 1;
	}
	chain_first = node[0];
	for (intptr_t i = 0; i < 2; i++)
		CHECK(!pthread_create(&thread[i], NULL, walk_the_chain, (void *)i)); /* NOLINT */
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	CHECK(counted(STAT_managed_moved) == CHAIN);
	for (int i = 0; i < CHAIN; i++)
		MUST(cu.cuMemFree_v2(node[i]));
	for (int i = 0; i < 2; i++)
		MUST(cu.cuMemFree_v2(chain_sum[i]));
	end();
}

EACH_TEST(folder_make, folder_remove)
