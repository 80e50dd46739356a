/*
 * The current context of the thread, the context of a stream, and being in another one for a while: what needs the driver
 * alone.
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

/* The one question that the driver answers about any handle (the rules of test/sim, on driver 580). */
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
 * The driver makes a context current that has ended, too, says so of everything that is asked of it, and has ended
 * processes for taking it away again.
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

/* The thread is the program's, or the mover's for good: neither is to go on in a context that is not its own. */
#define LEAVE_TRIES 16

void context_leave(bool pushed)
{
	CUcontext popped;

	for (unsigned tries = 0; pushed && tries < LEAVE_TRIES; tries++)
		pushed = REAL(cuCtxPopCurrent_v2)(&popped) != CUDA_SUCCESS;
}
