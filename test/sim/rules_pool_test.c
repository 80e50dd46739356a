// SPDX-License-Identifier: Apache-2.0
/*
 * rules_pool_test.c: the rules about stream-ordered memory (rules.h): what it ends with, and when the memory of a free
 * that has not happened yet is given out again. Each line "rule: ..." is an answer of the driver (rules_found()).
 */
#include "rules_kernel.h"

#define BYTES (32 * MIB)

static struct rules_kernels kernels;
static struct rules_hold *hold;

static int begin(void **state)
{
	hold = rules_hold_new();
	rules_kernels_load(&kernels);
	return 0;
}

GROUP(begin, NULL)

static CUmemoryPool new_pool(size_t max_bytes)
{
	CUmemPoolProps props = form_pool(0, max_bytes);
	CUmemoryPool pool;

	ok(cu.cuMemPoolCreate(&pool, &props));
	return pool;
}

static uint64_t used_of(CUmemoryPool pool)
{
	cuuint64_t bytes = 0;

	ok(cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes));
	return bytes;
}

static CUdeviceptr take(CUmemoryPool pool, size_t bytes, CUstream stream)
{
	CUdeviceptr at;

	ok(cu.cuMemAllocFromPoolAsync(&at, bytes, pool, stream));
	return at;
}

/* ---- what it ends with ---- */

/* What of these is in use now, of `was`? */
static const char *what_stays(uint64_t was, uint64_t used)
{
	return used == was ? "stays" : used ? "stays in part" : "is freed";
}

TEST(the_end_of_a_context_leaves_memory_of_pools)
{
	CUmemoryPool pool = new_pool(0);
	CUcontext context, popped;

	ok(cu.cuCtxCreate(&context, NULL, 0, 0));
	CUstream stream = rules_stream();
	CUdeviceptr at = take(pool, BYTES, stream);
	ok(cu.cuMemsetD8Async(at, 0x5a, BYTES, stream));
	ok(cu.cuStreamSynchronize(stream));
	uint64_t was = used_of(pool);
	ok(cu.cuCtxPopCurrent(&popped));
	ok(cu.cuCtxDestroy(context));
	rules_found("memory of a pool after the end of its stream's context", what_stays(was, used_of(pool)), "stays");
	CUstream later = rules_stream();
	CUdeviceptr more = take(pool, BYTES, later);
	bool again = more == at;
	ok(cu.cuMemsetD8Async(more, 1, BYTES, later));
	ok(cu.cuStreamSynchronize(later));
	rules_found("its address", again ? "IS GIVEN OUT AGAIN" : "is not given out again", "is not given out again");
	if (!again) {
		rules_found("what is in it", rules_count(at, 0x5a5a5a5a) == RULES_WORDS ? "is as it was" : "IS LOST",
			    "is as it was");
		rules_found("cuMemFreeAsync of it in a stream of another context",
			    cu.cuMemFreeAsync(at, later) ? "refused" : "frees it", "frees it");
	}
	ok(cu.cuMemFreeAsync(more, later));
	ok(cu.cuStreamSynchronize(later));
	assert_int_equal(used_of(pool), 0);
	ok(cu.cuStreamDestroy(later));
	ok(cu.cuMemPoolDestroy(pool));
}

/* ---- what has been freed, not yet in the order of its stream ---- */

struct pending {
	CUmemoryPool pool;
	CUstream first, second;
	CUdeviceptr at, again;
	bool follows; /* the second stream waits for an event behind the free */
};

static CUresult take_again(void *argument)
{
	struct pending *pending = argument;

	return cu.cuMemAllocFromPoolAsync(&pending->again, BYTES, pending->pool, pending->second);
}

/* A kernel that is held uses what is freed behind it; another stream allocates as much. */
static const char *take_while_pending(struct pending *pending)
{
	ok(cu.cuStreamCreate(&pending->first, CU_STREAM_NON_BLOCKING));
	ok(cu.cuStreamCreate(&pending->second, CU_STREAM_NON_BLOCKING));
	CUevent freed = rules_event(CU_EVENT_DISABLE_TIMING);
	pending->at = take(pending->pool, BYTES, pending->first);
	ok(cu.cuStreamSynchronize(pending->first));
	rules_hold_start(&kernels, hold, pending->at, 7, pending->first);
	ok(cu.cuMemFreeAsync(pending->at, pending->first));
	ok(cu.cuEventRecord(freed, pending->first));
	if (pending->follows)
		ok(cu.cuStreamWaitEvent(pending->second, freed, 0));
	const char *how = rules_how(rules_context, take_again, pending, hold);
	ok(cu.cuEventDestroy(freed));
	return how;
}

