// SPDX-License-Identifier: Apache-2.0
/*
 * plan.h: the plan: what to fetch and what to evict next. It is pure (no CUDA, no clock, no thread), so it runs on a
 * recorded trace as well as in the engine.
 *
 * A *piece* is the unit that moves: a chunk's place in the heap's address space, named by its first 2 MiB unit. The
 * plan is given every submission in order (plan_note), and every piece with its place (plan_set), and answers two
 * questions: which piece to fetch next (plan_fetch), and which to evict for it (plan_victim). In the history of
 * submissions it finds where the program was in the same position before, and takes what followed then as the future
 * (predict.h).
 *
 * Time is counted in submissions; plan_now() is the number of the latest. Locking: none; only one thread, the mover,
 * may use a plan. If there is no memory in here, knowledge of the future is lost, never correctness.
 */
#ifndef SPILLWAY_PLAN_H
#define SPILLWAY_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#define PLAN_NEVER  UINT64_MAX
#define PLAN_UNIT   ((uint64_t)2 << 20) /* bytes */
#define PLAN_PIECES (1u << 23)          /* piece numbers are below this: 16 TiB of address space */

/* The place of a piece. */
enum plan_place {
	PLAN_GONE,   /* the piece does not exist any more, and is forgotten */
	PLAN_HOST,   /* a candidate for plan_fetch() */
	PLAN_DEVICE, /* a candidate for plan_victim() */
	PLAN_MOVING, /* being fetched or evicted; no candidate */
	PLAN_PINNED, /* must stay where it is; no candidate */
	PLAN_PLACES, /* must be last */
};

/*
 * How memory moves. It determines what a victim of a different size costs, compared with bytes moved, whether one of
 * which a part is dead is preferred, and how far ahead what is dead is fetched.
 */
enum plan_way {
	PLAN_BESIDE_KERNELS,
	PLAN_IN_GAPS,  /* while nothing runs: making memory of another size costs less */
	PLAN_TO_PEERS, /* to other devices first, and back: bytes cost little */
};

/* Creates a plan. Returns NULL if there is no memory. */
struct plan *plan_new(enum plan_way way);
void plan_free(struct plan *plan);
/* Memory moves in another way from now on. */
void plan_set_way(struct plan *plan, enum plan_way way);

/* Records that the piece is `units` long and is at `place` now. */
void plan_set(struct plan *plan, uint32_t piece, uint32_t units, enum plan_place place);

#define PLAN_DEAD 64
/*
 * Records how much of the piece is dead (live_map.h), in parts of 1/PLAN_DEAD. All of it, PLAN_DEAD, means that it
 * moves without a copy, and is the first choice for a victim. Nothing of a piece is dead when it appears.
 */
void plan_set_dead(struct plan *plan, uint32_t piece, unsigned share);

/*
 * Records how many units of device memory are free, or will be when evictions in flight have ended, less what is kept
 * free. The plan then also decides what to fetch and to evict by what the rest of the period needs (pieces.h), if
 * births and deaths are reported.
 */
void plan_set_free(struct plan *plan, uint64_t units);

/*
 * Records the next submission. function: any number that is equal for equal work. pieces: those that it names, in any
 * order.
 */
void plan_note(struct plan *plan, uint64_t function, const uint32_t *pieces, unsigned n);

/*
 * ---- tensors ----
 *
 * A program that allocates for each step may use other memory for the same work. If its allocator reports births and
 * deaths (live_map.h), the plan can foresee where tensors will lie, and so which pieces will be used (tensor_future.h).
 * Addresses are bytes from the beginning of the heap's address space.
 */

/*
 * Finds the piece that has a unit, and the unit after its last one, which is larger. Returns false if there is none.
 * plan_note() calls it.
 */
