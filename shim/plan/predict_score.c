/*
 * Scores: how well a place foretells the latest submissions. A piece is weighted by how long it had not been named
 * before, because that is what its prediction is worth: a piece that was used a moment ago is still in device memory.
 *
 * If a program uses the same few pieces again and again in any order, any place foretells it to some extent. So a place
 * must also do better than another one near by.
 */
#include "shim/plan/predict_internal.h"

#include <string.h>

#define SCORE_ON  5    /* 1 / SCORE_ON foreseen is enough to begin believing in a place */
#define SCORE_OFF 10   /* 1 / SCORE_OFF is enough to go on */
#define ELSEWHERE 37   /* distance, in submissions, of the place that chance is measured at */
#define AGE_MOST  4096 /* the largest age; larger ones count as this */
#define AGE_SHARE 32   /* ages that differ by at most 1 / AGE_SHARE of one are alike */

bool predict_score_is_good(const struct predict_score *share, bool believed)
{
	if (share->n < SCORE_NAMES * SCORE_NAME)
		return false;
	if (16 * share->foreseen >= 15 * share->named)
		return true;
	return believed ? SCORE_OFF * share->foreseen >= share->named && 4 * share->foreseen >= 5 * share->chance
			: SCORE_ON * share->foreseen >= share->named && share->foreseen >= 4 * share->chance;
}

uint64_t predict_score_weight(uint64_t age)
{
	return age < AGE_MOST ? age : AGE_MOST;
}

/* Returns for how many submissions a piece had not been named; 0: it never was, so nothing could foretell it. */
static uint32_t age_of(const struct slot *slot, uint64_t position)
{
	return slot->before ? (uint32_t)position - slot->before : 0;
}

/* ---- the latest submissions ---- */

const struct latest *predict_score_latest(struct predict *predict, uint64_t position)
{
	struct latest *latest = &predict->latest[position % PREDICT_LATEST];
	uint64_t from;

	if (latest->position == position)
		return latest;
	latest->position = position;
	latest->named = 0;
	latest->n = predict_names(predict, position, &from);
	for (unsigned i = 0; i < latest->n; i++) {
		const struct slot *slot = predict_slot(predict, from + i);

		latest->piece[i / PREDICT_LANE][i % PREDICT_LANE] = slot->piece;
		latest->age[i] = age_of(slot, position);
		latest->named += predict_score_weight(latest->age[i]);
	}
	return latest;
}

/* ---- what a place foretells ---- */

/*
 * Whether a name also occurs there, or of what age the one in its place is, cannot be predicted: the following code has
 * no branches, because they would be mispredicted half of the time.
 */

/* Returns which names of `latest` are among `names`: all bits set, or none. */
static void predict_score_match(const struct latest *latest, const uint32_t *names, unsigned n, predict_lane *ret_hits)
{
	for (unsigned i = 0; i * PREDICT_LANE < latest->n; i += 2) {
		predict_lane these = latest->piece[i], those = latest->piece[i + 1], hits = {0}, more = {0};

		for (unsigned k = 0; k < n; k++) {
			hits |= (predict_lane)(these == names[k]);
			more |= (predict_lane)(those == names[k]);
		}
		ret_hits[i] = hits;
		ret_hits[i + 1] = more;
	}
}

/*
 * Returns the weight of a name whose place holds a piece of age `was`: other memory, but used for the same purpose
 * equally long ago.
 */
static uint32_t in_place(uint32_t was, uint32_t age, uint32_t most)
{
	uint32_t apart = was > age ? was - age : age - was, less = age < most ? age : most;

	return less & -(uint32_t)((was != 0) & (apart <= age / AGE_SHARE));
}

/* Returns the weight of what a place foretells of `latest`, and in *ret_n the number of names. */
static uint64_t predict_score_told(const struct predict *predict, uint64_t place, const struct latest *latest,
				   unsigned *ret_n)
{
	uint32_t names[PREDICT_NAMES], ages[PREDICT_NAMES], most = (uint32_t)(latest->position - place);
	predict_lane hits[PREDICT_NAMES / PREDICT_LANE];
	uint64_t from, sum = 0;
	unsigned n = predict_names(predict, place, &from), at = 0, rest = 0;

	*ret_n = 0;
	if (!n || !latest->n)
		return 0;
	for (unsigned i = 0; i < n; i++) {
		const struct slot *slot = predict_slot(predict, from + i);

		names[i] = slot->piece;
		ages[i] = age_of(slot, place);
	}
	predict_score_match(latest, names, n, hits);
	/* at: i * n / latest->n */
	for (unsigned i = 0, each = n / latest->n, over = n % latest->n; i < latest->n; i++) {
		uint32_t hit = hits[i / PREDICT_LANE][i % PREDICT_LANE];
		uint32_t age = (latest->age[i] & hit) | (in_place(ages[at], latest->age[i], most) & ~hit);

		sum += predict_score_weight(age);
		*ret_n += age != 0;
		rest += over;
		at += each + (rest >= latest->n);
		rest -= rest >= latest->n ? latest->n : 0;
	}
	return sum;
}

/* Returns the weight of what an unrelated place foretells, where all that is foretold is chance. */
static uint64_t by_chance(const struct predict *predict, uint64_t place, const struct latest *latest)
{
	unsigned n;

	return place < predict->oldest + ELSEWHERE ? 0 : predict_score_told(predict, place - ELSEWHERE, latest, &n);
}

static void predict_score_add_one(struct predict *predict, uint64_t place, uint64_t position, bool chance,
				  struct predict_score *share)
{
	const struct latest *latest = predict_score_latest(predict, position);
	unsigned n;

	share->named += latest->named;
	if (place == PREDICT_NONE)
		return;
	share->foreseen += predict_score_told(predict, place, latest, &n);
	share->n += (uint64_t)n * SCORE_NAME;
	if (chance)
		share->chance += by_chance(predict, place, latest);
}

void predict_score_add(struct predict *predict, uint64_t place, uint64_t latest, struct predict_score *share)
{
	predict_score_add_one(predict, place, latest, true, share);
}

/* ---- scores of many pairs ---- */

/*
 * Steps to the pair before. Keeps functions equal as far as skipping one submission on either side allows. Returns
 * false if there is none.
 */
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

void predict_score_pair(const struct predict *predict, uint64_t place, struct score_pairs *ret_pairs)
{
	uint64_t latest = predict->now;
	unsigned n = 0;

	ret_pairs->same = 0;
	do {
		ret_pairs->place[n] = place;
		ret_pairs->latest[n] = latest;
		ret_pairs->same += predict_same_function(predict, place, latest);
	} while (++n < SCORE_COMPARED && step_back(predict, &place, &latest));
	ret_pairs->n = n;
}

struct predict_score predict_score_of(struct predict *predict, const struct score_pairs *pairs, bool chance)
{
	struct predict_score share = {0};

	for (unsigned i = 0; i < pairs->n; i++)
		predict_score_add_one(predict, pairs->place[i], pairs->latest[i], chance, &share);
	return share;
}