static void end_pending(struct pending *pending)
{
	rules_let_go(hold);
	if (pending->again)
		ok(cu.cuMemFreeAsync(pending->again, pending->second));
	ok(cu.cuStreamSynchronize(pending->first));
	ok(cu.cuStreamSynchronize(pending->second));
	ok(cu.cuStreamDestroy(pending->first));
	ok(cu.cuStreamDestroy(pending->second));
	ok(cu.cuMemPoolDestroy(pending->pool));
}

TEST(memory_whose_free_is_pending_is_reused_behind_an_event)
{
	struct pending pending = {.pool = new_pool(0), .follows = true};

	rules_found("allocating in a stream that waits for the free of as much", take_while_pending(&pending),
		    RULES_RETURNS);
	rules_found("the memory whose free the stream waits for",
		    pending.again == pending.at ? "is reused" : "is not reused", "is reused");
	end_pending(&pending);
}

/* The pool has no more: the second stream is made to wait for the first (REUSE_ALLOW_INTERNAL_DEPENDENCIES). */
TEST(memory_whose_free_is_pending_is_reused_with_a_dependency)
{
	struct pending pending = {.pool = new_pool(BYTES)};
	const char *how = take_while_pending(&pending);
	bool ordered, reused = pending.again == pending.at;

	rules_found("allocating in another stream while all of a pool waits to be freed", how, RULES_RETURNS);
	if (pending.again && !strcmp(how, RULES_RETURNS)) {
		rules_found("the memory whose free is pending", reused ? "is reused" : "is not reused", "is reused");
		ordered = cu.cuStreamQuery(pending.second) == CUDA_ERROR_NOT_READY;
		rules_found("the stream that got it", ordered ? "waits for the free" : "DOES NOT WAIT",
			    reused ? "waits for the free" : "DOES NOT WAIT");
		/* Work that nothing orders behind the allocation is beside the kernel that still writes. */
		ok(cu.cuMemsetD8Async(pending.again, 1, BYTES, pending.second));
		rules_let_go(hold);
		ok(cu.cuStreamSynchronize(pending.second));
		rules_found("what the new owner writes in that stream",
			    rules_count(pending.again, 0x01010101) == RULES_WORDS ? "comes last" : "IS OVERWRITTEN",
			    "comes last");
	}
	end_pending(&pending);
}

/* The last test: what is of the primary context ends here. */
TEST(the_end_of_the_primary_context_and_memory_of_pools)
{
	static const char *const calls[] = {"cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxReset"};
	CUdeviceptr at, of_own;
	CUmemoryPool pool, before, own = new_pool(0);
	char rule[96];
	CUstream stream;
	uint64_t was;

	of_own = take(own, BYTES, NULL);
	ok(cu.cuMemsetD8(of_own, 0x5d, BYTES));
	for (int reset = 0; reset < 2; reset++) {
		ok(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		ok(cu.cuDeviceGetDefaultMemPool(&pool, 0));
		before = pool;
		ok(cu.cuMemAllocAsync(&at, BYTES, stream));
		ok(cu.cuMemsetD8Async(at, 0x5b, BYTES, stream));
		ok(cu.cuStreamSynchronize(stream));
		was = used_of(pool);
		ok(cu.cuCtxSetCurrent(NULL));
		ok(reset ? cu.cuDevicePrimaryCtxReset(0) : cu.cuDevicePrimaryCtxRelease(0));
		ok(cu.cuDevicePrimaryCtxRetain(&rules_context, 0));
		ok(cu.cuCtxSetCurrent(rules_context));
		ok(cu.cuDeviceGetDefaultMemPool(&pool, 0));
		snprintf(rule, sizeof(rule), "the handle of the default pool after %s", calls[reset]);
		rules_found(rule, pool == before ? "is the same" : "IS ANOTHER", "is the same");
		snprintf(rule, sizeof(rule), "memory of the default pool after %s", calls[reset]);
		rules_found(rule, what_stays(was, used_of(pool)), "stays");
		if (used_of(pool) == was) {
			snprintf(rule, sizeof(rule), "what is in it after %s", calls[reset]);
			rules_found(rule, rules_count(at, 0x5b5b5b5b) == RULES_WORDS ? "is as it was" : "IS LOST",
				    "is as it was");
			ok(cu.cuMemFreeAsync(at, NULL));
			ok(cu.cuStreamSynchronize(NULL));
		}
		snprintf(rule, sizeof(rule), "memory of a pool that was made, after %s", calls[reset]);
		rules_found(rule, rules_count(of_own, 0x5d5d5d5d) == RULES_WORDS ? "is as it was" : "IS LOST",
			    "is as it was");
	}
	ok(cu.cuMemFreeAsync(of_own, NULL));
	ok(cu.cuStreamSynchronize(NULL));
	ok(cu.cuMemPoolDestroy(own));
}
