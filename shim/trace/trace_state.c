/*
 * The state of the trace (trace_state.h), and what switches the trace on and off.
 */
#include "shim/base/log.h"
#include "shim/trace/trace_state.h"

/* Read by an inline function of trace.h in all rooms, so it is apart. */
_Atomic bool trace_on;
struct trace_state trace_state = {
    .rings.none = {.busy = true},
    .start.lock = LOCK_INIT(LOCK_TRACE_START),
    .drainer = {.lock = LOCK_INIT(LOCK_TRACE_FILE), .file = {.fd = -1}},
};
struct trace_tables trace_tables;

void state_begin(const struct trace_sources *sources)
{
	trace_state.start.sources = sources;
	atomic_store(&trace_on, true);
	sources->submissions(true);
}

void state_stop(void)
{
	trace_state.start.sources->submissions(false);
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
	uint64_t sum = atomic_load(&trace_state.rings.none.lost);

	for (struct ring *ring = atomic_load(&trace_state.rings.first); ring; ring = ring->next)
		sum += atomic_load_explicit(&ring->lost, memory_order_relaxed);
	return sum;
}
