// SPDX-License-Identifier: Apache-2.0
/*
 * What belongs to the calling thread is left as it was by all that is served to it: its capture mode, and errno.
 */
#include "test/preload/child.h"
#include "test/test.h"

#include <stdatomic.h>

#define BUDGETS      ((const char *const[]){CHILD_BUDGETS, NULL})
#define PASSES(part) assert_int_equal(child_run(BUDGETS, part), 0)

/* ---- a thread's capture mode ---- */

/* What is asked after blocks on their way is asked in another mode, where that can be had. */
PART_TEST(a_threads_capture_mode_is_left_as_it_was, PASSES(part))
{
	driver_start(0);
	for (unsigned n = 0; n < 20; n++) {
		CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
		CUstream stream = child_stream();
		unsigned *word = child_hold(stream);

		MUST(cu.cuMemFreeAsync(child_alloc(4 * MIB), stream));
		MUST(cuThreadExchangeStreamCaptureMode(&mode));
		sim_fail_then("cuThreadExchangeStreamCaptureMode", 1, CUDA_ERROR_UNKNOWN,
			      "cuThreadExchangeStreamCaptureMode", n);
		CUdeviceptr small = child_alloc(4096);
		CHECK(!sim_fail_pending());
		while (cuThreadExchangeStreamCaptureMode(&mode) != CUDA_SUCCESS)
			;
		CHECK(mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
		child_release(word);
		MUST(cu.cuStreamDestroy_v2(stream));
		MUST(cu.cuMemFree_v2(small));
	}
	child_all_is_there();
}

/* ---- errno ---- */

#define MARK 4711
#define KEEPS_ERRNO(call)                                                                                              \
	do {                                                                                                           \
		errno = MARK;                                                                                          \
		MUST(call);                                                                                            \
		CHECK(errno == MARK);                                                                                  \
	} while (0)

PART_TEST(errno_is_left_alone_by_everything_served, PASSES(part))
{
	CUdeviceptr block, none, managed;
	size_t pitch, free, total;
	CUgraph graph;
	unsigned on = 1;
	void *host;

	errno = MARK;
	driver_start(0);
	KEEPS_ERRNO(cu.cuMemAlloc_v2(&block, 40 * MIB)); /* the first of all, and spilled */
	CUstream stream = child_stream();
	errno = MARK;
	CHECK(cu.cuMemAlloc_v2(&none, 512 * MIB) == CUDA_ERROR_OUT_OF_MEMORY && errno == MARK);
	KEEPS_ERRNO(cu.cuMemGetInfo_v2(&free, &total));
	KEEPS_ERRNO(cu.cuMemGetAddressRange_v2(NULL, NULL, block));
	KEEPS_ERRNO(cu.cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
	KEEPS_ERRNO(cu.cuMemsetD32_v2(block, 1, 100));
	KEEPS_ERRNO(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	KEEPS_ERRNO(cu.cuMemFree_v2(block));
	KEEPS_ERRNO(cu.cuStreamEndCapture(stream, &graph));
	KEEPS_ERRNO(cu.cuMemAllocPitch_v2(&block, &pitch, 1000, 100, 4));
	KEEPS_ERRNO(cu.cuMemFreeAsync(block, stream));
	KEEPS_ERRNO(cu.cuMemAllocAsync(&block, 4096, stream));
	KEEPS_ERRNO(cu.cuMemFreeAsync(block, stream));
	KEEPS_ERRNO(cu.cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
	KEEPS_ERRNO(cu.cuMemFree_v2(managed));
	KEEPS_ERRNO(cu.cuMemHostAlloc(&host, 4096, 0));
	KEEPS_ERRNO(cu.cuMemFreeHost(host));
	KEEPS_ERRNO(cu.cuStreamDestroy_v2(stream));
	KEEPS_ERRNO(cu.cuDevicePrimaryCtxReset_v2(0));
}

struct interruption {
	pthread_t whom;
	atomic_bool over;
};

static void do_nothing(int number) {}

static void *interrupt(void *argument)
{
	struct interruption *interruption = argument;

	while (!atomic_load(&interruption->over)) {
		pthread_kill(interruption->whom, SIGUSR1);
		usleep(200);
	}
	return NULL;
}

struct freer {
	CUcontext context;
	CUdeviceptr block;
};

static void *free_it(void *argument)
{
	struct freer *freer = argument;

	MUST(cu.cuCtxSetCurrent(freer->context));
	MUST(cu.cuMemFree_v2(freer->block));
	return NULL;
}

/* A capture that begins while another thread's free waits for the GPU is itself made to wait, and is interrupted. */
PART_TEST(errno_is_left_alone_by_a_capture_that_has_to_wait, PASSES(part))
{
	struct sigaction action = {.sa_handler = do_nothing};
	struct interruption interruption = {.whom = pthread_self()};
	struct freer freer = {.context = driver_start(0), .block = child_alloc(4 * MIB)};
	CUstream stream = child_stream(), captured = child_stream();
	unsigned long before = sim_calls("cuCtxSynchronize");
	CUgraph graph;

	sigaction(SIGUSR1, &action, NULL);
	sim_hold();
	MUST(cu.cuMemsetD8Async(freer.block, 1, 4 * MIB, stream));
	pthread_t freeing = test_thread(free_it, &freer);
	UNTIL(sim_calls("cuCtxSynchronize") != before);
	pthread_t interrupting = test_thread(interrupt, &interruption);
	KEEPS_ERRNO(cu.cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
	atomic_store(&interruption.over, true);
	pthread_join(interrupting, NULL);
	KEEPS_ERRNO(cu.cuStreamEndCapture(captured, &graph));
	sim_release();
	pthread_join(freeing, NULL);
	child_all_is_there();
}
