// SPDX-License-Identifier: Apache-2.0
/*
 * types.h: what several files of the plan share: the predictor and the plan. Guarded by nothing: only the thread that
 * owns a plan, the mover, touches it.
 */
#ifndef SPILLWAY_PLAN_TYPES_H
#define SPILLWAY_PLAN_TYPES_H

#include "shim/plan/pieces.h"
#include "shim/plan/plan.h"
#include "shim/plan/predict.h"
#include "shim/plan/tensor_future.h"

/* ---- the predictor ---- */

#define PREDICT_NAMES 32 /* names of one submission that are compared */
#define PREDICT_LANE  4  /* names compared at once */
typedef uint32_t predict_lane __attribute__((vector_size(PREDICT_LANE * sizeof(uint32_t))));

/* Lengths of grams: number of consecutive tokens, and of functions, that are hashed (predict.c). */
#define GRAM_TOKENS     8
#define GRAM_FUNCTIONS  16
#define PREDICT_BUCKETS (1u << 15)

/* The kinds of grams. */
enum gram {
	BY_TOKEN,
	BY_FUNCTION,
	GRAMS, /* must be last */
};

#define PREDICT_CREDIT_MOST 32768u

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
 * Sums of ages (predict_match.c): of what was named, of the part of it that was foreseen, and of the part that chance
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

	struct last *last; /* by piece; only what is used becomes memory (array.h) */
	uint32_t bucket[GRAMS][PREDICT_BUCKETS];
	uint64_t gram[GRAMS];                   /* rolling hashes of the latest submissions */
	uint64_t power[GRAMS];                  /* weight in the hash of the value that drops out */
	uint64_t recent[GRAMS][GRAM_FUNCTIONS]; /* ring of the values in the hash */

	/* ---- the place ---- */
	uint64_t at;      /* the place; PREDICT_NONE: none */
	unsigned misfits; /* submissions that did not fit since the place was followed last */
	/*
	 * unlike: steps with other pieces since the last search for a better place; unlike_limit: steps until the next
	 */
	unsigned unlike, unlike_limit;
	uint64_t distance;                    /* distance to the place when it was last known well; 0: it never was */
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
	uint64_t n;

	*ret_from = predict_entry(predict, position)->slot;
	n = predict_entry(predict, position + 1)->slot - *ret_from;
	return n < PREDICT_NAMES ? (unsigned)n : PREDICT_NAMES;
}

/* Returns the index of the piece among the n slots starting with `from`; n: it is not there. */
static inline unsigned predict_find_name(const struct predict *predict, uint64_t from, unsigned n, uint32_t piece)
{
	unsigned i = 0;

	while (i < n && predict_slot(predict, from + i)->piece != piece)
		i++;
	return i;
}

/* ---- predict_match.c ---- */

/* Advances the place; must be called when a submission has been added. */
void predict_match_follow(struct predict *predict);

/* ---- the plan ---- */

/* Whether device memory suffices for what is needed. All sums are in units. */
struct plan_room {
	struct forecast forecast;
	uint64_t made;     /* submission at which the forecast was made, or tried to; 0: not since the last jump */
	uint64_t needed;   /* of pieces that need device memory now (forecast_needs) */
	uint64_t arriving; /* of pieces that move to the device */
	uint64_t free;     /* as plan_set_free() was told; UINT64_MAX: it never was */
};

/* Where tensors will lie (tensor_future.h), as the program's allocator reports them. */
struct plan_tensors {
	struct tensor_future future;
	uint64_t walked;   /* submission at which the latest walk was made, or tried */
	uint64_t reach;    /* submissions that it foresees */
	uint64_t n_wrong;  /* future.n_wrong at that time */
	int64_t credit;    /* things that may still be looked at; below 0: too many were */
	uint64_t patience; /* submissions until the next walk if births are not as foreseen */
	bool jumped;       /* the place has changed since the latest walk */
	bool trusted;      /* births are mostly as foreseen */
	bool trusted_walk; /* there is a walk, too: where tensor_future_has(), keys follow from it */
};

struct plan {
	struct predict *predict;
	struct pieces pieces;
	uint64_t at;     /* value of predict_at() when the keys were made */
	uint64_t credit; /* slots that may still be walked */
	enum plan_way way;
	uint64_t ahead_units;
	uint64_t units[PLAN_PLACES];
	struct plan_room room;
	struct plan_tensors tensors;
	uint64_t owed;        /* units fetched in vain, times OWED_SHARE; fading */
	uint32_t round;       /* incremented by each jump: what was fetched before does not count as ahead any more */
	uint64_t cursor;      /* next position to examine for a fetch */
	uint64_t cursor_dead; /* the same for dead pieces, which are fetched later */
	/* a piece found as a possible victim that was busy, when one was requested; PIECES_NONE: none */
	uint32_t parked;
};

/* ---- what plan_victim.c asks of plan.c ---- */

/* Makes the forecast, unless that was done not long ago. Returns whether there is one. */
bool plan_room_forecast(struct plan *plan);
/*
 * Returns whether `units` more fit into device memory between two remembered positions, beside all that will be needed.
 * There must be a forecast.
 */
bool plan_room_fits(const struct plan *plan, uint64_t from, uint64_t until, uint64_t units);

#endif
