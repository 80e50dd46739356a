/*
 * The forecast walks once over what followed the remembered position: the pieces that are due, and the transitions.
 * Each piece notes whether it is needed at the point of the walk.
 */
#include "shim/plan/forecast.h"

#include <stdlib.h>

void forecast_fini(struct forecast *forecast)
{
	free(forecast->ring);
}

void forecast_note(struct forecast *forecast, uint64_t position, uint32_t piece, bool dead)
{
	if (!forecast->ring)
		forecast->ring = malloc(FORECAST_MOST * sizeof(*forecast->ring));
	if (!forecast->ring)
		return;
	forecast->ring[forecast->n++ % FORECAST_MOST] = (struct transition){position, piece, dead};
}

void forecast_drop(struct forecast *forecast)
{
	forecast->from = forecast->until = 0;
}

/* ---- the walk ---- */

struct forecast_walk {
	struct forecast *forecast;
	const struct pieces *pieces;
	int64_t needed;
	const struct transition *transitions; /* number n is at n & mask */
	uint64_t next, n, mask;               /* the numbers next to n - 1 have not been examined yet */
};

/* From here on the walk has the piece as needed or not. */
static void walk_set(struct forecast_walk *walk, struct piece *piece, bool needed)
{
	bool was = piece->forecast_round == walk->forecast->round ? piece->needed : forecast_needs(piece);

	piece->forecast_round = walk->forecast->round;
	piece->needed = needed;
	if (was != needed)
		walk->needed += needed ? (int64_t)piece->units : -(int64_t)piece->units;
}

/* The submission at this position names the pieces that are due there. */
static void walk_due(struct forecast_walk *walk, uint64_t position)
{
	uint32_t id = pieces_due(walk->pieces, position);

	for (; id != PIECES_NONE; id = pieces_due_after(walk->pieces, id)) {
		struct piece *piece = pieces_find(walk->pieces, id);

		if (piece->key == position && piece->place != PLAN_GONE)
			walk_set(walk, piece, true);
	}
}

static void walk_transition(struct forecast_walk *walk, const struct transition *transition)
{
	struct piece *piece = pieces_find(walk->pieces, transition->piece);

	if (piece && piece->place != PLAN_GONE)
		walk_set(walk, piece, !transition->dead);
}

/* Returns the number of the first transition after `at`; forecast->n: none, or the earliest of them were forgotten. */
static uint64_t first_after(const struct forecast *forecast, uint64_t at)
{
	uint64_t least = forecast->n > FORECAST_MOST ? forecast->n - FORECAST_MOST : 0, low = least, high = forecast->n;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (forecast->ring[middle % FORECAST_MOST].position > at)
			high = middle;
		else
			low = middle + 1;
	}
	return least && low == least ? forecast->n : low;
}

static unsigned step_of(const struct forecast *forecast, uint64_t position)
{
	uint64_t length = forecast->until - forecast->from;

	if (position <= forecast->from)
		return 0;
	if (position >= forecast->until)
		return FORECAST_STEPS - 1;
	return (unsigned)((position - forecast->from - 1) * FORECAST_STEPS / length);
}

/* Handles the transitions up to this position. */
static void walk_transitions(struct forecast_walk *walk, uint64_t position)
{
	for (; walk->next < walk->n; walk->next++) {
		const struct transition *transition = &walk->transitions[walk->next & walk->mask];

		if (transition->position > position)
			return;
		walk_transition(walk, transition);
	}
}

static void forecast_walk(struct forecast_walk *walk)
{
	struct forecast *forecast = walk->forecast;
	unsigned step = 0;

	forecast->most[0] = walk->needed;
	for (uint64_t position = forecast->from + 1; position <= forecast->until; position++) {
		for (; step < step_of(forecast, position); step++)
			forecast->most[step + 1] = walk->needed;
		walk_due(walk, position);
		if (walk->needed > forecast->most[step])
			forecast->most[step] = walk->needed;
		walk_transitions(walk, position);
	}
	for (; step + 1 < FORECAST_STEPS; step++)
		forecast->most[step + 1] = walk->needed;
}

/* Begins a forecast of what follows `at` up to `until`. */
static void forecast_begin(struct forecast *forecast, uint64_t at, uint64_t until)
{
	forecast->from = at;
	forecast->until = until;
	forecast->round++;
}

void forecast_make(struct forecast *forecast, const struct pieces *pieces, uint64_t at, uint64_t needed)
{
	uint64_t next = first_after(forecast, at);

	forecast_drop(forecast);
	if (next == forecast->n || at >= pieces->now)
		return;
	forecast_begin(forecast, at, pieces->now);
	forecast_walk(&(struct forecast_walk){forecast, pieces, (int64_t)needed, forecast->ring, next, forecast->n,
					      FORECAST_MOST - 1});
}

void forecast_make_from(struct forecast *forecast, const struct pieces *pieces, uint64_t at, uint64_t until,
			uint64_t needed, const struct transition *transitions, uint64_t n)
{
	uint64_t next = 0;

	forecast_drop(forecast);
	if (at >= until)
		return;
	while (next < n && transitions[next].position <= at)
		next++;
	forecast_begin(forecast, at, until);
	forecast_walk(&(struct forecast_walk){forecast, pieces, (int64_t)needed, transitions, next, n, UINT64_MAX});
}

/* ---- queries ---- */

int64_t forecast_most(const struct forecast *forecast, uint64_t at, uint64_t until)
{
	unsigned step = step_of(forecast, at), last = step_of(forecast, until);
	int64_t most = forecast->most[step];

	while (step++ < last)
		if (forecast->most[step] > most)
			most = forecast->most[step];
	return most;
}

void forecast_add(struct forecast *forecast, uint64_t at, uint64_t until, int64_t units)
{
	if (!forecast_is_made(forecast))
		return;
	for (unsigned step = step_of(forecast, at), last = step_of(forecast, until); step <= last; step++)
		forecast->most[step] += units;
}
