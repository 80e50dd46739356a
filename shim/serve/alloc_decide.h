/*
 * alloc_decide.h: the policy's decision about one request. Finds out what the rules look at, and nothing else; counts
 * what was decided, and what is live under each rule that has a cap.
 *
 * No lock: the counts are atomics, one row for each rule, made when the policy is read and never freed; what is known
 * of a library is kept in the same way, once the library has called.
 */
#ifndef SPILLWAY_ALLOC_DECIDE_H
#define SPILLWAY_ALLOC_DECIDE_H

#include "policy/policy.h"
#include "shim/serve/backend.h"

/*
 * Prepares alloc_decide_start(). May be called any number of times. Locking: the caller must hold no lock, since the
 * loader's may be needed.
 */
void alloc_decide_bind(void);
/*
 * Describes this process to the policy, and makes the counts. Locking: called once, under START, before the policy is
 * shared.
 */
void alloc_decide_start(struct policy *policy);

/* Returns which uses are to serve it, in which order. With `observe: yes` the driver alone, whatever the rule says. */
struct policy_decision alloc_decide(struct device *device, const struct backend_request *request);

/*
 * Return the decision's settings for managed and for system memory, as their backends need them; those for this device.
 */
struct backend_managed_settings alloc_decide_managed(const struct policy_decision *decision);
struct backend_system_settings alloc_decide_system(const struct policy_decision *decision, const struct device *device);

/*
 * Takes bytes under the cap of the rule that decided. Returns false if they do not fit. *ret_cap: the budget that
 * ledger_row_free() gives them back to, NULL without a cap.
 */
bool alloc_decide_take(const struct policy_decision *decision, size_t bytes, struct budget **ret_cap);

/* Returns how often the rule (-1 = the default) decided; *ret_bytes is about how many bytes in all. */
uint64_t alloc_decide_count(int rule, uint64_t *ret_bytes);
/* Prints a line of the summary for each rule that decided. */
void alloc_decide_print(void);

#endif
