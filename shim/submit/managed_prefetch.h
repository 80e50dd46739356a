/*
 * managed_prefetch.h: managed memory brought to the device before it is used. A prefetch goes behind what its stream has been given
 * and is never waited for. It asks for no more than the device has free, less the headroom that the policy keeps, less
 * what earlier prefetches have been promised and may not have taken yet: each is followed by an event, and until that
 * has passed its bytes count. Nothing of this is needed for right answers; whatever is in the way, nothing is brought.
 *
 * Lock: a small one of its own, the last to be taken, over the list of promises, and questions to the driver about
 * their events and about free memory: none of them waits.
 */
#ifndef SPILLWAY_MANAGED_PREFETCH_H
#define SPILLWAY_MANAGED_PREFETCH_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Bring the block, or its front as far as there is room, to the current device. Never while a capture is open. per_thread:
 * stream 0 is this thread's own.
 */
void managed_prefetch_bring(CUdeviceptr address, size_t bytes, uint64_t headroom, CUstream stream, bool per_thread);
/* A launch on that stream names these addresses: the blocks among them that want it are brought. */
void managed_prefetch_launch(const CUdeviceptr *named, unsigned n, CUstream stream, bool per_thread);
/* The events of that context are about to end with it. */
void managed_prefetch_context_ending(CUcontext context);
#endif
