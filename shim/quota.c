/*
 * Taking from what is shared. There is no sum in the file: the sum is what the slots say, so a process that dies leaves
 * nothing to be repaired, only a slot to be counted no longer.
 *
 * To take, a process first publishes what it is about to take (its claim), then adds up all slots, its own included, and
 * takes if the sum fits. Of any set of takes that together were too much, the one whose claim was published last has seen
 * the claims, or the bytes taken, of all others: it did not take. So the sum is never more than the total.
 *
 * Two that claim the last room at the same time see each other. The one in the lower slot leaves its claim there and waits
 * for the other, which takes its own back and waits until the lower one has had its turn; so one of them takes, and who is
 * refused is refused because the room is taken. A claim whose process has died is found by looking for the dead; one whose
 * process was stopped at this very point is waited for, for a second, and then counts as taken.
 *
 * A claim is read before the bytes used, and written after them: what moves from the one to the other may be counted twice,
 * never not at all.
 */
#include "shim/quota.h"
#include "shim/clock.h"
#include "shim/log.h"
#include "shim/quota_inside.h"
#include "shim/stats.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define CLAIM_LOOK 5000000u /* ns after which its process might be dead */
#define WAIT_STEP  5000000  /* ns; so many tries are 2.5 s, longer than others need to look once */
#define WAIT_TRIES 500
#define UNIT       ((uint64_t)2 << 20) /* spare goes back in chunks, which have at least this size */

uint64_t quota_patience = 1000000000, quota_want_lasts = 2000000000, quota_sweep_every = 5000000;

enum state {
	NONE,     /* nothing is shared */
	ARRANGED, /* nothing has been taken yet */
	SEATED,
	ALONE, /* the file cannot be used: this process has its own budget */
	LEFT,  /* the process ends */
};

static _Atomic int state;
static struct quota_terms terms;
static struct quota_seat seat;
static _Atomic uint64_t refusals;
/* Joining, and one claim at a time: the last lock to be taken, by threads that take host memory. */
static pthread_mutex_t taking = PTHREAD_MUTEX_INITIALIZER;

static struct quota_slot *mine(void)
{
	return &seat.page->slot[seat.index];
}

static bool is_seated(void)
{
	return atomic_load(&state) == SEATED;
}

static void be_alone(const char *why)
{
	int seated = atomic_exchange(&state, ALONE);

	log_once("the host budget cannot be shared with other processes of this user (%s): this one has a budget of "
		 "its own, and so may each of the others",
		 why);
	if (seated == SEATED)
		stats_set_share(0, 0, 0);
}

static void be_alone_for(int error)
{
	char why[64];

	if (error == -EPROTO)
		be_alone("its file is of another version, or damaged, and in use");
	else if (error == -ENOSPC)
		be_alone("all places in its file are taken, or there is no room for it");
	else if (error == -EPERM)
		be_alone("its file or folder is not ours alone");
	else {
		snprintf(why, sizeof(why), "errno %d for its file", -error);
		be_alone(why);
	}
}

void quota_arrange(const struct quota_terms *given)
{
	terms = *given;
	atomic_store(&state, ARRANGED);
}

/* ---- the sum ---- */

struct view {
	uint64_t total, used, claimed; /* claimed: by others */
	uint64_t mine;                 /* of the bytes used */
	uint64_t part;                 /* what each rank may have in any case */
	uint64_t spare, ending;        /* what others have and do not use, and what is pinned by those who end */
	uint64_t owed;                 /* to others below their part */
	uint64_t wanted;               /* by others, whatever they have */
	unsigned ranks;
	bool lower_claim; /* one in a lower slot claims something */
};

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* False: nonsense. Each number is below QUOTA_MOST, so no sum of 256 of them overflows. */
static bool add_slot(struct view *view, unsigned i)
{
	struct quota_slot *slot = &seat.page->slot[i];

	if (!atomic_load(&slot->stamp))
		return true;
	uint64_t claim = atomic_load(&slot->claim), used = atomic_load(&slot->used);
	if (used > QUOTA_MOST || claim > QUOTA_MOST)
		return false;
	view->used += used;
	if (atomic_load(&slot->leaving)) {
		view->ending += used;
	} else {
		view->ranks++;
		if (i != seat.index)
			view->spare += smaller(atomic_load(&slot->spare), used);
	}
	if (i == seat.index) {
		view->mine = used;
	} else {
		view->claimed += claim;
		view->lower_claim |= claim && i < seat.index;
	}
	return true;
}

