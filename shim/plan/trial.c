/*
 * The trial: measures stretches of the program with and without moving. Times are ns, and stretches are counted since
 * the last question.
 */
#include "shim/plan/trial.h"

/* Stretches take at least this long, several periods if need be, so that chance matters little. */
#define STRETCH_NS 20000000u
/*
 * Stretches before the first question; the factor by which the wait grows with each answer that changes nothing; and
 * its limit.
 */
#define WAIT_FIRST 2
#define WAIT_GROWS 4
#define WAIT_MOST  4096
/*
 * If not moving seems to take more than CLEAR times as long, the first question comes only after WAIT_CLEAR stretches.
 */
#define CLEAR      2
#define WAIT_CLEAR 32
/*
 * Stretches before the question while not moving: it costs more then, because what has stayed on the host must be
 * fetched first.
 */
#define WAIT_STAY 32
/*
 * Two stretches are alike if they differ by no more than this share of one. Questions wait for alike stretches, but
 * after UNSTEADY_MOST unsteady ones they wait no longer.
 */
#define ALIKE         8
#define UNSTEADY_MOST 16

void trial_init(struct trial *trial)
{
	*trial = (struct trial){.wait = WAIT_FIRST};
}

static void trial_begin(struct trial *trial, enum trial_state state, uint64_t now_ns, uint64_t finished)
{
	trial->state = state;
	trial->mark = finished;
	trial->mark_ns = now_ns;
}

static void trial_settle(struct trial *trial, enum trial_state state, unsigned wait, uint64_t now_ns, uint64_t finished)
{
	trial->n = trial->n_unsteady = 0;
	trial->last_ns = 0;
	trial->wait = wait < WAIT_MOST ? wait : WAIT_MOST;
	trial_begin(trial, state, now_ns, finished);
}

/*
 * Handles the end of a stretch in the present state: remembers the shortest, and asks the question when it is due. A
 * state that has just begun is not judged by its beginning, when host memory is pinned and everything is in the wrong
 * place.
 */
static void trial_measure(struct trial *trial, uint64_t now_ns, uint64_t finished, enum trial_state ask)
{
	uint64_t elapsed = now_ns - trial->mark_ns;

	if (elapsed < STRETCH_NS && !trial->stretch)
		return;
	uint64_t done = finished - trial->mark;
	/*
	 * The first stretch sets the length, in whole periods. The ends of later ones are noticed a little late, so
	 * their times are scaled to that length.
	 */
	if (!trial->stretch)
		trial->stretch = done / trial->period * trial->period;
	elapsed = (uint64_t)((double)elapsed * (double)trial->stretch / (double)done);
	uint64_t last = trial->last_ns, apart = elapsed > last ? elapsed - last : last - elapsed;
	bool steady = last && apart <= last / ALIKE;
	trial->last_ns = elapsed;
	if (!trial->best_ns || !steady || elapsed < trial->best_ns)
		trial->best_ns = elapsed;
	else
		trial->best_ns += (elapsed - trial->best_ns) / 4;
	trial->n += steady;
	trial->n_unsteady += !steady;
	if (ask == TRIAL_ASK_STAY && trial->wait < WAIT_CLEAR &&
	    trial->still_ns * trial->stretch > CLEAR * trial->best_ns)
		trial->wait = WAIT_CLEAR;
	bool due = trial->n >= trial->wait || trial->n_unsteady >= UNSTEADY_MOST + trial->wait;
	trial_begin(trial, due ? ask : trial->state, now_ns, finished);
}

bool trial_prefers_moving(const struct trial *trial)
{
	return trial->state == TRIAL_MOVE || trial->state == TRIAL_ASK_STAY;
}

bool trial_moves(struct trial *trial, uint64_t now_ns, uint64_t finished, uint64_t period, uint64_t still_ns)
{
	uint64_t elapsed = now_ns - trial->mark_ns, best = trial->best_ns;

	trial->still_ns = still_ns;
	/*
	 * This is the first call, or the period has become longer by more than steps differ: what was measured was a
	 * part of a period.
	 */
	if (!trial->period || (trial->stretch && 2 * period > 3 * trial->stretch)) {
		trial_init(trial);
		trial->period = period;
		trial_begin(trial, TRIAL_MOVE, now_ns, finished);
		return true;
	}
	bool over = finished - trial->mark >= (trial->stretch ? trial->stretch : period);
	switch (trial->state) {
	case TRIAL_MOVE:
		if (over)
			trial_measure(trial, now_ns, finished, TRIAL_ASK_STAY);
		break;
	case TRIAL_STAY:
		if (over)
			trial_measure(trial, now_ns, finished, TRIAL_ASK_MOVE);
		break;
	case TRIAL_ASK_STAY:
		if (over && elapsed < best - best * TRIAL_GAIN / 100) {
			trial->best_ns = elapsed;
			trial_settle(trial, TRIAL_STAY, WAIT_STAY, now_ns, finished);
		} else if (over || elapsed > best) {
			trial_settle(trial, TRIAL_MOVE, trial->wait * WAIT_GROWS, now_ns, finished);
		}
		break;
	case TRIAL_ASK_MOVE:
		if (over && elapsed < best - best * TRIAL_GAIN / 100) {
			trial->best_ns = elapsed;
			trial_settle(trial, TRIAL_MOVE, WAIT_FIRST, now_ns, finished);
		} else if (over || elapsed > 2 * best) {
			trial_settle(trial, TRIAL_STAY, trial->wait * WAIT_GROWS, now_ns, finished);
		}
		break;
	}
	return trial->state == TRIAL_MOVE || trial->state == TRIAL_ASK_MOVE;
}
