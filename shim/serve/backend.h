/*
 * backend.h: backends: where an allocation can live. Each place has one constant table of functions; serve.c asks the
 * policy, then calls through these (its table of places says which).
 *
 * A request is what the program asked, and what the policy says of it; a backend fills in the row's kind, key, home
 * and what else it needs there, and *ret_pitch. All but backend_pass count their live bytes themselves, from alloc to
 * release.
 *
 * Locking: called without LEDGER.
 */
#ifndef SPILLWAY_BACKEND_H
#define SPILLWAY_BACKEND_H

#include "policy/policy.h"
#include "shim/base/call_site.h"
#include "shim/device/device.h"
#include "shim/accounting/ledger.h"

/* Advice for managed memory, bits. Of several preferred locations the device has precedence. */
enum backend_advice {
	BACKEND_READ_MOSTLY = 1 << 0,
	BACKEND_PREFER_DEVICE = 1 << 1,
	BACKEND_PREFER_HOST = 1 << 2,
	BACKEND_ACCESSED_BY_DEVICE = 1 << 3,
	BACKEND_ACCESSED_BY_HOST = 1 << 4,
};
struct backend_managed_settings {
	unsigned advice; /* enum backend_advice */
	int device;      /* device that the advice is for; -1: the one the program allocates on */
	bool prefetch;   /* to the device, once it is allocated */
};
struct backend_system_settings {
	/*
	 * Register the pages if the device does not reach pageable memory; if false, such a device has no system
	 * memory.
	 */
	bool register_pages;
	bool huge;     /* ask for transparent huge pages */
	int numa_node; /* where the pages should lie; -1: where they are first touched */
};

struct backend_request {
	size_t bytes;                  /* bytes needed, pitch included */
	size_t width, height, element; /* of a pitched allocation; height 0 = a plain one */
	enum policy_api api;           /* MALLOC (0) also for a pitched one */
	void *caller;                  /* caller's address in the program; NULL = not known */
	const struct call_site *site;  /* what asked, found by serve.c, async.c; NULL = not known */
	/* Set by serve.c for the backend. */
	const struct policy_decision *decision;         /* NULL: placed as with auto */
	bool on_use;                                    /* the heap may serve it by memory that is taken on use */
	const struct backend_managed_settings *managed; /* NULL: no advice, no prefetch */
	const struct backend_system_settings *system;   /* NULL: pageable memory or nothing, small pages, anywhere */
};

struct backend {
	const char *name;
	/*
	 * Returns NO_MEMORY if there is no memory here, NOT_SUPPORTED if this device cannot; then the next backend is
	 * tried.
	 */
	enum sw_status (*alloc)(struct device *device, const struct backend_request *request, struct ledger_row *row,
				size_t *ret_pitch);
	/*
	 * As cuMemFree: returns when work submitted before is done. Consumes the row on success; if the row has a
	 * home, also on failure: it is back in the ledger, or will be freed later.
	 */
	CUresult (*free)(struct ledger_row *row);
	/* The memory is known to be idle: gives it back at once and ends the row. NULL if the driver does it. */
	void (*release)(struct ledger_row *row);
};

extern const struct backend backend_heap;    /* the heap; kind LEDGER_HEAP */
extern const struct backend backend_pass;    /* where the driver would have put it; kind LEDGER_DRIVER */
extern const struct backend backend_managed; /* cuMemAllocManaged; kind LEDGER_MANAGED */
extern const struct backend backend_system;  /* pages of the process; kind LEDGER_SYSTEM */

/* Returns where a decision (NULL: none) lets heap memory begin. */
enum heap_from backend_heap_from(const struct policy_decision *decision);

/*
 * Takes memory of the device's heap, by heap_alloc() or a variant (`make`), which gets what is in *ret_grant. Looks for
 * memory that is about to become free first, and starts the mover if memory went to the host. Returns as backend.alloc.
 */
typedef enum sw_status (*backend_heap_make)(struct heap *heap, size_t bytes, enum chunk_kind kind, enum heap_from from,
					    struct heap_grant *ret_grant);
enum sw_status backend_heap_take(struct device *device, size_t bytes, enum chunk_kind kind, enum heap_from from,
				 backend_heap_make make, struct heap_grant *ret_grant);

/* The pitch is a multiple of this. Measured (H200): the driver's pitch for cuMemAlloc memory is a multiple of 512. */
#define BACKEND_PITCH 512

#endif
