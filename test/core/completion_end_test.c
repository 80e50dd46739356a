// SPDX-License-Identifier: Apache-2.0
/*
 * completion_end_test.c: streams and contexts that the program ends while another of its threads records an event for
 * us, and does not come to it, or is held up in the driver. The entry points are ours; what is below them is the
 * simulated driver, which takes the use of a handle that has ended for a broken rule.
 */
#include "test/core/completion_help.h"

#include "shim/submit/completion.h"

/* What a thread that should wait has, so that a wrong one is seen; a right one is right whatever it does with it. */
#define MOMENT_US 100000

static CUcontext primary;

/* What waits by naps counts them: here they may take no time. */
static atomic_bool naps_are_short;

int __real_nanosleep(const struct timespec *time, struct timespec *ret_left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *ret_left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *ret_left)
{
	return atomic_load(&naps_are_short) ? sched_yield() : __real_nanosleep(time, ret_left);
}

struct recorder {
	CUcontext context;
	CUstream stream;
	pthread_t thread;
};

static void *submit_and_record(void *argument)
{
	const struct recorder *recorder = argument;

	CHECK(cuCtxSetCurrent(recorder->context) == CUDA_SUCCESS);
	completion_submitted(recorder->stream, false, &(struct completion_what){1, 2}, 0, true);
	return NULL;
}

/* A thread that stands still just before the driver records its event. */
static void begin_to_record(struct recorder *recorder)
{
	sim_stall_at("cuEventRecord", 1);
	CHECK(!pthread_create(&recorder->thread, NULL, submit_and_record, recorder));
	UNTIL(sim_stalled());
}

static void end_recording(struct recorder *recorder)
{
	sim_go_on();
	CHECK(!pthread_join(recorder->thread, NULL));
}

TEST(a_stream_ends_when_its_recorder_is_through)
{
	struct recorder recorder = {.context = primary, .stream = stream_new()};
	unsigned long before = sim_calls("cuStreamDestroy_v2") + sim_calls("cuStreamDestroy");

	sim_switch("REUSE", 1);
	begin_to_record(&recorder);
	assert_ok(cuStreamDestroy_v2(recorder.stream));
	/* Its handle is nobody else's as long as it may be used. */
	CUstream other = stream_new();
	assert_ptr_not_equal(other, recorder.stream);
	end_recording(&recorder);
	sim_switch("REUSE", 0);
	assert_int_equal(sim_broken_rules(), 0);
	/* It did end, once. */
	assert_int_equal(sim_calls("cuStreamDestroy_v2") + sim_calls("cuStreamDestroy"), before + 1);
	sim_switch("DEAD_HANDLES", 1);
	assert_int_equal(cuStreamQuery(recorder.stream), CUDA_ERROR_INVALID_HANDLE);
	sim_switch("DEAD_HANDLES", 0);
}

/* By the next stream the row may be used again. */
TEST(the_row_of_a_stream_that_ended_so_serves_another_one)
{
	struct recorder recorder = {.context = primary, .stream = stream_new()};
	unsigned *word = word_new();

	begin_to_record(&recorder);
	assert_ok(cuStreamDestroy_v2(recorder.stream));
	end_recording(&recorder);
	assert_true(becomes(all_is_done));
	for (unsigned i = 0; i < 2 * COMPLETION_STREAMS; i++) {
		CUstream stream = stream_new();

		stream_work(stream, word);
		completion_submitted(stream, false, &(struct completion_what){1, 2}, 0, true);
		assert_ok(cuStreamSynchronize(stream));
		assert_ok(cuStreamDestroy_v2(stream));
		done_ask();
	}
}

static void *destroy_context(void *context)
{
	return (void *)(uintptr_t)cuCtxDestroy_v2(context);
}

/* Made current nowhere. */
static CUcontext other_context(CUstream *ret_stream)
{
	CUcontext popped;
	CUcontext context = core_new_context();

	*ret_stream = stream_new();
	CHECK(cuCtxPopCurrent_v2(&popped) == CUDA_SUCCESS);
	return context;
}

TEST(a_context_ends_when_its_recorder_is_through)
{
	struct recorder recorder;
	unsigned long before = sim_calls("cuCtxDestroy_v2");
	void *result;

	recorder.context = other_context(&recorder.stream);
	begin_to_record(&recorder);
	pthread_t thread = test_thread(destroy_context, recorder.context);
	usleep(MOMENT_US);
	assert_int_equal(sim_calls("cuCtxDestroy_v2"), before);
	end_recording(&recorder);
	pthread_join(thread, &result);
	assert_int_equal((uintptr_t)result, CUDA_SUCCESS);
	assert_int_equal(sim_calls("cuCtxDestroy_v2"), before + 1);
}

/* The stream first, by which the recorder inherits it; then the context, whose end is its end. */
TEST(a_context_ends_when_the_streams_that_its_recorders_have_left_are_gone)
{
	struct recorder recorder;
	void *result;

	recorder.context = other_context(&recorder.stream);
	begin_to_record(&recorder);
	assert_ok(cuCtxPushCurrent_v2(recorder.context));
	assert_ok(cuStreamDestroy_v2(recorder.stream));
	assert_ok(cuCtxPopCurrent_v2(&(CUcontext){NULL}));
	pthread_t thread = test_thread(destroy_context, recorder.context);
	usleep(MOMENT_US);
	end_recording(&recorder);
	pthread_join(thread, &result);
	assert_int_equal((uintptr_t)result, CUDA_SUCCESS);
}

