/*
 * copy.h: copies that may be between GPUs: one function for each HOOK_COPY and HOOK_COPY_SYNC row, defined in
 * entry_copy.c. Each returns true if it has made the copy in another way than the driver would, with the answer in
 * *ret_result, and false if the caller must submit the call like any other.
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
