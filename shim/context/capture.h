/*
 * capture.h: is any stream capture open? While one is, nothing of ours may wait for the GPU (docs/facts.md, Stream
 * capture): a cuCtxSynchronize from any thread would invalidate it.
 *
 * Lock: CAPTURE, for the list of capturing streams; the question itself is one atomic load. Waits for the GPU go
 * between capture_pause() and capture_resume(): a capture that wants to begin meanwhile waits for them, but never
 * longer than CAPTURE_PATIENCE_MS, because what we wait for may need the capturing thread.
 */
#ifndef SPILLWAY_CAPTURE_H
#define SPILLWAY_CAPTURE_H

#include "shim/base/lock.h"

#include <cuda.h>
#include <stdbool.h>

#define CAPTURE_PATIENCE_MS 100

bool capture_is_open(void);

/* False: a capture is open, do not wait for the GPU. True: captures stay away until capture_resume(). */
bool capture_pause(void);
void capture_resume(void);

/*
 * Around the real cuStreamBeginCapture*: opening() before it, opened() after it with its result. per_thread: the entry
 * point is a _ptsz one, whose stream 0 is this thread's own.
 */
void capture_opening(void);
void capture_opened(CUstream stream, bool per_thread, bool success);
/* After the real cuStreamEndCapture; still_capturing: it failed in a way that left the capture open. */
void capture_closed(CUstream stream, bool per_thread, bool still_capturing);
/* The stream, or everything of the context, is about to end, and captures in it with it. */
void capture_forget(CUstream stream);
void capture_forget_context(CUcontext context);
/*
 * Look whether what is on the list still captures: a thread may have ended in the middle of a capture of its own default
 * stream, and such a capture can never be ended. Queries alone; harms no capture. True when one is really open.
 */
bool capture_is_really_open(void);

/*
 * Our thread may query events without harm to captures, between relax and restore (docs/facts.md, Stream capture). What
 * its mode was; CAPTURE_MODE_KEPT: the driver refused, again and again, and it is what it was.
 */
#define CAPTURE_MODE_KEPT ((CUstreamCaptureMode)-1)
CUstreamCaptureMode capture_relax(void);
void capture_restore(CUstreamCaptureMode mode);

extern struct lock capture_lock;

#endif
