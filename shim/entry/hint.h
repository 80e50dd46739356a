/*
 * hint.h: prefetches of memory that is not managed as far as the driver knows (entry_hint.c, entry_batch.c), and discards. True: *ret_result is the
 * answer; false: the call goes the way of any submission. One function for each row of its kind.
 */
#ifndef SPILLWAY_HINT_H
#define SPILLWAY_HINT_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#define HINT_UNPACK(...) __VA_ARGS__

/*
 * Are these bytes ours to take hints about? False: the driver's. True: *ret_result says whether they are bytes of one
 * live block, and whether memory can be at the location (NULL: none is given). Inside enter_serve().
 */
bool hint_is_ours(CUdeviceptr address, size_t bytes, const CUmemLocation *location, CUresult *ret_result);

/* clang-format off */
#define HOOK_HINT(name, params, args) bool hint_##name(CUresult *ret_result, HINT_UNPACK params);
#include "shim/driver/hooks.def"
/* clang-format on */

#endif
