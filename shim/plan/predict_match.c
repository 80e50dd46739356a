// SPDX-License-Identifier: Apache-2.0
/* The place in the past that the program is at: what it foretells, candidates for it, and how it is followed. */
#include "shim/plan/types.h"

#include <stddef.h>
#include <string.h>

/* ---- scores ---- */

/*
 * Scores: how well a place foretells the latest submissions. A piece is weighted by how long it had not been named
 * before, because that is what its prediction is worth: a piece that was used a moment ago is still in device memory.
 *
 * If a program uses the same few pieces again and again in any order, any place foretells it to some extent. So a place
 * must also do better than another one near by.
 */

#define SCORE_COMPARED 32   /* submissions */
#define SCORE_NAMES    8    /* names that must be foreseen for a place to be believed */
#define SCORE_ON       5    /* 1 / SCORE_ON foreseen is enough to begin believing in a place */
#define SCORE_OFF      10   /* 1 / SCORE_OFF is enough to go on */
#define ELSEWHERE      37   /* distance, in submissions, of the place that chance is measured at */
#define AGE_MOST       4096 /* the largest age; larger ones count as this */
#define AGE_SHARE      32   /* ages that differ by at most 1 / AGE_SHARE of one are alike */

/* Returns whether a score is good enough to begin believing in a place, or to go on (believed). */
static bool predict_score_is_good(const struct predict_score *share, bool believed)
{
	if (share->n < SCORE_NAMES * SCORE_NAME)
		return false;
	if (16 * share->foreseen >= 15 * share->named)
		return true;
	return believed ? SCORE_OFF * share->foreseen >= share->named && 4 * share->foreseen >= 5 * share->chance
			: SCORE_ON * share->foreseen >= share->named && share->foreseen >= 4 * share->chance;
}

/* Returns the weight of a piece that had not been named for `age` submissions. */
static uint64_t predict_score_weight(uint64_t age)
{
	return age < AGE_MOST ? age : AGE_MOST;
}

/* Returns for how many submissions a piece had not been named; 0: it never was, so nothing could foretell it. */
static uint32_t age_of(const struct slot *slot, uint64_t position)
{
	return slot->before ? (uint32_t)position - slot->before : 0;
}

/* ---- the latest submissions ---- */

/* Returns the names of the submission at one of the latest PREDICT_LATEST positions. */
static const struct latest *predict_score_latest(struct predict *predict, uint64_t position)
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

/*
 * Adds to the score what the submission at `position` names, and the part of it that the one at `place` foretells
 * (PREDICT_NONE: none). chance: adds what an unrelated place foretells, too, where all that is foretold is chance.
 */
static void predict_score_add(struct predict *predict, uint64_t place, uint64_t position, bool chance,
			      struct predict_score *share)
{
	const struct latest *latest = predict_score_latest(predict, position);
	unsigned n, unused;

	share->named += latest->named;
	if (place == PREDICT_NONE)
		return;
	share->foreseen += predict_score_told(predict, place, latest, &n);
	share->n += (uint64_t)n * SCORE_NAME;
	if (chance && place >= predict->oldest + ELSEWHERE)
		share->chance += predict_score_told(predict, place - ELSEWHERE, latest, &unused);
}

/* ---- scores of many pairs ---- */

/* The pairs of submissions that correspond if the latest one corresponds to a place; that pair comes first. */
struct score_pairs {
	uint64_t place[SCORE_COMPARED], latest[SCORE_COMPARED];
	unsigned n, same; /* same: number of pairs with the same function */
};

static bool predict_same_function(const struct predict *predict, uint64_t place, uint64_t latest)
{
	return predict_entry(predict, place)->function == predict_entry(predict, latest)->function;
}

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

static void predict_score_pair(const struct predict *predict, uint64_t place, struct score_pairs *ret_pairs)
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

/* Returns the score of all pairs. `chance` of the result is 0 unless it is requested. */
static struct predict_score predict_score_of(struct predict *predict, const struct score_pairs *pairs, bool chance)
{
	struct predict_score share = {0};

	for (unsigned i = 0; i < pairs->n; i++)
		predict_score_add(predict, pairs->place[i], pairs->latest[i], chance, &share);
	return share;
}

/* ---- candidates ---- */

