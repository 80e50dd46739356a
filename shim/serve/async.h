/*
 * async.h: stream-ordered allocations and frees, served by the heap (async.use: heap, auto).
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
 * The driver's pools serve what a capturing stream allocates (it becomes a node of the graph), pools that can be
 * exported or have a limit, and what a rule leaves to the driver. Devices that a pool is opened to also reach what
 * the pool has in the heap (peer.h).
 *
 * With async.use: auto they serve everything else as well, as long as they can: the heap is asked for what would take
 * the device over its budget (pool_claim()), and for what the driver has no memory for (async_rescue()). Where memory
 * moves, the heap is asked for everything from then on (pool_close()).
 */
#ifndef SPILLWAY_ASYNC_H
#define SPILLWAY_ASYNC_H

#include "policy/policy.h"
#include "shim/serve/serve.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

struct async_request {
	size_t bytes;
	enum policy_api api;          /* ASYNC, or POOL where the program names the pool */
	void *caller;                 /* caller's address in the program */
	const struct call_site *site; /* what asked; found by async_alloc() */
	CUmemoryPool pool;            /* NULL: the current one of the stream's device */
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

#endif
