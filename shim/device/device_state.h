/*
 * device_state.h: everything that this room keeps for the process, in one object. Only the files of the room use it.
 * What other rooms name stays apart and is defined beside the object: host_budget (device.h), pool_lock (pool.h),
 * peer_lock (peer.h), and peer_any (device.h), which an inline function reads.
 *
 * `devices` is read for each address that a submission names. Nothing that is written often lies beside it.
 */
#ifndef SPILLWAY_DEVICE_STATE_H
#define SPILLWAY_DEVICE_STATE_H

#include "shim/base/array.h"
#include "shim/context/context.h"
#include "shim/device/device.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- device.c ---- */

struct device_devices {
	_Atomic(struct device *) row[DEVICE_MOST]; /* by ordinal; written under START */
	atomic_uint n;                             /* highest examined ordinal, plus 1 */
	struct policy_size budget;                 /* set while the process runs, if is_changed; under START */
	bool is_changed, is_host_changed;
	bool beside, is_beside_changed; /* memory moves beside what runs (device_set_beside()); under START */
};

/* ---- pool.c ---- */

struct pool;

struct pool_state {
	struct pool *list;    /* under pool_lock */
	_Atomic uint64_t ids; /* the last number that was given to a pool */
	atomic_bool any;      /* a pool, or a graph with allocation nodes, has existed */
	atomic_bool chosen;   /* the program has set a current pool, which may not be the default one */
};

/* ---- peer.c ---- */

struct peer_map_state {
	_Atomic uint64_t heaps, contexts; /* devices with a heap, and devices with a context, as bits */
	/* By owner, bits of devices to which new mappings are opened. Written by peer.c only. */
	_Atomic uint64_t mapped_for[DEVICE_MOST];
};

/*
 * Access of one context to another, or (context and owner_context NULL) of a device to a pool, or (pool 0, too) of a
 * device whose copies need it.
 */
struct opening {
	struct opening *next;
	CUcontext context, owner_context;
	uint64_t pool;
	CUdevice device, owner;
};

/*
 * The question whether a device is idle, kept from tick to tick: a device that gets more and more work would never be
 * idle.
 */
struct question {
	struct context_idle idle;
	unsigned changes;
	bool asked;
};

struct peer_state {
	struct opening *list; /* under peer_lock */
	/*
	 * By owner, bits of devices that a copy may rely on, because they can access all of the heap and the access is
	 * wanted. A device that is no longer wanted loses this bit at once, and its bit in mapped_for, to which new
	 * mappings are opened, when it is idle: work that waits for moving memory must find it open.
	 */
	_Atomic uint64_t usable[DEVICE_MOST];
	/* By owner: devices that were ever in mapped_for, or are about to be. */
	_Atomic uint64_t ever[DEVICE_MOST];
	/*
	 * By device: other devices whose copies with it need no more to be looked at, and those that it cannot access.
	 */
	_Atomic uint64_t copies_open[DEVICE_MOST], copies_refused[DEVICE_MOST];
	/* By owner: odd while the heap is shut; counts up each time. */
	atomic_uint shuts[DEVICE_MOST];
	atomic_uint n_holds; /* threads between peer_hold() and peer_let_go() */
	/*
	 * Counts changes of access. A question put to a device before a change does not cover work that has used the
	 * access since.
	 */
	atomic_uint n_changes;
	_Atomic bool is_left; /* access that is no longer wanted may still be open; the next tick checks */
	struct question question[DEVICE_MOST]; /* by device; only the thread of peer_tick() uses them */
};

struct device_state {
	struct device_devices devices;
	struct pool_state pool;
	struct peer_map_state peer_map;
	struct peer_state peer;
};

/* Hidden, so that its address is not loaded from the GOT. */
extern struct device_state device_state __attribute__((visibility("hidden")));

#endif
