/*
 * context_inside.h: what the files of context.h share: context.c, being in a context; context_event.c, events behind what
 * one has been given; context_all.c, every context of the process.
 */
#ifndef SPILLWAY_CONTEXT_INSIDE_H
#define SPILLWAY_CONTEXT_INSIDE_H

#include "shim/context/context.h"

/* ---- context_all.c ---- */
/*
 * Between these the context does not end. False: it may be about to end, and is not visited. One
 * that nobody told us of is not counted. They take the lock of the table of contexts; none may be held that is taken
 * under it.
 */
bool context_visit(CUcontext context);
void context_visit_end(CUcontext context);

/* ---- context_event.c ---- */
/* The context is about to end: what is kept of its events goes. gone: they have ended with it. */
void context_events_drop(CUcontext context, bool gone);

#endif
