/*
 * accounting_state.h: everything that this room keeps for the process, in one object. Only the files of the room use
 * it, and tests. va_ranges_any (va_ranges.h), which serve/ reads, stays apart and is defined beside the object.
 */
#ifndef SPILLWAY_ACCOUNTING_STATE_H
#define SPILLWAY_ACCOUNTING_STATE_H

#include "shim/accounting/quota_internal.h"
#include "shim/base/lock.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* ---- ledger.c ---- */

#define LEDGER_FIRST_BUCKETS 256

struct ledger_row;

/* They only widen. */
struct ledger_bounds {
	_Atomic uint64_t low, high;
};

struct ledger_state {
	struct lock lock; /* LEDGER, over all that follows but the atomics */
	size_t n_rows;
	struct ledger_row *idle_rows; /* rows that wait for reuse */
	size_t n_idle;
	size_t n_spans, n_spanning, spans_room; /* in the array; with those out of the ledger; allocated */
	_Atomic uint64_t next_id;               /* begins far from the driver's own buffer ids, which count from 1 */
	struct ledger_row *first_table[LEDGER_FIRST_BUCKETS];
	/* Read often and written seldom, so it lies apart from the lock. */
	struct ledger_row **table;
	size_t n_buckets;
	struct ledger_row **spans;       /* committed ones, by key, never overlapping */
	struct ledger_bounds all;        /* of all that ever spanned */
	atomic_uint n_sync_memops;
};

/* ---- va_ranges.c ---- */

struct va_range;

struct va_ranges_state {
	struct lock lock;        /* VA_RANGES */
	struct va_range *spaces; /* under the lock */
};

/* ---- quota.c, quota_join.c, quota_view.c ---- */

struct quota_state {
	_Atomic int state;        /* enum state of quota.c */
	struct quota_terms terms; /* set once, before state; the total in it is written under `taking` */
	_Atomic uint64_t refusals;
	/* QUOTA_TAKE. Held while joining, and for one claim at a time. Taken by threads that take host memory. */
	struct lock taking;
	/*
	 * QUOTA_SEAT. Keeps `seat` from being replaced, and orders the writes of held and spare. Never held over a
	 * wait. seat itself changes under both locks.
	 */
	struct lock publishing;
	struct quota_seat seat;
	/*
	 * What this process has taken, and the part of it kept for its next use, whatever happens to the file. Under
	 * `publishing`.
	 */
	uint64_t held, spare;
	_Atomic uint64_t wanted_until; /* as in our slot; 0: nothing is wanted */
	uint64_t last_sweep;           /* clock_now() of the last sweep_if_due() that was due; under `taking` */
	/* Times in ns, constant but in tests, which change them. */
	uint64_t patience;      /* how long another's claim is waited for */
	uint64_t want_lasts;    /* how long a refusal is known to others; a process that still wants asks again */
	uint64_t sweep_every;   /* how often a refused process looks for the dead */
	uint64_t join_patience; /* how long a joining process waits for the lock of byte 0 */
};

struct accounting_state {
	struct ledger_state ledger;
	struct va_ranges_state va_ranges;
	struct quota_state quota;
	_Atomic bool has_forked; /* a child may have the shared files open (gpu_account_forked) */
};

/* Hidden, so that its address is not loaded from the GOT. */
extern struct accounting_state accounting_state __attribute__((visibility("hidden")));

#endif