static void add_wants(struct view *view)
{
	uint64_t now = clock_now();

	for (unsigned i = 0; i < QUOTA_SLOTS; i++) {
		struct quota_slot *slot = &seat.page->slot[i];
		uint64_t until = atomic_load(&slot->wanted_until);

		/* One that lies too far ahead is no time that this clock has given. */
		if (i == seat.index || !atomic_load(&slot->stamp) || until <= now || until > now + quota_want_lasts)
			continue;
		uint64_t wanted = smaller(atomic_load(&slot->wanted), view->total);
		uint64_t used = atomic_load(&slot->used);
		view->wanted += wanted;
		if (used < view->part)
			view->owed += smaller(wanted, view->part - used);
	}
}

/* False: the file makes no sense any more. */
static bool look(struct view *ret_view)
{
	struct view view = {.total = atomic_load(&seat.page->total)};

	if (view.total > QUOTA_MOST || atomic_load(&mine()->stamp) != seat.stamp)
		return false;
	for (unsigned i = 0; i < QUOTA_SLOTS; i++)
		if (!add_slot(&view, i))
			return false;
	view.part = view.total / (view.ranks ? view.ranks : 1);
	if (atomic_load(&seat.page->asked_until) > clock_now())
		add_wants(&view);
	*ret_view = view;
	return true;
}

static uint64_t room_in(const struct view *view, uint64_t gone)
{
	return view->total > gone ? view->total - gone : 0;
}

/* Would it fit, and is it our turn? gone: what is taken, or as good as. */
static bool fits(const struct view *view, uint64_t gone, uint64_t bytes)
{
	uint64_t room = room_in(view, gone);

	if (bytes > room)
		return false;
	return view->mine + bytes <= view->part || bytes <= room - smaller(room, view->owed);
}

static void tell(const struct view *view, uint64_t more)
{
	stats_set_share(view->total, view->used + more, view->ranks);
	if (terms.limit)
		atomic_store(terms.limit, view->total);
}

/* ---- taking ---- */

/* True: the share of somebody came back. */
static bool sweep(void)
{
	int saved = errno;
	unsigned n = quota_file_sweep(&seat);

	if (n)
		stats_add(STAT_share_reclaimed, n);
	errno = saved;
	return n != 0;
}

/* The same for who is refused again and again: it takes 20 to 40 us for each rank. */
static bool sweep_if_due(void)
{
	static uint64_t last; /* under `taking` */
	uint64_t now = clock_now();

	if (now - last < quota_sweep_every)
		return false;
	last = now;
	return sweep();
}

/* Wait for others' claims. False: for too long. */
static bool pause_from(uint64_t *since)
{
	uint64_t now = clock_now();

	if (!*since)
		*since = now;
	if (now - *since > quota_patience)
		return false;
	if (now - *since > CLAIM_LOOK)
		sweep_if_due();
	if (now - *since > CLAIM_LOOK)
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	else
		sched_yield();
	return true;
}

static bool is_lower_claim(void)
{
	for (unsigned i = 0; i < seat.index; i++)
		if (atomic_load(&seat.page->slot[i].stamp) && atomic_load(&seat.page->slot[i].claim))
			return true;
	return false;
}

/* What came of a try. */
enum taken { TAKEN, REFUSED, NONSENSE };

static enum taken try_once(uint64_t bytes)
{
	enum taken result = REFUSED;
	uint64_t since = 0;
	struct view view;

	for (;;) {
		atomic_store(&mine()->claim, bytes);
		if (!look(&view)) {
			result = NONSENSE;
			break;
		}
		if (fits(&view, view.used + view.claimed, bytes)) {
			atomic_fetch_add(&mine()->used, bytes);
			tell(&view, bytes);
			result = TAKEN;
			break;
		}
		if (!fits(&view, view.used, bytes))
			break;
		bool in_time = pause_from(&since);
		if (view.lower_claim) {
			atomic_store(&mine()->claim, 0);
			while (in_time && is_lower_claim())
				in_time = pause_from(&since);
		}
		if (!in_time)
			break;
	}
	atomic_store(&mine()->claim, 0);
	return result;
}

static void want(uint64_t bytes)
{
	uint64_t until = clock_now() + quota_want_lasts, known = atomic_load(&seat.page->asked_until);

	atomic_store(&mine()->wanted, bytes);
	atomic_store(&mine()->wanted_until, until);
	/* One that is too far ahead would never end. */
	while ((known < until || known > until + quota_want_lasts) &&
	       !atomic_compare_exchange_weak(&seat.page->asked_until, &known, until))
		;
}

static void refuse(uint64_t bytes)
{
	struct view view;

	if (look(&view)) {
		tell(&view, 0);
		/* What is owed to us others leave to us. */
		if (view.mine < view.part && atomic_load(&mine()->wanted_until) < clock_now())
			want(smaller(bytes, view.part - view.mine));
	}
	atomic_fetch_add(&refusals, 1);
	stats_add(STAT_share_refused, 1);
}

