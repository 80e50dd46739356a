/*
 * The sampler: copies page faults and the time into the statistics page and the trace, about once a second.
 */
#include "shim/lifecycle/sampler.h"
#include "policy/policy.h"
#include "shim/accounting/quota.h"
#include "shim/base/clock.h"
#include "shim/base/lock.h"
#include "shim/base/log.h"
#include "shim/device/device.h"
#include "shim/device/peer.h"
#include "shim/device/pool.h"
#include "shim/faults/faults.h"
#include "shim/heap/migration.h"
#include "shim/lifecycle/types.h"
#include "shim/mover/spill.h"
#include "shim/process/process.h"
#include "shim/serve/alloc_decide.h"
#include "shim/serve/deferred_free.h"
#include "shim/serve/segments.h"
#include "shim/stats/stats.h"
#include "shim/stats/summary.h"
#include "shim/trace/trace.h"

#include <string.h>

/* Returns true if a count has changed. */
static bool put_faults(int device, _Atomic uint64_t into[FAULT_COUNT])
{
	uint64_t now[FAULT_COUNT];
	bool changed = false;

	faults_read(device, now);
	for (unsigned i = 0; i < FAULT_COUNT; i++)
		changed |= atomic_exchange_explicit(&into[i], now[i], memory_order_relaxed) != now[i];
	return changed;
}

/* Faults that are not measured do not appear in the trace. cpu: CPU faults to record together with this device. */
static void tell_faults(unsigned i, uint64_t cpu)
{
	const struct stats_device *device = &stats.device[i];

	if (device->fault[FAULT_GPU] != STATS_NA)
		trace_event(faults, i, device->fault[FAULT_GPU], cpu == STATS_NA ? 0 : cpu,
			    device->fault[FAULT_IN_BYTES], device->fault[FAULT_OUT_BYTES]);
}

static void put_all_faults(void)
{
	faults_poll();
	/* CPU faults belong to the process; the trace records them with the first device. */
	bool is_first = true, any = put_faults(-1, stats.fault);

	for (unsigned i = 0; i < STATS_DEVICES; i++) {
		if (!atomic_load(&stats.device[i].known))
			continue;
		if (put_faults((int)i, stats.device[i].fault) || (is_first && any))
			tell_faults(i, is_first ? stats.fault[FAULT_CPU] : 0);
		is_first = false;
	}
}

_Static_assert(FAULT_OF_CPU == TRACE_FAULT_OF_CPU && FAULT_OF_GPU < FAULT_OF_CPU, "as the trace has them");

static void trace_one(const struct fault_event *event, void *argument)
{
	(void)argument;
	trace_event(fault, trace_device(event->device), event->address, event->cause, event->bytes, event->kind,
		    trace_device(event->from));
}

void sampler_start(const struct policy *policy)
{
	if (policy_settings(policy)->faults == POLICY_FAULTS_EVENTS && trace_is_wanted())
		faults_listen(trace_one, NULL);
}

void sampler_sample(void)
{
	char line[STATS_LINE];

	/* A thread that holds the lock does the work; at exit no lock may be waited for. */
	if (!lock_try(&lifecycle_state.sampler_lock))
		return;
	stats_find_again();
	atomic_store_explicit(&stats.last_clock, clock_now(), memory_order_relaxed);
	if (stats_peak(PLACE_MANAGED) || stats_peak(PLACE_SYSTEM)) {
		put_all_faults();
		stats_set_line(faults_source(line, sizeof(line)));
	}
	lock_drop(&lifecycle_state.sampler_lock);
}

void sampler_tick(void)
{
	sampler_sample();
	quota_tick();
	device_tick();
	deferred_free_tick();
	segments_tick();
	peer_tick();
	pool_tick();
}

/* ---- host memory that is pinned ahead ---- */

/*
 * Which devices host memory is pinned ahead for, and when: while the process is not suspended, and no other process of
 * the user is short of host memory. After a refusal there is a rest.
 */

/* ns: after the driver had no host memory, or another process was short of it, none is pinned ahead for so long. */
#define REFUSED_NS 10000000000u

/* Returns how many bytes the policy wants pinned for each device. */
static uint64_t wanted(void)
{
	struct policy_size size = process_settings()->host_pin_ahead;

	if (process_settings()->spill < POLICY_SPILL_EXACT)
		return 0;
	return size.kind == POLICY_SIZE_AUTO ? UINT64_MAX : size.value;
}

struct step {
	uint64_t most;
	enum sw_status status; /* INVALID: none has been taken yet */
};

static void pin_for(struct device *device, void *argument)
{
	struct heap *heap = atomic_load(&device->heap);
	struct step *step = argument;

	if (step->status == SW_INVALID && heap && heap_has_host(heap) && spill_residence(device) == RESIDENCE_RUNS)
		step->status = heap_pin_ahead(heap, step->most);
}

unsigned pin_ahead_look(void)
{
	struct step step = {.most = wanted(), .status = SW_INVALID};
	uint64_t begin = clock_now();

	if (!step.most || begin < lifecycle_state.no_pin_before)
		return 0;
	device_each(pin_for, &step);
	uint64_t end = clock_now();
	if (step.status == SW_OK)
		return (unsigned)((end - begin) / 1000000) + 1;
	if (step.status != SW_INVALID || quota_is_asked())
		lifecycle_state.no_pin_before = end + REFUSED_NS;
	return 0;
}

/* ---- the summary at the end ---- */

/* How long the summary waits for a slow reader of standard error, so that the program still ends. */
#define SUMMARY_MS 1000

void exit_summary_print(void)
{
	struct summary *const summary = &lifecycle_state.summary.text;
	bool full = process_settings()->report == POLICY_REPORT_FULL;
	char names[200];

	/* At exit no lock may be waited for: the thread that held it may have ended. */
	if (!lock_try(&lifecycle_state.summary.lock))
		return;
	sampler_sample();
	if (full)
		summary_make(&stats, clock_now(), *trace_path() ? trace_path() : NULL, summary);
	else
		summary_make_short(&stats, clock_now(), summary);
	for (unsigned i = 0; i < summary->n; i++)
		log_line("%s", summary->line[i].text);
	if (process_settings()->observe)
		alloc_decide_print();
	if (full && stats_get(STAT_unknown_names))
		log_line("  %llu entry points asked for that we do not know: %s",
			 (unsigned long long)stats_get(STAT_unknown_names), stats_unknown_names(names, sizeof(names)));
	lock_drop(&lifecycle_state.summary.lock);
}

void exit_summary_end(void)
{
	if (process_settings()->report == POLICY_REPORT_NONE ||
	    stats_get(STAT_allocations) + stats_get(STAT_refused) == 0)
		return;
	log_patience(SUMMARY_MS);
	exit_summary_print();
}
