// SPDX-License-Identifier: Apache-2.0
/* The scheduler. See scheduler.h. */
#include "shim/plan/scheduler.h"

#include <stddef.h>

static struct scheduler_view scheduler_look(const struct scheduler *scheduler)
{
	struct scheduler_view view;

	scheduler->ops->look(scheduler->hand, &view);
	return view;
}

static uint32_t units_of(const struct scheduler *scheduler, uint32_t piece)
{
	return scheduler->ops->units(scheduler->hand, piece);
}

/* Returns the device memory that is free or about to be. */
static uint64_t room_of(const struct scheduler_view *view)
{
	return view->free + view->out.bytes;
}

/* ---- exchanges ---- */

/*
 * What a submission that names more than fits has on the device. It runs with the rest on the host, and each use of a
 * byte there takes it over the link again. So a piece that it uses much and that is missing is exchanged for pieces
 * that it uses less. Only graphs tell how often they use what they name.
 *
 * An exchange costs two copies of a byte, once, and saves the difference of the uses at each launch. Each leaves more
 * uses on the device than there were, so a submission that comes again and again finds nothing to exchange in the end.
 *
 * Two submissions that take turns could undo each other's exchanges at each launch. So after an exchange for one, an
 * exchange for another must pay within the launch that makes it: then nothing is lost even if it is undone at once. The
 * first is forgotten when others have come FORGOTTEN_AFTER times without it. An exchange that pays only for all of
 * those that take turns together, but for none of them alone, is not made. A kernel that names what has left undoes it,
 * too, and its uses are not known: so when exchanges come again and again, they must pay at once (DOUBT_MOST).
 */

/*
 * What an exchange costs for each unit that leaves, in uses over the link: a copy each way, and as much again, because
 * host memory is unmapped and mapped, which takes half the time of a copy each, and the GPU waits.
 */
#define COST ((uint64_t)4 * SCHEDULER_USE)
/* Launches within which an exchange must pay. */
#define PAYS_WITHIN 8
/* After so many launches of others, the submission of the latest exchange is taken to come no more. */
#define FORGOTTEN_AFTER PAYS_WITHIN
/* So many waits pass without an exchange when one was in vain. */
#define PAUSE 64
/*
 * After the second wait with exchanges, for one wait an exchange must pay within the launch that makes it; after the
 * third for three, and so on, up to about twice this many. What undoes them may be a kernel in between that names what
 * has left, and whose uses are not known. After those waits, each wait that needs no exchange halves the number again.
 */
#define DOUBT_MOST 512
/*
 * ns: for so long a submission waits for pieces that are in use, which others may use all the time. Less than the
 * patience (PATIENCE_NS), after which nothing would move before the GPU makes progress.
 */
#define BUSY_MOST 40000000
/* The most missing pieces that nothing is found for in a round; each look walks through all that is named. */
#define EXCHANGE_LOOKS 16
/* The most pieces that leave for one piece. */
#define LEAVING 64

struct leaving {
	uint32_t at[LEAVING];
	unsigned n;
	uint64_t units, uses; /* sums; uses: of each piece, times its units */
};

/*
 * The uses are estimates: how far a pointer reaches is often guessed, and a node may use a part of that. So what comes
 * must be used half as much again as what leaves.
 */
static bool is_clearly_more(uint64_t coming, uint64_t leaving)
{
	return 2 * coming >= 3 * leaving;
}

/* Returns whether the piece is on the host and is wanted. In a gap, only what is wished for is. */
static bool is_missing(const struct scheduler *scheduler, uint32_t piece, bool gap)
{
	return scheduler->ops->where(scheduler->hand, piece) == PLAN_HOST &&
	       (!gap || plan_where(scheduler->plan, piece) == PLAN_MOVING);
}

/*
 * Returns the uses, times units, of what is missing and would fit into so many free units, the most used first.
 * from: index of the first that may be missing.
 */
