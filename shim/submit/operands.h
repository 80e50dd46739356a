/*
 * operands.h: what each submission names. Each row of hooks.def that submits work has one function here, declared from
 * the rows: operands_NAME(use, arguments of the call) gives struct submission the stream, the work, and every address.
 * A row without a definition does not link.
 *
 * These functions read only what the real call is about to read, and only as far as its arguments say. Arguments that
 * the driver would refuse (a NULL, a size that exceeds the address space) yield no name, or too many, and never crash
 * where the driver would not. They preserve errno, and allocate nothing except for arrays of pointers
 * (pointer_arrays.h).
 *
 * Locking: graph launches take GRAPH, kernels and copies may take POINTER_ARRAYS; the others take no lock.
 */
#ifndef SPILLWAY_OPERANDS_H
#define SPILLWAY_OPERANDS_H

#include "shim/submit/submission.h"

#include <cuda.h>

/* Removes the brackets around a parameter list: operands_cuMemsetD8_v2(use, OPERANDS_UNPACK args). */
#define OPERANDS_UNPACK(...) __VA_ARGS__

/* clang-format off */
#define HOOK_SUBMIT(name, params, args) void operands_##name(struct submission *submission, OPERANDS_UNPACK params);
#define HOOK_SUBMIT_SYNC(name, params, args) void operands_##name(struct submission *submission, OPERANDS_UNPACK params);
#include "shim/driver/hooks.def"
/* clang-format on */

#endif