/*
 * Candidates for the program's place in its past, by the pieces themselves. Of the pieces named recently, those that
 * had not been named for long vote with the distances to their earlier uses. Where many agree, the program was in the
 * same phase, whatever kernels it ran there.
 */

#define CANDIDATES_ELECTED 4
#define CANDIDATES_APART   8   /* distances closer together than this many submissions count as one */
#define VOTERS             24  /* recent names that vote */
#define VOTES_EACH         48  /* the most earlier uses that each of them votes for */
#define BINS               512 /* bins of distances, CANDIDATES_APART wide */

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

/*
 * Returns how long ago the program may have been in the same phase: at most CANDIDATES_ELECTED distances, the likeliest
 * first.
 */
static unsigned predict_candidates_elect(struct predict *predict, uint64_t *ret_distances)
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

/* ---- the place ---- */

/*
 * The place: finds the position in the past that the program is at, and follows it. While the new token equals that of
 * the position after the place, the place just advances; that is the usual case and costs one comparison. Otherwise:
 *
 *   same function, other pieces
 *     The place advances, too.
 *   another function
 *     The place stays, and `misfits` counts. It may be an insert, or stand for what was foreseen (a product of another
 *     size by another kernel). A few submissions later the functions decide. Or it is a skip: two tokens in a row that
 *     follow within NEAR positions.
 *   no fit for a while
 *     A new place is searched; also now and then while the pieces are not the foreseen ones.
 *
 * A place is worth the part of the recent names that it would have foretold. A piece is weighted by how long it had not
 * been named before, because that a piece that was used a moment ago is used again means nothing. Pieces that wander
 * over scratch memory look alike in every layer of a transformer; what belongs to one layer only is named again a step
 * later. Of places worth about the same, the one with the longest common past is taken, not the shortest repetition: in
 * a transformer that is a layer, and the layers before say little about the end of the step (docs/facts.md, Moving
 * memory).
 *
 * Candidates come from the grams, and from the pieces themselves: each piece that had not been named for long shows at
 * which distances it was named before; where many agree, the program was in the same phase.
 *
 * `credit` limits how much is compared, so that a program without any repetition pays little.
 */

#define NEAR             256  /* the longest skip that is searched position by position, by tokens */
#define NEAR_BY_FUNCTION 16   /* the same by functions alone */
#define MISFITS_MOST     32   /* the longest insert, in submissions */
#define MATCH_MOST       4096 /* a longer common past, some steps, counts as this long */
#define TRIED_MOST       64   /* places of one gram that are examined */
#define EXACT_WORTH      4    /* an equal token counts as this many equal functions */
#define WORTH_LEAST      32   /* past that suffices to believe in a place */
#define WORTH_ONE        1024 /* worth of a place that foretells all names, but no function is the same */
#define LATELY           32   /* submissions over which the score fades */
#define BETTER_BY        (GRAM_TOKENS * (EXACT_WORTH - 1) - 1) /* by which a new place must be better */
#define CREDIT_EACH      64                                    /* credit for comparisons that each submission adds */
#define SEARCH_LEAST     2560                                  /* credit that a search requires */
#define DISTANCE_NEAR    64                                    /* submissions by which steps may differ in length */
#define PLACES           14  /* places that are compared by what they would have foretold */
#define COMPARE_COST     176 /* credit that each comparison costs */
#define UNLIKE_FIRST     16
#define UNLIKE_DOUBT     64 /* steps between searches for a better place while the present one is not believed */
#define UNLIKE_MOST      1024

static bool is_there(const struct predict *predict, uint64_t position)
{
	return position >= predict->oldest && position < predict->now;
}

/* ---- belief ---- */

static void note_distance(struct predict *predict)
{
	if (predict->at != PREDICT_NONE && 2 * predict->share.foreseen > predict->share.named)
		predict->distance = predict->now - predict->at;
}

/* Adds what was foreseen of the latest submission to the score, which covers about the last LATELY submissions. */
static void predict_match_judge(struct predict *predict, uint64_t place)
{
	struct predict_score *share = &predict->share, added = {0};

	predict_score_add(predict, place, predict->now, true, &added);
	share->named += added.named - share->named / LATELY;
	share->foreseen += added.foreseen - share->foreseen / LATELY;
	share->chance += added.chance - share->chance / LATELY;
	share->n += added.n - share->n / LATELY;
	predict->believed = predict_score_is_good(share, predict->believed);
	note_distance(predict);
}

