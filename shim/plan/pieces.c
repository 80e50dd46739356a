// SPDX-License-Identifier: Apache-2.0
/* The pieces that a plan knows, and how much device memory they will need. */
#include "shim/plan/pieces.h"
#include "shim/base/array.h"

#include <stdlib.h>

/* ---- pieces ---- */

/*
 * What the plan knows of pieces: a table of two levels, an intrusive list of parked pieces, intrusive lists of due
 * pieces, and a binary heap.
 */

bool pieces_init(struct pieces *pieces)
{
	*pieces = (struct pieces){.epoch = 1, .oldest = PIECES_NONE, .newest = PIECES_NONE, .probe = PIECES_NONE};
	pieces->due = calloc(PIECES_DUE, sizeof(*pieces->due));
	return pieces->due != NULL;
}

void pieces_fini(struct pieces *pieces)
{
	for (unsigned i = 0; i < PIECES_LEAVES; i++)
		free(pieces->leaf[i]);
	free(pieces->heap);
	free(pieces->due);
}

struct piece *pieces_make(struct pieces *pieces, uint32_t id)
{
	struct piece **leaf = &pieces->leaf[id / PIECES_LEAF % PIECES_LEAVES];

	if (!*leaf) {
		*leaf = calloc(PIECES_LEAF, sizeof(**leaf));
		for (unsigned i = 0; *leaf && i < PIECES_LEAF; i++)
			(*leaf)[i].index = PIECES_NONE;
	}
	return pieces_find(pieces, id);
}

/* ---- the heap: the largest key first ---- */

static uint64_t heap_key(const struct pieces *pieces, uint32_t index)
{
	return pieces_key(pieces, pieces_find(pieces, pieces->heap[index]));
}

static void heap_put(struct pieces *pieces, uint32_t index, uint32_t id)
{
	pieces->heap[index] = id;
	pieces_find(pieces, id)->index = index;
}

static void heap_up(struct pieces *pieces, uint32_t index)
{
	uint32_t id = pieces->heap[index];
	uint64_t key = pieces_key(pieces, pieces_find(pieces, id));

	while (index && heap_key(pieces, (index - 1) / 2) < key) {
		heap_put(pieces, index, pieces->heap[(index - 1) / 2]);
		index = (index - 1) / 2;
	}
	heap_put(pieces, index, id);
}

static void heap_down(struct pieces *pieces, uint32_t index)
{
	uint32_t id = pieces->heap[index];
	uint64_t key = pieces_key(pieces, pieces_find(pieces, id));

	for (;;) {
		uint32_t child = 2 * index + 1;

		if (child + 1 < pieces->n_heap && heap_key(pieces, child + 1) > heap_key(pieces, child))
			child++;
		if (child >= pieces->n_heap || heap_key(pieces, child) <= key)
			break;
		heap_put(pieces, index, pieces->heap[child]);
		index = child;
	}
	heap_put(pieces, index, id);
}

static bool heap_add(struct pieces *pieces, uint32_t id)
{
	if (!ARRAY_ROOM(pieces->heap, pieces->n_heap, pieces->heap_room, ARRAY_MOST))
		return false;
	pieces->heap[pieces->n_heap++] = id;
	heap_up(pieces, pieces->n_heap - 1);
	return true;
}

/* Restores the heap after the key of a piece has changed from `before`. */
static void heap_fix(struct pieces *pieces, const struct piece *piece, uint64_t before)
{
	if (piece->index == PIECES_NONE)
		return;
	if (pieces_key(pieces, piece) > before)
		heap_up(pieces, piece->index);
	else
		heap_down(pieces, piece->index);
}

static void heap_remove(struct pieces *pieces, struct piece *piece)
{
	uint32_t index = piece->index, last = pieces->heap[--pieces->n_heap];

	piece->index = PIECES_NONE;
	if (index == pieces->n_heap)
		return;
	heap_put(pieces, index, last);
	heap_up(pieces, index);
	heap_down(pieces, pieces_find(pieces, last)->index);
}

/* ---- keys ---- */

static struct due *due_at(const struct pieces *pieces, uint64_t key)
{
	return &pieces->due[key % PIECES_DUE];
}

uint32_t pieces_due(const struct pieces *pieces, uint64_t key)
{
	const struct due *due = due_at(pieces, key);

	return due->epoch == pieces->epoch ? due->id : PIECES_NONE;
}

static void due_remove(struct pieces *pieces, struct piece *piece)
{
	if (!pieces_has_key(pieces, piece))
		return;
	pieces->due_units -= piece->units;
	if (piece->due_prev == PIECES_NONE)
		due_at(pieces, piece->key)->id = piece->due_next;
	else
		pieces_find(pieces, piece->due_prev)->due_next = piece->due_next;
	if (piece->due_next != PIECES_NONE)
		pieces_find(pieces, piece->due_next)->due_prev = piece->due_prev;
}

void pieces_put_key(struct pieces *pieces, struct piece *piece, uint32_t id, uint64_t key, uint64_t slot)
{
	struct due *due = due_at(pieces, key);

	due_remove(pieces, piece);
	pieces->due_units += piece->units;
	piece->epoch = pieces->epoch;
	piece->key = key;
	piece->slot = slot;
	piece->due_prev = PIECES_NONE;
	piece->due_next = due->epoch == pieces->epoch ? due->id : PIECES_NONE;
	if (piece->due_next != PIECES_NONE)
		pieces_find(pieces, piece->due_next)->due_prev = id;
	*due = (struct due){id, pieces->epoch};
}

