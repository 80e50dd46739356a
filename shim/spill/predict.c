/*
 * A submission's *token* is a hash of its function and its pieces. While the token that comes is the one after the
 * position we are at, the position just moves on; that is the usual case and costs one comparison. Otherwise:
 *
 *   same function, other pieces   move on all the same; how many pieces were foreseen goes into `accuracy`
 *   another function              stay (`held` counts): it may be an insert. Look for a skip nearby: two tokens in a
 *                                 row that follow within NEAR positions
 *   no fit for a while            ask the index where the last few tokens stood before, and take the place with the
 *                                 longest common past. Not the shortest repetition: in a transformer that is a layer,
 *                                 and the layers before say little about the end of the step (facts 5)
 *
 * The index has two kinds of grams: GRAM_TOKENS tokens, and GRAM_FUNCTIONS functions for the time in which the pieces
 * still change (allocations in the first step, ends of tensors being learned). Entries of one gram are chained from the
 * newest to the oldest. Comparing pasts is limited by `credit`, so that a program without any repetition pays little.
 */
#include "shim/spill/predict.h"
#include "shim/spill/plan.h"

#include <stdlib.h>

#define FIRST_ENTRIES  2048u
#define FIRST_SLOTS    16384u
#define MOST_SLOTS     (1u << 20)
#define MOST_NAMED     16384u
#define LEAF           1024u
#define LEAVES         (PLAN_PIECES / LEAF)
#define BUCKETS        (1u << 15)
#define GRAM_TOKENS    8
#define GRAM_FUNCTIONS 16
#define GRAM_FACTOR    UINT64_C(0x9e3779b97f4a7c15)

#define NEAR         256  /* how many submissions skipped are still looked for one by one */
#define HELD_MOST    32   /* an insert longer than this is no insert */
#define MATCH_MOST   4096 /* a common past longer than that is as good as any: some steps */
#define TRIED_MOST   64   /* places of one gram looked at */
#define EXACT_WORTH  4    /* an equal token counts as so many equal functions */
#define WORTH_LEAST  32   /* of a place to be believed */
#define BETTER_BY    (GRAM_TOKENS * (EXACT_WORTH - 1) - 1) /* than the present place, to leave that */
#define CREDIT_EACH  64                                    /* comparisons of pasts paid by each submission, */
#define CREDIT_MOST  32768
#define ACCURACY_ONE 1024 /* share of the pieces foreseen, over about 32 submissions */
#define ACCURACY_ON  384
#define ACCURACY_OFF 256

enum gram {
	BY_TOKEN,
	BY_FUNCTION,
	GRAMS, /* must be last */
};

static const unsigned gram_length[GRAMS] = {[BY_TOKEN] = GRAM_TOKENS, [BY_FUNCTION] = GRAM_FUNCTIONS};

struct entry {
	uint64_t token;
	uint64_t slot; /* its first one */
	uint32_t function;
	uint32_t older[GRAMS]; /* position of the next older entry in the same bucket, low half */
};

struct slot {
	uint32_t piece;
	uint32_t again; /* position, low half; 0: none */
};

struct predict {
	struct entry *entries; /* position p at p & (n_entries - 1); the one after the latest holds its first slot */
	struct slot *slots;
	uint32_t n_entries, n_slots; /* powers of two, 0 at first */
	bool entries_full, slots_full;
	uint64_t now, oldest; /* positions oldest ... now are remembered; none when oldest > now */
	uint64_t next_slot;

	uint64_t *last[LEAVES]; /* by piece: its last slot + 1 */
	uint32_t *bucket[GRAMS];
	uint64_t gram[GRAMS];                   /* rolling hashes of the latest ones, */
	uint64_t power[GRAMS];                  /* the weight in them of what falls out, */
	uint64_t recent[GRAMS][GRAM_FUNCTIONS]; /* and what that will be */

	uint64_t at; /* PREDICT_NONE: nowhere */
	unsigned held;
	unsigned soft,
	    soft_limit; /* moves with other pieces since the last look for a better place, and the next look */
	unsigned accuracy;
	bool believed;
	uint32_t credit;
};

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static struct entry *entry_at(const struct predict *predict, uint64_t position)
{
	return &predict->entries[position & (predict->n_entries - 1)];
}

static struct slot *slot_at(const struct predict *predict, uint64_t slot)
{
	return &predict->slots[slot & (predict->n_slots - 1)];
}

