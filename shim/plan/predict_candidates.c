/*
 * Candidates for the program's place in its past, by the pieces themselves. Of the pieces named recently, those that
 * had not been named for long vote with the distances to their earlier uses. Where many agree, the program was in the
 * same phase, whatever kernels it ran there.
 */
#include "shim/plan/predict_internal.h"

#define VOTERS     24  /* recent names that vote */
#define VOTES_EACH 48  /* the most earlier uses that each of them votes for */
#define BINS       512 /* bins of distances, CANDIDATES_APART wide */

struct bin {
	uint64_t number; /* distance / CANDIDATES_APART + 1; 0: free */
	uint64_t votes, distance;
};

static void predict_candidates_vote(struct bin *bins, uint64_t distance, uint64_t weight)
{
	uint64_t number = distance / CANDIDATES_APART + 1;

	for (unsigned i = 0; i < 8; i++) {
		struct bin *bin = &bins[(number + i) % BINS];

		if (bin->number && bin->number != number)
			continue;
		if (!bin->number)
			*bin = (struct bin){.number = number, .distance = distance};
		bin->votes += weight;
		return;
	}
}

/* Returns the position at which the piece was named before `position`; 0: not known. */
static uint64_t named_before(const struct predict *predict, uint64_t position, uint32_t piece)
{
	uint64_t from;
	unsigned n = predict_names(predict, position, &from), i = predict_find_name(predict, from, n, piece);
	uint32_t low = i < n ? predict_slot(predict, from + i)->before : 0;
	uint64_t before = low ? predict_whole(predict, low) : 0;

	return before >= predict->oldest && before < position ? before : 0;
}

static void predict_candidates_ask(const struct predict *predict, struct bin *bins, uint64_t position, uint32_t piece,
				   uint64_t age)
{
	uint64_t place = position;

	for (unsigned i = 0; i < VOTES_EACH && (place = named_before(predict, place, piece)); i++)
		if (position - place >= age)
			predict_candidates_vote(bins, position - place, predict_score_weight(age));
}

/* Only names of the latest submissions that weigh more than the average vote. */
static void ask_latest(struct predict *predict, struct bin *bins)
{
	uint64_t named = 0, n_named = 0, voters = 0;

	for (unsigned i = 0; i < SCORE_COMPARED && predict->now >= predict->oldest + i; i++) {
		const struct latest *latest = predict_score_latest(predict, predict->now - i);

		named += latest->named;
		n_named += latest->n;
	}
	for (unsigned i = 0; i < SCORE_COMPARED && predict->now >= predict->oldest + i; i++) {
		const struct latest *latest = predict_score_latest(predict, predict->now - i);

		for (unsigned k = 0; k < latest->n && voters < VOTERS; k++) {
			if (predict_score_weight(latest->age[k]) * n_named <= named)
				continue;
			predict_candidates_ask(predict, bins, latest->position,
					       latest->piece[k / PREDICT_LANE][k % PREDICT_LANE], latest->age[k]);
			voters++;
		}
	}
}

unsigned predict_candidates_elect(struct predict *predict, uint64_t *ret_distances)
{
	struct bin bins[BINS] = {{0}};
	const struct bin *most[CANDIDATES_ELECTED + 1];
	unsigned n = 0;

	ask_latest(predict, bins);
	for (const struct bin *bin = bins; bin < bins + BINS; bin++) {
		unsigned at = n;

		for (; bin->votes && at && most[at - 1]->votes < bin->votes; at--)
			most[at] = most[at - 1];
		most[at] = bin;
		n += bin->votes && n < CANDIDATES_ELECTED;
	}
	for (unsigned i = 0; i < n; i++)
		ret_distances[i] = most[i]->distance;
	return n;
}
