/*
 * trial.h: does moving by a known future pay? The time of one stretch of the program (at least one of its periods) with
 * moving is compared with the same stretch without: now and then moving stops for a stretch, and if that is not over
 * in the time that moving takes, moving is better and goes on at once. So asking costs at most one stretch, and is done
 * ever more rarely, and late where the answer seems clear: a program that touches little of what it names may surprise.
 * Where moving loses it stops, and is tried again in the same way.
 *
 * Pure, as governor.h, which does this for programs without a period. One thread (the mover's) uses it.
 */
#ifndef SPILLWAY_TRIAL_H
#define SPILLWAY_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

enum trial_state {
	TRIAL_MOVE,     /* moving; stretches are measured */
	TRIAL_ASK_STAY, /* a stretch without, to see */
	TRIAL_STAY,     /* not moving, as that was better */
	TRIAL_ASK_MOVE, /* a stretch with, to see */
};

struct trial {
	enum trial_state state;
	uint64_t period;        /* submissions, as last told */
	uint64_t mark, mark_ns; /* the stretch began */
	uint64_t stretch;       /* submissions of a stretch: as many periods as take STRETCH_NS at least */
	uint64_t best_ns;       /* the shortest stretch of the present state lately */
	uint64_t last_ns;       /* the latest one */
	uint64_t still_ns;      /* as last told */
	unsigned n, wait;    /* stretches since the last question that were like the one before, and until the next */
	unsigned n_unsteady; /* those that were not */
};

void trial_init(struct trial *trial);
/*
 * finished: submissions the GPU has done, ever. period: of the program, in submissions; not 0. still_ns: what is known of
 * the time a submission takes at least without moving, if the GPU touches all that it names; 0: nothing. True: move.
 */
bool trial_moves(struct trial *trial, uint64_t now_ns, uint64_t finished, uint64_t period, uint64_t still_ns);

#endif
