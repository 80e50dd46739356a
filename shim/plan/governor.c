// SPDX-License-Identifier: Apache-2.0
/* Whether memory moves, how much of it at once, and when it leaves. */
#include "shim/plan/governor.h"
#include "shim/base/number.h"

#include <string.h>

/* ---- how much at once ---- */

#define MIB ((uint64_t)1 << 20)

/*
 * Memory that is free or in flight costs more than a link that idles now and then. The least that works is one piece
 * that is copied and one behind it. Measured (H200, 1.5, `fast`; ms a step of ResNet-50, of the GPT, and of one with
 * sequences of different lengths): 121, 233, 202 with these values; with 128 MiB free and 96 in flight 125, 233, 203;
 * with 256 and 192 128, 238, 207.
 */
#define RESERVE   (96 * MIB)
#define UNDER_WAY (64 * MIB)
#define PIECES    2
/* At most this share of the budget, but not less than a few pieces of the smallest size. */
#define SHARE       32
#define SHARE_LEAST (8 * MIB)

/*
 * In `fast`, memory that will be needed after a long pause must begin to come in that pause. A model of 187 GiB with
 * LoRA on 138 GiB, in replay, ms a step: 5403 with 1 GiB ahead, 5262 with 4, 4733 with 16. In a gap the GPU waits for
 * what comes, and memory that is needed later makes room for it. The fine-tune of a 7B model at 1.34: 3189 with 1 GiB,
 * 3160 with 4, 3286 with 9.
 */
#define AHEAD_SHARE    8
#define AHEAD_IN_A_GAP (4096 * MIB)

#define NEW_SHARE       4
#define NOT_SOON_PERIOD 8
#define NOT_SOON_MOST   64

static uint64_t of_budget(uint64_t budget, uint64_t bytes)
{
	return smaller(bytes, larger(budget / SHARE, SHARE_LEAST));
}

uint64_t move_limits_reserve(uint64_t budget, uint64_t largest)
{
	return of_budget(budget, larger(RESERVE, PIECES * largest));
}

uint64_t move_limits_under_way(uint64_t budget, uint64_t largest)
{
	return of_budget(budget, larger(UNDER_WAY, PIECES * largest));
}

uint64_t move_limits_ahead(uint64_t budget, bool gap)
{
	return gap ? smaller(AHEAD_IN_A_GAP, budget / AHEAD_SHARE) : budget / AHEAD_SHARE;
}

uint64_t move_limits_new(uint64_t budget)
{
	return budget / NEW_SHARE;
}

uint64_t move_limits_not_soon(uint64_t period)
{
	return smaller(NOT_SOON_MOST, period / NOT_SOON_PERIOD);
}

/* ---- when memory leaves ---- */

#define NEAR 20 /* a twentieth more than the least is as good: small tensors come and go at the end of a step, too */

void leave_moment_see(struct leave_moment *moment, uint64_t now, uint64_t alive)
{
	if (!moment->began) {
		moment->least[0] = moment->least[1] = UINT64_MAX;
		moment->began = now;
	} else if (now - moment->began >= LEAVE_MOMENT_WINDOW) {
		moment->least[1] = moment->least[0];
		moment->least[0] = UINT64_MAX;
		moment->began = now;
	}
	if (alive < moment->least[0])
		moment->least[0] = alive;
}

bool leave_moment_is_now(struct leave_moment *moment, uint64_t now, uint64_t alive, uint64_t bound)
{
	uint64_t least = moment->least[0] < moment->least[1] ? moment->least[0] : moment->least[1];

	if (!moment->due)
		moment->due = now;
	return !moment->began || alive <= least || alive - least <= least / NEAR || now - moment->due >= bound;
}

void leave_moment_off(struct leave_moment *moment)
{
	moment->due = 0;
}

/* ---- by rates ---- */

/*
 * The governor: a state machine that compares progress with and without moving. Rates are completed submissions per
 * time. Launches differ, so a rate is the median of several epochs. An epoch is EPOCH_NS or EPOCH_WORK submissions,
 * whichever ends later (but at most EPOCH_LONG_NS). A trial goes by differences above CLEAR, a CHECK by any.
 *
 * A credit bounds the loss. It grows with time, by CREDIT_SHARE of it, up to CREDIT_MOST_NS. While moving is on trial,
 * the loss against the rate without moving is summed: the time that passed minus the time that the same work takes
 * without moving. A trial begins only with CREDIT_LEAST available, and ends when it has lost all of the credit; its
 * loss is subtracted. So all trials together lose at most CREDIT_SHARE of the time plus the initial credit. After each
 * failure the next trial comes after twice the time: a program that never profits soon pays next to nothing, and one
 * whose work changes is tried again within WAIT_MOST_NS. A bad rate alone does not end a trial: fetching the working
 * set looks bad at first. The credit pays for some gigabytes of that, and what has been fetched is still there at the
 * next trial.
 *
 * The rate without moving becomes outdated while moving is on, because the work changes. So moving is interrupted for a
 * CHECK of a few epochs, ever more rarely while the result stays the same; earlier if the rate has fallen by CHANGED,
 * because the work may have changed; and at once if moving seems to lose. If the period is known, only the last
 * applies: the work does not change, and a check costs a step. If nothing is moved, moving costs nothing, and no loss
 * is counted.
 */

