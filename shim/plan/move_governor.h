/*
 * move_governor.h: decides whether memory may move because it pays. It asks the trial where the future is known, else
 * the governor, and neither at the very beginning. Pure: the caller has the clock. Only one thread, the mover, may use
 * it.
 */
#ifndef SPILLWAY_MOVE_GOVERNOR_H
#define SPILLWAY_MOVE_GOVERNOR_H

#include "shim/plan/governor.h"
#include "shim/plan/plan.h"
#include "shim/plan/trial.h"

struct move_governor {
	struct governor by_rate;
	struct trial trial;
	bool allows;          /* moving is allowed at present */
	uint64_t found;       /* ns: since when the future has been known; 0: it is not */
	uint64_t holds_until; /* ns: until then, what the trial has found holds even if the future is not known */
	bool knows_most;      /* the next use of most memory has been known since `begun` */
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
/* Makes what the trial has measured void, because memory lies elsewhere now. */
void move_governor_restart(struct move_governor *governor);
/*
 * Updates `allows`; must be called every few milliseconds while the engine runs. Returns whether moving was switched on
 * or off because of its cost.
 */
bool move_governor_update(struct move_governor *governor, const struct plan *plan, uint64_t now_ns,
			  const struct move_work *work);

#endif
