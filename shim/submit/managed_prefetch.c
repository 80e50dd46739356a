/*
 * managed_prefetch.c: prefetches of managed memory, and the promises that keep them within the free memory of the
 * device (managed_prefetch.h). A promise lasts from the decision to prefetch until the event behind the prefetch is
 * complete.
 */
#include "shim/submit/managed_prefetch.h"
#include "shim/base/lock.h"
#include "shim/context/capture.h"
#include "shim/context/context.h"
#include "shim/accounting/ledger.h"
#include "shim/driver/real.h"
#include "shim/submit/types.h"

/* The smallest unit that the driver moves (UVM: pages of 64 KiB on x86-64 and aarch64). */
#define PAGE ((uint64_t)64 << 10)

/* Ends the promises whose events are complete. Returns the bytes still promised on the device. */
static uint64_t look_locked(int device)
{
	CUstreamCaptureMode mode = capture_relax(); /* capture_pause() holds a capture back for a while only */
	uint64_t promised = 0;

	for (unsigned i = 0; i < MANAGED_PREFETCH_PROMISES; i++) {
		struct promise *promise = &submit_tables.promises[i];

		if (promise->event && REAL(cuEventQuery)(promise->event) == CUDA_SUCCESS) {
			context_event_give(promise->context, promise->event);
			*promise = (struct promise){0};
		}
		if (promise->device == device)
			promised += promise->bytes;
	}
	capture_restore(mode);
	return promised;
}

/*
 * Makes a promise for bytes, or for as many whole pages as fit. Returns NULL if there is no room. The caller must call
 * promise_settle().
 */
static struct promise *promise_take(int device, uint64_t bytes, uint64_t headroom)
{
	size_t left = 0, total;
	uint64_t whole = (bytes + PAGE - 1) / PAGE * PAGE; /* the last page of a block is moved whole */
	struct promise *promise = NULL;

	lock_take(&submit_state.promises_lock);
	/*
	 * The promises are summed before free memory is queried: memory taken in between then counts twice, rather than
	 * not at all.
	 */
	uint64_t kept = look_locked(device);
	for (unsigned i = 0; i < MANAGED_PREFETCH_PROMISES && !promise; i++)
		promise = submit_tables.promises[i].bytes ? NULL : &submit_tables.promises[i];
	if (!promise || REAL(cuMemGetInfo_v2)(&left, &total) != CUDA_SUCCESS || headroom > left ||
	    kept > left - headroom)
		left = 0;
	else
		left -= headroom + kept;
	if (left < whole)
		bytes = left / PAGE * PAGE;
	if (promise && bytes)
		*promise = (struct promise){.bytes = bytes, .device = device};
	else
		promise = NULL;
	lock_drop(&submit_state.promises_lock);
	return promise;
}

/* Without an event the promise ends now, whether the prefetch was submitted or not. */
static void promise_settle(struct promise *promise, CUevent event, CUcontext context)
{
	lock_take(&submit_state.promises_lock);
	if (event) {
		promise->event = event;
		promise->context = context;
	} else {
		*promise = (struct promise){0};
	}
	lock_drop(&submit_state.promises_lock);
}

void managed_prefetch_bring(CUdeviceptr address, size_t bytes, uint64_t headroom, CUstream stream, bool per_thread)
{
	CUdevice device;
	CUevent event = NULL;
	CUcontext context = NULL;

	if (!capture_pause())
		return;
	struct promise *promise =
	    REAL(cuCtxGetDevice)(&device) == CUDA_SUCCESS ? promise_take(device, bytes, headroom) : NULL;
	if (promise) {
		CUresult result = per_thread ? REAL(cuMemPrefetchAsync_ptsz)(address, promise->bytes, device, stream)
					     : REAL(cuMemPrefetchAsync)(address, promise->bytes, device, stream);

		if (result == CUDA_SUCCESS)
			context_record_stream(stream, per_thread, &event, &context);
		promise_settle(promise, event, context);
	}
	capture_resume();
}

void managed_prefetch_launch(const CUdeviceptr *named, unsigned n, CUstream stream, bool per_thread)
{
	struct ledger_row row;

	for (unsigned i = 0; i < n && !capture_is_open(); i++)
		if (ledger_find_ahead(named[i], &row))
			managed_prefetch_bring(row.key, row.bytes, row.managed.headroom, stream, per_thread);
}

void managed_prefetch_context_ending(CUcontext context)
{
	lock_take(&submit_state.promises_lock);
	for (unsigned i = 0; i < MANAGED_PREFETCH_PROMISES; i++)
		if (submit_tables.promises[i].event && submit_tables.promises[i].context == context)
			submit_tables.promises[i] = (struct promise){0};
	lock_drop(&submit_state.promises_lock);
}
