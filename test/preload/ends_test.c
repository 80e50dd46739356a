// SPDX-License-Identifier: Apache-2.0
/*
 * What ends with a context, a stream or a thread: captures that nobody can end any more, frees on their way, memory.
 */
#include "test/preload/child.h"
#include "test/test.h"

#define BUDGETS      ((const char *const[]){CHILD_BUDGETS, NULL})
#define PASSES(part) child_passes(BUDGETS, part)
/* For a part that counts calls: a mode that moves memory asks after the program's work all the time. */
#define PASSES_STATICALLY(part) child_passes(((const char *const[]){CHILD_BUDGETS ",spill.mode=static", NULL}), part)

static void begin_capture(CUstream stream)
{
	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
}

/* ---- captures ---- */

/*
 * Were a capture thought open, no free would wait for the GPU: each would be put off, and the second block of 20 MiB
 * under a budget of 32 would lie on the host.
 */
static void frees_at_once(void)
{
	for (int i = 0; i < 10; i++) {
		unsigned long waits = sim_calls("cuCtxSynchronize");
		CUdeviceptr block = child_alloc(20 * MIB);

		CHECK(child_on_device(block, 20 * MIB));
		MUST(cu.cuMemFree_v2(block));
		CHECK(sim_calls("cuCtxSynchronize") > waits);
	}
}

PART_TEST(a_capture_ends_with_its_context, PASSES(part))
{
	CUcontext first = driver_start(0), second = child_context();

	begin_capture(child_stream());
	begin_capture(child_stream());
	MUST(cu.cuCtxDestroy_v2(second));
	MUST(cu.cuCtxSetCurrent(first));
	frees_at_once();
}

PART_TEST(a_capture_ends_with_its_context_when_that_is_reset, PASSES(part))
{
	driver_start(0);
	begin_capture(child_stream());
	MUST(cu.cuDevicePrimaryCtxReset_v2(0));
	driver_start(0);
	frees_at_once();
	/* And when the books are kept already. */
	begin_capture(child_stream());
	MUST(cu.cuDevicePrimaryCtxReset_v2(0));
	driver_start(0);
	frees_at_once();
}

/* First without any memory, when only the existence of contexts is known. */
PART_TEST(a_capture_of_a_green_context_ends_when_its_device_is_reset, PASSES(part))
{
	for (unsigned i = 0; i < 6; i++) {
		CUgreenCtx green;
		CUcontext part;

		if (i % 2 == 0)
			driver_start(0);
		MUST(cuGreenCtxCreate(&green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM));
		MUST(cuCtxFromGreenCtx(&part, green));
		MUST(cu.cuCtxSetCurrent(part));
		CUstream stream = child_stream();
		if (i > 1) {
			CUdeviceptr block = child_alloc(20 * MIB);

			MUST(cu.cuMemsetD8Async(block, 1, 20 * MIB, stream));
			MUST(cu.cuMemFreeAsync(block, stream));
			MUST(cu.cuMemsetD8Async(child_alloc(20 * MIB), 1, 20 * MIB, stream));
		}
		begin_capture(stream);
		if (i % 2)
			MUST(cu.cuDevicePrimaryCtxReset_v2(0));
	}
	driver_start(0);
	frees_at_once();
}

PART_TEST(a_capture_ends_with_its_context_when_that_is_released, PASSES(part))
{
	driver_start(0);
	MUST(cu.cuMemFree_v2(child_alloc(4096)));
	begin_capture(child_stream());
	MUST(cu.cuDevicePrimaryCtxRelease_v2(0));
	driver_start(0);
	frees_at_once();
}

PART_TEST(a_capture_ends_with_its_stream, PASSES(part))
{
	driver_start(0);
	CUstream stream = child_stream();
	begin_capture(stream);
	MUST(cu.cuStreamDestroy_v2(stream));
	frees_at_once();
}

struct capturer {
	CUcontext context;
	bool per_thread;
	pid_t thread;
};

