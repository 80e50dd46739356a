/*
 * plan.h: what to move next. Pure: no CUDA, no clock, no thread; it runs on a recorded trace as well as in the engine.
 *
 * A *piece* is what moves as one: a chunk's place in the heap's address space, named by its first 2 MiB unit. The plan
 * hears of every submission in order (plan_note), of every piece and where it is (plan_set), and answers two questions:
 * which piece to bring in next (plan_fetch), and which to send out for it (plan_victim). From the history of
 * submissions it finds where the present one stood before, and takes what followed then as the future (predict.h).
 *
 * Time is counted in submissions: plan_now() is the number of the latest. Lock: none, one thread (the mover's) uses it.
 * Out of memory in here loses knowledge of the future, never correctness.
 */
#ifndef SPILLWAY_PLAN_H
#define SPILLWAY_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#define PLAN_NEVER  UINT64_MAX
#define PLAN_PIECES (1u << 23) /* pieces are smaller numbers: 16 TiB of address space */

enum plan_place {
	PLAN_GONE,   /* no such piece any more; forgotten */
	PLAN_HOST,   /* a candidate for plan_fetch() */
	PLAN_DEVICE, /* a candidate for plan_victim() */
	PLAN_MOVING, /* on its way, in or out; no candidate */
	PLAN_PINNED, /* must stay where it is; no candidate */
	PLAN_PLACES, /* must be last */
};

struct plan;

/* How memory moves: what a victim of another size than the wanted costs, against bytes, depends on it. */
enum plan_way {
	PLAN_BESIDE_KERNELS,
	PLAN_IN_GAPS,  /* while nothing runs: making memory of another size costs less */
	PLAN_TO_PEERS, /* to other devices first, either way: bytes cost little */
};

/* NULL without memory. */
struct plan *plan_new(enum plan_way way);
void plan_free(struct plan *plan);
/* For tests: do its structures hold together? */
bool plan_is_valid(const struct plan *plan);

/* The piece is that many units long and is now there. */
void plan_set(struct plan *plan, uint32_t piece, uint32_t units, enum plan_place place);

/* The next submission: which function (any number that is equal for equal work), which pieces, in any order. */
void plan_note(struct plan *plan, uint64_t function, const uint32_t *pieces, unsigned n);

/* The length of all pieces that are there, in units. */
uint64_t plan_units(const struct plan *plan, enum plan_place place);

/* The length of those whose next use is foretold. */
uint64_t plan_foreseen(const struct plan *plan);

uint64_t plan_now(const struct plan *plan);
/* Is the future known, at least for the next submissions? When not, the two below go by recency. */
bool plan_knows(const struct plan *plan);
/* How many submissions ago the program stood where it stands now; 0: the future is not known. */
uint64_t plan_period(const struct plan *plan);
/*
 * The same, this at most: what is measured and kept by periods should not take longer where steps differ, and the like of
 * one is far back.
 */
#define PLAN_SPAN_MOST 65536
uint64_t plan_span(const struct plan *plan);
/* The submission that is expected to use the piece next, > plan_now(); PLAN_NEVER: none within what is foreseen. */
uint64_t plan_next_use(struct plan *plan, uint32_t piece);

/*
 * The first piece in host memory that will be used, and by which submission. False when the future is unknown, when
 * everything foreseen is in, or when `ahead_units` have been brought in (or are MOVING in) and not been used yet:
 * looking further ahead than the link needs costs traffic. What left again without being used counts against that
 * limit, too, for about a thousand submissions.
 */
bool plan_fetch(struct plan *plan, uint64_t ahead_units, uint32_t *ret_piece, uint64_t *ret_when);

/* Can this piece not leave just now (it is in use)? */
typedef bool plan_busy_function(void *argument, uint32_t piece);
enum plan_answer {
	PLAN_FOUND,
	PLAN_BUSY, /* there are pieces that might go, but they are busy */
	PLAN_NONE, /* all that is in is needed before `when`, or not long after; or by the latest submission itself */
};
/*
 * Which piece should leave for one that is needed at `when` (plan_now() for one that is needed at once): the one whose
 * next use is farthest, if that is at least twice as far from now as `when`: anything nearer would be back in its place
 * soon, for nothing. order_units: among pieces about equally far, one of that many
 * units is preferred (its memory can be used as it is); 0: no preference. Without a known future: the least recently
 * used one that was not used by the latest submission. busy may be NULL.
 *
 * PLAN_BUSY and PLAN_NONE: ask again when a submission was noted, or the GPU has finished one.
 */
enum plan_answer plan_victim(struct plan *plan, uint64_t when, uint32_t order_units, plan_busy_function *busy,
			     void *argument, uint32_t *ret_piece);

#endif
