/*
 * device.h: each device: whether it supports VMM, where its host chunks are placed, its budget and its heap.
 *
 * A device is examined once, on its first use. Facts that need no context are read at once, because NCCL calls
 * cuMemCreate before any context exists; budget and heap are made with the first heap allocation, which has a context.
 * Devices exist until the process ends. Locking: START guards their creation.
 */
#ifndef SPILLWAY_DEVICE_H
#define SPILLWAY_DEVICE_H

#include "policy/policy.h"
#include "shim/accounting/budget.h"
#include "shim/accounting/gpu_account.h"
#include "shim/base/array.h"
#include "shim/base/hostmem.h"
#include "shim/heap/heap.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct device {
	CUdevice ordinal;
	uint64_t total; /* bytes of device memory, as the driver reports */
	bool vmm, host_vmm;
	bool managed;                /* managed memory with concurrent access, and larger than the device */
	bool pageable;               /* it can access all memory of the process (HMM, ATS) */
	int node;                    /* nearest NUMA node of the host; -1: unknown */
	CUmemLocation host_location; /* location of host chunks: the nearest NUMA node if the driver knows it */
	struct budget budget;
	struct lender lender;       /* memory lent to other devices; its limits are set with the budget */
	_Atomic bool pools_used;    /* the program allocates from the default pool (pool.h) */
	_Atomic bool graphs_used;   /* the program has graphs with allocation nodes (pool.h) */
	uint64_t pools_charged;     /* bytes charged for its pools and graphs; under POOL */
	_Atomic bool pools_closed;  /* the heap serves all stream-ordered memory from now on (pool.h) */
	uint64_t pools_trimmed;     /* ns: when pools last gave back unused memory; under POOL */
	_Atomic bool follows;       /* the budget follows what is free (gpu_turn.h); written under START */
	_Atomic bool budget_known;  /* the policy's budget has been set; under START */
	_Atomic uint64_t own_limit; /* the budget by policy, or as changed since, whatever others have */
	/* What the processes that share the device may have together (device.total); 0: it is not shared. */
	_Atomic uint64_t shared_total;
	/*
	 * It takes turns, and is due more than it may have now: another has the turn, or what others had is not there
	 * yet. Set under START, then by the control thread.
	 */
	_Atomic bool out_of_turn;
	struct gpu_account account; /* joined under START, then the control thread's */
	unsigned char uuid[16];
	struct {
		struct shared_file line;  /* of the thread that waits, then the control thread's */
		uint64_t until, most;     /* ns: it stays the first in the line until then, and at most */
		uint64_t needs;           /* bytes of the heap at the last look */
		_Atomic bool waits, over; /* a thread waits; no allocation waits any longer */
	} admission;                      /* admission.c */
	bool heap_refused;                /* creating the heap failed and is not tried again; under START */
	/* NULL until the first heap allocation, and always if the device cannot have one */
	_Atomic(struct heap *) heap;
};

/* The process has one host budget, shared by all devices. */
extern struct budget host_budget;

/* Returns NULL for an ordinal that the driver does not know. Locking: takes START on the first call for a device. */
struct device *device_get(CUdevice ordinal);
/*
 * Returns the device of the current context, or NULL if no context is current; *ret_result (ret_result may be NULL) is
 * the driver's result.
 */
struct device *device_current(CUresult *ret_result);
/*
 * Returns the bytes that prefetching leaves free unless the policy sets them: what the default budget leaves, less on
 * small devices.
 */
uint64_t device_headroom(const struct device *device);
/* Returns the bytes that a budget which follows what is free leaves free. */
uint64_t device_reserve(const struct device *device);
/*
 * Returns bytes, but at most what the machine's policy lets a process have of the device. Every budget must go through
 * this.
 */
uint64_t device_within_limit(const struct device *device, uint64_t bytes);
/*
 * Returns the heap, created on the first call, or NULL if this device cannot have one (logged once). The caller needs a
 * current context. Locking: takes START on the first call.
 */
struct heap *device_heap(struct device *device);
/* Returns the heap if it exists, else NULL. Calls no driver function. Locking: none. */
struct heap *device_heap_there(CUdevice ordinal);
/*
 * Sets the budget if that has not happened. Without a context of the device, all of its memory counts as free. Locking:
 * takes START.
 */