typedef bool plan_piece_function(void *argument, uint32_t unit, uint32_t *ret_piece, uint32_t *ret_past);
/* Must be called before anything of this kind is foreseen. */
void plan_set_pieces(struct plan *plan, plan_piece_function *piece_at, void *argument);
/* A submission that names a tensor in a block of at most this many units names all of the block. 0 at first. */
void plan_set_whole(struct plan *plan, uint32_t units);
/* The allocator has this block, and reports about it. plan_forget(): it does not any more. */
void plan_report(struct plan *plan, uint64_t begin, uint64_t end);
void plan_forget(struct plan *plan, uint64_t begin, uint64_t end);
/* A tensor was born, or has died, after the latest submission. Ignored if it lies in no block. */
void plan_birth(struct plan *plan, uint64_t begin, uint64_t end);
void plan_death(struct plan *plan, uint64_t begin, uint64_t end);
/*
 * Records addresses that a submission names, of which those in tensors count. Must be called just before plan_note().
 */
void plan_name(struct plan *plan, const uint64_t *addresses, unsigned n);

/* Returns where the piece is, as plan_set() has told; PLAN_GONE if that is not known. */
enum plan_place plan_where(const struct plan *plan, uint32_t piece);

/* Returns the length of all pieces at this place, in units. */
uint64_t plan_units(const struct plan *plan, enum plan_place place);

/* Returns the length of the pieces whose next use is foretold, in units. */
uint64_t plan_foreseen(const struct plan *plan);

/* Returns the number of the latest submission. */
uint64_t plan_now(const struct plan *plan);
/*
 * Returns whether the future is known, at least for the next submissions. If it is not, plan_fetch() returns nothing
 * and plan_victim() goes by recency.
 */
bool plan_knows(const struct plan *plan);
/* Returns how many submissions ago the program was where it is now; 0: the future is not known. */
uint64_t plan_period(const struct plan *plan);
/*
 * Returns plan_period(), but at most PLAN_SPAN_MOST: what is measured and kept by periods should not take longer where
 * steps differ and a similar one is far back.
 */
#define PLAN_SPAN_MOST 65536
uint64_t plan_span(const struct plan *plan);
/*
 * Returns in *ret_piece the first piece in host memory that will be used, and in *ret_when the submission that uses it.
 * Returns false if the future is unknown, if nothing foreseen is in host memory, or if `ahead_units` have been fetched
 * (or are MOVING in) and not used yet: more than the link needs costs traffic. What was evicted again unused counts too
 * for about a thousand submissions. With a forecast, a piece not used soon is returned if it can stay until its use.
 */
bool plan_fetch(struct plan *plan, uint64_t ahead_units, uint32_t *ret_piece, uint64_t *ret_when);

/* Returns whether this piece cannot be evicted now, because it is in use. */
typedef bool plan_busy_function(void *argument, uint32_t piece);
/* The result of plan_victim(). */
enum plan_answer {
	PLAN_FOUND,
	PLAN_BUSY, /* there are pieces that might be evicted, but they are busy */
	/* everything on the device is needed before `when` or not long after, or by the latest submission itself */
	PLAN_NONE,
};
/*
 * Chooses the piece to evict for one that is needed at `when` (plan_now() for one that is needed at once): the one
 * whose next use is farthest, if that is at least twice as far from now as `when`; a nearer one would soon be fetched
 * again, and nothing would be gained. order_units: among pieces about equally far, one of that many units is preferred,
 * because its memory can be used as it is; 0: no preference. Pieces that are dead, wholly or in part, are preferred to
 * others that are needed later, as plan_victim.c has it. If the future is not known, it is the least recently used
 * piece that the latest submission does not name. busy may be NULL.
 *
 * After PLAN_BUSY or PLAN_NONE, call again when a submission was recorded or the GPU has completed one.
 */
enum plan_answer plan_victim(struct plan *plan, uint64_t when, uint32_t order_units, plan_busy_function *busy,
			     void *argument, uint32_t *ret_piece);
/*
 * Returns whether a piece that was busy when plan_victim() chose this victim is used so much later that it is worth
 * waiting for.
 */
bool plan_better_is_busy(struct plan *plan, uint32_t victim, uint64_t when);

/*
 * Returns a piece that should be evicted before its memory is wanted, because the link to the host would have nothing
 * to do: one that is alive and not used soon, if more memory than there is will be needed in the first half of the time
 * until its next use. Returns false if there is none, or nothing is known of what is alive.
 */
bool plan_early(struct plan *plan, plan_busy_function *busy, void *argument, uint32_t *ret_piece);

#endif
