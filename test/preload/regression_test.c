// SPDX-License-Identifier: Apache-2.0
/*
 * What broke in neighbours (docs/facts.md, Failures of other projects), one test for each row that concerns this
 * library as it is now. Rows that have a whole program: both ABIs of cuGetProcAddress, RTLD_NEXT (doors_test,
 * next_test); the off switch, strict values, no exit (settings_test); child processes, IPC (actor_test); figures
 * (truth_test); peers (peer_copy_test). Budgets: 32 MiB of the device, 64 MiB of the host. Run in each mode that spills,
 * which MODE names as SPILLWAY_SET does.
 */
#include "test/preload/driver.h"
#include "test/test.h"

AFTER_EACH
{
	driver_free_rest();
}

/* First in this program: nothing has made a context yet. HAMi-core #169, #276. */
TEST(mem_create_needs_no_context)
{
	CUmemGenericAllocationHandle handle;
	CUcontext context;

	driver_open();
	assert_int_equal(cu.cuInit(0), CUDA_SUCCESS);
	assert_int_equal(cu.cuCtxGetCurrent(&context), CUDA_SUCCESS);
	assert_null(context);
	assert_int_equal(driver_create(&handle, 0, 2 * MIB), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemRelease(handle), CUDA_SUCCESS);
	assert_int_equal(cu.cuCtxGetCurrent(&context), CUDA_SUCCESS);
	assert_null(context);
}

/* HAMi-core c890310: nothing but the driver's own call on the way of a launch. */
static void launch_and_count(void)
{
	static const char *const watched[] = {"cuCtxGetDevice", "cuCtxGetCurrent", "cuCtxSynchronize",
					      "cuEventRecord",  "cuEventQuery",    "cuStreamIsCapturing",
					      "cuMemGetInfo_v2"};
	unsigned long before[7], launches = sim_calls("cuLaunchKernel");
	CUfunction fill = driver_kernel("fill");
	unsigned value = 9;
	size_t n = 10;
	CUdeviceptr block = driver_alloc(4096);
	void *params[] = {&block, &value, &n};

	for (int i = 0; i < 7; i++)
		before[i] = sim_calls(watched[i]);
	for (int i = 0; i < 100; i++)
		assert_int_equal(cu.cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_SUCCESS);
	assert_int_equal(sim_calls("cuLaunchKernel") - launches, 100);
	for (int i = 0; i < 7; i++)
		assert_int_equal(sim_calls(watched[i]), before[i]);
}

/* In every mode: who has enough pays for nothing. */
TEST(a_launch_makes_one_call_of_the_driver_while_nothing_has_spilled)
{
	driver_start(0);
	launch_and_count();
}

/* HAMi-core #93, #217. */
TEST(free_async_takes_pointers_of_every_origin)
{
	CUdeviceptr heap, pooled, managed;

	driver_start(0);
	heap = driver_alloc(5 * MIB);
	assert_int_equal(cu.cuMemAllocAsync(&pooled, 5 * MIB, NULL), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemFreeAsync(heap, NULL), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemFreeAsync(pooled, NULL), CUDA_SUCCESS);
	CUresult driver = ((__typeof__(&cuMemFreeAsync))driver_native("cuMemFreeAsync"))(0x1234, NULL);
	assert_int_equal(cu.cuMemFreeAsync(0x1234, NULL), driver);
	if (cu.cuMemFreeAsync(managed, NULL) != CUDA_SUCCESS)
		assert_int_equal(cu.cuMemFree_v2(managed), CUDA_SUCCESS);
	assert_int_equal(cu.cuCtxSynchronize(), CUDA_SUCCESS);
}

/* ompi #12751: a library that is told "host" copies with the CPU. */
TEST(a_spilled_block_is_device_memory_in_every_answer)
{
	CUdeviceptr first = driver_alloc(32 * MIB), spilled = driver_alloc(8 * MIB);
	unsigned word = 0;
	void *pointer = &word;

	assert_int_equal(sim_where(first), 'D');
	assert_int_equal(sim_where(spilled), 'H');
	assert_int_equal(cu.cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, spilled), CUDA_SUCCESS);
	assert_int_equal(word, CU_MEMORYTYPE_DEVICE);
	assert_int_not_equal(cu.cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, spilled),
			     CUDA_SUCCESS);
	assert_int_equal(cu.cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, spilled), CUDA_SUCCESS);
	assert_int_equal(word, 0);
}

/* docs/facts.md, Host access: with it, copies across the border crashed the driver. */
TEST(copies_cross_the_border_between_device_and_host)
{
	static unsigned words[8 * MIB / 4];
	CUdeviceptr block = driver_alloc(60 * MIB);

	assert_int_equal(sim_where(block), 'D');
	assert_int_equal(sim_where(block + 59 * MIB), 'H');
	for (size_t i = 0; i < sizeof(words) / 4; i++)
		words[i] = (unsigned)i * 7;
	assert_int_equal(cu.cuMemcpyHtoD_v2(block + 28 * MIB, words, sizeof(words)), CUDA_SUCCESS);
	memset(words, 0, sizeof(words));
	assert_int_equal(cu.cuMemcpyDtoH_v2(words, block + 28 * MIB, sizeof(words)), CUDA_SUCCESS);
	for (size_t i = 0; i < sizeof(words) / 4; i++)
		assert_int_equal(words[i], i * 7);
	assert_int_equal(cu.cuMemcpyDtoD_v2(block, block + 28 * MIB, sizeof(words)), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemsetD32_v2(block + 28 * MIB, 3, 2 * MIB), CUDA_SUCCESS);
	assert_true(driver_holds(block + 28 * MIB, 3, 2 * MIB));
}

