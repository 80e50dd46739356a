/*
 * peer.h: peer access: which GPUs may access the heap memory of which.
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
#ifndef SPILLWAY_PEER_H
#define SPILLWAY_PEER_H

#include "shim/accounting/ledger.h"
#include "shim/device/device.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

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

#endif
