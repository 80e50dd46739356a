/*
 * serve.h: serves one allocation: decide, act, commit, count; and a free, in reverse order. Called by the entries
 * with the scope of process.h open, that is with the policy read.
 */
#ifndef SPILLWAY_SERVE_H
#define SPILLWAY_SERVE_H

#include "policy/policy.h"
#include "shim/serve/account.h"
#include "shim/serve/backend.h"

#include <cuda.h>

/*
 * cuMemAlloc and cuMemAllocPitch. Finds request->site. *ret_address and *ret_pitch (pitched only) are written on
 * success alone.
 */
CUresult serve_alloc(struct backend_request *request, CUdeviceptr *ret_address, size_t *ret_pitch);
/* cuMemFree, of any address: ours, the driver's, or unknown. */
CUresult serve_free(CUdeviceptr address);

/*
 * For an address at which no live block begins: returns true if the driver must not be asked to free it. That is so
 * in a heap, and for managed memory whose free was deferred: the driver still has that, and would free it a second
 * time later.
 */
bool serve_is_dead(CUdeviceptr address);

/* Returns true at exit for heap and system memory: nothing of ours is called any more, and it goes with the process. */
bool serve_is_late_free(CUdeviceptr address);

/* Finds the heap block that has the address in it. *ret_row: its row, with key = its first byte. No driver call. */
bool serve_find(CUdeviceptr address, struct ledger_row *ret_row);

/* As serve_find(), for what the program asked of cuMemAlloc and got as managed or system memory. */
bool serve_find_outside(CUdeviceptr address, struct ledger_row *ret_row);
/* Returns true if the address is in a heap, allocated or not, or in a block of serve_find_outside(). */
bool serve_is_ours(CUdeviceptr address);
/* Takes the block of ours that begins there out of the ledger. Returns NULL if there is none. */
struct ledger_row *serve_take_ours(CUdeviceptr address);

/*
 * The end of a context, and of the memory in it. Before the real call, deferred frees that wait for its events are
 * set aside, and `line` separates the rows of now from those that another thread may make under the same handle once
 * it is free again. After the call, the memory is freed, or, if the context did not end after all, stays.
 */
struct serve_ending {
	uint64_t line; /* rows with an id from here on are not freed */
	struct ledger_row *pending;
	bool busy;       /* it must not end yet: the caller must not make the real call */
	CUdevice device; /* -1: not known */
};
struct serve_ending serve_context_ending(CUcontext context);
void serve_context_ended(CUcontext context, struct serve_ending ending, bool ended);

/* Returns the error for allocations if the policy is bad and SPILLWAY_STRICT=1, else CUDA_SUCCESS. */
CUresult serve_refusal(void);

/* ---- memory whose kind the program has chosen ---- */

/*
 * Rules about memory whose kind the program has chosen itself: managed, pinned and virtual memory, and what its pools
 * serve. The driver makes it, but a rule may deny it, limit it, or replace managed memory by pages of
 * the system. Only rules that name the api decide (policy.h); without one nothing is looked at here.
 *
 * Asks the rules. Returns false if the request is denied, or over the cap of its rule, which has been counted and
 * logged; else the program may have it from the driver. device: NULL for the current one. caller: its address in the
 * program.
 */
bool typed_alloc_claim(enum policy_api api, struct device *device, size_t bytes, void *caller,
		       struct account_claim *ret_claim);
/* cuMemAllocManaged. */
CUresult typed_alloc_managed(CUdeviceptr *ret_address, size_t bytes, unsigned flags, void *caller);

/* ---- the policy's decision about one request ---- */

/*
 * Finds out what the rules look at, and nothing else; counts what was decided, and what is live under each rule that
 * has a cap.
 *
 * No lock: the counts are atomics, one row for each rule, made when the policy is read and never freed; what is known
 * of a library is kept in the same way, once the library has called.
 */

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
