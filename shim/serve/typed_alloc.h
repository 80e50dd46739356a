/*
 * typed_alloc.h: rules about memory whose kind the program has chosen itself: managed, pinned and virtual memory, and
 * what its pools serve. The driver makes it, but a rule may deny it, limit it, or replace managed memory by pages of
 * the system. Only rules that name the api decide (policy.h); without one nothing is looked at here.
 *
 * No lock. Called with the scope of process.h open.
 */
#ifndef SPILLWAY_TYPED_ALLOC_H
#define SPILLWAY_TYPED_ALLOC_H

#include "shim/serve/account.h"

/*
 * Asks the rules. Returns false if the request is denied, or over the cap of its rule, which has been counted and
 * logged; else the program may have it from the driver. device: NULL for the current one. caller: its address in the
 * program.
 */
bool typed_alloc_claim(enum policy_api api, struct device *device, size_t bytes, void *caller,
		       struct account_claim *ret_claim);
/* cuMemAllocManaged. */
CUresult typed_alloc_managed(CUdeviceptr *ret_address, size_t bytes, unsigned flags, void *caller);

#endif
