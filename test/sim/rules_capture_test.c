// SPDX-License-Identifier: Apache-2.0
/*
 * rules_capture_test.c: the rules about captures (rules.h): what other threads may do beside one, and what an event
 * that was recorded in one answers.
 */
#include "rules_kernel.h"

enum what { QUERY_EVENT, SYNC_EVENT, QUERY_STREAM, SYNC_STREAM, ALLOC, SYNC_CONTEXT, VMM, RECORD, COPY, PRIORITIES };

struct other {
	enum what what;
	bool relaxed;
	CUstream stream;
	CUevent event;
	CUdeviceptr block;
	void *pinned;
	CUresult result;
};

static CUresult do_vmm(void)
{
	CUmemAllocationProp prop = rules_at_location(CU_MEM_LOCATION_TYPE_DEVICE);
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;
	CUresult result = cu.cuMemAddressReserve(&at, CHUNK, 0, 0, 0) ?: cu.cuMemCreate(&handle, CHUNK, &prop, 0);

	result = result ?: cu.cuMemMap(at, CHUNK, 0, handle, 0);
	result = result ?: rules_set_access(at, CHUNK) ?: cu.cuMemUnmap(at, CHUNK);
	result = result ?: cu.cuMemRelease(handle) ?: cu.cuMemAddressFree(at, CHUNK);
	return result;
}

static void *on_another_thread(void *argument)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	struct other *other = argument;
	CUdeviceptr at;

	cu.cuCtxSetCurrent(rules_context);
	if (other->relaxed)
		cu.cuThreadExchangeStreamCaptureMode(&mode);
	switch (other->what) {
	case QUERY_EVENT:
		other->result = cu.cuEventQuery(other->event);
		break;
	case SYNC_EVENT:
		other->result = cu.cuEventSynchronize(other->event);
		break;
	case QUERY_STREAM:
		other->result = cu.cuStreamQuery(other->stream);
		break;
	case SYNC_STREAM:
		other->result = cu.cuStreamSynchronize(other->stream);
		break;
	case ALLOC:
		other->result = cu.cuMemAlloc(&at, MIB);
		if (!other->result)
			cu.cuMemFree(at);
		break;
	case SYNC_CONTEXT:
		other->result = cu.cuCtxSynchronize();
		break;
	case VMM:
		other->result = do_vmm();
		break;
	case RECORD:
		other->result = cu.cuEventRecord(other->event, other->stream);
		break;
	case COPY:
		other->result = cu.cuMemcpyHtoDAsync(other->block, other->pinned, 4096, other->stream);
		break;
	case PRIORITIES:
		other->result = cu.cuCtxGetStreamPriorityRange(NULL, NULL);
		break;
	}
	return NULL;
}

/* Captures a set in GLOBAL mode while another thread makes one call; did the capture survive? */
static bool survives(enum what what, bool relaxed)
{
	struct other other = {.what = what, .relaxed = relaxed};
	CUgraph graph = NULL;

	ok(cu.cuMemAlloc(&other.block, 4096));
	ok(cu.cuMemHostAlloc(&other.pinned, 4096, 0));
	memset(other.pinned, 0, 4096);
	CUstream stream = rules_stream();
	ok(cu.cuStreamCreate(&other.stream, CU_STREAM_NON_BLOCKING));
	ok(cu.cuEventCreate(&other.event, 0));
	ok(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ok(cu.cuMemsetD8Async(other.block, 1, 4096, stream));
	test_beside(on_another_thread, &other);
	CUresult result = cu.cuStreamEndCapture(stream, &graph);
	if (result) {
		is(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, result);
		assert_null(graph);
	} else {
		ok(other.result);
		ok(cu.cuGraphDestroy(graph));
	}
	ok(cu.cuCtxSynchronize());
	ok(cu.cuEventDestroy(other.event));
	ok(cu.cuStreamDestroy(other.stream));
	ok(cu.cuStreamDestroy(stream));
	ok(cu.cuMemFreeHost(other.pinned));
	ok(cu.cuMemFree(other.block));
	return !result;
}

TEST(unsafe_calls_of_other_threads_invalidate_a_global_capture)
{
	assert_false(survives(QUERY_EVENT, false));
	assert_false(survives(SYNC_EVENT, false));
	assert_false(survives(QUERY_STREAM, false));
	assert_false(survives(SYNC_STREAM, false));
	assert_false(survives(ALLOC, false));
	assert_false(survives(SYNC_CONTEXT, false));
}

TEST(relaxed_threads_are_harmless_but_for_context_synchronize)
{
	assert_true(survives(QUERY_EVENT, true));
	assert_true(survives(SYNC_EVENT, true));
	assert_true(survives(QUERY_STREAM, true));
	assert_true(survives(SYNC_STREAM, true));
	assert_true(survives(ALLOC, true));
	assert_false(survives(SYNC_CONTEXT, true));
}

TEST(mapping_recording_and_copying_never_invalidate)
{
	assert_true(survives(VMM, false));
	assert_true(survives(RECORD, false));
	assert_true(survives(COPY, false));
}

/* What the library calls beside a capture of another thread, and what a program may; the names of those that end it. */
static CUresult stream_pair(void)
{
	CUstream stream;
	CUresult result = cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);

	return result ? result : cu.cuStreamDestroy(stream);
}

