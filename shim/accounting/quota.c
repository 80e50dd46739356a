// SPDX-License-Identifier: Apache-2.0
/*
 * quota.c: taking from the shared host budget. The file holds no sum: the sum is what the slots say, so a process that
 * dies leaves nothing to be repaired, only a slot that is no longer counted. A process adds up all slots, and takes,
 * under the lock of the file; it gives without.
 *
 * The process itself keeps what its slot says (`mine`). When its file is lost it enters the next one with that.
 */
#include "shim/accounting/quota.h"
#include "shim/accounting/budget.h"
#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/base/user_dir.h"
#include "shim/stats/stats.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define WAIT_STEP  5000000 /* ns; WAIT_TRIES of it are 2.5 s, longer than others need to look once */
#define WAIT_TRIES 500
#define TRIES      3                   /* to take: each time the file was lost again, or its lock */
#define UNIT       ((uint64_t)2 << 20) /* spare goes back in chunks, which have at least this size */
#define SLOTS_READ 32                  /* at once: 2.25 KiB of the stack */

static const struct shared_kind kind = {
    .magic = QUOTA_MAGIC,
    .version = QUOTA_VERSION,
    .slots = SHARED_SLOTS,
    .head_bytes = sizeof(struct quota_head),
    .slot_bytes = sizeof(struct quota_slot),
};
_Static_assert(sizeof(struct quota_slot) <= SHARED_SLOT, "a slot fits where slots are read");

enum state {
	NONE,     /* nothing is shared */
	ARRANGED, /* nothing has been taken yet */
	SEATED,
	ALONE,   /* the file cannot be used: this process has its own budget */
	OUTSIDE, /* others have a file that cannot be entered now: nothing is taken until it can (join()) */
	LEFT,    /* the process ends */
};

struct quota_state quota_state = {
    .taking = LOCK_INIT(LOCK_QUOTA_TAKE),
    .publishing = LOCK_INIT(LOCK_QUOTA_SEAT),
    .want_lasts = 2000000000,
    .sweep_every = 5000000,
    .patience = 2000000000,
};

static bool is_seated(void)
{
	return atomic_load(&quota_state.state) == SEATED;
}

static void be_alone(const char *why)
{
	int seated = atomic_load(&quota_state.state);

	/* Not while the process ends. */
	if (seated == LEFT || !atomic_compare_exchange_strong(&quota_state.state, &seated, ALONE))
		return;
	log_once("the host budget cannot be shared with other processes of this user (%s): this one has a budget of "
		 "its own, and so may each of the others",
		 why);
	if (seated == SEATED)
		stats_set_share(0, 0, 0);
}

void quota_arrange(const struct quota_terms *given)
{
	quota_state.terms = *given;
	atomic_store(&quota_state.state, ARRANGED);
}

void quota_keep_limit(void)
{
	lock_take(&quota_state.taking);
	quota_state.terms.limit = NULL;
	lock_drop(&quota_state.taking);
}

/* ---- our own slot ---- */

/* A copy: the seat may be replaced meanwhile. The descriptor is checked before it is used. */
static struct shared_file seat_now(void)
{
	lock_take(&quota_state.publishing);
	struct shared_file now = quota_state.seat;
	lock_drop(&quota_state.publishing);
	return now;
}

static struct quota_slot mine_now(void)
{
	lock_take(&quota_state.publishing);
	struct quota_slot now = quota_state.mine;
	lock_drop(&quota_state.publishing);
	return now;
}

/* Adds to one number of `mine`, or subtracts as much as there is, and writes the slot. */
static bool publish(uint64_t *number, uint64_t more, uint64_t less)
{
	lock_take(&quota_state.publishing);
	*number += more;
	*number -= smaller(less, *number);
	bool written = shared_publish(&quota_state.seat, &quota_state.mine);
	lock_drop(&quota_state.publishing);
	return written;
}

/* ---- what all slots say ---- */

struct view {
	uint64_t total, used;
	bool fixed;
	uint64_t mine;          /* the bytes used by us */
	uint64_t part;          /* what each rank may have in any case */
	uint64_t spare, ending; /* spare: of others, unused; ending: pinned by processes that end */
	uint64_t owed;          /* to others, whose part would serve what they were refused */
	uint64_t wanted;        /* by others, whatever they have and want */
	unsigned ranks;
};

