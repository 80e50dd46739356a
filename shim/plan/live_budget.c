/* A device budget that follows what the driver has free. See live_budget.h. */
#include "shim/plan/live_budget.h"

#define UNIT        ((uint64_t)2 << 20)
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

static uint64_t live_budget_beyond(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* Returns a number below `below`. */
static uint64_t jitter(struct live_budget *budget, uint64_t below)
{
	budget->random = budget->random * 6364136223846793005u + 1442695040888963407u;
	return (budget->random >> 33) % below;
}

static uint64_t held_by_others(const struct live_budget_figures *figures)
{
	return live_budget_beyond(figures->total, figures->free + figures->used);
}

void live_budget_begin(struct live_budget *budget, const struct live_budget_figures *figures, uint64_t seed)
{
	uint64_t others = held_by_others(figures);

	*budget = (struct live_budget){
	    .limit = (figures->used + live_budget_beyond(figures->free, figures->reserve)) / UNIT * UNIT,
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
	uint64_t far = live_budget_beyond(figures->free, 2 * figures->reserve + margin) / GROW_PART;
	uint64_t near = live_budget_beyond(figures->free, reserve + margin) / GROW_PART;

	if (near > NEAR_STEP)
		near = NEAR_STEP;
	/* A smaller step would be of no use to the heap. */
	if (near < figures->piece && figures->free >= reserve + margin + 2 * figures->piece)
		near = figures->piece;
	return far > near ? far : near;
}

enum live_budget_change live_budget_look(struct live_budget *budget, const struct live_budget_figures *figures)
{
	uint64_t reserve = reserve_now(budget, figures), free = figures->free, used = figures->used;
	uint64_t most = live_budget_beyond(used + free, reserve) / UNIT * UNIT;

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
