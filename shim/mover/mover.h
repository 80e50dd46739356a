/*
 * mover.h: the engine of a device, and its thread.
 */
#ifndef SPILLWAY_MOVER_H
#define SPILLWAY_MOVER_H

#include "shim/context/context.h"
#include "shim/plan/governor.h"
#include "shim/plan/trial.h"
#include <pthread.h>
#include "shim/device/device.h"

#include <stdbool.h>

struct engine;

/* Its thread, and when something last moved. The thread itself alone may touch it, once it runs. */
struct loop {
	pthread_t thread;
	bool has_thread, ended;
	uint64_t copied; /* ns: when copies were last under way */
};

/* Does moving pay (govern() in mover.c)? The mover's thread alone may touch it. */
struct move_governor {
	struct governor by_rate;
	struct trial trial;
	bool allows;     /* moving, at present */
	uint64_t begun;  /* ns: when it began to look; 0: not yet */
	bool knows_most; /* the future of most memory has been known since then */
	uint64_t asked;  /* ns: when the two were asked last */
};

/* Is everything known that runs on the device? The mover's thread alone may touch it. */
struct tracking {
	bool asked; /* `idle` is a question that is open */
	struct context_idle idle;
	bool complete; /* every submission that was not tracked is done */
};

/* Host memory that is pinned ahead (stock() in mover.c). The mover's thread alone may touch it. */
struct host_reserve {
	uint64_t after; /* ns: nothing is pinned ahead before */
	uint64_t since; /* ns: when no host memory was missing that could be pinned ahead, */
	uint64_t moved; /* what had moved until then, */
	uint64_t heard; /* and how many submissions had been heard of */
};

/* The engine of a device, without its thread yet. Returns NULL if there is no memory for it. */
struct engine *mover_new(struct device *device, struct heap *heap, bool exact);
/* Starts its thread. Returns false if the system has none. */
bool mover_start(struct engine *engine);
/* Bytes: driver calls are made on the threads of an engine. */
#define ENGINE_STACK ((size_t)1 << 20)

#endif