enum looked {
	GOOD,
	LOST,     /* the file, or our slot in it, is lost */
	NONSENSE, /* another process has written an impossible number */
};

static enum looked add_slot(struct view *view, const struct quota_slot *slot, bool own)
{
	if (own && !slot->owner.pid)
		return LOST;
	if (own && slot->number != identity_get())
		return NONSENSE;
	if (!slot->owner.pid)
		return GOOD;
	if (slot->used > SHARED_MOST)
		return NONSENSE;
	view->used += slot->used;
	view->ranks += !slot->owner.leaving;
	if (own)
		view->mine = slot->used;
	if (slot->owner.leaving)
		view->ending += slot->used;
	else if (!own)
		view->spare += smaller(slot->spare, slot->used);
	return GOOD;
}

/* Others are owed what they were refused lately, if their part would serve it. view->part must be set. */
static void add_want(struct view *view, const struct quota_slot *slot, uint64_t now)
{
	uint64_t until = slot->wanted_until, most = smaller(slot->wanted, view->total);

	/* A time that lies too far ahead was not given by this clock. */
	if (!slot->owner.pid || until <= now || until > now + quota_state.want_lasts)
		return;
	uint64_t wanted = most > slot->used ? most - slot->used : 0;
	view->wanted += wanted;
	if (slot->wanted <= view->part)
		view->owed += wanted;
}

/* Adds up all slots, our own included. Sets *ret_view only if it returns GOOD. */
static enum looked look_from(const struct shared_file *at, struct view *ret_view)
{
	struct quota_slot slots[SLOTS_READ];
	struct quota_head head;
	enum looked looked = GOOD;

	if (!shared_is_whole(at) || !shared_read_head(at->fd, &kind, &head))
		return LOST;
	struct view view = {.total = head.file.total, .fixed = head.file.fixed};
	if (view.total > SHARED_MOST)
		return NONSENSE;
	for (unsigned i = 0; i < SHARED_SLOTS && looked == GOOD; i++) {
		if (i % SLOTS_READ == 0 && !shared_read_slots(at->fd, &kind, i, SLOTS_READ, slots))
			return LOST;
		looked = add_slot(&view, &slots[i % SLOTS_READ], i == at->slot);
	}
	if (looked != GOOD)
		return looked;
	view.part = view.total / (view.ranks ? view.ranks : 1);
	uint64_t now = clock_now();
	for (unsigned i = 0; i < SHARED_SLOTS && head.asked_until > now; i++) {
		if (i % SLOTS_READ == 0 && !shared_read_slots(at->fd, &kind, i, SLOTS_READ, slots))
			return LOST;
		if (i != at->slot)
			add_want(&view, &slots[i % SLOTS_READ], now);
	}
	*ret_view = view;
	return GOOD;
}

static enum looked look(struct view *ret_view)
{
	struct shared_file at = seat_now();

	return look_from(&at, ret_view);
}

static uint64_t room_of(const struct view *view)
{
	return view->total > view->used ? view->total - view->used : 0;
}

/* Returns true if our part would serve that many bytes more. */
static bool is_part(const struct view *view, uint64_t bytes)
{
	return bytes <= view->part && view->mine <= view->part - bytes;
}

/* Returns true if that many bytes fit, and are not owed to others. */
static bool fits(const struct view *view, uint64_t bytes)
{
	uint64_t room = room_of(view);

	return bytes <= room && (is_part(view, bytes) || bytes <= room - smaller(room, view->owed));
}

/* ---- joining ---- */

static uint64_t own_total(void)
{
	uint64_t total = smaller(quota_state.terms.total, SHARED_MOST);

	return total ? total : 1;
}

/* Says once why the total is another one than the policy's. Totals that were computed differ by chance. */
static void say_total(const struct view *view)
{
	char holds[32], text[32];

	log_bytes(holds, sizeof(holds), view->total);
	if (quota_state.terms.given)
		log_once("host.total: %s is not in effect: other processes of this user have begun with %s, which "
			 "holds until they have ended",
			 log_bytes(text, sizeof(text), quota_state.terms.total), holds);
	else if (view->fixed)
		log_once("host.total: another process of this user has set it to %s, which holds for this one, too",
			 holds);
}

