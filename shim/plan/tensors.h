// SPDX-License-Identifier: Apache-2.0
/*
 * tensors.h: what is known of tensors: those that the program's allocator has reported, and guesses where those end
 * that it has not.
 */
#ifndef SPILLWAY_TENSORS_H
#define SPILLWAY_TENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Returns the index of the first of n ranges that begins after this address. They must be in order; each has `size`
 * bytes, of which the first are where it begins, a uint64_t.
 */
uint32_t ranges_after(const void *ranges, uint32_t n, size_t size, uint64_t address);

/* ---- tensors by address ---- */

/*
 * tensors by the address at which they begin. A hash table with open addressing that grows as needed.
 *
 * Pure. Locking: none.
 */

#define TENSOR_GRAIN 512 /* bytes; tensors begin at multiples of this */

struct tensor {
	uint64_t begin;
	uint64_t bytes; /* 0: a free slot of the table */
	uint64_t value; /* the owner's */
};

/* Must be zeroed at first. tensor_table_fini() frees what it holds. */
struct tensor_table {
	struct tensor *slot;
	uint32_t n, n_slots; /* n_slots: 0 at first, then a power of two, at least twice n */
};

void tensor_table_fini(struct tensor_table *table);
void tensor_table_clear(struct tensor_table *table);
/* Adds a tensor, or replaces the one that begins there. Returns false if there is no memory, or too many tensors. */
bool tensor_table_put(struct tensor_table *table, struct tensor tensor);
/* Returns the tensor that begins there; NULL: none. It is valid until the table changes. */
struct tensor *tensor_table_find(const struct tensor_table *table, uint64_t begin);
/* Removes a tensor, as tensor_table_find() has returned it. */
void tensor_table_remove(struct tensor_table *table, struct tensor *tensor);

/* ---- tensors of the past ---- */

/*
 * the tensors of the past, by address and in order: which were born, died and were named; and which are
 * alive. An event has the position (predict.h) of the latest submission before it.
 *
 * Only tensors of more than TENSOR_LOG_LEAST bytes are recorded, because PyTorch's allocator has smaller ones in blocks
 * of their own, which take little room. If there is no memory, a tensor lies beyond 2 TiB, or more than
 * TENSOR_LOG_ALIVE are alive, nothing is recorded any more. Memory: up to 10 MiB, as it is used.
 *
 * Pure. Locking: none; it belongs to the plan.
 */

#define TENSOR_LOG_LEAST ((uint64_t)1 << 20) /* bytes */
#define TENSOR_LOG_ALIVE 8192u               /* a GPT has 300 to 700; a birth among so many takes 4 us */
/* Births and deaths, and names, that are remembered: about 80 steps of a GPT, for the reason of PREDICT_MOST. */
#define TENSOR_LOG_EVENTS (1u << 17)
#define TENSOR_LOG_NAMES  (1u << 20)

/* Whether the size of a tensor depends on what the program works on, as on the length of sequences. */
enum tensor_size {
	TENSOR_SIZE_UNKNOWN,
	TENSOR_SIZE_FIXED,
	TENSOR_SIZE_VARIES,
};

struct tensor_event {
	uint64_t position;
	uint64_t begin;
	uint64_t bytes; /* that the allocator was asked for; the tensor may have up to BEST_FIT_SPLIT more */
	bool born;      /* otherwise it died */
	uint8_t size;   /* of a birth: enum tensor_size */
};

struct tensor_log {
	struct tensor_event *events; /* number n is at n % TENSOR_LOG_EVENTS */
	uint64_t n_events;           /* recorded in all */
	struct tensor *alive; /* by address, disjoint; value: number of the birth; bytes: all that the tensor has */
	uint32_t n_alive, room_alive;
	uint32_t *names; /* number n is at n % TENSOR_LOG_NAMES: begin / TENSOR_GRAIN */
	uint64_t n_names;
	uint64_t *first;    /* by position % PREDICT_MOST: number of its first name */
	uint64_t from, now; /* the positions `from` to `now` have names; from > now: none has */
	bool failed;
};

/* A log must be zeroed at first. tensor_log_fini() frees what it holds. */
void tensor_log_fini(struct tensor_log *log);

/*
 * Record a birth, whose event is given, or a death after the submission at `position`. What was alive where a tensor is
 * born is not any more. The death of what was not born is ignored.
 */
void tensor_log_birth(struct tensor_log *log, const struct tensor_event *birth, uint64_t end);
void tensor_log_death(struct tensor_log *log, uint64_t position, uint64_t begin, uint64_t end);
/* Forgets what is alive and has some of these bytes: they are not the allocator's any more. */
void tensor_log_forget(struct tensor_log *log, uint64_t begin, uint64_t end);
/* Returns the tensor that is alive and has this byte; NULL: none. It is valid until the log changes. */
const struct tensor *tensor_log_at(const struct tensor_log *log, uint64_t address);
/*
 * Records the tensors that the submission at `position` names, by addresses in them. To be called for each position;
 * what was named before one that is left out is forgotten.
 */
void tensor_log_name(struct tensor_log *log, uint64_t position, const uint64_t *addresses, unsigned n);

/* Returns the number of the first event that is remembered and has this position or a later one; n_events: none has. */
uint64_t tensor_log_from(const struct tensor_log *log, uint64_t position);
/* Returns whether the event with this number is remembered. */
static inline bool tensor_log_has(const struct tensor_log *log, uint64_t number)
{
	return number < log->n_events && log->n_events - number <= TENSOR_LOG_EVENTS;
}
static inline const struct tensor_event *tensor_log_event(const struct tensor_log *log, uint64_t number)
{
	return &log->events[number % TENSOR_LOG_EVENTS];
}
/*
 * Returns the numbers of a position's names, *ret_from to *ret_to - 1. Returns false if they are not remembered.
 */