static CUresult event_pair(void)
{
	CUevent event;
	CUresult result = cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);

	return result ? result : cu.cuEventDestroy(event);
}

/* In stream order: what is there before a capture, to be freed, and what was allocated beside one. */
static CUdeviceptr ordered, made;

static CUresult async_alloc(void)
{
	return cu.cuMemAllocAsync(&made, MIB, CU_STREAM_PER_THREAD);
}

static CUresult async_free(void)
{
	CUresult result = cu.cuMemFreeAsync(ordered, CU_STREAM_PER_THREAD);

	if (!result)
		ordered = 0;
	return result;
}

static CUresult host_memory(void)
{
	void *at;
	CUresult result = cu.cuMemHostAlloc(&at, 4096, 0);

	return result ? result : cu.cuMemFreeHost(at);
}

static CUresult copy_and_wait(void)
{
	unsigned char byte;
	CUdeviceptr at;
	CUresult result = cu.cuMemAlloc(&at, 4096) ?: cu.cuMemcpyDtoH(&byte, at, 1);

	return result ? result : cu.cuMemFree(at);
}

static CUresult memory_info(void)
{
	size_t free_bytes, total;

	return cu.cuMemGetInfo(&free_bytes, &total);
}

static CUresult default_stream_waits(void)
{
	return cu.cuStreamSynchronize(NULL);
}

static CUresult context_event(void)
{
	CUevent event;
	CUresult result = cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);

	if (result)
		return result;
	result = cu.cuCtxRecordEvent(rules_context, event);
	cu.cuEventDestroy(event);
	return result;
}

struct beside {
	CUresult (*call)(void);
	CUstreamCaptureMode mode;
	CUresult result;
};

static void *call_beside(void *argument)
{
	struct beside *beside = argument;

	cu.cuCtxSetCurrent(rules_context);
	cu.cuThreadExchangeStreamCaptureMode(&beside->mode);
	beside->result = beside->call();
	return NULL;
}

static CUresult from_another_thread(CUresult (*call)(void), CUstreamCaptureMode mode)
{
	struct beside beside = {.call = call, .mode = mode};

	test_beside(call_beside, &beside);
	return beside.result;
}

static const char *beside_a_capture(CUresult (*call)(void), CUstreamCaptureMode mode)
{
	CUgraph graph = NULL;

	made = 0;
	CUdeviceptr at = rules_alloc(4096);
	ok(cu.cuMemAllocAsync(&ordered, MIB, NULL));
	ok(cu.cuStreamSynchronize(NULL));
	CUstream stream = rules_stream();
	ok(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ok(cu.cuMemsetD8Async(at, 1, 4096, stream));
	CUresult answer = from_another_thread(call, mode);
	CUresult ended = cu.cuStreamEndCapture(stream, &graph);
	if (graph)
		ok(cu.cuGraphDestroy(graph));
	ok(cu.cuStreamDestroy(stream));
	ok(cu.cuCtxSynchronize());
	ok(cu.cuMemFree(at));
	if (ordered)
		ok(cu.cuMemFreeAsync(ordered, NULL));
	if (made)
		ok(cu.cuMemFreeAsync(made, NULL));
	return ended ? answer ? "fails and ends the capture" : "ends the capture" : answer ? "fails" : "is harmless";
}

TEST(what_other_threads_do_beside_a_global_capture)
{
	static const struct {
		const char *name, *global;
		CUresult (*call)(void);
		const char *relaxed;
	} calls[] = {
	    {"cuStreamCreate, cuStreamDestroy", "is harmless", stream_pair, "is harmless"},
	    {"cuEventCreate, cuEventDestroy", "is harmless", event_pair, "is harmless"},
	    {"cuMemAllocAsync", "fails and ends the capture", async_alloc, "is harmless"},
	    {"cuMemFreeAsync", "fails and ends the capture", async_free, "is harmless"},
	    {"cuMemHostAlloc, cuMemFreeHost", "fails and ends the capture", host_memory, "is harmless"},
	    {"a copy that waits", "fails and ends the capture", copy_and_wait, "is harmless"},
	    {"cuMemGetInfo", "is harmless", memory_info, "is harmless"},
	    {"cuStreamSynchronize of the default stream", "fails and ends the capture", default_stream_waits,
	     "is harmless"},
	    {"cuCtxRecordEvent", "fails and ends the capture", context_event, "fails and ends the capture"},
	};
	char rule[128];

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		snprintf(rule, sizeof(rule), "%s beside another thread's capture", calls[i].name);
		rules_found(rule, beside_a_capture(calls[i].call, CU_STREAM_CAPTURE_MODE_GLOBAL), calls[i].global);
		snprintf(rule, sizeof(rule), "%s in a relaxed thread beside it", calls[i].name);
		rules_found(rule, beside_a_capture(calls[i].call, CU_STREAM_CAPTURE_MODE_RELAXED), calls[i].relaxed);
	}
}

