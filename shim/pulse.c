#include "shim/pulse.h"
#include "policy/policy.h"
#include "shim/clock.h"
#include "shim/faults.h"
#include "shim/stats.h"
#include "shim/trace.h"

#include <pthread.h>
#include <string.h>

_Static_assert(FAULTS_NUMBERS == (int)FAULT_COUNT && FAULTS_NA == STATS_NA,
	       "the page has what faults.h counts, in its order");
_Static_assert(FAULTS_GPU == (int)FAULT_GPU && FAULTS_BYTES_OUT == (int)FAULT_OUT_BYTES, "in its order");
_Static_assert(FAULTS_LINE == STATS_LINE, "and its line has room there");

/* True: something has changed. */
static bool put_faults(int device, _Atomic uint64_t into[FAULT_COUNT])
{
	uint64_t now[FAULTS_NUMBERS];
	bool changed = false;

	faults_read(device, now);
	for (unsigned i = 0; i < FAULT_COUNT; i++)
		changed |= atomic_exchange_explicit(&into[i], now[i], memory_order_relaxed) != now[i];
	return changed;
}

static void put_all_faults(void)
{
	faults_poll();
	put_faults(-1, stats.fault);
	for (int i = 0; i < STATS_DEVICES; i++) {
		struct stats_device *device = &stats.device[i];

		if (atomic_load(&device->known) && put_faults(i, device->fault))
			trace_faults((uint64_t)i, device->fault[FAULT_GPU], device->fault[FAULT_CPU],
				     device->fault[FAULT_IN_BYTES], device->fault[FAULT_OUT_BYTES]);
	}
}

_Static_assert(FAULT_OF_CPU == TRACE_FAULT_OF_CPU && FAULT_OF_GPU < FAULT_OF_CPU, "as the trace has them");

static uint64_t place_number(int device)
{
	return device < 0 ? 0 : (uint64_t)device + 1;
}

static void trace_one(const struct fault_event *event, void *argument)
{
	(void)argument;
	trace_event(fault, place_number(event->device), event->address, event->cause, event->bytes, event->kind,
		    place_number(event->from));
}

void pulse_start(const struct policy *policy)
{
	if (policy_faults(policy) == POLICY_FAULTS_EVENTS && trace_is_wanted())
		faults_listen(trace_one, NULL);
}

void pulse(void)
{
	static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;

	/* Whoever is in here does it; at the end of the process nobody may be waited for. */
	if (pthread_mutex_trylock(&one))
		return;
	atomic_store_explicit(&stats.last_clock, clock_now(), memory_order_relaxed);
	if (stats_peak(PLACE_MANAGED) || stats_peak(PLACE_SYSTEM)) {
		put_all_faults();
		faults_source(stats.fault_source, sizeof(stats.fault_source));
	}
	pthread_mutex_unlock(&one);
}
