// SPDX-License-Identifier: Apache-2.0
/*
 * context_end_test.c: what is taken off the books when a context ends, and what is not. The driver may give the handle
 * of a context that has ended to a new one before our books are closed; that moment is between the two halves of
 * serve.h's answer to an ending context, which are called here with allocations in between.
 */
#include "test/core/core.h"
#include "test/ledger_check.h"

#include "shim/context/context.h"
#include "shim/serve/deferred_free.h"
#include "shim/serve/serve.h"
#include "shim/stats/stats.h"

static bool is_alive(CUdeviceptr address)
{
	struct ledger_row row;

	return serve_find(address, &row);
}

EACH_TEST(NULL, core_check)

TEST(what_is_allocated_after_the_end_is_the_next_contexts)
{
	CUdeviceptr before = core_block(4 * MIB), small = core_block(100);
	CUcontext context = core_current();

	struct serve_ending ending = serve_context_ending(context);
	CUdeviceptr after = core_block(4 * MIB);
	core_fill(after, 4 * MIB, 1);
	CUdeviceptr later = core_block(200);
	serve_context_ended(context, ending, true);
	assert_false(is_alive(before) || is_alive(small));
	assert_true(is_alive(after) && is_alive(later));
	/* What was freed is handed out again, not what is alive. */
	before = core_block(4 * MIB);
	core_fill(before, 4 * MIB, 2);
	assert_true(core_is_filled(after, 4 * MIB, 1));
	assert_ok(cuMemFree_v2(before));
	assert_ok(cuMemFree_v2(after));
	assert_ok(cuMemFree_v2(later));
}

TEST(what_is_freed_after_the_end_waits_for_the_next_contexts_streams)
{
	CUdeviceptr before = core_block(4 * MIB), after = core_block(6 * MIB);
	CUstream stream = core_stream();
	CUcontext context = core_current();

	sim_hold();
	assert_ok(cuMemsetD8Async(before, 1, 4 * MIB, stream));
	assert_ok(cuMemFreeAsync(before, stream));
	struct serve_ending ending = serve_context_ending(context);
	assert_non_null(ending.pending);
	assert_false(deferred_free_any());
	assert_ok(cuMemFreeAsync(after, stream));
	serve_context_ended(context, ending, true);
	assert_true(deferred_free_any());
	sim_release();
	assert_ok(cuStreamSynchronize(stream));
}

TEST(of_a_context_that_did_not_end_everything_stays)
{
	CUdeviceptr live = core_block(4 * MIB), gone = core_block(6 * MIB);
	CUstream stream = core_stream();
	CUcontext context = core_current();

	sim_hold();
	assert_ok(cuMemsetD8Async(gone, 1, 6 * MIB, stream));
	assert_ok(cuMemFreeAsync(gone, stream));
	struct serve_ending ending = serve_context_ending(context);
	serve_context_ended(context, ending, false);
	assert_true(is_alive(live) && deferred_free_any());
	/* Still in use: not for the next one. */
	CUdeviceptr next = core_block(6 * MIB);
	assert_true(next != gone && deferred_free_any());
	sim_release();
	assert_ok(cuMemFree_v2(next));
	assert_ok(cuMemFree_v2(live));
}

