// SPDX-License-Identifier: Apache-2.0
/*
 * types.h: everything that this room keeps for the process, in one object (lifecycle.c), and what its files call of
 * each other. Only the files of the room use it.
 */
#ifndef SPILLWAY_LIFECYCLE_TYPES_H
#define SPILLWAY_LIFECYCLE_TYPES_H

#include "shim/accounting/gpu_account.h"
#include "shim/base/array.h"
#include "shim/base/lock.h"
#include "shim/device/device.h"
#include "shim/mover/spill.h"
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
	_Atomic bool on_request;      /* it came through the socket, not from the program itself */
	_Atomic uint64_t given_back;  /* bytes of the device, since the first suspension; 0: not suspended */
	_Atomic uint64_t wants_until; /* ns: it was to go on, and found no memory: until then it takes its share back */
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
	struct gpu_turn_member members[GPU_ACCOUNT_MOST];
};

/* ---- turn.c ---- */

/* Of one device. Only the control thread uses it. Times are ns. */
struct turn_state {
	struct gpu_account_member member; /* what this process published last */
	struct gpu_turn_claim claim;
	bool holds; /* its turn has begun */
	/*
	 * The process is due more than its budget of the device says now: another has the turn, or what others had is
	 * not there yet, or the account is not known. Of what was read last.
	 */
	bool lacks;
	bool enters;             /* it took no part in turns before this look */
	enum gpu_job_step moves; /* its memory leaves or returns just now */
	bool other_clock;        /* than most that share the device */
	unsigned look_ms;        /* turn_look_ms() */
	uint64_t most;           /* bytes that it may have by its own budget */
	uint64_t keep;           /* bytes that may stay on the device while it waits, with what cannot leave */
	uint64_t kept;           /* bytes of host memory that the heap keeps for what leaves (heap_keep_host) */
	uint64_t began, counted; /* when the turn began; up to when it is counted in the claim */
	struct leave_moment moment;
	uint64_t seen, others; /* while it comes: when others last gave up much, and what they had then */
	uint64_t given;        /* number of the turn that was given to it last */
	uint64_t out_began;    /* when it was stopped, to leave */
	unsigned failures;     /* tries to stop its job that failed, one after the other, since its last rest */
	unsigned rests;        /* of its job, because of that, one after the other */
	uint64_t not_before;   /* it gives up no more of what it keeps before this time */
	uint64_t waits_after;  /* it could not come back: it asks for no other turn before this time */
	uint64_t lost_until;   /* the account was lost: nothing changes before this time */
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
	struct gpu_job_view view;      /* large */
	struct gpu_account_view other; /* the account that is read for it; large */
	uint64_t started, space;       /* of this process, as published (struct gpu_account_member) */
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
	uint64_t pin_moves;     /* pieces moved up to the latest look at what is pinned ahead. As above. */
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

/* ---- turns ---- */

/*
 * Takes turns with the other processes that share a device (`share`). plan/gpu_turn.h decides whose turn it is,
 * plan/gpu_job.h in what steps all of a job stop, leave, come back and go on; a process alone is a job of one seat. The
 * turn is in the account of the device (accounting/gpu_account.h). Where it is not its turn, a process is held
 * (plan/residence.h): its memory is on the host, but for what no other needs in its turn, and its submissions wait at
 * the gate.
 *
 * What is promised: a process resumes only when the account names it as the holder of the turn, or when there are no
 * turns any more, and uses no more device memory than the account lets it have; who gives its turn on has stopped
 * before, and publishes what it may have as its memory leaves. A process that cannot be stopped (its GPU makes no
 * progress for a fifth of a second) keeps its turn, and after some tries its memory, while the others go on in what is
 * left.
 *
 * All functions are called on the control thread, unless they say otherwise. Cost where a process does not take turns:
 * some comparisons, ten times a second.
 */

/* Sets what this process publishes about its turns. */
void turn_claim(struct device *device, struct gpu_account_member *member);
/*
 * After the account was read: decides whose turn it is, as far as that is for this process to say. Returns true if
 * turns set the budget of the device: *ret_limit, which is raised in the account first, up to `most`.
 */
bool turn_look(struct device *device, const struct gpu_account_member *member, const struct gpu_account_view *view,
	       uint64_t most, uint64_t *ret_limit);
/*
 * The file of the account was lost. For some time nothing changes then, so that all processes are in the next one
 * first.
 */
void turn_lost(const struct device *device);
/* There is no account of the device that the process can enter: it goes on there without turns. */
void turn_alone(const struct device *device);
/*
 * For struct order_watch, while the process is being suspended on request: shows the others that it is alive, and, as
 * soon as it has stopped, that it takes no part any more, gives its turn on, and publishes its memory as that leaves.
 */
enum order_room turn_look_suspending(void *unused);
/* The process is suspended on request: it does nothing in turns until it is resumed. */
void turn_suspended(struct device *device);
/* Returns whether the process takes turns if nothing is in the way just now. */
bool turn_is_possible(void);
/* Returns after how many ms to look again because of turns; 0: they do not matter now. */
unsigned turn_look_ms(void);
/*
 * Returns whether the process's memory of the device, or of any if it is NULL, is held because it is not its turn.
 * Called on any thread.
 */
static inline bool turn_is_away(const struct device *device)
{
	return spill_held_by(device) & RESIDENCE_TURN;
}

/* ---- what is read of the account, and published there ---- */

/*
 * Processes of one job are one member of turns: a *unit* is such a job, or a process that is none (plan/gpu_job.h).
 */

/*
 * Makes the units of an account that was read. Reads those of the other devices, too, where there may be jobs. Returns
 * the number of the unit of this process.
 */
uint32_t turn_account_units(struct device *device, const struct gpu_account_view *view,
			    struct gpu_turn_view *ret_turns);
/* Returns the number of a member that stands for the unit, for gpu_account_pass(). */
uint32_t turn_account_member(uint32_t unit);
/*
 * The job of this process is done with its turn: gives it on, to others first, whatever has begun to wait here
 * meanwhile. Returns false if another process is just changing the account.
 */
bool turn_account_give_on(struct device *device, const struct gpu_account_view *view, struct gpu_turn_view *turns,
			  uint32_t self);
/* ns: others are waited for so long, from the beginning of a turn, until they have given up what they can. */
#define TURN_BEGIN 2000000000u
/* Returns the bytes that this process may have in its turn. */
uint64_t turn_account_room(const struct device *device, const struct gpu_account_view *view,
			   const struct gpu_turn_view *turns, uint32_t self);
/* Publishes what this process has now. Returns false if it is not in the account, or that is lost, and left. */
bool turn_account_publish(struct device *device, bool moving);
/*
 * While memory moves, which keeps the control thread from looking: says that the process is alive, in the accounts of
 * all devices. Does it at most so often that it costs nothing.
 */
void turn_account_beat(void);
/* Does so for all devices, while the control thread waits for movers. */
extern const struct order_watch turn_beat_watch;

/* ---- turn_act.c: what was decided is done ---- */

/*
 * The process stops, its memory leaves and comes back, and it goes on; each is published in the account while the mover
 * works. They wait for the device, for a bounded time, and for the copies. Locking: take SPILL and HEAP; the caller
 * must hold no lock.
 */

/* Of the total: a process that waits does not give up less than this. */
#define TURN_KEEP_PART 32

/*
 * After all devices were looked at: publishes phases that have changed, and moves the memory of those of which that was
 * decided, at the same time.
 */
void turn_move(void);
/* After that, and after the budget of the device was set: stops the process, or lets it go on. */
void turn_act(struct device *device);

/* ---- device budgets that follow ---- */

/*
 * Device budgets that follow what the driver has free (`device.budget: auto`; plan/gpu_turn.h decides),
 * or what the processes that share a device leave (`device.total`; accounting/gpu_account.h, plan/gpu_turn.h).
 * Functions are called on the control thread, unless they say otherwise; without it (`control: no`) budgets stay as
 * they were at the start.
 */

/*
 * Looks at each device whose budget follows what is free or is shared, evicts what is above the budget then, and takes
 * turns (turn.c). Returns after how many ms it should be called again at the latest; 0: no such device. May wait for a
 * device, for a bounded time. Locking: takes CONTEXTS, DEFERRED_FREE, SPILL and HEAP; the caller must hold no lock.
 */
unsigned follow_look(void);
/*
 * Tries once to move what is above the device's budget off the device, and gives it back to the driver. Returns whether
 * any has left. Waits for the device, for a bounded time. Locking: as follow_look().
 */
bool follow_make_fit(struct device *device);
/*
 * The process was suspended from outside, has given up its share of the devices, and is to go on: takes back what
 * nobody else has of it. What is dead has no memory, and gets some before anything runs. Locking: as follow_look().
 */
void follow_take_back(void);
/* At the end of the process: leaves the accounts of all devices. Called on any thread. */
void follow_end(void);
/* In the child of a fork: the accounts are the parent's. Async-signal-safe. */
void follow_child(void);

#endif
