/*
 * Scheduling beside kernels. Waiting submissions come first, then what the plan foresees, as far ahead as keeps the
 * link busy. Room is made a little ahead of need, so that a fetch never waits for an eviction to end.
 *
 * A demand is given up if nothing can be evicted for it (a submission that names more than fits runs with the rest on
 * the host; scheduler_exchange.c chooses which, if it is known what it uses most), or if the GPU has made no progress
 * for PATIENCE_NS: it may be held by what the waiting thread would do next.
 */
#include "shim/plan/scheduler.h"
#include "shim/plan/move_limits.h"

/* ns */
#define PATIENCE_NS 50000000
/*
 * Factor on the time that the link takes for the named pieces, to allow for mapping and for other submissions that are
 * served in between.
 */
#define BRING_FACTOR 2
/* The most prefetches that one round begins. */
#define TRIES 64

/* ---- limits ---- */

static struct scheduler_view scheduler_look(const struct scheduler *scheduler)
{
	struct scheduler_view view;

	scheduler->ops->look(scheduler->hand, &view);
	return view;
}

static uint64_t scheduler_reserve(const struct scheduler_view *view)
{
	return move_limits_reserve(view->budget, view->largest);
}

uint32_t scheduler_ahead_units(const struct scheduler_view *view)
{
	return (uint32_t)(move_limits_ahead(view->budget) / PLAN_UNIT);
}

uint64_t scheduler_host_bytes(const struct scheduler_view *view, bool gap)
{
	return gap ? move_limits_ahead(view->budget)
		   : scheduler_reserve(view) + move_limits_under_way(view->budget, view->largest);
}

/* Returns whether another copy may begin in this direction, and what there is. */
static bool lane_is_open(const struct scheduler *scheduler, enum plan_place to, struct scheduler_view *ret_view)
{
	*ret_view = scheduler_look(scheduler);
	return scheduler_may_begin(ret_view, to == PLAN_HOST ? &ret_view->out : &ret_view->in);
}

/* ---- making room ---- */

/* Tells the plan how much device memory is free, or about to be, beyond the reserve. */
static void tell_free(struct scheduler *scheduler, const struct scheduler_view *view)
{
	uint64_t bytes = view->free + view->out.bytes, reserve = scheduler_reserve(view);

	plan_set_free(scheduler->plan, bytes > reserve ? (bytes - reserve) / PLAN_UNIT : 0);
}

/* Begins to evict one piece, preferably one of `units` units where the choice makes little difference. */
static enum plan_answer send_out(struct scheduler *scheduler, uint64_t when, unsigned units)
{
	const struct scheduler_ops *ops = scheduler->ops;
	uint32_t piece;
	enum plan_answer answer = plan_victim(scheduler->plan, when, units, ops->is_busy, scheduler->hand, &piece);

	if (answer != PLAN_FOUND)
		return answer;
	switch (ops->evict(scheduler->hand, piece, false)) {
	case MIGRATE_BEGUN:
		return PLAN_FOUND;
	case MIGRATE_BUSY:
		return PLAN_BUSY;
	case MIGRATE_NO_ROOM:
		return PLAN_NONE;
	default:
		ops->put_aside(scheduler->hand, piece);
		return PLAN_BUSY;
	}
}

/*
 * Evicts pieces until `bytes` beyond the reserve are free or about to be. Returns PLAN_FOUND if evictions are in flight
 * or there is enough room, PLAN_BUSY if a piece may be evicted later, PLAN_NONE if none can.
 */
static enum plan_answer make_room(struct scheduler *scheduler, uint64_t when, unsigned units, uint64_t bytes)
{
	struct scheduler_view view = scheduler_look(scheduler);
	uint64_t wanted = scheduler_reserve(&view) + bytes;
	enum plan_answer answer = PLAN_FOUND;

