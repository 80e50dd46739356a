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
#include "shim/plan/scheduler.h"

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
 * third for three, and so on, up to about this many. What undoes them may be a kernel in between that names what has
 * left, and whose uses are not known. A wait that needs no exchange halves the number again.
 */
#define DOUBT_MOST 512
/*
 * ns: for so long a submission waits for pieces that are in use, which others may use all the time. Less than the
 * patience (scheduler.c), after which nothing would move before the GPU makes progress.
 */
#define BUSY_MOST 40000000
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

static uint32_t exchange_units(const struct scheduler *scheduler, uint32_t piece)
{
	return scheduler->ops->units(scheduler->hand, piece);
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
		uint32_t units = exchange_units(scheduler, named->pieces[i]);

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
		uint32_t units = exchange_units(scheduler, named->pieces[i]);
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

static uint64_t exchange_room(const struct scheduler_view *view)
{
	return (view->free + view->out.bytes) / PLAN_UNIT;
}

bool scheduler_exchange_is_worth(const struct scheduler *scheduler, const struct scheduler_named *named,
				 unsigned missing)
{
	struct scheduler_view view;
	struct leaving leaving;

	scheduler->ops->look(scheduler->hand, &view);
	uint64_t room = exchange_room(&view), needed = exchange_units(scheduler, named->pieces[missing]);
	return !scheduler->exchanged.pause && room < needed &&
	       choose(scheduler, named, missing, needed - room, &leaving) &&
	       exchange_pays(scheduler, named, missing, room, &leaving, true);
}

static bool may_begin(const struct scheduler_view *view, bool gap)
{
	return gap ? view->out.n < MOVES_AT_ONCE : scheduler_may_begin(view, &view->out);
}

/*
 * A piece cannot leave. If waiting does not help, nothing is exchanged for some time: what has left for the same piece
 * comes back, and would leave again; and each gap in vain stops the device.
 */
static enum plan_answer exchange_not_begun(struct scheduler *scheduler, const struct scheduler_named *named,
					   enum migrate_answer answer, bool gap)
{
	struct scheduler_view view;

	scheduler->ops->look(scheduler->hand, &view);
	if (answer == MIGRATE_BUSY && !gap && named->age < BUSY_MOST)
		return PLAN_BUSY;
	if (!view.out.n && (gap || answer != MIGRATE_BUSY || scheduler->exchanged.n))
		scheduler_exchange_refused(scheduler);
	return view.out.n && answer != MIGRATE_BUSY ? PLAN_FOUND : PLAN_NONE;
}

enum plan_answer scheduler_exchange_one(struct scheduler *scheduler, const struct scheduler_named *named, unsigned from,
					unsigned missing, uint64_t needed, bool gap)
{
	const struct scheduler_ops *ops = scheduler->ops;
	struct scheduler_exchanged *last = &scheduler->exchanged;
	struct scheduler_view view;
	struct leaving leaving;

	ops->look(scheduler->hand, &view);
	uint64_t room = exchange_room(&view);
	/* There is room, and yet the piece does not come; or it is exchanged again and again for another reason. */
	if ((room >= needed && !view.out.n && last->n) || last->n > named->n)
		scheduler_exchange_refused(scheduler);
	if (last->pause)
		return PLAN_NONE;
	if (room >= needed)
		return view.out.n ? PLAN_FOUND : PLAN_NONE;
	if (!choose(scheduler, named, missing, needed - room, &leaving) ||
	    !exchange_pays(scheduler, named, from, room, &leaving, gap))
		return PLAN_NONE;
	for (unsigned i = 0; i < leaving.n && may_begin(&view, gap); i++) {
		enum migrate_answer answer = ops->exchange(scheduler->hand, leaving.at[i], gap);

		if (answer == MIGRATE_FAILED && !gap)
			ops->put_aside(scheduler->hand, leaving.at[i]);
		if (answer != MIGRATE_BEGUN)
			return exchange_not_begun(scheduler, named, answer, gap);
		last->any = true;
		last->n++;
		last->others = 0;
		last->who = named->who;
		ops->look(scheduler->hand, &view);
	}
	return PLAN_FOUND;
}

enum plan_answer scheduler_exchange(struct scheduler *scheduler, const struct scheduler_named *named, unsigned missing,
				    unsigned *looks)
{
	enum plan_answer answer = PLAN_FOUND;
	struct scheduler_view view;
	uint64_t needed = 0;

	if (*looks == EXCHANGE_LOOKS)
		return PLAN_NONE;
	/* Not only for the first one: the link has the next to do while that comes. */
	for (unsigned i = missing; i < named->n && answer == PLAN_FOUND; i++) {
		scheduler->ops->look(scheduler->hand, &view);
		if (!scheduler_may_begin(&view, &view.out))
			break;
		if (!is_missing(scheduler, named->pieces[i], false))
			continue;
		needed += exchange_units(scheduler, named->pieces[i]);
		if (needed > exchange_room(&view) || i == missing)
			answer = scheduler_exchange_one(scheduler, named, missing, i, needed, false);
	}
	scheduler->ops->look(scheduler->hand, &view);
	*looks += answer == PLAN_NONE;
	return view.out.n ? PLAN_FOUND : answer;
}

void scheduler_exchange_refused(struct scheduler *scheduler)
{
	scheduler->exchanged.pause = PAUSE;
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
