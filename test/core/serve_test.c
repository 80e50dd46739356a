// SPDX-License-Identifier: Apache-2.0
/*
 * serve_test.c: allocating and freeing through our entry points, in this process: what is the driver's, what is counted,
 * and what a free waits for. Which frees and sizes are refused: preload/alloc_test.c.
 */
#include "test/core/core.h"
#include "test/ledger_check.h"

#include "shim/context/context.h"
#include "shim/process/process.h"
#include "shim/serve/deferred_free.h"
#include "shim/serve/serve.h"
#include "shim/stats/stats.h"

static struct sim_live before;

static struct heap *heap_now(void)
{
	return atomic_load(&device_get(0)->heap);
}

BEFORE_EACH
{
	/* The heap comes with the first allocation and stays. */
	assert_ok(cuMemFree_v2(core_block(1)));
	heap_trim(heap_now(), 0, 0);
	before = sim_live();
}

/* No test leaves anything behind: not in the ledger, the budgets, the model; and no rule was broken on the way. */
AFTER_EACH
{
	core_check(NULL);
	struct sim_live after = sim_live();
	assert_memory_equal(&before, &after, sizeof(before));
}

/* ---- addresses that may and may not be freed ---- */

TEST(a_strangers_pointer_goes_to_the_driver)
{
	CUdeviceptr stranger = 0;
	unsigned long calls = sim_calls("cuMemFree_v2");
	uint64_t foreign = stats_get(STAT_foreign_frees);

	assert_ok(REAL(cuMemAlloc_v2)(&stranger, MIB));
	assert_ok(cuMemFree_v2(stranger));
	assert_int_equal(sim_calls("cuMemFree_v2"), calls + 1);
	assert_int_equal(stats_get(STAT_foreign_frees), foreign + 1);
	/* Nonsense, too: the answer is the driver's. */
	assert_int_equal(cuMemFree_v2(0x1234), REAL(cuMemFree_v2)(0x1234));
	assert_int_equal(cuMemFree_v2(0), REAL(cuMemFree_v2)(0));
	assert_int_equal(cuMemFree_v2((CUdeviceptr)&stranger), REAL(cuMemFree_v2)((CUdeviceptr)&stranger));
}

