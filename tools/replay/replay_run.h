/*
 * replay_run.h: a job run through the library's own planner (shim/plan/plan.h) with a simulated clock, GPU and link.
 * Pure: no GPU, no real time; the same job and setting give the same answer.
 *
 * What is simulated is the engine's order of business (shim/mover/mover.c): one thread that hears of submissions, sees
 * copies end, brings in what is waited for and then what is foreseen, and makes room; two links, one each way; a GPU that
 * runs submissions in their order, each as long as the others; a program that submits faster than the GPU runs.
 */
#ifndef TOOLS_REPLAY_RUN_H
#define TOOLS_REPLAY_RUN_H

#include "tools/replay/replay_curve.h"

/*
 * What things take. M: measured by itself on one H200 (driver 580, PCIe 5 x16; test/bench has the programs); F: fitted to
 * the steps of a GPT job; A: assumed.
 */
/* us: a call, and each MiB of it. */
struct run_map_cost {
	double call, mib;
};

struct run_costs {
	double gb_per_s;   /* M: of a bare pair of copies, each way */
	double share;      /* F: what of that the mover gets out of the link in a gap, */
	double fast_share; /* F: and beside kernels */
	double launch_us;  /* what the GPU needs for one submission; 0: not known, then it takes no time */
	double submit_us;  /* A: what the program needs for one */
	double look_us;    /* A: until the mover sees that something has ended: half a nap and the timer's slack */
	double begin_us;   /* A: beginning a copy, of four parts */
	double unmap_us;   /* M: device memory: a piece */
	double turn_us;    /* M: mapping device memory while copies to the host run: until it has its turn */
	double map_us;     /* M: and else */
	double pause_us;   /* M: what the link to the host loses by that */
	double
	    remake_us; /* M: not in a gap: device memory of another length than what went: unmap, release, make, map */
	struct run_map_cost map_host;        /* M: host memory ... */
	struct run_map_cost map_host_busy;   /* M: ... in a gap, beside copies */
	struct run_map_cost unmap_host;      /* M: and unmapping it ... */
	struct run_map_cost unmap_host_busy; /* M: ... beside copies to the device */
	double breath_us;                    /* M: in a gap: what the link to the host loses for each 16 MiB */
	double gap_us;                       /* A: stopping and letting go */
	double still_factor;                 /* F: how many times kernels move over the link what they name there */
};

struct run_setting {
	enum policy_spill mode;
	uint64_t budget, host_budget; /* bytes */
	struct run_costs costs;
	struct replay_steps steps;
	/* Called now and then with how much of it is done, 0 to 1; may be NULL. */
	void (*progress)(void *argument, double done);
	void *argument;
};

enum run_end {
	RUN_DONE,
	RUN_DENIED,    /* by the policy */
	RUN_NO_DEVICE, /* no device memory for an allocation that must have it */
	RUN_NO_MEMORY, /* no memory on device and host together */
	RUN_STUCK,     /* nothing moves and nothing can run: a bug, here or in the planner */
	RUN_BROKEN,    /* no memory for the simulation itself */
};

struct run_result {
	enum run_end end;
	uint32_t block;                           /* of the model: at which it ended */
	int rule;                                 /* that decided about it; -1: none */
	uint64_t submitted;                       /* submissions before that */
	uint64_t device_used, host_used;          /* then */
	uint64_t peak_device, peak_host;          /* bytes */
	double bytes_in, bytes_out;               /* moved in a step */
	double bytes_link;                        /* read or written over the link in a step */
	double step_ms;                           /* 0: there is nothing to time */
	double moves_in, moves_out, gaps, remade; /* in a step */
	bool stays;                               /* moving would take longer than leaving everything where it is */
};

/* Costs as measured; launch_us 0. */
struct run_costs run_costs_default(void);
/* False never: what goes wrong is in the result. */
void run_job(const struct job *job, const struct run_setting *setting, struct run_result *ret_result);

#endif