static void *capture_and_end(void *argument)
{
	struct capturer *capturer = argument;

	capturer->thread = gettid();
	MUST(cu.cuCtxSetCurrent(capturer->context));
	if (capturer->per_thread)
		MUST(cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
	else
		begin_capture(CU_STREAM_PER_THREAD);
	return NULL;
}

/* In a context of its own: what becomes of such a capture in the driver is the driver's business, not asked here. */
PART_TEST(a_capture_of_a_threads_own_stream_ends_with_the_thread, PASSES(part))
{
	CUcontext first = driver_start(0), second = child_context();

	MUST(cu.cuCtxSetCurrent(first));
	for (int i = 0; i < 2; i++) {
		struct capturer capturer = {.context = second, .per_thread = i};
		pthread_t thread;

		CHECK(!pthread_create(&thread, NULL, capture_and_end, &capturer));
		pthread_join(thread, NULL);
		/* Joined is not yet gone. */
		while (!tgkill(getpid(), capturer.thread, 0) || errno != ESRCH)
			sched_yield();
		frees_at_once();
	}
}

/* The other way round: a living thread's capture counts, whoever else ends. */
PART_TEST(what_ends_elsewhere_ends_no_capture_of_a_living_thread, PASSES(part))
{
	CUcontext first = driver_start(0), second = child_context(), third = child_context();
	struct capturer capturer = {.context = third};
	CUgraph graph;

	MUST(cu.cuCtxSetCurrent(first));
	CUdeviceptr block = child_alloc(4 * MIB);
	begin_capture(CU_STREAM_PER_THREAD);
	pthread_t thread = test_thread(capture_and_end, &capturer);
	pthread_join(thread, NULL);
	MUST(cu.cuCtxDestroy_v2(second));
	MUST(cu.cuMemFree_v2(block));
	MUST(cu.cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
}

/* ---- frees on their way ---- */

static void *destroy_it(void *argument)
{
	MUST(cu.cuCtxDestroy_v2(*(CUcontext *)argument));
	return NULL;
}

/* Behind a stream of the context that ends: its events end with it, and must not be touched any more. */
PART_TEST(frees_behind_the_streams_of_a_context_happen_when_it_ends, PASSES_STATICALLY(part))
{
	CUcontext first = driver_start(0);
	CUdeviceptr block[3];

	for (int i = 0; i < 3; i++)
		block[i] = child_alloc(10 * MIB);
	CUcontext second = child_context();
	CUstream stream = child_stream();
	sim_hold();
	MUST(cu.cuMemsetD8Async(block[0], 1, 10 * MIB, stream));
	MUST(cu.cuMemFreeAsync(block[0], stream));
	MUST(cu.cuMemFreeAsync(child_alloc(MIB), stream));
	MUST(cu.cuCtxSetCurrent(first));
	unsigned long ends = sim_calls("cuCtxDestroy_v2");
	pthread_t thread = test_thread(destroy_it, &second);
	UNTIL(sim_calls("cuCtxDestroy_v2") != ends);
	/* The driver waits for the context's work now. */
	unsigned long queries = sim_calls("cuEventQuery"), destroyed = sim_calls("cuEventDestroy_v2");
	sim_release();
	pthread_join(thread, NULL);
	MUST(cu.cuMemFree_v2(block[1]));
	MUST(cu.cuMemFree_v2(block[2]));
	MUST(cu.cuMemFree_v2(child_alloc(96 * MIB)));
	CHECK(sim_calls("cuEventQuery") == queries && sim_calls("cuEventDestroy_v2") == destroyed);
}

/* Behind a stream of a context that goes on: the block's own context may go, the stream still writes to it. */
PART_TEST(a_free_behind_a_stream_outlives_the_context_of_the_block, PASSES(part))
{
	CUcontext first = driver_start(0);
	CUstream stream = child_stream();
	unsigned *word = child_hold(stream);
	CUcontext second = child_context();
	CUdeviceptr block = child_alloc(20 * MIB), next;

	MUST(cu.cuCtxSetCurrent(first));
	MUST(cu.cuMemsetD8Async(block, 0x77, 20 * MIB, stream));
	MUST(cu.cuMemFreeAsync(block, stream));
	MUST(cu.cuCtxDestroy_v2(second));
	next = child_alloc(20 * MIB);
	CUstream other = child_stream();
	MUST(cu.cuMemsetD8Async(next, 0x22, 20 * MIB, other));
	MUST(cu.cuStreamSynchronize(other));
	child_release(word);
	MUST(cu.cuStreamSynchronize(stream));
	CHECK(driver_holds(next, 0x22222222, 5 * MIB));
	MUST(cu.cuMemFree_v2(next));
	MUST(cu.cuMemFree_v2(child_alloc(96 * MIB)));
}

PART_TEST(a_context_that_does_not_end_keeps_its_blocks_and_its_frees, PASSES(part))
{
	CUcontext first = driver_start(0), second = child_context();
	CUdeviceptr block = child_alloc(10 * MIB), kept = child_alloc(10 * MIB);
	CUstream stream = child_stream();
	unsigned *word = child_hold(stream);

	MUST(cu.cuMemsetD8Async(block, 0x77, 10 * MIB, stream));
	MUST(cu.cuMemFreeAsync(block, stream));
	sim_fail("cuCtxDestroy_v2", 1, CUDA_ERROR_UNKNOWN);
	CHECK(cu.cuCtxDestroy_v2(second) == CUDA_ERROR_UNKNOWN);
	/* Nothing has ended: what is alive is alive, what the stream still uses is nobody's. */
	CHECK(child_is_alive(kept) && !child_is_alive(block));
	CUdeviceptr next = child_alloc(10 * MIB);
	CHECK(next != block);
	child_release(word);
	MUST(cu.cuStreamSynchronize(stream));
	MUST(cu.cuMemFree_v2(next));
	MUST(cu.cuMemFree_v2(kept));
	MUST(cu.cuMemFree_v2(child_alloc(96 * MIB)));
	MUST(cu.cuCtxDestroy_v2(second));
	MUST(cu.cuCtxSetCurrent(first));
}

/* ---- access between GPUs ---- */

CHILD_TEST(access_that_ended_before_the_first_allocation_is_none,
	   ((const char *const[]){"SIM_DEVICES=2", CHILD_BUDGETS, NULL}))
{
	CUcontext first = driver_start(0), owner, user;
	CUdeviceptr block;

	/* One that was reached, and one that reached. */
	MUST(cu.cuCtxCreate_v2(&owner, 0, 1));
	MUST(cu.cuCtxSetCurrent(first));
	MUST(cuCtxEnablePeerAccess(owner, 0));
	MUST(cu.cuCtxDestroy_v2(owner));
	driver_start(1);
	MUST(cu.cuCtxCreate_v2(&user, 0, 1));
	MUST(cuCtxEnablePeerAccess(first, 0));
	MUST(cu.cuCtxDestroy_v2(user));
	for (int device = 2; device-- > 0;) {
		driver_start(device);
		block = child_alloc(4 * MIB);
		CHECK(driver_is_heap(block));
		driver_start(1 - device);
		CHECK(cu.cuMemsetD32_v2(block, 1, 1) == CUDA_ERROR_INVALID_VALUE);
	}
}

/* ---- memory ---- */

PART_TEST(a_context_made_anew_has_its_own_blocks, PASSES(part))
{
	CUcontext first = driver_start(0);

	for (unsigned i = 0; i < 5; i++) {
		CUcontext second = child_context();
		CUdeviceptr lost = child_alloc(10 * MIB);

		MUST(cu.cuCtxDestroy_v2(second));
		CUcontext third = child_context();
		CUdeviceptr block = child_alloc(10 * MIB);
		CHECK(!child_is_alive(lost) || lost == block);
		MUST(cu.cuMemsetD32_v2(block, i, 10 * MIB / 4));
		CHECK(child_is_alive(block) && driver_holds(block, i, 10 * MIB / 4));
		MUST(cu.cuMemFree_v2(block));
		MUST(cu.cuCtxDestroy_v2(third));
		/* The primary context is known by the same handle each time. */
		MUST(cu.cuCtxSetCurrent(first));
		lost = child_alloc(10 * MIB);
		MUST(cu.cuDevicePrimaryCtxReset_v2(0));
		CHECK(driver_start(0) == first);
		CHECK(!child_is_alive(lost));
		block = child_alloc(12 * MIB);
		MUST(cu.cuMemsetD32_v2(block, i, 3 * MIB));
		CHECK(child_is_alive(block) && driver_holds(block, i, 3 * MIB));
		MUST(cu.cuMemFree_v2(block));
	}
	MUST(cu.cuMemFree_v2(child_alloc(96 * MIB)));
}

PART_TEST(a_release_that_is_not_the_last_takes_nothing, PASSES(part))
{
	CUcontext context = driver_start(0), again;
	CUdeviceptr block = child_alloc(10 * MIB), base = 0;
	CUstream stream = child_stream();
	unsigned *word = child_hold(stream);
	size_t bytes = 0;

	MUST(cu.cuDevicePrimaryCtxRetain(&again, 0));
	MUST(cu.cuMemsetD32_v2(block, 8, 10 * MIB / 4));
	CUdeviceptr pending = child_alloc(10 * MIB);
	MUST(cu.cuMemsetD8Async(pending, 1, 10 * MIB, stream));
	MUST(cu.cuMemFreeAsync(pending, stream));
	MUST(cu.cuDevicePrimaryCtxRelease_v2(0));
	MUST(cu.cuMemGetAddressRange_v2(&base, &bytes, block + 5));
	CHECK(base == block && bytes == 10 * MIB);
	CHECK(driver_attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block) == CU_MEMORYTYPE_DEVICE);
	CHECK(driver_holds(block, 8, 10 * MIB / 4));
	/* The free that was on its way still is. */
	CUdeviceptr next = child_alloc(10 * MIB);
	CHECK(next != pending);
	child_release(word);
	MUST(cu.cuMemFree_v2(next));
	MUST(cu.cuMemFree_v2(block));
	MUST(cu.cuMemFree_v2(child_alloc(96 * MIB)));
	/* The last one takes everything along. */
	block = child_alloc(MIB);
	MUST(cu.cuDevicePrimaryCtxRelease_v2(0));
	CHECK(driver_start(0) == context);
	CHECK(!child_is_alive(block));
	MUST(cu.cuMemFree_v2(child_alloc(96 * MIB)));
}
