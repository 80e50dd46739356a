/*
 * replay_job.h: a model as the library would handle it under one policy and one budget: which allocations are heap memory,
 * into which pieces they are cut (shim/heap/block_build.c), and which pieces each submission names
 * (shim/mover/intake.c).
 *
 * Pieces are numbered from 0; the numbers of a block that is freed are taken by a later one of the same length, as the
 * heap gives it the same address. Allocations of at most 1 MiB share pieces of 2 MiB.
 */
#ifndef TOOLS_REPLAY_JOB_H
#define TOOLS_REPLAY_JOB_H

#include "policy/policy.h"
#include "tools/replay/replay_model.h"

#define JOB_UNIT ((uint64_t)2 << 20)

enum job_kind {
	JOB_NEW,     /* the pieces appear */
	JOB_GONE,    /* they are freed */
	JOB_CHARGE,  /* device memory outside the heap: bytes more */
	JOB_RELEASE, /* and less */
	JOB_LAUNCH,
	JOB_DENIED, /* the policy gives it no memory */
};

struct job_event {
	uint32_t kind;  /* enum job_kind */
	uint32_t n;     /* pieces ... */
	uint64_t from;  /* ... of job.named: from ... from + n - 1 */
	uint64_t bytes; /* charge, release; denied: asked for */
	uint64_t function;
	uint32_t block; /* of the model; launch: REPLAY_NONE */
	uint32_t event; /* of the model */
	uint8_t place;  /* new: enum policy_place_of */
	bool movable;   /* new */
	int16_t rule;   /* -1: none */
};

struct job_named {
	uint32_t piece;
	uint32_t bytes; /* launch: how many of it are named, as far as that may be guessed */
};

struct job {
	const struct replay_model *model;
	struct job_event *events;
	struct job_named *named;
	uint32_t *units;    /* by piece: how long it is, in JOB_UNIT */
	uint32_t *block_of; /* by piece: numbers of blocks (of one life) that are equal for pieces of one */
	size_t n_events, n_launches;
	uint64_t n_named;
	uint32_t n_pieces, n_lives; /* block_of is below n_lives */
	uint64_t peak_bytes;        /* in units of the heap, and outside it on the device, at once at most */
	uint64_t peak_outside;      /* of device memory outside the heap */
	uint64_t elsewhere;         /* allocations that are managed or system memory: not counted in anything here */
	uint32_t most_units;        /* of a piece */
};

struct job_setting {
	const struct policy *policy; /* NULL: everything is heap memory */
	uint64_t budget;             /* of the device */
	uint32_t device;
	bool fast;  /* cut as for `fast` */
	bool moves; /* in `exact` or `fast`: pools that cannot serve something are closed (shim/device/pool.h) */
	bool whole; /* each block is one piece, whatever its size */
};

/* How long pieces are at this budget. */
uint32_t job_most_units(const struct job_setting *setting);
/* NULL without memory, or when the job is too large: more pieces than a plan has room for, 2^28 names. */
struct job *job_new(const struct replay_model *model, const struct job_setting *setting);
void job_free(struct job *job); /* accepts NULL */

#endif
