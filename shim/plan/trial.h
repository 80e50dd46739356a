/*
 * trial.h: the trial: decides whether moving pays for a program with a known period. It compares the time of one
 * stretch of the program (at least one period) with moving to the same stretch without. Now and then moving stops for a
 * stretch; if the stretch is not over in the time that moving takes, moving is better and resumes at once. So a
 * question costs at most one stretch. It is asked ever more rarely, and late where the answer seems clear, because a
 * program that touches little of what it names may surprise. If moving loses, it stops, and is tried again in the same
 * way.
 *
 * Pure like governor.h, which does this for programs without a period. Only one thread, the mover, may use it.
 */
#ifndef SPILLWAY_TRIAL_H
#define SPILLWAY_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

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

/* Initializes a trial, in the state TRIAL_MOVE. */
void trial_init(struct trial *trial);
/*
 * Updates the trial. finished: submissions that the GPU has completed since the start. period: of the program, in
 * submissions; not 0. still_ns: the least time that a submission takes without moving, as far as is known, if the GPU
 * touches all that it names; 0: not known. Returns whether memory may move.
 */
bool trial_moves(struct trial *trial, uint64_t now_ns, uint64_t finished, uint64_t period, uint64_t still_ns);
/* Returns whether moving was better the last time that it was asked, or if it never was. */
bool trial_prefers_moving(const struct trial *trial);

#endif