static uint64_t worth(const struct scheduler *scheduler, const struct scheduler_named *named, unsigned from,
		      uint64_t room, bool gap)
{
	uint64_t sum = 0;

	for (unsigned i = from; i < named->n && room; i++) {
		uint32_t units = units_of(scheduler, named->pieces[i]);

		if (units > room || !is_missing(scheduler, named->pieces[i], gap))
			continue;
		sum += (uint64_t)units * named->uses[i];
		room -= units;
	}
	return sum;
}

/* Chooses what leaves so that `wanted` units become free, the least used first. Returns false if it is too little. */
static bool choose(const struct scheduler *scheduler, const struct scheduler_named *named, unsigned missing,
		   uint64_t wanted, struct leaving *ret)
{
	ret->n = 0;
	ret->units = ret->uses = 0;
	for (unsigned i = named->n; i-- > missing && ret->units < wanted && ret->n < LEAVING;) {
		if (plan_where(scheduler->plan, named->pieces[i]) != PLAN_DEVICE)
			continue;
		uint32_t units = units_of(scheduler, named->pieces[i]);
		ret->at[ret->n++] = named->pieces[i];
		ret->units += units;
		ret->uses += (uint64_t)units * named->uses[i];
	}
	return ret->units >= wanted;
}

static bool exchange_pays(const struct scheduler *scheduler, const struct scheduler_named *named, unsigned from,
			  uint64_t room, const struct leaving *leaving, bool gap)
{
	const struct scheduler_exchanged *last = &scheduler->exchanged;

	/* No more than this can come. So the last look at each launch takes no walk. */
	if (!is_clearly_more(named->uses[from] * (room + leaving->units), leaving->uses))
		return false;
	uint64_t with = worth(scheduler, named, from, room + leaving->units, gap);
	uint64_t without = worth(scheduler, named, from, room, gap);
	uint64_t coming = with > without ? with - without : 0;
	bool alone = !last->doubted && (!last->any || last->who == named->who || last->others >= FORGOTTEN_AFTER);

	return coming > leaving->uses && is_clearly_more(coming, leaving->uses) &&
	       (coming - leaving->uses) * (alone ? PAYS_WITHIN : 1) >= COST * leaving->units;
}

/* Returns whether there is anything to exchange for a wish, whose piece has the index `missing`. */
static bool is_exchange_worth(const struct scheduler *scheduler, const struct scheduler_named *named, unsigned missing)
{
	struct scheduler_view view = scheduler_look(scheduler);
	struct leaving leaving;
	uint64_t room = room_of(&view) / PLAN_UNIT, needed = units_of(scheduler, named->pieces[missing]);
	return !scheduler->exchanged.pause && room < needed &&
	       choose(scheduler, named, missing, needed - room, &leaving) &&
	       exchange_pays(scheduler, named, missing, room, &leaving, true);
}

/* What was to come is refused: for some time nothing is exchanged, or it would be exchanged again and again. */
static void exchange_refused(struct scheduler *scheduler)
{
	scheduler->exchanged.pause = PAUSE;
}

/*
 * A piece cannot leave. If waiting does not help, nothing is exchanged for some time: what has left for the same piece
 * comes back, and would leave again; and each gap in vain stops the device.
 */
static enum plan_answer exchange_not_begun(struct scheduler *scheduler, const struct scheduler_named *named,
					   enum migrate_answer answer, bool gap)
{
	struct scheduler_view view = scheduler_look(scheduler);

	if (answer == MIGRATE_BUSY && !gap && named->age < BUSY_MOST)
		return PLAN_BUSY;
	if (!view.out.n && (gap || answer != MIGRATE_BUSY || scheduler->exchanged.n))
		exchange_refused(scheduler);
	return view.out.n && answer != MIGRATE_BUSY ? PLAN_FOUND : PLAN_NONE;
}

