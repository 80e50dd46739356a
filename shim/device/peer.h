/*
 * peer.h: which GPUs may reach the heap memory of which.
 *
 * Natively cuCtxEnablePeerAccess gives a context what another one allocates. Heap memory is mapped, and mappings are
 * opened to devices, not to contexts (docs/facts.md, Pointer queries): so a heap is open to a device while any living
 * context of it has access to any living context of the heap's device, and while a pool whose memory may be in the heap
 * is open to it. A context may so reach more than natively; never less. What it is told about a pointer is what it
 * would be told natively.
 *
 * Which devices those are is a word of bits for each heap, read where memory is mapped (heap.h). A device is added, and
 * what is mapped is opened to it, before the program's call returns. One is taken away when nothing of it runs, for a moment
 * that is waited for, or else at a tick, when what it had been given is done.
 *
 * Lock: PEER, over the list of what was enabled and over VMM calls; never held while the GPU is waited for.
 */
#ifndef SPILLWAY_PEER_H
#define SPILLWAY_PEER_H

#include "shim/device/device.h"
#include "shim/device/peer_map.h"
#include "shim/accounting/ledger.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

extern struct lock peer_lock;

/* May this device reach the heap memory of that one? No lock. */
bool peer_reaches(CUdevice device, CUdevice owner);
/*
 * Devices that may touch the heap memory of that one, bits: it itself, and all that were ever to have access. They only
 * become more, and say nothing of copies that name memory of another device without having access (copy.c).
 */
uint64_t peer_may_reach(CUdevice owner);
/*
 * What moves while those devices alone stand still leans on it that no other one comes to reach the heap: until
 * peer_unshut() whoever opens it to another one waits. False: another one may by now, and nothing is shut. One thread at a
 * time.
 */
bool peer_shut(CUdevice owner, uint64_t devices);
void peer_unshut(CUdevice owner);
/*
 * A copy leans on such access that another thread may take away at any time, for natively copies need none: it holds
 * before it asks, and lets go when it has been submitted. Access that is held, or that something submitted with it may
 * still use, is not taken away.
 */
void peer_hold(void);
void peer_let_go(void);

/*
 * After the driver has agreed: the current context may reach what the other one allocates, or no more. An error: it may
 * not, and the driver is to be asked to take it back.
 */
CUresult peer_enabled(CUcontext owner);
void peer_disabled(CUcontext owner);
void peer_context_ended(CUcontext context);
/* About once a second: what a busy device was left is taken from it when that can be. By one thread, under no lock. */
void peer_tick(void);

/* The same for a pool whose memory may be in the heap of that device. */
CUresult peer_pool_opened(uint64_t pool, CUdevice owner, CUdevice device);
void peer_pool_closed(uint64_t pool, CUdevice device);

/* What the context (NULL: nobody asks for any) may do with a heap block, as natively. */
CUmemAccess_flags peer_access(CUcontext context, const struct ledger_row *row);

#endif
