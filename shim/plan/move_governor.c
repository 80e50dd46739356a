/*
 * Which of the two controllers decides. Both are updated all the time.
 *
 * A program may lose its place in its past for a moment: with sequences of another length in each step, for some dozens
 * of submissions. If it had its place for HELD_NS before, what the trial has found holds for LOST_NS more; what the
 * governor has measured meanwhile, the trial decided. Measured (H100, such a GPT): by the governor nothing moved for 91
 * submissions in the middle of a step, which took 56 ms.
 */
#include "shim/plan/move_governor.h"

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

void move_governor_restart(struct move_governor *governor)
{
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