/*
 * Begins to evict pieces that the submission uses little for one that it uses more and that is missing. needed: the
 * units that must be free for it. from: index of the most used piece that is missing and that nothing has been begun
 * for. Returns PLAN_FOUND if evictions are in flight, PLAN_BUSY if a piece may be evicted later, PLAN_NONE if nothing
 * is exchanged.
 */
static enum plan_answer exchange_one(struct scheduler *scheduler, const struct scheduler_named *named, unsigned from,
				     unsigned missing, uint64_t needed, bool gap)
{
	const struct scheduler_ops *ops = scheduler->ops;
	struct scheduler_exchanged *last = &scheduler->exchanged;
	struct scheduler_view view = scheduler_look(scheduler);
	uint64_t room = room_of(&view) / PLAN_UNIT;
	struct leaving leaving;

	/* There is room, and yet the piece does not come; or it is exchanged again and again for another reason. */
	if ((room >= needed && !view.out.n && last->n) || last->n > named->n)
		exchange_refused(scheduler);
	if (last->pause)
		return PLAN_NONE;
	if (room >= needed)
		return view.out.n ? PLAN_FOUND : PLAN_NONE;
	if (!choose(scheduler, named, missing, needed - room, &leaving) ||
	    !exchange_pays(scheduler, named, from, room, &leaving, gap))
		return PLAN_NONE;
	for (unsigned i = 0; i < leaving.n; i++) {
		if (gap ? view.out.n >= MOVES_AT_ONCE : !scheduler_may_begin(&view, &view.out))
			break;
		enum migrate_answer answer = ops->exchange(scheduler->hand, leaving.at[i], gap);

		if (answer == MIGRATE_FAILED && !gap)
			ops->put_aside(scheduler->hand, leaving.at[i]);
		if (answer != MIGRATE_BEGUN)
			return exchange_not_begun(scheduler, named, answer, gap);
		last->any = true;
		last->n++;
		last->others = 0;
		last->who = named->who;
		view = scheduler_look(scheduler);
	}
	return PLAN_FOUND;
}

/*
 * The same for all that is missing, first for the piece with the index `missing`, for which nothing else can be
 * evicted. *looks must be 0 at the beginning of a round.
 */
static enum plan_answer scheduler_exchange(struct scheduler *scheduler, const struct scheduler_named *named,
					   unsigned missing, unsigned *looks)
{
	enum plan_answer answer = PLAN_FOUND;
	struct scheduler_view view;
	uint64_t needed = 0;

	if (*looks == EXCHANGE_LOOKS)
		return PLAN_NONE;
	/* Not only for the first one: the link has the next to do while that comes. */
	for (unsigned i = missing; i < named->n && answer == PLAN_FOUND; i++) {
		view = scheduler_look(scheduler);
		if (!scheduler_may_begin(&view, &view.out))
			break;
		if (!is_missing(scheduler, named->pieces[i], false))
			continue;
		needed += units_of(scheduler, named->pieces[i]);
		if (needed > room_of(&view) / PLAN_UNIT || i == missing)
			answer = exchange_one(scheduler, named, missing, i, needed, false);
	}
	view = scheduler_look(scheduler);
	*looks += answer == PLAN_NONE;
	return view.out.n ? PLAN_FOUND : answer;
}

void scheduler_exchange_end(struct scheduler *scheduler, const struct scheduler_named *named)
{
	struct scheduler_exchanged *last = &scheduler->exchanged;

	if (!named->uses)
		return;
	if (last->pause)
		last->pause--;
	if (last->n) {
		last->doubted = last->doubt;
		last->doubt = last->doubt < DOUBT_MOST ? 2 * last->doubt + 1 : last->doubt;
	} else if (last->doubted) {
		last->doubted--;
	} else {
		last->doubt /= 2;
	}
	last->n = 0;
	if (last->who == named->who)
		last->others = 0;
	else if (last->others < FORGOTTEN_AFTER)
		last->others++;
}

/* ---- beside kernels ---- */

