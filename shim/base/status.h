/* status.h: the one status type inside Spillway; its values are the rows of status.def. */
#ifndef SPILLWAY_STATUS_H
#define SPILLWAY_STATUS_H

#include <cuda.h>

enum sw_status {
#define STATUS(name, result, text) SW_##name,
#include "shim/base/status.def"
	SW_STATUS_COUNT, /* must be last */
};

/* What the program gets to see. */
CUresult status_result(enum sw_status status);
/* What a caller of spillway.h gets to see: 0, or a negative errno value. */
int status_errno(enum sw_status status);
/* One half-sentence for messages. */
const char *status_text(enum sw_status status);
/*
 * Our status for a driver result: OK, NO_MEMORY, INVALID, NOT_SUPPORTED, CONTEXT, else DRIVER. The driver's own code is
 * kept for this thread: status_result(SW_DRIVER) gives the last one, so that the program sees what the driver said.
 */
enum sw_status status_of(CUresult result);

#endif
