/*
 * The functions through which the trace reads the devices, the names of kernels and the submissions.
 */
#include "shim/lifecycle/trace_sources.h"
#include "shim/device/device.h"
#include "shim/stats/stats.h"
#include "shim/submit/kernel_params.h"
#include "shim/submit/submission.h"

_Static_assert(TRACE_FUNCTION_NAME == KERNEL_PARAMS_NAME, "a name fits");

static void trace_sources_sample(const struct device *device, struct trace_source_device *ret)
{
	const struct stats_device *figures = &stats.device[device->ordinal];
	const _Atomic uint64_t *live = figures->live;
	uint64_t on_peers = live[PLACE_PEER]; /* read once, since it is part of two figures */
	struct trace_event *event = &ret->sample;

	ret->any = atomic_load(&device->heap) || atomic_load(&figures->most_lent);
	for (unsigned i = 0; i < PLACE_COUNT; i++)
		ret->any |= i != PLACE_PINNED && atomic_load_explicit(&figures->peak[i], memory_order_relaxed) != 0;
	event->bytes.device = (uint64_t)device->ordinal;
	event->bytes.on_device = live[PLACE_DEVICE];
	event->bytes.on_host = live[PLACE_HOST] + on_peers;
	event->bytes.managed = live[PLACE_MANAGED];
	event->bytes.system = live[PLACE_SYSTEM];
	event->bytes.driver = live[PLACE_DRIVER];
	event->bytes.on_peers = on_peers;
	event->bytes.lent = atomic_load(&device->lender.lent.used);
	if (atomic_load(&device->heap))
		event->bytes.budget = atomic_load(&device->budget.limit);
}

struct visit {
	void (*visit)(const struct trace_source_device *device, void *argument);
	void *argument;
};

static void visit_one(struct device *device, void *argument)
{
	const struct visit *visit = argument;
	struct trace_source_device source = {
	    .ordinal = device->ordinal, .total = device->total, .sample = {.kind = TRACE_bytes}};

	if ((unsigned)device->ordinal < STATS_DEVICES)
		trace_sources_sample(device, &source);
	visit->visit(&source, visit->argument);
}

static void each_device(void (*visit)(const struct trace_source_device *device, void *argument), void *argument)
{
	device_each(visit_one, &(struct visit){visit, argument});
}

const struct trace_sources trace_sources = {
    .each_device = each_device,
    .function_name = kernel_params_name,
    .function_generation = kernel_params_generation,
    .submissions = submission_set_trace,
};
