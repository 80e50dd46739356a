/*
 * hint.h: prefetches and discards of memory that the driver does not take for managed: one function for each
 * HOOK_HINT row, defined in entry_hint.c and entry_batch.c. Each returns true if *ret_result is the answer to the
 * program, and false if the caller must submit the call like any other.
 */
#ifndef SPILLWAY_HINT_H
#define SPILLWAY_HINT_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#define HINT_UNPACK(...) __VA_ARGS__

/*
 * Returns false if a hint about these bytes is for the driver. Otherwise sets *ret_result: an error if the bytes are
 * not within one live block, or if memory cannot be at the location (NULL: none is given). The caller must be inside
 * enter_serve().
 */
bool hint_is_ours(CUdeviceptr address, size_t bytes, const CUmemLocation *location, CUresult *ret_result);

/* clang-format off */
#define HOOK_HINT(name, params, args) bool hint_##name(CUresult *ret_result, HINT_UNPACK params);
#include "shim/driver/hooks.def"
/* clang-format on */

#endif
