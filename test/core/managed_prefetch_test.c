/*
 * managed_prefetch_test.c: prefetches of managed memory (managed_prefetch.h): on allocation and before launches, never beyond the
 * headroom, never in a capture. The device has 64 MiB.
 */
#include "test/core/home.h"

#include "shim/submit/submission.h"

#define PREFETCHES (sim_calls("cuMemPrefetchAsync") + sim_calls("cuMemPrefetchAsync_ptsz"))

static CUdeviceptr managed(size_t bytes, enum backend_prefetch prefetch, uint64_t headroom)
{
	struct backend_managed_settings settings = {.device = -1, .prefetch = prefetch, .headroom = headroom};

	return home_get(&backend_managed, &(struct backend_request){.bytes = bytes, .managed = &settings});
}

static void without_prefetch_it_comes_where_it_is_touched(void **state)
{
	CUdeviceptr at = managed(MIB, BACKEND_PREFETCH_NONE, 0);

	(void)state;
	assert_ok(cuCtxSynchronize());
	assert_int_equal(sim_managed().resident, 0);
	assert_ok(cuMemFree_v2(at));
}

static void on_allocation_it_is_brought(void **state)
{
	CUdeviceptr at = managed(8 * MIB + 100, BACKEND_PREFETCH_ON_ALLOC, 0);

	(void)state;
	assert_ok(cuCtxSynchronize());
	unsigned long faults = sim_managed().gpu_faults;
	assert_ok(home_fill(at, 5, 2 * MIB + 25, NULL));
	assert_ok(cuCtxSynchronize());
	assert_int_equal(sim_managed().gpu_faults, faults);
	assert_ok(cuMemFree_v2(at));
}

static void of_a_block_that_does_not_fit_the_front_is_brought(void **state)
{
	CUdeviceptr at = managed(100 * MIB, BACKEND_PREFETCH_ON_ALLOC, 40 * MIB);

	(void)state;
	assert_ok(cuCtxSynchronize());
	assert_int_equal(sim_managed().resident, 24 * MIB);
	assert_int_equal(sim_managed_where(at), 2);
	assert_int_equal(sim_managed_where(at + 24 * MIB), 0);
	/* There is no more room, and nothing is driven out. */
	unsigned long prefetches = PREFETCHES;
	CUdeviceptr more = managed(MIB, BACKEND_PREFETCH_ON_ALLOC, 40 * MIB);
	assert_ok(cuCtxSynchronize());
	assert_int_equal(PREFETCHES, prefetches);
	assert_int_equal(sim_managed().resident, 24 * MIB);
	assert_ok(cuMemFree_v2(at));
	assert_ok(cuMemFree_v2(more));
}

/* What was promised and has not come yet is not free. */
static void many_at_once_leave_the_headroom_too(void **state)
{
	CUdeviceptr at[6];

	(void)state;
	sim_hold();
	for (unsigned i = 0; i < 6; i++)
		at[i] = managed(7 * MIB, BACKEND_PREFETCH_ON_ALLOC, 40 * MIB);
	sim_release();
	assert_ok(cuCtxSynchronize());
	assert_int_equal(sim_managed().resident, 24 * MIB);
	/* The promises are over: what the first three give back can be had again. */
	for (unsigned i = 0; i < 6; i++)
		assert_ok(cuMemFree_v2(at[i]));
	at[0] = managed(24 * MIB, BACKEND_PREFETCH_ON_ALLOC, 40 * MIB);
	assert_ok(cuCtxSynchronize());
	assert_int_equal(sim_managed().resident, 24 * MIB);
	assert_ok(cuMemFree_v2(at[0]));
}

static void a_prefetch_that_fails_is_not_missed(void **state)
{
	CUdeviceptr at;

	(void)state;
	sim_fail("cuMemPrefetchAsync_ptsz", 1, CUDA_ERROR_UNKNOWN);
	at = managed(40 * MIB, BACKEND_PREFETCH_ON_ALLOC, 0);
	assert_false(sim_fail_pending());
	assert_ok(cuMemFree_v2(at));
	/* And its promise is not kept for ever. */
	at = managed(40 * MIB, BACKEND_PREFETCH_ON_ALLOC, 0);
	assert_ok(cuCtxSynchronize());
	assert_int_equal(sim_managed().resident, 40 * MIB);
	assert_ok(cuMemFree_v2(at));
}

/* ---- before launches ---- */

static void a_launch_brings_what_it_names_on_its_stream(void **state)
{
	CUdeviceptr at = managed(8 * MIB, BACKEND_PREFETCH_BEFORE_LAUNCH, 0);
	CUstream stream = home_stream();
	unsigned long faults = sim_managed().gpu_faults, prefetches = PREFETCHES;

	(void)state;
	sim_hold();
	assert_ok(home_fill(at + 4 * MIB, 9, MIB, stream)); /* named in its middle, brought whole */
	assert_int_equal(PREFETCHES, prefetches + 1);
	assert_int_equal(sim_managed().resident, 0);
	sim_release();
	assert_ok(cuStreamSynchronize(stream));
	assert_int_equal(sim_managed().resident, 8 * MIB);
	assert_int_equal(sim_managed().gpu_faults, faults);
	assert_true(home_holds(at + 4 * MIB, 9, MIB));
	assert_ok(cuMemFree_v2(at));
	assert_ok(cuStreamDestroy_v2(stream));
}

