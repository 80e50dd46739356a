// SPDX-License-Identifier: Apache-2.0
/* How processes share a GPU. */
#include "shim/plan/gpu_turn.h"
#include "shim/base/number.h"

/* ---- turns ---- */

#define UNIT ((uint64_t)2 << 20)
#define MOST ((uint64_t)1 << 52) /* more bytes than any machine has: no sum of 64 of them overflows */
#define COST_UNKNOWN                                                                                                   \
	UINT64_C(400000000) /* ns. Measured (H200): 14.3 GiB out in 0.34 s, less where much of it is dead */
#define COST_PART 33        /* switches take a 33rd of a quantum, 3 %, where patience allows it */
/*
 * Who goes first waits until the holder has had so many times the cost of a switch. Two switches take the holder off
 * the GPU and bring it back, so it keeps at least half of the time that bursts do not need. With 4, bursts every 2 s
 * that cost 0.44 s each way came ever later: 2.9 s after their time (H200).
 */
#define FIRST_AFTER 2
#define BURST_PART  8 /* a burst is short if it takes this part of a quantum at most */
/*
 * Quanta that a process may have had in advance of all others when it begins to wait: one, and what its last turn was
 * longer than that. One that has more was suspended, or in another account, while others came that had had nothing yet.
 */
#define BEHIND     2
#define SLACK_PART 32 /* of the total: turns end only when all fit, and so much more */
/*
 * ns: a step of a training job takes less as a rule (GPT of 14.4 GiB: 80 ms, H200); some steps of a large one; and the
 * part of a quantum that is waited at most, so that the times got stay as they should be.
 */
#define STEP      UINT64_C(100000000)
#define STEPS     UINT64_C(1000000000)
#define STEP_PART 8

bool gpu_turn_takes_part(const struct gpu_turn_view *view, uint32_t member)
{
	const struct gpu_turn_claim *claim = &view->members[member].claim;
	uint64_t silent = GPU_TURN_SILENT;

	if (claim->moving)
		silent += (smaller(view->members[member].needs, MOST) >> 20) * GPU_TURN_SILENT_MIB;
	return claim->kind != GPU_TURN_OFF && beyond(view->now, claim->beat) <= silent;
}

/* Returns the bytes that the member keeps while another has the turn. */
static uint64_t keeps(const struct gpu_turn_view *view, uint32_t i)
{
	const struct gpu_turn_member *member = &view->members[i];
	/* The holder's memory comes back before it says that it is not away any more. */
	bool leaves = gpu_turn_takes_part(view, i) && (!member->claim.away || i == view->holder);

	return smaller(leaves ? member->stuck : member->may_have, MOST);
}

uint64_t gpu_turn_room(const struct gpu_turn_view *view, uint32_t member)
{
	uint64_t kept = 0;

	for (uint32_t i = 0; i < view->n; i++)
		if (i != member)
			kept += keeps(view, i);
	return beyond(view->total, kept);
}

uint64_t gpu_turn_keep(const struct gpu_turn_view *view, uint32_t member)
{
	uint64_t taken = view->total / SLACK_PART, most = 0, parts = 0;

	for (uint32_t i = 0; i < view->n; i++) {
		if (i == member)
			continue;
		if (!gpu_turn_takes_part(view, i)) {
			taken += keeps(view, i);
			continue;
		}
		parts++;
		if (view->members[i].needs > most)
			most = smaller(view->members[i].needs, MOST);
	}
	uint64_t keep = beyond(view->total, taken + most) / (parts ? parts : 1);
	return keep < view->total / SLACK_PART ? 0 : keep / UNIT * UNIT;
}

uint32_t gpu_turn_in_the_way(const struct gpu_turn_view *view)
{
	uint32_t worst = GPU_TURN_NOBODY, parts = 0;
	bool refused = false;

	for (uint32_t i = 0; i < view->n; i++)
		parts += gpu_turn_takes_part(view, i);
	for (uint32_t i = 0; i < view->n && parts > 1 && !refused; i++)
		refused = gpu_turn_takes_part(view, i) &&
			  gpu_turn_room(view, i) < smaller(view->members[i].needs, view->total) / 2;
	for (uint32_t i = 0; i < view->n && refused; i++)
		if (worst == GPU_TURN_NOBODY || keeps(view, i) > keeps(view, worst))
			worst = i;
	return worst;
}

