/*
 * Traces events. The thread that reports does so, and not the reader of the ring: before something spills, nobody reads
 * it, and a trace of that time must have its births, too.
 */
#include "shim/base/call_site.h"
#include "shim/lifetimes/lifetimes_state.h"
#include "shim/trace/trace.h"

void lifetimes_trace(int on, enum lifetimes_kind kind, uint64_t address, uint64_t bytes, unsigned site)
{
	uint64_t device = (uint64_t)on;

	switch (kind) {
	case LIFETIMES_REPORTED:
		trace_event(kept, device, address, bytes);
		break;
	case LIFETIMES_ADOPTED:
		trace_event(kept, device, address, bytes);
		trace_event(born, device, address, bytes, 0);
		break;
	case LIFETIMES_BORN:
		trace_event(born, device, address, bytes, trace_site(call_site_numbered(site)));
		break;
	case LIFETIMES_DIED:
		trace_event(died, device, address, bytes);
		break;
	case LIFETIMES_DISTRUSTED:
		trace_event(doubted, device, address, bytes);
		break;
	case LIFETIMES_DISTRUSTED_ALL:
		trace_event(doubted, device, 0, 0);
		break;
	case LIFETIMES_FREED: /* the trace has the end of the allocation */
	case LIFETIMES_LOST:  /* it has those */
		break;
	}
}
