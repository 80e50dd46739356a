/*
 * Frees and copies among streams, contexts and threads that hold each other up. Every part holds what must not run yet
 * (sim_hold, a value that a stream waits for), so that nothing depends on how fast anything is.
 */
#include "test/preload/child.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>

#define BUDGETS      ((const char *const[]){CHILD_BUDGETS, NULL})
#define TWO_DEVICES  ((const char *const[]){"SIM_DEVICES=2", CHILD_BUDGETS, NULL})
#define PASSES(part) assert_int_equal(child_run(BUDGETS, part), 0)

/* Everything can be had again, and the model has seen nothing wrong. */
static int all_is_there(void)
{
	MUST(cu.cuCtxSynchronize());
	MUST(cu.cuMemFree_v2(child_alloc(96 * MIB)));
	CHECK(sim_broken_rules() == 0);
	return 0;
}

static void free_in_a_capture(CUdeviceptr block, CUstream stream)
{
	CUgraph graph;

	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	MUST(cu.cuMemFree_v2(block));
	MUST(cu.cuStreamEndCapture(stream, &graph));
	MUST(cu.cuGraphDestroy(graph));
}

/* ---- cuMemFreeAsync ---- */

static int writes_after_a_free_in_another_context(void)
{
	CUcontext first = driver_start(0), second;
	CUdeviceptr block = child_alloc(20 * MIB), next;

	MUST(cu.cuCtxCreate_v2(&second, 0, 0));
	CUstream stream = child_stream();
	unsigned *word = child_hold(stream);
	MUST(cu.cuMemsetD8Async(block, 0x77, 20 * MIB, stream));
	MUST(cu.cuCtxSetCurrent(first));
	MUST(cu.cuMemFreeAsync(block, stream));
	CHECK(!child_is_alive(block));
	/* That the first context is idle says nothing of the other one. */
	MUST(cu.cuMemFree_v2(child_alloc(4096)));
	MUST(cu.cuCtxSynchronize());
	next = child_alloc(20 * MIB);
	MUST(cu.cuMemsetD32_v2(next, 0x22, 5 * MIB));
	MUST(cu.cuCtxSynchronize());
	child_release(word);
	MUST(cu.cuCtxSetCurrent(second));
	MUST(cu.cuStreamSynchronize(stream));
	MUST(cu.cuCtxSetCurrent(first));
	CHECK(driver_holds(next, 0x22, 5 * MIB));
	MUST(cu.cuMemFree_v2(next));
	return all_is_there();
}

static void memory_freed_behind_a_stream_of_another_context_waits_for_it(void **state)
{
	(void)state;
	PASSES(writes_after_a_free_in_another_context);
}

static int writes_after_a_free_behind_its_own_stream(void)
{
	driver_start(0);
	CUdeviceptr block = child_alloc(20 * MIB), next;
	unsigned *word = child_hold(CU_STREAM_PER_THREAD);
	MUST(cu.cuMemsetD8Async(block, 0x77, 20 * MIB, CU_STREAM_PER_THREAD));
	MUST(cuMemFreeAsync_ptsz(block, NULL));
	next = child_alloc(20 * MIB);
	CUstream stream = child_stream();
	MUST(cu.cuMemsetD8Async(next, 0x22, 20 * MIB, stream));
	MUST(cu.cuStreamSynchronize(stream));
	child_release(word);
	MUST(cu.cuStreamSynchronize(CU_STREAM_PER_THREAD));
	CHECK(driver_holds(next, 0x22222222, 5 * MIB));
	MUST(cu.cuMemFree_v2(next));
	return all_is_there();
}

static void memory_freed_behind_the_threads_own_stream_waits_for_it(void **state)
{
	(void)state;
	PASSES(writes_after_a_free_behind_its_own_stream);
}

/*
 * Work of the first context is held. The second one is current when the block is freed, and the first cannot be entered
 * just then: that says nothing of its work.
 */
static int frees_what_an_unreachable_context_uses(bool in_a_capture)
{
	CUcontext first = driver_start(0), second;
	CUdeviceptr block = child_alloc(20 * MIB), next;
	CUstream stream = child_stream(), captured;
	unsigned *word = child_hold(stream);

	MUST(cu.cuMemsetD8Async(block, 0x77, 20 * MIB, stream));
	MUST(cu.cuCtxCreate_v2(&second, 0, 0));
	captured = child_stream();
	sim_fail_then("cuCtxPushCurrent_v2", 1, CUDA_ERROR_UNKNOWN, "cuCtxPushCurrent_v2", 3);
	if (in_a_capture)
		free_in_a_capture(block, captured);
	else
		CHECK(cu.cuMemFree_v2(block) == CUDA_ERROR_UNKNOWN);
	CHECK(!child_is_alive(block));
	next = child_alloc(20 * MIB);
	CHECK(next != block && !sim_fail_pending());
	MUST(cu.cuMemsetD32_v2(next, 0x22222222, 5 * MIB));
	MUST(cu.cuCtxSynchronize());
	child_release(word);
	MUST(cu.cuCtxSetCurrent(first));
	MUST(cu.cuStreamSynchronize(stream));
	CHECK(driver_holds(next, 0x22222222, 5 * MIB));
	MUST(cu.cuMemFree_v2(next));
	return all_is_there();
}

