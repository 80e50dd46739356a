// SPDX-License-Identifier: Apache-2.0
/*
 * deferred_free.h: deferred frees: blocks of ours that cannot be freed yet, because a capture was open when the
 * program freed, or because cuMemFreeAsync put the free behind a stream; and memory of other processes that the program
 * has closed (ipc.c), which is unmapped in the same way. The program no longer has them: their rows
 * are out of the ledger and on a list here, by ->next, oldest first, each with an event to wait for (of context
 * row->pending.context) or without one.
 *
 * A row without an event waits for the whole context of its memory, or of the green one that it waited in before. It
 * gets an event as soon as no capture is open (the driver can record one behind all work of a context); until then it
 * is freed when some free has seen the context idle.
 *
 * Locking: DEFERRED_FREE is held while rows are examined. Events are queried and ended under it, which does not wait,
 * and HEAP may be taken under it (heap_room_of). It is dropped before rows are released.
 */
#ifndef SPILLWAY_DEFERRED_FREE_H
#define SPILLWAY_DEFERRED_FREE_H

#include "shim/heap/heap.h"
#include "shim/accounting/ledger.h"

/* How long an allocation that finds no memory waits for deferred frees, before it spills or is out of memory. */
#define DEFERRED_FREE_PATIENCE_MS 5

struct device;

/* Adds the row to the list. Consumes `row`. Needs no memory. */
void deferred_free_add(struct ledger_row *row);
bool deferred_free_any(void);
/* Returns true if a block that is still to be freed begins at the address. */
bool deferred_free_has(CUdeviceptr address);
/*
 * Returns how many rows were ever added. The caller takes it before a wait, and passes it to
 * deferred_free_context_idle().
 */
uint64_t deferred_free_mark(void);

/*
 * After a free behind a stream: returns true if it is time to look for completed ones. Always, while few are
 * deferred.
 */
bool deferred_free_is_due(void);
/* Frees what is done. Never waits for the GPU, harms no capture. Returns how many of the device's blocks were freed. */
unsigned deferred_free_reap(int device);
/* About once a second: the same for what has an event, also if the program makes no calls. */
void deferred_free_tick(void);
/* Repeats deferred_free_reap() until a block of the device was freed or DEFERRED_FREE_PATIENCE_MS are over. */
bool deferred_free_wait(struct device *device);
/* The context was seen idle by a wait that began after `before` rows had been added: frees those that wait for it. */
void deferred_free_context_idle(CUcontext context, uint64_t before);

/*
 * Memory freed behind a stream may be used again before the stream has reached the free, by an allocation that comes
 * behind it too (serve.h). Both functions return the row, without an event, of the smallest block that fits, or NULL.
 * _behind: freed in the same order. _after: freed in another order of the same context; the stream is then made to
 * wait for that, if the driver lets it.
 */
struct deferred_free_want {
	int device;
	bool fixed;
	enum heap_from from; /* where it may lie */
	size_t bytes, most;  /* the block must hold `bytes`, and may hold at most `most` */
	CUcontext context;   /* of the stream */
	uint64_t order;      /* as in the ledger's rows */
};
struct ledger_row *deferred_free_take_behind(const struct deferred_free_want *want);
struct ledger_row *deferred_free_take_after(const struct deferred_free_want *want, CUstream stream, bool per_thread);
/* Before a stream is destroyed: its handle may be used again, for a stream that is behind nothing. */
void deferred_free_stream_ending(CUstream stream);

/*
 * Before a context ends: takes what waits for it (a list by ->next). What waits for work of a green context stays, and
 * waits for its primary one: its work goes on when cuGreenCtxDestroy() has returned (docs/facts.md). If the context has
 * ended, the caller must call deferred_free_release(), which frees the rows without touching their events, which ended
 * with it; if not, deferred_free_put_back().
 */
struct ledger_row *deferred_free_take_context(CUcontext context);
void deferred_free_release(struct ledger_row *rows);
void deferred_free_put_back(struct ledger_row *rows);

#endif
