/*
 * Bodies that tell us when captures begin and end, and when contexts die.
 */
#include "shim/capture.h"
#include "shim/context.h"
#include "shim/enter.h"
#include "shim/hook.h"
#include "shim/peer.h"
#include "shim/pending.h"
#include "shim/serve.h"
#include "shim/spill/done.h"
#include "shim/spill/graph.h"
#include "shim/spill/layout.h"

#define BEGIN_CAPTURE(name, per_thread, params, args)                                                                  \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		stats_call(HOOK_##name);                                                                               \
		if (!life_counts())                                                                                    \
			return REAL(name) args;                                                                        \
		int saved = errno;                                                                                     \
		capture_opening();                                                                                     \
		CUresult result = REAL(name) args;                                                                     \
		capture_opened(hStream, per_thread, result == CUDA_SUCCESS);                                           \
		errno = saved;                                                                                         \
		return result;                                                                                         \
	}

BEGIN_CAPTURE(cuStreamBeginCapture, false, (CUstream hStream), (hStream))
BEGIN_CAPTURE(cuStreamBeginCapture_ptsz, true, (CUstream hStream), (hStream))
BEGIN_CAPTURE(cuStreamBeginCapture_v2, false, (CUstream hStream, CUstreamCaptureMode mode), (hStream, mode))
BEGIN_CAPTURE(cuStreamBeginCapture_v2_ptsz, true, (CUstream hStream, CUstreamCaptureMode mode), (hStream, mode))
BEGIN_CAPTURE(cuStreamBeginCaptureToGraph, false,
	      (CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
	       size_t numDependencies, CUstreamCaptureMode mode),
	      (hStream, hGraph, dependencies, dependencyData, numDependencies, mode))
BEGIN_CAPTURE(cuStreamBeginCaptureToGraph_ptsz, true,
	      (CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
	       size_t numDependencies, CUstreamCaptureMode mode),
	      (hStream, hGraph, dependencies, dependencyData, numDependencies, mode))

/* An end that failed may have ended the capture (it was invalidated) or not (the wrong thread): ask. */
#define END_CAPTURE(name, is_capturing, per_thread)                                                                    \
	HOOK_EXPORT CUresult CUDAAPI name(CUstream hStream, CUgraph *phGraph)                                          \
	{                                                                                                              \
		CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;                                          \
		int saved = errno;                                                                                     \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		CUresult result = REAL(name)(hStream, phGraph);                                                        \
		if (!life_counts())                                                                                    \
			return result;                                                                                 \
		if (result != CUDA_SUCCESS && REAL(is_capturing)(hStream, &status) != CUDA_SUCCESS)                    \
			status = CU_STREAM_CAPTURE_STATUS_NONE;                                                        \
		capture_closed(hStream, per_thread, status != CU_STREAM_CAPTURE_STATUS_NONE);                          \
		pending_reap(-1); /* frees that were put off for it */                                                 \
		errno = saved;                                                                                         \
		return result;                                                                                         \
	}

END_CAPTURE(cuStreamEndCapture, cuStreamIsCapturing, false)
END_CAPTURE(cuStreamEndCapture_ptsz, cuStreamIsCapturing_ptsz, true)

