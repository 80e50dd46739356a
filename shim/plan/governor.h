// SPDX-License-Identifier: Apache-2.0
/*
 * governor.h: whether memory moves, how much of it at once, and when it leaves for the turn of another process.
 */
#ifndef SPILLWAY_GOVERNOR_H
#define SPILLWAY_GOVERNOR_H

#include "shim/plan/plan.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- how much at once ---- */

/*
 * Limits on the device memory that moving itself takes up: what is kept free, what is in flight, and what is fetched
 * ahead of its use. The program cannot use that memory meanwhile. Pure functions; all sizes in bytes. budget: of the
 * device. largest: size of the largest piece.
 */

/*
 * Returns how much device memory the mover tries to keep free in `fast`, so that fetches need not wait for evictions.
 */
uint64_t move_limits_reserve(uint64_t budget, uint64_t largest);
/* Returns the limit on bytes in flight in one direction: with less than that in flight, another copy may begin. */
uint64_t move_limits_under_way(uint64_t budget, uint64_t largest);
/* Returns how much may be fetched ahead of its use: beside kernels, or in a gap. */
uint64_t move_limits_ahead(uint64_t budget, bool gap);
/* Returns the size up to which room is made for new blocks. Larger blocks are placed where there is room. */
uint64_t move_limits_new(uint64_t budget);
/*
 * Returns a number of submissions, for a program of this period. A piece that is needed within them is not evicted for
 * future new blocks.
 */
uint64_t move_limits_not_soon(uint64_t period);

/* ---- when memory leaves ---- */

/*
 * When the memory of a process should leave for the turn of another. Memory in which nothing is alive leaves, and comes
 * back, without a copy (mover/migrate.c). A training job has most alive in the middle of a step and least at its end.
 * So a switch at the end copies only a part of what other switches do: of a GPT of 14.4 GiB 3.6 (H200). The length of
 * a step need not be known: the least of the last seconds is, and is waited for within a bound. Pure: no clock.
 */

/* ns: the least of this window and of the one before count, so a step may be so long. */
#define LEAVE_MOMENT_WINDOW UINT64_C(2000000000)

/* Must be zeroed at first. */
struct leave_moment {
	uint64_t began;    /* ns: the present window; 0: nothing was seen yet */
	uint64_t least[2]; /* bytes alive: in the present window, and in the one before */
	uint64_t due;      /* ns: since when it should leave; 0: it should not */
};

/* Tells how many bytes are alive. To be called some times in a step, as long as the process works. */
void leave_moment_see(struct leave_moment *moment, uint64_t now, uint64_t alive);
/*
 * Returns whether to leave now: nearly as little is alive as at the end of a step, leaving has been due for `bound` ns,
 * or nothing was seen yet. To be called at each look while leaving is due; leave_moment_off() when it is not, or done.
 */
bool leave_moment_is_now(struct leave_moment *moment, uint64_t now, uint64_t alive, uint64_t bound);
void leave_moment_off(struct leave_moment *moment);

/* ---- by rates ---- */

/*
 * the governor for programs without a period: decides whether memory may move on demand. For such a program
 * moving what is used can be worse than leaving it on the host. This state machine measures both and takes the better
 * one, such that trying costs a few percent at most. It is pure (the time is passed in), and only one thread, the
 * mover, may use it.
 *
 * The promise: if rates are steady for some seconds at a time, work takes at most 10 % longer than with moving switched
 * off, plus a quarter of a second.
 */

enum governor_state {
	GOVERNOR_STAY,  /* not moving; measures until the next try is due */
	GOVERNOR_TRY,   /* moving, to compare; ends early if it is clearly worse */
	GOVERNOR_MOVE,  /* moving, because it was better */
	GOVERNOR_CHECK, /* not moving for a moment, to see whether moving is still better */
};

#define GOVERNOR_RATES 5 /* number of epochs that a rate is the median of */

/* A rate of progress: the median of the latest epochs. */
struct governor_rate {
	double of[GOVERNOR_RATES]; /* submissions per ms in the latest epochs, the newest first */
	unsigned n;
};

struct governor {
	enum governor_state state;
	bool started, known;
	uint64_t now_ns, submissions, moved_bytes; /* arguments of the latest call */
	uint64_t since_ns;                         /* when the state began */
	uint64_t epoch_ns, epoch_work;             /* the present epoch so far; only time that counts */
	bool epoch_moved;                          /* memory moved in the present epoch */
	struct governor_rate still, moving;        /* rates without and with moving */
	double settled;                            /* the rate soon after moving was taken up; 0: not known yet */
	double lost_ns;            /* time lost in this state against the rate without moving; below 0: gained */
	double credit_ns;          /* time that trying may still lose */
	uint64_t wait_ns, next_ns; /* back-off: time from one try, or check, to the next, and when that is */
};

