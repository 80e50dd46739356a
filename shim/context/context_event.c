/*
 * Events behind the work of a context or of a stream, and the ones that are kept to be used again.
 */
#include "shim/context/capture.h"
#include "shim/base/clock.h"
#include "shim/context/context_inside.h"
#include "shim/driver/real.h"

#include <pthread.h>

/* ---- events to be used again ---- */

#define EVENTS_KEPT 256

static struct {
	CUcontext context; /* of all of them; those of another one are not kept */
	unsigned n;
	CUevent event[EVENTS_KEPT];
} kept;
/* The last to be taken; over ends of events, so that their context does not end meanwhile. */
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

CUresult context_event_take(CUcontext context, CUevent *ret_event)
{
	pthread_mutex_lock(&kept_lock);
	bool any = kept.n && kept.context == context;
	if (any)
		*ret_event = kept.event[--kept.n];
	pthread_mutex_unlock(&kept_lock);
	return any ? CUDA_SUCCESS : REAL(cuEventCreate)(ret_event, CU_EVENT_DISABLE_TIMING);
}

void context_event_give(CUcontext context, CUevent event)
{
	pthread_mutex_lock(&kept_lock);
	if (!kept.n)
		kept.context = context;
	if (kept.context == context && kept.n < EVENTS_KEPT)
		kept.event[kept.n++] = event;
	else
		REAL(cuEventDestroy_v2)(event);
	pthread_mutex_unlock(&kept_lock);
}

void context_events_drop(CUcontext context, bool gone)
{
	pthread_mutex_lock(&kept_lock);
	while (kept.context == context && kept.n) {
		kept.n--;
		if (!gone)
			REAL(cuEventDestroy_v2)(kept.event[kept.n]);
	}
	pthread_mutex_unlock(&kept_lock);
}

/* ---- events behind work ---- */

static CUevent record(CUcontext context, bool *ret_gone)
{
	CUevent event = NULL;
	bool pushed;

	CUresult result = context_enter(context, &pushed);
	*ret_gone = context_is_gone(result);
	if (result != CUDA_SUCCESS)
		return NULL;
	if (!context || !real_has(HOOK_cuCtxRecordEvent)) {
		context_leave(pushed);
		return NULL;
	}
	result = REAL(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING);
	*ret_gone = context_is_gone(result);
	if (result != CUDA_SUCCESS)
		event = NULL;
	if (event && REAL(cuCtxRecordEvent)(context, event) != CUDA_SUCCESS) {
		REAL(cuEventDestroy_v2)(event);
		event = NULL;
	}
	context_leave(pushed);
	return event;
}

CUevent context_record(CUcontext context, bool *ret_gone)
{
	context = context_whole(context);
	*ret_gone = false;
	if (!context_visit(context))
		return NULL;
	CUevent event = record(context, ret_gone);
	context_visit_end(context);
	return event;
}

static bool is_busy(CUevent event)
{
	CUstreamCaptureMode mode = capture_relax();
	bool busy = REAL(cuEventQuery)(event) == CUDA_ERROR_NOT_READY;

	capture_restore(mode);
	return busy;
}

void context_await(CUcontext context, unsigned ms)
{
	bool gone;
	int before;

	if (!capture_pause())
		return;
	CUevent event = record(context, &gone);
	capture_resume();
	/* Sleeping is a cancellation point. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	for (; event && ms && !capture_is_open() && is_busy(event); ms--)
		clock_sleep(1000000);
	if (event)
		REAL(cuEventDestroy_v2)(event);
	pthread_setcancelstate(before, NULL);
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