/* nccl #2332, ucx #11461, torchcomms #3078. */
TEST(the_range_of_a_block_of_many_chunks_is_the_block)
{
	CUdeviceptr block = driver_alloc(75 * MIB + 3), base;
	size_t size;

	for (size_t at = 0; at < 75 * MIB; at += 3 * MIB) {
		assert_int_equal(cu.cuMemGetAddressRange_v2(&base, &size, block + at), CUDA_SUCCESS);
		assert_int_equal(base, block);
		assert_int_equal(size, 75 * MIB + 3);
	}
}

/* torch_memory_saver #24: expandable segments. The program's own mapping works, is counted, and is its own business. */
TEST(a_program_may_manage_virtual_memory_itself)
{
	CUmemAccessDesc access = form_access(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CUmemGenericAllocationHandle handle, again;
	size_t before, after;
	CUdeviceptr at;

	assert_int_equal(cu.cuMemGetInfo_v2(&before, NULL), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemAddressReserve(&at, 8 * MIB, 0, 0, 0), CUDA_SUCCESS);
	assert_int_equal(driver_create(&handle, 0, 4 * MIB), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemMap(at, 4 * MIB, 0, handle, 0), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemSetAccess(at, 4 * MIB, &access, 1), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemRelease(handle), CUDA_SUCCESS); /* lives on by its mapping */
	assert_int_equal(cu.cuMemGetInfo_v2(&after, NULL), CUDA_SUCCESS);
	assert_int_equal(before - after, 4 * MIB);
	assert_int_equal(driver_fill(NULL, at, 5, MIB), CUDA_SUCCESS);
	assert_true(driver_holds(at, 5, MIB));
	assert_int_equal(cu.cuMemRetainAllocationHandle(&again, (void *)at), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemRelease(again), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemUnmap(at, 4 * MIB), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemAddressFree(at, 8 * MIB), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemGetInfo_v2(&after, NULL), CUDA_SUCCESS);
	assert_int_equal(before, after);
}

/* And keeps its hands off ours. */
TEST(heap_memory_cannot_be_unmapped_from_outside)
{
	CUmemAccessDesc access = form_access(0, CU_MEM_ACCESS_FLAGS_PROT_READ);
	CUmemGenericAllocationHandle handle = 0;
	CUdeviceptr block = driver_alloc(8 * MIB);

	assert_int_equal(driver_fill(NULL, block, 44, 2 * MIB), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemUnmap(block, 8 * MIB), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cu.cuMemSetAccess(block, 8 * MIB, &access, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cu.cuMemAddressFree(block, 8 * MIB), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cu.cuMemRetainAllocationHandle(&handle, (void *)block), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cu.cuMemMap(block, 2 * MIB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	assert_true(driver_holds(block, 44, 2 * MIB));
}

/* sglang #32718, and PyTorch's graph pools: what a graph reads is where it was, however tight memory gets. */
TEST(nothing_moves_while_a_capture_is_open)
{
	CUdeviceptr graph_input, pressure[16];
	CUstream stream;
	CUgraph graph;
	unsigned n = 0;

	assert_int_equal(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	graph_input = driver_alloc(8 * MIB);
	assert_int_equal(driver_fill(stream, graph_input, 17, 2 * MIB), CUDA_SUCCESS);
	assert_int_equal(cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
	char where = sim_where(graph_input);
	assert_int_equal(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
	while (n < 16 && cu.cuMemAlloc_v2(&pressure[n], 8 * MIB) == CUDA_SUCCESS)
		n++;
	assert_int_equal(sim_where(graph_input), where);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(cu.cuMemFree_v2(pressure[i]), CUDA_SUCCESS);
	assert_int_equal(cu.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
	assert_int_equal(cu.cuGraphDestroy(graph), CUDA_SUCCESS);
	assert_true(driver_holds(graph_input, 17, 2 * MIB));
	assert_int_equal(cu.cuMemFree_v2(graph_input), CUDA_SUCCESS);
	assert_int_equal(cu.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
	/* The deferred frees have come back. */
	pressure[0] = driver_alloc(96 * MIB);
	assert_int_equal(cu.cuMemFree_v2(pressure[0]), CUDA_SUCCESS);
}

/* Where memory moves, events are recorded behind submissions from the first spill on. */
TEST(a_launch_makes_one_call_of_the_driver_where_nothing_moves)
{
	const char *mode = getenv("MODE");

	if (!mode || strcmp(mode, "static") != 0)
		skip();
	launch_and_count();
}
