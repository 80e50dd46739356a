/*
 * leave_moment.h: when the memory of a process should leave for the turn of another. What nothing is alive in leaves,
 * and comes back, without a copy (mover/migrate.c). A training job has most alive in the middle of a step and least at
 * its end, so a switch at that moment copies a part of what others do: of a GPT of 14.4 GiB 3.6 (H200). How long a step
 * is need not be known: the least of the last seconds is, and is waited for within a bound. Pure: no clock.
 */
#ifndef SPILLWAY_LEAVE_MOMENT_H
#define SPILLWAY_LEAVE_MOMENT_H

#include <stdbool.h>
#include <stdint.h>

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
 * Returns whether to leave now: nearly as little is alive as at the end of a step, or it should have left `bound` ns
 * ago. To be called at each look from when it should leave; leave_moment_off() when it should not, or has left.
 */
bool leave_moment_is_now(struct leave_moment *moment, uint64_t now, uint64_t alive, uint64_t bound);
void leave_moment_off(struct leave_moment *moment);

#endif
