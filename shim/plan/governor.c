/*
 * The governor: a state machine that compares progress with and without moving. Rates are completed submissions per
 * time. Launches differ, so a rate is the median of several epochs. An epoch is EPOCH_NS or EPOCH_WORK submissions,
 * whichever ends later (but at most EPOCH_LONG_NS), and no state is changed for a difference below CLEAR.
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
#include "shim/plan/governor.h"

#include <string.h>

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

static void rate_add(struct governor_rate *rate, double value)
{
	memmove(rate->of + 1, rate->of, sizeof(rate->of) - sizeof(rate->of[0]));
	rate->of[0] = value;
	rate->n += rate->n < GOVERNOR_RATES;
}

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

static void wait_from(struct governor *governor, uint64_t first_ns, bool longer)
{
	governor->wait_ns = longer && governor->wait_ns ? governor->wait_ns * 2 : first_ns;
	if (governor->wait_ns > WAIT_MOST_NS)
		governor->wait_ns = WAIT_MOST_NS;
	governor->next_ns = governor->now_ns + governor->wait_ns;
}

static void governor_pay(struct governor *governor)
{
	if (governor->lost_ns > 0)
		governor->credit_ns -= governor->lost_ns;
}

static void governor_fail(struct governor *governor)
{
	governor_pay(governor);
	governor_enter(governor, GOVERNOR_STAY);
	wait_from(governor, WAIT_FIRST_NS, true);
}

static void governor_succeed(struct governor *governor)
{
	governor_pay(governor);
	governor_enter(governor, GOVERNOR_MOVE);
	wait_from(governor, CHECK_FIRST_NS, false);
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
	rate_add(rate, (double)governor->epoch_work / ((double)governor->epoch_ns / MS));
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
		governor_fail(governor);
		return;
	}
	if (!complete || governor->moving.n < FIRST_EPOCHS)
		return;
	double moving = rate_of(&governor->moving);
	if (moving > still * CLEAR || (known && moving * CLEAR > still))
		governor_succeed(governor);
	else if (governor->now_ns - governor->since_ns > TRY_MOST_NS)
		governor_fail(governor); /* about equal: then the link is better left alone */
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
	if (still <= moving) {
		governor_enter(governor, GOVERNOR_MOVE);
		wait_from(governor, CHECK_FIRST_NS, true);
	} else {
		governor_enter(governor, GOVERNOR_STAY);
		wait_from(governor, WAIT_FIRST_NS, false);
	}
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
