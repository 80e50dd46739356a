/* peer_map.h: the devices to which each heap is mapped. peer.c decides, device.c passes the word to the heap. */
#ifndef SPILLWAY_PEER_MAP_H
#define SPILLWAY_PEER_MAP_H

#include "shim/device/device.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Whether heap memory exists and the process has contexts on more than one GPU. Until then copies need no check. */
extern _Atomic bool peer_any;
/* Records that the process has a context on the device. */
void peer_context_made(CUdevice device);
static inline bool peer_is_any(void)
{
	return __builtin_expect(atomic_load_explicit(&peer_any, memory_order_relaxed), 0);
}
/*
 * Must be called before a heap is created; returns the address of the bits that the heap reads. Locking: the caller
 * holds START.
 */
const _Atomic uint64_t *peer_heap(int owner);

#endif
