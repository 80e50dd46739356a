// SPDX-License-Identifier: Apache-2.0
/* The predictor: the history of submissions, and what follows from the place in it that the program is at. */
#include "shim/plan/types.h"
#include "shim/base/array.h"

#include <stdlib.h>
#include <string.h>

/* ---- history ---- */

/*
 * The history: a ring of the submissions, and the index that finds them again by their grams. A submission's *token* is
 * a hash of its function and its pieces. A gram is GRAM_TOKENS consecutive tokens; or GRAM_FUNCTIONS consecutive
 * functions, for the time in which the pieces still change (allocations in the first step, ends of tensors being
 * learned). Entries of one gram are chained from the newest to the oldest, and so are the slots that name one piece.
 */

#define FIRST_ENTRIES 2048u
#define FIRST_SLOTS   16384u
#define MOST_SLOTS    (1u << 21)
#define MOST_NAMED    16384u
#define GRAM_FACTOR   UINT64_C(0x9e3779b97f4a7c15)

static const unsigned gram_length[GRAMS] = {[BY_TOKEN] = GRAM_TOKENS, [BY_FUNCTION] = GRAM_FUNCTIONS};

static uint64_t history_mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

/* ---- memory ---- */

/*
 * Doubles an array whose elements are at index & (n - 1). Must be called only while no index has reached n: then all
 * elements stay where they are.
 */
static void *history_doubled(void *old, uint32_t *n, uint32_t first, uint32_t most, size_t size, bool *full)
{
	uint32_t more = *n ? *n * 2 : first;
	void *new = more <= most ? realloc(old, more * size) : NULL;

	if (!new) {
		*full = true;
		return old;
	}
	*n = more;
	return new;
}

/*
 * Makes room for an entry of n slots: grows the arrays, then drops the oldest entries. One entry is kept free, because
 * it holds the end of the latest.
 */
static bool make_room(struct predict *predict, unsigned n)
{
	while (!predict->entries_full && predict->now + 3 > predict->n_entries)
		predict->entries = history_doubled(predict->entries, &predict->n_entries, FIRST_ENTRIES, PREDICT_MOST,
						   sizeof(struct entry), &predict->entries_full);
	while (!predict->slots_full && predict->next_slot + n > predict->n_slots)
		predict->slots = history_doubled(predict->slots, &predict->n_slots, FIRST_SLOTS, MOST_SLOTS,
						 sizeof(struct slot), &predict->slots_full);
	if (!predict->n_entries || n > predict->n_slots)
		return false;
	while (predict->oldest <= predict->now) {
		struct entry *entry = predict_entry(predict, predict->oldest);

		if (predict->now + 3 - predict->oldest <= predict->n_entries &&
		    predict->next_slot + n - entry->slot <= predict->n_slots)
			break;
		predict->oldest++;
	}
	return true;
}

/* ---- remembering ---- */

/* The order of pieces does not matter, so their hashes are added. */
static uint64_t token_of(uint64_t function, const uint32_t *pieces, unsigned n)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < n; i++)
		sum += history_mix(pieces[i] + UINT64_C(0x100000001));
	return history_mix(sum ^ history_mix(function + n));
}

static void add_slots(struct predict *predict, uint64_t position, const uint32_t *pieces, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		uint64_t slot = predict->next_slot++;
		struct last *last = &predict->last[pieces[i] % PLAN_PIECES];

		*predict_slot(predict, slot) = (struct slot){.piece = pieces[i]};
		if (last->position >= predict->oldest) {
			predict_slot(predict, slot)->before = (uint32_t)last->position;
			predict_slot(predict, last->slot)->again = (uint32_t)position;
			predict_slot(predict, last->slot)->again_slot = (uint32_t)slot;
		}
		*last = (struct last){slot, position};
	}
}

static void add_gram(struct predict *predict, enum gram gram, struct entry *entry, uint64_t in)
{
	uint64_t *out = &predict->recent[gram][predict->now % gram_length[gram]];

	predict->gram[gram] = predict->gram[gram] * GRAM_FACTOR + in - *out * predict->power[gram];
	*out = in;
	uint32_t *bucket = &predict->bucket[gram][history_mix(predict->gram[gram]) % PREDICT_BUCKETS];
	entry->older[gram] = *bucket;
	*bucket = (uint32_t)predict->now;
}

