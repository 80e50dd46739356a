/*
 * trace_alloc.h: trace events of allocations and frees (trace/trace.h): requested, refused, a row that is about to be
 * committed, and one that is freed. Kinds that are not memory of a device are left out. While the trace is off, each
 * call costs one relaxed load and a branch.
 */
#ifndef SPILLWAY_TRACE_ALLOC_H
#define SPILLWAY_TRACE_ALLOC_H

#include "shim/accounting/ledger.h"
#include "shim/device/device.h"
#include "shim/serve/backend.h"

/*
 * A free is recorded once the driver has not refused it, with the time at which it began: another thread may have the
 * address before the call returns.
 */
struct trace_freeing {
	uint64_t id, time; /* time 0: it is not recorded */
};
void trace_ask(const struct device *device, const struct backend_request *request);
void trace_refused(const struct device *device, const struct backend_request *request, int rule, int result);
/* Locking: looks at the heap, so the caller must hold no lock of the rank of HEAP or above. */
void trace_made(const struct ledger_row *row, uint32_t api, const struct call_site *site);
struct trace_freeing trace_freeing(const struct ledger_row *row); /* accepts NULL */
void trace_freed(struct trace_freeing freeing);
/* Returns the api that the trace records: PITCH for a pitched request. */
uint32_t trace_api(const struct backend_request *request);

#endif
