#include "shim/context.h"
#include "shim/real.h"

#include <stdatomic.h>

/* Green contexts are few; what does not fit here is treated as a context of its own. */
#define GREEN_MOST 64

static struct {
	_Atomic(CUgreenCtx) green;
	_Atomic(CUcontext) context;
} greens[GREEN_MOST];
static atomic_uint n_greens;

CUcontext context_current(void)
{
	CUcontext current = NULL;

	return REAL(cuCtxGetCurrent)(&current) == CUDA_SUCCESS ? current : NULL;
}

void context_green(CUgreenCtx green, CUcontext context)
{
	for (unsigned i = 0; i < GREEN_MOST; i++) {
		CUgreenCtx none = NULL;

		if (atomic_load(&greens[i].green) == green && atomic_load(&greens[i].context) == context)
			return;
		if (!atomic_compare_exchange_strong(&greens[i].green, &none, green))
			continue;
		atomic_store(&greens[i].context, context);
		atomic_fetch_add(&n_greens, 1);
		return;
	}
}

void context_green_ended(CUgreenCtx green)
{
	for (unsigned i = 0; i < GREEN_MOST; i++) {
		if (atomic_load(&greens[i].green) != green)
			continue;
		atomic_store(&greens[i].context, NULL);
		atomic_store(&greens[i].green, NULL);
		atomic_fetch_sub(&n_greens, 1);
	}
}

static bool is_green(CUcontext context)
{
	for (unsigned i = 0; i < GREEN_MOST; i++)
		if (atomic_load(&greens[i].context) == context)
			return true;
	return false;
}

CUcontext context_of_memory(void)
{
	CUcontext current = context_current(), primary;
	CUdevice device;

	if (!current || !atomic_load_explicit(&n_greens, memory_order_relaxed) || !is_green(current))
		return current;
	/* A green context holds its primary one, so retaining it makes nothing new. */
	if (REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS ||
	    REAL(cuDevicePrimaryCtxRetain)(&primary, device) != CUDA_SUCCESS)
		return current;
	REAL(cuDevicePrimaryCtxRelease_v2)(device);
	return primary;
}

CUcontext context_of_stream(CUstream stream, bool per_thread)
{
	CUcontext context = NULL;
	CUresult result = (per_thread ? REAL(cuStreamGetCtx_ptsz) : REAL(cuStreamGetCtx))(stream, &context);

	return result == CUDA_SUCCESS && context ? context : context_current();
}

bool context_enter(CUcontext context, bool *ret_pushed)
{
	*ret_pushed = false;
	if (!context || context_current() == context)
		return true;
	if (REAL(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS)
		return false;
	*ret_pushed = true;
	return true;
}

void context_leave(bool pushed)
{
	CUcontext popped;

	if (pushed)
		REAL(cuCtxPopCurrent_v2)(&popped);
}

CUresult context_wait_idle(CUcontext context)
{
	bool pushed;

	if (!context_enter(context, &pushed))
		return CUDA_SUCCESS;
	CUresult result = REAL(cuCtxSynchronize)();
	context_leave(pushed);
	return result;
}

CUevent context_record(CUcontext context, bool *ret_gone)
{
	CUevent event = NULL;
	bool pushed;

	*ret_gone = !context_enter(context, &pushed);
	if (*ret_gone)
		return NULL;
	if (!context || !real_has(HOOK_cuCtxRecordEvent)) {
		context_leave(pushed);
		return NULL;
	}
	if (REAL(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
		event = NULL;
	if (event && REAL(cuCtxRecordEvent)(context, event) != CUDA_SUCCESS) {
		REAL(cuEventDestroy_v2)(event);
		event = NULL;
	}
	context_leave(pushed);
	return event;
}

CUresult context_record_stream(CUstream stream, bool per_thread, CUevent *ret_event, CUcontext *ret_context)
{
	CUcontext context = NULL;
	CUevent event;
	bool pushed;
	CUresult result = (per_thread ? REAL(cuStreamGetCtx_ptsz) : REAL(cuStreamGetCtx))(stream, &context);

	/* An event must be of the stream's own context, which need not be the current one. */
	if (result == CUDA_SUCCESS && !context_enter(context, &pushed))
		result = CUDA_ERROR_INVALID_CONTEXT;
	if (result != CUDA_SUCCESS)
		return result;
	result = REAL(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING);
	if (result == CUDA_SUCCESS) {
		result = (per_thread ? REAL(cuEventRecord_ptsz) : REAL(cuEventRecord))(event, stream);
		if (result != CUDA_SUCCESS)
			REAL(cuEventDestroy_v2)(event);
	}
	context_leave(pushed);
	if (result == CUDA_SUCCESS) {
		*ret_event = event;
		*ret_context = context;
	}
	return result;
}
