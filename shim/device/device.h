// SPDX-License-Identifier: Apache-2.0
/*
 * device.h: each device: whether it supports VMM, where its host chunks lie; its budget, heap, pools and peer access.
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
#include "shim/accounting/ledger.h"
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
	_Atomic bool pools_used;    /* the program allocates from the default pool (pool_used) */
	_Atomic bool graphs_used;   /* the program has graphs with allocation nodes (pool_graphs_used) */
	uint64_t pools_charged;     /* bytes charged for its pools and graphs; under POOL */
	_Atomic bool pools_closed;  /* the heap serves all stream-ordered memory from now on (pool_close) */
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
bool device_make_host_room(struct device *device);
/*
 * Charges `bytes` to the host budget, for memory outside the heaps; idle host memory of all heaps is released if
 * necessary. Returns false if the budget has no room. Locking: must be called without HEAP.
 */
bool device_take_host(uint64_t bytes);
/* Returns whether the driver lets the one access memory of the other. Locking: none. */
bool device_reaches(CUdevice from, CUdevice to);
/* Returns the device whose heap contains the address, or NULL. Locking: none. */
struct device *device_of(CUdeviceptr address);

/* Returns the device that has been examined with the next higher ordinal (NULL: the first); NULL after the last. */
struct device *device_next(const struct device *device);

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

/* ---- sizes of the policy in bytes ---- */

/* Resolves a size of the policy: absolute, a percentage of `whole`, or `automatic`. */
uint64_t sizes_resolve(struct policy_size size, uint64_t whole, uint64_t automatic);
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

/* ---- peer access ---- */

/*
 * Peer access: which GPUs may access the heap memory of which.
 *
 * Natively cuCtxEnablePeerAccess gives a context access to what another context allocates. Heap memory is mapped, and
 * mappings are opened to devices, not to contexts (docs/facts.md, Pointer queries). So a heap is open to a device while
 * any living context of that device has access to any living context of the heap's device, and while a pool whose
 * memory may be in the heap is open to it. A context may so have more access than natively, never less. Queries of a
 * pointer return what they would natively.
 *
 * Each heap has a word of bits, one for each device, which is read when memory is mapped (heap.h). A device is added,
 * and existing mappings are opened to it, before the program's call returns. A device is removed when nothing of it
 * runs: the call waits for that for a moment, else a tick does it when the work that the device had been given is
 * complete.
 *
 * Locking: PEER, held over the list of what was enabled and over VMM calls, never while the GPU is waited for.
 */

extern struct lock peer_lock;

/* Returns whether `device` may access the heap memory of `owner`. Locking: none. */
bool peer_reaches(CUdevice device, CUdevice owner);
/*
 * Returns bits: the devices that may access the heap memory of `owner`: the owner itself, and all that were ever added.
 * Bits are only ever set. They do not cover copies, which may name memory of another device without having access
 * (copy.c). Locking: none.
 */
uint64_t peer_may_reach(CUdevice owner);
/*
 * A quiesce that stops only `devices` relies on no other device gaining access to the heap. peer_shut() makes each
 * thread that opens the heap to another device wait until peer_unshut(). Returns false, with nothing shut, if another
 * device may have access already. One thread at a time. Locking: none.
 */
bool peer_shut(CUdevice owner, uint64_t devices);
void peer_unshut(CUdevice owner);
/*
 * Natively, copies need no peer access, so a copy relies on access that another thread may revoke at any time. It must
 * call peer_hold() before it asks peer_reaches(), and peer_let_go() after it was submitted. Access is not revoked while
 * it is held, or while something submitted with it may still use it. Locking: none.
 */
void peer_hold(void);
void peer_let_go(void);

/*
 * Must be called after the driver has enabled, or disabled, access of the current context to what `owner` allocates.
 * peer_enabled() returns an error if access was not given; the caller must then ask the driver to disable it again.
 * Locking: takes PEER; must be called under no lock.
 */
CUresult peer_enabled(CUcontext owner);
void peer_disabled(CUcontext owner);
/* Forgets all access from and to a context that has ended. Locking: as peer_disabled(). */
void peer_context_ended(CUcontext context);
/*
 * Must be called about once a second, by one thread: revokes access that was left to a busy device, if it is idle now.
 * Locking: takes PEER; must be called under no lock.
 */
void peer_tick(void);

/*
 * The same for a pool whose memory may be in the heap of `owner`. For peer_pool_closed() a negative `device` stands for
 * all devices.
 */
CUresult peer_pool_opened(uint64_t pool, CUdevice owner, CUdevice device);
void peer_pool_closed(uint64_t pool, CUdevice device);

/*
 * Opens the heaps of two devices to each other for good, so that each device has access to both sides of a copy
 * between them. Returns false if their GPUs cannot access each other, or the driver refuses it. The caller must ask
 * this before a copy between the two GPUs that names heap memory: without such access the driver ends the process if
 * any of the memory is on the host. Measured (two H200, driver 580.159): SIGSEGV in cuMemcpyPeer, cuMemcpyPeerAsync
 * and cuMemcpy3DPeerAsync as soon as one handle on either side had a location of the host; right where one device had
 * access to both sides.
 * Locking: takes PEER the first time; must be called under no lock.
 */
bool peer_open_for_copies(CUdevice one, CUdevice other);

/*
 * Returns the access that the context (NULL: no context in particular) natively has to a heap block. Locking: takes
 * PEER.
 */
CUmemAccess_flags peer_access(CUcontext context, const struct ledger_row *row);

