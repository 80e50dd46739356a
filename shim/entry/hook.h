/*
 * hook.h: the exported entry points. Included by the files that define their bodies, and by resolve.c, which returns
 * the bodies in place of the driver's addresses.
 */
#ifndef SPILLWAY_HOOK_H
#define SPILLWAY_HOOK_H

#include "shim/driver/real.h"

#include <cuda.h>

/* Marks a body that programs can link to. Every other symbol of the library is hidden. */
#define HOOK_EXPORT __attribute__((visibility("default")))

#endif
