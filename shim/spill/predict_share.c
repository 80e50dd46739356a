/*
 * A piece counts by how long it had not been named before, as it is that what is told of it is worth: what was used a
 * moment ago is in device memory still.
 *
 * A program that takes up the same few pieces again and again, in whatever order, is foretold by any place to some part.
 * So a place must do better than another one near by, too.
 */
#include "shim/spill/predict_inside.h"

#define SHARE_ON  5    /* this part foreseen is enough to believe in a place, */
#define SHARE_OFF 10   /* and this to go on believing in it */
#define ELSEWHERE 37   /* submissions */
#define AGE_MOST  4096 /* what was not named for longer counts as if it had been so long */
#define AGE_SHARE 32   /* ages that differ by no more than that share of one are alike */

bool share_is_good(const struct predict_share *share, bool believed)
{
	if (share->n < SHARE_NAMES * SHARE_NAME)
		return false;
	if (16 * share->foreseen >= 15 * share->named)
		return true;
	return believed ? SHARE_OFF * share->foreseen >= share->named && 4 * share->foreseen >= 5 * share->chance
			: SHARE_ON * share->foreseen >= share->named && share->foreseen >= 4 * share->chance;
}

uint64_t share_age(const struct slot *slot, uint64_t position)
{
	return slot->before ? (uint32_t)position - slot->before : 0;
}

uint64_t share_weight(uint64_t age)
{
	return age < AGE_MOST ? age : AGE_MOST;
}

/* About as long ago as in the place of it, there: other memory, but it was used for the same. */
static bool is_alike(uint64_t was, uint64_t is)
{
	uint64_t apart = was > is ? was - is : is - was;

	return was && apart <= is / AGE_SHARE;
}

/* A submission that the latest one may correspond to, as far as it names anything. */
struct then {
	uint64_t place, from;
	unsigned n;
};

static struct then look_at(const struct predict *predict, uint64_t place)
{
	struct then then = {.place = place};

	if (place != PREDICT_NONE)
		then.n = predict_names(predict, place, &then.from);
	return then;
}

/* What it tells of the i-th of n names, which had not been named for `ago`. */
static uint64_t told(const struct predict *predict, const struct then *then, uint64_t latest, const struct slot *slot,
		     unsigned i, unsigned n, uint64_t ago)
{
	uint64_t most = latest - then->place;

	if (!then->n)
		return 0;
	if (predict_find_name(predict, then->from, then->n, slot->piece) < then->n)
		return share_weight(ago);
	if (!is_alike(share_age(predict_slot(predict, then->from + i * then->n / n), then->place), ago))
		return 0;
	return share_weight(ago < most ? ago : most);
}

/* Somewhere else, where all that is foretold is chance. */
static uint64_t elsewhere(const struct predict *predict, uint64_t place)
{
	if (place == PREDICT_NONE || place < predict->oldest + ELSEWHERE)
		return PREDICT_NONE;
	return place - ELSEWHERE;
}

void share_add(const struct predict *predict, uint64_t place, uint64_t latest, struct predict_share *share)
{
	struct then then = look_at(predict, place), other = look_at(predict, elsewhere(predict, place));
	uint64_t from;
	unsigned n = predict_names(predict, latest, &from);

	for (unsigned i = 0; i < n; i++) {
		const struct slot *slot = predict_slot(predict, from + i);
		uint64_t ago = share_age(slot, latest);

		if (!ago)
			continue;
		uint64_t foreseen = told(predict, &then, latest, slot, i, n, ago);
		share->named += share_weight(ago);
		share->foreseen += foreseen;
		share->n += foreseen ? SHARE_NAME : 0;
		share->chance += told(predict, &other, latest, slot, i, n, ago);
	}
}

/* The pair before: the same functions as far as one that is missing on either side allows. False: there is none. */
static bool step_back(const struct predict *predict, uint64_t *place, uint64_t *latest)
{
	if (*place <= predict->oldest + 1 || *latest <= predict->oldest + 1)
		return false;
	uint64_t then = *place - 1, late = *latest - 1;
	bool same = predict_same_function(predict, then, late);

	*place = !same && predict_same_function(predict, then - 1, late) ? then - 1 : then;
	*latest = !same && *place == then && late - 1 > then && predict_same_function(predict, then, late - 1)
		      ? late - 1
		      : late;
	return true;
}

struct predict_share share_of(const struct predict *predict, uint64_t place, unsigned *ret_same)
{
	struct predict_share share = {0};
	uint64_t latest = predict->now;
	unsigned n = 0;

	*ret_same = 0;
	do {
		share_add(predict, place, latest, &share);
		*ret_same += predict_same_function(predict, place, latest);
	} while (++n < SHARE_COMPARED && step_back(predict, &place, &latest));
	return share;
}