/* ---- memory pools ---- */

/*
 * The driver's memory pools, as far as they use device memory. The heap cannot use what a pool has reserved,
 * whether the program uses it at the moment or not, so it is charged to the device's budget (docs/design.md, Budgets).
 * A program that never allocates in stream order costs nothing here.
 *
 * Locking: POOL, held over driver calls (queries of attributes, and releasing unused memory; none waits for the GPU),
 * so that a pool cannot be destroyed meanwhile. The functions take POOL unless they say otherwise.
 */

/*
 * The program allocated in stream order on this device: from now on its default pool is tracked and gets the policy's
 * async.release_threshold.
 */
void pool_used(struct device *device);
/*
 * The program is about to set the release threshold of this pool, which then holds. The policy's threshold of a default
 * pool is set before that.
 */
void pool_threshold_asked(CUmemoryPool pool);
/*
 * Records a pool that the program made. driver_only: it promises something (export, a limit, decompression) that the
 * heap could not keep.
 */
void pool_made(CUmemoryPool pool, CUdevice device, bool driver_only);
/*
 * pool_forget() must be called before the real pool is destroyed; it takes the pool off the list, or returns NULL if
 * the pool is unknown. pool_forgotten() then frees the record, or puts it back if the driver refused.
 */
struct pool *pool_forget(CUmemoryPool pool);
void pool_forgotten(struct pool *pool, bool gone); /* accepts NULL */
/* The program made graphs with allocation nodes on this device: what the driver reserves for them is tracked, too. */
void pool_graphs_used(struct device *device);
/*
 * A pool, or a graph with allocation nodes, has existed; only ever set, by any thread. Until then nothing is charged.
 */
extern atomic_bool pool_any;
/*
 * Updates what the pools and graphs of a device are charged with. Closed pools first give back unused memory, as far as
 * the driver knows that the GPU has finished with it; at most every 10 ms, unless it is to be done at once.
 */
void pool_refresh(struct device *device, bool at_once);
/*
 * Must be called about once a second: pool_refresh() for every device whose pools are closed. Locking: must be called
 * under no lock.
 */
void pool_tick(void);
/* pool_refresh(), at once, if the pools are closed. Returns whether the budget has more room now. */
bool pool_give_back(struct device *device);

/*
 * For async.use: auto. Returns whether the driver may serve these bytes from this pool (NULL: the current one of the
 * device) within the device budget. Unused memory of the pool counts as room, and so does what the heap keeps warm. On
 * success *ret_id counts the bytes until pool_unclaim(); it is 0 if the pool is not known and nothing is counted. The
 * answer comes from the library's counters; near the limit the driver's counters are read to be exact.
 *
 * A pool is charged with what it had reserved when the driver was last asked, or with what was claimed of it if that is
 * more. While claims stay below the charge, a claim changes one number of the pool. A pool reserves more than is used
 * of it; if that has lifted the device over its budget, the pool gets no more than it had while the device was below.
 *
 * Locking: takes START, POOL and HEAP in turn; must be called without any of them.
 */
enum pool_claim {
	POOL_OPEN,   /* within the budget, from a pool that is not closed */
	POOL_WITHIN, /* within the budget, closed or not: the heap was tried before */
	POOL_OVER,   /* in any case */
};
bool pool_claim(struct device *device, CUmemoryPool pool, size_t bytes, enum pool_claim how, uint64_t *ret_id);
void pool_unclaim(uint64_t id, size_t bytes); /* accepts 0 */
/*
 * Must be called when the heap has served what the pools of the device could not. Where memory migrates, the pools are
 * then closed for good: the heap serves all further requests as far as it can, and what is freed of the pools goes back
 * to the driver. Locking: none.
 */
void pool_close(struct device *device);
/*
 * The program is about to choose another current pool: from now on the driver is asked which pool is current. Locking:
 * none.
 */
void pool_chosen(void);

/*
 * Pools as the program sees them when their memory is in the heap (serve.h). Returns the number of the pool, or 0 if
 * its memory must stay with the driver or the pool is unknown.
 */
uint64_t pool_for_heap(CUmemoryPool pool, struct device *device);
/* Returns the number of any known pool, or 0. */
uint64_t pool_number(CUmemoryPool pool);
/*
 * Returns whether a pool, taken off the list by pool_forget(), has heap memory that is not freed yet. Accepts NULL.
 * Locking: none.
 */
bool pool_has_memory(const struct pool *forgotten);
/*
 * Count a heap row of pool row->heap.pool_id: so many bytes are new or more; freed by the program (may be called
 * several times). gone: its memory is released, too.
 */
void pool_row_grown(const struct ledger_row *row, uint64_t bytes);
void pool_row_freed(struct ledger_row *row, bool gone);
/*
 * Returns what heap memory adds to the driver's answer for one of the four attributes in bytes; 0 for other attributes.
 */
uint64_t pool_heap_bytes(CUmemoryPool pool, CUmemPool_attribute attribute);
/* The program asks for what is reserved: of freed memory of the heap so many bytes are, too, which no row has. */
void pool_heap_waits(CUmemoryPool pool, uint64_t bytes);
/* The program resets a high-water mark. */
void pool_heap_reset(CUmemoryPool pool, CUmemPool_attribute attribute);
/* Returns the device of a pool whose memory may be in the heap, or NULL. */
struct device *pool_heap_device(CUmemoryPool pool);

extern struct lock pool_lock;

#endif
