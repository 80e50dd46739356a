/*
 * context.h: doing something in a context that may not be the current one, and waiting for one. The current context is
 * afterwards as it was.
 */
#ifndef SPILLWAY_CONTEXT_H
#define SPILLWAY_CONTEXT_H

#include <cuda.h>
#include <stdbool.h>

/* The current context, NULL when there is none. */
CUcontext context_current(void);

/* Make it current until context_leave(); NULL means the current one. False: it cannot be entered, it is gone. */
bool context_enter(CUcontext context, bool *ret_pushed);
void context_leave(bool pushed);

/*
 * Wait until all work of the context is done. For one that cannot be entered any more (a green context ends without a
 * word to us; its memory lives in the primary one) the current context is waited for instead.
 */
CUresult context_wait_idle(CUcontext context);

/*
 * An event of the context that has everything the context has been given so far before it. NULL when the driver cannot
 * do that (older than 12.5) or refuses. Never while a capture is open: it would be invalidated.
 */
CUevent context_record(CUcontext context);
/* The same for a stream; *ret_event, and the context it belongs to, are set on success alone. */
CUresult context_record_stream(CUstream stream, bool per_thread, CUevent *ret_event, CUcontext *ret_context);

#endif
