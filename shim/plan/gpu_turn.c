/* Whose turn it is on a GPU that several processes share. See gpu_turn.h. */
#include "shim/plan/gpu_turn.h"

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
#define BURST_PART  8  /* a burst is short if it takes this part of a quantum at most */
/*
 * Quanta that a process may have had in advance of all others when it begins to wait: one, and what its last turn was
 * longer than that. One that has more was suspended, or in another account, while others came that had had nothing yet.
 */
#define BEHIND      2
#define SLACK_PART  32 /* of the total: turns end only when all fit, and so much more */
/*
 * ns: a step of a training job takes less as a rule (GPT of 14.4 GiB: 80 ms, H200); some steps of a large one; and the
 * part of a quantum that is waited at most, so that the times got stay as they should be.
 */
#define STEP      UINT64_C(100000000)
#define STEPS     UINT64_C(1000000000)
#define STEP_PART 8

static uint64_t gpu_turn_smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t gpu_turn_beyond(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

bool gpu_turn_takes_part(const struct gpu_turn_view *view, uint32_t member)
{
	const struct gpu_turn_claim *claim = &view->members[member].claim;
	uint64_t silent = GPU_TURN_SILENT;

	if (claim->moving)
		silent += (gpu_turn_smaller(view->members[member].needs, MOST) >> 20) * GPU_TURN_SILENT_MIB;
	return claim->kind != GPU_TURN_OFF && gpu_turn_beyond(view->now, claim->beat) <= silent;
}

/* Returns the bytes that the member keeps while another has the turn. */
static uint64_t keeps(const struct gpu_turn_view *view, uint32_t i)
{
	const struct gpu_turn_member *member = &view->members[i];
	/* The holder's memory comes back before it says that it is not away any more. */
	bool leaves = gpu_turn_takes_part(view, i) && (!member->claim.away || i == view->holder);

	return gpu_turn_smaller(leaves ? member->stuck : member->may_have, MOST);
}

uint64_t gpu_turn_room(const struct gpu_turn_view *view, uint32_t member)
{
	uint64_t kept = 0;

	for (uint32_t i = 0; i < view->n; i++)
		if (i != member)
			kept += keeps(view, i);
	return gpu_turn_beyond(view->total, kept);
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
			most = gpu_turn_smaller(view->members[i].needs, MOST);
	}
	uint64_t keep = gpu_turn_beyond(view->total, taken + most) / (parts ? parts : 1);
	return keep < view->total / SLACK_PART ? 0 : keep / UNIT * UNIT;
}

uint64_t gpu_turn_leaves(const struct gpu_turn_view *view, uint32_t member)
{
	return gpu_turn_beyond(gpu_turn_smaller(view->members[member].needs, MOST), gpu_turn_keep(view, member));
}

uint32_t gpu_turn_in_the_way(const struct gpu_turn_view *view)
{
	uint32_t worst = GPU_TURN_NOBODY, parts = 0;
	bool refused = false;

	for (uint32_t i = 0; i < view->n; i++)
		parts += gpu_turn_takes_part(view, i);
	for (uint32_t i = 0; i < view->n && parts > 1 && !refused; i++)
		refused = gpu_turn_takes_part(view, i) &&
			  gpu_turn_room(view, i) < gpu_turn_smaller(view->members[i].needs, view->total) / 2;
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
		loss += gpu_turn_smaller(member->claim.loss, 1000);
		sum += gpu_turn_smaller(member->needs, MOST);
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
	return cost ? gpu_turn_smaller(cost, GPU_TURN_QUANTUM_MOST) : COST_UNKNOWN;
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
		lightest = gpu_turn_smaller(lightest, weight);
		if (view->members[i].claim.patience)
			patience = gpu_turn_smaller(patience, view->members[i].claim.patience);
	}
	/*
	 * While the lightest waits, each of the others has a turn, which is longer than a quantum by what it weighs
	 * more, and there is a switch before each of them.
	 */
	if (weights > lightest && patience != UINT64_MAX)
		quantum = gpu_turn_smaller(quantum,
					   gpu_turn_beyond(patience, parts * cost) / (weights - lightest) * lightest);
	if (quantum < GPU_TURN_QUANTUM_LEAST)
		return GPU_TURN_QUANTUM_LEAST;
	return gpu_turn_smaller(quantum, GPU_TURN_QUANTUM_MOST);
}

/* ---- who is next ---- */

static bool is_overdue(const struct gpu_turn_view *view, uint32_t i)
{
	const struct gpu_turn_claim *claim = &view->members[i].claim;

	return claim->patience && gpu_turn_beyond(view->now, claim->waits) >= claim->patience;
}

/*
 * Returns whether a holder is in its first turn and another had one before it: who has come by a switch knows what that
 * costs. The one that ran when turns began is no newcomer.
 */
static bool is_new(const struct gpu_turn_claim *claim)
{
	return claim->n <= 1 && claim->cost;
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
	return claim->served <= holder->served && (claim->n || !is_new(holder));
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

	return claim->idle && gpu_turn_beyond(view->now, claim->idle) >= GPU_TURN_IDLE;
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
	uint64_t ran = gpu_turn_beyond(view->now, view->since), quantum = gpu_turn_quantum(view, holder);
	uint64_t cost = cost_of_switch(view), least = gpu_turn_smaller(quantum, GPU_TURN_QUANTUM_LEAST);
	if (is_overdue(view, first) && ran >= least && ran >= gpu_turn_smaller(FIRST_AFTER * cost, quantum))
		return first;
	if (is_short(view, first) && ran >= gpu_turn_smaller(FIRST_AFTER * cost, quantum))
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
	return gpu_turn_smaller(hurries ? STEP : STEPS, gpu_turn_quantum(view, view->holder) / STEP_PART);
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
		least = gpu_turn_smaller(least, served);
		most = served > most ? served : most;
	}
	if (least == UINT64_MAX)
		return claim->served;
	uint64_t part = gpu_turn_serve(0, claim->weight, gpu_turn_quantum(view, member));
	uint64_t low = gpu_turn_beyond(least, part), high = most + gpu_turn_smaller(BEHIND * part, UINT64_MAX - most);
	return claim->served < low ? low : gpu_turn_smaller(claim->served, high);
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
		return gpu_turn_smaller(ns, COST_UNKNOWN);
	return cost - cost / 4 + gpu_turn_smaller(ns, 4 * cost) / 4;
}