/* Before the real call: after it the handle may be another thread's new stream. */
#define DESTROY_STREAM(name)                                                                                           \
	HOOK_EXPORT CUresult CUDAAPI name(CUstream hStream)                                                            \
	{                                                                                                              \
		stats_call(HOOK_##name);                                                                               \
		if (life_counts())                                                                                     \
			capture_forget(hStream);                                                                       \
		if (life_counts())                                                                                     \
			pending_stream_ending(hStream);                                                                \
		if (life_counts())                                                                                     \
			done_stream_ending(hStream);                                                                   \
		return REAL(name)(hStream);                                                                            \
	}

DESTROY_STREAM(cuStreamDestroy)
DESTROY_STREAM(cuStreamDestroy_v2)

/* ---- contexts: memory allocated in one dies with it ---- */

/* A detach ends a context only if it was the last: then it cannot be entered any more. */
static bool is_gone(CUcontext context)
{
	bool pushed;
	CUresult result = context_enter(context, &pushed);

	context_leave(pushed);
	return context_is_gone(result);
}

/* What is known of things that ended with the context. */
static void forget_context(CUcontext context)
{
	capture_forget_context(context);
	graph_context_ended(context);
	layout_drop();
}

static CUresult end_context(CUresult(CUDAAPI *end)(CUcontext), CUcontext context, bool always)
{
	struct enter_scope scope;

	layout_drop(); /* also before: the handles of its functions may be given out anew the moment it has ended */

	if (always && life_counts())
		capture_forget_context(context);
	if (!enter_serve(&scope, false))
		return end(context);
	struct serve_ending ending = serve_context_ending(context);
	CUresult result = end(context);
	bool ended = result == CUDA_SUCCESS && (always || is_gone(context));
	if (ended)
		forget_context(context);
	serve_context_ended(context, ending, ended);
	return enter_leave(&scope, result);
}

#define DESTROY_CONTEXT(name, always)                                                                                  \
	HOOK_EXPORT CUresult CUDAAPI name(CUcontext ctx)                                                               \
	{                                                                                                              \
		stats_call(HOOK_##name);                                                                               \
		return end_context(REAL(name), ctx, always);                                                           \
	}

DESTROY_CONTEXT(cuCtxDestroy, true)
DESTROY_CONTEXT(cuCtxDestroy_v2, true)
DESTROY_CONTEXT(cuCtxDetach, false)

#define CREATE_CONTEXT(name, params, args)                                                                             \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		stats_call(HOOK_##name);                                                                               \
		CUresult result = REAL(name) args;                                                                     \
		if (result == CUDA_SUCCESS && life_counts()) {                                                         \
			context_known(*pctx, dev);                                                                     \
			peer_context_made(dev);                                                                        \
		}                                                                                                      \
		return result;                                                                                         \
	}

CREATE_CONTEXT(cuCtxCreate, (CUcontext * pctx, unsigned int flags, CUdevice dev), (pctx, flags, dev))
CREATE_CONTEXT(cuCtxCreate_v2, (CUcontext * pctx, unsigned int flags, CUdevice dev), (pctx, flags, dev))
CREATE_CONTEXT(cuCtxCreate_v3,
	       (CUcontext * pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags, CUdevice dev),
	       (pctx, paramsArray, numParams, flags, dev))
CREATE_CONTEXT(cuCtxCreate_v4, (CUcontext * pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev),
	       (pctx, ctxCreateParams, flags, dev))
CREATE_CONTEXT(cuDevicePrimaryCtxRetain, (CUcontext * pctx, CUdevice dev), (pctx, dev))

/* ---- green contexts: parts of a device, whose memory lives in its primary context ---- */

HOOK_EXPORT CUresult CUDAAPI cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
	stats_call(HOOK_cuCtxFromGreenCtx);
	CUresult result = REAL(cuCtxFromGreenCtx)(pContext, hCtx);
	if (result == CUDA_SUCCESS) {
		CUdevice device;
		bool pushed;

		context_green(hCtx, *pContext);
		if (context_enter(*pContext, &pushed) == CUDA_SUCCESS && REAL(cuCtxGetDevice)(&device) == CUDA_SUCCESS)
			context_known(*pContext, device);
		context_leave(pushed);
	}
	return result;
}

HOOK_EXPORT CUresult CUDAAPI cuGreenCtxDestroy(CUgreenCtx hCtx)
{
	stats_call(HOOK_cuGreenCtxDestroy);
	context_green_ended(hCtx);
	return REAL(cuGreenCtxDestroy)(hCtx);
}

/*
 * The primary context is found by looking at it before: after the real call its handle means nothing. A reset always
 * ends it, a release only when it was the last.
 */
static CUresult end_primary(CUresult(CUDAAPI *end)(CUdevice), CUdevice dev, bool always)
{
	struct serve_ending ending = {0};
	struct enter_scope scope;
	CUcontext primary = NULL;
	unsigned flags;
	int active = 0;

	layout_drop();

	/* Captures count already before the first allocation. */
	bool serving = enter_serve(&scope, false);
	if (!serving && !(life_counts() && capture_is_open()))
		return end(dev);
	REAL(cuDevicePrimaryCtxGetState)(dev, &flags, &active);
	if (active && REAL(cuDevicePrimaryCtxRetain)(&primary, dev) == CUDA_SUCCESS)
		REAL(cuDevicePrimaryCtxRelease_v2)(dev);
	if (primary && serving)
		ending = serve_context_ending(primary);
	CUresult result = end(dev);
	bool ended = primary && result == CUDA_SUCCESS &&
		     (always || REAL(cuDevicePrimaryCtxGetState)(dev, &flags, &active) != CUDA_SUCCESS || !active);
	if (ended)
		forget_context(primary);
	if (primary && serving)
		serve_context_ended(primary, ending, ended);
	return serving ? enter_leave(&scope, result) : result;
}

#define END_PRIMARY(name, always)                                                                                      \
	HOOK_EXPORT CUresult CUDAAPI name(CUdevice dev)                                                                \
	{                                                                                                              \
		stats_call(HOOK_##name);                                                                               \
		return end_primary(REAL(name), dev, always);                                                           \
	}

END_PRIMARY(cuDevicePrimaryCtxReset, true)
END_PRIMARY(cuDevicePrimaryCtxReset_v2, true)
END_PRIMARY(cuDevicePrimaryCtxRelease, false)
END_PRIMARY(cuDevicePrimaryCtxRelease_v2, false)
