// SPDX-License-Identifier: Apache-2.0
/*
 * scheduler.h: the scheduler: which piece is fetched, which is evicted, when, and whether a submission goes on waiting.
 * It has neither clock nor CUDA. What it must know, and what it orders, passes through a table of functions
 * (scheduler_ops). The mover's table is in shim/mover/schedule.c; `spillway replay` and tests have one with simulated
 * copies, and so run the very same decisions.
 *
 * Beside kernels (`fast`) a round is: scheduler_wait() for each submission that waits; scheduler_for_new()
 * if allocations wait; then scheduler_ahead(). In a gap, nothing runs, and all that is wished for
 * moves before it ends: the owner calls scheduler_gap_round(), and completes copies and maps, in turn.
 *
 * Locking: none; only one thread, the mover, may use a scheduler.
 */
#ifndef SPILLWAY_SCHEDULER_H
#define SPILLWAY_SCHEDULER_H

#include "shim/plan/governor.h"
#include "shim/plan/plan.h"

#include <stdbool.h>
#include <stdint.h>

/* The most copies in flight each way; enough that the link never waits for the mover. */
#define MOVES 24
/* The same in a gap. */
#define MOVES_AT_ONCE 8

enum migrate_answer {
	MIGRATE_BEGUN,
	MIGRATE_BUSY,    /* submissions use the piece */
	MIGRATE_NO_ROOM, /* no memory at the destination */
	MIGRATE_FAILED,  /* the driver refused; the piece is where it was */
};

/* The copies in flight in one direction. */
struct scheduler_lane {
	unsigned n;
	uint64_t bytes;
	uint64_t unit_ns; /* recent copy time of one unit; 0: not known */
};

/* What there is at one moment, in bytes of device memory. */
struct scheduler_view {
	uint64_t budget, largest, free; /* largest: size of the largest piece */
	struct scheduler_lane in, out;
	uint64_t quiet_ns; /* for how long no copy has been in flight; 0: not known, or one is */
};

/* The first argument of each function is scheduler.hand. */
struct scheduler_ops {
	void (*look)(void *hand, struct scheduler_view *ret_view);
	uint32_t (*units)(void *hand, uint32_t piece);
	/* Returns PLAN_HOST if the piece may be fetched, PLAN_MOVING if it is on its way, else anything else. */
	enum plan_place (*where)(void *hand, uint32_t piece);
	/*
	 * Begin to fetch or evict a piece. ahead: no submission waits for it. gap: in a gap; else the answer may be
	 * MIGRATE_BUSY.
	 */
	enum migrate_answer (*fetch)(void *hand, uint32_t piece, bool ahead, bool gap);
	enum migrate_answer (*evict)(void *hand, uint32_t piece, bool gap);
	/*
	 * Begins to evict a piece that the waiting submission names, as evict() does; that submission does not keep it
	 * from being evicted. Called only if no other waits.
	 */
	enum migrate_answer (*exchange)(void *hand, uint32_t piece, bool gap);
	/* Returns whether no submission is running or about to run. */
	bool (*is_idle)(void *hand);
	/* The piece, which could not move, must not be chosen (PLAN_PINNED) until the GPU makes progress. */
	void (*put_aside)(void *hand, uint32_t piece);
	/* The piece, which a submission waits for, does not come: the submission is to use it where it is. */
	void (*use_there)(void *hand, uint32_t piece);
	/* Tells the plan where the piece is (plan_set), after the scheduler has told it something else. */
	void (*tell_plan)(void *hand, uint32_t piece);

	plan_busy_function *is_busy;   /* beside kernels: the piece cannot be evicted now */
	plan_busy_function *is_in_use; /* the same in a gap */
};

/* What a submission names. */
struct scheduler_named {
	const uint32_t *pieces; /* each once */
	/*
	 * How often it uses each byte of each piece, times SCHEDULER_USE. The most used must come first. NULL: it is
	 * not known, or others wait, too.
	 */
	const uint32_t *uses;
	unsigned n;
	uint64_t who; /* with uses: a number that is equal for equal names */
	uint64_t age; /* ns since it began to wait */
};
#define SCHEDULER_USE 16

/* The submission that the latest exchange was made for. */
struct scheduler_exchanged {
	bool any;
	unsigned others; /* how often others have waited since it did */
	unsigned n;      /* pieces that have left in the present wait */
	unsigned pause;  /* waits in which nothing is exchanged, because what should have come was refused */
	/* waits in which an exchange must pay at once, because there were many; and how many after the next exchange */
	unsigned doubted, doubt;
	uint64_t who;
};

/* A piece to fetch in a gap, and the number of the submission that needs it. */
struct wish {
	uint32_t piece;
	uint32_t named; /* 1 + its index in scheduler.named; 0: none */
	uint64_t when;
	bool ahead; /* no submission waits for it */
};

/* The pieces to fetch in a gap, in the order in which they are needed. Victims are chosen as it goes on. */
#define WISHES 1024
struct wishes {
	struct wish at[WISHES];
	unsigned n, next, early; /* next: index of the next one to fetch; early: of the next one to unmap early */
	unsigned roomed;         /* those before this one have room, or will have when evictions in flight have ended */
	uint64_t units;
};

