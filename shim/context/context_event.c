/*
 * A cache of events for reuse, events behind the work of a stream, and waits for it.
 */
#include "shim/context/capture.h"
#include "shim/context/context_internal.h"
#include "shim/context/context_state.h"
#include "shim/base/lock.h"
#include "shim/driver/real.h"

CUresult context_event_take(CUcontext context, CUevent *ret_event)
{
	struct context_event_state *const kept = &context_state.event;

	lock_take(&kept->lock);
	bool any = kept->n && kept->context == context;
	if (any)
		*ret_event = kept->event[--kept->n];
	lock_drop(&kept->lock);
	return any ? CUDA_SUCCESS : REAL(cuEventCreate)(ret_event, CU_EVENT_DISABLE_TIMING);
}

void context_event_give(CUcontext context, CUevent event)
{
	struct context_event_state *const kept = &context_state.event;

	lock_take(&kept->lock);
	if (!kept->n)
		kept->context = context;
	if (kept->context == context && kept->n < EVENTS_KEPT)
		kept->event[kept->n++] = event;
	else
		REAL(cuEventDestroy_v2)(event);
	lock_drop(&kept->lock);
}

void context_events_drop(CUcontext context, bool gone)
{
	struct context_event_state *const kept = &context_state.event;

	lock_take(&kept->lock);
	while (kept->context == context && kept->n) {
		kept->n--;
		if (!gone)
			REAL(cuEventDestroy_v2)(kept->event[kept->n]);
	}
	lock_drop(&kept->lock);
}

CUresult context_record_stream(CUstream stream, bool per_thread, CUevent *ret_event, CUcontext *ret_context)
{
	CUcontext context = NULL;
	CUevent event;
	bool pushed;
	CUresult result = (per_thread ? REAL(cuStreamGetCtx_ptsz) : REAL(cuStreamGetCtx))(stream, &context);

	/* An event must be of the stream's own context, which need not be the current one. */
	if (result == CUDA_SUCCESS)
		result = context_enter(context, &pushed);
	if (result != CUDA_SUCCESS)
		return result;
	result = context_event_take(context, &event);
	if (result == CUDA_SUCCESS) {
		result = (per_thread ? REAL(cuEventRecord_ptsz) : REAL(cuEventRecord))(event, stream);
		if (result != CUDA_SUCCESS)
			context_event_give(context, event);
	}
	context_leave(pushed);
	if (result == CUDA_SUCCESS) {
		*ret_event = event;
		*ret_context = context;
	}
	return result;
}

CUresult context_wait_stream(CUstream stream, bool per_thread)
{
	CUstreamCaptureMode mode = capture_relax();
	CUresult result = (per_thread ? REAL(cuStreamSynchronize_ptsz) : REAL(cuStreamSynchronize))(stream);

	capture_restore(mode);
	return result;
}
