// SPDX-License-Identifier: Apache-2.0
/*
 * rules_order_test.c: the rules about the order of work (rules.h): events of contexts, the end of a context; and which
 * addresses a look-up hands out.
 */
#include "rules_kernel.h"
#include <dlfcn.h>

/* ---- look-ups ---- */

TEST(look_ups_hand_out_exported_addresses)
{
	static const char *const names[] = {"cuMemAlloc",        "cuMemFree",           "cuLaunchKernel",
					    "cuMemcpyHtoDAsync", "cuStreamSynchronize", "cuGetProcAddress"};
	CUdriverProcAddressQueryResult status;
	void *at;
	Dl_info info;

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

/* What deferred_free.c builds on: an event of a context comes after the work of all its streams, and needs no wait. */
TEST(event_of_a_context_comes_after_all_its_streams)
{
	CUstream stream[2];
	CUdeviceptr at = rules_alloc(64 * MIB);
	CUevent event = rules_event(CU_EVENT_DISABLE_TIMING);

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

TEST(event_of_a_context_invalidates_its_captures)
{
	CUgraph graph;
	CUevent event = rules_event(CU_EVENT_DISABLE_TIMING);
	CUstream stream = rules_stream();

	ok(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	is(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuCtxRecordEvent(rules_context, event));
	is(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(stream, &graph));
	ok(cu.cuStreamDestroy(stream));
	ok(cu.cuEventDestroy(event));
}

/*
 * The handle of a context that has ended is asked about, and nothing else is done with it: made current, and taken away
 * again, it has ended the process. So have its streams, whatever they were asked, and now and then its events, which as
 * a rule say that the context is destroyed (driver 580).
 */
TEST(a_context_that_has_ended_can_be_told)
{
	CUcontext context, popped;
	unsigned version;

	ok(cu.cuCtxCreate(&context, NULL, 0, 0));
	ok(cu.cuCtxGetApiVersion(context, &version));
	ok(cu.cuCtxPopCurrent(&popped));
	ok(cu.cuCtxGetApiVersion(context, &version));
	ok(cu.cuCtxDestroy(context));
	is(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxGetApiVersion(context, &version));
}

/* The last but one: everything of the primary context ends here. */
TEST(an_ended_primary_context_is_made_current_and_does_nothing)
{
	CUcontext again, popped;
	unsigned version;
	CUdevice device;
	CUevent event;

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

/* The heap keeps its blocks mapped over the end of a context. The last test: everything of the context ends here. */
TEST(mappings_survive_a_reset_of_the_primary_context)
{
	CUdeviceptr at = rules_reserve(CHUNK);
	unsigned char byte = 0;

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
