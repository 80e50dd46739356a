// SPDX-License-Identifier: Apache-2.0
/*
 * on_use_edge_test.c: allocations with place: on-use (on_use_test.c) where there is no memory, or the driver fails; in
 * graphs, by pointers that lie in memory, and in a process that is suspended.
 */
#include "test/preload/on_use_help.h"

/* ---- no memory ---- */

static bool nothing_spills;

/* Of 32 MiB of the device and 32 of the host, or of the device alone where nothing spills. */
static void finds_none(void)
{
	size_t all = nothing_spills ? 32 * MIB : 64 * MIB;

	CUdeviceptr block = child_alloc(all), other = child_alloc(all), none;

	/* More than the device has, and than the budgets. */
	CHECK(cu.cuMemAlloc_v2(&none, 257 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	on_use_set(other, 1, all - 8 * MIB);
	on_use_set(block, 2, 8 * MIB);
	/* The call that names more than there is is refused, and so is the next one; others go on. */
	for (unsigned i = 0; i < 2; i++)
		CHECK(cu.cuMemsetD32_v2(block + 8 * MIB, 3, 8 * MIB / 4) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(on_use_counted(STAT_on_use_refused) == 2);
	CHECK(driver_fill(NULL, block, 3, MIB / 4) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(on_use_counted(STAT_on_use_refused) == 3 && on_use_counted(STAT_refused) == 4);
	CHECK(on_use_is(other, 1, all - 8 * MIB) && on_use_is(block, 2, 8 * MIB));
	/* When there is memory again, it is taken. */
	MUST(cu.cuMemFree_v2(other));
	MUST(driver_fill(NULL, block, 3, all / 4));
	CHECK(on_use_is(block, 3, all));
	MUST(cu.cuMemFree_v2(block));
}

TEST(a_use_that_finds_no_memory_is_refused)
{
	on_use_run_as(on_use_mode(), "device.budget=32MiB,host.budget=32MiB", finds_none);
}

TEST(where_nothing_spills_it_is_refused_earlier)
{
	nothing_spills = true;
	on_use_run_as("off", "device.budget=32MiB,host.budget=32MiB", finds_none);
}

/*
 * A launch for which there is too little memory, though some of the host is left, where memory of the device could go:
 * that would help nobody.
 */
PART_TEST(a_refused_launch_counts_once, on_use_run_as(on_use_mode(), "device.budget=32MiB,host.budget=32MiB", part))
{
	CUdeviceptr block = child_alloc(64 * MIB), other = child_alloc(64 * MIB);

	on_use_set(other, 1, 56 * MIB);
	on_use_born(block, 16 * MIB);
	uint64_t on_device = on_use_live(PLACE_DEVICE);
	CHECK(driver_fill(NULL, block, 3, 16 * MIB / 4) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(on_use_counted(STAT_on_use_refused) == 1 && on_use_counted(STAT_refused) == 1);
	CHECK(on_use_live(PLACE_DEVICE) >= on_device);
	MUST(cu.cuMemFree_v2(other));
	MUST(driver_fill(NULL, block, 3, 16 * MIB / 4));
	CHECK(on_use_is(block, 3, 16 * MIB) && on_use_counted(STAT_on_use_refused) == 1);
	MUST(cu.cuMemFree_v2(block));
}

/*
 * Nothing is kept that would do without the driver. The driver fails where memory is made or mapped: the call gets an
 * error, or the memory from elsewhere; later it works.
 */
PART_TEST(where_the_driver_fails_a_later_use_succeeds,
	  on_use_run_as(on_use_mode(), "device.budget=50%,host.budget=384MiB,heap.release_threshold=0", part))
{
	static const char *const names[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess"};
	static const CUresult errors[] = {CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY};

	for (unsigned i = 0; i < 6; i++) {
		CUdeviceptr block = child_alloc(64 * MIB);

		on_use_set(block + 30 * MIB, 5, MIB);
		sim_fail(names[i / 2], 1, errors[i % 2]);
		CUresult result = cu.cuMemsetD32_v2(block + 10 * MIB, 6, 30 * MIB / 4);
		CHECK(!sim_fail_pending());
		CHECK(i % 2 ? result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY
			    : result != CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(on_use_is(block + 30 * MIB, result == CUDA_SUCCESS ? 6 : 5, MIB));
		on_use_set(block + 10 * MIB, 7, 30 * MIB);
		CHECK(on_use_is(block + 10 * MIB, 7, 30 * MIB));
		MUST(cu.cuMemFree_v2(block));
		CHECK(on_use_live(PLACE_UNUSED) == 0);
	}
}

/* ---- graphs ---- */

/* What a graph names is taken as a whole, whatever is known: it is used at each launch. */
PART_TEST(what_a_graph_names_is_taken_as_a_whole, on_use_run(part))
{
	CUDA_MEMSET_NODE_PARAMS node = {.value = 8, .elementSize = 4, .width = MIB / 4, .height = 1};
	CUgraphNode added;
	CUgraph graph;

	CUstream stream = child_stream();
	CUdeviceptr block = child_alloc(32 * MIB), other = child_alloc(32 * MIB);

	on_use_born(block, MIB);
	MUST(driver_fill(stream, block, 5, MIB / 4));
	MUST(cu.cuStreamSynchronize(stream));
	CHECK(on_use_counted(STAT_on_use_whole) == 0);
	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	MUST(driver_fill(stream, block, 6, MIB / 4));
	CHECK(on_use_counted(STAT_on_use_whole) == 1);
	MUST(cu.cuStreamEndCapture(stream, &graph));
	CUgraphExec exec = driver_instance(graph);
	/* The part has another user, and the graph the same memory. */
	on_use_discard(block, MIB);
	on_use_born(block, 512);
	MUST(cu.cuGraphLaunch(exec, stream));
	MUST(cu.cuStreamSynchronize(stream));
	CHECK(on_use_is(block, 6, MIB));
	MUST(cu.cuGraphExecDestroy(exec));
	/* A node by hand: the driver looks at its memory at once. */
	node.dst = other + 20 * MIB;
	MUST(cuGraphAddMemsetNode(&added, graph, NULL, 0, &node, child_context()));
	CHECK(on_use_counted(STAT_on_use_whole) == 2);
	MUST(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
	MUST(cu.cuGraphLaunch(exec, stream));
	MUST(cu.cuStreamSynchronize(stream));
	CHECK(on_use_is(other + 20 * MIB, 8, MIB) && on_use_is(block, 6, MIB));
	MUST(cu.cuGraphExecDestroy(exec));
	MUST(cu.cuGraphDestroy(graph));
	MUST(cu.cuMemFree_v2(other));
	MUST(cu.cuMemFree_v2(block));
}

/* ---- pointers in memory ---- */

static void through_body(const struct sim_launch *launch, void **args)
{
	CUdeviceptr **table = args[0];
	uint32_t *value = args[1];

	for (unsigned i = 0; (*table)[i]; i++)
		*(uint32_t *)sim_pointer((*table)[i]) = *value;
}

SIM_MODULE(image, SIM_KERNEL("through", through_body, 8, 4));

/* A kernel finds pointers in a table, which the host has copied there before the table had its place. */
PART_TEST(pointers_that_are_copied_count_as_named, on_use_run(part))
{
	uint32_t value = 77;

	CUfunction function = driver_function(&image, "through");
	CUdeviceptr block = child_alloc(64 * MIB), other = child_alloc(32 * MIB), far = child_alloc(32 * MIB);
	CUdeviceptr words[] = {block + 40 * MIB, other + 12, block + 4, 0}, small = child_alloc(MIB);
	CUdeviceptr table = child_alloc(MIB);

	on_use_born(other, 2 * MIB);
	MUST(cu.cuMemcpyHtoD_v2(small, words, sizeof(words)));
	CHECK(on_use_counted(STAT_on_use_whole) == 1); /* of the first one; the second one's reach is known */
	MUST(cu.cuMemcpyDtoD_v2(table, small, sizeof(words)));
	void *args[] = {&table, &value};
	MUST(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	MUST(cu.cuCtxSynchronize());
	for (unsigned i = 0; words[i]; i++)
		CHECK(on_use_is(words[i], 77, 4));
	CHECK(on_use_live(PLACE_UNUSED) >= 60 * MIB - 2 * GRAIN); /* `far`, and most of `other` */
	MUST(cu.cuMemFree_v2(far));
	MUST(cu.cuMemFree_v2(other));
	MUST(cu.cuMemFree_v2(block));
}

/* A stream writes pointers into a table, as values: by a call each, in a batch, and by a graph. */
PART_TEST(pointers_that_a_stream_writes_count_as_named, on_use_run(part))
{
	CUgraphNode node;
	CUgraph graph;
	uint32_t value = 77;

	CUfunction function = driver_function(&image, "through");
	CUstream stream = child_stream();
	CUdeviceptr block[3], table = child_alloc(MIB);

	for (unsigned i = 0; i < 3; i++)
		block[i] = child_alloc(32 * MIB);
	MUST(cuStreamWriteValue64_v2(stream, table, block[0] + 20 * MIB, CU_STREAM_WRITE_VALUE_DEFAULT));
	CHECK(on_use_counted(STAT_on_use_whole) == 1);
	CUstreamBatchMemOpParams op[2] = {
	    {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64, .address = table + 8}},
	    {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64, .address = table + 24}},
	};
	op[0].writeValue.value64 = block[1] + 12 * MIB;
	MUST(cuStreamBatchMemOp_v2(stream, 2, op, 0));
	CHECK(on_use_counted(STAT_on_use_whole) == 2);
	op[0].writeValue.address = table + 16;
	op[0].writeValue.value64 = block[2] + 8 * MIB;
	CUDA_BATCH_MEM_OP_NODE_PARAMS ops = {.ctx = child_context(), .count = 2, .paramArray = op};
	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, &ops));
	CUgraphExec exec = driver_instance(graph);
	MUST(cu.cuGraphLaunch(exec, stream));
	CHECK(on_use_counted(STAT_on_use_whole) == 3);
	void *args[] = {&table, &value};
	MUST(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
	MUST(cu.cuStreamSynchronize(stream));
	CHECK(on_use_is(block[0] + 20 * MIB, 77, 4) && on_use_is(block[1] + 12 * MIB, 77, 4) &&
	      on_use_is(block[2] + 8 * MIB, 77, 4));
	MUST(cu.cuGraphExecDestroy(exec));
	MUST(cu.cuGraphDestroy(graph));
	for (unsigned i = 0; i < 3; i++)
		MUST(cu.cuMemFree_v2(block[i]));
}

/*
 * A kernel makes up an address: where no memory was taken, that is an illegal access, and the library says what it may
 * be.
 */
PART_TEST(an_address_that_was_never_named_is_told, on_use_run(part))
{
	uint32_t value = 77;

	CUfunction function = driver_function(&image, "through");
	CUdeviceptr block = child_alloc(64 * MIB), table = child_alloc(MIB);

	MUST(driver_fill(NULL, table, (unsigned)(block + 40 * MIB), 1));
	MUST(driver_fill(NULL, table + 4, (unsigned)((block + 40 * MIB) >> 32), 1));
	MUST(driver_fill(NULL, table + 8, 0, 2));
	void *args[] = {&table, &value};
	cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL);
	CHECK(cu.cuMemcpyDtoH_v2(&value, table, 4) == CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK(on_use_counted(STAT_on_use_faults) > 0);
	_exit(0); /* the kernel has broken a rule of the model */
}

static CUstream behind;
static CUevent event_behind;
static CUdeviceptr somewhere;

/* A copy does not wait for that stream. */
static enum { BY_STREAM, BY_CONTEXT, BY_EVENT, BY_STREAM_QUERY, BY_EVENT_QUERY, BY_COPY, BY_FREE, WAYS } way;

static CUresult wait_for_it(void)
{
	uint32_t value;
	CUresult result;

	switch (way) {
	case BY_STREAM:
		return cu.cuStreamSynchronize(behind);
	case BY_CONTEXT:
		return cu.cuCtxSynchronize();
	case BY_EVENT:
		return cuEventSynchronize(event_behind);
	case BY_FREE:
		return cu.cuMemFree_v2(somewhere);
	default:
		do
			result = way == BY_COPY           ? cu.cuMemcpyDtoH_v2(&value, somewhere, 4)
				 : way == BY_STREAM_QUERY ? cuStreamQuery(behind)
							  : cuEventQuery(event_behind);
		while (result == (way == BY_COPY ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY) && !usleep(100));
		return result;
	}
}

/* The kernel runs when its launch has returned, and the first call that hears of it submits nothing. */
static void is_waited_for(void)
{
	uint32_t value = 77;

	CUfunction function = driver_function(&image, "through");
	CUdeviceptr block = child_alloc(64 * MIB), table = child_alloc(MIB);
	CUdeviceptr words[] = {block + 40 * MIB, 0};

	somewhere = child_alloc(MIB);
	behind = child_stream();
	MUST(cuEventCreate(&event_behind, CU_EVENT_DISABLE_TIMING));
	for (unsigned i = 0; i < 4; i++)
		MUST(driver_fill(NULL, table + 4 * i, ((const uint32_t *)words)[i], 1));
	MUST(cu.cuCtxSynchronize());
	unsigned *word = child_hold(behind);
	void *args[] = {&table, &value};
	MUST(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, behind, args, NULL));
	MUST(cuEventRecord(event_behind, behind));
	child_release(word);
	CHECK(wait_for_it() == CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK(on_use_counted(STAT_on_use_faults) == 1);
	CHECK(cu.cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK(on_use_counted(STAT_on_use_faults) == 2);
	_exit(0); /* as above */
}

TEST(an_address_that_was_never_named_is_told_by_every_wait)
{
	for (way = 0; way < WAYS; way++) {
		folder_clear(); /* of the figures of the program before it */
		on_use_run(is_waited_for);
	}
}

/* ---- memory that leaves the process ---- */

/* In pieces of its own, so that the driver takes it for memory that is made in one way. */
#define LEAVES (4 * MIB)

static CUresult export_range(CUdeviceptr at, size_t bytes)
{
	int file = -1;
	CUresult result = cuMemGetHandleForAddressRange(&file, at, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);

	if (result == CUDA_SUCCESS)
		CHECK(file >= 0 && close(file) == 0);
	return result;
}

/* Of a range half of which has no memory, and of one that has none at all: it is there then, and stays where it is. */
PART_TEST(a_range_that_leaves_the_process_has_memory_and_keeps_it, on_use_run(part))
{
	CUdeviceptr block = child_alloc(64 * MIB), other = child_alloc(160 * MIB);
	CUdeviceptr at[] = {block + 8 * MIB, block + 40 * MIB};

	on_use_set(at[0], 1, LEAVES);
	CHECK(on_use_live(PLACE_DEVICE) == LEAVES);
	CHECK(export_range(at[0], 2 * LEAVES) == CUDA_SUCCESS && export_range(at[1], LEAVES) == CUDA_SUCCESS);
	CHECK(on_use_live(PLACE_DEVICE) == 3 * LEAVES && on_use_counted(STAT_on_use_whole) == 0);
	CHECK(on_use_counted(STAT_pinned_blocks) == 3);
	on_use_set(at[0] + LEAVES, 2, LEAVES);
	on_use_set(at[1], 3, LEAVES);
	/* More than there is room for beside it, again and again. */
	for (unsigned i = 0; i < 40; i++) {
		MUST(driver_fill(NULL, other + i % 4 * 40 * MIB, i, 40 * MIB / 4));
		MUST(cu.cuCtxSynchronize());
		CHECK(child_on_device(at[0], 2 * LEAVES) && child_on_device(at[1], LEAVES));
	}
	CHECK(on_use_is(at[0], 1, LEAVES) && on_use_is(at[0] + LEAVES, 2, LEAVES) && on_use_is(at[1], 3, LEAVES));
	MUST(cu.cuMemFree_v2(other));
	/* Others may still write there, so it is nobody's memory afterwards. */
	size_t before = sim_live().device_bytes;
	MUST(cu.cuMemFree_v2(block));
	CHECK(sim_live().device_bytes <= before - 3 * LEAVES);
}

/* A range for which there is no memory is refused; the driver does not see it. */
PART_TEST(a_range_without_memory_for_it_does_not_leave,
	  on_use_run_as(on_use_mode(), "device.budget=32MiB,host.budget=32MiB", part))
{
	CUdeviceptr block = child_alloc(64 * MIB);

	on_use_set(block, 1, 64 * MIB);
	CUdeviceptr other = child_alloc(16 * MIB);
	CHECK(export_range(other, LEAVES) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(on_use_counted(STAT_pinned_blocks) == 0 && on_use_is(block, 1, 64 * MIB));
	MUST(cu.cuMemFree_v2(block));
	CHECK(export_range(other, LEAVES) == CUDA_SUCCESS);
	MUST(cu.cuMemFree_v2(other));
}

/* ---- suspension ---- */

static CUdeviceptr waited_for;

static void *use_it(void *argument)
{
	driver_start(0);
	on_use_set(waited_for + 40 * MIB, 9, 8 * MIB);
	return NULL;
}

/* What has no memory needs none while the process is suspended; what is used then is taken from the host. */
PART_TEST(a_suspended_process_takes_nothing_of_the_device, if (strcmp(on_use_mode(), "static") != 0) on_use_run(part))
{
	waited_for = child_alloc(64 * MIB);
	on_use_set(waited_for, 4, 20 * MIB);
	CHECK(spillway_suspend() == 0);
	CHECK(sim_live().device_bytes < 4 * MIB && on_use_live(PLACE_UNUSED) >= 36 * MIB);
	pthread_t thread = test_thread(use_it, NULL);
	for (unsigned ms = 0; ms < 20000 && on_use_live(PLACE_UNUSED) > 36 * MIB; ms++)
		usleep(1000);
	CHECK(on_use_live(PLACE_UNUSED) <= 36 * MIB && sim_live().device_bytes < 4 * MIB);
	CHECK(spillway_resume() == 0);
	CHECK(!pthread_join(thread, NULL));
	CHECK(on_use_is(waited_for, 4, 20 * MIB) && on_use_is(waited_for + 40 * MIB, 9, 8 * MIB));
	CHECK(on_use_counted(STAT_on_use_whole) == 0);
	MUST(cu.cuMemFree_v2(waited_for));
}

EACH_TEST(folder_make, folder_remove)
