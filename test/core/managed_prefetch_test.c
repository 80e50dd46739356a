// SPDX-License-Identifier: Apache-2.0
/*
 * managed_prefetch_test.c: prefetches of managed memory (backend.c) on allocation, never beyond what is free
 * but for an eighth, never in a capture. The device has 64 MiB.
 */
#include "test/core/home.h"

#define PREFETCHES (sim_calls("cuMemPrefetchAsync") + sim_calls("cuMemPrefetchAsync_ptsz"))

static CUdeviceptr managed(size_t bytes, bool prefetch)
{
	const struct policy_managed settings = {.prefetch = prefetch ? POLICY_PREFETCH_ON_ALLOC : POLICY_PREFETCH_NONE};
	const struct policy_decision decision = {.managed = &settings};

	return home_get(&backend_managed, &(struct backend_request){.bytes = bytes, .decision = &decision});
}

TEST(without_prefetch_it_comes_where_it_is_touched)
{
	CUdeviceptr at = managed(MIB, false);

	assert_ok(cuCtxSynchronize());
	assert_int_equal(sim_managed().resident, 0);
	assert_ok(cuMemFree_v2(at));
}

TEST(on_allocation_it_is_brought)
{
	CUdeviceptr at = managed(8 * MIB + 100, true);

	assert_ok(cuCtxSynchronize());
	unsigned long faults = sim_managed().gpu_faults;
	assert_ok(home_fill(at, 5, 2 * MIB + 25, NULL));
	assert_ok(cuCtxSynchronize());
	assert_int_equal(sim_managed().gpu_faults, faults);
	assert_ok(cuMemFree_v2(at));
}

TEST(of_a_block_that_does_not_fit_the_front_is_brought)
{
	CUdeviceptr at = managed(100 * MIB, true);

	assert_ok(cuCtxSynchronize());
	assert_int_equal(sim_managed().resident, 56 * MIB);
	assert_int_equal(sim_managed_where(at), 2);
	assert_int_equal(sim_managed_where(at + 56 * MIB), 0);
	/* There is no more room, and nothing is driven out. */
	unsigned long prefetches = PREFETCHES;
	CUdeviceptr more = managed(MIB, true);
	assert_ok(cuCtxSynchronize());
	assert_int_equal(PREFETCHES, prefetches);
	assert_int_equal(sim_managed().resident, 56 * MIB);
	assert_ok(cuMemFree_v2(at));
	assert_ok(cuMemFree_v2(more));
}

TEST(a_prefetch_that_fails_is_not_missed)
{
	sim_fail("cuMemPrefetchAsync_ptsz", 1, CUDA_ERROR_UNKNOWN);
	CUdeviceptr at = managed(40 * MIB, true);
	assert_false(sim_fail_pending());
	assert_ok(cuMemFree_v2(at));
	at = managed(40 * MIB, true);
	assert_ok(cuCtxSynchronize());
	assert_int_equal(sim_managed().resident, 40 * MIB);
	assert_ok(cuMemFree_v2(at));
}

TEST(in_a_capture_nothing_is_brought)
{
	CUdeviceptr at = managed(MIB, false), more;
	CUstream stream = home_stream();
	unsigned long prefetches = PREFETCHES;
	CUgraph graph;

	assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	assert_ok(home_fill(at, 2, 10, stream));
	more = managed(MIB, true);
	assert_int_equal(PREFETCHES, prefetches);
	assert_ok(cuStreamEndCapture(stream, &graph));
	CUgraphExec exec = core_instance(graph);
	assert_ok(cuGraphLaunch(exec, stream));
	assert_ok(cuStreamSynchronize(stream));
	assert_true(home_holds(at, 2, 10));
	assert_ok(cuGraphExecDestroy(exec));
	assert_ok(cuGraphDestroy(graph));
	assert_ok(cuMemFree_v2(at));
	assert_ok(cuMemFree_v2(more));
	assert_ok(cuStreamDestroy_v2(stream));
}

EACH_TEST(home_set_up, home_tear_down)

START(home_start())