/* Initializes a governor, in the state GOVERNOR_STAY. */
void governor_init(struct governor *governor);

/*
 * Updates the governor; must be called every few milliseconds while the engine runs. All counts are cumulative.
 * submissions: those that the GPU has *completed*; the number submitted can be a thousand ahead of it and says nothing.
 * known: plan_knows(); moving is then taken unless it turns out to be worse. Returns whether pieces may move now.
 */
bool governor_moves(struct governor *governor, uint64_t now_ns, uint64_t submissions, uint64_t moved_bytes, bool known);

/* ---- by trial ---- */

/*
 * The trial decides whether moving pays for a program with a known period. It compares the time of one stretch of the
 * program (at least one period) with moving to the same stretch without. Now and then moving stops for a stretch. If
 * the stretch is not over in the time that moving takes, moving is better and resumes at once. So a question costs at
 * most one stretch. Questions come ever more rarely, and late where the answer seems clear, because a program that
 * touches little of what it names may surprise. If moving loses, it stops. It is tried again in the same way, but for
 * up to twice the time of a stretch.
 *
 * Pure like the governor, which does this for programs without a period. Only one thread, the mover, may use it.
 */

#define TRIAL_GAIN 5 /* percent that a change must gain */

enum trial_state {
	TRIAL_MOVE,     /* moving; stretches are measured */
	TRIAL_ASK_STAY, /* one stretch without moving, to compare */
	TRIAL_STAY,     /* not moving, because that was better */
	TRIAL_ASK_MOVE, /* one stretch with moving, to compare */
};

struct trial {
	enum trial_state state;
	uint64_t period;        /* submissions, as passed last */
	uint64_t mark, mark_ns; /* completed submissions, and time, when the stretch began */
	uint64_t stretch;       /* submissions of a stretch: as many periods as take at least STRETCH_NS */
	uint64_t best_ns;       /* the shortest recent stretch in the present state */
	uint64_t last_ns;       /* the latest stretch */
	uint64_t still_ns;      /* as passed last */
	/* n: stretches like the one before since the last question; wait: how many the next question needs */
	unsigned n, wait;
	unsigned n_unsteady; /* stretches that were not like the one before */
};

/*
 * Initializes a trial, in the state TRIAL_MOVE. Also to be called when memory lies elsewhere now: what was measured is
 * void then.
 */
void trial_init(struct trial *trial);
/*
 * Updates the trial. finished: submissions that the GPU has completed since the start. period: of the program, in
 * submissions; not 0. still_ns: the least time that a submission takes without moving, as far as is known, if the GPU
 * touches all that it names; 0: not known. Returns whether memory may move.
 */
bool trial_moves(struct trial *trial, uint64_t now_ns, uint64_t finished, uint64_t period, uint64_t still_ns);

/* ---- which of the two ---- */

/*
 * The move governor decides whether memory may move because it pays. It asks the trial where the future is known or was
 * a moment ago, else the governor, and neither at the very beginning. Pure: the caller has the clock. Only one thread,
 * the mover, may use it.
 */

struct move_governor {
	struct governor by_rate;
	struct trial trial;
	bool allows;          /* moving is allowed at present */
	uint64_t found;       /* ns: since when the future has been known; 0: it is not */
	uint64_t holds_until; /* ns: until then, what the trial has found holds even if the future is not known */
	bool knows_most;      /* the next use of most memory was known at some time since `begun` */
	uint64_t begun;       /* ns: when it began to measure; 0: not yet */
};

/* What the program and the mover have done since the start. */
struct move_work {
	uint64_t n_submissions, named_bytes; /* submissions that were read, and what they named */
	uint64_t done;                       /* submissions that the GPU has completed */
	uint64_t moved_bytes;                /* either way */
	uint64_t unit_ns;                    /* recent time to fetch one unit; 0: not known */
};

/* Initializes it; moving is allowed. */
void move_governor_init(struct move_governor *governor);
/*
 * Updates `allows`; must be called every few milliseconds while the engine runs. Returns whether moving was switched on
 * or off because of its cost.
 */
bool move_governor_update(struct move_governor *governor, const struct plan *plan, uint64_t now_ns,
			  const struct move_work *work);

#endif
