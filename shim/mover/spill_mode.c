/*
 * Changes of spill.mode as the rest of the library sees them: all engines change, one after the other, or none. Until
 * the last one has left `fast`, everything that `fast` needs is kept for all of them: heaps pin what may be reached
 * without being named, and submissions have tickets. So while engines differ, and if they go on to differ because one
 * could not be brought back, each of them moves memory as safely as in its own mode.
 */
#include "shim/base/clock.h"
#include "shim/device/device.h"
#include "shim/mover/mover_internal.h"
#include "shim/mover/mover_state.h"
#include "shim/mover/spill.h"
#include "shim/process/process.h"

/* ms: how long one order may take: what stays on the device in `fast` may have to come, over a slow link. */
#define ORDER_MS 120000
/* As for a suspension (spill.c): how long a safe point is sought, in ms, and the pause between attempts, in ns. */
#define SAFE_POINT_MS 3000
#define BETWEEN_NS    50000000

static struct engine *engine_at(unsigned device)
{
	return atomic_load_explicit(&mover_state.spill.engines[device], memory_order_acquire);
}

/* Memory of a dead engine moves in no mode. */
static bool is_at_work(const struct engine *engine)
{
	return engine && !atomic_load(&engine->channel.dead);
}

static enum sw_status ask_one(struct engine *engine, bool exact, const struct order_watch *watch, uint64_t *bytes)
{
	for (uint64_t until = clock_now() + SAFE_POINT_MS * UINT64_C(1000000);;) {
		uint64_t moved = 0;
		enum sw_status status =
		    engine_ask_watched(engine, exact ? ORDER_EXACT : ORDER_FAST, 0, ORDER_MS, watch, &moved);

		*bytes += moved;
		if (status == SW_OK || !is_at_work(engine))
			return status == SW_OK ? SW_OK : SW_DRIVER;
		if (status != SW_BUSY || clock_now() >= until || spill_is_ending())
			return status;
		clock_sleep(BETWEEN_NS);
	}
}

/* Asks all engines, up to the first that cannot, or `every` one. Returns the first obstacle. */
static enum sw_status ask_all_to_change(bool exact, bool every, const struct order_watch *watch, uint64_t *bytes)
{
	enum sw_status status = SW_OK;

	for (unsigned i = 0; i < DEVICE_MOST && (every || status == SW_OK); i++) {
		struct engine *engine = engine_at(i);

		if (!is_at_work(engine))
			continue;
		enum sw_status one = ask_one(engine, exact, watch, bytes);
		status = status == SW_OK ? one : status;
	}
	return status;
}

static bool any_is(bool exact)
{
	for (unsigned i = 0; i < DEVICE_MOST; i++) {
		const struct engine *engine = engine_at(i);

		if (is_at_work(engine) && engine->exact == exact)
			return true;
	}
	return false;
}

/* Engines that are started later begin in this mode. */
static void set_mode(bool exact)
{
	lock_take(&mover_state.spill.lock);
	process_set_spill_mode(exact ? POLICY_SPILL_EXACT : POLICY_SPILL_FAST);
	lock_drop(&mover_state.spill.lock);
}

enum sw_status spill_change_mode(enum policy_spill mode, const struct order_watch *watch, uint64_t *ret_bytes,
				 bool *ret_mixed)
{
	bool exact = mode == POLICY_SPILL_EXACT, was_exact = process_spill_mode() == POLICY_SPILL_EXACT;

	*ret_bytes = 0;
	*ret_mixed = false;
	if (process_stage() != STAGE_RUNNING || spill_is_ending())
		return SW_NOT_SUPPORTED;
	/* Also on the way to `exact`: heaps that are made until then may have to stay in `fast`. */
	if (!exact || !was_exact)
		device_set_beside(true);
	set_mode(exact);
	enum sw_status status = ask_all_to_change(exact, false, watch, ret_bytes), last = status;
	if (status != SW_OK) {
		set_mode(was_exact);
		last = ask_all_to_change(was_exact, true, watch, ret_bytes);
	}
	/* One that has not answered the last order may do as it was told before, later. */
	*ret_mixed = last != SW_OK || (any_is(true) && any_is(false));
	if (*ret_mixed)
		set_mode(false);
	else if (process_spill_mode() == POLICY_SPILL_EXACT)
		device_set_beside(false);
	return status;
}
