/*
 * plan_internal.h: the plan, for plan.c and plan_victim.c.
 */
#ifndef SPILLWAY_PLAN_INTERNAL_H
#define SPILLWAY_PLAN_INTERNAL_H

#include "shim/plan/plan.h"
#include "shim/plan/pieces.h"
#include "shim/plan/predict.h"

struct plan {
	struct predict *predict;
	struct pieces pieces;
	uint64_t at;     /* value of predict_at() when the keys were made */
	uint64_t credit; /* slots that may still be walked */
	enum plan_way way;
	uint64_t ahead_units;
	uint64_t units[PLAN_PLACES];
	uint64_t owed;   /* units fetched in vain, times OWED_SHARE; fading */
	uint32_t round;  /* incremented by each jump: what was fetched before does not count as ahead any more */
	uint64_t cursor; /* next position to examine for a fetch */
	uint64_t cursor_dead; /* the same for dead pieces, which are fetched later */
	/* a piece found as a possible victim that was busy, when one was requested; PIECES_NONE: none */
	uint32_t parked;
};

#endif
