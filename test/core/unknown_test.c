// SPDX-License-Identifier: Apache-2.0
/*
 * unknown_test.c: bodies for functions of the driver that no row knows. The functions are this file's; what they give
 * to streams runs on the simulated GPU.
 */
#include "test/core/completion_help.h"

#include "shim/entry/entry.h"
#include "shim/mover/mover.h"
#include "shim/stats/stats.h"
#include "shim/submit/submission.h"

static struct core_heap own_heap;
static struct device device;
static struct engine *engine;

static void track(bool on)
{
	submission_set_tracking(on, on);
}

BEFORE_ALL
{
	core_driver();
	core_context();
	core_heap_open(&own_heap, 64 * MIB, 64 * MIB, 0);
	engine = mover_new(&device, own_heap.heap, false);
	assert_non_null(engine);
	assert_true(submission_add_arena(heap_arena(own_heap.heap), &engine->channel));
}

/* ---- arguments and results ---- */

struct by_value {
	uint64_t words[3]; /* on the stack */
};

static CUresult many(int a, void *b, unsigned char c, float d, size_t e, double f, long g, int h, struct by_value i,
		     unsigned j, double k, void *l, uint64_t m, short n)
{
	bool good = a == -1 && b == &device && c == 3 && d == 4.5f && e == SIZE_MAX && f == -6.25 && g == -7 &&
		    h == 8 && i.words[0] == 9 && i.words[2] == 11 && j == 12 && k == 13.0 && l == &engine && m == 14 &&
		    n == -15;

	errno = 77;
	return good && !submission_is_quiet(CONTEXT_ALL_DEVICES) ? CUDA_ERROR_NOT_READY : CUDA_ERROR_UNKNOWN;
}

static CUresult none(void)
{
	return submission_is_quiet(CONTEXT_ALL_DEVICES) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

TEST(arguments_and_results_are_the_drivers)
{
	struct by_value value = {{9, 10, 11}};
	CUresult (*body)(int, void *, unsigned char, float, size_t, double, long, int, struct by_value, unsigned,
			 double, void *, uint64_t, short);
	CUresult (*without)(void);
	void *address = unknown_body((void *)many);

	assert_true(address && address != (void *)many && unknown_body((void *)many) == address);
	memcpy(&body, &address, sizeof(body));
	address = unknown_body((void *)none);
	memcpy(&without, &address, sizeof(without));
	for (int on = 0; on < 2; on++) {
		track(on);
		errno = 5;
		assert_int_equal(body(-1, &device, 3, 4.5f, SIZE_MAX, -6.25, -7, 8, value, 12, 13.0, &engine, 14, -15),
				 CUDA_ERROR_NOT_READY);
		assert_int_equal(errno, 77);
		const uint64_t before = stats_submitted();
		assert_int_equal(without(), CUDA_SUCCESS);
		assert_true(submission_is_quiet(CONTEXT_ALL_DEVICES));
		assert_true(stats_submitted() > before); /* it may have filled a block (lifetimes.h) */
	}
	assert_true(becomes(all_is_done));
	track(false);
}

/* ---- what it counts as ---- */

static CUresult give(CUstream stream, unsigned *word)
{
	CHECK(block_state_pins(&engine->channel.everything) == 1);
	stream_work(stream, word);
	return CUDA_SUCCESS;
}

/* The stream waits for no other, and the call does not show it. So many that there are events behind some. */
enum { MANY_CALLS = 100 };

TEST(what_it_submits_is_done_when_everything_is)
{
	CUstream stream = stream_new();
	unsigned *word = word_new();
	CUresult (*body)(CUstream, unsigned *);
	void *address = unknown_body((void *)give);

	memcpy(&body, &address, sizeof(body));
	track(true);
	stream_hold(stream, word);
	uint64_t before = completion_newest();
	for (int i = 0; i < MANY_CALLS; i++)
		assert_int_equal(body(stream, word), CUDA_SUCCESS);
	assert_ok(cuStreamSynchronize(NULL));
	assert_int_equal(block_state_pins(&engine->channel.everything), 0);
	assert_true(completion_newest() > before);
	assert_int_equal(block_state_last(&engine->channel.everything), completion_newest());
	for (int i = 0; i < 10; i++)
		assert_true(done_ask() <= before);
	word_release(word);
	assert_true(becomes(all_is_done));
	track(false);
	stream_end(stream);
	cuMemFreeHost(word);
}

static CUresult make_context(CUcontext *ret_context, CUstream *ret_stream, unsigned *word)
{
	CHECK(cuCtxCreate_v2(ret_context, 0, 0) == CUDA_SUCCESS);
	*ret_stream = stream_new();
	stream_hold(*ret_stream, word);
	return CUDA_SUCCESS;
}

TEST(the_context_that_it_leaves_current_is_known)
{
	CUcontext context = core_context(), made;
	CUresult (*body)(CUcontext *, CUstream *, unsigned *);
	void *address = unknown_body((void *)make_context);

	memcpy(&body, &address, sizeof(body));
	for (int on = 0; on < 2; on++) {
		unsigned *word = word_new();
		CUstream held;

		track(on);
		assert_int_equal(body(&made, &held, word), CUDA_SUCCESS);
		assert_ok(cuCtxSetCurrent(context));
		for (int turn = 0; turn < 10; turn++)
			assert_int_equal(idleness(), CONTEXT_BUSY);
		word_release(word);
		assert_true(becomes(all_is_idle) && becomes(all_is_done));
		assert_true(context_ending(made));
		assert_ok(cuCtxDestroy_v2(made));
		context_ended(made, true);
		cuMemFreeHost(word);
	}
	track(false);
}

static CUresult again(CUresult (*body)(void), int *depth)
{
	return ++*depth < 3 ? body() : CUDA_ERROR_INVALID_VALUE;
}

static CUresult (*inner_body)(CUresult (*)(void), int *);
static int depth;

static CUresult call_back(void)
{
	return inner_body(call_back, &depth);
}

TEST(one_may_call_another)
{
	void *address = unknown_body((void *)again);

	memcpy(&inner_body, &address, sizeof(inner_body));
	track(true);
	assert_int_equal(inner_body(call_back, &depth), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(depth, 3);
	assert_true(submission_is_quiet(CONTEXT_ALL_DEVICES));
	assert_int_equal(block_state_pins(&engine->channel.everything), 0);
	assert_true(becomes(all_is_done));
	track(false);
}

/* Last, as it takes all. */
TEST(each_function_has_a_body_of_its_own_until_all_are_taken)
{
	void *first = unknown_body((void *)many), *before = first;
	char *made_up = (char *)0x1000;
	unsigned n = 0;

	for (void *body; (body = unknown_body(made_up + n)); n++, before = body)
		assert_true(body != before && n < UNKNOWN_MOST);
	assert_true(n >= UNKNOWN_MOST - 5);
	assert_ptr_equal(unknown_body((void *)many), first);
}
