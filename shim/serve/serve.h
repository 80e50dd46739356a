// SPDX-License-Identifier: Apache-2.0
/*
 * serve.h: serves one allocation: decide, act, commit, count; and a free, in reverse order. Called by the entries
 * with the scope of process.h open, that is with the policy read.
 */
#ifndef SPILLWAY_SERVE_H
#define SPILLWAY_SERVE_H

#include "policy/policy.h"
#include "shim/accounting/ledger.h"
#include "shim/serve/account.h"
#include "shim/serve/backend.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
 * serve. The driver makes it, but a rule may deny it, limit it, or replace managed memory by memory of the heap or
 * pages of the system. Only rules that name the api decide (policy.h); without one nothing is looked at here.
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
 * Describes this process to the policy, and makes the counts. Locking: called once, under START, before the policy is
 * shared.
 */
void alloc_decide_start(struct policy *policy);

/* Returns which uses are to serve it, in which order. With `observe: yes` the driver alone, whatever the rule says. */
struct policy_decision alloc_decide(struct device *device, const struct backend_request *request);

/*
 * Takes bytes under the cap of the rule that decided. Returns false if they do not fit. *ret_cap: the budget that
 * ledger_row_free() gives them back to, NULL without a cap.
 */
bool alloc_decide_take(const struct policy_decision *decision, size_t bytes, struct budget **ret_cap);

/* Returns how often the rule (-1 = the default) decided; *ret_bytes is about how many bytes in all. */
uint64_t alloc_decide_count(int rule, uint64_t *ret_bytes);
/* Prints a line of the summary for each rule that decided. */
void alloc_decide_print(void);

/* ---- stream-ordered allocations ---- */

/*
 * Stream-ordered allocations and frees, served by the heap (async.use: heap, auto).
 *
 * The promise is the driver's: an address is good on its stream when the call returns, and on others behind an event;
 * memory freed on a stream is the program's until the stream reaches the free. A heap block is mapped for good, so
 * the allocation has nothing to wait for. The free puts an event behind the stream and the row into deferred_free.h;
 * from there the memory comes back in one of three ways:
 *
 *   at once           to an allocation on the same stream, which is behind the free in any case
 *   behind an event   to an allocation on another stream of the context that would find no memory on the device: that
 *                     stream waits for the event, on the GPU, as the driver's own pools do. Only where the pool allows
 *                     it (CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, which is on unless switched off)
 *   into the heap     when the event has completed, for any allocation
 *
 * The driver's pools serve what a capturing stream allocates (it becomes a node of the graph), pools that promise what
 * the heap cannot keep (pool_made), and what a rule leaves to the driver. Devices that a pool is opened to also reach
 * what the pool has in the heap (device.h).
 *
 * With async.use: auto they serve everything else as well, as long as they can: the heap is asked for what would take
 * the device over its budget (pool_claim()), and for what the driver has no memory for (async_rescue()). Where memory
 * moves, the heap is asked for everything from then on (pool_close()).
 */

struct async_request {
	struct backend_request question; /* its api is ASYNC, or POOL where the program names the pool */
	CUmemoryPool pool;               /* NULL: the current one of the stream's device */
	CUstream stream;
	bool per_thread; /* a _ptsz variant: stream 0 is this thread's own */
	/*
	 * Set by async_alloc() if the driver is to serve: the claim; and whether the heap may serve what the driver
	 * cannot.
	 */
	struct account_claim claim;
	bool heap_is_next;
	struct policy_decision decision; /* with heap_is_next */
};

/* Returns true if the policy brings stream-ordered memory into the heap, all of it or what the pools cannot serve. */
bool async_is_for_heap(void);

/* Allocates in the heap. Returns false if the driver is to serve it, under request->claim. */
bool async_alloc(struct async_request *request, CUdeviceptr *ret_address, CUresult *ret_result);
/*
 * Tries the heap when the driver has no memory for what it was to serve, and request->claim has ended. Returns false
 * if the program gets the driver's answer; else *ret_result is the answer, and *ret_address is set if that is
 * success.
 */
bool async_rescue(const struct async_request *request, CUdeviceptr *ret_address, CUresult *ret_result);
/* cuMemFreeAsync of an address of ours (serve_is_ours()). */
CUresult async_free(CUdeviceptr address, CUstream stream, bool per_thread);
/* Returns true if the stream captures, or if the driver does not answer. */
bool async_is_capturing(CUstream stream, bool per_thread);

/* ---- the program's own virtual memory management ---- */

