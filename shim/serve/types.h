/*
 * types.h: what files of this room keep for the process and others of them look at, in one object.
 */
#ifndef SPILLWAY_SERVE_TYPES_H
#define SPILLWAY_SERVE_TYPES_H

#include "shim/base/lock.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ledger_row;
struct segment; /* segments.c */

/* ---- deferred_free.c ---- */

struct deferred_free_state {
	struct lock lock;                /* DEFERRED_FREE */
	struct ledger_row *list, **tail; /* oldest first. Guarded by DEFERRED_FREE. */
	unsigned n_eventless;            /* rows among those without an event. Guarded by DEFERRED_FREE. */
	atomic_uint n_pending;           /* rows on the list; written under the lock, read without it: is there any? */
	_Atomic uint64_t n_added;        /* rows ever added; written by any thread, before it takes the lock */
	/*
	 * Contexts ended, ever; written under the lock. Who takes a row off the list reads it then, and again under the
	 * lock before it touches the row's event, which may have ended with a context meanwhile.
	 */
	atomic_uint n_ends;
};

/* ---- segments.c ---- */

struct segments_state {
	struct segment *list;    /* Guarded by DEFERRED_FREE. */
	atomic_uint n_waiting;   /* whose event is worth a query; written under the lock, read without it */
	_Atomic uint64_t ticked; /* ns: time of the last tick, 0: none yet; written by the thread of the ticks */
	_Atomic bool beside;     /* spill.mode was changed to `fast`; written under the lock, read without it */
};

/* ---- vmm.c ---- */

struct vmm_state {
	/*
	 * VMM: protects the choice whether a handle, which one thread maps and another one exports, becomes the
	 * driver's or is placed. Either caller takes a reference first, so that the handle does not end meanwhile.
	 * Held from the question whether addresses are free to the row of what is mapped there.
	 */
	struct lock lock;
	_Atomic uint64_t n_handles; /* handles of ours made, ever */
};

struct serve_state {
	struct deferred_free_state deferred_free;
	struct segments_state segments;
	struct vmm_state vmm;
};

/* Hidden, so that its address is not loaded from the GOT. */
extern struct serve_state serve_state __attribute__((visibility("hidden")));

#endif
