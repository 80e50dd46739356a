// SPDX-License-Identifier: Apache-2.0
/*
 * gpu_job.h: jobs of several processes, or of one that uses several GPUs, take turns (gpu_turn.h) together. Decides
 * which processes are one job, makes one member of turns of those that use a GPU, and brings all processes of a job, on
 * all their GPUs, from running to away and back in steps: all are stopped before the memory of any moves, and all are
 * back before any runs. Pure: no clock, no CUDA. What it decides by is published in the accounts of the GPUs
 * (accounting/gpu_account.h).
 *
 * A *seat* is a process in the account of one GPU; a process that uses several has as many seats. Two seats are of one
 * job if they are of one process, or their processes have the number of a job's name in common. A process has the same
 * number and name in all accounts, and accounts have the same order for all processes.
 *
 * The first seat of a job that takes part leads it: it publishes a phase, and the others follow it. A leader that dies
 * or falls silent is replaced by the next seat, which goes on with the phase that it followed last.
 *
 *  - A job asks for the turn of a GPU only if it has the turns of all its GPUs before that one, and keeps those that it
 *    has until it has run. Whoever waits for a GPU that a job keeps waits for one that waits for a later GPU only, so
 *    the waits make no circle: the job that waits for the last GPU waits for one that runs, and whose turn ends.
 *  - A job whose turn is over on one of its GPUs, or that runs without the turn of one, stops. If one does not stop,
 *    all run on, and it is tried again later.
 *  - When all are stopped, all move their memory out, and the turns of all GPUs are given on: the memory of the next
 *    job comes while that of this one leaves. One that joins meanwhile, and cannot be stopped, runs without the turn.
 *  - When the job has the turns of all its GPUs again, all move their memory back; then all run.
 */
#ifndef SPILLWAY_GPU_JOB_H
#define SPILLWAY_GPU_JOB_H

#include "shim/plan/gpu_turn.h"
#include "shim/plan/residence.h"

#include <stdbool.h>
#include <stdint.h>

#define GPU_JOB_DEVICES 64   /* accounts that are looked at: more than a machine has GPUs */
#define GPU_JOB_SEATS   1024 /* of all of them */
/* ns: after a process could not be stopped, all run on for so long. */
#define GPU_JOB_PAUSE UINT64_C(250000000)
/*
 * ns: a process that has not been stopped after this time has failed. It is more than a try to stop one takes at most
 * (mover/orders.c, 0.2 s without progress), for a GPU that does make some.
 */
#define GPU_JOB_STOP UINT64_C(1000000000)

/*
 * ns: all processes of a job are stopped at the same time, so long after the order: then the least work is on its way
 * that waits for what another has not submitted yet. Each of them looks every 5 ms.
 */
#define GPU_JOB_NOTICE UINT64_C(12000000)

enum gpu_job_phase {
	GPU_JOB_RUN,
	GPU_JOB_STOP_ALL,
	GPU_JOB_LEAVE,
	GPU_JOB_RETURN,
};

enum gpu_job_step {
	GPU_JOB_STAYS,
	GPU_JOB_STOPS,
	GPU_JOB_LEAVES,
	GPU_JOB_RETURNS,
	GPU_JOB_OPENS,
};

/* What a process publishes about its job. Times are ns of CLOCK_MONOTONIC, 0: none. */
struct gpu_job_claim {
	uint64_t process;       /* its own number (base/user_dir.h): the same in all accounts that it is in; not 0 */
	uint64_t name;          /* the number of the job's name; 0: none */
	uint64_t wants;         /* since when a submission of its own waits for the turn */
	uint64_t refuses_until; /* until when the job takes no part, because it could not be stopped */
	uint64_t phase;         /* enum gpu_job_phase: of the job, as this process leads it or has last followed */
	uint64_t attempt;       /* to stop it; grows */
	uint64_t stop_at;       /* when all are to stop, in that attempt */
	uint64_t failed;        /* the attempt at which this process could not be stopped, or not come back */
	uint64_t state;         /* enum residence */
	uint64_t over;          /* 1: the turn of this GPU should go to another */
	uint64_t ran;           /* number of the turn in which its memory came back last, or was to, or it ran */
};

