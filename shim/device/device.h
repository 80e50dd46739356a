/*
 * device.h: facts and state of each device: can it do VMM, where host chunks go, its budget, its heap.
 *
 * A device is looked at on its first use and never again, under START. Facts that need no context are read at once
 * (NCCL calls cuMemCreate before any context exists); budget and heap come with the first heap allocation,
 * which has a context. Devices live as long as the process.
 */
#ifndef SPILLWAY_DEVICE_H
#define SPILLWAY_DEVICE_H

#include "shim/accounting/budget.h"
#include "shim/base/limits.h"
#include "shim/heap/heap.h"

#include <cuda.h>

struct device {
	CUdevice ordinal;
	uint64_t total; /* bytes, as the driver says */
	bool vmm, host_vmm;
	bool managed;                /* managed memory that both sides may touch at any time, and more than it has */
	bool pageable;               /* it reaches all memory of the process (HMM, ATS) */
	int node;                    /* of the host, the nearest; -1: not known */
	CUmemLocation host_location; /* of host chunks: the NUMA node nearest the device where the driver knows it */
	struct budget budget;
	struct lender lender;        /* what it lends to others; limits are known as the budget's is */
	_Atomic bool pools_used;     /* the program allocates from the default pool (pool.h) */
	_Atomic bool graphs_used;    /* the program has graphs with allocation nodes (pool.h) */
	uint64_t pools_charged;      /* what its pools and graphs are charged with; under POOL */
	_Atomic bool pools_closed;   /* the heap serves all memory in stream order from now on (pool.h) */
	uint64_t pools_trimmed;      /* ns, when they last gave back what was unused; under POOL */
	_Atomic bool budget_known;   /* the policy's budget has been set; under START */
	bool heap_refused;           /* making the heap failed and is not tried again; under START */
	_Atomic(struct heap *) heap; /* NULL until the first heap allocation, and for good when it cannot be had */
};

/* The host budget is one for the process. */
extern struct budget host_budget;

/* NULL for an ordinal the driver does not know. Takes START on the first call for a device. */
struct device *device_get(CUdevice ordinal);
/* The device of the current context; NULL when there is none, *ret_result (may be NULL) says what the driver said. */
struct device *device_current(CUresult *ret_result);
/* Bytes that prefetching leaves free where the policy does not say: what the default budget leaves, on small ones less. */
uint64_t device_headroom(const struct device *device);
/* The heap, created on the first call; NULL when this device cannot have one (said once). Needs a current context. */
struct heap *device_heap(struct device *device);
/* The heap, if the device has been looked at and has one; else NULL. No lock, no driver call. */
struct heap *device_heap_there(CUdevice ordinal);
/* Fix the budget if that has not happened; before there is a context, what is free counts as the total. */
void device_known_budget(struct device *device);
/* Bytes that other devices lend to its heap, or would if it had one. Takes START. */
uint64_t device_lent(struct device *device);
/*
 * Give what the heap holds in reserve of device memory back to the driver, and what other heaps do of what this device
 * has lent them. True: there was something. Under no lock of a heap.
 */
bool device_make_room(struct device *device);
/*
 * The second alone, for the device's own heap to have so many bytes free: where it has not and others have something of its
 * budget, or the driver has none.
 */
bool device_take_back(struct device *device, uint64_t bytes);
/* About once a second: heap_tick() of every heap. Any thread, under no lock. */
void device_tick(void);
/* The same of host memory, for the heaps of all other devices (NULL: of all): they share one budget. */
bool device_make_host_room(const struct device *device);
/* Take so much of the host budget for what is not a heap's; what all heaps keep free makes room. Under no lock. */
bool device_take_host(uint64_t bytes);
/* The device whose heap contains the address, or NULL. No lock. */
struct device *device_of(CUdeviceptr address);

/* Every device that has been looked at. */
void device_each(void (*visit)(struct device *device, void *argument), void *argument);

#endif
