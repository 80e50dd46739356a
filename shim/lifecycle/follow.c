/*
 * Device budgets that follow what the driver has free: ten times a second the driver is asked, the controller decides,
 * and what is above the new limit is evicted in a gap. Cost where no budget follows: a load for each device, once a second.
 */
#include "shim/lifecycle/follow.h"
#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/context/context.h"
#include "shim/device/device.h"
#include "shim/heap/migration.h"
#include "shim/lifecycle/lifecycle_state.h"
#include "shim/mover/spill.h"

#include <unistd.h>

/* ns: a gap in which nothing could leave is not repeated at once, because each one stops the program for a moment. */
#define AGAIN_NS 1000000000u

bool follow_make_fit(struct device *device)
{
	uint64_t before = budget_over(&device->budget);

	if (!before)
		return false;
	device_make_room(device);
	uint64_t over = budget_over(&device->budget);
	if (over)
		spill_make_room(device, over);
	return budget_over(&device->budget) < before;
}

static bool get_figures(const struct device *device, struct live_budget_figures *ret_figures)
{
	size_t free, total;

	if (!atomic_load(&device->heap) || !context_memory(device->ordinal, &free, &total))
		return false;
	*ret_figures = (struct live_budget_figures){
	    .now = clock_now(),
	    .total = device->total,
	    .free = free,
	    .used = atomic_load(&device->budget.used),
	    .reserve = device_reserve(device),
	    .piece = heap_largest_piece(atomic_load(&device->heap)),
	};
	return true;
}

/* Two processes that start together differ by their ids, two devices by the address. */
static uint64_t seed_of(const struct device *device)
{
	return clock_now() ^ (uint64_t)getpid() << 32 ^ (uint64_t)(uintptr_t)device;
}

static void begin_with(struct device *device, const struct live_budget_figures *figures)
{
	struct follow_state *const state = &lifecycle_state.follow[device->ordinal];

	live_budget_begin(&state->budget, figures, seed_of(device));
	state->begun = true;
	atomic_store(&device->budget.limit, state->budget.limit);
}

void follow_begin(struct device *device)
{
	struct live_budget_figures figures;

	lifecycle_state.follow[device->ordinal] = (struct follow_state){.begun = false};
	if (atomic_load(&device->follows) && get_figures(device, &figures))
		begin_with(device, &figures);
}

static void tell_shrink(const struct device *device, const struct live_budget_figures *figures)
{
	char free[32], limit[32];

	log_once("device.budget: auto: only %s of device %d are free: the budget is %s now, and follows what is free",
		 log_bytes(free, sizeof(free), figures->free), device->ordinal,
		 log_bytes(limit, sizeof(limit), atomic_load(&device->budget.limit)));
}

static void look_at(struct device *device, void *argument)
{
	struct follow_state *const state = &lifecycle_state.follow[device->ordinal];
	struct live_budget_figures figures;

	if (!atomic_load(&device->follows))
		return;
	*(bool *)argument = true;
	/* While the process is suspended it uses nothing, and must not take what others are to have. */
	if (spill_is_suspended(device) || !get_figures(device, &figures))
		return;
	if (!state->begun)
		begin_with(device, &figures);
	enum live_budget_change change = live_budget_look(&state->budget, &figures);
	atomic_store(&device->budget.limit, state->budget.limit);
	if (change == LIVE_BUDGET_SHRINKS)
		tell_shrink(device, &figures);
	if (budget_over(&device->budget) && figures.now >= state->not_before && !follow_make_fit(device))
		state->not_before = clock_now() + AGAIN_NS;
}

bool follow_look(void)
{
	bool any = false;

	device_each(look_at, &any);
	return any;
}