/* The driver does not promise that the work of a green context is over when that has ended. */
TEST(what_a_green_context_has_freed_waits_for_its_work)
{
	CUcontext part;
	CUgreenCtx green;
	CUcontext context = core_current();

	assert_ok(cuGreenCtxCreate(&green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	assert_ok(cuCtxFromGreenCtx(&part, green));
	assert_ok(cuCtxSetCurrent(part));
	CUstream stream = core_stream();
	CUdeviceptr freed = core_block(8 * MIB);
	sim_hold();
	assert_ok(cuMemsetD8Async(freed, 7, 8 * MIB, stream));
	assert_ok(cuMemFreeAsync(freed, stream));
	assert_ok(cuStreamDestroy_v2(stream));
	assert_ok(cuCtxSetCurrent(context));
	assert_ok(cuGreenCtxDestroy(green));
	assert_true(deferred_free_any());
	CUdeviceptr next = core_block(8 * MIB);
	assert_true(next != freed);
	sim_release();
	core_drain();
	assert_false(deferred_free_any());
	assert_ok(cuMemFree_v2(next));
}

/* Nobody promises that it outlives the primary one: its events are not asked any more, and its work is over. */
TEST(a_green_context_ends_when_its_primary_one_is_reset)
{
	CUcontext part;
	CUgreenCtx green;
	CUcontext context = core_current();

	assert_ok(cuGreenCtxCreate(&green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	assert_ok(cuCtxFromGreenCtx(&part, green));
	assert_ok(cuCtxSetCurrent(part));
	CUstream stream = core_stream();
	CUdeviceptr freed = core_block(8 * MIB);
	assert_ok(cuMemsetD8Async(freed, 7, 8 * MIB, stream));
	assert_ok(cuMemFreeAsync(freed, stream));
	assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	assert_true(capture_is_open());
	assert_ok(cuCtxSetCurrent(NULL));
	assert_ok(cuDevicePrimaryCtxReset_v2(0));
	assert_false(capture_is_open() || deferred_free_any());
	assert_ptr_equal(context_whole(part), part);
	assert_ok(cuDevicePrimaryCtxRetain(&context, 0));
	assert_ok(cuCtxSetCurrent(context));
	CUdeviceptr next = core_block(8 * MIB);
	assert_ok(cuMemFree_v2(next));
	assert_int_equal(sim_broken_rules(), 0);
}

TEST(nothing_of_a_destroyed_context_is_counted_any_more)
{
	static char registered[3][4096] __attribute__((aligned(4096)));
	CUcontext second;
	CUdeviceptr address;
	void *pinned, *kept;

	CUcontext first = core_current();
	assert_ok(cuMemHostAlloc(&kept, 8192, 0));
	uint64_t pinned_before = stats_live(PLACE_PINNED), used_before = device_get(0)->budget.used;
	for (unsigned i = 0; i < 3; i++) {
		assert_ok(cuCtxCreate_v2(&second, 0, 0));
		assert_ok(cuMemHostAlloc(&pinned, 8 * MIB, 0));
		assert_ok(cuMemAllocHost_v2(&pinned, MIB));
		assert_ok(cuMemHostRegister_v2(registered[i], 4096, 0));
		assert_ok(cuMemAllocManaged(&address, 3 * MIB, CU_MEM_ATTACH_GLOBAL));
		assert_ok(cuMemAllocAsync(&address, 5 * MIB, NULL));
		core_block(2 * MIB);
		uint64_t frees = stats_get(STAT_frees);
		assert_true(stats_live(PLACE_PINNED) > pinned_before + 9 * MIB);
		assert_ok(cuCtxDestroy_v2(second));
		assert_int_equal(stats_get(STAT_frees), frees + 5); /* all but the pool's */
		assert_int_equal(stats_live(PLACE_PINNED), pinned_before);
		assert_int_equal(stats_live(PLACE_MANAGED) + stats_live(PLACE_DRIVER), 5 * MIB);
		/* What is of a pool outlives the context (cuda.h), in the rows of another one. */
		assert_int_equal(ledger_n_rows(), 2);
		assert_ok(cuMemFreeAsync(address, NULL));
		assert_ok(cuStreamSynchronize(NULL));
		assert_int_equal(stats_live(PLACE_DRIVER), 0);
		assert_int_equal(ledger_n_rows(), 1);
	}
	heap_trim(atomic_load(&device_get(0)->heap), 0, 0);
	assert_true(device_get(0)->budget.used <= used_before + 5 * MIB); /* what the pool may keep */
	assert_ok(cuCtxSetCurrent(first));
	assert_ok(cuMemFreeHost(kept));
	assert_int_equal(stats_live(PLACE_PINNED), 0);
	/* The pool lets go of what it kept; the budget learns of it at the next allocation. */
	assert_ok(cuCtxSynchronize());
	assert_ok(cuMemFree_v2(core_block(2 * MIB)));
}

CORE_START("SIM_MEMORY=256MiB", "SPILLWAY_SET=device.budget=64MiB,host.budget=64MiB,report.summary=no")
