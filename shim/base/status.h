/* status.h: the one status type inside Spillway; its values are the rows of status.def. */
#ifndef SPILLWAY_STATUS_H
#define SPILLWAY_STATUS_H

#include <cuda.h>

enum sw_status {
#define STATUS(name, result, text) SW_##name,
#include "shim/base/status.def"
	SW_STATUS_COUNT, /* must be last */
};

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
