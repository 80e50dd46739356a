/*
 * Which devices host memory is pinned ahead for, and when: while the process is not suspended, and no other process of
 * the user is short of host memory. After a refusal there is a rest.
 */
#include "shim/lifecycle/pin_ahead.h"
#include "shim/accounting/quota.h"
#include "shim/base/clock.h"
#include "shim/device/device.h"
#include "shim/heap/migration.h"
#include "shim/lifecycle/lifecycle_state.h"
#include "shim/mover/spill.h"
#include "shim/process/process.h"

/* ns: after the driver had no host memory, or another process was short of it, none is pinned ahead for so long. */
#define REFUSED_NS 10000000000u

/* Returns how many bytes the policy wants pinned for each device. */
static uint64_t wanted(void)
{
	struct policy_size size = policy_host_pin_ahead(process_policy());

	if (policy_spill_mode(process_policy()) < POLICY_SPILL_EXACT)
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
	struct pin_ahead_state *const state = &lifecycle_state.pin_ahead;
	struct step step = {.most = wanted(), .status = SW_INVALID};
	uint64_t begin = clock_now();

	if (!step.most || begin < state->not_before)
		return 0;
	device_each(pin_for, &step);
	uint64_t end = clock_now();
	if (step.status == SW_OK)
		return (unsigned)((end - begin) / 1000000) + 1;
	if (step.status != SW_INVALID || quota_is_asked())
		state->not_before = end + REFUSED_NS;
	return 0;
}