/* A position from its low half: the ring is far shorter than 4 G, so there is one. */
static uint64_t whole(const struct predict *predict, uint32_t low)
{
	return predict->now - (uint32_t)((uint32_t)predict->now - low);
}

/* ---- memory ---- */

struct predict *predict_new(void)
{
	struct predict *predict = calloc(1, sizeof(*predict));

	if (!predict)
		return NULL;
	predict->oldest = 1;
	predict->at = PREDICT_NONE;
	predict->credit = CREDIT_MOST;
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
	for (unsigned i = 0; i < LEAVES; i++)
		free(predict->last[i]);
	for (int gram = 0; gram < GRAMS; gram++)
		free(predict->bucket[gram]);
	free(predict->entries);
	free(predict->slots);
	free(predict);
}

/*
 * Double an array whose elements are at index & (n - 1). Only before anything was dropped: all indices in use are then
 * below n, and stay where they are.
 */
static void *doubled(void *old, uint32_t *n, uint32_t first, uint32_t most, size_t size, bool *full)
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

static bool index_ready(struct predict *predict)
{
	for (int gram = 0; gram < GRAMS; gram++)
		if (!predict->bucket[gram]) {
			predict->bucket[gram] = calloc(BUCKETS, sizeof(uint32_t));
			if (!predict->bucket[gram])
				return false;
		}
	return true;
}

/* Room for an entry of n slots: grow, then drop the oldest. One entry is kept free, it holds the end of the latest. */
static bool make_room(struct predict *predict, unsigned n)
{
	if (!index_ready(predict))
		return false;
	while (!predict->entries_full && predict->now + 3 > predict->n_entries)
		predict->entries = doubled(predict->entries, &predict->n_entries, FIRST_ENTRIES, PREDICT_MOST,
					   sizeof(struct entry), &predict->entries_full);
	while (!predict->slots_full && predict->next_slot + n > predict->n_slots)
		predict->slots = doubled(predict->slots, &predict->n_slots, FIRST_SLOTS, MOST_SLOTS,
					 sizeof(struct slot), &predict->slots_full);
	if (!predict->n_entries || n > predict->n_slots)
		return false;
	while (predict->oldest <= predict->now) {
		struct entry *entry = entry_at(predict, predict->oldest);

		if (predict->now + 3 - predict->oldest <= predict->n_entries &&
		    predict->next_slot + n - entry->slot <= predict->n_slots)
			break;
		predict->oldest++;
	}
	return true;
}

static uint64_t *last_of(struct predict *predict, uint32_t piece)
{
	uint64_t **leaf = &predict->last[piece / LEAF % LEAVES];

	if (!*leaf)
		*leaf = calloc(LEAF, sizeof(**leaf));
	return *leaf ? &(*leaf)[piece % LEAF] : NULL;
}

/* ---- remembering ---- */

/* Pieces count in any order, so their hashes are added. */
static uint64_t token_of(uint64_t function, const uint32_t *pieces, unsigned n)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < n; i++)
		sum += mix(pieces[i] + UINT64_C(0x100000001));
	return mix(sum ^ mix(function + n));
}

static void add_slots(struct predict *predict, uint64_t position, const uint32_t *pieces, unsigned n)
{
	uint64_t oldest_slot =
	    predict->oldest < position ? entry_at(predict, predict->oldest)->slot : predict->next_slot;

	for (unsigned i = 0; i < n; i++) {
		uint64_t slot = predict->next_slot++;
		uint64_t *last = last_of(predict, pieces[i]);

		*slot_at(predict, slot) = (struct slot){.piece = pieces[i]};
		if (!last)
			continue;
		if (*last && *last - 1 >= oldest_slot)
			slot_at(predict, *last - 1)->again = (uint32_t)position;
		*last = slot + 1;
	}
}

static void add_gram(struct predict *predict, enum gram gram, struct entry *entry, uint64_t in)
{
	uint64_t *out = &predict->recent[gram][predict->now % gram_length[gram]];

	predict->gram[gram] = predict->gram[gram] * GRAM_FACTOR + in - *out * predict->power[gram];
	*out = in;
	uint32_t *bucket = &predict->bucket[gram][mix(predict->gram[gram]) % BUCKETS];
	entry->older[gram] = *bucket;
	*bucket = (uint32_t)predict->now;
}

