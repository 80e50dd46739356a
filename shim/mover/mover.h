/*
 * mover.h: the engine of a device, and its thread.
 */
#ifndef SPILLWAY_MOVER_H
#define SPILLWAY_MOVER_H

#include "shim/device/device.h"

#include <stdbool.h>

struct engine;

/* The engine of a device, without its thread yet. Returns NULL if there is no memory for it. */
struct engine *mover_new(struct device *device, struct heap *heap, bool exact);
/* Starts its thread. Returns false if the system has none. */
bool mover_start(struct engine *engine);
/* Bytes: driver calls are made on the threads of an engine. */
#define ENGINE_STACK ((size_t)1 << 20)

#endif