static int frees_what_an_unreachable_context_uses_at_once(void)
{
	return frees_what_an_unreachable_context_uses(false);
}

static int frees_what_an_unreachable_context_uses_in_a_capture(void)
{
	return frees_what_an_unreachable_context_uses(true);
}

static void memory_of_a_context_that_cannot_be_entered_just_now_is_kept(void **state)
{
	(void)state;
	PASSES(frees_what_an_unreachable_context_uses_at_once);
	PASSES(frees_what_an_unreachable_context_uses_in_a_capture);
}

static int frees_behind_a_stream_that_is_gone(void)
{
	driver_start(0);
	__typeof__(&cuMemAllocAsync) native_alloc = (__typeof__(native_alloc))driver_native("cuMemAllocAsync");
	__typeof__(&cuMemFreeAsync) native_free = (__typeof__(native_free))driver_native("cuMemFreeAsync");
	CUdeviceptr block = child_alloc(8 * MIB), native;
	CUstream gone = child_stream();

	MUST(cu.cuStreamDestroy_v2(gone));
	MUST(native_alloc(&native, 4096, NULL));
	CUresult expected = native_free(native, gone);
	CHECK(expected != CUDA_SUCCESS);
	MUST(native_free(native, NULL));
	MUST(cu.cuMemsetD32_v2(block, 5, 2 * MIB));
	CHECK(cu.cuMemFreeAsync(block, gone) == expected);
	CHECK(child_is_alive(block) && driver_holds(block, 5, 2 * MIB));
	MUST(cu.cuMemFreeAsync(block, NULL));
	CHECK(cu.cuMemFreeAsync(block, NULL) == CUDA_ERROR_INVALID_VALUE);
	return all_is_there();
}

static void a_free_behind_no_living_stream_is_the_drivers_error_and_frees_nothing(void **state)
{
	(void)state;
	PASSES(frees_behind_a_stream_that_is_gone);
}

static int frees_without_an_event(void)
{
	static const CUresult errors[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_OPERATING_SYSTEM, CUDA_ERROR_UNKNOWN};
	static const char *const names[] = {"cuEventCreate", "cuEventRecord"};

	driver_start(0);
	CUstream stream = child_stream();
	/* First those in which none can be made: one that was made is kept. */
	for (int i = 0; i < 6; i++) {
		CUdeviceptr block = child_alloc(8 * MIB);

		MUST(cu.cuMemsetD32_v2(block, 6, 2 * MIB));
		sim_fail(names[i / 3], 1, errors[i % 3]);
		CHECK(cu.cuMemFreeAsync(block, stream) == errors[i % 3]);
		CHECK(!sim_fail_pending());
		CHECK(child_is_alive(block) && driver_holds(block, 6, 2 * MIB));
		MUST(i < 3 || i % 2 ? cu.cuMemFree_v2(block) : cu.cuMemFreeAsync(block, stream));
		CHECK(!child_is_alive(block));
	}
	return all_is_there();
}

static void a_free_that_gets_no_event_is_the_drivers_error_and_can_be_repeated(void **state)
{
	(void)state;
	PASSES(frees_without_an_event);
}

/* ---- CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ---- */

struct copier {
	CUcontext context;
	CUdeviceptr to, from;
	bool per_thread;
	CUresult result;
	atomic_bool returned;
};

static void *copy_it(void *argument)
{
	struct copier *copier = argument;

	MUST(cu.cuCtxSetCurrent(copier->context));
	copier->result = (copier->per_thread ? cuMemcpyDtoD_v2_ptds : cuMemcpyDtoD_v2)(copier->to, copier->from, 4096);
	atomic_store(&copier->returned, true);
	return NULL;
}

static struct copier new_copier(void)
{
	struct copier copier = {.context = driver_start(0), .result = CUDA_ERROR_UNKNOWN};
	unsigned on = 1;

	copier.from = child_alloc(4096);
	copier.to = child_alloc(4096);
	MUST(cu.cuMemsetD32_v2(copier.from, 9, 1024));
	MUST(cu.cuCtxSynchronize());
	MUST(cu.cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, copier.from));
	return copier;
}

static unsigned long waits(void)
{
	return sim_calls("cuStreamSynchronize") + sim_calls("cuStreamSynchronize_ptsz") + sim_calls("cuCtxSynchronize");
}