static void quota_tell(const struct view *view, uint64_t more)
{
	if (view->total != own_total())
		say_total(view);
	stats_set_share(view->total, smaller(view->used + more, view->total), view->ranks);
	quota_state.terms.total = view->total;
	if (quota_state.terms.limit)
		atomic_store(quota_state.terms.limit, view->total);
}

static bool quota_sweep(void)
{
	struct shared_file at = seat_now();
	unsigned n = shared_sweep(&at);

	if (n)
		stats_add(STAT_share_reclaimed, n);
	return n != 0;
}

/* Sweeps every sweep_every ns at most, for a process refused again and again: a sweep takes 20 to 40 us a rank. */
static bool sweep_if_due(void)
{
	uint64_t now = clock_now();

	if (now - quota_state.last_sweep < quota_state.sweep_every)
		return false;
	quota_state.last_sweep = now;
	return quota_sweep();
}

static void log_foreign(uint64_t version)
{
	log_once(
	    "processes of this user that run with %s version of Spillway share the host budget by a file of version "
	    "%llu, and this one knows version %d: until they end, this process gets no more host memory; start all "
	    "of them with the same version",
	    version < QUOTA_VERSION ? "an older" : "a newer", (unsigned long long)version, QUOTA_VERSION);
}

/*
 * Joins, or joins again after the file was lost. The process never gets a budget of its own if only the lock could
 * not be had, if others have not left a damaged file yet, or if another version of this library has the file: other
 * processes hold the memory. Locking: the caller must hold `taking`.
 */
static void join(void)
{
	const struct shared_terms terms = {
	    .total = own_total(), .replaces = quota_state.terms.given, .fixed = quota_state.terms.given};
	int before = atomic_load(&quota_state.state);
	bool again = before == SEATED;
	struct shared_file next = {.kind = &kind,
				   .patience = before == OUTSIDE ? 0 : quota_state.patience,
				   .lost = quota_state.seat.lost || again};
	struct stat status;

	if (quota_state.terms.domain)
		snprintf(next.name, sizeof(next.name), "host-%llx" QUOTA_TAIL,
			 (unsigned long long)quota_state.terms.domain);
	else
		snprintf(next.name, sizeof(next.name), "host" QUOTA_TAIL);
	lock_take(&quota_state.publishing);
	/*
	 * Who has a place in a damaged file keeps it from being made again. In a removed one others find what we hold.
	 * The number of a descriptor that the program has closed may be that of the next one.
	 */
	if (!shared_is_open(&quota_state.seat) || fstat(quota_state.seat.fd, &status) != 0 || status.st_nlink)
		shared_abandon(&quota_state.seat);
	quota_state.mine.owner = (struct shared_owner){
	    .pid = (uint64_t)getpid(), .started = user_dir_process_started(getpid()), .space = identity_space()};
	quota_state.mine.number = identity_get();
	struct quota_slot mine = quota_state.mine;
	lock_drop(&quota_state.publishing);
	int error = shared_enter(&next, &terms, &mine);
	if (error == -EPROTONOSUPPORT)
		log_foreign(next.version);
	else if (error == -EBUSY || (error == -EPROTO && before == OUTSIDE))
		log_once(
		    "a process of this user holds the file of the host budget that they share, and does not go on (is "
		    "it stopped?): until it does, or ends, this process gets no more host memory");
	if (error && (error == -EPROTONOSUPPORT || !shared_why(error))) {
		atomic_compare_exchange_strong(&quota_state.state, &before, OUTSIDE);
		return;
	}
	if (error) {
		be_alone(shared_why(error));
		return;
	}
	lock_take(&quota_state.publishing);
	shared_abandon(&quota_state.seat);
	quota_state.seat = next;
	/* Memory was given back meanwhile. */
	shared_publish(&quota_state.seat, &quota_state.mine);
	lock_drop(&quota_state.publishing);
	atomic_compare_exchange_strong(&quota_state.state, &before, SEATED);
	quota_sweep();
	if (again && user_dir_is_first_loss())
		log_line(USER_DIR_LOSS);
}

/* ---- taking ---- */

