/*
 * The current context of the thread, the context of a stream, and entering another context for a while. This file
 * keeps no state; it uses the driver only.
 */
#include "shim/context/context.h"
#include "shim/driver/real.h"

CUcontext context_current(void)
{
	CUcontext current = NULL;

	return REAL(cuCtxGetCurrent)(&current) == CUDA_SUCCESS ? current : NULL;
}

CUcontext context_told(CUstream stream, bool per_thread)
{
	CUcontext context = NULL;
	CUresult result = (per_thread ? REAL(cuStreamGetCtx_ptsz) : REAL(cuStreamGetCtx))(stream, &context);

	return result == CUDA_SUCCESS ? context : NULL;
}

CUcontext context_of_stream(CUstream stream, bool per_thread)
{
	CUcontext context = context_told(stream, per_thread);

	return context ? context : context_current();
}

/*
 * The only query that the driver answers for any handle, also of an ended context (the rules of test/sim, driver
 * 580).
 */
static CUresult ask_about(CUcontext context)
{
	unsigned version;

	return REAL(cuCtxGetApiVersion)(context, &version);
}

bool context_has_ended(CUcontext context)
{
	return context_is_gone(ask_about(context));
}

/*
 * Checks the context first: the driver also pushes a context that has ended, fails every call in it then, and has ended
 * processes when it was popped again.
 */
CUresult context_enter(CUcontext context, bool *ret_pushed)
{
	*ret_pushed = false;
	if (!context || context_current() == context)
		return CUDA_SUCCESS;
	CUresult result = ask_about(context);
	if (!context_is_gone(result))
		result = REAL(cuCtxPushCurrent_v2)(context);
	*ret_pushed = result == CUDA_SUCCESS;
	return result;
}

bool context_is_gone(CUresult error)
{
	return error == CUDA_ERROR_INVALID_CONTEXT || error == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
	       error == CUDA_ERROR_DEINITIALIZED;
}

/* The pop is retried: neither a thread of the program nor the mover may continue in a foreign context. */
#define LEAVE_TRIES 16

void context_leave(bool pushed)
{
	CUcontext popped;

	for (unsigned tries = 0; pushed && tries < LEAVE_TRIES; tries++)
		pushed = REAL(cuCtxPopCurrent_v2)(&popped) != CUDA_SUCCESS;
}