/* Does the same if all of it was foreseen. */
static void judge_exact(struct predict *predict)
{
	struct predict_score *share = &predict->share;

	if (share->foreseen < share->named)
		share->foreseen += (share->named - share->foreseen + LATELY - 1) / LATELY;
	share->n += share->n < SCORE_NAMES * SCORE_NAME ? SCORE_NAME : 0;
	if (!predict->believed)
		predict->believed = predict_score_is_good(share, predict->believed);
	note_distance(predict);
}

/* ---- places ---- */

struct place {
	uint64_t at, past, worth;
};

struct places {
	struct place of[PLACES];
	unsigned n, n_elected; /* elected: the first ones, which are never replaced */
};

/* Returns how much of the past two positions have in common. */
static uint64_t common_past(struct predict *predict, uint64_t position)
{
	uint64_t now = predict->now, worth = 0;
	uint64_t i = 0;

	for (; i < MATCH_MOST && position >= predict->oldest + i; i++) {
		struct entry *then = predict_entry(predict, position - i), *latest = predict_entry(predict, now - i);

		if (then->function != latest->function)
			break;
		worth += then->token == latest->token ? EXACT_WORTH : 1;
	}
	predict->credit = predict->credit > i ? predict->credit - (uint32_t)i : 0;
	return worth;
}

/*
 * Adds a place; keeps those with the longest common past. Of equal ones those added first stay, which are the newest.
 */
static void add_place(struct predict *predict, struct places *places, uint64_t at)
{
	unsigned least = places->n_elected;

	for (unsigned i = 0; i < places->n; i++)
		if (places->of[i].at == at)
			return;
	struct place place = {.at = at, .past = common_past(predict, at)};
	if (places->n < PLACES) {
		places->of[places->n++] = place;
		return;
	}
	for (unsigned i = least + 1; i < PLACES; i++)
		if (places->of[i].past <= places->of[least].past)
			least = i;
	if (place.past > places->of[least].past)
		places->of[least] = place;
}

static void add_of_gram(struct predict *predict, struct places *places, enum gram gram)
{
	uint64_t place = predict->now;

	for (int tried = 0; tried < TRIED_MOST && predict->credit; tried++) {
		uint64_t older = predict_whole(predict, predict_entry(predict, place)->older[gram]);

		if (older >= place || older < predict->oldest)
			break;
		place = older;
		add_place(predict, places, place);
	}
}

/* Adds the place with the longest common past among those at most `apart` from `here`. */
static void add_near(struct predict *predict, struct places *places, uint64_t here, unsigned apart)
{
	uint64_t best = 0, place = here;

	if (!is_there(predict, here))
		return;
	for (uint64_t at = here > apart ? here - apart : 1; at <= here + apart && predict->credit; at++) {
		uint64_t past = is_there(predict, at) ? common_past(predict, at) : 0;

		if (past > best) {
			best = past;
			place = at;
		}
	}
	add_place(predict, places, place);
}

/* ---- choosing a place ---- */

/* Returns whether a place is worth about as much as the best one. */
static bool is_about(uint64_t worth, uint64_t most)
{
	return 8 * worth >= 7 * most;
}

/*
 * Computes the worth of a place. If the functions differ, foretold pieces are chance. If the place cannot be worth
 * about `most`, the rest of the comparison is skipped.
 */
static void predict_match_compare(struct predict *predict, struct place *place, uint64_t most)
{
	struct score_pairs pairs;

	predict_score_pair(predict, place->at, &pairs);
	uint64_t worth = WORTH_ONE * (pairs.same + 1); /* if everything was foretold */
	place->worth = 0;
	if (!is_about(worth, most))
		return;
	struct predict_score share = predict_score_of(predict, &pairs, false);
	if (share.named)
		place->worth = worth * share.foreseen / share.named;
}

/* Returns how much of the recent names a place would have foretold. */
static struct predict_score share_at(struct predict *predict, uint64_t place)
{
	struct score_pairs pairs;

	predict_score_pair(predict, place, &pairs);
	return predict_score_of(predict, &pairs, true);
}

static bool is_good(struct predict *predict, const struct place *place)
{
	if (place->past >= WORTH_LEAST)
		return true;
	struct predict_score share = share_at(predict, place->at);
	return predict_score_is_good(&share, false);
}