bool tensor_log_names(const struct tensor_log *log, uint64_t position, uint64_t *ret_from, uint64_t *ret_to);
/* Returns where the tensor of this name begins. */
static inline uint64_t tensor_log_named(const struct tensor_log *log, uint64_t number)
{
	return (uint64_t)log->names[number % TENSOR_LOG_NAMES] * TENSOR_GRAIN;
}

/* ---- free memory ---- */

/*
 * the free memory of an allocator's blocks, and which of it the allocator gives out next. PyTorch's takes
 * the smallest free range that suffices, of equal ones the one with the lowest address, and splits it if much is left
 * (checked with a recorded job of 13,094 births, H200, PyTorch 2.11: each of them has the address that this rule
 * gives).
 *
 * Pure. Locking: none.
 */

/* A larger rest than this (bytes) is split off. */
#define BEST_FIT_SPLIT ((uint64_t)1 << 20)
/* The most free ranges. */
#define BEST_FIT_MOST 8192u

struct best_fit_range {
	uint64_t begin, end;
	uint32_t block; /* any number that is the same for ranges of one block; others are not joined with them */
};

/* Must be zeroed at first. best_fit_fini() frees what it holds. */
struct best_fit {
	struct best_fit_range *range; /* by address; of one block no two touch */
	uint32_t n, room;
};

void best_fit_fini(struct best_fit *fit);
/* Frees a range, none of which is free. Returns false if there is no memory, or if there would be too many ranges. */
bool best_fit_give(struct best_fit *fit, uint64_t begin, uint64_t end, uint32_t block);
/* Takes `bytes` or, where no more than BEST_FIT_SPLIT is left, all of a range. Returns false if no range suffices. */
bool best_fit_take(struct best_fit *fit, uint64_t bytes, struct best_fit_range *ret);

/* ---- where tensors end ---- */

/*
 * Tensor extents are guesses where tensors end. Only the offsets in a block at which pointers start are ever seen. So
 * the end of what a pointer means is guessed to be the next start that was seen in that block recently. A guess
 * determines what is fetched to the device, never what is mapped.
 *
 * Starts must be forgotten: a block that was cut into small tensors while a job started holds one large tensor later,
 * and an old start in the middle of it would leave the rest on the host. So the caller lets them age. On the recorded
 * GPT job, starts kept for ever name 12.1 GiB a step, starts of the last period 14.3 GiB, which is everything.
 *
 * Of the starts in each 2 MiB unit the first and the last are remembered, which is as precise as it matters: 24 bytes
 * for each unit of address space in use, 2 MiB for 160 GiB of it. Blocks are named by their first unit, a number below
 * PLAN_PIECES. Locking: none; only the mover's thread may use it. If there is no memory, starts are lost, and ends are
 * guessed too far.
 */

struct tensor_extents *tensor_extents_new(void); /* NULL if there is no memory */
void tensor_extents_free(struct tensor_extents *extents);

/*
 * Records that a pointer to this offset of a block was seen. block_bytes: length of the block. Offsets beyond it are
 * ignored.
 */
void tensor_extents_note(struct tensor_extents *extents, uint32_t block, uint64_t block_bytes, uint64_t offset);
/*
 * Returns where the tensor that starts at `offset` ends: exact to the unit (2 MiB), always > offset, the block's end if
 * nothing is known. A start less than TENSOR_EXTENTS_VIEW after the offset does not end it: it is a view of the same
 * tensor, like the three parts of a packed projection (large segments of PyTorch hold nothing smaller than that). The
 * caller must record all pointers of a submission before it asks.
 */
#define TENSOR_EXTENTS_VIEW ((uint64_t)1 << 20)
uint64_t tensor_extents_end(struct tensor_extents *extents, uint32_t block, uint64_t offset);
/*
 * To be called for each submission that names something. period: number of such submissions after which the program
 * repeats itself (plan_span()); 0: not known. After each period, but at least TENSOR_EXTENTS_AGE submissions, a new age
 * begins. Starts that were seen neither in the age that ends nor since are forgotten; starts in use stay. If no period
 * is known, an age is TENSOR_EXTENTS_AGE_BLIND submissions, longer than most periods: if a start is forgotten too
 * early, what lies before it reaches too far.
 */
#define TENSOR_EXTENTS_AGE       2048
#define TENSOR_EXTENTS_AGE_BLIND 8192
void tensor_extents_submitted(struct tensor_extents *extents, uint64_t period);
/*
 * Returns the size up to which blocks are wanted whole, whatever part a pointer seems to mean. A guess that is too
 * short leaves memory on the host, and kernels read it over the link many times. One that is too long moves memory
 * without need, but no more than one allocation of that size would have moved, and, unless the budget is small, no more
 * than a share of it.
 *
 * Measured: GPT, 1.25: 350 ms a step with guesses in blocks up to 128 MiB, 170 without. ResNet, 1.5, whose blocks of
 * 294 MiB hold one tensor in the forward and several in the backward pass: 240 ms, and 130 with these whole and old
 * starts forgotten.
 */
#define TENSOR_EXTENTS_WHOLE_LEAST ((uint64_t)128 << 20)
#define TENSOR_EXTENTS_WHOLE_MOST  ((uint64_t)512 << 20)
#define TENSOR_EXTENTS_WHOLE_SHARE 16
uint64_t tensor_extents_whole(uint64_t budget);
/* Forgets a block that was freed; what takes its place later is another block. */
void tensor_extents_forget(struct tensor_extents *extents, uint32_t block);

#endif