bool gpu_turn_wanted(const struct gpu_turn_view *view)
{
	uint64_t sum = view->on ? view->total / SLACK_PART : 0, loss = 0;
	uint32_t parts = 0;
	bool asked = view->on;

	for (uint32_t i = 0; i < view->n; i++) {
		const struct gpu_turn_member *member = &view->members[i];

		if (!gpu_turn_takes_part(view, i)) {
			sum += keeps(view, i);
			continue;
		}
		parts++;
		asked |= member->claim.kind == GPU_TURN_ON;
		loss += smaller(member->claim.loss, 1000);
		sum += smaller(member->needs, MOST);
	}
	return parts > 1 && sum > view->total && (asked || loss >= (uint64_t)GPU_TURN_LOSS * parts) &&
	       gpu_turn_in_the_way(view) == GPU_TURN_NOBODY;
}

/* ---- how long ---- */

static uint64_t cost_of_switch(const struct gpu_turn_view *view)
{
	uint64_t cost = 0;

	for (uint32_t i = 0; i < view->n; i++)
		if (gpu_turn_takes_part(view, i) && view->members[i].claim.cost > cost)
			cost = view->members[i].claim.cost;
	return cost ? smaller(cost, GPU_TURN_QUANTUM_MOST) : COST_UNKNOWN;
}

uint64_t gpu_turn_quantum(const struct gpu_turn_view *view, uint32_t member)
{
	uint64_t cost = cost_of_switch(view), quantum = cost * COST_PART, patience = UINT64_MAX, parts = 0;
	uint64_t weights = 0, lightest = UINT64_MAX;

	if (view->members[member].claim.quantum)
		return view->members[member].claim.quantum;
	for (uint32_t i = 0; i < view->n; i++) {
		if (!gpu_turn_takes_part(view, i))
			continue;
		uint64_t weight = view->members[i].claim.weight;
		parts++;
		weights += weight;
		lightest = smaller(lightest, weight);
		if (view->members[i].claim.patience)
			patience = smaller(patience, view->members[i].claim.patience);
	}
	/*
	 * While the lightest waits, each of the others has a turn, which is longer than a quantum by what it weighs
	 * more, and there is a switch before each of them.
	 */
	if (weights > lightest && patience != UINT64_MAX)
		quantum = smaller(quantum, beyond(patience, parts * cost) / (weights - lightest) * lightest);
	if (quantum < GPU_TURN_QUANTUM_LEAST)
		return GPU_TURN_QUANTUM_LEAST;
	return smaller(quantum, GPU_TURN_QUANTUM_MOST);
}

/* ---- who is next ---- */

static bool is_overdue(const struct gpu_turn_view *view, uint32_t i)
{
	const struct gpu_turn_claim *claim = &view->members[i].claim;

	return claim->patience && beyond(view->now, claim->waits) >= claim->patience;
}

/*
 * Returns whether the member needs only short turns, as far as is known, and has been served less than the holder. A
 * process that has not had a turn yet may need a short one. But of four jobs that start together (30 s of patience, 0.6
 * s a switch, 14 s of work each) every one would have a turn of 1.2 s first: 11 switches instead of 9 (gpu_turn_test).
 */
static bool is_short(const struct gpu_turn_view *view, uint32_t i)
{
	const struct gpu_turn_claim *claim = &view->members[i].claim, *holder;

	if ((!claim->burst && claim->n) || claim->burst > gpu_turn_quantum(view, i) / BURST_PART)
		return false;
	if (view->holder == GPU_TURN_NOBODY)
		return true;
	holder = &view->members[view->holder].claim;
	/*
	 * The holder is new if it is in its first turn and another had one before it: who has come by a switch knows
	 * what that costs. The one that ran when turns began is no newcomer.
	 */
	bool new = holder->n <= 1 && holder->cost;
	return claim->served <= holder->served && (claim->n || !new);
}

/* Returns whether a is to go before b; both wait. */
static bool goes_before(const struct gpu_turn_view *view, uint32_t a, uint32_t b)
{
	const struct gpu_turn_claim *x = &view->members[a].claim, *y = &view->members[b].claim;
	bool late = is_overdue(view, a), other_late = is_overdue(view, b);
	bool brief = is_short(view, a), other_brief = is_short(view, b);

	if (late != other_late)
		return late;
	if (late && x->waits != y->waits)
		return x->waits < y->waits;
	if (brief != other_brief)
		return brief;
	return x->served < y->served;
}

/* Returns the first of those that have something to do, but for the holder. */
static uint32_t first_waiting(const struct gpu_turn_view *view)
{
	uint32_t first = GPU_TURN_NOBODY;

	for (uint32_t i = 0; i < view->n; i++)
		if (i != view->holder && gpu_turn_takes_part(view, i) && view->members[i].claim.waits &&
		    (first == GPU_TURN_NOBODY || goes_before(view, i, first)))
			first = i;
	return first;
}

