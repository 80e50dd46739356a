/*
 * Scheduling in a gap: what is wished for is fetched in order, as many copies at once as the link takes, and room is
 * made for the next wishes meanwhile.
 */
#include "shim/plan/scheduler.h"
#include "shim/plan/move_limits.h"

#include <stddef.h>

static struct scheduler_view gap_look(const struct scheduler *scheduler)
{
	struct scheduler_view view;

	scheduler->ops->look(scheduler->hand, &view);
	return view;
}

/* Returns the device memory that is free or about to be. */
static uint64_t gap_room(const struct scheduler *scheduler)
{
	struct scheduler_view view = gap_look(scheduler);

	return view.free + view.out.bytes;
}

static uint32_t gap_units(const struct scheduler *scheduler, uint32_t piece)
{
	return scheduler->ops->units(scheduler->hand, piece);
}

/* ---- wishes ---- */

void scheduler_wish(struct scheduler *scheduler, uint32_t piece, uint64_t when)
{
	struct wishes *wishes = &scheduler->wishes;
	uint32_t units = gap_units(scheduler, piece);

	if (wishes->n == WISHES)
		return;
	wishes->at[wishes->n++] = (struct wish){.piece = piece, .when = when};
	wishes->units += units;
	plan_set(scheduler->plan, piece, units, PLAN_MOVING);
}

void scheduler_wish_named(struct scheduler *scheduler, const struct scheduler_named *named)
{
	struct wishes *wishes = &scheduler->wishes;

	for (unsigned i = 0; i < named->n && wishes->n < WISHES; i++) {
		if (scheduler->ops->where(scheduler->hand, named->pieces[i]) != PLAN_HOST)
			continue;
		scheduler_wish(scheduler, named->pieces[i], plan_now(scheduler->plan));
		if (named->uses)
			wishes->at[wishes->n - 1].named = i + 1;
	}
	if (named->uses)
		scheduler->named = *named;
}

void scheduler_wish_ahead(struct scheduler *scheduler)
{
	struct scheduler_view view = gap_look(scheduler);
	uint64_t when, ahead = scheduler_ahead_units(&view);
	uint32_t piece;

	while (scheduler->wishes.n && scheduler->wishes.units < ahead &&
	       plan_fetch(scheduler->plan, ahead, &piece, &when))
		scheduler_wish(scheduler, piece, when);
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
		if (gap_look(scheduler).out.n)
			return true; /* no host memory for it before other pieces have been fetched */
		plan_set(scheduler->plan, victim, gap_units(scheduler, victim), PLAN_PINNED);
		if (scheduler->n_refused == sizeof(scheduler->refused) / sizeof(scheduler->refused[0]))
			return false;
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

	if (gap_send_out(scheduler, wish->when, gap_units(scheduler, wish->piece)))
		return true;
	return wish->named && scheduler_exchange_one(scheduler, &scheduler->named, first->named - 1, wish->named - 1,
						     wanted / PLAN_UNIT, true) == PLAN_FOUND;
}

/*
 * Fetches the piece of one wish, as far as that is possible now. Returns true if the wish is finished, whether or not a
 * move has begun.
 */
static bool gap_grant(struct scheduler *scheduler, const struct wish *wish)
{
	uint64_t bytes = gap_units(scheduler, wish->piece) * PLAN_UNIT;

	if (gap_look(scheduler).in.n >= MOVES_AT_ONCE)
		return false;
	enum migrate_answer answer =
	    scheduler->ops->fetch(scheduler->hand, wish->piece, wish->when > plan_now(scheduler->plan), true);
	if (answer == MIGRATE_NO_ROOM) {
		struct scheduler_view view = gap_look(scheduler);

		if (view.out.n >= MOVES_AT_ONCE || (view.out.n && view.free + view.out.bytes >= bytes) ||
		    make_room_for(scheduler, wish, bytes) || gap_look(scheduler).out.n)
			return false;
	}
	if (answer == MIGRATE_FAILED && wish->named)
		scheduler_exchange_refused(scheduler);
	if (answer != MIGRATE_BEGUN)
		scheduler->ops->tell_plan(scheduler->hand, wish->piece);
	return true;
}

/* Makes room for the next wishes while the present ones are fetched. */
static void go_ahead(struct scheduler *scheduler)
{
	struct wishes *wishes = &scheduler->wishes;
	uint64_t wanted = 0;

	for (unsigned i = wishes->next; i < wishes->n && gap_look(scheduler).out.n < MOVES_AT_ONCE; i++) {
		wanted += gap_units(scheduler, wishes->at[i].piece) * PLAN_UNIT;
		if (wanted > gap_room(scheduler) && !make_room_for(scheduler, &wishes->at[i], wanted))
			return;
		if (wanted <= gap_room(scheduler))
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

/*
 * Returns whether an exchange is worth it for one of the first wishes. It may be for a small piece only.
 */
static bool any_exchange_pays(const struct scheduler *scheduler)
{
	const struct wishes *wishes = &scheduler->wishes;

	for (unsigned i = 0; i < wishes->n && i < EXCHANGE_LOOKS && wishes->at[i].named; i++)
		if (scheduler_exchange_is_worth(scheduler, &scheduler->named, wishes->at[i].named - 1))
			return true;
	return false;
}

bool scheduler_gap_pays(struct scheduler *scheduler)
{
	const struct wish *first = &scheduler->wishes.at[0];
	uint32_t victim;

	if (!scheduler->wishes.n)
		return false;
	return gap_look(scheduler).free >= gap_units(scheduler, first->piece) * PLAN_UNIT ||
	       plan_victim(scheduler->plan, first->when, 0, scheduler->ops->is_in_use, scheduler->hand, &victim) ==
		   PLAN_FOUND ||
	       any_exchange_pays(scheduler);
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
	struct scheduler_view view = gap_look(scheduler);
	uint64_t now = plan_now(scheduler->plan), later = now + move_limits_not_soon(plan_period(scheduler->plan));
	uint64_t more = scheduler_ahead_units(&view) * PLAN_UNIT;

	while (*can && view.free + view.out.bytes < bytes + more && view.out.n < MOVES_AT_ONCE) {
		unsigned before = view.out.n;
		bool found = gap_send_out(scheduler, view.free + view.out.bytes < bytes ? now : later, 0);

		view = gap_look(scheduler);
		*can = found && view.out.n > before;
	}
	return view.out.n != 0;
}