	while (answer == PLAN_FOUND && scheduler_may_begin(&view, &view.out) && view.free + view.out.bytes < wanted) {
		tell_free(scheduler, &view);
		answer = send_out(scheduler, when, units);
		view = scheduler_look(scheduler);
	}
	return view.out.n ? PLAN_FOUND : answer;
}

/*
 * Begins to fetch a piece. If the result is MIGRATE_NO_ROOM, *ret_room says whether there may be room soon. The reserve
 * is made again for what is fetched next; behind the last piece that is away nothing leaves, or what fits into the
 * budget without the reserve would never stay there.
 */
static enum migrate_answer bring_in(struct scheduler *scheduler, uint32_t piece, uint64_t when, bool ahead,
				    enum plan_answer *ret_room)
{
	unsigned units = scheduler->ops->units(scheduler->hand, piece);
	enum migrate_answer answer = scheduler->ops->fetch(scheduler->hand, piece, ahead, false);

	if (answer == MIGRATE_NO_ROOM)
		*ret_room = make_room(scheduler, when, units, units * PLAN_UNIT);
	if (answer == MIGRATE_BEGUN && plan_units(scheduler->plan, PLAN_HOST))
		make_room(scheduler, when, units, 0);
	return answer;
}

/* ---- waiting submissions ---- */

/*
 * Returns whether busy pieces will stay busy: nothing that could end runs or moves. Then waiting submissions themselves
 * keep them busy, because the pieces are in their blocks, and they wait for nothing else.
 */
static bool is_deadlocked(const struct scheduler *scheduler)
{
	struct scheduler_view view = scheduler_look(scheduler);

	return !view.in.n && !view.out.n && scheduler->ops->is_idle(scheduler->hand);
}

/*
 * Begins to fetch a piece for a waiting submission. Returns true if it is worth waiting for the piece. *ret_refused: it
 * is not, and more room would not help.
 */
static bool scheduler_demand(struct scheduler *scheduler, uint32_t piece, bool *ret_refused)
{
	enum plan_answer room = PLAN_NONE;

	*ret_refused = false;
	if (scheduler_look(scheduler).in.n == MOVES)
		return true;
	switch (bring_in(scheduler, piece, plan_now(scheduler->plan), false, &room)) {
	case MIGRATE_BEGUN:
	case MIGRATE_BUSY:
		return true;
	case MIGRATE_NO_ROOM:
		if (room == PLAN_BUSY && is_deadlocked(scheduler))
			room = PLAN_NONE;
		scheduler->starving |= room != PLAN_NONE;
		return room != PLAN_NONE;
	default:
		*ret_refused = true;
		return false;
	}
}

/*
 * Returns whether a submission has waited in vain. The device makes no progress while nothing is submitted, so the time
 * in which all that is named can be fetched, each piece after another has made room, is added to the patience; but not
 * if the link, too, has done nothing for as long as the patience. That time may be far too long: it follows from the
 * measured speed of the link, and a copy that had to wait for something makes the link look slow. A submission leaves
 * after 2 s without an answer (channel.c), so with a longer time each submission would wait for 2 s.
 */
static bool is_out_of_patience(const struct scheduler *scheduler, const struct scheduler_named *named, uint64_t waited)
{
	struct scheduler_view view;
	uint64_t units = 0;

	if (waited <= PATIENCE_NS)
		return false;
	view = scheduler_look(scheduler);
	if (view.in.n || view.out.n)
		return false;
	if (view.quiet_ns > PATIENCE_NS)
		return true;
	for (unsigned i = 0; i < named->n; i++)
		units += scheduler->ops->units(scheduler->hand, named->pieces[i]);
	return waited > PATIENCE_NS + BRING_FACTOR * units * (view.in.unit_ns + view.out.unit_ns);
}

/*
 * Begins to fetch a piece of which it is known how much the submission uses it, as scheduler_demand() does. Makes room
 * by an exchange if nothing else can be evicted. Returns true if it is worth waiting for the piece.
 */
