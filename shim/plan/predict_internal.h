/*
 * predict_internal.h: the state of the predictor, for the files that implement predict.h. In this list a file calls
 * only those above it:
 *
 *   history.c             the ring of submissions
 *   predict_score.c       how well a place foretells
 *   predict_candidates.c  candidates for the place, by the pieces named there
 *   predict_match.c       finds the place in the ring that the program is at, and follows it
 *   predict.c             the interface of predict.h
 */
#ifndef SPILLWAY_PREDICT_INTERNAL_H
#define SPILLWAY_PREDICT_INTERNAL_H

#include "shim/plan/plan.h"
#include "shim/plan/predict.h"

#define PREDICT_LEAF   1024u
#define PREDICT_LEAVES (PLAN_PIECES / PREDICT_LEAF)

#define PREDICT_NAMES 32 /* names of one submission that are compared */
#define PREDICT_LANE  4  /* names compared at once */
typedef uint32_t predict_lane __attribute__((vector_size(PREDICT_LANE * sizeof(uint32_t))));

/* Lengths of grams: number of consecutive tokens, and of functions, that are hashed (history.c). */
#define GRAM_TOKENS    8
#define GRAM_FUNCTIONS 16

/* The kinds of grams. */
enum gram {
	BY_TOKEN,
	BY_FUNCTION,
	GRAMS, /* must be last */
};

/* A submission in the ring. */
struct entry {
	uint64_t token;
	uint64_t slot; /* its first slot */
	uint32_t function;
	uint32_t older[GRAMS]; /* low half of the position of the next older entry in the same bucket */
};

/*
 * A named piece in the ring. before, again: low halves of the positions at which the piece was named before and after
 * this one; 0: none.
 */
struct slot {
	uint32_t piece;
	uint32_t before, again, again_slot; /* low half of its slot at `again` */
};

/* Where a piece was named last. */
struct last {
	uint64_t slot, position; /* position 0: it was not named */
};

/*
 * Sums of ages (predict_score.c): of what was named, of the part of it that was foreseen, and of the part that chance
 * would have foreseen. n: number of names foreseen, times SCORE_NAME.
 */
struct predict_score {
	uint64_t named, foreseen, chance, n;
};
#define SCORE_NAME 256

/*
 * The names of one of the latest submissions, made when first requested: they do not change, and are compared with many
 * others.
 */
struct latest {
	uint64_t position;
	uint64_t named; /* sum of the weights of all names */
	unsigned n;
	predict_lane piece[PREDICT_NAMES / PREDICT_LANE];
	uint32_t age[PREDICT_NAMES]; /* for how many submissions the piece had not been named before; 0: it never was */
};
#define PREDICT_LATEST 64 /* twice SCORE_COMPARED, because each step of a comparison may skip one */

struct predict {
	/* position p at index p & (n_entries - 1); the entry after the latest holds the end of its slots */
	struct entry *entries;
	struct slot *slots;
	uint32_t n_entries, n_slots; /* powers of two; 0 at first */
	bool entries_full, slots_full;
	uint64_t now, oldest; /* positions oldest to now are remembered; none if oldest > now */
	uint64_t next_slot;

	struct last *last[PREDICT_LEAVES]; /* by piece */
	uint32_t *bucket[GRAMS];
	uint64_t gram[GRAMS];                   /* rolling hashes of the latest submissions */
	uint64_t power[GRAMS];                  /* weight in the hash of the value that drops out */
	uint64_t recent[GRAMS][GRAM_FUNCTIONS]; /* ring of the values in the hash */

	/* ---- the place ---- */
	uint64_t at;   /* the place; PREDICT_NONE: none */
	unsigned held; /* submissions that did not fit since the place was followed last */
	/* soft: steps with other pieces since the last search for a better place; soft_limit: steps until the next */
	unsigned soft, soft_limit;
	uint64_t home;                        /* distance to the place when it was last known well; 0: it never was */
	struct predict_score share;           /* score of recent names, fading */
	bool believed;                        /* the place is good enough to be used */
	uint32_t credit;                      /* comparisons that may be made; each submission adds some */
	struct latest latest[PREDICT_LATEST]; /* by position; made on request */
};

