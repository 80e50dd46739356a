// SPDX-License-Identifier: Apache-2.0
/*
 * replay_run.h: runs a job through the library's own scheduler and plan (shim/plan/scheduler.h) with a simulated clock,
 * GPU and link. The same job and setting give the same result.
 *
 * The simulation follows the loop of the mover (shim/mover/mover.c): one thread reads new submissions, handles copies
 * that have ended, and asks the scheduler. There are two links, one each way; a GPU that runs submissions in order, all
 * with the same duration; and a program that submits faster than the GPU runs.
 */
#ifndef TOOLS_REPLAY_RUN_H
#define TOOLS_REPLAY_RUN_H

#include "tools/replay/replay_job.h"

/*
 * Durations and rates. M: measured separately on one H200 (driver 580, PCIe 5 x16) by the programs in test/bench; F:
 * fitted to the steps of a GPT job; A: assumed.
 */
/* us for a call, and for each MiB of it */
struct run_map_cost {
	double call, mib;
};

struct run_costs {
	double gb_per_s;   /* M: of a bare pair of copies, each way */
	double share;      /* F: the part of the link's rate that the mover reaches while the device is quiesced */
	double fast_share; /* F: and beside running kernels */
	double launch_us;  /* duration of a submission on the GPU; 0: not known, the GPU then takes no time */
	double submit_us;  /* A: duration of a submission in the program */
	double look_us;   /* A: until the mover notices that an operation has ended: half a nap and the timer's slack */
	double begin_us;  /* A: beginning a copy that has four parts */
	double unmap_us;  /* M: unmapping a piece of device memory */
	double turn_us;   /* M: mapping device memory while copies to the host run: the wait for them */
	double map_us;    /* M: mapping device memory otherwise */
	double pause_us;  /* M: the time that the link to the host loses by such a mapping */
	double remake_us; /* M: outside a gap: memory of another length: unmap, release, create, map */
	struct run_map_cost map_host;        /* M: mapping host memory ... */
	struct run_map_cost map_host_busy;   /* M: ... beside copies */
	struct run_map_cost unmap_host;      /* M: unmapping host memory ... */
	struct run_map_cost unmap_host_busy; /* M: ... beside copies to the device */
	double breath_us;    /* M: while quiesced: the time that the link to the host loses for each 16 MiB */
	double gap_us;       /* A: quiescing the device and releasing it */
	double still_factor; /* F: how often kernels read over the link what they name there */
};

struct run_setting {
	enum policy_spill mode;
	uint64_t budget, host_budget; /* bytes */
	struct run_costs costs;
	struct replay_steps steps;
	/* Called from time to time with the part of the run that is done, 0 to 1; may be NULL. */
	void (*progress)(void *argument, double done);
	void *argument;
};

enum run_end {
	RUN_DONE,
	RUN_DENIED,    /* the policy refused an allocation */
	RUN_NO_DEVICE, /* no device memory for an allocation that must have it */
	RUN_NO_MEMORY, /* neither device nor host memory was left */
	RUN_STUCK,     /* nothing moves and nothing can run: a bug in the simulation or the planner */
	RUN_BROKEN,    /* no memory for the simulation itself */
};

struct run_result {
	enum run_end end;
	uint32_t block;                           /* of the model: the block at which the run ended */
	int rule;                                 /* the rule that decided about it; -1: no rule */
	uint64_t submitted;                       /* submissions before the end */
	uint64_t device_used, host_used;          /* in use at the end */
	uint64_t peak_device, peak_host;          /* bytes */
	double bytes_in, bytes_out;               /* copied per step */
	double dead_in, dead_out;                 /* moved per step without a copy, because nothing was alive there */
	double bytes_link;                        /* read or written by kernels over the link, per step */
	double bytes_there;                       /* of pieces used elsewhere than on the device, per step */
	double step_ms;                           /* 0: there is no duration */
	double moves_in, moves_out, gaps, remade; /* per step */
	double foreseen;                          /* per step: submissions after which the future was known */
	bool stays;                               /* moving would take longer than leaving every piece where it is */
};

/* Returns the measured costs, with launch_us 0. */
struct run_costs run_costs_default(void);
/* Runs the job. Failures are reported in the result. */
void run_job(const struct job *job, const struct run_setting *setting, struct run_result *ret_result);

/*
 * ---- replay_limit.c: the least that a step of a run can take, whatever its plan. ----
 *
 * A launch needs the bytes that it names: those have stayed on the device since they were used before, are copied
 * there, or are used where they are. What stays is never more than the budget has room for, so the rest is the least
 * that is copied or used elsewhere (belady_carry()): of tensors whose pieces a launch names as a whole, and of pieces
 * about which nobody reports. What of that the run has used elsewhere need not be copied; copies take the time of the
 * link. In the first step that counts, anything may be on the device already.
 */

struct replay_point {
	uint64_t budget;            /* of device memory */
	double bytes_in, bytes_out; /* moved per step; 0 if everything fits */
	uint64_t over;              /* submissions that name more than fits: the rest would be read over the link */
};

/*
 * Computes what a job that was cut for this budget moves by Belady's rule (evict first what is used farthest in the
 * future), with the pieces that the library moves: a reference and no bound, because pieces differ in size. Returns
 * false if memory runs out.
 */
bool replay_belady(const struct job *job, uint64_t budget, const struct replay_steps *steps,
		   struct replay_point *ret_point);

/*
 * Computes the limit of a run that has this result: the GPU's own time of a step, or that of the link, whichever is
 * longer, in ms. Returns false if memory runs out.
 */
bool replay_limit(const struct job *job, const struct run_setting *setting, const struct run_result *result,
		  double *ret_ms);

#endif
