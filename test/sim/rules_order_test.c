/*
 * rules_order_test.c: the rules about the order of work (rules.h): captures, events, the end of a context; and which
 * addresses a look-up hands out.
 */
#include "rules.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

/* ---- look-ups ---- */

static void look_ups_hand_out_exported_addresses(void **state)
{
	static const char *const names[] = {"cuMemAlloc",        "cuMemFree",           "cuLaunchKernel",
					    "cuMemcpyHtoDAsync", "cuStreamSynchronize", "cuGetProcAddress"};
	CUdriverProcAddressQueryResult status;
	void *at;
	Dl_info info;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		for (cuuint64_t flags = 0; flags <= 2; flags++) {
			ok(cu.cuGetProcAddress(names[i], &at, 12000, flags, &status));
			assert_int_equal(status, CU_GET_PROC_ADDRESS_SUCCESS);
			assert_true(dladdr(at, &info) && info.dli_sname);
			assert_int_equal(strncmp(info.dli_sname, names[i], strlen(names[i])), 0);
			ok(cu.cuGetProcAddress(names[i], &at, 12000, flags, NULL));
		}
	}
}

/* ---- capture ---- */

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
	CUresult result = cu.cuMemAddressReserve(&at, CHUNK, 0, 0, 0);

	if (!result)
		result = cu.cuMemCreate(&handle, CHUNK, &prop, 0);
	if (!result)
		result = cu.cuMemMap(at, CHUNK, 0, handle, 0);
	if (!result)
		result = rules_set_access(at, CHUNK);
	if (!result)
		result = cu.cuMemUnmap(at, CHUNK);
	if (!result)
		result = cu.cuMemRelease(handle);
	if (!result)
		result = cu.cuMemAddressFree(at, CHUNK);
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
	CUstream stream;
	CUgraph graph = NULL;
	CUresult result;
	pthread_t thread;

	ok(cu.cuMemAlloc(&other.block, 4096));
	ok(cu.cuMemHostAlloc(&other.pinned, 4096, 0));
	memset(other.pinned, 0, 4096);
	ok(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(cu.cuStreamCreate(&other.stream, CU_STREAM_NON_BLOCKING));
	ok(cu.cuEventCreate(&other.event, 0));
	ok(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ok(cu.cuMemsetD8Async(other.block, 1, 4096, stream));
	pthread_create(&thread, NULL, on_another_thread, &other);
	pthread_join(thread, NULL);
	result = cu.cuStreamEndCapture(stream, &graph);
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

static void unsafe_calls_of_other_threads_invalidate_a_global_capture(void **state)
{
	(void)state;
	assert_false(survives(QUERY_EVENT, false));
	assert_false(survives(SYNC_EVENT, false));
	assert_false(survives(QUERY_STREAM, false));
	assert_false(survives(SYNC_STREAM, false));
	assert_false(survives(ALLOC, false));
	assert_false(survives(SYNC_CONTEXT, false));
}

static void relaxed_threads_are_harmless_but_for_context_synchronize(void **state)
{
	(void)state;
	assert_true(survives(QUERY_EVENT, true));
	assert_true(survives(SYNC_EVENT, true));
	assert_true(survives(QUERY_STREAM, true));
	assert_true(survives(SYNC_STREAM, true));
	assert_true(survives(ALLOC, true));
	assert_false(survives(SYNC_CONTEXT, true));
}

static void mapping_recording_and_copying_never_invalidate(void **state)
{
	(void)state;
	assert_true(survives(VMM, false));
	assert_true(survives(RECORD, false));
	assert_true(survives(COPY, false));
}

/* Whoever asks, the one that captures as well; each of the answers may go nowhere. */
static void asking_for_the_range_of_priorities_never_invalidates(void **state)
{
	int least = 7, greatest = 7;
	CUstream stream;
	CUgraph graph;

	(void)state;
	assert_true(survives(PRIORITIES, false));
	ok(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ok(cu.cuCtxGetStreamPriorityRange(&least, &greatest));
	assert_true(least == 0 && greatest <= 0);
	ok(cu.cuCtxGetStreamPriorityRange(&least, NULL));
	ok(cu.cuCtxGetStreamPriorityRange(NULL, &greatest));
	ok(cu.cuStreamEndCapture(stream, &graph));
	ok(cu.cuGraphDestroy(graph));
	ok(cu.cuStreamDestroy(stream));
}

static void the_range_of_priorities_is_that_of_a_context(void **state)
{
	int least = 7, greatest = 7;

	(void)state;
	ok(cu.cuCtxSetCurrent(NULL));
	is(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxGetStreamPriorityRange(&least, &greatest));
	assert_true(least == 7 && greatest == 7);
	ok(cu.cuCtxSetCurrent(rules_context));
}

/* What deferred_free.c builds on: an event of a context comes after the work of all its streams, and needs no wait. */
static void event_of_a_context_comes_after_all_its_streams(void **state)
{
	CUdeviceptr at;
	CUstream stream[2];
	CUevent event;

	(void)state;
	ok(cu.cuMemAlloc(&at, 64 * MIB));
	ok(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	for (int i = 0; i < 2; i++) {
		ok(cu.cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
		for (int k = 0; k < 20; k++)
			ok(cu.cuMemsetD8Async(at + (CUdeviceptr)i * 32 * MIB, (unsigned char)k, 32 * MIB, stream[i]));
	}
	ok(cu.cuCtxRecordEvent(rules_context, event));
	ok(cu.cuEventSynchronize(event));
	for (int i = 0; i < 2; i++) {
		ok(cu.cuStreamQuery(stream[i]));
		ok(cu.cuStreamDestroy(stream[i]));
	}
	ok(cu.cuEventDestroy(event));
	ok(cu.cuMemFree(at));
}

static void event_of_a_context_invalidates_its_captures(void **state)
{
	CUstream stream;
	CUevent event;
	CUgraph graph;

	(void)state;
	ok(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	ok(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	is(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuCtxRecordEvent(rules_context, event));
	is(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(stream, &graph));
	ok(cu.cuStreamDestroy(stream));
	ok(cu.cuEventDestroy(event));
}

/* The heap keeps its blocks mapped over the end of a context. The last test: everything of the context ends here. */
static void mappings_survive_a_reset_of_the_primary_context(void **state)
{
	CUdeviceptr at = rules_reserve(CHUNK);
	unsigned char byte = 0;

	(void)state;
	rules_map_new(at, CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	ok(cu.cuMemsetD8(at, 0x5c, CHUNK));
	ok(cu.cuCtxSynchronize());
	ok(cu.cuDevicePrimaryCtxReset(0));
	ok(cu.cuDevicePrimaryCtxRetain(&rules_context, 0));
	ok(cu.cuCtxSetCurrent(rules_context));
	ok(cu.cuMemcpyDtoH(&byte, at + CHUNK - 1, 1));
	assert_int_equal(byte, 0x5c);
	rules_unmap_and_free(at, CHUNK);
}

/*
 * The handle of a context that has ended is asked about, and nothing else is done with it: made current, and taken away
 * again, it has ended the process. So have its streams, whatever they were asked, and now and then its events, which as
 * a rule say that the context is destroyed (driver 580).
 */
static void a_context_that_has_ended_can_be_told(void **state)
{
	CUcontext context, popped;
	unsigned version;

	(void)state;
	ok(cu.cuCtxCreate(&context, NULL, 0, 0));
	ok(cu.cuCtxGetApiVersion(context, &version));
	ok(cu.cuCtxPopCurrent(&popped));
	ok(cu.cuCtxGetApiVersion(context, &version));
	ok(cu.cuCtxDestroy(context));
	is(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxGetApiVersion(context, &version));
}

/* The last but one: everything of the primary context ends here. */
static void an_ended_primary_context_is_made_current_and_does_nothing(void **state)
{
	CUcontext again, popped;
	unsigned version;
	CUdevice device;
	CUevent event;

	(void)state;
	ok(cu.cuCtxSetCurrent(NULL));
	ok(cu.cuDevicePrimaryCtxReset(0));
	is(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxGetApiVersion(rules_context, &version));
	ok(cu.cuCtxPushCurrent(rules_context));
	ok(cu.cuCtxGetDevice(&device));
	is(CUDA_ERROR_CONTEXT_IS_DESTROYED, cu.cuCtxSynchronize());
	is(CUDA_ERROR_CONTEXT_IS_DESTROYED, cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	is(CUDA_ERROR_CONTEXT_IS_DESTROYED, cu.cuCtxGetStreamPriorityRange(NULL, NULL));
	ok(cu.cuCtxPopCurrent(&popped));
	/* It lives again under its handle. */
	ok(cu.cuDevicePrimaryCtxRetain(&again, 0));
	assert_ptr_equal(again, rules_context);
	ok(cu.cuCtxSetCurrent(again));
	ok(cu.cuCtxGetApiVersion(again, &version));
	ok(cu.cuCtxSynchronize());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(look_ups_hand_out_exported_addresses),
	    cmocka_unit_test(unsafe_calls_of_other_threads_invalidate_a_global_capture),
	    cmocka_unit_test(relaxed_threads_are_harmless_but_for_context_synchronize),
	    cmocka_unit_test(mapping_recording_and_copying_never_invalidate),
	    cmocka_unit_test(asking_for_the_range_of_priorities_never_invalidates),
	    cmocka_unit_test(the_range_of_priorities_is_that_of_a_context),
	    cmocka_unit_test(event_of_a_context_comes_after_all_its_streams),
	    cmocka_unit_test(event_of_a_context_invalidates_its_captures),
	    cmocka_unit_test(a_context_that_has_ended_can_be_told),
	    cmocka_unit_test(an_ended_primary_context_is_made_current_and_does_nothing),
	    cmocka_unit_test(mappings_survive_a_reset_of_the_primary_context),
	};
	int failed = rules_init();

	if (failed)
		return failed;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	rules_fini();
	return failed;
}