static void predict_match_collect(struct predict *predict, struct places *places)
{
	uint64_t distances[CANDIDATES_ELECTED];
	unsigned n = predict_candidates_elect(predict, distances);

	for (unsigned i = 0; i < n; i++)
		if (distances[i] < predict->now)
			add_near(predict, places, predict->now - distances[i], CANDIDATES_APART / 2);
	/* This may be another stretch of the same step. */
	if (predict->distance && predict->distance < predict->now)
		add_near(predict, places, predict->now - predict->distance, DISTANCE_NEAR);
	/*
	 * The place where the program was, and the one where it would be if everything since stood for what was
	 * foreseen.
	 */
	if (predict->at != PREDICT_NONE && predict->misfits) {
		add_place(predict, places, predict->at);
		if (is_there(predict, predict->at + predict->misfits))
			add_place(predict, places, predict->at + predict->misfits);
	}
	places->n_elected = places->n;
	add_of_gram(predict, places, BY_TOKEN);
	add_of_gram(predict, places, BY_FUNCTION);
}

/*
 * Returns the present place with a bonus, so that it is not left for a small gain; none if the latest submission does
 * not fit it.
 */
static struct place look_at_present(struct predict *predict)
{
	struct place present = {.at = PREDICT_NONE};

	if (predict->at == PREDICT_NONE || predict->misfits)
		return present;
	present = (struct place){.at = predict->at, .past = common_past(predict, predict->at) + BETTER_BY};
	predict_match_compare(predict, &present, 0);
	present.worth += present.worth / 8;
	return present;
}

/* Returns the best place; of those worth about the most, the one with the longest past. PREDICT_NONE: none is good. */
static uint64_t best_place(struct predict *predict)
{
	struct places places = {.n = 0};
	struct place present = look_at_present(predict);
	const struct place *best = NULL;
	uint64_t most = present.worth;

	predict_match_collect(predict, &places);
	for (unsigned i = 0; i < places.n; i++) {
		predict_match_compare(predict, &places.of[i], most);
		if (places.of[i].worth > most)
			most = places.of[i].worth;
	}
	uint32_t cost = COMPARE_COST * (places.n + 1);
	predict->credit = predict->credit > cost ? predict->credit - cost : 0;
	if (present.at != PREDICT_NONE && is_about(present.worth, most))
		best = &present;
	for (unsigned i = 0; i < places.n; i++) {
		const struct place *place = &places.of[i];

		if (!is_about(place->worth, most) || !is_good(predict, place))
			continue;
		if (!best || place->past > best->past ||
		    (place->past == best->past && best != &present && place->at > best->at))
			best = place;
	}
	return best ? best->at : PREDICT_NONE;
}

/* Takes a place. It is believed if it would have foretold enough of the recent names. */
static void predict_match_settle(struct predict *predict, uint64_t place)
{
	struct predict_score share = share_at(predict, place);

	predict->at = place;
	predict->misfits = predict->unlike = 0;
	predict->share = share;
	predict->believed = predict_score_is_good(&share, false);
}

/* Returns whether the latest n submissions look like the n up to `place`. */
static bool same_run(const struct predict *predict, uint64_t place, unsigned n, enum gram by)
{
	for (unsigned i = 0; i < n && place >= predict->oldest + i; i++) {
		const struct entry *then = predict_entry(predict, place - i),
				   *latest = predict_entry(predict, predict->now - i);

		if (by == BY_TOKEN ? then->token != latest->token : then->function != latest->function)
			return false;
	}
	return place >= predict->oldest + n;
}

/*
 * Returns whether these very tokens occurred before. That place may fit better than one where only the functions are
 * the same.
 */
static bool seen_before(const struct predict *predict)
{
	return same_run(predict, predict_whole(predict, predict_entry(predict, predict->now)->older[BY_TOKEN]),
			GRAM_TOKENS, BY_TOKEN);
}

/*
 * To be called if other pieces than the foreseen ones were named: looks for a place that fits much better. It searches
 * if there is a reason to expect one, and sometimes without, ever less often while the present place is believed.
 */