static int copies_between_blocks(void)
{
	for (int i = 0; i < 2; i++) {
		struct copier copier = new_copier();
		unsigned words[1024];
		pthread_t thread;

		copier.per_thread = i;
		sim_hold();
		unsigned long before = waits();
		CHECK(!pthread_create(&thread, NULL, copy_it, &copier));
		while (waits() == before && !atomic_load(&copier.returned))
			sched_yield();
		CHECK(!atomic_load(&copier.returned));
		sim_release();
		pthread_join(thread, NULL);
		MUST(copier.result);
		CHECK(sim_peek(copier.to, words, sizeof(words)) && words[0] == 9 && words[1023] == 9);
	}
	return 0;
}

static void a_copy_with_sync_memops_returns_when_it_is_done(void **state)
{
	(void)state;
	PASSES(copies_between_blocks);
}

static int copies_beside_a_capture(void)
{
	static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
						    CU_STREAM_CAPTURE_MODE_RELAXED};
	struct copier copier = new_copier();
	CUstream stream = child_stream();
	CUdeviceptr target = child_alloc(4096);

	for (int i = 0; i < 4; i++) {
		pthread_t thread;
		CUgraph graph;

		copier.per_thread = i / 2;
		MUST(cu.cuStreamBeginCapture_v2(stream, modes[i % 2]));
		CHECK(!pthread_create(&thread, NULL, copy_it, &copier));
		pthread_join(thread, NULL);
		MUST(copier.result);
		MUST(cu.cuMemsetD8Async(target, 1, 4096, stream));
		MUST(cu.cuStreamEndCapture(stream, &graph));
		MUST(cu.cuGraphDestroy(graph));
	}
	return 0;
}

static void a_copy_with_sync_memops_leaves_captures_of_others_alone(void **state)
{
	(void)state;
	PASSES(copies_beside_a_capture);
}

static int copies_beside_a_held_stream(void)
{
	struct copier copier = new_copier();
	unsigned *word = child_hold(child_stream());

	MUST(cu.cuMemcpyDtoD_v2(copier.to, copier.from, 4096));
	MUST(cuMemcpyDtoD_v2_ptds(copier.to, copier.from, 4096));
	MUST(cu.cuMemsetD32_v2(copier.to, 3, 1024));
	child_release(word);
	MUST(cu.cuCtxSynchronize());
	return 0;
}

static void a_copy_with_sync_memops_waits_for_no_other_stream(void **state)
{
	(void)state;
	PASSES(copies_beside_a_held_stream);
}

/* ---- an allocation that does not fit ---- */

