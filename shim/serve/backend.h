/*
 * backend.h: where an allocation can live. One constant table of functions for each place; serve.c asks the policy,
 * then calls through these (its table of places says which).
 *
 * No ledger lock is held in any of them. A request is what the program asked, and what the policy says of it; a backend
 * fills in the row's kind, key, home and what else it needs there, and *ret_pitch. All but pass count their live bytes by
 * themselves, from alloc to release.
 */
#ifndef SPILLWAY_BACKEND_H
#define SPILLWAY_BACKEND_H

#include "policy/policy.h"
#include "shim/device/device.h"
#include "shim/accounting/ledger.h"

/* Advice for managed memory, bits. Of several preferred locations the device counts. */
enum backend_advice {
	BACKEND_READ_MOSTLY = 1 << 0,
	BACKEND_PREFER_DEVICE = 1 << 1,
	BACKEND_PREFER_HOST = 1 << 2,
	BACKEND_ACCESSED_BY_DEVICE = 1 << 3,
	BACKEND_ACCESSED_BY_HOST = 1 << 4,
};
enum backend_prefetch {
	BACKEND_PREFETCH_NONE,
	BACKEND_PREFETCH_ON_ALLOC,
	BACKEND_PREFETCH_BEFORE_LAUNCH, /* by every launch that names it */
};
struct backend_managed_settings {
	unsigned advice; /* enum backend_advice */
	int device;      /* that the advice means; -1: the one the program allocates on */
	enum backend_prefetch prefetch;
	uint64_t headroom; /* bytes of the device that no prefetch of ours fills */
};
struct backend_system_settings {
	/* Where the device does not reach pageable memory; else there is none of this place there. */
	bool register_pages;
	bool huge;     /* ask for transparent huge pages */
	int numa_node; /* where the pages should lie; -1: where they are first touched */
};

struct backend_request {
	size_t bytes;                  /* what it needs, pitch and all */
	size_t width, height, element; /* of a pitched allocation; height 0 = a plain one */
	enum policy_api api;           /* MALLOC (0) also for a pitched one */
	void *caller;                  /* where in the program it was asked for; NULL = not known */
	/* Set by serve.c for the backend. */
	const struct policy_decision *decision;         /* NULL: placed as with auto */
	const struct backend_managed_settings *managed; /* NULL: no advice, no prefetch */
	const struct backend_system_settings *system;   /* NULL: pageable memory or nothing, small pages, anywhere */
};

struct backend {
	const char *name;
	/* NO_MEMORY: no room here. NOT_SUPPORTED: this device cannot; try the next backend. */
	enum sw_status (*alloc)(struct device *device, const struct backend_request *request, struct ledger_row *row,
				size_t *ret_pitch);
	/*
	 * As cuMemFree: returns when work submitted before is done. Takes over the row on success; where the row has a
	 * home also on failure: it is back in the ledger, or will be free later.
	 */
	CUresult (*free)(struct ledger_row *row);
	/* The memory is known to be idle: give it back at once and end the row. NULL where the driver does it. */
	void (*release)(struct ledger_row *row);
};

extern const struct backend backend_heap;    /* the heap; kind LEDGER_HEAP */
extern const struct backend backend_pass;    /* where the driver would have put it; kind LEDGER_DRIVER */
extern const struct backend backend_managed; /* cuMemAllocManaged; kind LEDGER_MANAGED */
extern const struct backend backend_system;  /* pages of the process; kind LEDGER_SYSTEM */

/* Where a decision (NULL: none) lets heap memory begin. */
enum heap_from backend_heap_from(const struct policy_decision *decision);

/*
 * Take memory of the device's heap, by heap_alloc() or a kin of it, with what is to be done for it: room that is only
 * waiting to be free is looked for, and what went to the host is told. As backend.alloc.
 */
typedef enum sw_status (*backend_heap_make)(struct heap *heap, size_t bytes, enum chunk_kind kind, enum heap_from from,
					    struct heap_grant *ret_grant);
enum sw_status backend_heap_take(struct device *device, size_t bytes, enum chunk_kind kind, enum heap_from from,
				 backend_heap_make make, struct heap_grant *ret_grant);

/* free() of those that release: wait until the context is idle, then release. In a capture it is put off. */
CUresult backend_free_idle(struct ledger_row *row);

/* The pitch for rows of that many bytes: the driver's for cuMemAlloc memory is a multiple of 512 (measured, H200). */
#define BACKEND_PITCH 512

#endif