struct scheduler {
	/* Set by the owner, constant afterwards. */
	const struct scheduler_ops *ops;
	void *hand;
	struct plan *plan;

	/* A wait was given up; the owner clears it when the GPU makes progress. No submission must wait meanwhile. */
	bool stalled;
	/* A submission waits for device memory that is not free yet; the owner clears it before each round. */
	bool starving;
	/* The GPU has made progress just now, so a better victim that it still uses is worth waiting for. */
	bool patient;
	struct scheduler_exchanged exchanged;
	struct wishes wishes;
	struct scheduler_named named; /* by the submission that wishes; without uses: nothing is exchanged */
	uint32_t refused[64];         /* victims that could not be evicted in this gap */
	unsigned n_refused;
};

/* Returns whether another copy may begin in this lane: it has a free slot, and little enough is in flight. */
static inline bool scheduler_may_begin(const struct scheduler_view *view, const struct scheduler_lane *lane)
{
	return !lane->n || (lane->n < MOVES && lane->bytes < move_limits_under_way(view->budget, view->largest));
}
/* Returns how many bytes of host memory should be ready for evictions. gap: evictions happen in gaps. */
uint64_t scheduler_host_bytes(const struct scheduler_view *view, bool gap);

/* ---- beside kernels ---- */

enum scheduler_wait {
	SCHEDULER_WAITS,
	SCHEDULER_RUNS,     /* it has nothing to wait for */
	SCHEDULER_GIVEN_UP, /* it has waited in vain, and waits no longer; `stalled` is set */
};
/*
 * Begins what a waiting submission needs. waited: ns since it began to wait or the GPU made progress, whichever is
 * later.
 */
enum scheduler_wait scheduler_wait(struct scheduler *scheduler, const struct scheduler_named *named, uint64_t waited);
/*
 * Makes room for new blocks of `bytes` that allocations wait for. Returns false if nothing can be evicted for them.
 *
 * A block that starts on the host is usually fetched for the kernel that is launched next, although its contents mean
 * nothing, and something is evicted for it in any case. In the replay model, a recorded GPT on cudaMallocAsync, 1.5,
 * takes 200 ms a step without this and 163 with it, and fetches 3.6 GiB instead of 7.2; a synthetic job that allocates
 * all it needs in each step 323 and 285; one whose steps differ in size each time loses, 220 and 239.
 */
bool scheduler_for_new(struct scheduler *scheduler, uint64_t bytes);
/* Prefetches what the plan foresees, and evicts early what will have to leave. */
void scheduler_ahead(struct scheduler *scheduler);

/* ---- exchanges; only if named->uses is there ---- */

/* To be called once when the submission waits no longer; in a gap, scheduler_forget_wishes() does it. */
void scheduler_exchange_end(struct scheduler *scheduler, const struct scheduler_named *named);

/* ---- in a gap ---- */

/* Wishes are collected before the gap, and forgotten after it; forgetting tells the plan of those not fetched. */
void scheduler_wish(struct scheduler *scheduler, uint32_t piece, uint64_t when);
/*
 * Wishes for what a waiting submission names and is on the host. If its uses are known, it must be the only one, and
 * *named must stay as it is until the wishes are forgotten.
 */
void scheduler_wish_named(struct scheduler *scheduler, const struct scheduler_named *named);
/* Adds what the plan foresees, unless nothing is wished for. */
void scheduler_wish_ahead(struct scheduler *scheduler);
void scheduler_forget_wishes(struct scheduler *scheduler);
/*
 * Returns whether anything can be evicted for the first wish, or there is room, or something can be exchanged.
 * Otherwise a gap is useless.
 */
bool scheduler_gap_pays(struct scheduler *scheduler);
/* Returns whether anything that is wished for has not been begun. */
static inline bool scheduler_has_wishes(const struct scheduler *scheduler)
{
	return scheduler->wishes.next < scheduler->wishes.n;
}
/* Begins what can be begun now of what is wished for. To be called again when copies have ended. */
void scheduler_gap_round(struct scheduler *scheduler);
/*
 * Returns in *ret_piece the next piece that is to be fetched, has room, and was not returned before, for the caller to
 * unmap while it has nothing better to do, in particular at the beginning of a gap, while the first piece is being
 * evicted. Returns false if there is none. Measured (H200): unmapping takes a third of the time then that it takes
 * beside copies to the device.
 */
bool scheduler_gap_early(struct scheduler *scheduler, uint32_t *ret_piece);
/* Returns whether a gap for new blocks may find anything to evict. */
bool scheduler_gap_pays_for_new(struct scheduler *scheduler);
/*
 * Evicts pieces until `bytes` for a new block are free, and as much again as is fetched ahead in other gaps; beyond
 * `bytes`, only pieces that are not needed soon: what a program allocates in each of its steps comes in numbers, and
 * each gap makes the GPU wait. Begins what can be begun now. Returns whether copies are in flight; the caller must then
 * call it again when some have ended. *can must be true at first, and is set to false when nothing more can be evicted.
 */
bool scheduler_gap_round_for_new(struct scheduler *scheduler, uint64_t bytes, bool *can);
/* To be called before a gap ends: victims that could not be evicted may be chosen again. */
void scheduler_gap_end(struct scheduler *scheduler);

#endif
