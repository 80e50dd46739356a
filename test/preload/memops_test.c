// SPDX-License-Identifier: Apache-2.0
/*
 * Copies with CU_POINTER_ATTRIBUTE_SYNC_MEMOPS on their memory return when they are done, and hold up nobody else. What
 * must not run yet is held, so that nothing depends on how fast anything is.
 */
#include "test/preload/child.h"
#include "test/test.h"

#include <stdatomic.h>

#define BUDGETS      ((const char *const[]){CHILD_BUDGETS, NULL})
#define PASSES(part) child_passes(BUDGETS, part)

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

PART_TEST(a_copy_with_sync_memops_returns_when_it_is_done, PASSES(part))
{
	for (int i = 0; i < 2; i++) {
		struct copier copier = new_copier();
		unsigned words[1024];

		copier.per_thread = i;
		sim_hold();
		unsigned long before = waits();
		pthread_t thread = test_thread(copy_it, &copier);
		while (waits() == before && !atomic_load(&copier.returned))
			sched_yield();
		CHECK(!atomic_load(&copier.returned));
		sim_release();
		pthread_join(thread, NULL);
		MUST(copier.result);
		CHECK(sim_peek(copier.to, words, sizeof(words)) && words[0] == 9 && words[1023] == 9);
	}
}

PART_TEST(a_copy_with_sync_memops_leaves_captures_of_others_alone, PASSES(part))
{
	static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
						    CU_STREAM_CAPTURE_MODE_RELAXED};
	struct copier copier = new_copier();
	CUstream stream = child_stream();
	CUdeviceptr target = child_alloc(4096);

	for (int i = 0; i < 4; i++) {
		copier.per_thread = i / 2;
		MUST(cu.cuStreamBeginCapture_v2(stream, modes[i % 2]));
		test_beside(copy_it, &copier);
		MUST(copier.result);
		MUST(cu.cuMemsetD8Async(target, 1, 4096, stream));
		driver_forget_capture(stream);
	}
}

PART_TEST(a_copy_with_sync_memops_waits_for_no_other_stream, PASSES(part))
{
	struct copier copier = new_copier();
	unsigned *word = child_hold(child_stream());

	MUST(cu.cuMemcpyDtoD_v2(copier.to, copier.from, 4096));
	MUST(cuMemcpyDtoD_v2_ptds(copier.to, copier.from, 4096));
	MUST(cu.cuMemsetD32_v2(copier.to, 3, 1024));
	child_release(word);
	MUST(cu.cuCtxSynchronize());
}
