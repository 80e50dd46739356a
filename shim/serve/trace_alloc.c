/*
 * trace_alloc.c: writes the trace events of allocations and frees. See trace_alloc.h.
 */
#include "shim/serve/trace_alloc.h"
#include "policy/policy.h"
#include "shim/base/clock.h"
#include "shim/heap/heap.h"
#include "shim/trace/trace.h"

#define TRACED (LEDGER_HEAP | LEDGER_DRIVER | LEDGER_MANAGED | LEDGER_ASYNC | LEDGER_SYSTEM)

/* Mappings of the program are traced only if they are the heap's (vmm.h). */
static bool is_traced(const struct ledger_row *row)
{
	return row->kind & TRACED || ledger_is_heap_mapping(row);
}

static uint64_t backend_of(const struct ledger_row *row)
{
	switch (row->kind) {
	case LEDGER_HEAP:
	case LEDGER_MAPPING:
		return POLICY_USE_HEAP;
	case LEDGER_MANAGED:
		return POLICY_USE_MANAGED;
	case LEDGER_SYSTEM:
		return POLICY_USE_SYSTEM;
	default:
		return POLICY_USE_DRIVER;
	}
}

uint32_t trace_api(const struct backend_request *request)
{
	return request->height ? POLICY_API_PITCH : request->api;
}

void trace_ask(const struct device *device, const struct backend_request *request)
{
	trace_event(ask, request->bytes, trace_api(request), (uint64_t)device->ordinal, trace_site(request->site));
}

void trace_refused(const struct device *device, const struct backend_request *request, int rule, int result)
{
	trace_event(refused, request->bytes, trace_api(request), (uint64_t)device->ordinal, (uint64_t)(rule + 1),
		    trace_site(request->site), (uint64_t)result);
}

static uint64_t bytes_on_host(const struct ledger_row *row)
{
	struct device *device = row->kind & (LEDGER_HEAP | LEDGER_MAPPING) ? device_get(row->device) : NULL;
	struct heap *heap = device ? atomic_load(&device->heap) : NULL;
	uint64_t bytes[CHUNK_PLACES] = {0};
	bool stays;

	return heap && heap_where(heap, row->key, row->bytes, bytes, &stays) == SW_OK
		   ? bytes[CHUNK_HOST] + bytes[CHUNK_PEER]
		   : 0;
}

/*
 * Records what other devices lend for this row. Called only for a row with bytes off the device, whose heap is in
 * use.
 */
static void tell_loans(const struct ledger_row *row)
{
	struct heap_loan loans[HEAP_LENDERS];
	unsigned n = heap_loans(atomic_load(&device_get(row->device)->heap), row->key, row->bytes, loans);

	for (unsigned i = 0; i < n; i++)
		trace_event(lent, row->id, (uint64_t)loans[i].device, loans[i].bytes);
}

void trace_made(const struct ledger_row *row, uint32_t api, const struct call_site *site)
{
	if (!trace_is_on() || !is_traced(row))
		return;
	uint64_t on_host = bytes_on_host(row);
	trace_event(made, row->id, row->key, row->bytes, api, (uint64_t)row->device, backend_of(row),
		    (uint64_t)(row->rule + 1), trace_site(site), on_host);
	if (on_host)
		tell_loans(row);
}

struct trace_freeing trace_freeing(const struct ledger_row *row)
{
	if (!trace_is_on() || !row || !is_traced(row))
		return (struct trace_freeing){0};
	return (struct trace_freeing){row->id, clock_now()};
}

void trace_freed(struct trace_freeing freeing)
{
	if (freeing.time)
		trace_event_at(freed, freeing.time, freeing.id);
}
