/*
 * Whether there is room: what the plan needs of device memory now and in the rest of the period, compared with what
 * there is. What there is follows from the pieces in device memory and what is free beside them.
 */
#include "shim/plan/plan_internal.h"

/* The forecast is made again after this many submissions, or after one of its steps if that is longer. */
#define FORECAST_EACH 16

void plan_set_free(struct plan *plan, uint64_t units)
{
	plan->room.free = units;
}

static int64_t units_needed(const struct piece *piece)
{
	return forecast_needs(piece) ? (int64_t)piece->units : 0;
}

static uint64_t units_arriving(const struct piece *piece)
{
	return piece->arriving ? piece->units : 0;
}

void plan_room_update(struct plan *plan, const struct piece *piece, struct piece before)
{
	int64_t more = units_needed(piece) - units_needed(&before);

	plan->room.arriving += units_arriving(piece) - units_arriving(&before);
	plan->room.needed += (uint64_t)more;
	if (more)
		forecast_add(&plan->room.forecast, plan->at, pieces_key(&plan->pieces, piece), more);
}

void plan_room_set_dead(struct plan *plan, struct piece *piece, uint32_t id, bool dead)
{
	plan->room.needed -= (uint64_t)units_needed(piece);
	piece->dead = dead;
	plan->room.needed += (uint64_t)units_needed(piece);
	/* The forecast is left as it is: it has foreseen this if the program does what it did before. */
	forecast_note(&plan->room.forecast, plan->pieces.now, id, dead);
}

void plan_room_jump(struct plan *plan)
{
	forecast_drop(&plan->room.forecast);
	plan->room.made = 0;
}

bool plan_room_forecast(struct plan *plan)
{
	struct plan_room *room = &plan->room;

	if (room->free == UINT64_MAX || plan->at == PREDICT_NONE)
		return false;
	const struct tensor_future *future = &plan->tensors.future;
	uint64_t each = (plan->pieces.now - plan->at) / FORECAST_STEPS;
	if (!room->made || plan->pieces.now - room->made >= (each > FORECAST_EACH ? each : FORECAST_EACH)) {
		room->made = plan->pieces.now;
		if (plan->tensors.trusted_walk)
			forecast_make_from(&room->forecast, &plan->pieces, plan->at, future->until, room->needed,
					   future->transition, future->n_transitions);
		else
			forecast_make(&room->forecast, &plan->pieces, plan->at, room->needed);
	}
	return forecast_is_made(&room->forecast);
}

/* Returns the device memory that there is, in units. */
static int64_t room_all(const struct plan *plan)
{
	return (int64_t)(plan->units[PLAN_DEVICE] + plan->units[PLAN_PINNED] + plan->room.arriving + plan->room.free);
}

bool plan_room_fits(const struct plan *plan, uint64_t until, uint64_t units)
{
	return forecast_most(&plan->room.forecast, plan->at, until) + (int64_t)units <= room_all(plan);
}

bool plan_room_suffices(const struct plan *plan, uint64_t from, uint64_t until)
{
	return forecast_most(&plan->room.forecast, from, until) <= room_all(plan);
}
