/*
 * predict_internal.h: what is remembered, for the files that make up predict.h:
 *
 *   history.c        keeps it
 *   predict_score.c  how well a place foretells
 *   predict_candidates.c   places by what was named there
 *   predict_match.c  finds where in it the program stands, and follows
 *   predict.c        what predict.h promises
 *
 * Each of them calls those before it alone.
 */
#ifndef SPILLWAY_PREDICT_INTERNAL_H
#define SPILLWAY_PREDICT_INTERNAL_H

#include "shim/plan/plan.h"
#include "shim/plan/predict.h"

#define PREDICT_LEAF   1024u
#define PREDICT_LEAVES (PLAN_PIECES / PREDICT_LEAF)

#define PREDICT_NAMES 32 /* of one submission that are compared, */
#define PREDICT_LANE  4  /* so many at once */
typedef uint32_t predict_lane __attribute__((vector_size(PREDICT_LANE * sizeof(uint32_t))));

#define GRAM_TOKENS    8
#define GRAM_FUNCTIONS 16

enum gram {
	BY_TOKEN,
	BY_FUNCTION,
	GRAMS, /* must be last */
};

struct entry {
	uint64_t token;
	uint64_t slot; /* its first one */
	uint32_t function;
	uint32_t older[GRAMS]; /* position of the next older entry in the same bucket, low half */
};

/* before, again: the positions at which the piece was named before and after this, low half; 0: none. */
struct slot {
	uint32_t piece;
	uint32_t before, again, again_slot; /* its slot there, low half */
};

/* Where a piece was named last. */
struct last {
	uint64_t slot, position; /* position 0: nowhere */
};

/*
 * Ages of what was named, and of what of it was foreseen, and of what would have been by chance; n: how many names were
 * foreseen, times SCORE_NAME.
 */
struct predict_score {
	uint64_t named, foreseen, chance, n;
};
#define SCORE_NAME 256

/*
 * What one of the latest submissions names, made when it is first asked for: it does not change, and is compared with
 * many others.
 */
struct latest {
	uint64_t position;
	uint64_t named; /* what all of them count */
	unsigned n;
	predict_lane piece[PREDICT_NAMES / PREDICT_LANE];
	uint32_t age[PREDICT_NAMES]; /* for how many submissions it had not been named; 0: it never was */
};
#define PREDICT_LATEST 64 /* twice SCORE_COMPARED: each time one may be passed over */

struct predict {
	struct entry *entries; /* position p at p & (n_entries - 1); the one after the latest holds its first slot */
	struct slot *slots;
	uint32_t n_entries, n_slots; /* powers of two, 0 at first */
	bool entries_full, slots_full;
	uint64_t now, oldest; /* positions oldest ... now are remembered; none when oldest > now */
	uint64_t next_slot;

	struct last *last[PREDICT_LEAVES]; /* by piece */
	uint32_t *bucket[GRAMS];
	uint64_t gram[GRAMS];                   /* rolling hashes of the latest ones, */
	uint64_t power[GRAMS];                  /* the weight in them of what falls out, */
	uint64_t recent[GRAMS][GRAM_FUNCTIONS]; /* and what that will be */

	/* ---- the place ---- */
	uint64_t at; /* PREDICT_NONE: nowhere */
	unsigned held;
	unsigned soft,
	    soft_limit; /* moves with other pieces since the last look for a better place, and the next look */
	uint64_t home;  /* how long ago it was when it was last known well; 0: it never was */
	struct predict_score share; /* of what was named lately; fading */
	bool believed;
	uint32_t credit;
	struct latest latest[PREDICT_LATEST]; /* by position, as far as they were looked at */
};

static inline struct entry *predict_entry(const struct predict *predict, uint64_t position)
{
	return &predict->entries[position & (predict->n_entries - 1)];
}

static inline struct slot *predict_slot(const struct predict *predict, uint64_t slot)
{
	return &predict->slots[slot & (predict->n_slots - 1)];
}

/* A position from its low half: the ring is far shorter than 4 G, so there is one. */
static inline uint64_t predict_whole(const struct predict *predict, uint32_t low)
{
	return predict->now - (uint32_t)((uint32_t)predict->now - low);
}

/* The first names of a submission, those that are compared: how many. */
static inline unsigned predict_names(const struct predict *predict, uint64_t position, uint64_t *ret_from)
{
	uint64_t to;

	predict_slots(predict, position, ret_from, &to);
	return to - *ret_from < PREDICT_NAMES ? (unsigned)(to - *ret_from) : PREDICT_NAMES;
}

/* The slot of that piece among the n from `from` on; n: it is not there. */
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
/* The latest submission was remembered: take the place on. */
void predict_match_follow(struct predict *predict);

/* ---- predict_score.c ---- */
#define SCORE_COMPARED 32 /* submissions */
#define SCORE_NAMES    8  /* to be foreseen at least for a place to be believed */

/* Enough to be believed; or to go on being. */
bool predict_score_is_good(const struct predict_score *share, bool believed);
/* What a piece counts that had not been named for so many submissions. */
uint64_t predict_score_weight(uint64_t age);
/* What the submission at one of the latest PREDICT_LATEST positions names. */
const struct latest *predict_score_latest(struct predict *predict, uint64_t position);
/* Add what the submission at `latest` names, and what of it the one at `place` foretells (PREDICT_NONE: nothing). */
void predict_score_add(struct predict *predict, uint64_t place, uint64_t latest, struct predict_score *share);

/* Which submissions correspond if the latest corresponds to a place, that pair first. */
struct score_pairs {
	uint64_t place[SCORE_COMPARED], latest[SCORE_COMPARED];
	unsigned n, same; /* same: the functions are, too */
};
void predict_score_pair(const struct predict *predict, uint64_t place, struct score_pairs *ret_pairs);
/* Of all pairs; `chance` remains 0 where it is not asked for. */
struct predict_score predict_score_of(struct predict *predict, const struct score_pairs *pairs, bool chance);

/* ---- predict_candidates.c ---- */
#define CANDIDATES_ELECTED 4
#define CANDIDATES_APART   8 /* submissions: closer together than that they are one */
/* How long ago the program may have been in the same phase: at most CANDIDATES_ELECTED distances, the likeliest first. */
unsigned predict_candidates_elect(struct predict *predict, uint64_t *ret_distances);

#endif
