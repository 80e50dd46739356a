// SPDX-License-Identifier: Apache-2.0
/*
 * Bodies of the entry points that begin and end stream captures, destroy streams, create and destroy contexts, and
 * open the memory of one GPU to another, so that the library knows of each.
 */
#include "shim/context/context.h"
#include "shim/device/device.h"
#include "shim/entry/entry.h"
#include "shim/serve/managed.h"
#include "shim/process/process.h"
#include "shim/serve/deferred_free.h"
#include "shim/serve/make_room.h"
#include "shim/serve/segments.h"
#include "shim/submit/arguments.h"
#include "shim/submit/completion.h"
#include "shim/submit/graph.h"
#include "shim/submit/submit_body.h"

#include <errno.h>

/* clang-format off */
#define HOOK_CAPTURE(name, params, args) \
	static CUresult serve_##name params \
	{ \
		if (!process_counts()) \
			return REAL(name) args; \
		int saved = errno; \
		capture_opening(); \
		CUresult result = REAL(name) args; \
		capture_opened(hStream, submit_is_per_thread(#name), \
			       result == CUDA_SUCCESS ? context_of_stream(hStream, submit_is_per_thread(#name)) : NULL, \
			       result == CUDA_SUCCESS); \
		errno = saved; \
		return result; \
	}
#define HOOK_CREATE(name, params, args) \
	static CUresult serve_##name params \
	{ \
		CUresult result; \
\
		OOM_RETRY_CALL(result, dev, REAL(name) args); \
		if (result == CUDA_SUCCESS && process_counts()) { \
			context_known(*pctx, dev); \
			peer_context_made(dev); \
			managed_context_made(dev); \
		} \
		return result; \
	}
#include "shim/driver/hooks.def"
/* clang-format on */

/* A failed call may have ended the capture (it was invalidated) or not (the wrong thread): ask the driver. */
#define END_CAPTURE(name, is_capturing, per_thread)                                                                    \
	static CUresult serve_##name(CUstream hStream, CUgraph *phGraph)                                               \
	{                                                                                                              \
		CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;                                          \
		int saved = errno;                                                                                     \
                                                                                                                       \
		CUresult result = REAL(name)(hStream, phGraph);                                                        \
		if (!process_counts())                                                                                 \
			return result;                                                                                 \
		if (result != CUDA_SUCCESS && REAL(is_capturing)(hStream, &status) != CUDA_SUCCESS)                    \
			status = CU_STREAM_CAPTURE_STATUS_NONE;                                                        \
		capture_closed(hStream, per_thread, status != CU_STREAM_CAPTURE_STATUS_NONE);                          \
		deferred_free_reap(-1); /* frees that were deferred for the capture */                                 \
		errno = saved;                                                                                         \
		return result;                                                                                         \
	}

END_CAPTURE(cuStreamEndCapture, cuStreamIsCapturing, false)
END_CAPTURE(cuStreamEndCapture_ptsz, cuStreamIsCapturing_ptsz, true)

/*
 * The library forgets the stream before the real call: afterwards another thread may get the handle for a new stream.
 * While a thread of the program records an event for the library on the stream, that thread destroys the stream as
 * soon as it has done so.
 */
#define DESTROY_STREAM(name)                                                                                           \
	static CUresult serve_##name(CUstream hStream)                                                                 \
	{                                                                                                              \
		if (process_counts()) {                                                                                \
			capture_forget(hStream);                                                                       \
			deferred_free_stream_ending(hStream);                                                          \
			segments_stream_ending(hStream);                                                               \
		}                                                                                                      \
		if (process_counts() && completion_stream_ending(hStream))                                             \
			return CUDA_SUCCESS;                                                                           \
		return REAL(name)(hStream);                                                                            \
	}

DESTROY_STREAM(cuStreamDestroy)
DESTROY_STREAM(cuStreamDestroy_v2)

/* ---- contexts: memory allocated in one ends with it, but for that of pools ---- */

/* The end of a context. Before the first allocation only the existence of contexts is known (serving is false). */
struct ending {
	bool serving, busy; /* busy: the real call must not be made */
	struct serve_ending served;
};

static struct ending is_ending(CUcontext context, bool serving)
{
	struct ending ending = {.serving = serving};

	if (serving) {
		ending.served = serve_context_ending(context);
		ending.busy = ending.served.busy;
	} else {
		ending.busy = !context_ending(context);
	}
	return ending;
}

static void has_ended(CUcontext context, const struct ending *ending, bool ended)
{
	if (ended) {
		capture_forget_context(context);
		graph_context_ended(context);
		kernel_params_drop();
	}
	if (ending->serving)
		serve_context_ended(context, ending->served, ended);
	else
		context_ended(context, ended);
	/* Last: while the context is ending, the library cannot find out whether its device is idle. */
	if (ended)
		peer_context_ended(context);
}

static CUresult end_context(CUresult(CUDAAPI *end)(CUcontext), CUcontext context, bool always)
{
	struct enter_scope scope;

	kernel_params_drop(); /* also before: the driver may reuse the handles of its functions once it has ended */

	if (always && process_counts())
		capture_forget_context(context);
	bool serving = enter_serve(&scope);
	if (!serving && !process_counts())
		return end(context);
	struct ending ending = is_ending(context, serving);
	CUresult result = ending.busy ? CUDA_ERROR_NOT_READY : end(context);
	/* A detach ends the context only if it releases the last reference. */
	has_ended(context, &ending, result == CUDA_SUCCESS && (always || context_has_ended(context)));
	return serving ? enter_leave(&scope, result) : result;
}

#define DESTROY_CONTEXT(name, always)                                                                                  \
	static CUresult serve_##name(CUcontext ctx)                                                                    \
	{                                                                                                              \
		return end_context(REAL(name), ctx, always);                                                           \
	}

DESTROY_CONTEXT(cuCtxDestroy, true)
DESTROY_CONTEXT(cuCtxDestroy_v2, true)
DESTROY_CONTEXT(cuCtxDetach, false)

/* ---- green contexts: parts of a device, whose memory is in its primary context ---- */

static CUresult serve_cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags)
{
	CUresult result;

	OOM_RETRY_CALL(result, dev, REAL(cuGreenCtxCreate)(phCtx, desc, dev, flags));
	if (result == CUDA_SUCCESS && process_counts())
		context_green(*phCtx, dev);
	return result;
}

static bool is_active(CUdevice device)
{
	unsigned flags;
	int active = 0;

	return REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) == CUDA_SUCCESS && active;
}

/*
 * Returns the device's primary context if it is active. Must be called before the call that may end the context:
 * afterwards its handle is invalid.
 */
static CUcontext active_primary(CUdevice device)
{
	CUcontext primary = NULL;

	if (is_active(device) && REAL(cuDevicePrimaryCtxRetain)(&primary, device) == CUDA_SUCCESS)
		REAL(cuDevicePrimaryCtxRelease_v2)(device);
	return primary;
}

/*
 * always: a reset always ends the context, a release only if it releases the last reference, which no green context of
 * it holds then. A reset ends these as well, one after the other until none is left, and at last the primary one.
 */
static CUresult end_with_parts(CUresult(CUDAAPI *end)(CUdevice), CUdevice dev, CUcontext primary, bool always,
			       bool serving)
{
	CUgreenCtx green = NULL;
	CUcontext part = always && primary ? context_green_take(primary, &green) : NULL;
	CUcontext context = part ? part : primary;
	struct ending ending = {.busy = false};

	if (context)
		ending = is_ending(context, serving);
	CUresult result = ending.busy ? CUDA_ERROR_NOT_READY
			  : part      ? end_with_parts(end, dev, primary, always, serving)
				      : end(dev);
	if (context)
		has_ended(context, &ending, result == CUDA_SUCCESS && (always || !is_active(dev)));
	if (part && result != CUDA_SUCCESS)
		context_green(green, dev);
	return result;
}

static CUresult end_primary(CUresult(CUDAAPI *end)(CUdevice), CUdevice dev, bool always)
{
	struct enter_scope scope;

	kernel_params_drop();

	bool serving = enter_serve(&scope);
	if (!serving && !process_counts())
		return end(dev);
	CUresult result = end_with_parts(end, dev, active_primary(dev), always, serving);
	return serving ? enter_leave(&scope, result) : result;
}

#define END_PRIMARY(name, always)                                                                                      \
	static CUresult serve_##name(CUdevice dev)                                                                     \
	{                                                                                                              \
		return end_primary(REAL(name), dev, always);                                                           \
	}

END_PRIMARY(cuDevicePrimaryCtxReset, true)
END_PRIMARY(cuDevicePrimaryCtxReset_v2, true)
END_PRIMARY(cuDevicePrimaryCtxRelease, false)
END_PRIMARY(cuDevicePrimaryCtxRelease_v2, false)

/*
 * A green context holds a reference to its primary context, perhaps the last. It ends first: its work is left to that.
 */
static CUresult serve_cuGreenCtxDestroy(CUgreenCtx hCtx)
{
	struct ending ending, of_primary = {.busy = false};
	struct enter_scope scope;
	CUdevice device;

	CUcontext context = process_counts() ? context_green_ending(hCtx, &device) : NULL;
	if (!context)
		return REAL(cuGreenCtxDestroy)(hCtx);
	bool serving = enter_serve(&scope);
	CUcontext primary = active_primary(device);
	ending = is_ending(context, serving);
	if (primary)
		of_primary = is_ending(primary, serving);
	CUresult result = ending.busy || of_primary.busy ? CUDA_ERROR_NOT_READY : REAL(cuGreenCtxDestroy)(hCtx);
	if (primary)
		has_ended(primary, &of_primary, result == CUDA_SUCCESS && !is_active(device));
	has_ended(context, &ending, result == CUDA_SUCCESS);
	if (result != CUDA_SUCCESS)
		context_green(hCtx, device);
	return serving ? enter_leave(&scope, result) : result;
}

/* ---- access between GPUs ---- */

/*
 * The driver is asked first: a refusal (no link, too many peers, enabled already) is returned unchanged. Access that
 * it grants holds for the driver's memory at once, and for heap memory when peer.c has opened the heap, before the
 * call returns. It is recorded also before the first allocation, because programs enable their peers before they
 * allocate.
 */

/* Returns false for a call from inside the library, and where everything is passed through. */
static bool entry_peer_begin(int *ret_errno)
{
	if (enter_depth || !process_counts())
		return false;
	*ret_errno = errno;
	enter_depth = 1;
	return true;
}

static void entry_peer_end(int saved_errno)
{
	enter_depth = 0;
	errno = saved_errno;
}

static CUresult serve_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
	int saved;

	CUresult result = REAL(cuCtxEnablePeerAccess)(peerContext, Flags);
	if (result != CUDA_SUCCESS || !entry_peer_begin(&saved))
		return result;
	result = peer_enabled(peerContext);
	if (result != CUDA_SUCCESS)
		REAL(cuCtxDisablePeerAccess)(peerContext);
	entry_peer_end(saved);
	return result;
}

static CUresult serve_cuCtxDisablePeerAccess(CUcontext peerContext)
{
	int saved;

	CUresult result = REAL(cuCtxDisablePeerAccess)(peerContext);
	if (result != CUDA_SUCCESS || !entry_peer_begin(&saved))
		return result;
	peer_disabled(peerContext);
	entry_peer_end(saved);
	return result;
}

#define HOOK_BODY HOOK_SHELL
#define HOOKS_OF  HOOKS_CONTEXT
#include "shim/driver/hooks.def"
