/*
 * peer_map.h: to which devices each heap is mapped. peer.c decides it, device.c hands it to the heap.
 */
#ifndef SPILLWAY_PEER_MAP_H
#define SPILLWAY_PEER_MAP_H

#include "shim/device/device.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * By owner, bits of devices: those that what is mapped from now on is open to. Written by peer.c alone, which says what a
 * bit promises.
 */
extern _Atomic uint64_t peer_mapped_for[DEVICE_MOST];

/* Is there heap memory, and has the process contexts on more than one GPU? Until then no copy need be looked at. */
extern _Atomic bool peer_any;
void peer_context_made(CUdevice device);
static inline bool peer_is_any(void)
{
	return __builtin_expect(atomic_load_explicit(&peer_any, memory_order_relaxed), 0);
}
/* A heap is about to be made: returns where it reads to which devices it is open. Locking: the caller holds START. */
const _Atomic uint64_t *peer_heap(int owner);

#endif