/* Returns whether the holder has had nothing to do for some time. */
static bool is_idle(const struct gpu_turn_view *view)
{
	const struct gpu_turn_claim *claim = &view->members[view->holder].claim;

	return claim->idle && beyond(view->now, claim->idle) >= GPU_TURN_IDLE;
}

uint32_t gpu_turn_next(const struct gpu_turn_view *view)
{
	uint32_t first = first_waiting(view), holder = view->holder;

	if (holder == GPU_TURN_NOBODY || !gpu_turn_takes_part(view, holder))
		return first;
	const struct gpu_turn_claim *claim = &view->members[holder].claim;
	if (first == GPU_TURN_NOBODY)
		return holder;
	if (is_idle(view))
		return first;
	uint64_t ran = beyond(view->now, view->since), quantum = gpu_turn_quantum(view, holder);
	uint64_t cost = cost_of_switch(view), least = smaller(quantum, GPU_TURN_QUANTUM_LEAST);
	if (ran >= smaller(FIRST_AFTER * cost, quantum) &&
	    ((is_overdue(view, first) && ran >= least) || is_short(view, first)))
		return first;
	/* Its own time counts now; the others have had theirs. */
	return ran >= quantum && view->members[first].claim.served <= claim->served ? first : holder;
}

uint64_t gpu_turn_may_wait(const struct gpu_turn_view *view)
{
	uint32_t first = first_waiting(view);

	if (first == GPU_TURN_NOBODY || view->holder == GPU_TURN_NOBODY || is_idle(view))
		return 0;
	bool hurries = is_overdue(view, first) || is_short(view, first);
	return smaller(hurries ? STEP : STEPS, gpu_turn_quantum(view, view->holder) / STEP_PART);
}

uint64_t gpu_turn_serve(uint64_t served, uint64_t weight, uint64_t ns)
{
	return served + ns * 100 / (weight ? weight : 1);
}

uint64_t gpu_turn_enter(const struct gpu_turn_view *view, uint32_t member)
{
	const struct gpu_turn_claim *claim = &view->members[member].claim;
	uint64_t least = UINT64_MAX, most = 0;

	for (uint32_t i = 0; i < view->n; i++) {
		uint64_t served = view->members[i].claim.served;

		if (i == member || !gpu_turn_takes_part(view, i) ||
		    !(i == view->holder || view->members[i].claim.waits))
			continue;
		least = smaller(least, served);
		most = served > most ? served : most;
	}
	if (least == UINT64_MAX)
		return claim->served;
	uint64_t part = gpu_turn_serve(0, claim->weight, gpu_turn_quantum(view, member));
	uint64_t low = beyond(least, part), high = most + smaller(BEHIND * part, UINT64_MAX - most);
	return claim->served < low ? low : smaller(claim->served, high);
}

uint64_t gpu_turn_burst(uint64_t ns, uint64_t idle)
{
	if (idle < GPU_TURN_IDLE)
		return 0;
	return ns ? ns : 1;
}

uint64_t gpu_turn_cost(uint64_t cost, uint64_t ns)
{
	if (!cost)
		return smaller(ns, COST_UNKNOWN);
	return cost - cost / 4 + smaller(ns, 4 * cost) / 4;
}

/* ---- shares ---- */

#define NEWCOMER 8 /* a newcomer needs this part of an equal part at least */

/* Returns what the member gets where nobody gets more than `level`, but for what cannot leave. */
static uint64_t at_level(const struct gpu_turn_member *member, uint64_t least, uint64_t level)
{
	uint64_t needs = larger(smaller(member->needs, MOST), least);

	return larger(smaller(needs, level), smaller(member->stuck, MOST));
}

static uint64_t sum_at(const struct gpu_turn_member *members, unsigned n, uint64_t least, uint64_t level)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < n; i++)
		sum += at_level(&members[i], least, level);
	return sum;
}

uint64_t gpu_share_of(uint64_t total, const struct gpu_turn_member *members, unsigned n, unsigned self)
{
	uint64_t least = total / n / NEWCOMER, low = 0, high = MOST;

	/* The highest level at which all of it fits. */
	while (low < high) {
		uint64_t middle = low + (high - low + 1) / 2;

		if (sum_at(members, n, least, middle) <= total)
			low = middle;
		else
			high = middle - 1;
	}
	uint64_t sum = sum_at(members, n, least, low);
	return (at_level(&members[self], least, low) + beyond(total, sum) / n) / UNIT * UNIT;
}

