// SPDX-License-Identifier: Apache-2.0
/*
 * pieces.h: the pieces that a plan knows, and how much device memory they will need. Used by the plan only.
 */
#ifndef SPILLWAY_PIECES_H
#define SPILLWAY_PIECES_H

#include "shim/plan/plan.h"
#include "shim/plan/predict.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- pieces ---- */

/*
 * What the plan knows of each piece, and which of the pieces in device memory may be evicted first.
 *
 * A piece's *key* orders victims, the largest first. It is the remembered position that foretells the piece's next use.
 * If none does, it is PIECES_UNFORESEEN or more, and the larger the older the last use. Pieces in device memory *rest*
 * in one of two places. Just after a piece was named it is busy until the GPU has passed that submission, and just then
 * its next use is farthest; so it is *parked* in a list ordered by last use, which costs nothing when it is named
 * again. Pieces that are no longer busy go to a heap ordered by key when a victim is requested.
 *
 * Wherever it is, a piece with a key below PIECES_UNFORESEEN is also in the list of the pieces that are due at that
 * position. The plan looks at this list when the position passes, and fetches from it.
 */

#define PIECES_LEAF       1024u
#define PIECES_LEAVES     (PLAN_PIECES / PIECES_LEAF)
#define PIECES_NONE       UINT32_MAX
#define PIECES_UNFORESEEN (UINT64_C(1) << 63)
#define PIECES_DUE        PREDICT_MOST /* keys below PIECES_UNFORESEEN are closer together than this */

struct piece {
	uint64_t key; /* valid if `epoch` is the present one; otherwise the piece is unforeseen */
	/* Slot (predict.h) at the key's position that foretells the use, or number of the use (tensor_future.h). */
	uint64_t slot;
	uint64_t last_use; /* position of the latest use; 0: never used */
	uint32_t epoch;
	uint32_t units;
	uint32_t due_prev, due_next; /* in the list of the pieces with this key */
	uint32_t prev, next;         /* in the list of parked pieces */
	uint32_t index;              /* index in the heap; PIECES_NONE: not in it */
	uint8_t place;               /* enum plan_place */
	bool parked;
	uint8_t dead_share; /* how much of it is dead: 0 to PLAN_DEAD */
	bool foretold;      /* plan_fetch() returned it, and it has not been named since */
	bool arriving;      /* MOVING to the device */
	bool needed;        /* at the point that a forecast has come to, if that is the one of forecast_round */
	uint32_t forecast_round;
	/*
	 * In the walk with this number (tensor_future.h): its first and last use; bytes alive at the point of the walk.
	 */
	uint32_t walk_round, walk_first, walk_last;
	uint64_t walk_alive;
	uint32_t ahead; /* round of the plan in which it was prefetched; 0: it was not, or it has been named since */
};

/* The first piece of a list of due pieces. If `epoch` is not the present one, the list is empty. */
struct due {
	uint32_t id, epoch;
};

/* All pieces of one plan. */
struct pieces {
	struct due *due;    /* by the low bits of the key */
	uint64_t due_units; /* units of all pieces with a key */
	struct piece *leaf[PIECES_LEAVES];
	uint64_t now;   /* number of the latest submission */
	uint32_t epoch; /* keys of other epochs are void */
	uint32_t *heap;
	uint32_t n_heap, heap_room;
	/* ends of the list of parked pieces, and the next one to be examined out of turn; PIECES_NONE: none */
	uint32_t oldest, newest, probe;
};

bool pieces_init(struct pieces *pieces); /* returns false if there is no memory */
void pieces_fini(struct pieces *pieces);

/* Returns the piece; NULL if none of its leaf has been made. */
static inline struct piece *pieces_find(const struct pieces *pieces, uint32_t id)
{
	struct piece *leaf = pieces->leaf[id / PIECES_LEAF % PIECES_LEAVES];

	return leaf ? &leaf[id % PIECES_LEAF] : NULL;
}

/* Returns the piece, and makes it if necessary. Returns NULL if there is no memory; the piece then stays unknown. */
struct piece *pieces_make(struct pieces *pieces, uint32_t id);

/* Returns the key that orders victims, also of an unforeseen piece. */
static inline uint64_t pieces_key(const struct pieces *pieces, const struct piece *piece)
{
	return piece->epoch == pieces->epoch ? piece->key : UINT64_MAX - piece->last_use;
}

static inline bool pieces_has_key(const struct pieces *pieces, const struct piece *piece)
{
	return piece->epoch == pieces->epoch;
}

/* Returns whether nothing in it is alive: it leaves without a copy, and comes back without one. */
static inline bool pieces_is_dead(const struct piece *piece)
{
	return piece->dead_share == PLAN_DEAD;
}

/* Changes the length of a piece. */
void pieces_set_units(struct pieces *pieces, struct piece *piece, uint32_t units);
/* pieces_set_key() sets the key of a piece, pieces_unset_key() makes it unforeseen. */
void pieces_set_key(struct pieces *pieces, struct piece *piece, uint32_t id, uint64_t key, uint64_t slot);
void pieces_unset_key(struct pieces *pieces, struct piece *piece);
/*
 * Makes all pieces unforeseen. The caller must then call pieces_put_key() for some, if any, and pieces_sort() at the
 * end.
 */