static bool remember(struct predict *predict, uint64_t function, const uint32_t *pieces, unsigned n)
{
	if (n > MOST_NAMED)
		n = MOST_NAMED;
	if (!make_room(predict, n))
		return false;
	uint64_t now = ++predict->now;
	struct entry *entry = entry_at(predict, now);

	entry->slot = predict->next_slot;
	entry->token = token_of(function, pieces, n);
	entry->function = (uint32_t)mix(function);
	add_slots(predict, now, pieces, n);
	entry_at(predict, now + 1)->slot = predict->next_slot;
	add_gram(predict, BY_TOKEN, entry, entry->token);
	add_gram(predict, BY_FUNCTION, entry, entry->function);
	return true;
}

/* ---- finding the place ---- */

/* Of the pieces that the latest submission names, how many the one at `position` names too, of ACCURACY_ONE. */
static unsigned overlap(const struct predict *predict, uint64_t position, uint64_t latest)
{
	uint64_t from, to, new_from, new_to;
	unsigned n = 0;

	predict_slots(predict, position, &from, &to);
	predict_slots(predict, latest, &new_from, &new_to);
	if (to - from > 32)
		to = from + 32;
	if (new_to - new_from > 32)
		new_to = new_from + 32;
	if (new_from == new_to)
		return ACCURACY_ONE;
	for (uint64_t i = new_from; i < new_to; i++)
		for (uint64_t j = from; j < to; j++)
			if (slot_at(predict, i)->piece == slot_at(predict, j)->piece) {
				n++;
				break;
			}
	return n * ACCURACY_ONE / (unsigned)(new_to - new_from);
}

static void judge(struct predict *predict, unsigned share)
{
	predict->accuracy = (predict->accuracy * 31 + share) / 32;
	if (share == ACCURACY_ONE && predict->accuracy < ACCURACY_ONE)
		predict->accuracy++; /* the division rounds down */
	predict->believed = predict->accuracy >= (predict->believed ? ACCURACY_OFF : ACCURACY_ON);
}

/* How much of the past two positions have in common. */
static uint64_t common_past(struct predict *predict, uint64_t position)
{
	uint64_t now = predict->now, worth = 0;
	uint64_t i = 0;

	for (; i < MATCH_MOST && position >= predict->oldest + i; i++) {
		struct entry *then = entry_at(predict, position - i), *latest = entry_at(predict, now - i);

		if (then->function != latest->function)
			break;
		worth += then->token == latest->token ? EXACT_WORTH : 1;
	}
	predict->credit = predict->credit > i ? predict->credit - (uint32_t)i : 0;
	return worth;
}

/* The place with the longest common past, if it is worth more than `worth`; the newest of equals. */
static uint64_t best_place(struct predict *predict, uint64_t worth)
{
	uint64_t best = PREDICT_NONE;

	for (int gram = 0; gram < GRAMS; gram++) {
		uint64_t place = predict->now;

		for (int tried = 0; tried < TRIED_MOST && predict->credit; tried++) {
			uint64_t older = whole(predict, entry_at(predict, place)->older[gram]);

			if (older >= place || older < predict->oldest)
				break;
			place = older;
			uint64_t found = common_past(predict, place);
			if (found > worth) {
				worth = found;
				best = place;
			}
		}
	}
	return best;
}

/* Take a place. How far it can be believed, the common past says. */
static void settle(struct predict *predict, uint64_t place)
{
	unsigned sum = 0, n = 0;

	predict->at = place;
	predict->held = predict->soft = 0;
	predict->soft_limit = 16;
	for (; n < 32 && place >= predict->oldest + n; n++) {
		const struct entry *then = entry_at(predict, place - n), *latest = entry_at(predict, predict->now - n);

		if (then->function != latest->function)
			break;
		sum += then->token == latest->token ? ACCURACY_ONE : overlap(predict, place - n, predict->now - n);
	}
	predict->accuracy = n ? sum / n : 0;
	predict->believed = predict->accuracy >= ACCURACY_ON;
}

/* Do the latest n submissions look like the n up to this position? */
static bool same_run(const struct predict *predict, uint64_t place, unsigned n, enum gram by)
{
	for (unsigned i = 0; i < n && place >= predict->oldest + i; i++) {
		struct entry *then = entry_at(predict, place - i), *latest = entry_at(predict, predict->now - i);

		if (by == BY_TOKEN ? then->token != latest->token : then->function != latest->function)
			return false;
	}
	return place >= predict->oldest + n;
}

