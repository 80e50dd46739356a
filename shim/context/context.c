/*
 * Being in a context. The table of green ones has no lock: a row is taken by its `green`, and found by its `context`,
 * which is set last and taken away first.
 */
#include "shim/context/context.h"
#include "shim/driver/real.h"

#include <stdatomic.h>

/* Green contexts are few; what does not fit here is treated as a context of its own. */
#define GREEN_MOST 64

static struct {
	_Atomic(CUgreenCtx) green;
	_Atomic(CUcontext) context;
	CUcontext primary; /* these are set before context */
	CUdevice device;
} greens[GREEN_MOST];
static atomic_uint n_greens;

CUcontext context_current(void)
{
	CUcontext current = NULL;

	return REAL(cuCtxGetCurrent)(&current) == CUDA_SUCCESS ? current : NULL;
}

CUcontext context_whole(CUcontext context)
{
	if (!context || !atomic_load_explicit(&n_greens, memory_order_relaxed))
		return context;
	for (unsigned i = 0; i < GREEN_MOST; i++)
		if (atomic_load(&greens[i].context) == context)
			return greens[i].primary;
	return context;
}

/* Handles are given out anew: of one that is, nothing is known from before. */
static void forget_greens(CUgreenCtx green, CUcontext context)
{
	for (unsigned i = 0; i < GREEN_MOST; i++) {
		CUgreenCtx old = atomic_load(&greens[i].green);

		if (!old || (old != green && atomic_load(&greens[i].context) != context))
			continue;
		atomic_store(&greens[i].context, NULL);
		if (atomic_compare_exchange_strong(&greens[i].green, &old, NULL))
			atomic_fetch_sub(&n_greens, 1);
	}
}

void context_green(CUgreenCtx green, CUdevice device)
{
	CUcontext context, primary;

	/* It holds its primary one, so retaining that makes nothing new. */
	if (REAL(cuCtxFromGreenCtx)(&context, green) != CUDA_SUCCESS ||
	    REAL(cuDevicePrimaryCtxRetain)(&primary, device) != CUDA_SUCCESS)
		return;
	REAL(cuDevicePrimaryCtxRelease_v2)(device);
	context_known(primary, device);
	forget_greens(green, context);
	for (unsigned i = 0; i < GREEN_MOST; i++) {
		CUgreenCtx none = NULL;

		if (!atomic_compare_exchange_strong(&greens[i].green, &none, green))
			continue;
		greens[i].primary = primary;
		greens[i].device = device;
		atomic_fetch_add(&n_greens, 1);
		atomic_store(&greens[i].context, context);
		return;
	}
}

CUcontext context_green_ending(CUgreenCtx green, CUdevice *ret_device)
{
	for (unsigned i = 0; i < GREEN_MOST; i++) {
		CUcontext context = atomic_load(&greens[i].context);

		if (!context || atomic_load(&greens[i].green) != green)
			continue;
		*ret_device = greens[i].device;
		forget_greens(green, context);
		return context;
	}
	return NULL;
}

CUcontext context_of_memory(void)
{
	return context_whole(context_current());
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

CUresult context_wait_idle(CUcontext context)
{
	bool pushed;

	CUresult result = context_enter(context_whole(context), &pushed);
	if (result != CUDA_SUCCESS)
		return context_is_gone(result) ? CUDA_SUCCESS : result;
	result = REAL(cuCtxSynchronize)();
	context_leave(pushed);
	return context_is_gone(result) ? CUDA_SUCCESS : result;
}