#define MS             UINT64_C(1000000)
#define EPOCH_NS       (40 * MS)
#define EPOCH_WORK     64
#define EPOCH_LONG_NS  (400 * MS)
#define GAP_NS         (500 * MS) /* no call for this long: program or engine rested, nothing can be concluded */
#define SETTLE_NS      (10 * MS)  /* after a change of state, moves in flight end */
#define FIRST_EPOCHS   3          /* epochs before the first trial */
#define CHECK_EPOCHS   3
#define CHANGED        1.25
#define CLEAR          1.05
#define CREDIT_SHARE   0.04
#define CREDIT_FIRST   (250.0 * MS)
#define CREDIT_MOST_NS (1000.0 * MS)
#define CREDIT_LEAST   (100.0 * MS)
#define TRY_MOST_NS    (4000 * MS)
#define WAIT_FIRST_NS  (1000 * MS)
#define CHECK_FIRST_NS (4000 * MS)
#define WAIT_MOST_NS   (60000 * MS)

/* ---- rates ---- */

/* Returns the median, of an even number of rates the lower one; 0: not known. */
static double rate_of(const struct governor_rate *rate)
{
	double sorted[GOVERNOR_RATES];

	if (!rate->n)
		return 0;
	for (unsigned i = 0; i < rate->n; i++) {
		unsigned at = i;

		for (; at && sorted[at - 1] > rate->of[i]; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = rate->of[i];
	}
	return sorted[(rate->n - 1) / 2];
}

/* ---- states ---- */

static void governor_enter(struct governor *governor, enum governor_state state)
{
	governor->state = state;
	governor->since_ns = governor->now_ns;
	governor->epoch_ns = governor->epoch_work = 0;
	governor->epoch_moved = false;
	governor->lost_ns = 0;
	if (state == GOVERNOR_TRY || state == GOVERNOR_MOVE)
		governor->moving.n = 0;
	if (state == GOVERNOR_MOVE)
		governor->settled = 0;
	if (state == GOVERNOR_CHECK)
		governor->still.n = 0;
}

static void governor_pay(struct governor *governor)
{
	if (governor->lost_ns > 0)
		governor->credit_ns -= governor->lost_ns;
}

/* Takes what was measured as the answer. The next question comes after `first_ns`, or twice the time before. */
static void governor_settle(struct governor *governor, enum governor_state state, uint64_t first_ns, bool longer)
{
	governor_pay(governor);
	governor_enter(governor, state);
	governor->wait_ns = longer && governor->wait_ns ? governor->wait_ns * 2 : first_ns;
	governor->wait_ns = smaller(governor->wait_ns, WAIT_MOST_NS);
	governor->next_ns = governor->now_ns + governor->wait_ns;
}

/* ---- one call ---- */

/*
 * Adds the time and work since the last call to the epoch. Returns true if an epoch is complete and its rate recorded.
 */
static bool epoch_add(struct governor *governor, uint64_t ns, uint64_t work, struct governor_rate *rate)
{
	governor->epoch_ns += ns;
	governor->epoch_work += work;
	if (governor->epoch_ns < EPOCH_NS || (governor->epoch_work < EPOCH_WORK && governor->epoch_ns < EPOCH_LONG_NS))
		return false;
	memmove(rate->of + 1, rate->of, sizeof(rate->of) - sizeof(rate->of[0]));
	rate->of[0] = (double)governor->epoch_work / ((double)governor->epoch_ns / MS);
	rate->n += rate->n < GOVERNOR_RATES;
	governor->epoch_ns = governor->epoch_work = 0;
	return true;
}

static void count_loss(struct governor *governor, uint64_t ns, uint64_t work)
{
	double still = rate_of(&governor->still);

	if (still > 0)
		governor->lost_ns += (double)ns - (double)work / still * MS;
}

static void governor_stay(struct governor *governor, uint64_t ns, uint64_t work, bool learned)
{
	epoch_add(governor, ns, work, &governor->still);
	if (governor->still.n < FIRST_EPOCHS || governor->credit_ns < CREDIT_LEAST)
		return;
	if (governor->now_ns >= governor->next_ns || learned)
		governor_enter(governor, GOVERNOR_TRY);
}

static void governor_try(struct governor *governor, uint64_t ns, uint64_t work, bool known)
{
	double still = rate_of(&governor->still);

	count_loss(governor, ns, work);
	bool complete = epoch_add(governor, ns, work, &governor->moving);
	if (governor->lost_ns > governor->credit_ns) {
		governor_settle(governor, GOVERNOR_STAY, WAIT_FIRST_NS, true);
		return;
	}
	if (!complete || governor->moving.n < FIRST_EPOCHS)
		return;
	double moving = rate_of(&governor->moving);
	if (moving > still * CLEAR || (known && moving * CLEAR > still))
		governor_settle(governor, GOVERNOR_MOVE, CHECK_FIRST_NS, false);
	else if (governor->now_ns - governor->since_ns > TRY_MOST_NS)
		governor_settle(governor, GOVERNOR_STAY, WAIT_FIRST_NS,
				true); /* about equal: then the link is better left alone */
}

static void governor_move(struct governor *governor, uint64_t ns, uint64_t work, uint64_t bytes, bool known)
{
	governor->epoch_moved |= bytes != 0;
	if (governor->epoch_moved)
		count_loss(governor, ns, work);
	if (governor->lost_ns < 0)
		governor->lost_ns = 0; /* earlier gains do not offset later losses */
	if (epoch_add(governor, ns, work, &governor->moving))
		governor->epoch_moved = false;
	double moving = governor->moving.n == GOVERNOR_RATES ? rate_of(&governor->moving) : 0;
	if (!governor->settled)
		governor->settled = moving;
	bool due = governor->now_ns >= governor->next_ns;
	bool changed = moving * CHANGED < governor->settled && governor->now_ns - governor->since_ns > WAIT_FIRST_NS;
	if (governor->lost_ns > CREDIT_LEAST || (!known && moving > 0 && (due || changed))) {
		governor_pay(governor);
		governor_enter(governor, GOVERNOR_CHECK);
	}
}

static void governor_check(struct governor *governor, uint64_t ns, uint64_t work)
{
	double moving = rate_of(&governor->moving);

	if (!epoch_add(governor, ns, work, &governor->still))
		return;
	double still = rate_of(&governor->still);
	if (still * 2 > moving && governor->still.n < CHECK_EPOCHS)
		return;
	if (still <= moving)
		governor_settle(governor, GOVERNOR_MOVE, CHECK_FIRST_NS, true);
	else
		governor_settle(governor, GOVERNOR_STAY, WAIT_FIRST_NS, false);
}

void governor_init(struct governor *governor)
{
	*governor = (struct governor){.state = GOVERNOR_STAY, .credit_ns = CREDIT_FIRST};
}

bool governor_moves(struct governor *governor, uint64_t now_ns, uint64_t submissions, uint64_t moved_bytes, bool known)
{
	uint64_t ns = now_ns - governor->now_ns, work = submissions - governor->submissions;
	uint64_t bytes = moved_bytes - governor->moved_bytes;
	bool learned = known && !governor->known, first = !governor->started;

	governor->started = true;
	governor->known = known;
	governor->now_ns = now_ns;
	governor->submissions = submissions;
	governor->moved_bytes = moved_bytes;
	if (first || ns > GAP_NS)
		governor_enter(governor, governor->state);
	else if (governor->credit_ns < CREDIT_MOST_NS)
		governor->credit_ns += (double)ns * CREDIT_SHARE;
	if (first || ns > GAP_NS || now_ns - governor->since_ns < SETTLE_NS)
		goto answer;
	switch (governor->state) {
	case GOVERNOR_STAY:
		governor_stay(governor, ns, work, learned);
		break;
	case GOVERNOR_TRY:
		governor_try(governor, ns, work, known);
		break;
	case GOVERNOR_MOVE:
		governor_move(governor, ns, work, bytes, known);
		break;
	case GOVERNOR_CHECK:
		governor_check(governor, ns, work);
		break;
	}
answer:
	return governor->state == GOVERNOR_TRY || governor->state == GOVERNOR_MOVE;
}

/* ---- by trial ---- */

/*
 * The trial: measures stretches of the program with and without moving. Times are ns, and stretches are counted since
 * the last question.
 */

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
 * If not moving seems to take more than SURE times as long, the first question comes only after WAIT_SURE stretches.
 */
#define SURE      2
#define WAIT_SURE 32
/*
 * Stretches before the question while not moving: it costs more then, because what has stayed on the host must be
 * fetched first.
 */
#define WAIT_STAY 32
/*
 * Two stretches are alike if they differ by no more than 1 / ALIKE of one. A question waits for `wait` alike stretches,
 * but no longer than for `wait` + UNSTEADY_MOST unsteady ones.
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
	if (ask == TRIAL_ASK_STAY && trial->wait < WAIT_SURE &&
	    trial->still_ns * trial->stretch > SURE * trial->best_ns)
		trial->wait = WAIT_SURE;
	bool due = trial->n >= trial->wait || trial->n_unsteady >= UNSTEADY_MOST + trial->wait;
	trial_begin(trial, due ? ask : trial->state, now_ns, finished);
}

/* Returns whether moving was better the last time that it was asked, or if it never was. */
static bool trial_prefers_moving(const struct trial *trial)
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
	bool moves = trial_prefers_moving(trial);
	if (trial->state == TRIAL_MOVE || trial->state == TRIAL_STAY) {
		if (over)
			trial_measure(trial, now_ns, finished, moves ? TRIAL_ASK_STAY : TRIAL_ASK_MOVE);
	} else if (over && elapsed < best - best * TRIAL_GAIN / 100) {
		trial->best_ns = elapsed;
		trial_settle(trial, moves ? TRIAL_STAY : TRIAL_MOVE, moves ? WAIT_STAY : WAIT_FIRST, now_ns, finished);
	} else if (over || elapsed > (moves ? best : 2 * best)) {
		trial_settle(trial, moves ? TRIAL_MOVE : TRIAL_STAY, trial->wait * WAIT_GROWS, now_ns, finished);
	}
	return trial->state == TRIAL_MOVE || trial->state == TRIAL_ASK_MOVE;
}

