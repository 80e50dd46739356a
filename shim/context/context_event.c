/*
 * A cache of events for reuse, and events behind the work of a stream.
 */
#include "shim/context/context_internal.h"
#include "shim/base/lock.h"
#include "shim/driver/real.h"

#define EVENTS_KEPT 256

static struct {
	CUcontext context; /* of all kept events; those of another context are not kept */
	unsigned n;
	CUevent event[EVENTS_KEPT];
} kept;
/* Held over cuEventDestroy, so that the context does not end meanwhile. */
static struct lock kept_lock = LOCK_INIT(LOCK_EVENTS);

CUresult context_event_take(CUcontext context, CUevent *ret_event)
{
	lock_take(&kept_lock);
	bool any = kept.n && kept.context == context;
	if (any)
		*ret_event = kept.event[--kept.n];
	lock_drop(&kept_lock);
	return any ? CUDA_SUCCESS : REAL(cuEventCreate)(ret_event, CU_EVENT_DISABLE_TIMING);
}

void context_event_give(CUcontext context, CUevent event)
{
	lock_take(&kept_lock);
	if (!kept.n)
		kept.context = context;
	if (kept.context == context && kept.n < EVENTS_KEPT)
		kept.event[kept.n++] = event;
	else
		REAL(cuEventDestroy_v2)(event);
	lock_drop(&kept_lock);
}

void context_events_drop(CUcontext context, bool gone)
{
	lock_take(&kept_lock);
	while (kept.context == context && kept.n) {
		kept.n--;
		if (!gone)
			REAL(cuEventDestroy_v2)(kept.event[kept.n]);
	}
	lock_drop(&kept_lock);
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
