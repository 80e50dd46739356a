/*
 * managed_prefetch.h: prefetches managed memory to the device before it is used. A prefetch is submitted behind the
 * work of its stream and is never waited for. It asks for at most the free memory of the device, less the headroom that
 * the policy keeps, less the promises: bytes of earlier prefetches that may not have taken their memory yet. An event
 * follows each prefetch; its bytes are promised until that event is complete. Correctness does not depend on
 * prefetches: if anything is in the way, nothing is prefetched.
 *
 * Locking: each function may take MANAGED_PREFETCH, which protects the promises; queries of their events and of free
 * memory are made under it, and none of them waits.
 */
#ifndef SPILLWAY_MANAGED_PREFETCH_H
#define SPILLWAY_MANAGED_PREFETCH_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Prefetches a block, or as much of its front as there is room for, to the current device. Does nothing while a capture
 * is open. headroom: bytes that stay free. per_thread: stream 0 is the thread's own.
 */
void managed_prefetch_bring(CUdeviceptr address, size_t bytes, uint64_t headroom, CUstream stream, bool per_thread);
/* Prefetches the blocks with prefetch enabled among the addresses that a launch on this stream names. */
void managed_prefetch_launch(const CUdeviceptr *named, unsigned n, CUstream stream, bool per_thread);
/* Forgets the events of a context, which are about to end with it. */
void managed_prefetch_context_ending(CUcontext context);
#endif
