// SPDX-License-Identifier: Apache-2.0
/*
 * replay_job.h: a model as the library would handle it under one policy and one budget: which allocations are heap
 * memory, into which pieces they are cut (shim/heap/block.c), and which pieces each submission names
 * (shim/mover/intake.c).
 *
 * Pieces are numbered from 0. The numbers of a freed block are reused by a later block of the same length, because the
 * heap gives it the same address. Allocations of at most 1 MiB share pieces of 2 MiB.
 */
#ifndef TOOLS_REPLAY_JOB_H
#define TOOLS_REPLAY_JOB_H

#include "policy/policy.h"
#include "tools/replay/replay_model.h"

#define JOB_UNIT ((uint64_t)2 << 20)

enum job_kind {
	JOB_NEW,     /* pieces are made */
	JOB_GONE,    /* pieces are freed */
	JOB_CHARGE,  /* device memory outside the heap grows by `bytes` */
	JOB_RELEASE, /* device memory outside the heap shrinks by `bytes` */
	JOB_LAUNCH,
	JOB_DENIED, /* the policy refuses the allocation */
	/* What the program's allocator reports, as live_map.h has it; addresses from `from` on, `bytes` long. */
	JOB_KEPT,
	JOB_BORN,
	JOB_DIED,
	JOB_ENDED,   /* a tensor is not one any more; what is alive does not change by that */
	JOB_REVIVED, /* the next launch names what is dead there */
	JOB_DOUBTED,
	JOB_ALL_DOUBTED,
};

struct job_event {
	uint32_t kind;  /* enum job_kind */
	uint32_t n;     /* number of pieces */
	uint64_t from;  /* index of the first of them in job.named; from JOB_KEPT on: an address */
	uint64_t bytes; /* charge, release: the change; denied: the bytes requested */
	uint64_t function;
	uint32_t block;     /* of the model; launch: REPLAY_NONE */
	uint32_t event;     /* of the model */
	uint8_t place;      /* new: enum policy_place_of */
	bool movable;       /* new */
	int16_t rule;       /* -1: no rule */
	uint16_t thread;    /* that submits or reports, from 1; 0: not known */
	uint32_t tensor;    /* died, ended: its number; REPLAY_NONE: none */
	uint32_t n_tensors; /* launch: number of what it names, as tensors ... */
	uint64_t tensors;   /* ... and the index of the first in job.tensors */
};

struct job_named {
	uint32_t piece;
	uint32_t bytes; /* launch: how many bytes of the pieces are named, as far as can be guessed */
};

struct job {
	const struct replay_model *model;
	struct job_event *events;
	struct job_named *named;
	uint32_t *units;    /* by piece: its length in JOB_UNIT */
	uint32_t *block_of; /* by piece: the number of its block; a number stands for one life of a block */
	/*
	 * Addresses are bytes from the beginning of a space in which each block has its own units. unit_of: by piece,
	 * the first one; REPLAY_NONE: there was no space left. piece_at: by unit.
	 */
	uint32_t *unit_of, *piece_at;
	uint32_t n_units;
	/*
	 * Only if births were recorded: what launches name, each once. Twice the number of a piece, or twice that of a
	 * tensor plus 1. tensor_bytes, tensor_begin: by tensor; each birth is one of its own.
	 */
	uint32_t *tensors;
	uint64_t *tensor_bytes, *tensor_begin;
	size_t n_tensors, n_tensors_named;
	size_t n_events, n_launches;
	uint64_t n_named;
	uint32_t n_pieces, n_lives; /* every block_of is below n_lives */
	uint64_t peak_bytes;        /* peak, in whole units of the heap, together with device memory outside it */
	uint64_t peak_outside;      /* peak of device memory outside the heap */
	uint64_t elsewhere;         /* allocations that are managed or system memory; nothing here counts them */
	uint32_t most_units;        /* the longest piece */
};

struct job_setting {
	const struct policy *policy; /* NULL: everything is heap memory */
	uint64_t budget;             /* of the device */
	uint32_t device;
	bool fast;  /* cut as for `fast` mode */
	bool moves; /* in `exact` or `fast`: pools that cannot serve a request are closed (shim/device/device.h) */
	bool whole; /* each block is one piece, of any size */
};

/* Returns the maximum length of a piece at this budget. */
uint32_t job_most_units(const struct job_setting *setting);
/*
 * Returns NULL if memory runs out or the job is too large: more pieces than a plan can hold, or more than 2^28 names.
 */
struct job *job_new(const struct replay_model *model, const struct job_setting *setting);
void job_free(struct job *job); /* accepts NULL */

/*
 * ---- replay_steps.c: the periods at which a job's work repeats; `spillway report` counts them by this rule, too ----
 */

/* The last steps of a job, which represent all of them. */
struct replay_steps {
	uint64_t period; /* submissions of one step; 0: the job does not repeat, and all of it counts as one step */
	uint64_t from;   /* submissions before the first one that counts */
	double n;        /* number of steps that count */
	bool marked;     /* each step calls this function once: */
	uint64_t marker;
};

/*
 * Finds where the job repeats, by the library's own prediction. The last `most` steps count, as long as at least as
 * many precede them; more steps count if only several of them together repeat. If memory runs out, the job is treated
 * as one that does not repeat.
 */
#define REPLAY_STEPS 4
struct replay_steps replay_find_steps(const struct job *job, uint64_t most);
/*
 * Finds the steps of a model, cut as if all of it fitted into device memory: neither policy nor budget changes the
 * steps. Returns false if memory runs out.
 */
bool replay_steps_of(const struct replay_model *model, uint32_t device, uint64_t most, struct replay_steps *ret_steps);
/* Returns whether a step begins with this submission. launch: the number of submissions before it. */
bool replay_step_begins(const struct replay_steps *steps, uint64_t launch, uint64_t function);
/*
 * Returns the duration of a step with all memory on the device, in ms. 0: the trace has no times, or was recorded with
 * memory on the host: steps took longer for it, and what of them is waits and what is work cannot be told apart,
 * because the GPU works while a submission waits.
 */
double replay_step_ms(const struct job *job, const struct replay_steps *steps);

#endif
