/*
 * Bodies that tell us when captures begin and end, and when contexts die.
 */
#include "shim/capture.h"
#include "shim/enter.h"
#include "shim/hook.h"
#include "shim/serve.h"

/* Captures are counted even before the first allocation: one may be open when it comes. */
static bool counting(void)
{
	enum stage stage = life_stage();

	return (stage == STAGE_NEW && !life_is_off()) || stage == STAGE_RUNNING;
}

#define BEGIN_CAPTURE(name, per_thread, params, args)                                                                  \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		stats_call(HOOK_##name);                                                                               \
		if (!counting())                                                                                       \
			return REAL(name) args;                                                                        \
		capture_opening();                                                                                     \
		CUresult result = REAL(name) args;                                                                     \
		capture_opened(hStream, per_thread, result == CUDA_SUCCESS);                                           \
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
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		CUresult result = REAL(name)(hStream, phGraph);                                                        \
		if (!counting())                                                                                       \
			return result;                                                                                 \
		if (result != CUDA_SUCCESS && REAL(is_capturing)(hStream, &status) != CUDA_SUCCESS)                    \
			status = CU_STREAM_CAPTURE_STATUS_NONE;                                                        \
		capture_closed(hStream, per_thread, status != CU_STREAM_CAPTURE_STATUS_NONE);                          \
		return result;                                                                                         \
	}

END_CAPTURE(cuStreamEndCapture, cuStreamIsCapturing, false)
END_CAPTURE(cuStreamEndCapture_ptsz, cuStreamIsCapturing_ptsz, true)

#define DESTROY_STREAM(name)                                                                                           \
	HOOK_EXPORT CUresult CUDAAPI name(CUstream hStream)                                                            \
	{                                                                                                              \
		stats_call(HOOK_##name);                                                                               \
		CUresult result = REAL(name)(hStream);                                                                 \
		if (result == CUDA_SUCCESS && counting())                                                              \
			capture_forget(hStream);                                                                       \
		return result;                                                                                         \
	}

DESTROY_STREAM(cuStreamDestroy)
DESTROY_STREAM(cuStreamDestroy_v2)

/* ---- contexts: memory allocated in one dies with it ---- */

#define DESTROY_CONTEXT(name)                                                                                          \
	HOOK_EXPORT CUresult CUDAAPI name(CUcontext ctx)                                                               \
	{                                                                                                              \
		struct enter_scope scope;                                                                              \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		CUresult result = REAL(name)(ctx);                                                                     \
		if (result != CUDA_SUCCESS || !enter_serve(&scope, false))                                             \
			return result;                                                                                 \
		serve_context_gone(ctx);                                                                               \
		return enter_leave(&scope, result);                                                                    \
	}

DESTROY_CONTEXT(cuCtxDestroy)
DESTROY_CONTEXT(cuCtxDestroy_v2)

/* The primary context is found by looking at it before: after the real call its handle means nothing. */
static CUresult end_primary(CUresult(CUDAAPI *end)(CUdevice), CUdevice dev)
{
	struct enter_scope scope;
	CUcontext primary = NULL;
	unsigned flags;
	int active = 0;

	if (!enter_serve(&scope, false))
		return end(dev);
	REAL(cuDevicePrimaryCtxGetState)(dev, &flags, &active);
	if (active && REAL(cuDevicePrimaryCtxRetain)(&primary, dev) == CUDA_SUCCESS)
		REAL(cuDevicePrimaryCtxRelease_v2)(dev);
	CUresult result = end(dev);
	if (result == CUDA_SUCCESS && primary &&
	    (REAL(cuDevicePrimaryCtxGetState)(dev, &flags, &active) != CUDA_SUCCESS || !active))
		serve_context_gone(primary);
	return enter_leave(&scope, result);
}

#define END_PRIMARY(name)                                                                                              \
	HOOK_EXPORT CUresult CUDAAPI name(CUdevice dev)                                                                \
	{                                                                                                              \
		stats_call(HOOK_##name);                                                                               \
		return end_primary(REAL(name), dev);                                                                   \
	}

END_PRIMARY(cuDevicePrimaryCtxReset)
END_PRIMARY(cuDevicePrimaryCtxReset_v2)
END_PRIMARY(cuDevicePrimaryCtxRelease)
END_PRIMARY(cuDevicePrimaryCtxRelease_v2)
