// SPDX-License-Identifier: Apache-2.0
/*
 * What a kernel of one GPU names in the heap of another is in use while that kernel runs: nothing of it moves, however
 * much the other GPU needs the room. Two GPUs with peer access, budgets of 12 MiB, memory moves. The simulated GPU
 * would end a context whose kernel loses a mapping that it names, and count a broken rule.
 */
#include "test/preload/driver.h"
#include "test/test.h"

#include <stdatomic.h>

#define ok(call) assert_int_equal((call), CUDA_SUCCESS)
#define BYTES    (4 * MIB)
enum { OTHERS = 6, ROUNDS = 200 };

static atomic_bool started, gate;

static void slow_body(const struct sim_launch *launch, void **args)
{
	unsigned *at = *(unsigned **)args[0];

	atomic_store(&started, true);
	UNTIL(atomic_load(&gate));
	for (size_t i = 0; i < BYTES / 4; i++)
		at[i] += 5;
}

SIM_MODULE(image, SIM_KERNEL("slow", slow_body, 8));

TEST(what_a_peer_uses_does_not_move)
{
	CUcontext first = driver_start(0), second = driver_start(1);
	CUdeviceptr used, others[OTHERS];
	CUstream stream;
	void *params[] = {&used};

	ok(cu.cuMemAlloc_v2(&used, BYTES));
	ok(driver_fill(NULL, used, 100, BYTES / 4));
	for (int i = 0; i < OTHERS; i++)
		ok(cu.cuMemAlloc_v2(&others[i], BYTES));
	/* Tracking has begun, and the block has been where it is for a while. */
	for (int i = 0; i < ROUNDS; i++)
		ok(driver_fill(NULL, others[i % OTHERS], (unsigned)i, BYTES / 4));
	ok(cu.cuCtxSynchronize());
	ok(driver_fill(NULL, used, 100, BYTES / 4));
	ok(cu.cuCtxSynchronize());
	ok(cu.cuCtxSetCurrent(first));
	ok(cuCtxEnablePeerAccess(second, 0));
	CUfunction slow = driver_function(&image, "slow");
	ok(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(cu.cuLaunchKernel(slow, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
	UNTIL(atomic_load(&started));
	char where[2] = {sim_where(used), sim_where(used + BYTES - 4)};
	ok(cu.cuCtxSetCurrent(second));
	for (int i = 0; i < ROUNDS; i++) {
		ok(driver_fill(NULL, others[i % OTHERS], (unsigned)i, BYTES / 4));
		ok(cu.cuCtxSynchronize());
		assert_int_equal(sim_where(used), where[0]);
		assert_int_equal(sim_where(used + BYTES - 4), where[1]);
	}
	assert_int_equal(sim_broken_rules(), 0);
	atomic_store(&gate, true);
	ok(cu.cuCtxSetCurrent(first));
	ok(cu.cuStreamSynchronize(stream));
	assert_true(driver_holds(used, 105, BYTES / 4));
	/* Now it may go, and is right wherever it is. */
	ok(cu.cuCtxSetCurrent(second));
	for (int i = 0; i < ROUNDS; i++)
		ok(driver_fill(NULL, others[i % OTHERS], (unsigned)i, BYTES / 4));
	ok(cu.cuCtxSynchronize());
	assert_true(driver_holds(used, 105, BYTES / 4));
	assert_int_equal(sim_broken_rules(), 0);
	ok(cu.cuMemFree_v2(used));
	for (int i = 0; i < OTHERS; i++) {
		assert_true(driver_holds(others[i], (unsigned)(ROUNDS - 1 - (ROUNDS - 1 - i) % OTHERS), BYTES / 4));
		ok(cu.cuMemFree_v2(others[i]));
	}
}
