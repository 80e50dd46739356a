/*
 * Candidates for the place of the program in its past, from the pieces themselves: of those named lately, the ones that
 * had not been for long say how long ago they were named, then and the times before. Where many agree, the program was
 * in the same phase, whatever kernels it ran there.
 */
#include "shim/spill/predict_inside.h"

#define VOTERS     24  /* namings asked, */
#define VOTES_EACH 48  /* for so many earlier ones */
#define BINS       512 /* of distances, VOTE_APART wide */

struct bin {
	uint64_t number; /* distance / VOTE_APART; 0: free */
	uint64_t votes, distance;
};

static void vote(struct bin *bins, uint64_t distance, uint64_t weight)
{
	uint64_t number = distance / VOTE_APART + 1;

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

/* Where was that piece named before? 0: it is not known. */
static uint64_t named_before(const struct predict *predict, uint64_t position, uint32_t piece)
{
	uint64_t from;
	unsigned n = predict_names(predict, position, &from), i = predict_find_name(predict, from, n, piece);
	uint32_t low = i < n ? predict_slot(predict, from + i)->before : 0;
	uint64_t before = low ? predict_whole(predict, low) : 0;

	return before >= predict->oldest && before < position ? before : 0;
}

static void ask(const struct predict *predict, struct bin *bins, uint64_t position, const struct slot *voter)
{
	uint64_t ago = share_age(voter, position), place = position;

	for (unsigned i = 0; i < VOTES_EACH && (place = named_before(predict, place, voter->piece)); i++)
		if (position - place >= ago)
			vote(bins, position - place, share_weight(ago));
}

unsigned vote_elect(const struct predict *predict, uint64_t *ret_distances)
{
	struct bin bins[BINS] = {{0}};
	struct predict_share sum = {0};
	uint64_t from, n_named = 0, voters = 0;
	unsigned n_elected = 0;

	for (unsigned i = 0; i < SHARE_COMPARED && predict->now >= predict->oldest + i; i++) {
		share_add(predict, PREDICT_NONE, predict->now - i, &sum);
		n_named += predict_names(predict, predict->now - i, &from);
	}
	for (unsigned i = 0; i < SHARE_COMPARED && predict->now >= predict->oldest + i; i++) {
		unsigned n = predict_names(predict, predict->now - i, &from);

		for (unsigned k = 0; k < n && voters < VOTERS; k++) {
			const struct slot *slot = predict_slot(predict, from + k);

			if (share_weight(share_age(slot, predict->now - i)) * n_named <= sum.named)
				continue;
			ask(predict, bins, predict->now - i, slot);
			voters++;
		}
	}
	while (n_elected < VOTE_ELECTED) {
		struct bin *most = &bins[0];

		for (unsigned i = 1; i < BINS; i++)
			if (bins[i].votes > most->votes)
				most = &bins[i];
		if (!most->votes)
			break;
		ret_distances[n_elected++] = most->distance;
		most->votes = 0;
	}
	return n_elected;
}