void device_known_budget(struct device *device);
/*
 * Changes the budget of every device, also of those that are used later. What is above it stays until the caller makes
 * it leave (spill_make_room). What is lent to other devices does not change. Locking: takes START.
 */
void device_change_budget(struct policy_size size);
/*
 * Changes the host budget. What is shared with other processes (host.total) holds beside it, as if the policy had set
 * both. Locking: takes START and QUOTA_TAKE.
 */
void device_change_host_budget(struct policy_size size);
/* Returns the bytes that peers lend to its heap, or would lend if it had one. Locking: takes START. */
uint64_t device_lent(struct device *device);
/*
 * Gives idle device memory of its heap back to the driver, and idle memory that other heaps hold of what this device
 * lent them. Returns whether any was given back. Locking: takes HEAP of each heap in turn; must be called without HEAP.
 */
bool device_make_room(struct device *device);
/*
 * Makes other heaps give back idle memory that this device lent them, if the device's heap has fewer than `bytes` bytes
 * free and others hold part of its budget, or if the driver has no memory. Returns whether any was given back. Locking:
 * as device_make_room().
 */
bool device_take_back(struct device *device, uint64_t bytes);
/* Must be called about once a second: calls heap_tick() for every heap. Locking: must be called without any HEAP. */
void device_tick(void);
/*
 * As device_make_room(), for idle host memory of the heaps of all other devices (NULL: of all devices), which share one
 * budget.
 */
bool device_make_host_room(const struct device *device);
/*
 * Charges `bytes` to the host budget, for memory outside the heaps; idle host memory of all heaps is released if
 * necessary. Returns false if the budget has no room. Locking: must be called without HEAP.
 */
bool device_take_host(uint64_t bytes);
/* Returns the device whose heap contains the address, or NULL. Locking: none. */
struct device *device_of(CUdeviceptr address);

/* Calls `visit` for every device that has been examined. */
void device_each(void (*visit)(struct device *device, void *argument), void *argument);

/* ---- whether memory of the heaps moves beside what runs (`fast`), of all devices at once ---- */

/*
 * Says it of every heap, also of those that are made later (heap_set_beside). Until this is called the policy's
 * spill.mode says it. Locking: takes START and HEAP.
 */
void device_set_beside(bool beside);

/* ---- the devices to which each heap is mapped: peer.c decides, device.c passes the word to the heap ---- */

/* Whether heap memory exists and the process has contexts on more than one GPU. Until then copies need no check. */
extern _Atomic bool peer_any;
/* Records that the process has a context on the device. */
void peer_context_made(CUdevice device);
static inline bool peer_is_any(void)
{
	return __builtin_expect(atomic_load_explicit(&peer_any, memory_order_relaxed), 0);
}
/* By owner, bits of devices to which new mappings are opened. Written by peer.c alone; heaps read it (peer_heap()). */
extern _Atomic uint64_t peer_mapped_for[DEVICE_MOST];
/*
 * Must be called before a heap is created; returns the address of the bits that the heap reads. Locking: the caller
 * holds START.
 */
const _Atomic uint64_t *peer_heap(int owner);

/* ---- waiting before the first allocation on a device that is shared (admission.c) ---- */

/*
 * `share.queue`: a process that would share a device waits at its first allocation as long as host.total does not hold
 * what all of them need beyond device.total. So each process that takes turns can give up its memory.
 *
 * To be called before memory of the heap is allocated. Waits if the policy says so, until there is room, the time is
 * up, or the process ends; not needed once admission.over is set. Locking: the caller must hold no lock.
 */
void admission_wait(struct device *device);
/* On the control thread, now and then: lets the next process be admitted, once the needs of this one are known. */
void admission_look(struct device *device);
/* In the child of a fork: the place in the line is the parent's. Async-signal-safe. */
void admission_child(struct device *device);

/* ---- sizes of the policy in bytes ---- */

/* Returns whether the machine's policy limits this. */
bool sizes_limited(enum policy_limit limit);
/*
 * Returns what the processes that share a device may have together in their heaps; 0: this process does not share it.
 * whole: the device's memory; mine: what of it no other process had when this one started.
 */
uint64_t sizes_device_total(const struct policy *policy, uint64_t whole, uint64_t mine);
/* Return what the processes that share host memory may pin together, and whether this process shares. */
uint64_t sizes_host_total(const struct policy *policy, const struct hostmem *memory);
bool sizes_shares_host(const struct policy *policy);

#endif
