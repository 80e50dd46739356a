// SPDX-License-Identifier: Apache-2.0
/*
 * account.h: the account of what is live: a row enters the ledger when its memory was made, leaves when that is gone,
 * and is counted for its site, its place, its device's budget and the trace. Rows of mappings, and of memory of other
 * processes (ipc.c), are not counted, and enter by ledger_commit() alone.
 *
 * Called with the scope of process.h open. Locking: takes POOL, HEAP and LEDGER; the caller must hold none of them.
 */
#ifndef SPILLWAY_ACCOUNT_H
#define SPILLWAY_ACCOUNT_H

#include "shim/serve/backend.h"
#include "shim/accounting/ledger.h"
#include "shim/device/device.h"

#include <cuda.h>
#include <stddef.h>

/* A permission to ask the driver, from typed_alloc_claim() to account_note_claimed() or account_claim_end(). */
struct account_claim {
	int rule;                     /* rule that decided, -1: none */
	struct budget *cap;           /* of that rule: the bytes were taken from it; NULL: it has none */
	uint64_t pool;                /* number of the pool that they were claimed from (device.h), 0: none */
	enum policy_vmm spill;        /* vmm.spill */
	struct policy_size limit;     /* spill.limit */
	const struct call_site *site; /* what asked, NULL: not known */
};

/* Ends the claim: the driver did not make the memory after all. */
void account_claim_end(const struct account_claim *claim, size_t bytes);

/*
 * The program gets out of memory: counts it, and logs it once. What spill.limit refused (SW_LIMIT) is said and counted
 * beside what the budgets and the driver had no memory for.
 */
void account_refused(enum sw_status status, const struct device *device, size_t bytes, int rule,
		     const struct call_site *site);

/*
 * Makes known what the driver made without our doing, and counts it where it is. If out of memory for a row it stays
 * unknown, and its free goes to the driver like that of any unknown address. device: ordinal, or -1 for the current
 * one.
 */
void account_note(enum ledger_kind kind, uint64_t key, size_t bytes, int device);
/*
 * As account_note(), for what a rule decided about and whose bytes were claimed. They later go back where they were
 * claimed.
 */
void account_note_claimed(enum ledger_kind kind, uint64_t key, size_t bytes, int device,
			  const struct account_claim *claim);
/* As account_note(), for a row that is filled in already and a site (NULL: not known). Consumes `row`. */
void account_new(struct ledger_row *row, const struct call_site *site);
/* Before the driver frees the memory: takes the row out. Returns NULL if it is not known. */
struct ledger_row *account_forget(unsigned kinds, uint64_t key);
/* After the driver was asked. If it refused (freed is false), the row goes back. Accepts NULL. */
void account_forgotten(struct ledger_row *row, bool freed);
/*
 * An allocation was made for this caller (NULL: not known), requested through `api`: counts it for its site and makes
 * it known. Consumes `row`.
 */
void account_commit(struct ledger_row *row, enum policy_api api, const struct call_site *site);
/*
 * A block is to grow to so many bytes: takes what it lacks from its rule's cap. Returns false if the cap has no room.
 * When the heap was asked, account_grown() makes the new length known and counts it, also in its pool, or gives back to
 * the cap what was taken: all of it, or what another thread has taken, too, that grew the block meanwhile.
 */
bool account_grow(const struct ledger_row *row, size_t bytes);
void account_grown(const struct ledger_row *row, size_t bytes, bool grown);
/* Counts the row's memory, until now the heap's, as the driver's from now on. */
void account_drivers(const struct ledger_row *row);
/* Counts a row that has left the ledger as gone, and ends it. */
void account_drop(struct ledger_row *row);

/* ---- in the trace ---- */

/*
 * Trace events of allocations and frees (trace/trace.h): requested, refused, a row that is about to be
 * committed, and one that is freed. Kinds that are not memory of a device are left out. While the trace is off, each
 * call costs one relaxed load and a branch.
 */

/*
 * A free is recorded once the driver has not refused it, with the time at which it began: another thread may have the
 * address before the call returns.
 */
struct trace_freeing {
	uint64_t id, time; /* time 0: it is not recorded */
};
void trace_ask(const struct device *device, const struct backend_request *request);
void trace_refused(const struct device *device, const struct backend_request *request, int rule, int result);
/* Locking: looks at the heap, so the caller must hold no lock of the rank of HEAP or above. */
void trace_made(const struct ledger_row *row, uint32_t api, const struct call_site *site);
struct trace_freeing trace_freeing(const struct ledger_row *row); /* accepts NULL */
void trace_freed(struct trace_freeing freeing);

/* ---- CUDA arrays ---- */

/*
 * How much device memory a CUDA array takes. The driver does not say (cuArrayGetMemoryRequirements only
 * answers for arrays without memory of their own), so this is an estimate from the descriptor, charged to the budget:
 *
 *   texels x bytes of a texel, level by level, layers and the six faces of a cube included; block-compressed formats by
 *   blocks of 4 x 4; planar video formats with the share of their chroma planes; the sum rounded up to 512 bytes
 *
 * It does not include what the driver adds by tiling (up to 64 KiB a level, more for narrow ones); the reserve that
 * the default budget leaves (device.c) covers that. It is 0 for sparse arrays and those with deferred mapping: they
 * take nothing until memory of cuMemCreate, which is counted there, is mapped into them.
 */

size_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned levels);

#endif