void pieces_set_key(struct pieces *pieces, struct piece *piece, uint32_t id, uint64_t key, uint64_t slot)
{
	uint64_t before = pieces_key(pieces, piece);

	pieces_put_key(pieces, piece, id, key, slot);
	heap_fix(pieces, piece, before);
}

void pieces_unset_key(struct pieces *pieces, struct piece *piece)
{
	uint64_t before = pieces_key(pieces, piece);

	due_remove(pieces, piece);
	piece->epoch = pieces->epoch - 1;
	heap_fix(pieces, piece, before);
}

void pieces_unset_keys(struct pieces *pieces)
{
	pieces->epoch++;
	pieces->due_units = 0;
}

void pieces_set_units(struct pieces *pieces, struct piece *piece, uint32_t units)
{
	if (pieces_has_key(pieces, piece))
		pieces->due_units += (uint64_t)units - piece->units;
	piece->units = units;
}

void pieces_sort(struct pieces *pieces)
{
	for (uint32_t i = pieces->n_heap / 2; i-- > 0;)
		heap_down(pieces, i);
}

/* ---- the parked ---- */

void pieces_park(struct pieces *pieces, struct piece *piece, uint32_t id)
{
	pieces_leave(pieces, piece, id);
	piece->parked = true;
	piece->prev = pieces->newest;
	piece->next = PIECES_NONE;
	if (pieces->newest == PIECES_NONE)
		pieces->oldest = id;
	else
		pieces_find(pieces, pieces->newest)->next = id;
	pieces->newest = id;
}

static void pieces_unpark_one(struct pieces *pieces, struct piece *piece, uint32_t id)
{
	piece->parked = false;
	if (pieces->probe == id)
		pieces->probe = piece->next;
	if (piece->prev == PIECES_NONE)
		pieces->oldest = piece->next;
	else
		pieces_find(pieces, piece->prev)->next = piece->next;
	if (piece->next == PIECES_NONE)
		pieces->newest = piece->prev;
	else
		pieces_find(pieces, piece->next)->prev = piece->prev;
}

void pieces_leave(struct pieces *pieces, struct piece *piece, uint32_t id)
{
	if (piece->parked)
		pieces_unpark_one(pieces, piece, id);
	if (piece->index != PIECES_NONE)
		heap_remove(pieces, piece);
}

void pieces_rest(struct pieces *pieces, struct piece *piece, uint32_t id)
{
	pieces_leave(pieces, piece, id);
	if (!heap_add(pieces, id))
		pieces_park(pieces, piece, id); /* pieces_unpark() finds it there later */
}

bool pieces_is_busy(const struct pieces *pieces, uint32_t id, plan_busy_function *busy, void *argument)
{
	const struct piece *piece = pieces_find(pieces, id);

	return (piece->last_use && piece->last_use == pieces->now) || (busy && busy(argument, id));
}

void pieces_unpark(struct pieces *pieces, unsigned probes, plan_busy_function *busy, void *argument)
{
	uint32_t id;

	while ((id = pieces->oldest) != PIECES_NONE) {
		if (pieces_is_busy(pieces, id, busy, argument) || !heap_add(pieces, id))
			break;
		pieces_unpark_one(pieces, pieces_find(pieces, id), id);
	}
	for (; probes && pieces->oldest != PIECES_NONE; probes--) {
		id = pieces->probe != PIECES_NONE ? pieces->probe : pieces->oldest;
		struct piece *piece = pieces_find(pieces, id);

		pieces->probe = piece->next;
		if (!pieces_is_busy(pieces, id, busy, argument) && heap_add(pieces, id))
			pieces_unpark_one(pieces, piece, id);
	}
}

uint32_t pieces_top(struct pieces *pieces, plan_busy_function *busy, void *argument)
{
	while (pieces->n_heap) {
		uint32_t id = pieces->heap[0];

		if (!pieces_is_busy(pieces, id, busy, argument))
			return id;
		pieces_park(pieces, pieces_find(pieces, id), id);
	}
	return PIECES_NONE;
}

/* ---- forecast ---- */

/*
 * The forecast walks once over what followed the remembered position: the pieces that are due, and the transitions.
 * Each piece notes whether it is needed at the point of the walk.
 */

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
	struct piece *piece;

	for (uint32_t id = pieces_due(walk->pieces, position); id != PIECES_NONE; id = piece->due_next) {
		piece = pieces_find(walk->pieces, id);
		if (piece->key == position && piece->place != PLAN_GONE)
			walk_set(walk, piece, true);
	}
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

		struct piece *piece = pieces_find(walk->pieces, transition->piece);

		if (transition->position > position)
			return;
		if (piece && piece->place != PLAN_GONE)
			walk_set(walk, piece, !transition->dead);
	}
}

/* Makes the forecast of what follows `at` up to `until`. */
static void forecast_walk(struct forecast_walk *walk, uint64_t at, uint64_t until)
{
	struct forecast *forecast = walk->forecast;
	unsigned step = 0;

	forecast->from = at;
	forecast->until = until;
	forecast->round++;
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

void forecast_make(struct forecast *forecast, const struct pieces *pieces, uint64_t at, uint64_t needed)
{
	uint64_t next = first_after(forecast, at);

	forecast_drop(forecast);
	if (next == forecast->n || at >= pieces->now)
		return;
	forecast_walk(&(struct forecast_walk){forecast, pieces, (int64_t)needed, forecast->ring, next, forecast->n,
					      FORECAST_MOST - 1},
		      at, pieces->now);
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
	forecast_walk(&(struct forecast_walk){forecast, pieces, (int64_t)needed, transitions, next, n, UINT64_MAX}, at,
		      until);
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
