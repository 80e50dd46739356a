/*
 * alloc_decide.h: the policy's answer to one request. Finds out what its rules look at, and nothing that none looks at; counts
 * what was decided, and what is live under each rule that has a cap.
 *
 * No lock: the counts are atomics, one row a rule, made when the policy is read and never freed; so is what is known of a
 * library, once it has called.
 */
#ifndef SPILLWAY_ALLOC_DECIDE_H
#define SPILLWAY_ALLOC_DECIDE_H

#include "policy/policy.h"
#include "shim/serve/backend.h"

/* Before alloc_decide_start(), under no lock: the loader's may be needed. Any number of times. */
void alloc_decide_bind(void);
/* Does a rule, or the trace, look at NVTX ranges? Also before the process is started. Leaves errno as it is. */
bool alloc_decide_wants_ranges(void);
/* Once, under START, before the policy is shared: tell it about this process, make the counts. */
void alloc_decide_start(struct policy *policy);

/* Who is to serve it, in which order. With `observe: yes` the driver alone, whatever the rule says. */
struct policy_decision alloc_decide(struct device *device, const struct backend_request *request);

/* What it says of managed and of system memory, as their backends want it for this device. */
struct backend_managed_settings alloc_decide_managed(const struct policy_decision *decision,
						     const struct device *device);
struct backend_system_settings alloc_decide_system(const struct policy_decision *decision, const struct device *device);

/*
 * Take bytes under the cap of the rule that decided. False: they do not fit. *ret_cap: what ledger_row_free() gives them
 * back to, NULL without a cap.
 */
bool alloc_decide_take(const struct policy_decision *decision, size_t bytes, struct budget **ret_cap);

/* How often the rule (-1 = the default) decided, and about how many bytes in all. */
uint64_t alloc_decide_count(int rule, uint64_t *ret_bytes);
/* A line for each rule that decided, for the summary. */
void alloc_decide_print(void);

#endif
