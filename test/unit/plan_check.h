// SPDX-License-Identifier: Apache-2.0
/*
 * plan_check.h: whether what a plan keeps is consistent.
 */
#ifndef TEST_PLAN_CHECK_H
#define TEST_PLAN_CHECK_H

#include "shim/plan/types.h"

#include <string.h>

static inline bool plan_heap_is_valid(const struct pieces *pieces)
{
	for (uint32_t i = 0; i < pieces->n_heap; i++) {
		const struct piece *piece = pieces_find(pieces, pieces->heap[i]);

		if (piece->index != i || piece->parked || piece->place != PLAN_DEVICE)
			return false;
		if (i && pieces_key(pieces, pieces_find(pieces, pieces->heap[(i - 1) / 2])) < pieces_key(pieces, piece))
			return false;
	}
	return true;
}

/* Returns whether each piece with a key is in the list of that key, and no other piece is in any list. */
static inline bool plan_due_is_valid(const struct pieces *pieces)
{
	uint32_t n_keys = 0, n_listed = 0;
	uint64_t units = 0;

	for (unsigned leaf = 0; leaf < PIECES_LEAVES; leaf++)
		for (unsigned i = 0; pieces->leaf[leaf] && i < PIECES_LEAF; i++)
			if (pieces_has_key(pieces, &pieces->leaf[leaf][i])) {
				n_keys++;
				units += pieces->leaf[leaf][i].units;
			}
	for (uint64_t key = 0; key < PIECES_DUE; key++) {
		const struct due *due = &pieces->due[key];
		uint32_t prev = PIECES_NONE, id = due->id;

		if (due->epoch != pieces->epoch)
			continue; /* most of them, so pieces_due() would be called too often */
		for (; id != PIECES_NONE; prev = id, id = pieces_find(pieces, id)->due_next) {
			const struct piece *piece = pieces_find(pieces, id);

			if (!pieces_has_key(pieces, piece) || piece->key % PIECES_DUE != key || piece->due_prev != prev)
				return false;
			n_listed++;
		}
	}
	return n_keys == n_listed && units == pieces->due_units;
}

/* Returns whether the heap and the lists are consistent and each piece is exactly where it should be. */
static inline bool pieces_is_valid(const struct pieces *pieces)
{
	uint32_t prev = PIECES_NONE, n_device = 0, n_parked = 0;

	for (uint32_t id = pieces->oldest; id != PIECES_NONE;
	     prev = id, id = pieces_find(pieces, id)->next, n_parked++) {
		const struct piece *piece = pieces_find(pieces, id);

		if (!piece->parked || piece->prev != prev || piece->index != PIECES_NONE || piece->place != PLAN_DEVICE)
			return false;
	}
	for (unsigned leaf = 0; leaf < PIECES_LEAVES; leaf++)
		for (unsigned i = 0; pieces->leaf[leaf] && i < PIECES_LEAF; i++)
			n_device += pieces->leaf[leaf][i].place == PLAN_DEVICE;
	return prev == pieces->newest && n_device == n_parked + pieces->n_heap && plan_heap_is_valid(pieces) &&
	       plan_due_is_valid(pieces);
}

static inline bool plan_is_valid(const struct plan *plan)
{
	uint64_t ahead = 0, needed = 0, arriving = 0, units[PLAN_PLACES] = {0};

	for (uint32_t id = 0; id < PLAN_PIECES; id++) {
		const struct piece *piece = pieces_find(&plan->pieces, id);

		if (!piece)
			id |= PIECES_LEAF - 1; /* no piece of this leaf exists */
		else
			units[piece->place] += piece->units;
		if (piece && piece->ahead == plan->round)
			ahead += piece->units;
		if (piece && forecast_needs(piece))
			needed += piece->units;
		if (piece && piece->arriving)
			arriving += piece->units;
	}
	return ahead == plan->ahead_units && needed == plan->room.needed && arriving == plan->room.arriving &&
	       !memcmp(units, plan->units, sizeof(units)) && pieces_is_valid(&plan->pieces);
}

/* Returns the submission that is expected to use the piece next, always after plan_now(); PLAN_NEVER: none is foreseen. */
static inline uint64_t plan_next_use(const struct plan *plan, uint32_t id)
{
	const struct piece *piece = pieces_find(&plan->pieces, id);
	uint64_t key = piece ? pieces_key(&plan->pieces, piece) : PIECES_UNFORESEEN;

	return key >= PIECES_UNFORESEEN ? PLAN_NEVER : key + (plan->pieces.now - plan->at);
}

#endif
