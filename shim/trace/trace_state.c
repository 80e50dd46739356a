/*
 * The state of the trace: whether it is on, and the list of rings.
 */
#include "shim/base/log.h"
#include "shim/trace/trace_internal.h"

_Atomic bool trace_on;
_Atomic(struct ring *) trace_rings;
struct ring trace_no_ring = {.busy = true};
const struct trace_sources *trace_sources_given;

void state_begin(const struct trace_sources *sources)
{
	trace_sources_given = sources;
	atomic_store(&trace_on, true);
	sources->submissions(true);
}

void state_stop(void)
{
	trace_sources_given->submissions(false);
	atomic_store(&trace_on, false);
}

void trace_fail(const char *why)
{
	state_stop();
	log_once("the trace ends here, the program goes on: %s", why);
}

void trace_child(void)
{
	atomic_store(&trace_on, false);
}

uint64_t trace_lost(void)
{
	uint64_t sum = atomic_load(&trace_no_ring.lost);

	for (struct ring *ring = atomic_load(&trace_rings); ring; ring = ring->next)
		sum += atomic_load_explicit(&ring->lost, memory_order_relaxed);
	return sum;
}