/* level: what we would have with what was refused. */
static void quota_want(uint64_t level)
{
	uint64_t until = clock_now() + quota_state.want_lasts;
	struct shared_file at = seat_now();
	struct quota_head head;

	lock_take(&quota_state.publishing);
	quota_state.mine.wanted = level;
	quota_state.mine.wanted_until = until;
	shared_publish(&quota_state.seat, &quota_state.mine);
	lock_drop(&quota_state.publishing);
	/* A time too far ahead would never pass. Two processes that write at once differ by microseconds. */
	if (shared_is_whole(&at) && shared_read_head(at.fd, &kind, &head) &&
	    (head.asked_until < until || head.asked_until > until + quota_state.want_lasts))
		shared_write(at.fd, &until, sizeof(until), offsetof(struct quota_head, asked_until));
}

static void quota_refuse(uint64_t bytes)
{
	struct view view;

	if (is_seated() && look(&view) == GOOD) {
		quota_tell(&view, 0);
		/* Others leave to us what our part would serve. */
		if (is_part(&view, bytes) && mine_now().wanted_until < clock_now())
			quota_want(view.mine + bytes);
	}
	stats_add(STAT_share_refused, 1);
}

enum taken {
	TAKEN,
	REFUSED,
	AGAIN, /* this process was stopped meanwhile, and another took the lock */
	GONE,  /* the file was lost */
	DAMAGED
};

static enum taken take_once(uint64_t bytes)
{
	struct shared_file at = seat_now();
	struct view view;

	if (!shared_is_whole(&at))
		return GONE;
	at.patience = quota_state.patience;
	if (!shared_lock(&at))
		return REFUSED;
	enum looked looked = look_from(&at, &view);
	enum taken taken = looked == NONSENSE ? DAMAGED : looked == LOST ? GONE : REFUSED;
	if (looked == GOOD && fits(&view, bytes)) {
		taken = publish(&quota_state.mine.used, bytes, 0) && shared_held(&at) ? TAKEN
			: shared_is_whole(&at)                                        ? AGAIN
										      : GONE;
		if (taken == TAKEN)
			quota_tell(&view, bytes);
		else
			publish(&quota_state.mine.used, 0, bytes);
	}
	shared_unlock(&at);
	return taken;
}

static enum taken try_to_take(uint64_t bytes)
{
	enum taken taken = GONE;

	for (unsigned i = 0; i < TRIES && (taken == GONE || taken == AGAIN); i++) {
		if (i && taken == GONE)
			join();
		if (!is_seated())
			return REFUSED;
		taken = take_once(bytes);
		if (taken == REFUSED && sweep_if_due())
			taken = take_once(bytes);
	}
	return taken;
}

static bool take_locked(uint64_t bytes)
{
	int now = atomic_load(&quota_state.state);

	if (now == ARRANGED || now == OUTSIDE)
		join();
	now = atomic_load(&quota_state.state);
	if (now == LEFT)
		return false;
	enum taken taken = now == SEATED ? try_to_take(bytes) : REFUSED;
	if (taken == DAMAGED)
		be_alone("its file is damaged");
	if (atomic_load(&quota_state.state) == ALONE)
		return true;
	if (taken != TAKEN)
		quota_refuse(bytes);
	else if (mine_now().wanted_until)
		publish(&quota_state.mine.wanted_until, 0, UINT64_MAX);
	return taken == TAKEN;
}

bool quota_take(uint64_t bytes)
{
	if (atomic_load_explicit(&quota_state.state, memory_order_relaxed) == NONE)
		return true;
	lock_take(&quota_state.taking);
	bool taken = take_locked(bytes);
	lock_drop(&quota_state.taking);
	return taken;
}

void quota_give(uint64_t bytes)
{
	int now = atomic_load(&quota_state.state);

	if (now == NONE || now == ARRANGED || now == ALONE)
		return;
	publish(&quota_state.mine.used, 0, bytes);
}

uint64_t quota_left(void)
{
	struct view view;

	if (!is_seated() || look(&view) != GOOD)
		return UINT64_MAX;
	uint64_t room = room_of(&view), own = view.part > view.mine ? view.part - view.mine : 0;
	uint64_t beyond = room - smaller(room, view.owed);
	return beyond > own ? beyond : smaller(room, own);
}