static inline struct entry *predict_entry(const struct predict *predict, uint64_t position)
{
	return &predict->entries[position & (predict->n_entries - 1)];
}

static inline struct slot *predict_slot(const struct predict *predict, uint64_t slot)
{
	return &predict->slots[slot & (predict->n_slots - 1)];
}

/* Returns the position with this low half. It is unambiguous, because the ring is far shorter than 4 G. */
static inline uint64_t predict_whole(const struct predict *predict, uint32_t low)
{
	return predict->now - (uint32_t)((uint32_t)predict->now - low);
}

/* Returns how many names of a submission are compared, and the slot of the first. */
static inline unsigned predict_names(const struct predict *predict, uint64_t position, uint64_t *ret_from)
{
	uint64_t to;

	predict_slots(predict, position, ret_from, &to);
	return to - *ret_from < PREDICT_NAMES ? (unsigned)(to - *ret_from) : PREDICT_NAMES;
}

/* Returns the index of the piece among the n slots starting with `from`; n: it is not there. */
static inline unsigned predict_find_name(const struct predict *predict, uint64_t from, unsigned n, uint32_t piece)
{
	unsigned i = 0;

	while (i < n && predict_slot(predict, from + i)->piece != piece)
		i++;
	return i;
}

static inline bool predict_same_function(const struct predict *predict, uint64_t place, uint64_t latest)
{
	return predict_entry(predict, place)->function == predict_entry(predict, latest)->function;
}

/* ---- history.c ---- */
void history_init(struct predict *predict);
void history_fini(struct predict *predict);
/* Remembers a submission as the latest one. Returns false if there is no memory for it; nothing has changed then. */
bool history_add(struct predict *predict, uint64_t function, const uint32_t *pieces, unsigned n);
/* Leaves out a submission that could not be remembered: all before it is dropped. */
void history_skip(struct predict *predict);

/* ---- predict_match.c ---- */
void predict_match_init(struct predict *predict);
/* Advances the place; must be called when a submission has been added. */
void predict_match_follow(struct predict *predict);

/* ---- predict_score.c ---- */
#define SCORE_COMPARED 32 /* submissions */
#define SCORE_NAMES    8  /* names that must be foreseen for a place to be believed */

/* Returns whether a score is good enough to begin believing in a place, or to go on (believed). */
bool predict_score_is_good(const struct predict_score *share, bool believed);
/* Returns the weight of a piece that had not been named for `age` submissions. */
uint64_t predict_score_weight(uint64_t age);
/* Returns the names of the submission at one of the latest PREDICT_LATEST positions. */
const struct latest *predict_score_latest(struct predict *predict, uint64_t position);
/*
 * Adds to the score what the submission at `latest` names, and the part of it that the one at `place` foretells
 * (PREDICT_NONE: none).
 */
void predict_score_add(struct predict *predict, uint64_t place, uint64_t latest, struct predict_score *share);

/* The pairs of submissions that correspond if the latest one corresponds to a place; that pair comes first. */
struct score_pairs {
	uint64_t place[SCORE_COMPARED], latest[SCORE_COMPARED];
	unsigned n, same; /* same: number of pairs with the same function */
};
void predict_score_pair(const struct predict *predict, uint64_t place, struct score_pairs *ret_pairs);
/* Returns the score of all pairs. `chance` of the result is 0 unless it is requested. */
struct predict_score predict_score_of(struct predict *predict, const struct score_pairs *pairs, bool chance);

/* ---- predict_candidates.c ---- */
#define CANDIDATES_ELECTED 4
#define CANDIDATES_APART   8 /* distances closer together than this many submissions count as one */
/*
 * Returns how long ago the program may have been in the same phase: at most CANDIDATES_ELECTED distances, the likeliest
 * first.
 */
unsigned predict_candidates_elect(struct predict *predict, uint64_t *ret_distances);

#endif
