// SPDX-License-Identifier: Apache-2.0
/*
 * backend.h: backends: where an allocation can live. Each place has one constant table of functions; serve.c asks the
 * policy, then calls through these (its table of places says which).
 *
 * A request is what the program asked, and what the policy says of it; a backend fills in the row's kind, key, home
 * and what else it needs there. All but backend_pass count their live bytes themselves, from alloc to release.
 *
 * Locking: called without LEDGER.
 */
#ifndef SPILLWAY_BACKEND_H
#define SPILLWAY_BACKEND_H

#include "policy/policy.h"
#include "shim/base/call_site.h"
#include "shim/device/device.h"
#include "shim/accounting/ledger.h"

struct backend_request {
	size_t bytes;                  /* bytes needed, pitch included */
	size_t width, height, element; /* of a pitched allocation; height 0 = a plain one */
	enum policy_api api;           /* that asked */
	void *caller;                  /* caller's address in the program; NULL = not known */
	const struct call_site *site;  /* what asked, found by serve.c, async.c; NULL = not known */
	/* Set by serve.c for the backend. */
	const struct policy_decision *decision; /* NULL, for the heap alone: placed as with auto */
	bool on_use;                            /* the heap may serve it by memory that is taken on use */
	size_t *ret_pitch;                      /* the driver's pitch, written by backend_pass alone */
};

struct backend {
	/*
	 * Returns NO_MEMORY if there is no memory here, LIMIT if spill.limit leaves no room, NOT_SUPPORTED if this
	 * device cannot; then the next backend is tried.
	 */
	enum sw_status (*alloc)(struct device *device, const struct backend_request *request, struct ledger_row *row);
	/*
	 * As cuMemFree: returns when work submitted before is done. Consumes the row on success; if the row has a
	 * home, also on failure: it is back in the ledger, or will be freed later.
	 */
	CUresult (*free)(struct ledger_row *row);
	/* The memory is known to be idle: gives it back at once and ends the row. NULL if the driver does it. */
	void (*release)(struct ledger_row *row);
};

extern const struct backend backend_heap;    /* the heap; kind LEDGER_HEAP (this and the next: make_room.c) */
extern const struct backend backend_pass;    /* where the driver would have put it; kind LEDGER_DRIVER */
extern const struct backend backend_managed; /* cuMemAllocManaged; kind LEDGER_MANAGED */
extern const struct backend backend_system;  /* pages of the process; kind LEDGER_SYSTEM */

/*
 * The free of a backend whose memory the driver does not free: waits until the context is idle, then releases the row;
 * if that cannot be, the free is deferred.
 */
CUresult backend_free_idle(struct ledger_row *row);

/* ---- the heap's ---- */

/* Returns where a decision (NULL: none) lets heap memory begin. */
enum heap_from backend_heap_from(const struct policy_decision *decision);

/*
 * Takes memory of the device's heap, by heap_alloc() or a variant (`make`), which gets what is in *ret_grant. Looks for
 * memory that is about to become free first, and starts the mover if memory went to the host. Returns as backend.alloc.
 */
typedef enum sw_status (*backend_heap_make)(struct heap *heap, size_t bytes, enum chunk_kind kind, enum heap_from from,
					    struct heap_grant *ret_grant);
enum sw_status backend_heap_take(struct device *device, size_t bytes, enum chunk_kind kind, enum heap_from from,
				 struct policy_size limit, backend_heap_make make, struct heap_grant *ret_grant);
/* No spill.limit. */
#define BACKEND_NO_LIMIT ((struct policy_size){0})
/*
 * Returns what all memory of the device's heap, wherever it is, may come to with this spill.limit, with all else that
 * the device budget is charged with; UINT64_MAX without one. In turns, and while it is away, the budget is what it
 * has in its turn.
 */
uint64_t backend_heap_most(const struct device *device, struct policy_size limit);

/*
 * Must be called when an allocation that is backed on use has got memory or contents: where nothing is lacking any
 * more, launches are looked at no longer. Locking: takes MANAGED and HEAP.
 */
void on_use_settle(void);
/* Has launches looked at for this allocation, from before the program knows the address. Locking: takes MANAGED. */
void on_use_begins(CUdeviceptr address, uint64_t bytes);

/* The pitch is a multiple of this. Measured (H200): the driver's pitch for cuMemAlloc memory is a multiple of 512. */
#define BACKEND_PITCH 512

#endif