static void join(void)
{
	int error = quota_file_join(&terms, &seat);

	if (!error)
		atomic_store(&state, SEATED);
	else
		be_alone_for(error);
}

static bool take_locked(uint64_t bytes)
{
	if (atomic_load(&state) == ARRANGED)
		join();
	if (!is_seated())
		return atomic_load(&state) != LEFT;
	enum taken taken = try_once(bytes);
	if (taken == REFUSED && sweep_if_due())
		taken = try_once(bytes);
	if (taken == NONSENSE)
		be_alone("its file is damaged");
	else if (taken == REFUSED)
		refuse(bytes);
	else if (atomic_load_explicit(&mine()->wanted, memory_order_relaxed))
		atomic_store(&mine()->wanted_until, 0);
	return taken != REFUSED;
}

bool quota_take(uint64_t bytes)
{
	int saved = errno, cancel;

	if (atomic_load_explicit(&state, memory_order_relaxed) == NONE)
		return true;
	/* Opening files and waiting may be cancellation points. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&taking);
	bool taken = take_locked(bytes);
	pthread_mutex_unlock(&taking);
	pthread_setcancelstate(cancel, NULL);
	errno = saved;
	return taken;
}

static void take_from(_Atomic uint64_t *number, uint64_t bytes)
{
	uint64_t now = atomic_load(number);

	/* Others may have written nonsense there. */
	while (!atomic_compare_exchange_weak(number, &now, now > bytes ? now - bytes : 0))
		;
}

void quota_give(uint64_t bytes)
{
	int now = atomic_load(&state);

	if ((now == SEATED || now == LEFT) && seat.page && atomic_load(&mine()->stamp) == seat.stamp)
		take_from(&mine()->used, bytes);
}

uint64_t quota_left(void)
{
	struct view view;

	if (!is_seated() || !look(&view))
		return UINT64_MAX;
	uint64_t room = room_in(&view, view.used + view.claimed),
		 own = view.part > view.mine ? view.part - view.mine : 0;
	uint64_t beyond = room - smaller(room, view.owed);
	return beyond > own ? beyond : smaller(room, own);
}

uint64_t quota_refusals(void)
{
	return atomic_load_explicit(&refusals, memory_order_relaxed);
}

/* ---- what is spare ---- */

void quota_spare_add(uint64_t bytes)
{
	if (is_seated())
		atomic_fetch_add(&mine()->spare, bytes);
}

void quota_spare_sub(uint64_t bytes)
{
	if (is_seated())
		take_from(&mine()->spare, bytes);
}

bool quota_is_asked(void)
{
	return is_seated() && atomic_load_explicit(&seat.page->asked_until, memory_order_relaxed) >= clock_now();
}

uint64_t quota_owed(void)
{
	struct view view;

	if (!quota_is_asked())
		return 0;
	uint64_t spare = atomic_load(&mine()->spare);
	if (!spare || !look(&view))
		return 0;
	uint64_t room = room_in(&view, view.used);
	if (view.wanted <= room)
		return 0;
	/* All who have spare give of it in proportion. */
	unsigned __int128 share = (unsigned __int128)(view.wanted - room) * spare / (spare + view.spare);
	return smaller(((uint64_t)share / UNIT + 1) * UNIT, spare);
}

void quota_returned(uint64_t bytes)
{
	stats_add(STAT_share_returned_bytes, bytes);
}

bool quota_wait(uint64_t bytes, unsigned *tries)
{
	struct view view;

	if (!is_seated() || *tries >= WAIT_TRIES || !look(&view) || !(view.spare || view.ending) || bytes > view.total)
		return false;
	if (!(*tries)++)
		stats_add(STAT_share_waits, 1);
	want(bytes);
	nanosleep(&(struct timespec){.tv_nsec = WAIT_STEP}, NULL);
	return true;
}

/* ---- now and then ---- */

void quota_tick(void)
{
	struct view view;

	if (!is_seated())
		return;
	sweep();
	if (look(&view))
		tell(&view, 0);
}

void quota_leave(void)
{
	int saved = errno, now = SEATED;

	if (!atomic_compare_exchange_strong(&state, &now, LEFT))
		return;
	/* Nobody is waited for: a thread that takes may have ended with the process. While one takes the slot is kept. */
	bool quiet = pthread_mutex_trylock(&taking) == 0;
	quota_file_leave(&seat, quiet);
	if (quiet)
		pthread_mutex_unlock(&taking);
	errno = saved;
}

void quota_child(void)
{
	if (atomic_exchange(&state, NONE) != SEATED)
		return;
	/* The parent's lock goes with its last descriptor. */
	close(seat.fd);
	seat.fd = -1;
}
