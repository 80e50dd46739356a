// SPDX-License-Identifier: Apache-2.0
/*
 * Frees and allocations among streams, contexts and devices that hold each other up. Every part holds what must not run
 * yet (a value that a stream waits for), so that nothing depends on how fast anything is.
 */
#include "test/preload/child.h"
#include "test/test.h"

CHILD_FRAME(child_start, child_all_is_there)

#define BUDGETS      ((const char *const[]){CHILD_BUDGETS, NULL})
#define TWO_DEVICES  ((const char *const[]){"SIM_DEVICES=2", CHILD_BUDGETS, NULL})
#define PASSES(part) child_passes(BUDGETS, part)

/* ---- cuMemFreeAsync ---- */

PART_TEST(memory_freed_behind_a_stream_of_another_context_waits_for_it, PASSES(part))
{
	CUcontext first = driver_current();
	CUdeviceptr block = child_alloc(20 * MIB), next;
	CUcontext second = child_context();
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
}

PART_TEST(memory_freed_behind_the_threads_own_stream_waits_for_it, PASSES(part))
{
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
}

/*
 * Work of the first context is held. The second one is current when the block is freed, and the first cannot be entered
 * just then: that says nothing of its work.
 */
static void frees_what_an_unreachable_context_uses(bool in_a_capture)
{
	CUcontext first = driver_current();
	CUdeviceptr block = child_alloc(20 * MIB), next;
	CUstream stream = child_stream(), captured;
	unsigned *word = child_hold(stream);

	MUST(cu.cuMemsetD8Async(block, 0x77, 20 * MIB, stream));
	child_context();
	captured = child_stream();
	sim_fail_then("cuCtxPushCurrent_v2", 1, CUDA_ERROR_UNKNOWN, "cuCtxPushCurrent_v2", 3);
	if (in_a_capture)
		child_free_in_a_capture(block, captured);
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
}

PART_TEST(memory_of_a_context_that_cannot_be_entered_just_now_is_kept, PASSES(part))
{
	frees_what_an_unreachable_context_uses(false);
}

PART_TEST(memory_freed_in_a_capture_in_a_context_that_cannot_be_entered_is_kept, PASSES(part))
{
	frees_what_an_unreachable_context_uses(true);
}

PART_TEST(a_free_behind_no_living_stream_is_the_drivers_error_and_frees_nothing, PASSES(part))
{
	__typeof__(&cuMemAllocAsync) native_alloc = (__typeof__(native_alloc))driver_native("cuMemAllocAsync");
	__typeof__(&cuMemFreeAsync) native_free = (__typeof__(native_free))driver_native("cuMemFreeAsync");
	CUdeviceptr block = child_alloc(8 * MIB), native;
	CUstream gone = child_stream();

	sim_switch("DEAD_HANDLES", 1);
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
}

PART_TEST(a_free_that_gets_no_event_is_the_drivers_error_and_can_be_repeated, PASSES(part))
{
	static const CUresult errors[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_OPERATING_SYSTEM, CUDA_ERROR_UNKNOWN};
	static const char *const names[] = {"cuEventCreate", "cuEventRecord", "cuStreamGetCtx"};

	CUstream stream = child_stream();
	/* First those in which none can be made: one that was made is kept. */
	for (int i = 0; i < 9; i++) {
		CUdeviceptr block = child_alloc(8 * MIB);

		MUST(cu.cuMemsetD32_v2(block, 6, 2 * MIB));
		sim_fail(names[i / 3], 1, errors[i % 3]);
		CHECK(cu.cuMemFreeAsync(block, stream) == errors[i % 3]);
		CHECK(!sim_fail_pending());
		CHECK(child_is_alive(block) && driver_holds(block, 6, 2 * MIB));
		MUST(i < 3 || i % 2 ? cu.cuMemFree_v2(block) : cu.cuMemFreeAsync(block, stream));
		CHECK(!child_is_alive(block));
	}
}

/* ---- an allocation that does not fit ---- */

PART_TEST(an_allocation_that_does_not_fit_does_not_wait_for_a_held_stream, PASSES(part))
{
	CUdeviceptr block = child_alloc(20 * MIB), big = 4711;
	CUstream stream = child_stream();
	unsigned *word = child_hold(stream);

	MUST(cu.cuMemsetD8Async(block, 1, 20 * MIB, stream));
	MUST(cu.cuMemFreeAsync(block, stream));
	CHECK(cu.cuMemAlloc_v2(&big, 512 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(big == 4711);
	/*
	 * What fits without the pending block is spilled; the block is not handed out while the stream has not passed.
	 */
	big = child_alloc(70 * MIB);
	CHECK(big + 70 * MIB <= block || block + 20 * MIB <= big);
	CHECK(sim_where(big + 69 * MIB) == 'H');
	CHECK(cu.cuMemAlloc_v2(&block, 20 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	child_release(word);
	MUST(cu.cuMemFree_v2(big));
}

CHILD_TEST(an_allocation_that_does_not_fit_does_not_wait_for_another_device, TWO_DEVICES)
{
	CUcontext first = driver_current();

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
}

/* ---- what was freed in a capture ---- */

PART_TEST(a_block_freed_in_a_capture_that_has_ended_is_used_before_anything_spills, PASSES(part))
{
	unsigned n_reused = 0;

	CUstream stream = child_stream();
	child_free_in_a_capture(child_alloc(20 * MIB), stream);
	/* The first request after the capture has the context's work marked; when that has passed the block is free. */
	CUdeviceptr small = child_alloc(4096), block;
	MUST(cu.cuCtxSynchronize());
	block = child_alloc(20 * MIB);
	CHECK(child_on_device(block, 20 * MIB));
	MUST(cu.cuMemFree_v2(block));
	MUST(cu.cuMemFree_v2(small));
	/* It need not be asked for twice on an idle device, but on a slow machine one mark may be late. */
	for (int i = 0; i < 20 && !n_reused; i++) {
		child_free_in_a_capture(child_alloc(20 * MIB), stream);
		block = child_alloc(20 * MIB);
		n_reused += child_on_device(block, 20 * MIB);
		MUST(cu.cuMemFree_v2(block));
	}
	CHECK(n_reused);
}
