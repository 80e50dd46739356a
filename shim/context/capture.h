/*
 * capture.h: tracks open stream captures. While one is open, the library must not wait for the GPU (docs/facts.md,
 * Stream capture): a cuCtxSynchronize from any thread would invalidate it.
 *
 * Waits for the GPU go between capture_pause() and capture_resume(). A capture that is about to begin waits for them,
 * but never longer than CAPTURE_PATIENCE_MS, because the work that the library waits for may need the capturing
 * thread.
 *
 * Locking: CAPTURE protects the list of capturing streams; capture_is_open() is one atomic load.
 */
#ifndef SPILLWAY_CAPTURE_H
#define SPILLWAY_CAPTURE_H

#include "shim/base/lock.h"

#include <cuda.h>
#include <stdbool.h>

#define CAPTURE_PATIENCE_MS 100

bool capture_is_open(void);

/*
 * Holds back new captures until capture_resume(). Returns false if a capture is open; the caller must then neither
 * wait for the GPU nor call capture_resume().
 */
bool capture_pause(void);
void capture_resume(void);

/*
 * Called before and after the real cuStreamBeginCapture*. per_thread: the entry point is a _ptsz one, whose stream 0 is
 * the per-thread default stream; context: the stream's; success: the call's result. Locking: capture_opened() takes
 * CAPTURE.
 */
void capture_opening(void);
void capture_opened(CUstream stream, bool per_thread, CUcontext context, bool success);
/*
 * Called after the real cuStreamEndCapture. still_capturing: it failed and left the capture open.
 * Locking: takes CAPTURE, as do the functions below up to capture_forget_context().
 */
void capture_closed(CUstream stream, bool per_thread, bool still_capturing);
/* Called when the stream or the context is about to end: forgets its captures, which end with it. */
void capture_forget(CUstream stream);
void capture_forget_context(CUcontext context);
/*
 * Between capture_relax() and capture_restore() the thread may query events without invalidating captures
 * (docs/facts.md, Stream capture). Returns the thread's previous mode, or CAPTURE_MODE_KEPT if the driver refused
 * repeatedly and the mode is unchanged.
 */
#define CAPTURE_MODE_KEPT ((CUstreamCaptureMode)-1)
CUstreamCaptureMode capture_relax(void);
void capture_restore(CUstreamCaptureMode mode);

extern struct lock capture_lock;

#endif
