/*
 * pieces.h: what the plan knows of each piece, and which of those in device memory may leave first. Inside of plan.c.
 *
 * A piece's *key* orders victims, the largest first: the remembered position that foretells its next use, or, when none
 * does, PIECES_UNFORESEEN and more: the older the last use, the larger. Pieces in device memory *rest* in one of two
 * places. Just after it was named a piece is busy until the GPU has passed it, and it is just then that its next use is
 * farthest; so it is *parked* in a list by the time of its last use, which costs nothing when it is named again. What
 * is no longer busy goes to a heap by key, when a victim is asked for.
 *
 * Wherever it is, a piece with a key that is no PIECES_UNFORESEEN is also in the list of the pieces due then: these are
 * what the plan looks at when that position passes, and what it brings in.
 */
#ifndef SPILLWAY_PIECES_H
#define SPILLWAY_PIECES_H

#include "shim/plan/plan.h"
#include "shim/plan/predict.h"

#include <stddef.h>

#define PIECES_LEAF       1024u
#define PIECES_LEAVES     (PLAN_PIECES / PIECES_LEAF)
#define PIECES_NONE       UINT32_MAX
#define PIECES_UNFORESEEN (UINT64_C(1) << 63)
#define PIECES_DUE        PREDICT_MOST /* keys that are not UNFORESEEN are closer together than that */

struct piece {
	uint64_t key;      /* while epoch is the present one; otherwise unforeseen */
	uint64_t slot;     /* of predict.h, that foretells it there */
	uint64_t last_use; /* 0: never */
	uint32_t epoch;
	uint32_t units;
	uint32_t due_prev, due_next; /* in the list of those with this key */
	uint32_t prev, next;         /* in the list of parked ones */
	uint32_t index;              /* in the heap, PIECES_NONE: not there */
	uint8_t place;               /* enum plan_place */
	bool parked;
	bool foretold;  /* plan_fetch() answered it, and it was not named since */
	uint32_t ahead; /* brought in because of that in which round of the plan; 0: not, or it was named since */
};

/* The first piece of a list; of another epoch it is empty. */
struct due {
	uint32_t id, epoch;
};

struct pieces {
	struct due *due;    /* by the low bits of the key */
	uint64_t due_units; /* of all with a key */
	struct piece *leaf[PIECES_LEAVES];
	uint64_t now;   /* the latest submission */
	uint32_t epoch; /* keys of another one do not count */
	uint32_t *heap;
	uint32_t n_heap, heap_room;
	uint32_t oldest, newest, probe; /* parked; PIECES_NONE: none. probe: the next one looked at out of turn */
};

bool pieces_init(struct pieces *pieces); /* false without memory */
void pieces_fini(struct pieces *pieces);

static inline struct piece *pieces_find(const struct pieces *pieces, uint32_t id)
{
	struct piece *leaf = pieces->leaf[id / PIECES_LEAF % PIECES_LEAVES];

	return leaf ? &leaf[id % PIECES_LEAF] : NULL;
}

/* NULL without memory: the piece then stays unknown. */
struct piece *pieces_make(struct pieces *pieces, uint32_t id);

static inline uint64_t pieces_key(const struct pieces *pieces, const struct piece *piece)
{
	return piece->epoch == pieces->epoch ? piece->key : UINT64_MAX - piece->last_use;
}

static inline bool pieces_has_key(const struct pieces *pieces, const struct piece *piece)
{
	return piece->epoch == pieces->epoch;
}

/* The length is another one. */
void pieces_set_units(struct pieces *pieces, struct piece *piece, uint32_t units);
/* Set a key, or make it unforeseen. */
void pieces_set_key(struct pieces *pieces, struct piece *piece, uint32_t id, uint64_t key, uint64_t slot);
void pieces_unset_key(struct pieces *pieces, struct piece *piece);
/* All are unforeseen; then pieces_put_key() for some and pieces_sort() in the end. */
void pieces_unset_keys(struct pieces *pieces);
void pieces_put_key(struct pieces *pieces, struct piece *piece, uint32_t id, uint64_t key, uint64_t slot);
void pieces_sort(struct pieces *pieces);
/* The first piece with this key, and the one after a piece; PIECES_NONE: no more. */
uint32_t pieces_due(const struct pieces *pieces, uint64_t key);
uint32_t pieces_due_after(const struct pieces *pieces, uint32_t id);

/* The piece is in device memory from now on, or no more. */
void pieces_rest(struct pieces *pieces, struct piece *piece, uint32_t id);
void pieces_leave(struct pieces *pieces, struct piece *piece, uint32_t id);
/* A resting piece was named. */
void pieces_park(struct pieces *pieces, struct piece *piece, uint32_t id);

/* Is it in use, or was it named by the latest submission? */
bool pieces_is_busy(const struct pieces *pieces, uint32_t id, plan_busy_function *busy, void *argument);
/* Look at what is parked: the oldest first, and that many out of turn, as streams do not finish in order. */
void pieces_unpark(struct pieces *pieces, unsigned probes, plan_busy_function *busy, void *argument);
/* The piece with the largest key that is neither busy nor named just now; PIECES_NONE: nothing rests in the heap. */
uint32_t pieces_top(struct pieces *pieces, plan_busy_function *busy, void *argument);

/* For tests: the heap is one, the lists are, and each piece is in those that it should be in, and in no other. */
bool pieces_is_valid(const struct pieces *pieces);

#endif
