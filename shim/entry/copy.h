/*
 * copy.h: copies that may be between GPUs (entry_copy.c, copy.c). True: *ret_result is the answer; false: the call goes
 * the way of any submission. One function for each row of its kinds.
 */
#ifndef SPILLWAY_COPY_H
#define SPILLWAY_COPY_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#define COPY_UNPACK(...) __VA_ARGS__

/* clang-format off */
#define HOOK_COPY(name, params, args) bool copy_##name(CUresult *ret_result, COPY_UNPACK params);
#define HOOK_COPY_SYNC(name, params, args) bool copy_##name(CUresult *ret_result, COPY_UNPACK params);
#include "shim/driver/hooks.def"
/* clang-format on */

#endif
