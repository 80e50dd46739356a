/*
 * hook.h: the exported entry points. Included by the files that hold bodies, and by resolve.c, which swaps them in.
 */
#ifndef SPILLWAY_HOOK_H
#define SPILLWAY_HOOK_H

#include "shim/driver/real.h"

#include <cuda.h>

/* A body that programs may reach by linking. The rest of the library is hidden. */
#define HOOK_EXPORT __attribute__((visibility("default")))

#endif
