/*
 * typed_alloc.h: rules about memory whose kind the program has chosen itself: managed, pinned and virtual memory, and what its
 * pools serve. The driver makes it, but a rule may deny it, bound it, or put pages of the system in the place of managed
 * memory. Only rules that name the api decide (policy.h); without one there is nothing to be looked at here.
 *
 * No lock. Called with the scope of enter.h open.
 */
#ifndef SPILLWAY_TYPED_ALLOC_H
#define SPILLWAY_TYPED_ALLOC_H

#include "shim/serve/account.h"

/*
 * May the program have it from the driver? False: denied, or over the cap of its rule, which has been counted and said.
 * device: NULL for the current one. caller: where in the program it was asked for.
 */
bool typed_alloc_claim(enum policy_api api, struct device *device, size_t bytes, void *caller,
		       struct account_claim *ret_claim);
/* cuMemAllocManaged. */
CUresult typed_alloc_managed(CUdeviceptr *ret_address, size_t bytes, unsigned flags, void *caller);

#endif