/*
 * Scheduling beside kernels. Waiting submissions come first, then what the plan foresees, as far ahead as keeps the
 * link busy. Room is made a little ahead of need, so that a fetch never waits for an eviction to end.
 *
 * A demand is given up if nothing can be evicted for it (a submission that names more than fits runs with the rest on
 * the host; an exchange chooses which, if it is known what it uses most), or if the GPU has made no progress
 * for PATIENCE_NS: it may be held by what the waiting thread would do next.
 */

/* ns */
#define PATIENCE_NS 50000000
/* ns: a better victim is waited for while the GPU makes progress at least so often. */
#define PATIENT_NS 5000000
/*
 * Factor on the time that the link takes for the named pieces, to allow for mapping and for other submissions that are
 * served in between.
 */
#define BRING_FACTOR 2
/* The most prefetches, and the most early evictions, that one round begins. */
#define TRIES 64

/* ---- limits ---- */

static uint64_t scheduler_reserve(const struct scheduler_view *view)
{
	return move_limits_reserve(view->budget, view->largest);
}

uint64_t scheduler_host_bytes(const struct scheduler_view *view, bool gap)
{
	return gap ? move_limits_ahead(view->budget, true)
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
	uint64_t bytes = room_of(view), reserve = scheduler_reserve(view);

	plan_set_free(scheduler->plan, bytes > reserve ? (bytes - reserve) / PLAN_UNIT : 0);
}

/*
 * Begins to evict one piece, preferably one of `units` units where the choice makes little difference. If the program
 * is far ahead of the GPU, much that is used late is still in use, and what is used soon would leave instead and come
 * back. So such a piece is waited for as long as the GPU goes on.
 */
static enum plan_answer send_out(struct scheduler *scheduler, uint64_t when, unsigned units)
{
	const struct scheduler_ops *ops = scheduler->ops;
	uint32_t piece;
	enum plan_answer answer = plan_victim(scheduler->plan, when, units, ops->is_busy, scheduler->hand, &piece);

	if (answer != PLAN_FOUND)
		return answer;
	if (scheduler->patient && plan_better_is_busy(scheduler->plan, piece, when) && !ops->is_idle(scheduler->hand))
		return PLAN_BUSY;
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

