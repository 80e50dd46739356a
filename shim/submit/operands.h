/*
 * operands.h: what a submission names. One function for each row of hooks.def that submits work, made from the rows:
 * operands_NAME(use, the call's own arguments) tells struct submission the stream, what is run, and every address. A row
 * without one does not link.
 *
 * They only read what the real call is about to read, and only as far as its arguments say. What the driver would
 * refuse (a NULL, a size that does not fit an address) names nothing, or too much, and never crashes where the driver
 * would not. No lock, no memory, but for arrays of pointers (pointer_arrays.h); errno is kept.
 */
#ifndef SPILLWAY_SPILL_OPERANDS_H
#define SPILLWAY_SPILL_OPERANDS_H

#include "shim/submit/submission.h"

#include <cuda.h>

/* The insides of a bracket: operands_cuMemsetD8_v2(use, OPERANDS_UNPACK args). */
#define OPERANDS_UNPACK(...) __VA_ARGS__

/* clang-format off */
#define HOOK_SUBMIT(name, params, args) void operands_##name(struct submission *use, OPERANDS_UNPACK params);
#define HOOK_SUBMIT_SYNC(name, params, args) void operands_##name(struct submission *use, OPERANDS_UNPACK params);
#include "shim/driver/hooks.def"
/* clang-format on */

#endif
