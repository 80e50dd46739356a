/*
 * backend.h: where an allocation can live. One constant table of functions for each place; serve.c asks the policy,
 * then calls through these (its table of places says which).
 *
 * No ledger lock is held in any of them. A request is what the program asked; a backend fills in the row's key, block
 * and *ret_pitch.
 */
#ifndef SPILLWAY_BACKEND_H
#define SPILLWAY_BACKEND_H

#include "policy/policy.h"
#include "shim/device.h"
#include "shim/ledger.h"

struct backend_request {
	size_t bytes;                  /* what it needs, pitch and all */
	size_t width, height, element; /* of a pitched allocation; height 0 = a plain one */
	enum policy_api api;           /* MALLOC (0) also for a pitched one */
	void *caller;                  /* where in the program it was asked for; NULL = not known */
	/* Set by serve.c for the backend: place, settings of managed and system memory. */
	const struct policy_decision *decision;
};

struct backend {
	const char *name;
	/* NO_MEMORY: no room here. NOT_SUPPORTED: this device cannot; try the next backend. */
	enum sw_status (*alloc)(struct device *device, const struct backend_request *request, struct ledger_row *row,
				size_t *ret_pitch);
	/* As cuMemFree: returns when work submitted before is done. Takes over the row on success. */
	CUresult (*free)(struct ledger_row *row);
	/* The memory is known to be idle: give it back at once and end the row. NULL where the driver does it. */
	void (*release)(struct ledger_row *row);
};

extern const struct backend backend_vmm;  /* the heap; kind LEDGER_HEAP */
extern const struct backend backend_pass; /* where the driver would have put it; kind LEDGER_DRIVER */

/* The pitch for rows of that many bytes: the driver's for cuMemAlloc memory is a multiple of 512 (measured, H200). */
#define BACKEND_PITCH 512

#endif