/* ---- which of the two ---- */

/*
 * Which of the two decides. After the beginning the governor is updated at each call, the trial if the future is known.
 *
 * A program may lose its place in its past for a moment: with sequences of another length in each step, for some dozens
 * of submissions. If it had its place for HELD_NS before, the result of the trial holds for LOST_NS more. The rates of
 * the governor are of a time in which the trial decided. Measured (H100, such a GPT): by the governor nothing moved for
 * 91 submissions in the middle of a step, which took 56 ms.
 */

/*
 * When a program first spills, its host memory is being pinned, which no rate accounts for, and it has no past that
 * could show what to move. Moving by recency then pins more and costs more than it gains. So nothing moves during that
 * time unless the future of most memory is known: a layer repeats itself many times before the step does. Measured
 * (GPT, 1.5, first step): 785 ms with nothing moved, 1203 with.
 */
#define FIRST_NS 1000000000

/*
 * Long enough that a place which is found for a moment now and then holds nothing; as long as the governor takes to
 * measure.
 */
#define HELD_NS 150000000
#define LOST_NS 100000000

void move_governor_init(struct move_governor *governor)
{
	*governor = (struct move_governor){.allows = true};
	governor_init(&governor->by_rate);
	trial_init(&governor->trial);
}

static bool is_too_early(struct move_governor *governor, const struct plan *plan, uint64_t now_ns)
{
	uint64_t units = 0;

	if (!governor->begun)
		governor->begun = now_ns;
	if (governor->knows_most || now_ns - governor->begun >= FIRST_NS)
		return false;
	for (int place = PLAN_HOST; place < PLAN_PLACES; place++)
		units += plan_units(plan, (enum plan_place)place);
	governor->knows_most = 2 * plan_foreseen(plan) > units;
	return !governor->knows_most;
}