uint64_t quota_enough(uint64_t bytes)
{
	struct view view;

	if (!is_seated() || look(&view) != GOOD || fits(&view, bytes))
		return 0;
	bytes = smaller(bytes, SHARED_MOST);
	uint64_t gone = view.used, part = view.ranks * (view.mine + bytes);
	/* It fits with all that others want, or is our part of it. */
	return gone + bytes + (part > gone + bytes ? smaller(view.wanted, part - gone - bytes) : 0);
}

/* ---- the spare ---- */

void quota_spare(uint64_t more, uint64_t less)
{
	if (is_seated())
		publish(&quota_state.mine.spare, more, less);
}

bool quota_is_asked(void)
{
	struct quota_head head;

	if (!is_seated())
		return false;
	struct shared_file at = seat_now();
	return shared_is_open(&at) && shared_read_head(at.fd, &kind, &head) && head.asked_until >= clock_now();
}

uint64_t quota_owed(void)
{
	struct view view;

	if (!quota_is_asked())
		return 0;
	uint64_t mine = mine_now().spare;
	if (!mine || look(&view) != GOOD)
		return 0;
	uint64_t room = room_of(&view);
	if (view.wanted <= room)
		return 0;
	/* All ranks that have spare give some of it, in proportion. */
	unsigned __int128 share = (unsigned __int128)(view.wanted - room) * mine / (mine + view.spare);
	return smaller(((uint64_t)share / UNIT + 1) * UNIT, mine);
}

bool quota_wait(uint64_t bytes, unsigned *tries)
{
	struct view view;

	if (!is_seated() || look(&view) != GOOD)
		return false;
	bool waits = *tries < WAIT_TRIES && (view.spare || view.ending) && bytes <= view.total;
	/*
	 * quota_refuse() may have published only a piece of it as wanted. Others must know whether our part would serve
	 * all of it. What is spare serves the first bytes of it.
	 */
	const struct quota_slot mine = mine_now();
	if (waits || mine.wanted_until)
		quota_want(view.mine - smaller(mine.spare, view.mine) + smaller(bytes, SHARED_MOST));
	if (!waits)
		return false;
	if (!(*tries)++)
		stats_add(STAT_share_waits, 1);
	nanosleep(&(struct timespec){.tv_nsec = WAIT_STEP}, NULL);
	return true;
}

/* ---- periodic work and the end ---- */

/* Locking: the caller must hold `taking`. */
static void tick_locked(void)
{
	struct view view;
	enum looked looked = LOST;

	if (atomic_load(&quota_state.state) == OUTSIDE)
		join();
	for (unsigned i = 0; i < 2 && looked == LOST && is_seated(); i++) {
		if (i)
			join();
		quota_sweep();
		looked = look(&view);
	}
	if (looked == GOOD)
		quota_tell(&view, 0);
}

void quota_tick(void)
{
	int now = atomic_load(&quota_state.state);

	/* A thread that takes just now does the same, as far as it matters. */
	if ((now != SEATED && now != OUTSIDE) || !lock_try(&quota_state.taking))
		return;
	tick_locked();
	lock_drop(&quota_state.taking);
}

void quota_leave(void)
{
	int now = SEATED;

	if (!atomic_compare_exchange_strong(&quota_state.state, &now, LEFT)) {
		if (now == OUTSIDE)
			atomic_store(&quota_state.state, LEFT);
		return;
	}
	/* Waits for no thread: a thread that takes may have ended with the process. If one takes, the slot is kept. */
	bool quiet = lock_try(&quota_state.taking);
	bool still = quiet && lock_try(&quota_state.publishing);
	bool empty = still && !quota_state.mine.used;

	if (still) {
		quota_state.mine.owner.leaving = 1;
		if (empty)
			quota_state.mine.owner.pid = 0;
		lock_drop(&quota_state.publishing);
	}
	if (quiet) {
		shared_leave(&quota_state.seat, empty);
		lock_drop(&quota_state.taking);
	}
}

void quota_child(void)
{
	atomic_store(&quota_state.state, NONE);
	quota_state.seat.open = false;
	shared_forked(false); /* it has no children yet */
}
