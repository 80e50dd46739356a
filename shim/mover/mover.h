/*
 * mover.h: creates the engine of a device and starts its thread, the mover.
 */
#ifndef SPILLWAY_MOVER_H
#define SPILLWAY_MOVER_H

#include "policy/policy.h"
#include "shim/context/context.h"
#include "shim/device/device.h"

#include <pthread.h>
#include <stdbool.h>

struct engine;

/*
 * The thread of the engine, and when memory last moved. Only the thread itself may touch it once it runs,
 * but for `left`, which others read.
 */
struct loop {
	pthread_t thread;
	bool has_thread, ended;
	_Atomic bool left; /* its thread calls the driver no more */
	uint64_t copied;   /* ns: when copies were last in flight */
	uint64_t quiet_ns; /* how long ago that was when this pass began */
	uint64_t governed; /* ns: when the governor was last updated */
};

/* Whether everything that runs on the device is known. Only the mover's thread may touch it. */
struct tracking {
	bool asked; /* `idle` holds a query that is not answered yet */
	struct context_idle idle;
	bool complete; /* every submission that was not tracked has completed */
	uint64_t from; /* the latest submission when that was so: what comes after it is numbered */
};

/*
 * State of pinning host memory ahead of use (mover_stock() in mover.c). Only the mover's thread may touch it, except
 * `leaving`.
 */
struct host_reserve {
	uint64_t after;           /* ns: nothing is pinned ahead before this time */
	uint64_t since;           /* ns: when the reserve last needed nothing that could be pinned */
	uint64_t moved;           /* bytes that had moved until then */
	uint64_t heard;           /* submissions that had been read until then */
	_Atomic uint64_t leaving; /* bytes that will leave at once; 0: not known (spill_leaves_soon) */
	uint64_t leaving_after;   /* ns: nothing is pinned for them before this time */
};

/*
 * Creates the engine of a device, without its thread. exact: the policy's mode is `exact`, not `fast`. Returns NULL if
 * there is no memory for it.
 */
struct engine *mover_new(struct device *device, struct heap *heap, bool exact);
/*
 * Sets which contents it keeps, before its thread starts; all of them if this is not called. all_now: of what it keeps
 * so far by what an allocator reported, everything, because submissions that were not seen may have named it.
 */
void mover_keep(struct engine *engine, enum policy_contents contents, bool all_now);
/* Starts the mover's thread. Returns false if the system has no resources for it. */
bool mover_start(struct engine *engine);
/*
 * Returns for how long, in ns, the mover naps while nothing is in flight and no submission waits. Beside kernels it
 * looks often while the program submits: what has been used may leave for what comes.
 */
uint64_t mover_idle_ns(const struct engine *engine);
/* Stack size in bytes; driver calls are made on the threads of an engine. */
#define ENGINE_STACK ((size_t)1 << 20)

#endif