/*
 * Returns the least time that a submission takes on average if nothing moves: the part of its names that lies on the
 * host crosses the link once. In ns; 0: not known.
 */
static uint64_t least_ns_still(const struct plan *plan, const struct move_work *work)
{
	double host = (double)plan_units(plan, PLAN_HOST), all = host + (double)plan_units(plan, PLAN_DEVICE);

	if (!work->n_submissions || all == 0)
		return 0;
	return (uint64_t)((double)work->named_bytes / (double)work->n_submissions * host / all / PLAN_UNIT *
			  (double)work->unit_ns);
}

bool move_governor_update(struct move_governor *governor, const struct plan *plan, uint64_t now_ns,
			  const struct move_work *work)
{
	bool allowed = governor->allows;

	if (is_too_early(governor, plan, now_ns)) {
		governor->allows = false;
		return false;
	}
	governor->allows = governor_moves(&governor->by_rate, now_ns, work->done, work->moved_bytes, plan_knows(plan));
	uint64_t period = plan_span(plan);
	if (period) {
		governor->allows =
		    trial_moves(&governor->trial, now_ns, work->done, period, least_ns_still(plan, work));
		if (!governor->found)
			governor->found = now_ns;
		if (now_ns - governor->found >= HELD_NS)
			governor->holds_until = now_ns + LOST_NS;
	} else {
		governor->found = 0;
		if (now_ns < governor->holds_until)
			governor->allows = trial_prefers_moving(&governor->trial);
	}
	return allowed != governor->allows;
}
