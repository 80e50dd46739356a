/*
 * tensor_log.h: the tensors of the past, by address and in order: which were born, died and were named; and which are
 * alive. An event has the position (predict.h) of the latest submission before it.
 *
 * Only tensors of more than TENSOR_LOG_LEAST bytes are recorded, because PyTorch's allocator has smaller ones in blocks
 * of their own, which take little room. If there is no memory, a tensor lies beyond 2 TiB, or more than
 * TENSOR_LOG_ALIVE are alive, nothing is recorded any more. Memory: up to 10 MiB, as it is used.
 *
 * Pure. Locking: none; it belongs to the plan.
 */
#ifndef SPILLWAY_TENSOR_LOG_H
#define SPILLWAY_TENSOR_LOG_H

#include "shim/plan/tensor_table.h"

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

#endif