	while (answer == PLAN_FOUND && scheduler_may_begin(&view, &view.out) && room_of(&view) < wanted) {
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
	unsigned units = units_of(scheduler, piece);
	enum migrate_answer answer = scheduler->ops->fetch(scheduler->hand, piece, ahead, false);

	if (answer == MIGRATE_NO_ROOM)
		*ret_room = make_room(scheduler, when, units, units * PLAN_UNIT);
	if (answer == MIGRATE_BEGUN && plan_units(scheduler->plan, PLAN_HOST))
		make_room(scheduler, when, units, 0);
	return answer;
}

/* ---- waiting submissions ---- */

/*
 * Returns from when on a victim must not be needed (plan_victim()) for what the submission misses. One that names more
 * than fits runs with a part of it on the host in any case, and takes that over the link. If what others use before it
 * comes again left for it, that would come back, and what came for it leave again, at each turn. What uses each byte
 * many times may gain even so, where that is counted (graphs).
 */
static uint64_t needed_at(const struct scheduler *scheduler, const struct scheduler_named *named)
{
	uint64_t units = 0, now = plan_now(scheduler->plan), half = (plan_period(scheduler->plan) + 1) / 2;

	for (unsigned i = 0; i < named->n && !named->uses; i++)
		if (plan_where(scheduler->plan, named->pieces[i]) != PLAN_PINNED)
			units += units_of(scheduler, named->pieces[i]);
	/* A victim is needed twice as far away as what it leaves for: later than all that the submission names. */
	return units * PLAN_UNIT > scheduler_look(scheduler).budget ? now + half : now;
}

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
static bool scheduler_demand(struct scheduler *scheduler, uint32_t piece, uint64_t when, bool *ret_refused)
{
	enum plan_answer room = PLAN_NONE;

	*ret_refused = false;
	if (scheduler_look(scheduler).in.n == MOVES)
		return true;
	switch (bring_in(scheduler, piece, when, false, &room)) {
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
	uint64_t units = 0;

	if (waited <= PATIENCE_NS)
		return false;
	struct scheduler_view view = scheduler_look(scheduler);
	if (view.in.n || view.out.n)
		return false;
	if (view.quiet_ns > PATIENCE_NS)
		return true;
	for (unsigned i = 0; i < named->n; i++)
		units += units_of(scheduler, named->pieces[i]);
	return waited > PATIENCE_NS + BRING_FACTOR * units * (view.in.unit_ns + view.out.unit_ns);
}

/*
 * Begins to fetch a piece of which it is known how much the submission uses it, as scheduler_demand() does. Makes room
 * by an exchange if nothing else can be evicted. Returns true if it is worth waiting for the piece.
 */
static bool demand_used(struct scheduler *scheduler, const struct scheduler_named *named, unsigned i, uint64_t when,
			unsigned *looks)
{
	uint32_t victim;
	bool refused, comes = scheduler_demand(scheduler, named->pieces[i], when, &refused);

	if (refused)
		exchange_refused(scheduler);
	if (refused || (comes && (!scheduler->starving || plan_victim(scheduler->plan, when, 0, scheduler->ops->is_busy,
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
	uint64_t when = needed_at(scheduler, named);
	unsigned looks = 0;

	/* Others may use what is better all the time. */
	scheduler->patient = waited <= PATIENT_NS && named->age < BUSY_MOST;
	if (is_out_of_patience(scheduler, named, waited)) {
		scheduler->stalled = true;
		return SCHEDULER_GIVEN_UP;
	}
	for (unsigned i = 0; i < named->n; i++) {
		uint32_t piece = named->pieces[i];
		enum plan_place where = ops->where(scheduler->hand, piece);
		bool comes = where == PLAN_MOVING;

		if (where == PLAN_HOST) {
			comes = named->uses ? demand_used(scheduler, named, i, when, &looks)
					    : scheduler_demand(scheduler, piece, when, &refused);
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
	scheduler->patient = false;
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

	/* Without memory to put it aside, a piece that cannot leave would be chosen again and again. */
	for (unsigned tries = 0; tries < TRIES && lane_is_open(scheduler, PLAN_HOST, &view); tries++) {
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
	scheduler->patient = true;
	for (unsigned tries = 0; tries < TRIES && lane_is_open(scheduler, PLAN_DEVICE, &view); tries++) {
		tell_free(scheduler, &view);
		if (!plan_fetch(scheduler->plan, move_limits_ahead(view.budget, false) / PLAN_UNIT, &piece, &when))
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

/* ---- in a gap ---- */

/*
 * Scheduling in a gap: what is wished for is fetched in order, as many copies at once as the link takes, and room is
 * made for the next wishes meanwhile.
 */

/* ---- wishes ---- */

void scheduler_wish(struct scheduler *scheduler, uint32_t piece, uint64_t when)
{
	struct wishes *wishes = &scheduler->wishes;
	uint32_t units = units_of(scheduler, piece);

	if (wishes->n == WISHES)
		return;
	wishes->at[wishes->n++] = (struct wish){.piece = piece, .when = when};
	wishes->units += units;
	plan_set(scheduler->plan, piece, units, PLAN_MOVING);
}

void scheduler_wish_named(struct scheduler *scheduler, const struct scheduler_named *named)
{
	struct wishes *wishes = &scheduler->wishes;
	uint64_t when = needed_at(scheduler, named);

	for (unsigned i = 0; i < named->n && wishes->n < WISHES; i++) {
		if (scheduler->ops->where(scheduler->hand, named->pieces[i]) != PLAN_HOST)
			continue;
		scheduler_wish(scheduler, named->pieces[i], when);
		if (named->uses)
			wishes->at[wishes->n - 1].named = i + 1;
	}
	if (named->uses)
		scheduler->named = *named;
}

void scheduler_wish_ahead(struct scheduler *scheduler)
{
	struct wishes *wishes = &scheduler->wishes;
	struct scheduler_view view = scheduler_look(scheduler);
	uint64_t when, ahead = move_limits_ahead(view.budget, true) / PLAN_UNIT;
	uint32_t piece;

	while (wishes->n && wishes->n < WISHES && wishes->units < ahead &&
	       plan_fetch(scheduler->plan, ahead, &piece, &when)) {
		scheduler_wish(scheduler, piece, when);
		wishes->at[wishes->n - 1].ahead = true;
	}
}

void scheduler_forget_wishes(struct scheduler *scheduler)
{
	struct wishes *wishes = &scheduler->wishes;

	for (unsigned i = wishes->next; i < wishes->n; i++)
		scheduler->ops->tell_plan(scheduler->hand, wishes->at[i].piece);
	wishes->n = wishes->next = wishes->early = wishes->roomed = 0;
	wishes->units = 0;
	scheduler_exchange_end(scheduler, &scheduler->named);
	scheduler->named.uses = NULL;
}

/* ---- moving ---- */

/*
 * Begins to evict one piece, preferably one of `units` units. Returns false if nothing can be evicted. May return true
 * without having begun a move, if there is no host memory before the moves in flight have ended.
 */
static bool gap_send_out(struct scheduler *scheduler, uint64_t when, unsigned units)
{
	const struct scheduler_ops *ops = scheduler->ops;
	uint32_t victim;

	for (;;) {
		if (plan_victim(scheduler->plan, when, units, ops->is_in_use, scheduler->hand, &victim) != PLAN_FOUND)
			return false;
		if (ops->evict(scheduler->hand, victim, true) == MIGRATE_BEGUN)
			return true;
		if (scheduler_look(scheduler).out.n)
			return true; /* no host memory for it before other pieces have been fetched */
		/* Before the plan is told: scheduler_gap_end() would not tell it otherwise again. */
		if (scheduler->n_refused == sizeof(scheduler->refused) / sizeof(scheduler->refused[0]))
			return false;
		plan_set(scheduler->plan, victim, units_of(scheduler, victim), PLAN_PINNED);
		scheduler->refused[scheduler->n_refused++] = victim;
	}
}

void scheduler_gap_end(struct scheduler *scheduler)
{
	for (unsigned i = 0; i < scheduler->n_refused; i++)
		scheduler->ops->tell_plan(scheduler->hand, scheduler->refused[i]);
	scheduler->n_refused = 0;
}

/*
 * Evicts one piece for a wish, or as many as it is exchanged for, if nothing else can be evicted. wanted: bytes that
 * must be free for it and those before it. Returns false if nothing can be evicted.
 */
static bool make_room_for(struct scheduler *scheduler, const struct wish *wish, uint64_t wanted)
{
	const struct wish *first = &scheduler->wishes.at[scheduler->wishes.next];

	if (gap_send_out(scheduler, wish->when, units_of(scheduler, wish->piece)))
		return true;
	return wish->named && exchange_one(scheduler, &scheduler->named, first->named - 1, wish->named - 1,
					   wanted / PLAN_UNIT, true) == PLAN_FOUND;
}

/*
 * Fetches the piece of one wish, as far as that is possible now. Returns true if the wish is finished, whether or not a
 * move has begun.
 */
static bool gap_grant(struct scheduler *scheduler, const struct wish *wish)
{
	uint64_t bytes = units_of(scheduler, wish->piece) * PLAN_UNIT;

	if (scheduler_look(scheduler).in.n >= MOVES_AT_ONCE)
		return false;
	enum migrate_answer answer = scheduler->ops->fetch(scheduler->hand, wish->piece, wish->ahead, true);
	if (answer == MIGRATE_NO_ROOM) {
		struct scheduler_view view = scheduler_look(scheduler);

		if (view.out.n >= MOVES_AT_ONCE || (view.out.n && room_of(&view) >= bytes) ||
		    make_room_for(scheduler, wish, bytes) || scheduler_look(scheduler).out.n)
			return false;
	}
	if (answer == MIGRATE_FAILED && wish->named)
		exchange_refused(scheduler);
	if (answer != MIGRATE_BEGUN)
		scheduler->ops->tell_plan(scheduler->hand, wish->piece);
	return true;
}

/* Makes room for the next wishes while the present ones are fetched. */
static void go_ahead(struct scheduler *scheduler)
{
	struct wishes *wishes = &scheduler->wishes;
	uint64_t wanted = 0;

	for (unsigned i = wishes->next; i < wishes->n; i++) {
		struct scheduler_view view = scheduler_look(scheduler);

		if (view.out.n >= MOVES_AT_ONCE)
			return;
		wanted += units_of(scheduler, wishes->at[i].piece) * PLAN_UNIT;
		if (wanted > room_of(&view) && !make_room_for(scheduler, &wishes->at[i], wanted))
			return;
		view = scheduler_look(scheduler);
		if (wanted <= room_of(&view))
			wishes->roomed = i + 1;
	}
}

bool scheduler_gap_early(struct scheduler *scheduler, uint32_t *ret_piece)
{
	struct wishes *wishes = &scheduler->wishes;

	if (wishes->early < wishes->next)
		wishes->early = wishes->next;
	if (wishes->early >= wishes->n || wishes->early >= wishes->roomed)
		return false;
	*ret_piece = wishes->at[wishes->early++].piece;
	return true;
}

bool scheduler_gap_pays(struct scheduler *scheduler)
{
	const struct wishes *wishes = &scheduler->wishes;
	const struct wish *first = &wishes->at[0];
	uint32_t victim;

	if (!wishes->n)
		return false;
	if (scheduler_look(scheduler).free >= units_of(scheduler, first->piece) * PLAN_UNIT ||
	    plan_victim(scheduler->plan, first->when, 0, scheduler->ops->is_in_use, scheduler->hand, &victim) ==
		PLAN_FOUND)
		return true;
	/* An exchange may be worth it for a small piece only. */
	for (unsigned i = 0; i < wishes->n && i < EXCHANGE_LOOKS && wishes->at[i].named; i++)
		if (is_exchange_worth(scheduler, &scheduler->named, wishes->at[i].named - 1))
			return true;
	return false;
}

void scheduler_gap_round(struct scheduler *scheduler)
{
	struct wishes *wishes = &scheduler->wishes;

	while (scheduler_has_wishes(scheduler) && gap_grant(scheduler, &wishes->at[wishes->next]))
		wishes->next++;
	go_ahead(scheduler);
}

/* ---- for new blocks ---- */

bool scheduler_gap_pays_for_new(struct scheduler *scheduler)
{
	uint32_t victim;

	return plan_victim(scheduler->plan, plan_now(scheduler->plan), 0, NULL, NULL, &victim) == PLAN_FOUND;
}

bool scheduler_gap_round_for_new(struct scheduler *scheduler, uint64_t bytes, bool *can)
{
	struct scheduler_view view = scheduler_look(scheduler);
	uint64_t now = plan_now(scheduler->plan), later = now + move_limits_not_soon(plan_period(scheduler->plan));
	uint64_t more = move_limits_ahead(view.budget, true);

	while (*can && room_of(&view) < bytes + more && view.out.n < MOVES_AT_ONCE) {
		unsigned before = view.out.n;
		bool found = gap_send_out(scheduler, room_of(&view) < bytes ? now : later, 0);

		view = scheduler_look(scheduler);
		*can = found && view.out.n > before;
	}
	return view.out.n != 0;
}
