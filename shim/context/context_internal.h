/*
 * context_internal.h: functions that the files of context.h share. Each file calls only earlier ones of this list:
 * current.c, the current context; green.c, green contexts; context_event.c, events; context_all.c, the table of all
 * contexts.
 */
#ifndef SPILLWAY_CONTEXT_INTERNAL_H
#define SPILLWAY_CONTEXT_INTERNAL_H

#include "shim/context/context.h"

/* ---- green.c ---- */
/* Records the context, the primary context and the device of a green context that was created. */
void context_green_add(CUgreenCtx green, CUcontext context, CUcontext primary, CUdevice device);

/* ---- context_event.c ---- */
/* Drops the kept events of a context that ends. gone: they have ended with it already. Locking: takes EVENTS. */
void context_events_drop(CUcontext context, bool gone);

#endif
