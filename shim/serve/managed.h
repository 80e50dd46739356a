// SPDX-License-Identifier: Apache-2.0
/*
 * managed.h: memory of cuMemAllocManaged on the heap (`match: {api: managed}`, `use: heap`).
 *
 * Such an allocation is one that is backed on use (heap/on_use.c), and has two sides. At first it is plain memory of
 * the process at its address, which the CPU may use and which takes memory as it is touched. With the GPU's first use
 * its contents go to memory of the heap, mapped for the GPU at the same address. What the CPU has mapped at an address
 * and what the GPU has mapped there are independent (test/gpu/managed_facts.c asks that). From then on an
 * access of the CPU is a fault, which touch.c serves between submissions; where it cannot, the library's handler says
 * whose memory that was (base/signals.h).
 *
 * The first use is any submission that names the allocation, a prefetch to a device, and whatever else keeps its
 * address; then managed_bring() is called. A kernel may follow pointers. So what goes is searched for pointers to
 * managed memory, and all that is reached goes along; each allocation is searched once, when it goes. What is reached
 * gets all its memory and is not moved beside what runs (heap_stay_beside), because no later submission need name it.
 *
 * All that one submission needs goes in one step, or nothing does. So whoever sees that the GPU has an allocation may
 * rely on all that it points to. The CPU loses the right to write before anything is searched or copied: a write of
 * another thread is copied, or waits (or faults, where touches cannot be served).
 */
#ifndef SPILLWAY_MANAGED_H
#define SPILLWAY_MANAGED_H

#include "shim/serve/backend.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Allocates in the heap of the device. Returns NOT_SUPPORTED if the driver should have it, which is said once: it
 * is larger than both budgets together, GPUs of the process cannot reach each other, or the heap cannot serve it.
 * Locking: as an allocation.
 */
enum sw_status managed_alloc(struct device *device, const struct backend_request *request, struct ledger_row *row);
/*
 * Brings to the heap what the CPU has of the allocations with these n addresses, and of all on the devices (bits), and
 * all that they point to; and all that it has touched. The caller must have taken memory for what is named; take()
 * takes more (whole: of all, because it is not known what is used). An error leaves to the CPU all that it had. Waits
 * for the copy, and, where the program uses host functions, for up to half a second for those that the stream was given
 * before. Locking: the caller must hold nothing.
 */
struct named;
typedef enum sw_status managed_take(struct device *device, CUdeviceptr address, uint64_t bytes, bool whole);
enum sw_status managed_bring(const struct named *names, uint32_t n, uint64_t devices, managed_take *take);

/* Returns whether the CPU may have written what the GPU does not have. Locking: none. */
bool managed_is_cpus(const struct device *device, CUdeviceptr address);

/*
 * To be called before managed_bring() for a use that is no submission. Waits, for up to half a second, until the stream
 * has completed what it was given, if the program uses functions of the host: they may write what is to be brought.
 */
void managed_wait(CUstream stream, bool per_thread);

/* The program has submitted a function of the host to a stream, or made a node of one. Locking: none. */
void managed_host_function(void);
/* The process has a context on this device now: it reaches all managed memory on heaps. Locking: as PEER. */
void managed_context_made(CUdevice device);

/*
 * The result that a call stores where the program wants it. The driver stores it while it holds its locks, which a
 * touch of what the GPU has needs. So if that is managed memory, the call gets another place.
 */
struct managed_result {
	void *at;
	size_t bytes; /* 0: it was no managed memory */
	uint64_t value;
};
/* Returns where the call is to store it. bytes: 8 at most. Locking: the caller must hold nothing. */
void *managed_result_begin(struct managed_result *result, void *at, size_t bytes);
/* Stores the result there. To be called only after the call has succeeded. Locking: likewise. */
void managed_result_end(const struct managed_result *result);

/*
 * To be called in STAGE_ENDING: no copy to the CPU begins any more. Waits until the last one has ended, for up to a
 * second: the driver's own end may come next. Locking: takes MANAGED.
 */
void managed_end(void);

#endif
