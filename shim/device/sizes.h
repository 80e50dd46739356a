/*
 * sizes.h: sizes of the policy in bytes.
 */
#ifndef SPILLWAY_SIZES_H
#define SPILLWAY_SIZES_H

#include "policy/policy.h"
#include "shim/base/hostmem.h"

/* Resolves a size of the policy: absolute, a percentage of `whole`, or `automatic`. */
uint64_t sizes_resolve(struct policy_size size, uint64_t whole, uint64_t automatic);

/* Returns whether the machine's policy limits this. */
bool sizes_limited(enum policy_limit limit);
/* Returns bytes, but at most what the machine's policy allows. whole: what a share of the limit is a share of. */
uint64_t sizes_within(enum policy_limit limit, uint64_t bytes, uint64_t whole);

/*
 * Returns the device's budget: at most what the device has, which is said, and what the machine's policy allows.
 */
uint64_t sizes_device_budget(struct policy_size size, uint64_t whole, uint64_t automatic);

/*
 * Returns what the processes that share a device may have together in their heaps; 0: this process does not share it.
 * whole: the device's memory; mine: what of it no other process had when this one started.
 */
uint64_t sizes_device_total(const struct policy *policy, uint64_t whole, uint64_t mine);

/*
 * Return what the processes that share host memory may pin together, whether the policy or the machine's sets that, and
 * whether this process shares.
 */
uint64_t sizes_host_total(const struct policy *policy, const struct hostmem *memory);
bool sizes_gives_host_total(const struct policy *policy);
bool sizes_shares_host(const struct policy *policy);

#endif
