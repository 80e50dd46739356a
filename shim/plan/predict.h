/*
 * predict.h: where in the past does the program stand? A ring remembers the submissions (which function, which pieces)
 * and the position in it that the latest one corresponds to: what followed then is what will follow now.
 *
 * Positions count submissions from 1 and are never used again; the ring keeps the last ones (up to PREDICT_MOST, fewer
 * when they name very many pieces). Slots count the pieces named, so a submission is a run of slots.
 * Memory grows as it is needed, up to 40 MiB and 16 bytes for each 2 MiB of address space that is used; without memory
 * the ring stays shorter. Owner and lock: the plan's.
 */
#ifndef SPILLWAY_PREDICT_H
#define SPILLWAY_PREDICT_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Submissions remembered. Where steps differ, as with sequences of other lengths, memory lies in them where it lay in an
 * earlier step of that length behind one of that length, too: with nine lengths once in 81. By the model of replay such a
 * job takes a tenth less time in `exact` when what is remembered is as long as that than when it is a sixth of it.
 */
#define PREDICT_MOST 262144u
#define PREDICT_NONE UINT64_MAX

struct predict;

struct predict *predict_new(void); /* NULL without memory */
void predict_free(struct predict *predict);

/* The next submission. Pieces beyond the first 16384 of one submission are not remembered. */
void predict_note(struct predict *predict, uint64_t function, const uint32_t *pieces, unsigned n);

/* The position of the latest submission. */
uint64_t predict_now(const struct predict *predict);
/*
 * The earlier position that corresponds to it, PREDICT_NONE when there is none or when the pieces foreseen were too
 * often not the ones used. It stays where it is during a few submissions that do not fit, in case they are an insert.
 */
uint64_t predict_at(const struct predict *predict);
/* What the submission at a remembered position named: slots from ... to - 1. */
void predict_slots(const struct predict *predict, uint64_t position, uint64_t *ret_from, uint64_t *ret_to);
uint32_t predict_piece(const struct predict *predict, uint64_t slot);
/* The next position at which this slot's piece was named again, and the slot there; PREDICT_NONE: not up to now. */
uint64_t predict_again(const struct predict *predict, uint64_t slot, uint64_t *ret_slot);
/* The same, the first time later than `past`. */
uint64_t predict_again_after(const struct predict *predict, uint64_t slot, uint64_t past, uint64_t *ret_slot);

/*
 * A name of the latest submission, and where what corresponds to it at predict_at() was named next: the same piece, or the
 * one in whose place it stands. Where a program takes other memory for the same work, what became of the one tells what
 * will become of the other.
 */
struct predict_name {
	uint32_t piece;
	bool has_twin; /* something corresponds to it */
	uint64_t slot;
	uint64_t again, again_slot; /* of the twin, as predict_again_after() tells; without one PREDICT_NONE */
};
/* Those names from the number `from` on, at most n; returns how many. */
unsigned predict_latest(const struct predict *predict, uint64_t past, uint64_t from, struct predict_name *ret_names,
			unsigned n);

/*
 * A walk over what was named after a position up to now, or in the first `most` slots of that: each piece once, where it
 * was named first.
 */
struct predict_walk {
	uint64_t past, slot, end; /* slot ... end - 1 were not looked at yet */
	uint32_t piece;           /* the latest answer: this one, there, in that slot */
	uint64_t position, found;
};
void predict_walk_begin(const struct predict *predict, uint64_t past, uint64_t most, struct predict_walk *ret_walk);
bool predict_walk_next(const struct predict *predict, struct predict_walk *walk);

#endif