/* Remembers a submission as the latest one. Returns false if there is no memory for it; nothing has changed then. */
static bool history_add(struct predict *predict, uint64_t function, const uint32_t *pieces, unsigned n)
{
	if (n > MOST_NAMED)
		n = MOST_NAMED;
	if (!make_room(predict, n))
		return false;
	uint64_t now = ++predict->now;
	struct entry *entry = predict_entry(predict, now);

	entry->slot = predict->next_slot;
	entry->token = token_of(function, pieces, n);
	entry->function = (uint32_t)history_mix(function);
	add_slots(predict, now, pieces, n);
	predict_entry(predict, now + 1)->slot = predict->next_slot;
	add_gram(predict, BY_TOKEN, entry, entry->token);
	add_gram(predict, BY_FUNCTION, entry, entry->function);
	return true;
}

/* ---- reading ---- */

void predict_slots(const struct predict *predict, uint64_t position, uint64_t *ret_from, uint64_t *ret_to)
{
	*ret_from = predict_entry(predict, position)->slot;
	*ret_to = predict_entry(predict, position + 1)->slot;
}

uint64_t predict_again_after(const struct predict *predict, uint64_t slot, uint64_t past, uint64_t *ret_slot)
{
	const struct slot *at = predict_slot(predict, slot);

	while (at->again) {
		*ret_slot = predict->next_slot - (uint32_t)((uint32_t)predict->next_slot - at->again_slot);
		if (predict_whole(predict, at->again) > past)
			return predict_whole(predict, at->again);
		at = predict_slot(predict, *ret_slot);
	}
	return PREDICT_NONE;
}

void predict_walk_begin(const struct predict *predict, uint64_t past, uint64_t most, struct predict_walk *ret_walk)
{
	uint64_t end = predict_entry(predict, predict->now + 1)->slot;

	*ret_walk = (struct predict_walk){.past = past, .position = past + 1, .end = end};
	ret_walk->slot = predict_entry(predict, past + 1)->slot;
	if (end - ret_walk->slot > most)
		ret_walk->end = ret_walk->slot + most;
}

bool predict_walk_next(const struct predict *predict, struct predict_walk *walk)
{
	while (walk->slot < walk->end) {
		uint64_t number = walk->slot++;
		const struct slot *slot = predict_slot(predict, number);

		if (slot->before && predict_whole(predict, slot->before) > walk->past)
			continue;
		while (predict_entry(predict, walk->position + 1)->slot <= number)
			walk->position++;
		walk->piece = slot->piece;
		walk->found = number;
		return true;
	}
	return false;
}

/* ---- the interface of predict.h ---- */

/*
 * The predictor's interface: adds submissions to the history and advances the place that the program is at
 * (predict_match.c); finds the twins of the latest submission's names.
 */

struct predict *predict_new(void)
{
	struct predict *predict = calloc(1, sizeof(*predict));

	if (!predict)
		return NULL;
	predict->last = lazy_memory_new(PLAN_PIECES * sizeof(*predict->last));
	if (!predict->last) {
		free(predict);
		return NULL;
	}
	predict->oldest = 1;
	predict->at = PREDICT_NONE;
	predict->credit = PREDICT_CREDIT_MOST;
	for (int gram = 0; gram < GRAMS; gram++) {
		predict->power[gram] = 1;
		for (unsigned i = 0; i < gram_length[gram]; i++)
			predict->power[gram] *= GRAM_FACTOR;
	}
	return predict;
}

void predict_free(struct predict *predict)
{
	if (!predict)
		return;
	free(predict->entries);
	free(predict->slots);
	lazy_memory_free(predict->last, PLAN_PIECES * sizeof(*predict->last));
	free(predict);
}

void predict_note(struct predict *predict, uint64_t function, const uint32_t *pieces, unsigned n)
{
	if (history_add(predict, function, pieces, n)) {
		predict_match_follow(predict);
		return;
	}
	/* This submission is missing from the ring, and nothing before it may be continued across the hole. */
	predict->now++;
	predict->oldest = predict->now + 1;
	predict->entries_full = predict->n_entries != 0;
	predict->slots_full = predict->n_slots != 0;
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
	if (predict_at(predict) != PREDICT_NONE && !predict->misfits)
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