static bool demand_used(struct scheduler *scheduler, const struct scheduler_named *named, unsigned i, unsigned *looks)
{
	uint32_t victim;
	bool refused, comes = scheduler_demand(scheduler, named->pieces[i], &refused);

	if (refused)
		scheduler_exchange_refused(scheduler);
	if (refused || (comes && (!scheduler->starving ||
				  plan_victim(scheduler->plan, plan_now(scheduler->plan), 0, scheduler->ops->is_busy,
					      scheduler->hand, &victim) != PLAN_NONE)))
		return comes;
	enum plan_answer answer = scheduler_exchange(scheduler, named, i, looks);
	if (comes || answer == PLAN_NONE || (answer == PLAN_BUSY && is_deadlocked(scheduler)))
		return comes;
	scheduler->starving = true;
	return true;
}

enum scheduler_wait scheduler_wait(struct scheduler *scheduler, const struct scheduler_named *named, uint64_t waited)
{
	const struct scheduler_ops *ops = scheduler->ops;
	bool missing = false, refused;
	unsigned looks = 0;

	if (is_out_of_patience(scheduler, named, waited)) {
		scheduler->stalled = true;
		return SCHEDULER_GIVEN_UP;
	}
	for (unsigned i = 0; i < named->n; i++) {
		uint32_t piece = named->pieces[i];
		enum plan_place where = ops->where(scheduler->hand, piece);
		bool comes = where == PLAN_MOVING;

		if (where == PLAN_HOST) {
			comes = named->uses ? demand_used(scheduler, named, i, &looks)
					    : scheduler_demand(scheduler, piece, &refused);
			if (!comes)
				ops->use_there(scheduler->hand, piece);
		}
		missing |= comes;
		/* The room that is made for a piece is not for those that are used less. */
		if (named->uses && scheduler->starving)
			break;
	}
	return missing ? SCHEDULER_WAITS : SCHEDULER_RUNS;
}

bool scheduler_for_new(struct scheduler *scheduler, uint64_t bytes)
{
	enum plan_answer room = make_room(scheduler, plan_now(scheduler->plan), 0, bytes);

	return room == PLAN_FOUND || (room == PLAN_BUSY && !is_deadlocked(scheduler));
}

/* ---- ahead ---- */

/* Evicts what will have to leave in any case while the link to the host has nothing else to do. */
static void scheduler_early(struct scheduler *scheduler)
{
	const struct scheduler_ops *ops = scheduler->ops;
	struct scheduler_view view;
	uint32_t piece;

	while (lane_is_open(scheduler, PLAN_HOST, &view)) {
		tell_free(scheduler, &view);
		if (!plan_early(scheduler->plan, ops->is_busy, scheduler->hand, &piece))
			return;
		enum migrate_answer answer = ops->evict(scheduler->hand, piece, false);
		if (answer == MIGRATE_NO_ROOM)
			return;
		if (answer != MIGRATE_BEGUN)
			ops->put_aside(scheduler->hand, piece);
	}
}

void scheduler_ahead(struct scheduler *scheduler)
{
	struct scheduler_view view;
	uint32_t piece;
	uint64_t when;

	/*
	 * The room that is made for a piece that a submission waits for becomes free bit by bit. A prefetch must not
	 * take it: in a steady state the piece that was just evicted for the waiting submission is the very next to be
	 * fetched again, and the submission would wait for ever.
	 */
	if (scheduler->starving)
		return;
	for (unsigned tries = 0; tries < TRIES && lane_is_open(scheduler, PLAN_DEVICE, &view); tries++) {
		tell_free(scheduler, &view);
		if (!plan_fetch(scheduler->plan, scheduler_ahead_units(&view), &piece, &when))
			break;
		enum plan_answer room;
		enum migrate_answer answer = bring_in(scheduler, piece, when, true, &room);
		if (answer == MIGRATE_BUSY || answer == MIGRATE_FAILED)
			scheduler->ops->put_aside(scheduler->hand, piece);
		if (answer == MIGRATE_NO_ROOM)
			break;
	}
	scheduler_early(scheduler);
}
