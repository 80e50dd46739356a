// SPDX-License-Identifier: Apache-2.0
/*
 * status.h: the one status type inside Spillway. A status becomes a CUresult only where a call returns to the program
 * (status_result()).
 */
#ifndef SPILLWAY_STATUS_H
#define SPILLWAY_STATUS_H

#include <cuda.h>
#include <stdbool.h>

/* All results of calls inside the library, one row each: X(name, CUDA result, errno, text). */
/* clang-format off */
#define STATUSES(X)                                                                                                    \
	X(OK, CUDA_SUCCESS, 0, "done")                                                                                 \
	X(INVALID, CUDA_ERROR_INVALID_VALUE, EINVAL, "an argument the driver would refuse")                            \
	X(NO_MEMORY, CUDA_ERROR_OUT_OF_MEMORY, ENOMEM, "over the budgets, or the driver has no memory")                \
	X(LIMIT, CUDA_ERROR_OUT_OF_MEMORY, ENOMEM, "beyond spill.limit")                                               \
	X(NO_HOST_MEMORY, CUDA_ERROR_OUT_OF_MEMORY, ENOMEM, "no memory for our own bookkeeping")                       \
	X(NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED, ENOTSUP, "this driver or device cannot do it")                      \
	X(CONTEXT, CUDA_ERROR_INVALID_CONTEXT, EINVAL, "no current context")                                           \
	X(BUSY, CUDA_ERROR_NOT_READY, EBUSY, "no safe point came in time")                                             \
	X(DRIVER, CUDA_ERROR_UNKNOWN, EIO, "the driver failed in a way we hand on (see the log)")
/* clang-format on */

#define STATUS_NAMED(name, ...) SW_##name,
enum sw_status {
	STATUSES(STATUS_NAMED) SW_STATUS_COUNT, /* must be last */
};
#undef STATUS_NAMED

/* Returns whether memory of another kind may be tried, and without any the program is out of memory. */
static inline bool status_is_short(enum sw_status status)
{
	return status == SW_NO_MEMORY || status == SW_LIMIT;
}

/* Returns the result for the program. */
CUresult status_result(enum sw_status status);
/* Returns the result for callers of spillway.h: 0 or a negative errno value. */
int status_errno(enum sw_status status);
/* Returns half a sentence for messages. */
const char *status_text(enum sw_status status);
/*
 * Returns the status for a driver result: OK, NO_MEMORY, INVALID, NOT_SUPPORTED, CONTEXT, else DRIVER. For DRIVER the
 * code is kept per thread: status_result(SW_DRIVER) returns the last one, so that the program gets the driver's
 * result.
 */
enum sw_status status_of(CUresult result);

#endif
