#include "shim/context.h"
#include "shim/real.h"

CUcontext context_current(void)
{
	CUcontext current = NULL;

	return REAL(cuCtxGetCurrent)(&current) == CUDA_SUCCESS ? current : NULL;
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

	if (!context_enter(context, &pushed) && !context_current())
		return CUDA_SUCCESS; /* nothing is left that could run */
	CUresult result = REAL(cuCtxSynchronize)();
	context_leave(pushed);
	return result;
}

CUevent context_record(CUcontext context)
{
	CUevent event = NULL;
	bool pushed;

	if (!context || !real_has(HOOK_cuCtxRecordEvent) || !context_enter(context, &pushed))
		return NULL;
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
