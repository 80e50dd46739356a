// SPDX-License-Identifier: Apache-2.0
/*
 * What copies between GPUs wait for under the library, and what their waits leave alone; with and without peer access
 * (SIM_PEERS).
 */
#include "test/preload/gpus.h"
#include "test/test.h"

#define DEVICES 3
#define ROW     4096
#define ROWS    600
#define BYTES   ((size_t)ROW * ROWS) /* 2.3 MiB: more than one page */

BEFORE_ALL
{
	gpus_start_for_copies(DEVICES, BYTES);
}

/* Two halves, each with an order of its own. */
static CUresult two_orders(bool boxes, CUdeviceptr dst, const CUdeviceptr *srcs, const CUmemcpySrcAccessOrder *orders)
{
	CUmemcpyAttributes attributes[2] = {{.srcAccessOrder = orders[0]}, {.srcAccessOrder = orders[1]}};
	CUdeviceptr dsts[2] = {dst, dst + BYTES / 2}, from[2] = {srcs[0], srcs[1]};
	size_t sizes[2] = {BYTES / 2, BYTES / 2}, first[2] = {0, 1};
	CUDA_MEMCPY3D_BATCH_OP ops[2];

	for (int i = 0; i < 2; i++)
		ops[i] =
		    (CUDA_MEMCPY3D_BATCH_OP){.src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = srcs[i]},
					     .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = dsts[i]},
					     .extent = {ROW, ROWS / 2, 1},
					     .srcAccessOrder = orders[i]};
	return boxes ? cuMemcpy3DBatchAsync_v2(2, ops, 0, gpus.stream[0])
		     : cuMemcpyBatchAsync_v2(dsts, from, sizes, 2, attributes, first, 2, gpus.stream[0]);
}

