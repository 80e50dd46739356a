// SPDX-License-Identifier: Apache-2.0
/*
 * predict.h: the predictor: finds the place in the past that the program is at now. A ring remembers the submissions
 * (which function, which pieces), and the position in it that the latest one corresponds to: what followed then is what
 * will follow now.
 *
 * Positions count submissions from 1 and are never reused. The ring keeps the latest ones, up to PREDICT_MOST, or fewer
 * if they name very many pieces. Slots count the pieces named, so a submission is a run of slots. Memory grows as
 * needed, up to 40 MiB plus 16 bytes for each 2 MiB of address space in use; if there is no memory, the ring stays
 * shorter. Locking: none; it belongs to the plan.
 */
#ifndef SPILLWAY_PREDICT_H
#define SPILLWAY_PREDICT_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The most submissions that are remembered. Where steps differ, as with sequences of different lengths, memory lies
 * where it lay in an earlier step of that length that followed one of the same length, too: with nine lengths, that is
 * one in 81. In the replay model such a job takes a tenth less time in `exact` with this many submissions remembered
 * than with a sixth of them.
 */
#define PREDICT_MOST 262144u
#define PREDICT_NONE UINT64_MAX

struct predict *predict_new(void); /* NULL if there is no memory */
void predict_free(struct predict *predict);

/* Records the next submission. Pieces beyond the first 16384 of a submission are not remembered. */
void predict_note(struct predict *predict, uint64_t function, const uint32_t *pieces, unsigned n);

/* Returns the position of the latest submission. */
uint64_t predict_now(const struct predict *predict);
/*
 * Returns the earlier position that the latest submission corresponds to. Returns PREDICT_NONE if there is none, or if
 * the pieces foreseen were too often not the ones used. The position stays where it is during a few submissions that do
 * not fit, in case they are an insert.
 */
uint64_t predict_at(const struct predict *predict);
/* Returns what the submission at a remembered position named: slots *ret_from to *ret_to - 1. */
void predict_slots(const struct predict *predict, uint64_t position, uint64_t *ret_from, uint64_t *ret_to);
/*
 * Returns the first position after `past` at which this slot's piece was named again, and the slot there; PREDICT_NONE:
 * it was not.
 */
uint64_t predict_again_after(const struct predict *predict, uint64_t slot, uint64_t past, uint64_t *ret_slot);

/*
 * A name of the latest submission, and where its twin at predict_at() was named next. The twin is the same piece, or
 * the one in whose place it stands: if a program uses other memory for the same work, what became of the one shows what
 * will become of the other.
 */
struct predict_name {
	uint32_t piece;
	bool has_twin; /* it has a twin */
	uint64_t slot;
	/* of the twin, as predict_again_after() returns them; PREDICT_NONE: no twin, or not named again */
	uint64_t again, again_slot;
};
/* Stores up to n of those names, starting with number `from`; `again` is after position `past`. Returns how many. */
unsigned predict_latest(const struct predict *predict, uint64_t past, uint64_t from, struct predict_name *ret_names,
			unsigned n);

/*
 * A walk over the pieces named after a position, up to now or in the first `most` slots: each piece once, where it was
 * named first.
 */
struct predict_walk {
	uint64_t past, slot, end; /* slots `slot` to `end` - 1 have not been examined yet */
	uint32_t piece;           /* the latest result: the piece, and below its position and slot */
	uint64_t position, found;
};
void predict_walk_begin(const struct predict *predict, uint64_t past, uint64_t most, struct predict_walk *ret_walk);
/* Returns false at the end of the walk. */
bool predict_walk_next(const struct predict *predict, struct predict_walk *walk);

#endif