/* The same block is asked for again now and then only: the CPU may have touched it meanwhile. */
static void not_every_launch_asks_again(void **state)
{
	CUdeviceptr at = managed(MIB, BACKEND_PREFETCH_BEFORE_LAUNCH, 0);
	unsigned long prefetches = PREFETCHES;

	(void)state;
	for (unsigned i = 0; i < 2 * LEDGER_TURNS; i++)
		assert_ok(home_fill(at, i, 10, NULL));
	assert_ok(cuCtxSynchronize());
	assert_int_equal(PREFETCHES, prefetches + 2);
	assert_ok(cuMemFree_v2(at));
}

static void a_launch_leaves_the_headroom(void **state)
{
	CUdeviceptr at[3];

	(void)state;
	sim_hold();
	for (unsigned i = 0; i < 3; i++) {
		at[i] = managed(16 * MIB, BACKEND_PREFETCH_BEFORE_LAUNCH, 40 * MIB);
		assert_ok(home_fill(at[i], i, 1, NULL));
	}
	sim_release();
	assert_ok(cuCtxSynchronize());
	/* 24 MiB by prefetch, one page by the fault of the third kernel. */
	assert_int_equal(sim_managed().resident, 24 * MIB + 65536);
	for (unsigned i = 0; i < 3; i++)
		assert_ok(cuMemFree_v2(at[i]));
}

static void in_a_capture_nothing_is_brought(void **state)
{
	CUdeviceptr at = managed(MIB, BACKEND_PREFETCH_BEFORE_LAUNCH, 0), more;
	CUstream stream = home_stream();
	unsigned long prefetches = PREFETCHES;
	CUgraphExec exec;
	CUgraph graph;

	(void)state;
	assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	assert_ok(home_fill(at, 2, 10, stream));
	more = managed(MIB, BACKEND_PREFETCH_ON_ALLOC, 0);
	assert_int_equal(PREFETCHES, prefetches);
	assert_ok(cuStreamEndCapture(stream, &graph));
	assert_ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
	assert_ok(cuGraphLaunch(exec, stream));
	assert_ok(cuStreamSynchronize(stream));
	assert_true(home_holds(at, 2, 10));
	assert_ok(cuGraphExecDestroy(exec));
	assert_ok(cuGraphDestroy(graph));
	assert_ok(cuMemFree_v2(at));
	assert_ok(cuMemFree_v2(more));
	assert_ok(cuStreamDestroy_v2(stream));
}

static void copies_and_other_blocks_bring_nothing(void **state)
{
	CUdeviceptr at = managed(MIB, BACKEND_PREFETCH_BEFORE_LAUNCH, 0),
		    plain = managed(MIB, BACKEND_PREFETCH_NONE, 0);
	unsigned long prefetches = PREFETCHES;

	(void)state;
	assert_ok(cuMemcpyDtoD_v2(at, plain, 100));
	assert_ok(home_fill(plain, 1, 10, NULL));
	assert_ok(cuCtxSynchronize());
	assert_int_equal(PREFETCHES, prefetches);
	assert_ok(cuMemFree_v2(at));
	assert_ok(cuMemFree_v2(plain));
}

/* The context takes the events of its promises with it. */
static void promises_of_a_context_end_with_it(void **state)
{
	CUcontext first, second;

	(void)state;
	assert_ok(cuCtxGetCurrent(&first));
	assert_ok(cuCtxCreate_v2(&second, 0, 0));
	managed(30 * MIB, BACKEND_PREFETCH_ON_ALLOC, 0);
	assert_ok(cuCtxDestroy_v2(second));
	assert_ok(cuCtxSetCurrent(first));
	CUdeviceptr at = managed(60 * MIB, BACKEND_PREFETCH_ON_ALLOC, 0);
	assert_ok(cuCtxSynchronize());
	assert_int_equal(sim_managed().resident, 60 * MIB);
	assert_ok(cuMemFree_v2(at));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    HOME_TEST(without_prefetch_it_comes_where_it_is_touched),
	    HOME_TEST(on_allocation_it_is_brought),
	    HOME_TEST(of_a_block_that_does_not_fit_the_front_is_brought),
	    HOME_TEST(many_at_once_leave_the_headroom_too),
	    HOME_TEST(a_prefetch_that_fails_is_not_missed),
	    HOME_TEST(promises_of_a_context_end_with_it),
	    HOME_TEST(a_launch_brings_what_it_names_on_its_stream),
	    HOME_TEST(not_every_launch_asks_again),
	    HOME_TEST(a_launch_leaves_the_headroom),
	    HOME_TEST(in_a_capture_nothing_is_brought),
	    HOME_TEST(copies_and_other_blocks_bring_nothing),
	};

	home_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
