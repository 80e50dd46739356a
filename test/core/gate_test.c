// SPDX-License-Identifier: Apache-2.0
/*
 * gate_test.c: who waits at the gate that one GPU's gap closes, where there are two. Nobody opens it here: whoever
 * waits loses its patience in the end, and opens it.
 */
#include "test/core/core.h"

#include "shim/context/context.h"
#include "shim/mover/mover.h"
#include "shim/submit/submission.h"

enum { N = 2 };

static struct device devices[N] = {{.ordinal = 0}, {.ordinal = 1}};
static CUcontext contexts[N];
static CUstream streams[N];
static struct core_heap own_heap;
static CUdeviceptr block; /* of the first GPU */

/* Is it let in while the gate is being closed for the first GPU? */
static bool is_let_in(uint32_t id, int device, CUdeviceptr names)
{
	assert_ok(cuCtxSetCurrent(contexts[device]));
	gate_drain();
	struct submission *use = submission_open(id);
	assert_non_null(use);
	submission_stream(use, streams[device], false);
	if (names)
		submission_name(use, names, 0);
	struct submission_stripe *stripe = admit(use);
	bool in = atomic_load(&submission_state) & SUBMISSION_DRAINING;
	bool apart = submission_is_quiet(1);
	submission_close(use, stripe);
	assert_true(submission_is_quiet(CONTEXT_ALL_DEVICES));
	gate_open();
	/* Let in it is known to have nothing to do with the first GPU. */
	assert_true(!in || apart);
	return in;
}

TEST(who_has_nothing_to_do_with_the_gpu_is_let_in)
{
	assert_true(is_let_in(HOOK_cuLaunchKernel, 1, 0));
	assert_false(is_let_in(HOOK_cuLaunchKernel, 0, 0));
}

TEST(who_names_its_memory_waits)
{
	assert_false(is_let_in(HOOK_cuLaunchKernel, 1, block));
}

TEST(a_graph_waits)
{
	assert_false(is_let_in(HOOK_cuGraphLaunch, 1, 0));
}

TEST(everybody_waits_at_a_gate_for_all)
{
	gate_for(CONTEXT_ALL_DEVICES);
	assert_false(is_let_in(HOOK_cuLaunchKernel, 1, 0));
	gate_for(1);
	assert_true(is_let_in(HOOK_cuLaunchKernel, 1, 0));
}

BEFORE_ALL
{
	core_start((const char *const[]){"SIM_DEVICES=2", NULL});
	for (int i = N - 1; i >= 0; i--) {
		assert_ok(cuDevicePrimaryCtxRetain(&contexts[i], i));
		context_known(contexts[i], i);
		peer_context_made(i);
		assert_ok(cuCtxSetCurrent(contexts[i]));
		assert_ok(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	}
	peer_heap(devices[0].ordinal);
	core_heap_open(&own_heap, 64 * MIB, 64 * MIB, 0);
	struct engine *engine = core_engine(&own_heap, &devices[0], true);
	assert_true(submission_add_arena(heap_arena(own_heap.heap), &engine->channel));
	arena_mark(heap_arena(own_heap.heap), 0, 4, 1, 0, 0);
	block = arena_address(heap_arena(own_heap.heap), 0);
	submission_set_tracking(true, false);
	gate_for(1);
}