struct gpu_job_seat {
	uint32_t device; /* number of the account; seats are ordered by it, and then by slot */
	uint32_t slot;
	bool takes_part; /* gpu_turn_takes_part() */
	uint64_t idle;   /* of its claim */
	struct gpu_job_claim claim;
	uint32_t job; /* number of the job: gpu_job_find() */
};

/* The turn of one GPU, as the account says. */
struct gpu_job_turn {
	bool on;
	uint64_t number;
	uint32_t holder; /* slot, or GPU_TURN_NOBODY */
};

struct gpu_job_view {
	uint64_t now;
	struct gpu_job_turn turns[GPU_JOB_DEVICES];
	uint32_t n, self; /* seats; that of this process in the account that it looks at */
	struct gpu_job_seat seats[GPU_JOB_SEATS];
};

/* What the leader keeps between its looks. */
struct gpu_job_lead {
	uint64_t attempt;    /* to stop the job that it has begun, or has seen first after another leader */
	uint64_t since;      /* when that was */
	uint64_t not_before; /* it does not begin before this time */
};

/* Returns whether the two processes have an id in common. */
bool gpu_job_share(const struct gpu_job_claim *a, const struct gpu_job_claim *b);
/* Sets the number of the job of each seat: that of its first seat. */
void gpu_job_find(struct gpu_job_view *view);
/* Returns whether the job of `self` has other seats that take part. */
bool gpu_job_is_many(const struct gpu_job_view *view);
/* Returns until when the job of `self` takes no part, because one of its processes could not be stopped. */
uint64_t gpu_job_refuses_until(const struct gpu_job_view *view);

/*
 * Makes one member of all members of a job that take part. numbers: of the members' jobs, by member. Stores in
 * ret_units the new members, and in ret_unit the number of each old one among them, and returns how many there are.
 * Those that take no part stay as they are.
 */
uint32_t gpu_job_fold(const struct gpu_turn_view *view, const uint32_t *numbers, struct gpu_turn_member *ret_units,
		      uint32_t *ret_unit);

/* The following are about the job of `self`, which gpu_job_find() must have found. */

/* Returns whether `self` leads it, or speaks for it on its GPU: it is the first seat there that takes part. */
bool gpu_job_leads(const struct gpu_job_view *view);
bool gpu_job_speaks(const struct gpu_job_view *view);
/* Returns whether it has the turn of the GPU of `self`, or none is needed there. */
bool gpu_job_holds(const struct gpu_job_view *view);
/* Returns since when all of it, on all GPUs, has nothing to do; 0: it works. */
uint64_t gpu_job_idle(const struct gpu_job_view *view);
/* Returns since when it waits for the turn of the GPU of `self`; 0: it does not, or may not ask for it yet. */
uint64_t gpu_job_waits(const struct gpu_job_view *view);
/*
 * Returns whether the one that speaks for it must give the turn of its GPU on now: all of the job leave or are away,
 * and it has had the turn of one of its GPUs, or does not have that of an earlier one any more, or does not want any.
 */
bool gpu_job_is_done(const struct gpu_job_view *view);
/*
 * The turn of its GPU was given to that slot, or to GPU_TURN_NOBODY. To be called before anything else is decided by
 * the view: the job must not come back in a turn that it has just given on.
 */
void gpu_job_given(struct gpu_job_view *view, uint32_t slot);
/*
 * To be called by the one that leads: chooses the phase, in the claim that `self` is going to publish. Returns whether
 * an attempt to stop the job has just failed.
 */
bool gpu_job_choose(const struct gpu_job_view *view, struct gpu_job_lead *lead, struct gpu_job_claim *claim);
/* Returns whether memory of `self` should go on to come back: the job has the turn, and none of it has failed. */
bool gpu_job_is_to_come(const struct gpu_job_view *view);
/* To be called by the others: takes the phase of the leader. */
void gpu_job_follow(const struct gpu_job_view *view, struct gpu_job_claim *claim);
/* Returns what the process must do, by its state and the phase in that claim. */
enum gpu_job_step gpu_job_next(const struct gpu_job_view *view, const struct gpu_job_claim *claim);

#endif
