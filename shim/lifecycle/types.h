/*
 * types.h: everything that this room keeps for the process, in one object (lifecycle.c). Only the files of the room use
 * it.
 */
#ifndef SPILLWAY_LIFECYCLE_TYPES_H
#define SPILLWAY_LIFECYCLE_TYPES_H

#include "shim/accounting/gpu_account.h"
#include "shim/base/array.h"
#include "shim/base/lock.h"
#include "shim/device/device.h"
#include "shim/plan/governor.h"
#include "shim/plan/gpu_turn.h"
#include "shim/stats/summary.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- control_request.c ---- */

/* Written by the thread that suspends or resumes, read by the control thread; the engine runs one after another. */
struct suspension_state {
	_Atomic bool on_request;     /* it came through the socket, not from the program itself */
	_Atomic uint64_t given_back; /* bytes of the device, since the first suspension; 0: not suspended */
};

/* ---- lifecycle.c ---- */

struct exit_summary_state {
	struct lock lock;    /* SUMMARY: held while it is made and printed */
	struct summary text; /* Guarded by `lock`. Large, and at exit the stack may be small. */
};

/* ---- follow.c ---- */

/* Of one device. Only the control thread uses it. */
struct follow_state {
	struct live_budget budget;
	bool begun;
	bool acts;                  /* its budget was just set: act_on() goes by it */
	unsigned refused;           /* tries to enter the account of the device that failed, one after the other */
	uint64_t submitted, worked; /* submissions at the last look; ns: when that number last changed */
	uint64_t not_before;        /* ns: after a try to evict that moved nothing, no other before this time */
};

/* What was read of an account last; too large for a stack. Only the control thread uses it. */
struct shared_state {
	struct gpu_account_view view;
	struct gpu_share_member members[GPU_ACCOUNT_MOST];
};

/* ---- turn.c ---- */

/* Of one device. Only the control thread uses it. Times are ns. */
struct turn_state {
	struct gpu_account_member member; /* what this process published last */
	struct gpu_turn_claim claim;
	bool holds;              /* its turn has begun */
	bool lacks;              /* turn_lacks() */
	bool enters;             /* it took no part in turns before this look */
	bool moves;              /* its memory moves */
	bool other_clock;        /* than most that share the device */
	unsigned look_ms;        /* turn_look_ms() */
	uint64_t most;           /* bytes that it may have by its own budget */
	uint64_t keep;           /* bytes that may stay on the device while it waits */
	uint64_t kept;           /* bytes of host memory that the heap keeps for what leaves (heap_keep_host) */
	uint64_t began, counted; /* when the turn began; up to when it is counted in the claim */
	struct leave_moment moment;
	uint64_t seen, others;  /* while it comes: when others last gave up much, and what they had then */
	uint64_t given;         /* number of the turn that was given to it last */
	uint64_t out_began;     /* when it was stopped, to leave */
	uint64_t out_ns, in_ns; /* how long its memory took to leave, and to come back */
	unsigned failures;      /* tries to suspend it that failed, one after the other */
	uint64_t not_before;    /* it gives up no more of what it keeps before this time */
	uint64_t waits_after;   /* it could not come back: it asks for no other turn before this time */
	uint64_t lost_until;    /* the account was lost: nothing changes before this time */
	/* Of its job. */
	struct gpu_job_claim job_claim; /* what this process publishes about it */
	struct gpu_job_lead lead;
	bool many;              /* it has other seats (plan/gpu_job.h) */
	bool tells;             /* it leads, and the phase has just changed */
	enum gpu_job_step step; /* what turn_act() or turn_move() is to do */
	uint64_t number;        /* of the turn at the last look */
	uint64_t decided, idle; /* when that was decided, and since when the job has had nothing to do then */
	uint64_t looked;        /* when the accounts of all devices were read */
};

/* Of all devices. Only the control thread uses it. */
struct turn_common_state {
	struct gpu_turn_member members[GPU_ACCOUNT_MOST]; /* units (turn_account_units), as read last; large */
	int weight;                                       /* as changed while the process runs; 0: the policy's */
	uint64_t refuses_until;                           /* ns: it takes no part before this time */
	uint64_t loss_since, lost; /* when the measurement of what spilling costs began, and what it had cost then */
	uint64_t beat;             /* ns: the last sign of life while memory moves */
	uint64_t loss;             /* per mille, as measured last */
};

/* ---- turn.c: what is read of accounts ---- */

/* What was read of the accounts last, for one device. Only the control thread uses it. */
struct jobs_state {
	struct gpu_job_view view; /* large */
	uint64_t started, space;  /* of this process, as published (struct gpu_account_member) */
	struct gpu_turn_member members[GPU_ACCOUNT_MOST];
	uint32_t units[GPU_ACCOUNT_MOST], n; /* of each member of the account, and how many there are */
	bool is_spread;                      /* over several machines */
};

struct lifecycle_state {
	pid_t owner; /* the process that is running (lifecycle.c). Written under START, before the stage is RUNNING. */
	struct suspension_state suspension;
	struct follow_state follow[DEVICE_MOST];
	struct shared_state shared;
	uint64_t follow_due;    /* ns: when follow_look() is due. Only the control thread uses it. */
	uint64_t no_pin_before; /* ns: no host memory is pinned ahead before. Only the control thread uses it. */
	struct turn_state turn[DEVICE_MOST];
	struct turn_common_state turn_common;
	struct jobs_state jobs;
	struct exit_summary_state summary;
	struct lock sampler_lock; /* SAMPLER: the thread that holds it takes the sample (lifecycle.c) */
};

/* Hidden, so that its address is not loaded from the GOT. */
extern struct lifecycle_state lifecycle_state __attribute__((visibility("hidden")));

static inline struct turn_state *turn_of(const struct device *device)
{
	return &lifecycle_state.turn[device->ordinal];
}

#endif