void pieces_unset_keys(struct pieces *pieces);
void pieces_put_key(struct pieces *pieces, struct piece *piece, uint32_t id, uint64_t key, uint64_t slot);
void pieces_sort(struct pieces *pieces);
/* Returns the first piece in the list of this key; PIECES_NONE: none. `due_next` of each has the one that follows. */
uint32_t pieces_due(const struct pieces *pieces, uint64_t key);

/* pieces_rest() records that the piece is in device memory from now on, pieces_leave() that it no longer is. */
void pieces_rest(struct pieces *pieces, struct piece *piece, uint32_t id);
void pieces_leave(struct pieces *pieces, struct piece *piece, uint32_t id);
/* Parks a resting piece, because it was named. */
void pieces_park(struct pieces *pieces, struct piece *piece, uint32_t id);

/* Returns whether the piece is in use, or was named by the latest submission. */
bool pieces_is_busy(const struct pieces *pieces, uint32_t id, plan_busy_function *busy, void *argument);
/*
 * Moves parked pieces that are no longer busy to the heap: the oldest first, and up to `probes` out of turn, because
 * streams do not complete in order.
 */
void pieces_unpark(struct pieces *pieces, unsigned probes, plan_busy_function *busy, void *argument);
/*
 * Returns the piece in the heap with the largest key that is neither busy nor named by the latest submission;
 * PIECES_NONE: none. Parks busy pieces that it meets.
 */
uint32_t pieces_top(struct pieces *pieces, plan_busy_function *busy, void *argument);

/* ---- forecast ---- */

/*
 * The forecast: how much device memory the program will need in the rest of its period. The plan knows when each piece
 * is named next. The need of a period also depends on when pieces die and come to life again (live_map.h). These
 * transitions are recorded, and those that followed the remembered position (predict_at) are taken as the future, like
 * uses; where a walk foresees transitions (tensor_future.h), those are taken instead.
 *
 * The need counts every piece that holds contents in device memory or on its way there: it goes down where a piece dies
 * and up where one comes to life or is named and fetched, and nothing is evicted. Where it exceeds what there is,
 * something must be evicted before; where it does not, what is fetched stays until it is used.
 * Pure.
 */

#define FORECAST_STEPS 256 /* a period is divided into this many */
/* Older transitions are forgotten. A GPT's step has about a thousand. */
#define FORECAST_MOST (1u << 16)

/* A piece has died or come to life. */
struct transition {
	uint64_t position; /* after this submission */
	uint32_t piece;
	bool dead;
};

struct forecast {
	struct transition *ring; /* number n is at n % FORECAST_MOST; NULL: there are none */
	uint64_t n;              /* so many were recorded */
	uint64_t from, until;    /* the steps divide the remembered positions from + 1 .. until; both 0: no forecast */
	uint32_t round;          /* of the latest forecast; pieces have a note of it */
	int64_t most[FORECAST_STEPS]; /* the most units needed at once in each step */
};

/* A forecast must be zeroed at first. forecast_fini() frees what it holds. */
void forecast_fini(struct forecast *forecast);
/* Records that a piece has died or come to life after submission `position`. If there is no memory, it is not known. */
void forecast_note(struct forecast *forecast, uint64_t position, uint32_t piece, bool dead);
/*
 * Makes the forecast for what follows the remembered position `at` up to now. needed: the units that are needed now
 * (forecast_needs). There is no forecast if no transition of that time was reported, or if some may be forgotten.
 */
void forecast_make(struct forecast *forecast, const struct pieces *pieces, uint64_t at, uint64_t needed);
/* The same for what follows up to `until`, with these n transitions, in order, instead of those that were recorded. */
void forecast_make_from(struct forecast *forecast, const struct pieces *pieces, uint64_t at, uint64_t until,
			uint64_t needed, const struct transition *transitions, uint64_t n);
/* Ends the forecast: the program is at another place. */
void forecast_drop(struct forecast *forecast);
/*
 * Returns the most units that will be needed at once between two remembered positions, `at` and `until`. There must be
 * a forecast.
 */
int64_t forecast_most(const struct forecast *forecast, uint64_t at, uint64_t until);
/*
 * Changes the forecast: `units` more are needed from `at` to `until`, because a piece is fetched before its use. Below
 * 0: fewer are, because one is evicted.
 */
void forecast_add(struct forecast *forecast, uint64_t at, uint64_t until, int64_t units);

static inline bool forecast_is_made(const struct forecast *forecast)
{
	return forecast->until != 0;
}

/* Returns whether the piece needs device memory now. */
static inline bool forecast_needs(const struct piece *piece)
{
	return !pieces_is_dead(piece) &&
	       (piece->place == PLAN_DEVICE || piece->place == PLAN_PINNED || piece->arriving);
}

#endif
