/*
 * accounting_state.h: everything that this room keeps for the process, in one object. Only the files of the room use
 * it, and tests. va_ranges_any (ledger.h), which serve/ reads, stays apart and is defined beside the object.
 */
#ifndef SPILLWAY_ACCOUNTING_STATE_H
#define SPILLWAY_ACCOUNTING_STATE_H

#include "shim/accounting/quota.h"
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

struct va_range;

struct va_ranges_state {
	struct lock lock;        /* VA_RANGES */
	struct va_range *spaces; /* under the lock */
};

/* ---- quota.c ---- */

struct quota_state {
	_Atomic int state;        /* enum state of quota.c */
	struct quota_terms terms; /* set once, before state; the total in it is written under `taking` */
	/* QUOTA_TAKE. Held while joining, and for one take at a time. Taken by threads that take host memory. */
	struct lock taking;
	/* QUOTA_SEAT. Orders the writes of the slot. Never held over a wait. */
	struct lock publishing;
	struct shared_file seat; /* replaced under both locks */
	/* What this process has taken, wants and does not use, whatever happens to the file. Under `publishing`. */
	struct quota_slot mine;
	uint64_t last_sweep; /* clock_now() of the last sweep_if_due() that was due; under `taking` */
	/* Times in ns, constant but in tests, which change them. */
	uint64_t want_lasts;  /* how long a refusal is known to others; a process that still wants asks again */
	uint64_t sweep_every; /* how often a refused process looks for the dead */
	uint64_t patience;    /* how long the lock of the file is waited for */
};

struct accounting_state {
	struct ledger_state ledger;
	struct va_ranges_state va_ranges;
	struct quota_state quota;
	_Atomic bool has_forked; /* a child may have the shared files open (shared_forked()) */
};

/* Hidden, so that its address is not loaded from the GOT. */
extern struct accounting_state accounting_state __attribute__((visibility("hidden")));

#endif