static int allocates_behind_a_held_stream(void)
{
	driver_start(0);
	CUdeviceptr block = child_alloc(20 * MIB), big = 4711;
	CUstream stream = child_stream();
	unsigned *word = child_hold(stream);

	MUST(cu.cuMemsetD8Async(block, 1, 20 * MIB, stream));
	MUST(cu.cuMemFreeAsync(block, stream));
	CHECK(cu.cuMemAlloc_v2(&big, 512 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(big == 4711);
	/* What fits without the pending block is spilled; the block is not handed out while the stream has not passed. */
	big = child_alloc(70 * MIB);
	CHECK(big + 70 * MIB <= block || block + 20 * MIB <= big);
	CHECK(sim_where(big + 69 * MIB) == 'H');
	CHECK(cu.cuMemAlloc_v2(&block, 20 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	child_release(word);
	MUST(cu.cuMemFree_v2(big));
	return all_is_there();
}

static void an_allocation_that_does_not_fit_does_not_wait_for_a_held_stream(void **state)
{
	(void)state;
	PASSES(allocates_behind_a_held_stream);
}

static int allocates_beside_another_devices_free(void)
{
	CUcontext first = driver_start(0);

	driver_start(1);
	CUdeviceptr there = child_alloc(20 * MIB), here, none;
	CUstream held = child_stream(), passed = child_stream();
	unsigned *word = child_hold(held);

	MUST(cu.cuMemFreeAsync(there, held));
	MUST(cu.cuMemFreeAsync(child_alloc(4 * MIB), passed));
	MUST(cu.cuStreamSynchronize(passed));
	MUST(cu.cuCtxSetCurrent(first));
	CHECK(cu.cuMemAlloc_v2(&none, 512 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	here = child_alloc(90 * MIB);
	CHECK(cu.cuMemAlloc_v2(&none, 20 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	child_release(word);
	MUST(cu.cuMemFree_v2(here));
	return all_is_there();
}

static void an_allocation_that_does_not_fit_does_not_wait_for_another_device(void **state)
{
	(void)state;
	assert_int_equal(child_run(TWO_DEVICES, allocates_beside_another_devices_free), 0);
}

/* ---- what was freed in a capture ---- */

static int allocates_after_a_capture(void)
{
	unsigned n_reused = 0;

	driver_start(0);
	CUstream stream = child_stream();
	free_in_a_capture(child_alloc(20 * MIB), stream);
	/* The first request after the capture has the context's work marked; when that has passed the block is free. */
	CUdeviceptr small = child_alloc(4096), block;
	MUST(cu.cuCtxSynchronize());
	block = child_alloc(20 * MIB);
	CHECK(child_on_device(block, 20 * MIB));
	MUST(cu.cuMemFree_v2(block));
	MUST(cu.cuMemFree_v2(small));
	/* It need not be asked for twice on an idle device, but on a slow machine one mark may be late. */
	for (int i = 0; i < 20 && !n_reused; i++) {
		free_in_a_capture(child_alloc(20 * MIB), stream);
		block = child_alloc(20 * MIB);
		n_reused += child_on_device(block, 20 * MIB);
		MUST(cu.cuMemFree_v2(block));
	}
	CHECK(n_reused);
	return all_is_there();
}

static void a_block_freed_in_a_capture_that_has_ended_is_used_before_anything_spills(void **state)
{
	(void)state;
	PASSES(allocates_after_a_capture);
}

/* ---- a thread's capture mode ---- */

/* What is asked after blocks on their way is asked in another mode, where that can be had. */
static int asks_in_the_mode_it_has(void)
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
	return all_is_there();
}

static void a_threads_capture_mode_is_left_as_it_was(void **state)
{
	(void)state;
	PASSES(asks_in_the_mode_it_has);
}

/* ---- errno ---- */

#define MARK 4711
#define KEEPS_ERRNO(call)                                                                                              \
	do {                                                                                                           \
		errno = MARK;                                                                                          \
		MUST(call);                                                                                            \
		CHECK(errno == MARK);                                                                                  \
	} while (0)

static int serves_with_errno_set(void)
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
	return 0;
}

static void errno_is_left_alone_by_everything_served(void **state)
{
	(void)state;
	PASSES(serves_with_errno_set);
}

struct interruption {
	pthread_t whom;
	atomic_bool over;
};

static void do_nothing(int number)
{
	(void)number;
}

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
static int captures_while_interrupted(void)
{
	struct sigaction action = {.sa_handler = do_nothing};
	struct interruption interruption = {.whom = pthread_self()};
	struct freer freer = {.context = driver_start(0), .block = child_alloc(4 * MIB)};
	CUstream stream = child_stream(), captured = child_stream();
	unsigned long before = sim_calls("cuCtxSynchronize");
	pthread_t freeing, interrupting;
	CUgraph graph;

	sigaction(SIGUSR1, &action, NULL);
	sim_hold();
	MUST(cu.cuMemsetD8Async(freer.block, 1, 4 * MIB, stream));
	CHECK(!pthread_create(&freeing, NULL, free_it, &freer));
	while (sim_calls("cuCtxSynchronize") == before)
		sched_yield();
	CHECK(!pthread_create(&interrupting, NULL, interrupt, &interruption));
	KEEPS_ERRNO(cu.cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
	atomic_store(&interruption.over, true);
	pthread_join(interrupting, NULL);
	KEEPS_ERRNO(cu.cuStreamEndCapture(captured, &graph));
	sim_release();
	pthread_join(freeing, NULL);
	return all_is_there();
}

static void errno_is_left_alone_by_a_capture_that_has_to_wait(void **state)
{
	(void)state;
	PASSES(captures_while_interrupted);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(memory_freed_behind_a_stream_of_another_context_waits_for_it),
	    cmocka_unit_test(memory_freed_behind_the_threads_own_stream_waits_for_it),
	    cmocka_unit_test(memory_of_a_context_that_cannot_be_entered_just_now_is_kept),
	    cmocka_unit_test(a_free_behind_no_living_stream_is_the_drivers_error_and_frees_nothing),
	    cmocka_unit_test(a_free_that_gets_no_event_is_the_drivers_error_and_can_be_repeated),
	    cmocka_unit_test(a_copy_with_sync_memops_returns_when_it_is_done),
	    cmocka_unit_test(a_copy_with_sync_memops_leaves_captures_of_others_alone),
	    cmocka_unit_test(a_copy_with_sync_memops_waits_for_no_other_stream),
	    cmocka_unit_test(an_allocation_that_does_not_fit_does_not_wait_for_a_held_stream),
	    cmocka_unit_test(an_allocation_that_does_not_fit_does_not_wait_for_another_device),
	    cmocka_unit_test(a_block_freed_in_a_capture_that_has_ended_is_used_before_anything_spills),
	    cmocka_unit_test(a_threads_capture_mode_is_left_as_it_was),
	    cmocka_unit_test(errno_is_left_alone_by_everything_served),
	    cmocka_unit_test(errno_is_left_alone_by_a_capture_that_has_to_wait),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
