// SPDX-License-Identifier: Apache-2.0
/*
 * copy_way_test.c: what looking for the way of a copy costs in a process that uses several GPUs. Linked with
 * --wrap=pthread_mutex_lock, so that locks of the library can be counted.
 */
#include "test/core/core.h"

#include "shim/context/context.h"
#include "shim/entry/entry.h"
#include "shim/submit/submit_body.h"

static __thread unsigned n_locks;

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
	n_locks++;
	return __real_pthread_mutex_lock(mutex);
}

static CUcontext contexts[2];
static CUdeviceptr block;

static enum way way_of_a_copy(void)
{
	struct job job = {.box = {.dstMemoryType = CU_MEMORYTYPE_DEVICE,
				  .dstDevice = block,
				  .srcMemoryType = CU_MEMORYTYPE_HOST,
				  .srcHost = &block,
				  .WidthInBytes = sizeof(block),
				  .Height = 1,
				  .Depth = 1},
			  .linear = true,
			  .sync = true};
	CUcontext away = NULL;
	enum way way = copy_find_way(&job, &away);

	submit_let_go_access();
	return way;
}

TEST(a_copy_within_one_gpu_takes_no_lock)
{
	assert_ok(cuCtxSetCurrent(contexts[0]));
	assert_int_equal(way_of_a_copy(), WAY_AS_IT_IS);
	n_locks = 0;
	assert_int_equal(way_of_a_copy(), WAY_AS_IT_IS);
	assert_int_equal(n_locks, 0);
	/* And one from another GPU, which has no access, is still told from it. */
	assert_ok(cuCtxSetCurrent(contexts[1]));
	assert_int_equal(way_of_a_copy(), WAY_AWAY);
	assert_ok(cuCtxSetCurrent(contexts[0]));
	assert_int_equal(way_of_a_copy(), WAY_AS_IT_IS);
}

/* A handle is given out anew. */
TEST(a_context_that_was_made_again_is_of_its_new_device)
{
	CUcontext context = (CUcontext)(uintptr_t)4096;
	CUdevice device = -1;

	context_known(context, 0);
	assert_true(context_device(context, &device));
	assert_int_equal(device, 0);
	context_ending(context);
	context_ended(context, true);
	context_known(context, 1);
	assert_true(context_device(context, &device));
	assert_int_equal(device, 1);
	/* Even before it is said that the old one has ended. */
	context_ending(context);
	context_known(context, 0);
	context_ended(context, true);
	assert_true(context_device(context, &device));
	assert_int_equal(device, 0);
	context_ending(context);
	context_ended(context, true);
}

BEFORE_ALL
{
	core_start((const char *const[]){"SIM_DEVICES=2", "SIM_PEERS=none", NULL});
	for (int i = 1; i >= 0; i--) {
		assert_ok(cuDevicePrimaryCtxRetain(&contexts[i], i));
		assert_ok(cuCtxSetCurrent(contexts[i]));
	}
	assert_ok(cuMemAlloc_v2(&block, 4 * MIB));
}
