/*
 * forecast.h: how much device memory the program will need in the rest of its period. The plan knows when each piece is
 * named next; what a period needs altogether also depends on when pieces die and come to life again (live_map.h). These
 * transitions are recorded, and those that followed the remembered position (predict_at) are taken as the future, like
 * uses.
 *
 * The need counts every piece that holds contents in device memory or on its way there: it goes down where a piece dies
 * and up where one comes to life or is named and fetched, and nothing is evicted. Where it exceeds what there is,
 * something must be evicted before; where it does not, what is fetched stays until it is used. Used by plan_room.c
 * only. Pure.
 */
#ifndef SPILLWAY_FORECAST_H
#define SPILLWAY_FORECAST_H

#include "shim/plan/pieces.h"

#include <stdbool.h>
#include <stdint.h>

#define FORECAST_STEPS 256 /* a period is divided into this many */
/* Older transitions are forgotten. A GPT's step has about a thousand. */
#define FORECAST_MOST (1u << 16)

/* A piece has died or come to life. */
struct transition {
	uint64_t position; /* after this submission */
	uint32_t piece;
	bool dead;
};

struct forecast {
	struct transition *ring; /* number n is at n % FORECAST_MOST; NULL: there are none */
	uint64_t n;              /* so many were recorded */
	uint64_t from, until;    /* the steps divide the remembered positions from + 1 .. until; both 0: no forecast */
	uint32_t round;          /* of the latest forecast; pieces have a note of it */
	int64_t most[FORECAST_STEPS]; /* the most units needed at once in each step */
};

/* A forecast must be zeroed at first. forecast_fini() frees what it holds. */
void forecast_fini(struct forecast *forecast);
/* Records that a piece has died or come to life after submission `position`. If there is no memory, it is not known. */
void forecast_note(struct forecast *forecast, uint64_t position, uint32_t piece, bool dead);
/*
 * Makes the forecast for what follows the remembered position `at` up to now. needed: the units that are needed now
 * (forecast_needs). If no piece died or came to life in that time, nothing reports that, and there is no forecast.
 */
void forecast_make(struct forecast *forecast, const struct pieces *pieces, uint64_t at, uint64_t needed);
/* The same for what follows up to `until`, with these n transitions, in order, instead of those that were recorded. */
void forecast_make_from(struct forecast *forecast, const struct pieces *pieces, uint64_t at, uint64_t until,
			uint64_t needed, const struct transition *transitions, uint64_t n);
/* Ends the forecast: the program is at another place. */
void forecast_drop(struct forecast *forecast);
/*
 * Returns the most units that will be needed at once between two remembered positions, `at` and `until`. There must be
 * a forecast.
 */
int64_t forecast_most(const struct forecast *forecast, uint64_t at, uint64_t until);
/*
 * Changes the forecast: `units` more are needed from `at` to `until`, because a piece is fetched before its use. Below
 * 0: fewer are, because one is evicted.
 */
void forecast_add(struct forecast *forecast, uint64_t at, uint64_t until, int64_t units);

static inline bool forecast_is_made(const struct forecast *forecast)
{
	return forecast->until != 0;
}

/* Returns whether the piece needs device memory now. */
static inline bool forecast_needs(const struct piece *piece)
{
	return !piece->dead && (piece->place == PLAN_DEVICE || piece->place == PLAN_PINNED || piece->arriving);
}

#endif
