/*
 * own.h: rules about memory whose kind the program has chosen itself: managed, pinned and virtual memory, and what its
 * pools serve. The driver makes it, but a rule may deny it, bound it, or put pages of the system in the place of managed
 * memory. Only rules that name the api decide (policy.h); without one there is nothing to be looked at here.
 *
 * No lock. Called with the scope of enter.h open.
 */
#ifndef SPILLWAY_OWN_H
#define SPILLWAY_OWN_H

#include "shim/serve/serve.h"

/* The leave to ask the driver, from own_claim() to own_note() or own_claim_end(). */
struct own_claim {
	int rule;              /* that decided, -1: none */
	struct budget *cap;    /* of that rule, from which the bytes were taken; NULL: it has none */
	uint64_t pool;         /* the number of the pool that they were claimed of (pool.h), 0: of none */
	enum policy_vmm spill; /* vmm.spill */
};

/*
 * May the program have it from the driver? False: denied, or over the cap of its rule, which has been counted and said.
 * device: NULL for the current one. caller: where in the program it was asked for.
 */
bool own_claim(enum policy_api api, struct device *device, size_t bytes, void *caller, struct own_claim *ret_claim);
/* The driver did not give it after all. */
void own_claim_end(const struct own_claim *claim, size_t bytes);
/* It did: as serve_note(). */
void own_note(enum ledger_kind kind, uint64_t key, size_t bytes, int device, const struct own_claim *claim);

/* cuMemAllocManaged. */
CUresult own_managed(CUdeviceptr *ret_address, size_t bytes, unsigned flags, void *caller);

#endif
