/*
 * account.h: what is live is in the ledger, and counted: for its site, its place, its device's budget and the trace. A row
 * goes in when its memory was made, and out when that is gone, by these functions alone.
 *
 * Called with the scope of enter.h open. Locking: LEDGER and POOL are taken inside; the caller holds neither.
 */
#ifndef SPILLWAY_ACCOUNT_H
#define SPILLWAY_ACCOUNT_H

#include "shim/serve/backend.h"

#include <cuda.h>

/* The leave to ask the driver, from typed_alloc_claim() to account_note_claimed() or account_claim_end(). */
struct account_claim {
	int rule;              /* that decided, -1: none */
	struct budget *cap;    /* of that rule, from which the bytes were taken; NULL: it has none */
	uint64_t pool;         /* the number of the pool that they were claimed of (pool.h), 0: of none */
	enum policy_vmm spill; /* vmm.spill */
};

/* The driver did not give it after all. */
void account_claim_end(const struct account_claim *claim, size_t bytes);

/* The budgets and the driver have no room for that many bytes: counted, and said once. */
void account_refused(const struct device *device, size_t bytes, int rule, void *caller);

/*
 * What the driver gave without our doing: make it known and count it where it is. Without memory for a row it stays
 * unknown, and its free goes to the driver like any stranger's. device: ordinal, or -1 for the current one.
 */
void account_note(enum ledger_kind kind, uint64_t key, size_t bytes, int device);
/* The same for what a rule decided about, whose bytes were claimed: they go back to where they were claimed. */
void account_note_claimed(enum ledger_kind kind, uint64_t key, size_t bytes, int device,
			  const struct account_claim *claim);
/* The same for a row that is filled in already. Takes it over. */
void account_new(struct ledger_row *row);
/* Before the driver frees it: take the row out; NULL: not known. */
struct ledger_row *account_forget(unsigned kinds, uint64_t key);
/* After: freed is false when the driver refused, then the row goes back. Accepts NULL. */
void account_forgotten(struct ledger_row *row, bool freed);
/*
 * An allocation was made for this caller (NULL: not known), asked for like that: count it for its site and make it known.
 * Takes it over.
 */
void account_commit(struct ledger_row *row, enum policy_api api, void *caller);
/* Memory that was the heap's is the driver's from now on, and counts as that. */
void account_drivers(const struct ledger_row *row);
/* Count a row that has left the ledger as gone, and end it. */
void account_drop(struct ledger_row *row);

#endif
