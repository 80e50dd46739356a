/*
 * deferred_free.h: frees of blocks of ours that cannot happen yet: because a capture was open when the program freed, or
 * because cuMemFreeAsync put them behind a stream. The program no longer has them: their rows are out of the ledger and
 * lie here, linked by ->next, each with an event to wait for (of context row->event_context) or without one.
 *
 * A row without an event waits for its whole context. It gets an event as soon as no capture is open (the driver can
 * record one behind all work of a context); until then it is freed when some free has seen the context idle.
 *
 * Lock: PENDING, over the look at each row: queries and ends of events, which do not wait. Dropped before HEAP is
 * taken. Oldest first.
 */
#ifndef SPILLWAY_DEFERRED_FREE_H
#define SPILLWAY_DEFERRED_FREE_H

#include "shim/heap/heap.h"
#include "shim/accounting/ledger.h"
#include "shim/base/lock.h"

/* How long an allocation that finds no room waits for pending frees, before it spills or is out of memory. */
#define DEFERRED_FREE_PATIENCE_MS 5

/* Takes over the row. Needs no memory. */
void deferred_free_add(struct ledger_row *row);
bool deferred_free_any(void);
/* Does a block that is still to be freed begin there? */
bool deferred_free_has(CUdeviceptr address);
/* How many were ever added, to be taken before a wait whose end is told to deferred_free_context_idle(). */
uint64_t deferred_free_mark(void);

/* After a free behind a stream: is it time to look for what is done? Always, while little is pending. */
bool deferred_free_is_due(void);
/* Free what is done. Never waits for the GPU, harms no capture. Returns how many of the device's were freed. */
unsigned deferred_free_reap(int device);
/* The same, again and again until one of the device's was freed or DEFERRED_FREE_PATIENCE_MS are over. */
bool deferred_free_wait(int device);
/* The context was seen idle by a wait that began after `before` rows had been added: free those that wait for it. */
void deferred_free_context_idle(CUcontext context, uint64_t before);

/*
 * Memory freed behind a stream may be used again before the stream has passed, by whoever comes behind it too (async.h).
 * The smallest block that fits, its row without an event; NULL: there is none. _behind: freed in this very order.
 * _after: freed in another one of the same context, and the stream now waits for that, where the driver lets it.
 */
struct deferred_free_want {
	int device;
	bool fixed;
	enum heap_from from; /* where it may lie */
	size_t bytes, most;  /* what the block must hold, and may hold */
	CUcontext context;   /* of the stream */
	uint64_t order;      /* as in the ledger's rows */
};
struct ledger_row *deferred_free_take_behind(const struct deferred_free_want *want);
struct ledger_row *deferred_free_take_after(const struct deferred_free_want *want, CUstream stream, bool per_thread);
/* A stream is about to be destroyed: its handle may come again, for a stream that is behind nothing. */
void deferred_free_stream_ending(CUstream stream);

/*
 * A context is about to end: take what waits for it (a list by ->next). When it has ended deferred_free_release() frees them
 * without touching their events, which ended with it; when it has not, deferred_free_put_back().
 */
struct ledger_row *deferred_free_take_context(CUcontext context);
void deferred_free_release(struct ledger_row *rows);
void deferred_free_put_back(struct ledger_row *rows);

extern struct lock deferred_free_lock;

#endif
