/*
 * context_internal.h: what the files of context.h share. Each calls those before it alone: current.c, being in a context;
 * green.c, green ones; context_event.c, events; context_all.c, every context of the process.
 */
#ifndef SPILLWAY_CONTEXT_INTERNAL_H
#define SPILLWAY_CONTEXT_INTERNAL_H

#include "shim/context/context.h"

/* ---- green.c ---- */
/* A green context was made, or its handle is given out again: notes its context and the primary one that it belongs to. */
void context_green_add(CUgreenCtx green, CUcontext context, CUcontext primary, CUdevice device);

/* ---- context_event.c ---- */
/* The context is about to end: what is kept of its events goes. gone: they have ended with it. */
void context_events_drop(CUcontext context, bool gone);

#endif