static CUevent asked;

static CUresult ask_event(void)
{
	return cu.cuEventQuery(asked);
}

/* The capture is invalid, but still open; then ended; and a wait that had begun before it. */
TEST(an_invalid_capture_goes_on_to_forbid_until_it_is_ended)
{
	CUgraph graph;

	ok(cu.cuEventCreate(&asked, CU_EVENT_DISABLE_TIMING));
	CUstream stream = rules_stream();
	ok(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	is(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, from_another_thread(ask_event, CU_STREAM_CAPTURE_MODE_GLOBAL));
	rules_found("an unsafe call of another thread while a capture is invalid and not ended",
		    from_another_thread(ask_event, CU_STREAM_CAPTURE_MODE_GLOBAL) ? "fails" : "succeeds", "fails");
	rules_found("the same in a relaxed thread",
		    from_another_thread(ask_event, CU_STREAM_CAPTURE_MODE_RELAXED) ? "fails" : "succeeds", "succeeds");
	is(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(stream, &graph));
	rules_found("the same call when it has been ended",
		    from_another_thread(ask_event, CU_STREAM_CAPTURE_MODE_GLOBAL) ? "fails" : "succeeds", "succeeds");
	ok(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	rules_found("destroying a stream that captures", cu.cuStreamDestroy(stream) ? "fails" : "succeeds", "succeeds");
	rules_found("the same call when the capturing stream was destroyed",
		    from_another_thread(ask_event, CU_STREAM_CAPTURE_MODE_GLOBAL) ? "fails" : "succeeds", "succeeds");
	ok(cu.cuEventDestroy(asked));
}

struct wait {
	CUstream stream;
	CUresult result;
	int begun;
};

static void *wait_for_stream(void *argument)
{
	struct wait *wait = argument;

	cu.cuCtxSetCurrent(rules_context);
	__atomic_store_n(&wait->begun, 1, __ATOMIC_RELEASE);
	wait->result = cu.cuStreamSynchronize(wait->stream);
	return NULL;
}

/* A thread waits already when another one begins to capture. */
TEST(a_wait_that_began_before_a_capture_is_harmless)
{
	struct rules_hold *hold = rules_hold_new();
	struct rules_kernels kernels;
	struct wait wait = {.begun = 0};
	CUgraph graph;

	rules_kernels_load(&kernels);
	CUdeviceptr at = rules_alloc(CHUNK);
	CUstream stream = rules_stream();
	ok(cu.cuStreamCreate(&wait.stream, CU_STREAM_NON_BLOCKING));
	rules_hold_start(&kernels, hold, at, 1, wait.stream);
	pthread_t thread = test_thread(wait_for_stream, &wait);
	UNTIL(__atomic_load_n(&wait.begun, __ATOMIC_ACQUIRE));
	usleep(50000);
	ok(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ok(cu.cuMemsetD8Async(at + MIB, 1, 4096, stream));
	rules_let_go(hold);
	pthread_join(thread, NULL);
	CUresult ended = cu.cuStreamEndCapture(stream, &graph);
	rules_found("a wait that was under way when another thread began to capture",
		    wait.result ? "fails" : "succeeds", "succeeds");
	rules_found("that capture", ended ? "is invalid" : "is good", "is good");
	if (!ended)
		ok(cu.cuGraphDestroy(graph));
	ok(cu.cuStreamDestroy(stream));
	ok(cu.cuStreamDestroy(wait.stream));
	ok(cu.cuMemFree(at));
	ok(cu.cuMemFreeHost(hold));
}

static const char *answer_of(CUevent event)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	static char text[24];

	ok(cu.cuThreadExchangeStreamCaptureMode(&mode));
	snprintf(text, sizeof(text), "result %d", cu.cuEventQuery(event));
	ok(cu.cuThreadExchangeStreamCaptureMode(&mode));
	return text;
}

static CUresult query_event(CUevent event, CUstream stream)
{
	return cu.cuEventQuery(event);
}

static CUresult wait_for_event(CUevent event, CUstream stream)
{
	return cu.cuEventSynchronize(event);
}

static CUresult query_stream(CUevent event, CUstream stream)
{
	return cu.cuStreamQuery(stream);
}

/* Asks a relaxed thread's question about a relaxed capture that is open. */
static const char *asked_while_open(CUresult (*ask)(CUevent event, CUstream stream))
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUgraph graph = NULL;
	CUstream stream = rules_stream();
	CUevent event = rules_event(CU_EVENT_DISABLE_TIMING);

	ok(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ok(cu.cuEventRecord(event, stream));
	ok(cu.cuThreadExchangeStreamCaptureMode(&mode));
	CUresult answer = ask(event, stream);
	ok(cu.cuThreadExchangeStreamCaptureMode(&mode));
	CUresult ended = cu.cuStreamEndCapture(stream, &graph);
	if (graph)
		ok(cu.cuGraphDestroy(graph));
	ok(cu.cuEventDestroy(event));
	ok(cu.cuStreamDestroy(stream));
	return ended ? answer ? "fails and ends the capture" : "ends the capture" : answer ? "fails" : "is harmless";
}

TEST(asking_for_what_an_open_capture_recorded_ends_it)
{
	rules_found("cuEventQuery of an event of an open capture, relaxed", asked_while_open(query_event),
		    "fails and ends the capture");
	rules_found("cuEventSynchronize of such an event, relaxed", asked_while_open(wait_for_event),
		    "fails and ends the capture");
	rules_found("cuStreamQuery of a stream that captures, relaxed", asked_while_open(query_stream),
		    "fails and ends the capture");
}

/* What completion.c builds on: such an event is taken for one that is not reached, whatever becomes of the capture. */
TEST(an_event_of_a_capture_never_answers_success)
{
	CUgraph graph;
	CUdeviceptr at = rules_alloc(4096);
	CUstream stream = rules_stream();
	CUevent event = rules_event(CU_EVENT_DISABLE_TIMING);

	/* Reached once before. */
	ok(cu.cuEventRecord(event, stream));
	ok(cu.cuStreamSynchronize(stream));
	ok(cu.cuEventQuery(event));
	ok(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ok(cu.cuMemsetD8Async(at, 1, 4096, stream));
	ok(cu.cuEventRecord(event, stream));
	ok(cu.cuStreamEndCapture(stream, &graph));
	rules_found("an event recorded in a capture that has ended", answer_of(event), "result 1");
	CUgraphExec instance = rules_instance(graph);
	ok(cu.cuGraphLaunch(instance, stream));
	ok(cu.cuStreamSynchronize(stream));
	rules_found("the same when its graph has run", answer_of(event), "result 1");
	ok(cu.cuGraphExecDestroy(instance));
	ok(cu.cuGraphDestroy(graph));
	rules_found("the same when the graph was destroyed", answer_of(event), "result 1");
	ok(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ok(cu.cuEventRecord(event, stream));
	cu.cuStreamDestroy(stream); /* a real driver may say that this ended the capture */
	rules_found("an event recorded in a capture whose stream was destroyed", answer_of(event), "result 1");
	ok(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ok(cu.cuEventRecord(event, stream));
	is(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamQuery(stream));
	rules_found("an event recorded in a capture that is invalid", answer_of(event), "result 1");
	is(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(stream, &graph));
	rules_found("the same when that has ended", answer_of(event), "result 1");
	ok(cu.cuStreamDestroy(stream));
	ok(cu.cuEventDestroy(event));
	ok(cu.cuMemFree(at));
}

/* Whoever asks, the one that captures as well; each of the answers may go nowhere. */
TEST(asking_for_the_range_of_priorities_never_invalidates)
{
	int least = 7, greatest = 7;
	CUgraph graph;

	assert_true(survives(PRIORITIES, false));
	CUstream stream = rules_stream();
	ok(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ok(cu.cuCtxGetStreamPriorityRange(&least, &greatest));
	assert_true(least == 0 && greatest <= 0);
	ok(cu.cuCtxGetStreamPriorityRange(&least, NULL));
	ok(cu.cuCtxGetStreamPriorityRange(NULL, &greatest));
	ok(cu.cuStreamEndCapture(stream, &graph));
	ok(cu.cuGraphDestroy(graph));
	ok(cu.cuStreamDestroy(stream));
}

TEST(the_range_of_priorities_is_that_of_a_context)
{
	int least = 7, greatest = 7;

	ok(cu.cuCtxSetCurrent(NULL));
	is(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxGetStreamPriorityRange(&least, &greatest));
	assert_true(least == 7 && greatest == 7);
	ok(cu.cuCtxSetCurrent(rules_context));
}
