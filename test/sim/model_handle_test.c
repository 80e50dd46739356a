// SPDX-License-Identifier: Apache-2.0
/*
 * model_handle_test.c: what the simulated GPU promises (model.h) about handles of what has ended: using one breaks a
 * rule, and by order it is given out anew. And calls that stand still.
 */
#include "model.h"

TEST(a_destroyed_stream_is_not_used)
{
	CUstream stream = model_stream(), working = model_stream();
	unsigned long before = sim_broken_rules();
	CUevent event = model_event(CU_EVENT_DISABLE_TIMING);

	ok(cuStreamDestroy(stream));
	is(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, stream));
	assert_int_equal(sim_broken_rules(), before + 1);
	is(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream));
	assert_int_equal(sim_broken_rules(), before + 2);
	is(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy(stream));
	assert_int_equal(sim_broken_rules(), before + 3);
	/* Nor one whose work goes on. */
	ok(model_launch_gate(working));
	ok(cuStreamDestroy(working));
	is(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, working));
	assert_int_equal(sim_broken_rules(), before + 4);
	/* A test may say that it does so itself. */
	sim_switch("DEAD_HANDLES", 1);
	is(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, working));
	sim_switch("DEAD_HANDLES", 0);
	/* What never was a stream is a mistake of another kind. */
	is(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery((CUstream)&working));
	assert_int_equal(sim_broken_rules(), before + 4);
}

TEST(a_destroyed_event_is_not_used)
{
	CUevent event = model_event(CU_EVENT_DISABLE_TIMING), again;
	unsigned long before = sim_broken_rules();

	ok(cuEventDestroy(event));
	is(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
	is(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, NULL));
	is(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy(event));
	assert_int_equal(sim_broken_rules(), before + 3);
	again = model_event(CU_EVENT_DISABLE_TIMING);
	assert_ptr_equal(again, event);
	ok(cuEventQuery(event));
	ok(cuEventDestroy(again));
	assert_int_equal(sim_broken_rules(), before + 3);
}

TEST(handles_are_given_out_anew_by_order_alone)
{
	CUstream stream = model_stream();

	ok(cuStreamDestroy(stream));
	CUstream other = model_stream();
	assert_ptr_not_equal(other, stream);
	ok(cuStreamDestroy(other));
	sim_switch("REUSE", 1);
	assert_ptr_equal(model_stream(), other);
	assert_ptr_equal(model_stream(), stream);
	sim_switch("REUSE", 0);
}

/*
 * An event says what it said of the stream that had the handle before; a record on the handle is one of the new stream.
 */
TEST(events_know_the_streams_of_one_handle_apart)
{
	CUevent before = model_event(CU_EVENT_DISABLE_TIMING), after = model_event(CU_EVENT_DISABLE_TIMING);
	CUstream stream = model_stream(), again;

	sim_switch("REUSE", 1);
	CUdeviceptr at = model_alloc(4096);
	ok(model_launch_fill(at, 1, 1024, stream));
	ok(cuEventRecord(before, stream));
	ok(cuStreamSynchronize(stream));
	ok(cuStreamDestroy(stream));
	/* It is the driver's until its thread has ended. */
	UNTIL((again = model_stream()) == stream);
	ok(model_launch_gate(again));
	ok(cuEventRecord(after, again));
	ok(cuEventQuery(before));
	is(CUDA_ERROR_NOT_READY, cuEventQuery(after));
	is(CUDA_ERROR_NOT_READY, cuStreamQuery(again));
	atomic_store(&model_gate, true);
	ok(cuStreamSynchronize(again));
	ok(cuEventQuery(after));
	sim_switch("REUSE", 0);
}

TEST(a_contexts_handle_is_given_out_anew)
{
	CUcontext context, again, popped;
	unsigned version;

	ok(cuCtxCreate(&context, NULL, 0, 0));
	CUevent event = model_event(CU_EVENT_DISABLE_TIMING);
	ok(cuCtxDestroy(context));
	sim_switch("REUSE", 1);
	ok(cuCtxCreate(&again, NULL, 0, 0));
	assert_ptr_equal(again, context);
	ok(cuCtxGetApiVersion(context, &version));
	/* What was of the one before is not of this one. */
	unsigned long before = sim_broken_rules();
	is(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuEventQuery(event));
	assert_int_equal(sim_broken_rules(), before + 1);
	sim_switch("REUSE", 0);
	ok(cuCtxPopCurrent(&popped));
	assert_ptr_equal(popped, context);
	ok(cuCtxDestroy(again));
}

/* ---- standing still ---- */

static void *record_it(void *argument)
{
	void **both = argument;

	if (cuCtxSetCurrent(model_context))
		return NULL;
	return cuEventRecord(both[0], both[1]) == CUDA_SUCCESS ? argument : NULL;
}

TEST(a_call_stands_still_until_it_is_told_to_go_on)
{
	CUevent event = model_event(CU_EVENT_DISABLE_TIMING);
	void *both[] = {event, model_stream()}, *result;

	assert_int_equal(sim_stalled(), 0);
	sim_stall_at("cuEventRecord", 2);
	ok(cuEventRecord(event, both[1]));
	pthread_t thread = test_thread(record_it, both);
	UNTIL(sim_stalled());
	/* Others go on meanwhile, and what they change is seen: it has done nothing yet. */
	ok(cuEventRecord(event, both[1]));
	ok(cuStreamDestroy(both[1]));
	sim_go_on();
	pthread_join(thread, &result);
	assert_null(result);
	assert_int_equal(sim_stalled(), 0);
}

EACH_TEST(model_set_up, model_tear_down)