/* Is there a place where just these tokens stood? Then it may fit better than one where only the functions did. */
static bool seen_before(const struct predict *predict)
{
	return same_run(predict, whole(predict, entry_at(predict, predict->now)->older[BY_TOKEN]), GRAM_TOKENS,
			BY_TOKEN);
}

/*
 * Other pieces than foreseen: is there a place that fits better by far? Asked when there is a reason to think so, and
 * now and then without one, ever less often.
 */
static void reconsider(struct predict *predict)
{
	bool due = ++predict->soft >= predict->soft_limit;

	if ((!due && !seen_before(predict)) || predict->credit < CREDIT_MOST / 2)
		return;
	unsigned limit = predict->soft_limit < 1024 && due ? predict->soft_limit * 2 : predict->soft_limit;
	uint64_t better = best_place(predict, common_past(predict, predict->at) + BETTER_BY);

	if (better != PREDICT_NONE)
		settle(predict, better);
	predict->soft = 0;
	predict->soft_limit = limit;
}

/* After a few submissions that did not fit: on from where we stand, or a little further? */
static uint64_t near_place(const struct predict *predict)
{
	uint64_t end = predict->at + NEAR < predict->now ? predict->at + NEAR : predict->now;

	if (predict->at + 1 < end && same_run(predict, predict->at + 1, 1, BY_TOKEN))
		return predict->at + 1;
	for (uint64_t place = predict->at + 2; place < end; place++)
		if (same_run(predict, place, 2, BY_TOKEN))
			return place;
	/* The pieces may be new ones: four functions in a row. */
	for (uint64_t place = predict->at + 4; predict->held >= 3 && place < end; place++)
		if (same_run(predict, place, 4, BY_FUNCTION))
			return place;
	return PREDICT_NONE;
}

static void search(struct predict *predict)
{
	uint64_t place = PREDICT_NONE;

	if (predict->at != PREDICT_NONE) {
		place = near_place(predict);
		if (place != PREDICT_NONE) {
			predict->at = place;
			predict->held = 0;
			judge(predict, ACCURACY_ONE);
			return;
		}
		judge(predict, 0);
		if (++predict->held < GRAM_TOKENS)
			return;
	}
	place = best_place(predict, WORTH_LEAST - 1);
	if (place != PREDICT_NONE)
		settle(predict, place);
	else if (predict->held > HELD_MOST)
		predict->at = PREDICT_NONE;
}

static void follow(struct predict *predict)
{
	struct entry *latest = entry_at(predict, predict->now), *next;

	predict->credit += CREDIT_EACH;
	if (predict->credit > CREDIT_MOST)
		predict->credit = CREDIT_MOST;
	if (predict->at != PREDICT_NONE && predict->at < predict->oldest)
		predict->at = PREDICT_NONE; /* it was dropped */
	if (predict->at == PREDICT_NONE || predict->held) {
		search(predict);
		return;
	}
	next = entry_at(predict, predict->at + 1);
	if (next->token == latest->token) {
		predict->at++;
		judge(predict, ACCURACY_ONE);
	} else if (next->function == latest->function) {
		predict->at++;
		judge(predict, overlap(predict, predict->at, predict->now));
		reconsider(predict);
	} else {
		search(predict);
	}
}

void predict_note(struct predict *predict, uint64_t function, const uint32_t *pieces, unsigned n)
{
	if (remember(predict, function, pieces, n)) {
		follow(predict);
		return;
	}
	/* This one is missing from the record: nothing before it may be continued across the hole. */
	predict->now++;
	predict->oldest = predict->now + 1;
	predict->at = PREDICT_NONE;
	predict->entries_full = predict->n_entries != 0;
	predict->slots_full = predict->n_slots != 0;
}

/* ---- reading ---- */

uint64_t predict_now(const struct predict *predict)
{
	return predict->now;
}

uint64_t predict_at(const struct predict *predict)
{
	return predict->believed ? predict->at : PREDICT_NONE;
}

void predict_slots(const struct predict *predict, uint64_t position, uint64_t *ret_from, uint64_t *ret_to)
{
	*ret_from = entry_at(predict, position)->slot;
	*ret_to = entry_at(predict, position + 1)->slot;
}

uint32_t predict_piece(const struct predict *predict, uint64_t slot)
{
	return slot_at(predict, slot)->piece;
}

uint64_t predict_again(const struct predict *predict, uint64_t slot)
{
	uint32_t again = slot_at(predict, slot)->again;

	return again ? whole(predict, again) : PREDICT_NONE;
}