/*
 * The program's own virtual memory management, served by the heap (vmm.spill: move).
 *
 * cuMemAddressReserve gives address space of the current device's arena (ledger.h), cuMemCreate memory of the heap
 * without an address, known by a handle of ours, and cuMemMap places it (heap/block_unmapped.h). From then on the
 * launch path finds it and the mover migrates it like any block; the program sees no difference. The rest stays
 * with the driver: compressed memory, handles to be exported otherwise than as a file descriptor, address space that
 * must lie at an address outside the arena, memory of processes without a context; and what is shared with others
 * before it was ever mapped, which the driver then makes in place of ours.
 *
 * What is made known to others stays where it is for good: a handle that is exported, mapped twice, or mapped where
 * the heap cannot look (space of another device); memory that another device, or the host, is granted access to, or
 * that may only be read. In `fast`, nothing that a kernel may touch may be migrating, so memory moves only where it is
 * known how many handles a pointer reaches: where the program's allocator reports its tensors, and no graph uses the
 * address space (heap_follow_reports). The rest stays where it was placed. In `exact` everything is mapped at all
 * times.
 *
 * The functions that return bool return false if the address or handle is not ours; then the caller asks the driver
 * as ever. Called with the scope of process.h open. Locking: takes VMM, HEAP, VA_RANGES and LEDGER; the caller must
 * hold no lock.
 */

bool vmm_reserve(CUdeviceptr *ret_address, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags);
bool vmm_unreserve(CUdeviceptr address, size_t bytes, CUresult *ret);

/* On success the handle takes over the claim; if *ret is an error, the caller must end it. */
bool vmm_create(CUmemGenericAllocationHandle *ret_handle, size_t bytes, const CUmemAllocationProp *prop,
		unsigned long long flags, const struct account_claim *claim, CUresult *ret);
bool vmm_properties(CUmemGenericAllocationHandle handle, CUmemAllocationProp *ret_prop, CUresult *ret);
/* Returns true if it is a number of ours, whether or not the handle still exists. */
bool vmm_is_handle(CUmemGenericAllocationHandle handle);
/* Takes one reference to the handle of what is mapped at the address, also of the driver's in a range of ours. */
bool vmm_retain(CUdeviceptr address, CUmemGenericAllocationHandle *ret_handle, CUresult *ret);
/*
 * Replaces *handle by the driver's handle, for a call that makes the memory known to others; the memory then stays
 * for good. A *handle that is not ours is left as it is, and the result is CUDA_SUCCESS. type: handle type that it is
 * exported as, 0: none. Returns INVALID_VALUE if the handle is unknown or was not made for that type, NOT_READY if
 * the memory cannot be pinned now, NOT_SUPPORTED if it has been mapped and is in more than one piece.
 */
CUresult vmm_expose(CUmemGenericAllocationHandle *handle, unsigned type);

bool vmm_map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
	     unsigned long long flags, const void *asker, CUresult *ret);
/* Also of what is not ours. All of it is unmapped, or on an error nothing. */
CUresult vmm_unmap(CUdeviceptr address, size_t bytes);
bool vmm_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc, size_t n, CUresult *ret);
bool vmm_get_access(unsigned long long *ret_flags, const CUmemLocation *location, CUdeviceptr address, CUresult *ret);

/*
 * Finds the mapping of ours that has the address in it. *ret_row: its row, whose key is where it begins. No driver
 * call.
 */
bool vmm_find(CUdeviceptr address, struct ledger_row *ret_row);
/*
 * The same for a further mapping of a handle of ours, which the heap does not track: the driver would speak of the
 * library's chunks, not of what the program has made. It has no block, and may lie outside all arenas.
 */
bool vmm_find_further(CUdeviceptr address, struct ledger_row *ret_row);
/*
 * Asks what access the device of the current context has to what is mapped there. Returns CUDA_SUCCESS, or the
 * driver's error.
 */
CUresult vmm_access_of(const struct ledger_row *row, CUdeviceptr address, unsigned *ret_flags);

/* ---- legacy IPC ---- */

/*
 * Legacy IPC of heap blocks (cuIpcGetMemHandle and related calls), which the driver refuses for VMM memory.
 *
 * The giver's block is pinned for good, and its chunks, made exportable (`movable: no`, or `ipc: yes`), are sent as
 * POSIX file descriptors to any process of the same user that shows the handle at the giver's socket (ipc.c).
 * The taker, which must run under Spillway too, maps them at one range of addresses (ipc.c). The handle is a
 * CUDA one by size alone: the driver of a process without Spillway answers invalid value.
 *
 * The handles of a process end with it; what was opened before stays mapped. The functions are called inside
 * enter_serve(). Locking: the caller must hold no lock.
 *
 * Assumed, not measured: host chunks (HOST_NUMA) can be exported and imported like device chunks.
 */

/* Returns true if the handle is one of Spillway, of this or another process. */
bool ipc_is_ours(const CUipcMemHandle *handle);

/*
 * cuIpcGetMemHandle for a heap block. If that is impossible, logs once why, with the setting that helps. Writes
 * *ret_handle on success alone.
 */
CUresult ipc_give(struct heap *heap, const struct ledger_row *row, CUipcMemHandle *ret_handle);
/* At the end of the process, and in the child of a fork (socket_server.h). */
void ipc_stop(void);
void ipc_child(void);

/* cuIpcOpenMemHandle for a handle of ours (ipc_is_ours()), in the current context. */
CUresult ipc_open(const CUipcMemHandle *handle, CUdeviceptr *ret_address);
/* cuIpcCloseMemHandle. Returns false if we opened nothing there. Unmaps it when the context's work is complete. */
bool ipc_close(CUdeviceptr address, CUresult *ret_result);

#endif
