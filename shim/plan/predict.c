/*
 * The predictor's interface: adds submissions to the history and advances the place that the program is at
 * (predict_match.c); finds the twins of the latest submission's names.
 */
#include "shim/plan/predict_internal.h"

#include <stdlib.h>
#include <string.h>

struct predict *predict_new(void)
{
	struct predict *predict = calloc(1, sizeof(*predict));

	if (!predict)
		return NULL;
	history_init(predict);
	predict_match_init(predict);
	return predict;
}

void predict_free(struct predict *predict)
{
	if (!predict)
		return;
	history_fini(predict);
	free(predict);
}

void predict_note(struct predict *predict, uint64_t function, const uint32_t *pieces, unsigned n)
{
	if (history_add(predict, function, pieces, n)) {
		predict_match_follow(predict);
		return;
	}
	/* This submission is missing from the ring, and nothing before it may be continued across the hole. */
	history_skip(predict);
	predict->at = PREDICT_NONE;
}

uint64_t predict_now(const struct predict *predict)
{
	return predict->now;
}

uint64_t predict_at(const struct predict *predict)
{
	return predict->believed ? predict->at : PREDICT_NONE;
}

/*
 * The names of the latest submission, slots `from` to `to` - 1, and of that at predict_at(), slots `then` to `then_to`
 * - 1.
 */
struct twins {
	uint64_t from, to, then, then_to;
	unsigned n_known; /* names in `known`, filled on request; 0: not yet */
	predict_lane known[PREDICT_NAMES / PREDICT_LANE];
};

static void learn_names(const struct predict *predict, struct twins *twins)
{
	memset(twins->known, 0xff, sizeof(twins->known)); /* matches no piece */
	twins->n_known = predict_names(predict, predict->at, &twins->then);
	for (unsigned i = 0; i < twins->n_known; i++)
		twins->known[i / PREDICT_LANE][i % PREDICT_LANE] = predict_slot(predict, twins->then + i)->piece;
}

/* Usually the piece is not among the names; this finds that out without branches. */
static bool was_named(const struct twins *twins, uint32_t piece)
{
	predict_lane hits = {0};
	uint64_t halves[sizeof(hits) / sizeof(uint64_t)], any = 0;

	for (unsigned i = 0; i < PREDICT_NAMES / PREDICT_LANE; i++)
		hits |= (predict_lane)(twins->known[i] == piece);
	memcpy(halves, &hits, sizeof(hits));
	for (unsigned i = 0; i < sizeof(hits) / sizeof(uint64_t); i++)
		any |= halves[i];
	return any;
}

/*
 * Returns the slot that corresponds to name `number`. Usually both submissions are the same, piece by piece; otherwise
 * the piece may stand in the place of another one. A piece that was not named since predict_at() cannot be among the
 * names there.
 */
static uint64_t twin_of(const struct predict *predict, struct twins *twins, uint64_t number)
{
	const struct slot *slot = predict_slot(predict, twins->from + number);
	uint64_t n = twins->to - twins->from, n_then = twins->then_to - twins->then;

	if (number < n_then && predict_slot(predict, twins->then + number)->piece == slot->piece)
		return twins->then + number;
	if (slot->before && predict_whole(predict, slot->before) >= predict->at) {
		if (!twins->n_known)
			learn_names(predict, twins);
		if (was_named(twins, slot->piece))
			return twins->then + predict_find_name(predict, twins->then, twins->n_known, slot->piece);
	}
	return twins->then + number * n_then / n;
}

unsigned predict_latest(const struct predict *predict, uint64_t past, uint64_t from, struct predict_name *ret_names,
			unsigned n)
{
	struct twins twins = {0};
	unsigned i = 0;

	predict_slots(predict, predict->now, &twins.from, &twins.to);
	if (predict_at(predict) != PREDICT_NONE && !predict->held)
		predict_slots(predict, predict->at, &twins.then, &twins.then_to);
	for (; i < n && from < twins.to - twins.from; i++, from++) {
		struct predict_name *name = &ret_names[i];

		name->slot = twins.from + from;
		name->piece = predict_slot(predict, name->slot)->piece;
		name->has_twin = twins.then < twins.then_to;
		name->again = PREDICT_NONE;
		if (name->has_twin)
			name->again =
			    predict_again_after(predict, twin_of(predict, &twins, from), past, &name->again_slot);
	}
	return i;
}
