// SPDX-License-Identifier: Apache-2.0
/*
 * types.h: what this room keeps for the process, in one object. Only the files of the room use it.
 */
#ifndef SPILLWAY_SERVE_TYPES_H
#define SPILLWAY_SERVE_TYPES_H

#include "shim/base/array.h"
#include "shim/base/clock.h"
#include "shim/base/lock.h"
#include "shim/base/socket_server.h"
#include "shim/heap/arena.h"
#include "shim/serve/managed.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct segment; /* segments.c */
struct taken;   /* ipc.c */

/* ---- async.c ---- */

struct async_state {
	_Atomic uint64_t n_threads; /* that have used their own default stream, ever; numbers their orders */
};

/* ---- deferred_free.c ---- */

struct deferred_free_state {
	struct lock lock;                /* DEFERRED_FREE */
	struct ledger_row *list, **tail; /* oldest first. Guarded by DEFERRED_FREE. */
	unsigned n_eventless;            /* rows among those without an event. Guarded by DEFERRED_FREE. */
	atomic_uint n_pending;           /* rows on the list; written under the lock, read without it: is there any? */
	_Atomic uint64_t n_added;        /* rows ever added; written by any thread, before it takes the lock */
	/*
	 * Contexts ended, ever; written under the lock. Who takes a row off the list reads it then, and again under the
	 * lock before it touches the row's event, which may have ended with a context meanwhile.
	 */
	atomic_uint n_ends;
};

/* ---- ipc.c ---- */

struct ipc_give_state {
	struct lock lock;            /* IPC_SERVER: held over the start, so that a second caller finds it started */
	struct socket_server server; /* the start sets its function */
};

struct ipc_take_state {
	struct lock lock;   /* IPC_OPENED: the list; held while one is opened or closed */
	struct taken *list; /* Guarded by IPC_OPENED. */
};

/* ---- segments.c ---- */

struct segments_state {
	struct segment *list;    /* Guarded by DEFERRED_FREE. */
	atomic_uint n_waiting;   /* whose event is worth a query; written under the lock, read without it */
	_Atomic uint64_t ticked; /* ns: time of the last tick, 0: none yet; written by the thread of the ticks */
	_Atomic bool beside;     /* spill.mode was changed to `fast`; written under the lock, read without it */
};

/* ---- vmm.c ---- */

struct vmm_state {
	/*
	 * VMM: protects the choice whether a handle, which one thread maps and another one exports, becomes the
	 * driver's or is placed. Either caller takes a reference first, so that the handle does not end meanwhile.
	 * Held from the question whether addresses are free to the row of what is mapped there.
	 */
	struct lock lock;
	_Atomic uint64_t n_handles; /* handles of ours made, ever */
};

/* ---- managed.c, touch.c ---- */

/* One allocation: its device, and its first unit there. */
struct managed {
	struct device *device;
	uint32_t first;
};

/* What was given to the CPU last. */
struct touch_window {
	CUdeviceptr at;
	size_t bytes;
};

struct managed_state {
	struct lock lock; /* MANAGED */
	bool busy;        /* a thread brings, makes or ends managed memory. Guarded by MANAGED. */
	struct clock_cond done;
	_Atomic uint64_t low, high;  /* bounds of all that ever was; written in that turn; high 0: none was */
	atomic_uint n_lines;         /* that the handler has written */
	_Atomic bool host_functions; /* the program has used functions of the host in streams or graphs */
	/* touch.c: what is READ or DIRTY. Written by who has the turn; n_touched is read by all. */
	struct managed *touched;
	_Atomic uint32_t n_touched;
	uint32_t room_touched;
	_Atomic(managed_take *) take; /* that the first use has brought */
	bool touch_asked;             /* whether touches can be served has been asked */
	_Atomic bool touches;         /* they can */
	uint32_t n_made;              /* allocations that there are; in the turn */
	uint32_t n_mapped_most;
	char *touch_stage; /* of HEAP_UNIT bytes */
	struct touch_window touch_last;
};

struct serve_state {
	struct async_state async;
	struct deferred_free_state deferred_free;
	struct ipc_give_state ipc_give;
	struct ipc_take_state ipc_take;
	/* LIMIT: from the question whether spill.limit leaves room until it is taken (make_room.c). */
	struct lock limit;
	_Atomic uint64_t turns[DEVICE_MOST]; /* make_room.c: end of the turn (ns), by device; 0: no request has it */
	struct segments_state segments;
	struct vmm_state vmm;
	struct managed_state managed;
};

/* Hidden, so that its address is not loaded from the GOT. */
extern struct serve_state serve_state __attribute__((visibility("hidden")));

/* ---- touch.c ---- */

/* Starts what serves touches, once, in the turn. Without that the CPU has no access after the GPU's first use. */
void touch_start(void);

/* ---- sides.c ---- */

const struct arena *managed_arena(struct managed it);
struct unit_state *managed_state_of(struct managed it);
char *managed_unit(struct managed it, uint32_t unit);
uint64_t managed_bytes(struct managed it);
/* Finds the allocation that has the address. Returns false if there is none of managed memory. Locking: none. */
bool managed_find(CUdeviceptr address, struct managed *ret);
/* One thread at a time brings, makes or ends managed memory. Locking: the caller must have disabled cancellation. */
void managed_turn_begin(void);
void managed_turn_end(void);
/*
 * Calls work() on a stream of its own, which waits for nothing, in a context of the memory's device; is_idle: on this
 * thread's default stream, because nothing runs. These bytes do not move meanwhile; NOT_READY if that is not to be had
 * now.
 */
typedef CUresult managed_work(void *argument, struct managed it, CUstream stream);
CUresult managed_on_stream(struct managed it, CUdeviceptr at, uint64_t bytes, bool is_idle, managed_work *work,
			   void *argument);
/* Says whose memory the address is, if the CPU has no access to it. Async-signal-safe. */
void managed_say(uintptr_t address);

/* The following, in the turn. */

/*
 * A child of a fork has no access, as natively. What the driver has there itself allows no access either, so nothing
 * of it is lost; a range is given back as one without access.
 */
bool managed_map_for_cpu(void *at, uint64_t bytes);
void managed_unmap_for_cpu(void *at, uint64_t bytes);
/*
 * The allocation goes to the GPU: a write of the CPU waits from now on. Returns false if the caller must protect the
 * memory itself, and the CPU will have no access.
 */
bool managed_watch(struct managed it);
/* Nothing of it is the CPU's any more. Returns false if the caller must take the access away itself. */
bool managed_withdraw(struct managed it);
/* The CPU has touched what the GPU has: nothing is submitted before it has gone back. Returns false without memory. */
bool managed_touched(struct managed it);
void managed_touched_end(struct managed it);
void managed_touched_end_all(void);

#endif
