// SPDX-License-Identifier: Apache-2.0
/*
 * replay_internal.h: the state of a simulated run, shared by the files that simulate it:
 *
 *   replay_program.c  the program, the GPU, allocations; what the mover hears of them; the counts
 *   replay_run.c      the mover's work, the library's scheduler (shim/plan/scheduler.h) with simulated copies; the
 *                     main loop
 *
 * Times are microseconds since the beginning. Only the mover changes where pieces are, and only at certain moments. So
 * the program and the GPU are advanced to the mover's time whenever that time advances.
 */
#ifndef TOOLS_REPLAY_INTERNAL_H
#define TOOLS_REPLAY_INTERNAL_H

#include "tools/replay/replay_run.h"

#include "shim/plan/live_map.h"
#include "shim/plan/scheduler.h"

#define SIZES 129 /* entries of `warm`: pieces of SIZES - 1 units or more share the last one */

struct moving {
	uint32_t piece;
	double end;
};

struct lane {
	struct moving at[MOVES];
	unsigned head, n;
	uint64_t units;
	double free; /* when the link can take the next copy */
};

/* One piece. where: enum plan_place. */
struct spot {
	uint8_t where;
	bool rests;  /* on the host and not mapped yet (deferred map) */
	bool empty;  /* nothing was copied when it left, and it has not been mapped since: it holds nothing */
	bool comes;  /* the waiting submission is to find it on the device */
	bool stays;  /* not movable */
	bool doomed; /* freed while it was being moved */
};

struct run {
	const struct job *job;
	const struct run_setting *setting;
	const struct run_costs *costs;
	struct run_result *result;
	struct plan *plan;
	struct scheduler scheduler;
	double now;        /* the mover's time */
	double progressed; /* when the mover last saw that the GPU has completed a submission */
	double asked_at;   /* when the waiting submission began to wait */

	struct spot *spots;            /* by piece */
	uint64_t *used;                /* by block: the last submission that named a piece of it, from 1 */
	uint64_t device_units, in_use; /* the budget without memory outside the heap; the part of it in use */
	uint64_t host_units, on_host;
	uint64_t outside;     /* bytes */
	uint32_t warm[SIZES]; /* by length: device memory that is created and free */
	uint64_t unmade;      /* free units for which no device memory is created */
	struct lane in, out;

	/* What is alive, as the mover has heard. */
	struct {
		struct live_map *map; /* NULL: no births were recorded */
		uint64_t number;      /* submissions that it has heard of ... */
		uint64_t *own;        /* ... by thread */
	} live;
	bool spilled; /* something has been placed on the host */

	/* State of the program. */
	size_t next;    /* the next event */
	double cpu;     /* when the program is ready for that event */
	double *finish; /* by submission, from 1: when the GPU has finished it */
	uint64_t submitted, done;
	bool asked;     /* the next event is a submission that waits for the mover */
	bool answered;  /* the mover has answered: the submission runs with the pieces where they are */
	uint32_t room;  /* units that a new block needs and that must be evicted first; 0: no block waits */
	bool room_made; /* as much was evicted as possible: that block is placed now */
	size_t heard;   /* events before this one are known to the plan */
	size_t tried;   /* events before this one were tried: the mover may learn of them */
	bool failed;
	double begin_us;
	bool counts;

	/* In `exact` mode, whose moves happen while the device is quiesced. */
	uint32_t *maps; /* evicted pieces that must still be mapped, in a ring */
	unsigned n_maps, map_head;

	uint32_t *named; /* scratch: the pieces of one submission */
	uint32_t *aside; /* pieces that the plan must not choose until the GPU makes progress */
	unsigned n_aside;
	uint64_t seen; /* `done` when the mover last looked */
};

static inline bool run_moves(const struct run *run)
{
	return run->setting->mode == POLICY_SPILL_FAST || run->setting->mode == POLICY_SPILL_EXACT;
}

static inline double run_map_us(const struct run *run, struct run_map_cost cost, uint32_t piece)
{
	return cost.call + cost.mib * 2 * run->job->units[piece];
}

/* ---- replay_program.c ---- */
/* Advances the program and the GPU to the mover's time. */
void run_catch_up(struct run *run);
/* Returns the time of the next event that happens without the mover; 1e300 if there is none. */
double run_next(const struct run *run);
void run_place(struct run *run, uint32_t piece, enum plan_place where);
const struct job_event *run_waiter(const struct run *run);
void run_answer(struct run *run);
void run_note_peaks(struct run *run);
/*
 * Takes device memory of that length into use. Returns true if it was created and free. Otherwise it is created now,
 * after releasing other free memory if there is no room.
 */
bool run_take_device(struct run *run, uint32_t units);
/* A piece of that length does not use memory there any more. Created device memory is kept. */
void run_give(struct run *run, uint32_t units, enum plan_place where);

/* Tells the plan how to find pieces, if what is alive is known. */
void live_begin(struct run *run);
/* Puts the pieces that a submission names into run->named. Returns their number. */
unsigned live_names(struct run *run, const struct job_event *event);
/* The mover hears of all events so far, and tells the plan. */
void live_listen(struct run *run);
/* Something spills for the first time: nobody has seen what was named before. */
void live_restart(struct run *run);
/* Returns how many bytes of the piece must be copied if it moves now. */
uint64_t live_bytes(const struct run *run, uint32_t piece, bool gap);

#endif
