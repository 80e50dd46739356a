/*
 * hint.h: prefetches of memory that is not managed as far as the driver knows (entry_hint.c). True: *ret_result is the
 * answer; false: the call goes the way of any submission. One function for each row of its kind.
 */
#ifndef SPILLWAY_HINT_H
#define SPILLWAY_HINT_H

#include <cuda.h>
#include <stdbool.h>

#define HINT_UNPACK(...) __VA_ARGS__

/* clang-format off */
#define HOOK_HINT(name, params, args) bool hint_##name(CUresult *ret_result, HINT_UNPACK params);
#include "shim/hooks.def"
/* clang-format on */

#endif
