// SPDX-License-Identifier: Apache-2.0
/*
 * tensor_future.h: where the tensors of the near future will lie, and which pieces will be used for them, in a program
 * whose allocator uses other addresses than in the past. What the program will do is known from the past (predict.h).
 * Which tensor of then is which one of now follows from their order (struct tensor_match), and where the next one will
 * be born from the allocator's rule (struct best_fit).
 *
 * From time to time a *walk* is made from the remembered position on. It begins with the tensors that are alive now,
 * and finds for each birth, death and name of then where it will be now. If births come elsewhere than foreseen, the
 * program's allocator has another rule, and the caller must not use the result; `score` has how many are right.
 *
 * A walk takes about 0.6 ms for a GPT: 2048 submissions, 50,000 things to look at.
 *
 * Pure. Locking: none; it belongs to the plan.
 */
#ifndef SPILLWAY_TENSOR_FUTURE_H
#define SPILLWAY_TENSOR_FUTURE_H

#include "shim/plan/live_map.h"
#include "shim/plan/pieces.h"
#include "shim/plan/plan.h"
#include "shim/plan/tensors.h"

#define TENSOR_FUTURE_AHEAD 2048u /* the most submissions that a walk foresees */
#define TENSOR_USE_NONE     UINT32_MAX

/*
 * How the tensors of a remembered position correspond to those of now: by their order. If n events have happened since
 * that position, the event that came n before another one corresponds to it. Sizes may differ, as with sequences of
 * another length: those that depend on it by one ratio, which shows in the latest births; others are the same.
 */
struct tensor_match {
	uint64_t next;      /* number of the event of then that corresponds to the next one */
	uint64_t shift;     /* from an event of then to the one of now */
	uint64_t now, then; /* sizes that vary are now / then times as large; equal: none has varied */
	/* By size then, as `begin`: what has become of it lately, as `value`; 0: nothing likely. */
	struct tensor_table sizes;
};

/* The submission at this position will name the piece. */
struct tensor_use {
	uint64_t position;
	uint32_t piece;
	uint32_t next; /* the piece's next use in the walk; TENSOR_USE_NONE: none */
};

/* A future must be zeroed at first. tensor_future_fini() frees what it holds. */
struct tensor_future {
	plan_piece_function *piece_at; /* NULL: no walk is made */
	void *argument;
	uint32_t whole_units; /* blocks of at most this length are named as a whole */
	struct tensor_log log;
	struct live_range *blocks; /* blocks of the allocator, by address */
	uint32_t n_blocks, room_blocks;

	/* ---- the latest walk ---- */
	uint32_t round; /* its number; the pieces that it has come to have a note of it */
	uint64_t until; /* it foresees the positions up to this one; 0: there is none */
	struct tensor_match match;
	struct best_fit fit;      /* what is free at the point of the walk */
	struct tensor_table then; /* the tensors at that point, by where they were then; value: where they are now */
	struct tensor_use *uses;
	uint32_t n_uses, room_uses;
	struct transition *transitions; /* pieces.h */
	uint32_t n_transitions, room_transitions;
	/* event number event_from + i: where the tensor will be born; 0: that is not known, or it is a death */
	uint64_t *births;
	uint32_t n_births, room_births;
	uint64_t event_from;
	bool compared; /* event_from and match are valid, also if no walk was needed */

	uint64_t n_wrong; /* births that were not as foreseen */
	unsigned score; /* the share of the latest births that were, while there was a walk; in 1/TENSOR_FUTURE_SCORE */
};
#define TENSOR_FUTURE_SCORE 1024u

void tensor_future_fini(struct tensor_future *future);

/* As in plan.h. position: of the latest submission. */
void tensor_future_report(struct tensor_future *future, uint64_t begin, uint64_t end);
void tensor_future_forget(struct tensor_future *future, uint64_t begin, uint64_t end);
void tensor_future_birth(struct tensor_future *future, uint64_t position, uint64_t begin, uint64_t end);

/* What tensor_future_make() has done. */
enum tensor_future_result {
	TENSOR_FUTURE_MADE,
	TENSOR_FUTURE_NOT_NEEDED, /* all tensors lie where they did then */
	TENSOR_FUTURE_FAILED,     /* too little is remembered, too much is to be foreseen, or there is no memory */
};
/*
 * Makes a walk from the remembered position `at`, in place of the one before; `now` is the position of the latest
 * submission. most: the most things to look at. *ret_steps: how many it has looked at.
 */
enum tensor_future_result tensor_future_make(struct tensor_future *future, struct pieces *pieces, uint64_t at,
					     uint64_t now, uint64_t most, uint64_t *ret_steps);
/* Ends the latest walk. */
void tensor_future_drop(struct tensor_future *future);

/* Returns whether a walk has come to this piece, so that its uses are known, even if it has none. */
static inline bool tensor_future_has(const struct tensor_future *future, const struct piece *piece)
{
	return future->until && piece->walk_round == future->round;
}
/*
 * Returns the position of a piece's first use after `position`, and its number, looking from use number `use` on.
 * PREDICT_NONE and TENSOR_USE_NONE: there is none.
 */
uint64_t tensor_future_use_after(const struct tensor_future *future, uint32_t use, uint64_t position,
				 uint32_t *ret_use);

#endif