/* The record never comes back, as far as anybody can tell: the program is told that the context has not ended. */
TEST(a_context_whose_recorder_does_not_come_back_does_not_end)
{
	unsigned long before = sim_calls("cuCtxDestroy_v2");
	struct recorder recorder;

	recorder.context = other_context(&recorder.stream);
	begin_to_record(&recorder);
	atomic_store(&naps_are_short, true);
	assert_int_equal(cuCtxDestroy_v2(recorder.context), CUDA_ERROR_NOT_READY);
	atomic_store(&naps_are_short, false);
	assert_int_equal(sim_calls("cuCtxDestroy_v2"), before);
	end_recording(&recorder);
	/* It is as good as before, and ends when it can. */
	assert_ok(cuCtxPushCurrent_v2(recorder.context));
	unsigned *word = word_new();
	stream_work(recorder.stream, word);
	completion_submitted(recorder.stream, false, &(struct completion_what){1, 2}, 0, true);
	assert_true(becomes(all_is_done));
	assert_ok(cuCtxPopCurrent_v2(&(CUcontext){NULL}));
	assert_ok(cuCtxDestroy_v2(recorder.context));
	assert_int_equal(sim_calls("cuCtxDestroy_v2"), before + 1);
}

static void *ask_whether_idle(void *ret_answer)
{
	struct context_idle idle;

	CHECK(cuCtxSetCurrent(primary) == CUDA_SUCCESS);
	*(bool *)ret_answer = context_idle_ask(CONTEXT_ALL_DEVICES, &idle);
	context_idle_forget(&idle);
	return NULL;
}

/* Who asks whether a context is idle is in it meanwhile. */
TEST(a_context_ends_when_those_who_ask_it_are_through)
{
	unsigned long before = sim_calls("cuCtxDestroy_v2");
	CUstream stream;
	void *result;
	bool answer;
	CUcontext context = other_context(&stream);

	sim_stall_at("cuCtxRecordEvent", 2);
	pthread_t asking = test_thread(ask_whether_idle, &answer);
	UNTIL(sim_stalled());
	pthread_t ending = test_thread(destroy_context, context);
	/* More than the second for which it once waited. */
	usleep(1500000);
	assert_int_equal(sim_calls("cuCtxDestroy_v2"), before);
	sim_go_on();
	pthread_join(asking, NULL);
	pthread_join(ending, &result);
	assert_int_equal((uintptr_t)result, CUDA_SUCCESS);
}

/* What it ran may go on: the driver does not promise otherwise. */
TEST(the_work_of_a_green_context_is_in_flight_after_its_end)
{
	unsigned *word = word_new();
	CUgreenCtx green;
	CUcontext part;

	assert_ok(cuGreenCtxCreate(&green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	assert_ok(cuCtxFromGreenCtx(&part, green));
	assert_ok(cuCtxSetCurrent(part));
	CUstream stream = stream_new();
	stream_hold(stream, word);
	uint64_t number = completion_submitted(stream, false, &(struct completion_what){1, 2}, 0, true);
	assert_ok(cuStreamDestroy_v2(stream));
	assert_ok(cuCtxSetCurrent(primary));
	assert_ok(cuGreenCtxDestroy(green));
	for (int i = 0; i < 10; i++, usleep(1000))
		assert_true(done_ask() < number);
	word_release(word);
}

static CUresult make_gl(CUcontext *ret_context)
{
	return cuGLCtxCreate(ret_context, 0, 0);
}

static CUresult make_gl_v2(CUcontext *ret_context)
{
	return cuGLCtxCreate_v2(ret_context, 0, 0);
}

static CUresult make_vdpau(CUcontext *ret_context)
{
	return cuVDPAUCtxCreate(ret_context, 0, 0, 0, NULL);
}

static CUresult make_vdpau_v2(CUcontext *ret_context)
{
	return cuVDPAUCtxCreate_v2(ret_context, 0, 0, 0, NULL);
}

/* Nothing was submitted there that the library would have counted. */
TEST(a_context_for_graphics_is_known_when_it_is_made)
{
	static CUresult (*const makers[])(CUcontext *) = {make_gl, make_gl_v2, make_vdpau, make_vdpau_v2};

	for (int i = 0; i < 4; i++) {
		unsigned *word = word_new();
		CUcontext made;

		assert_ok(makers[i](&made));
		CUstream held = stream_new();
		stream_hold(held, word);
		assert_ok(cuCtxSetCurrent(primary));
		for (int turn = 0; turn < 10; turn++, usleep(1000))
			assert_int_equal(idleness(), CONTEXT_BUSY);
		word_release(word);
		assert_true(becomes(all_is_idle));
		assert_ok(cuCtxDestroy_v2(made));
	}
}

/* Their events have ended with it, and are not asked any more. */
TEST(a_reset_ends_green_contexts_too)
{
	unsigned *word = word_new();
	CUgreenCtx green;
	CUcontext part;

	assert_ok(cuGreenCtxCreate(&green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	assert_ok(cuCtxFromGreenCtx(&part, green));
	assert_ok(cuCtxSetCurrent(part));
	CUstream stream = stream_new();
	for (int i = 0; i < 100; i++) {
		stream_work(stream, word);
		completion_submitted(stream, false, &(struct completion_what){1, 2}, 0, true);
	}
	assert_ok(cuCtxSetCurrent(primary));
	assert_ok(cuDevicePrimaryCtxReset_v2(0));
	assert_true(becomes(all_is_done));
	assert_int_equal(sim_broken_rules(), 0);
	assert_int_equal(cuGreenCtxDestroy(green), CUDA_ERROR_INVALID_CONTEXT);
}

EACH_TEST(NULL, completion_check)

BEFORE_ALL
{
	core_start((const char *const[]){"SPILLWAY_SET=report.summary=no", NULL});
	primary = core_context();
	/* Brought to life: contexts end as in a program that has memory. */
	core_alloc(4096);
}
