/*
 * pending.h: frees of heap blocks that cannot happen yet: because a capture was open when the program freed (then they
 * wait for the next moment the context is idle), or because cuMemFreeAsync put them behind a stream (then for an
 * event). The program no longer has them: their rows are out of the ledger and lie here, linked by ->next.
 *
 * Lock: PENDING, dropped before any driver call and before HEAP.
 */
#ifndef SPILLWAY_PENDING_H
#define SPILLWAY_PENDING_H

#include "shim/ledger.h"
#include "shim/lock.h"

/* Takes over the row. row->event: what to wait for, or NULL. Needs no memory. */
void pending_add(struct ledger_row *row);
bool pending_any(void);
/* Free those whose event has passed. Never waits, harms no capture. */
void pending_reap(void);
/* The context was just seen idle: free those that waited for that; and those whose event passed with it. */
void pending_context_idle(CUcontext context);
/* Wait for everything pending and free it, unless a capture is open. False: nothing was freed. */
bool pending_drain(void);
/* The context is gone, its events too: free without asking. */
void pending_context_gone(CUcontext context);

extern struct lock pending_lock;

#endif