/* Pinned memory during the call, other memory when its turn comes, which is when all of it has changed. */
TEST(lists_read_host_memory_when_they_say)
{
	static const CUmemcpySrcAccessOrder orders[] = {CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL,
							CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	unsigned char *pinned;

	ok(cu.cuMemHostAlloc((void **)&pinned, BYTES / 2, CU_MEMHOSTALLOC_PORTABLE));
	for (int boxes = 0; boxes < 2; boxes++) {
		const CUdeviceptr srcs[] = {(CUdeviceptr)pinned, (CUdeviceptr)(gpus.host + BYTES / 2)};

		gpus_fill(1, 9600);
		memcpy(pinned, gpus.host, BYTES / 2);
		gpus_be(0);
		sim_hold();
		ok(two_orders(boxes, gpus.block[1], srcs, orders));
		gpus_fill_host(9601);
		memcpy(pinned, gpus.host, BYTES / 2);
		sim_release();
		ok(cu.cuCtxSynchronize());
		gpus_be(1);
		ok(cu.cuMemcpyDtoH_v2(gpus.seen, gpus.block[1], BYTES));
		for (size_t i = 0; i < BYTES; i++)
			assert_int_equal(gpus.seen[i], gpus_byte(i, i < BYTES / 2 ? 9600 : 9601));
	}
	ok(cu.cuMemFreeHost(pinned));
}

/* What another stream writes there after the call is not copied, however late the copies' own stream is. */
TEST(lists_have_read_device_memory_when_they_return)
{
	static const CUmemcpySrcAccessOrder orders[] = {CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL,
							CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL};

	for (int boxes = 0; boxes < 2; boxes++) {
		const CUdeviceptr srcs[] = {gpus.block[1], gpus.block[1] + BYTES / 2};

		gpus_fill(1, 9700);
		gpus_be(0);
		sim_switch("PIECE_US", 1000);
		ok(cu.cuMemsetD8Async(gpus.block[0], 1, BYTES, gpus.stream[0]));
		ok(two_orders(boxes, gpus.block[2], srcs, orders));
		sim_switch("PIECE_US", 0);
		gpus_fill(1, 9701);
		gpus_be(0);
		ok(cu.cuCtxSynchronize());
		gpus_expect(2, 9700, BYTES, "a list during the call", boxes);
	}
}

/*
 * What waits for the copies: that their source has been read, and, if the way back fails, that nothing overtakes them.
 */
struct beside {
	CUresult list[2], failed, stream;
};

static void *copy_beside_a_capture(void *argument)
{
	static const CUmemcpySrcAccessOrder orders[] = {CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL,
							CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL};
	const CUdeviceptr srcs[] = {gpus.block[1], gpus.block[1] + BYTES / 2};
	struct beside *beside = argument;
	unsigned n = 1;

	cuCtxSetCurrent(gpus.context[0]);
	for (int boxes = 0; boxes < 2; boxes++)
		beside->list[boxes] = two_orders(boxes, gpus.block[2], srcs, orders);
	do {
		sim_fail("cuStreamWaitEvent", n++, CUDA_ERROR_UNKNOWN);
		beside->failed = cuMemcpyHtoDAsync_v2(gpus.block[0], gpus.host, BYTES, gpus.stream[1]);
		beside->failed |= cuMemcpyDtoDAsync_v2(gpus.block[1], gpus.block[0], BYTES, gpus.stream[1]);
	} while (!sim_fail_pending());
	sim_fail("cuStreamWaitEvent", 0, CUDA_SUCCESS);
	beside->stream = cuMemcpyDtoDAsync_v2(gpus.block[1], gpus.block[0], BYTES, gpus.stream[1]);
	return NULL;
}

/* None of these calls is unsafe natively: neither do they end the capture nor fail because of it. */
TEST(copies_leave_captures_of_other_threads_alone)
{
	struct beside beside;
	CUstream capturing;
	CUgraph graph = NULL;
	pthread_t thread;

	gpus_fill(1, 9800);
	gpus_fill_host(9801);
	gpus_be(0);
	ok(cu.cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
	ok(cu.cuStreamBeginCapture_v2(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL));
	pthread_create(&thread, NULL, copy_beside_a_capture, &beside);
	pthread_join(thread, NULL);
	ok(cu.cuMemsetD8Async(gpus.block[0], 1, BYTES, capturing));
	ok(cu.cuStreamEndCapture(capturing, &graph));
	assert_non_null(graph);
	ok(cuGraphDestroy(graph));
	ok(cu.cuStreamDestroy_v2(capturing));
	ok(beside.list[0]);
	ok(beside.list[1]);
	ok(beside.stream);
	gpus_be(1);
	ok(cu.cuCtxSynchronize());
	gpus_be(0);
	ok(cu.cuCtxSynchronize());
	gpus_expect(2, 9800, BYTES, "beside a capture", 0);
	gpus_expect(1, 9801, BYTES, "after a failure beside a capture", 0);
}

/*
 * Natively a synchronous copy between two GPUs comes behind what either was given in its default stream. Only those
 * that the library makes in three steps are looked at: the simulated GPU has its own idea of the others.
 */
TEST(a_synchronous_copy_comes_behind_both_default_streams)
{
	if (strcmp(getenv("SIM_PEERS") ? getenv("SIM_PEERS") : "all", "none"))
		skip();
	gpus_fill(1, 31000);
	gpus_be(1);
	sim_switch("PIECE_US", 3000);
	ok(cu.cuMemsetD8Async(gpus.block[1], 7, BYTES, NULL));
	gpus_be(2);
	ok(cuMemcpyPeer(gpus.block[2], gpus.context[2], gpus.block[1], gpus.context[1], BYTES));
	sim_switch("PIECE_US", 0);
	ok(cu.cuMemcpyDtoH_v2(gpus.seen, gpus.block[2], BYTES));
	for (size_t i = 0; i < BYTES; i++)
		assert_int_equal(gpus.seen[i], 7);
}

/*
 * The memory that lies between may be another's until its stream has reached the free: a pool that is full gives out
 * what waits there, and orders only the stream that allocates behind it (rules_pool_test).
 */
TEST(a_copy_waits_until_the_memory_between_is_free)
{
	CUmemPoolProps props = form_pool(2, BYTES);
	CUmemoryPool usual, full;
	CUdeviceptr theirs;
	unsigned *word;

	gpus_fill(1, 32000);
	gpus_be(2);
	ok(cu.cuMemHostAlloc((void **)&word, 4096, CU_MEMHOSTALLOC_PORTABLE));
	*word = 0;
	ok(cuDeviceGetMemPool(&usual, 2));
	ok(cuMemPoolCreate(&full, &props));
	ok(cuDeviceSetMemPool(2, full));
	ok(cuMemAllocFromPoolAsync(&theirs, BYTES, full, gpus.stream[2]));
	ok(cu.cuStreamSynchronize(gpus.stream[2]));
	ok(cuStreamWaitValue32_v2(gpus.stream[2], (CUdeviceptr)word, 1, CU_STREAM_WAIT_VALUE_GEQ));
	ok(driver_fill(gpus.stream[2], theirs, 9, BYTES / 4));
	ok(cu.cuMemFreeAsync(theirs, gpus.stream[2]));
	gpus_be(1);
	ok(cuMemcpyDtoDAsync_v2(gpus.block[2], gpus.block[1], BYTES, gpus.stream[1]));
	usleep(50000); /* in which a copy that does not wait is made */
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	ok(cu.cuCtxSynchronize());
	gpus_expect(2, 32000, BYTES, "by memory that was another's", 0);
	gpus_be(2);
	ok(cuDeviceSetMemPool(2, usual));
	ok(cuMemPoolDestroy(full));
	ok(cu.cuMemFreeHost(word));
	assert_int_equal(sim_broken_rules(), 0);
}

/* The driver takes no memory of it for such a copy. */
TEST(a_pool_of_the_program_that_is_full_refuses_no_copy)
{
	for (int device = 1; device <= 2; device++) {
		CUmemPoolProps props = form_pool(device, ROW);
		CUmemoryPool usual, small;

		gpus_fill(1, 33000 + (unsigned)device);
		ok(cuDeviceGetMemPool(&usual, device));
		ok(cuMemPoolCreate(&small, &props));
		ok(cuDeviceSetMemPool(device, small));
		gpus_be(1);
		ok(cuMemcpyDtoDAsync_v2(gpus.block[2], gpus.block[1], BYTES, gpus.stream[1]));
		ok(cu.cuCtxSynchronize());
		gpus_expect(2, 33000 + (unsigned)device, BYTES, "with a full pool", device);
		ok(cuDeviceSetMemPool(device, usual));
		ok(cuMemPoolDestroy(small));
	}
	assert_int_equal(sim_broken_rules(), 0);
}