bool gpu_share_admits(uint64_t total, const struct gpu_turn_member *members, unsigned n, uint64_t host)
{
	uint64_t sum = 0, most = 0;

	for (unsigned i = 0; i < n; i++) {
		uint64_t needs = smaller(members[i].needs, MOST);

		sum += needs;
		most = larger(needs, most);
	}
	/* As gpu_turn_keep() has it, which leaves a 32nd part free. */
	uint64_t beside = beyond(total - total / 32, most);

	sum += most;
	return sum <= total || beyond(sum, beside) <= host;
}

/* ---- by what is free ---- */

#define GROW_AFTER  5000000000u  /* ns without a shrink */
#define GROW_EVERY  1000000000u  /* ns, on average */
#define GROW_PART   8            /* of what is free */
#define MARGIN_PART 8            /* of the reserve: above it the budget grows, so that growth never causes a shrink */
#define WARY_NS     10000000000u /* a program loads its libraries and its first data within this time */
/*
 * A context takes 400 to 500 MiB. What this process itself has charged and not made yet moves the figure by some
 * transfers, of 32 MiB each.
 */
#define NEW_PROCESS ((uint64_t)384 << 20)
/*
 * Between the reserve and twice the reserve the steps are so small that those of five processes in the same moment do
 * not look like a new process to a sixth: it would shrink, they would grow again, and so on.
 */
#define NEAR_STEP (NEW_PROCESS / 6)

/* Returns a number below `below`. */
static uint64_t jitter(struct live_budget *budget, uint64_t below)
{
	budget->random = budget->random * 6364136223846793005u + 1442695040888963407u;
	return (budget->random >> 33) % below;
}

static uint64_t held_by_others(const struct live_budget_figures *figures)
{
	return beyond(figures->total, figures->free + figures->used);
}

void live_budget_begin(struct live_budget *budget, const struct live_budget_figures *figures, uint64_t seed)
{
	uint64_t others = held_by_others(figures);

	*budget = (struct live_budget){
	    .limit = (figures->used + beyond(figures->free, figures->reserve)) / UNIT * UNIT,
	    .others = {others, others},
	    .random = seed,
	};
	/* It has never shrunk: a newcomer takes its part while the others are wary. */
	budget->grow_from = figures->now + GROW_EVERY / 2 + jitter(budget, GROW_EVERY);
}

static uint64_t reserve_now(struct live_budget *budget, const struct live_budget_figures *figures)
{
	uint64_t others = held_by_others(figures);
	uint64_t before = budget->others[0] > budget->others[1] ? budget->others[0] : budget->others[1];

	if (others >= before + NEW_PROCESS)
		budget->wary_until = figures->now + WARY_NS;
	budget->others[0] = budget->others[1];
	budget->others[1] = others;
	return figures->now < budget->wary_until ? 2 * figures->reserve : figures->reserve;
}

/* Returns by how much the limit may grow. reserve: that of now, doubled or not. */
static uint64_t growth_step(const struct live_budget_figures *figures, uint64_t reserve)
{
	uint64_t margin = figures->reserve / MARGIN_PART;
	uint64_t far = beyond(figures->free, 2 * figures->reserve + margin) / GROW_PART;
	uint64_t near = beyond(figures->free, reserve + margin) / GROW_PART;

	near = smaller(near, NEAR_STEP);
	/* A smaller step would be of no use to the heap. */
	if (near < figures->piece && figures->free >= reserve + margin + 2 * figures->piece)
		near = figures->piece;
	return far > near ? far : near;
}

enum live_budget_change live_budget_look(struct live_budget *budget, const struct live_budget_figures *figures)
{
	uint64_t reserve = reserve_now(budget, figures), free = figures->free, used = figures->used;
	uint64_t most = beyond(used + free, reserve) / UNIT * UNIT;

	if (budget->limit > most) {
		/*
		 * `used` and `free` change by the same amount while memory leaves, so the limit is lowered only once.
		 */
		budget->limit = most;
		if (free >= reserve)
			return LIVE_BUDGET_KEEPS;
		budget->grow_from = figures->now + GROW_AFTER + jitter(budget, GROW_AFTER / 2);
		return LIVE_BUDGET_SHRINKS;
	}
	uint64_t step = growth_step(figures, reserve);
	uint64_t from = used < budget->limit ? used : budget->limit, to = (from + step) / UNIT * UNIT;
	/* Who has next to nothing takes of the margin, which the others leave; they do not shrink for it. */
	uint64_t least = figures->reserve / MARGIN_PART / UNIT * UNIT;
	if (to < least)
		to = least < most ? least : most;
	if (figures->now < budget->grow_from || to <= budget->limit)
		return LIVE_BUDGET_KEEPS;
	budget->limit = to;
	budget->grow_from = figures->now + GROW_EVERY / 2 + jitter(budget, GROW_EVERY);
	return LIVE_BUDGET_GROWS;
}