static void predict_match_reconsider(struct predict *predict)
{
	bool patient = predict->believed || predict->unlike_limit < UNLIKE_DOUBT;
	bool due = ++predict->unlike >= (patient ? predict->unlike_limit : UNLIKE_DOUBT);

	if ((!due && !seen_before(predict)) || predict->credit < PREDICT_CREDIT_MOST / 2)
		return;
	if (due && predict->unlike_limit < UNLIKE_MOST)
		predict->unlike_limit *= 2;
	uint64_t place = best_place(predict);
	if (place != PREDICT_NONE && place != predict->at)
		predict_match_settle(predict, place);
	predict->unlike = 0;
}

/*
 * Looks for the next position by functions: what came may have stood for what was foreseen, may have been inserted, or
 * a few submissions may have been left out.
 */
static uint64_t place_by_functions(struct predict *predict)
{
	uint64_t insert = predict->at + 1, other = predict->at + 1 + predict->misfits;
	bool is_insert = predict_same_function(predict, insert, predict->now);
	bool is_other = is_there(predict, other) && predict_same_function(predict, other, predict->now);
	struct predict_score of_insert = {0}, of_other = {0};

	if (!predict->misfits)
		return PREDICT_NONE;
	if (is_insert && is_other) {
		predict_score_add(predict, insert, predict->now, true, &of_insert);
		predict_score_add(predict, other, predict->now, true, &of_other);
		return of_insert.foreseen > of_other.foreseen ? insert : other;
	}
	if (is_insert || is_other)
		return is_insert ? insert : other;
	for (uint64_t place = insert + 1; place < insert + NEAR_BY_FUNCTION && is_there(predict, place); place++)
		if (same_run(predict, place, 2, BY_FUNCTION))
			return place;
	return PREDICT_NONE;
}

/*
 * To be called after submissions that did not fit: returns where the program goes on, at the present place or a little
 * further; PREDICT_NONE: nowhere.
 */
static uint64_t near_place(struct predict *predict)
{
	uint64_t end = predict->at + NEAR < predict->now ? predict->at + NEAR : predict->now;

	if (predict->at + 1 >= end)
		return PREDICT_NONE;
	if (same_run(predict, predict->at + 1, 1, BY_TOKEN))
		return predict->at + 1;
	for (uint64_t place = predict->at + 2; place < end; place++)
		if (same_run(predict, place, 2, BY_TOKEN))
			return place;
	uint64_t by_functions = place_by_functions(predict);
	if (by_functions != PREDICT_NONE)
		return by_functions;
	/* The pieces may be new, so four functions in a row decide. */
	for (uint64_t place = predict->at + 4; predict->misfits >= 3 && place < end; place++)
		if (same_run(predict, place, 4, BY_FUNCTION))
			return place;
	return PREDICT_NONE;
}

static void predict_match_search(struct predict *predict)
{
	uint64_t place = PREDICT_NONE;

	if (predict->at != PREDICT_NONE) {
		place = near_place(predict);
		predict_match_judge(predict, place);
		if (place != PREDICT_NONE) {
			predict->at = place;
			predict->misfits = 0;
			predict_match_reconsider(predict);
			return;
		}
		if (++predict->misfits < GRAM_TOKENS &&
		    !(seen_before(predict) && predict->credit >= PREDICT_CREDIT_MOST / 2))
			return;
	}
	if (predict->credit >= SEARCH_LEAST || seen_before(predict))
		place = best_place(predict);
	if (place != PREDICT_NONE) {
		predict_match_settle(predict, place);
		predict->unlike_limit = UNLIKE_FIRST;
	} else if (predict->misfits > MISFITS_MOST) {
		predict->at = PREDICT_NONE;
	}
}

void predict_match_follow(struct predict *predict)
{
	struct entry *latest = predict_entry(predict, predict->now), *next;

	predict->credit += CREDIT_EACH;
	if (predict->credit > PREDICT_CREDIT_MOST)
		predict->credit = PREDICT_CREDIT_MOST;
	if (predict->at != PREDICT_NONE && predict->at < predict->oldest)
		predict->at = PREDICT_NONE; /* the ring has dropped it */
	if (predict->at == PREDICT_NONE || predict->misfits) {
		predict_match_search(predict);
		return;
	}
	next = predict_entry(predict, predict->at + 1);
	if (next->token == latest->token) {
		predict->at++;
		judge_exact(predict);
	} else if (next->function == latest->function) {
		predict->at++;
		predict_match_judge(predict, predict->at);
		predict_match_reconsider(predict);
	} else {
		predict_match_search(predict);
	}
}
