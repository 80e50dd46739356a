/*
 * A piece counts by how long it had not been named before, as it is that what is told of it is worth: what was used a
 * moment ago is in device memory still.
 */
#include "shim/spill/predict_inside.h"

#define SHARE_ON  5    /* this part foreseen is enough to believe in a place, */
#define SHARE_OFF 10   /* and this to go on believing in it */
#define AGE_MOST  4096 /* what was not named for longer counts as if it had been so long */
#define AGE_APART 2    /* ages that differ by no more than that, */
#define AGE_SHARE 32   /* and that share of one, are alike */

/* Enough to be believed; and to go on being. */
bool share_is_good(const struct predict_share *share, bool believed)
{
	return share->n >= SHARE_NAMES * SHARE_NAME &&
	       (believed ? SHARE_OFF : SHARE_ON) * share->foreseen >= share->named;
}

static bool is_named(const struct predict *predict, uint64_t from, unsigned n, uint32_t piece)
{
	for (unsigned i = 0; i < n; i++)
		if (predict_slot(predict, from + i)->piece == piece)
			return true;
	return false;
}

/* For how long it had not been named. 0: it never was, so nothing could foretell it. */
uint64_t share_age(const struct slot *slot, uint64_t position)
{
	return slot->before ? (uint32_t)position - slot->before : 0;
}

/* How much it counts. */
uint64_t share_weight(uint64_t age)
{
	return age < AGE_MOST ? age : AGE_MOST;
}

/* About as long ago as in the place of it, there: other memory, but it was used for the same. */
static bool is_alike(uint64_t was, uint64_t is)
{
	uint64_t apart = was > is ? was - is : is - was;

	return was && apart <= AGE_APART + is / AGE_SHARE;
}

/* Of what the submission at `latest` names, how much that at `place` foretells; place PREDICT_NONE: nothing. */
void share_add(const struct predict *predict, uint64_t place, uint64_t latest, struct predict_share *share)
{
	uint64_t then = 0, from;
	unsigned n = predict_names(predict, latest, &from);
	unsigned n_then = place != PREDICT_NONE ? predict_names(predict, place, &then) : 0;

	for (unsigned i = 0; i < n; i++) {
		const struct slot *slot = predict_slot(predict, from + i);
		uint64_t ago = share_age(slot, latest), most = n_then ? latest - place : 0;

		share->named += share_weight(ago);
		if (!ago || !n_then)
			continue;
		if (is_named(predict, then, n_then, slot->piece))
			most = ago;
		else if (!is_alike(share_age(predict_slot(predict, then + i * n_then / n), place), ago))
			continue;
		share->foreseen += share_weight(ago < most ? ago : most);
		share->n += SHARE_NAME;
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

/* *ret_same: of how many of those compared the functions are the same. */
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