TEST(managed_memory_is_counted_and_freed_by_the_driver)
{
	CUdeviceptr managed;

	assert_ok(cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
	assert_int_equal(stats_live(PLACE_MANAGED), MIB);
	assert_int_equal(cuMemFree_v2(managed + 1), REAL(cuMemFree_v2)(managed + 1));
	assert_ok(cuMemFree_v2(managed));
	assert_int_equal(stats_live(PLACE_MANAGED), 0);
	assert_int_equal(cuMemFree_v2(managed), REAL(cuMemFree_v2)(managed));
}

/* A pool is charged with what it has reserved, whether the program uses that or not. */
TEST(pools_take_room_from_the_heap)
{
	CUdeviceptr async;
	CUmemoryPool pool;
	cuuint64_t reserved = 0;
	CUstream stream = core_stream();

	assert_ok(cuMemAllocAsync(&async, 3 * MIB, stream));
	assert_int_equal(stats_live(PLACE_DRIVER), 3 * MIB);
	CUdeviceptr ours = core_block(2 * MIB);
	assert_ok(cuDeviceGetDefaultMemPool(&pool, 0));
	assert_ok(REAL(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
	assert_true(reserved >= 3 * MIB);
	assert_int_equal(device_get(0)->budget.used, reserved + 2 * MIB);
	assert_ok(cuMemFree_v2(ours));
	assert_ok(cuMemFreeAsync(async, stream));
	assert_int_equal(stats_live(PLACE_DRIVER), 0);
	assert_ok(cuStreamSynchronize(stream));
	assert_ok(cuStreamDestroy_v2(stream));
	assert_ok(REAL(cuMemPoolTrimTo)(pool, 0));
	pool_refresh(device_get(0), false);
}

TEST(serve_find_knows_blocks_by_any_address_in_them)
{
	CUdeviceptr large = core_block(5 * MIB), small = core_block(700);
	struct ledger_row row = {.bytes = 1};

	assert_true(serve_find(large + 5 * MIB - 1, &row));
	assert_true(row.key == large && row.bytes == 5 * MIB && row.context == core_current());
	assert_true(serve_find(small + 699, &row));
	assert_int_equal(row.key, small);
	/* Mapped, but past what was asked for. */
	row.bytes = 1;
	assert_false(serve_find(large + 5 * MIB, &row));
	assert_false(serve_find(small + 700, &row));
	assert_false(serve_find(4096, &row));
	assert_int_equal(row.bytes, 1);
	assert_ok(cuMemFree_v2(large));
	assert_ok(cuMemFree_v2(small));
	assert_false(serve_find(large, &row) || serve_find(small, &row));
}

/* ---- over the budget ---- */

TEST(over_the_budget_blocks_spill_and_are_counted)
{
	uint64_t spilled = stats_get(STAT_spilled_bytes), refused = stats_get(STAT_refused);
	CUdeviceptr first = core_block(64 * MIB), second = core_block(32 * MIB), third;

	assert_int_equal(core_pages_at(first, 64 * MIB, 'D'), 32);
	assert_int_equal(core_pages_at(second, 32 * MIB, 'H'), 16);
	assert_int_equal(stats_get(STAT_spilled_bytes), spilled + 32 * MIB);
	assert_int_equal(stats_live(PLACE_HOST), 32 * MIB);
	assert_int_equal(cuMemAlloc_v2(&third, 64 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(stats_get(STAT_refused), refused + 1);
	core_fill(second, 32 * MIB, 4);
	assert_true(core_is_filled(second, 32 * MIB, 4));
	assert_ok(cuMemFree_v2(first));
	assert_ok(cuMemFree_v2(second));
	assert_int_equal(stats_live(PLACE_HOST) + stats_live(PLACE_DEVICE), 0);
}

TEST(memory_whose_stream_has_passed_is_used_before_anything_spills)
{
	CUstream stream = core_stream();
	CUdeviceptr first = core_block(64 * MIB);

	assert_ok(cuMemsetD8Async(first, 1, 64 * MIB, stream));
	assert_ok(cuMemFreeAsync(first, stream));
	assert_ok(cuStreamSynchronize(stream));
	CUdeviceptr second = core_block(60 * MIB);
	assert_int_equal(core_pages_at(second, 60 * MIB, 'D'), 30);
	assert_ok(cuMemFree_v2(second));
}

/* ---- contexts ---- */

/* In another thread: free, then say so. */
struct freeing {
	CUdeviceptr address;
	CUcontext current;
	atomic_bool done;
	CUresult result;
};

static void *free_it(void *argument)
{
	struct freeing *freeing = argument;

	CHECK(cuCtxSetCurrent(freeing->current) == CUDA_SUCCESS);
	freeing->result = cuMemFree_v2(freeing->address);
	atomic_store(&freeing->done, true);
	return NULL;
}

/* Work on address is held in context's stream; the free in another thread, whose context is current, must wait. */
static void free_waits(CUdeviceptr address, size_t bytes, CUstream stream, CUcontext current)
{
	struct freeing freeing = {.address = address, .current = current};
	unsigned long waits = sim_calls("cuCtxSynchronize");

	sim_hold();
	assert_ok(cuMemsetD8Async(address, 7, bytes, stream));
	pthread_t thread = test_thread(free_it, &freeing);
	/* It must come to a wait for the context; if it never does, the test's time limit tells. */
	UNTIL(sim_calls("cuCtxSynchronize") != waits);
	assert_false(atomic_load(&freeing.done));
	assert_true(sim_where(address) == 'D');
	sim_release();
	pthread_join(thread, NULL);
	assert_ok(freeing.result);
}

TEST(a_free_waits_for_work_submitted_before)
{
	CUstream stream = core_stream();

	free_waits(core_block(8 * MIB), 8 * MIB, stream, core_current());
	free_waits(core_block(4096), 4096, stream, core_current());
}

TEST(a_free_waits_for_the_blocks_own_context_not_the_current_one)
{
	CUcontext first = core_current(), other = core_new_context();
	CUstream stream = core_stream();

	free_waits(core_block(8 * MIB), 8 * MIB, stream, first);
	assert_ok(cuCtxDestroy_v2(other));
	assert_ok(cuCtxSetCurrent(first));
}

CORE_START("SIM_MEMORY=256MiB", "SPILLWAY_SET=device.budget=64MiB,host.budget=64MiB,report.summary=no")
