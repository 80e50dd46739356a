/*
 * plan_internal.h: the plan, for its files. plan.c calls plan_tensors.c; it and plan_victim.c call plan_room.c.
 */
#ifndef SPILLWAY_PLAN_INTERNAL_H
#define SPILLWAY_PLAN_INTERNAL_H

#include "shim/plan/plan.h"
#include "shim/plan/forecast.h"
#include "shim/plan/tensor_future.h"
#include "shim/plan/pieces.h"
#include "shim/plan/predict.h"

/* Whether device memory suffices for what is needed (plan_room.c). All sums are in units. */
struct plan_room {
	struct forecast forecast;
	uint64_t made;     /* submission at which the forecast was made, or tried to; 0: not since the last jump */
	uint64_t needed;   /* of pieces that need device memory now (forecast_needs) */
	uint64_t arriving; /* of pieces that move to the device */
	uint64_t free;     /* as plan_set_free() was told; UINT64_MAX: it never was */
};

/* Where tensors will lie (plan_tensors.c), as the program's allocator reports them. */
struct plan_tensors {
	struct tensor_future future;
	uint64_t walked;   /* submission at which the latest walk was made, or tried */
	uint64_t reach;    /* submissions that it foresees */
	uint64_t n_wrong;  /* future.n_wrong at that time */
	int64_t credit;    /* things that may still be looked at; below 0: too many were */
	uint64_t patience; /* submissions until the next walk if births are not as foreseen */
	bool jumped;       /* the place has changed since the latest walk */
	bool trusted;      /* births are mostly as foreseen */
	bool trusted_walk; /* there is a walk, too: where tensor_future_has(), keys follow from it */
};

struct plan {
	struct predict *predict;
	struct pieces pieces;
	uint64_t at;     /* value of predict_at() when the keys were made */
	uint64_t credit; /* slots that may still be walked */
	enum plan_way way;
	uint64_t ahead_units;
	uint64_t units[PLAN_PLACES];
	struct plan_room room;
	struct plan_tensors tensors;
	uint64_t owed;        /* units fetched in vain, times OWED_SHARE; fading */
	uint32_t round;       /* incremented by each jump: what was fetched before does not count as ahead any more */
	uint64_t cursor;      /* next position to examine for a fetch */
	uint64_t cursor_dead; /* the same for dead pieces, which are fetched later */
	/* a piece found as a possible victim that was busy, when one was requested; PIECES_NONE: none */
	uint32_t parked;
};

/* ---- plan_room.c ---- */

/* Records that the piece, whose fields have been changed, is not as `before` any more. */
void plan_room_update(struct plan *plan, const struct piece *piece, struct piece before);
/* Records that the piece dies or comes to life. */
void plan_room_set_dead(struct plan *plan, struct piece *piece, uint32_t id, bool dead);
/* Ends the forecast, because the program is at another place. */
void plan_room_jump(struct plan *plan);
/* Makes the forecast, unless that was done not long ago. Returns whether there is one. */
bool plan_room_forecast(struct plan *plan);
/*
 * Returns whether `units` more fit into device memory until the remembered position `until`, beside all that will be
 * needed. There must be a forecast.
 */
bool plan_room_fits(const struct plan *plan, uint64_t until, uint64_t units);
/*
 * Returns whether there is enough device memory for all that will be needed between two remembered positions. There
 * must be a forecast.
 */
bool plan_room_suffices(const struct plan *plan, uint64_t from, uint64_t until);

/* ---- plan_tensors.c ---- */

/* The place has changed: what was foreseen is dropped. */
void plan_tensors_jump(struct plan *plan);
/*
 * Foresees where tensors will lie, if that is due; to be called once for each submission. Returns whether all keys must
 * be made again.
 */
bool plan_tensors_follow(struct plan *plan);
/* Takes from the credit for foreseeing tensors: this many things were looked at. */
void plan_tensors_charge(struct plan *plan, uint64_t things);
/* Returns whether the next uses of the piece follow from where tensors will lie. */
static inline bool plan_tensors_knows(const struct plan *plan, const struct piece *piece)
{
	return plan->tensors.trusted_walk && tensor_future_has(&plan->tensors.future, piece);
}

#endif
