/*
 * quota.c: taking from the shared host budget. The file holds no sum: the sum is what the slots say, so a process
 * that dies leaves nothing to be repaired, only a slot that is no longer counted.
 *
 * To take, a process first publishes what it is about to take (its claim), then adds up all slots, its own included,
 * and takes if the sum fits. Of any set of takes that together were too much, the one whose claim was published last
 * has seen the claims, or the bytes taken, of all others: it did not take. So the sum is never more than the total.
 *
 * Two that claim the last bytes at the same time see each other. The one in the lower slot leaves its claim there and
 * waits for the other, which withdraws its claim and waits until the lower one has had its turn; so one of them
 * takes, and the other is refused because the bytes are taken. A claim whose process has died is found by looking for
 * the dead; a claim whose process was stopped at this very point is waited for, for a second, and then counts as
 * taken.
 *
 * A claim is read before the bytes used, and written after them: what moves from one to the other may be counted
 * twice, but is never missed.
 *
 * The process itself keeps what it holds (`held`). When its file is lost it joins again, with that
 * (quota_file_join()); a take whose claim stands in a file from which all has been carried over is undone, and made
 * again in the new one.
 */
#include "shim/accounting/quota.h"
#include "shim/base/clock.h"
#include "shim/base/lock.h"
#include "shim/base/log.h"
#include "shim/accounting/accounting_state.h"
#include "shim/accounting/quota_internal.h"
#include "shim/base/user_dir.h"
#include "shim/stats/stats.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define CLAIM_LOOK  5000000u /* ns after which its process might be dead */
#define CLAIM_YIELD 50000u   /* ns: a claim lasts for some ten system calls, unless its thread is not running */
#define WAIT_STEP   5000000  /* ns; WAIT_TRIES of it are 2.5 s, longer than others need to look once */
#define WAIT_TRIES  500
#define JOIN_TRIES  3                   /* each time the file was lost again */
#define UNIT        ((uint64_t)2 << 20) /* spare goes back in chunks, which have at least this size */

enum state {
	NONE,     /* nothing is shared */
	ARRANGED, /* nothing has been taken yet */
	SEATED,
	ALONE,   /* the file cannot be used: this process has its own budget */
	OUTSIDE, /* others have a file that cannot be entered now: nothing is taken until it can (quota_join_file()) */
	LEFT,    /* the process ends */
};

static bool is_seated(void)
{
	return atomic_load(&accounting_state.quota.state) == SEATED;
}

static void be_alone(const char *why)
{
	int seated = atomic_load(&accounting_state.quota.state);

	/* Not while the process ends. */
	if (seated == LEFT || !atomic_compare_exchange_strong(&accounting_state.quota.state, &seated, ALONE))
		return;

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
		be_alone("its file is damaged, and in use");
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
	accounting_state.quota.terms = *given;
	atomic_store(&accounting_state.quota.state, ARRANGED);
}

void quota_keep_limit(void)
{
	lock_take(&accounting_state.quota.taking);
	accounting_state.quota.terms.limit = NULL;
	lock_drop(&accounting_state.quota.taking);
}

/* ---- our own slot ---- */

/* A copy: the seat may be replaced meanwhile. The descriptor is checked before it is used (quota_file.c). */
static struct quota_seat seat_now(void)
{
	lock_take(&accounting_state.quota.publishing);
	struct quota_seat now = accounting_state.quota.seat;
	lock_drop(&accounting_state.quota.publishing);
	return now;
}

static enum quota_looked quota_look(struct quota_view *ret_view)
{
	struct quota_seat at = seat_now();

	return quota_view_look(&at, ret_view);
}

/* Locking: takes `publishing`. */
static bool write_slot(size_t offset, uint64_t value)
{
	struct quota_state *const quota = &accounting_state.quota;

	lock_take(&quota->publishing);
	bool written = quota_file_write(&quota->seat, QUOTA_SLOT(&quota->seat, stamp) + offset, value);
	lock_drop(&quota->publishing);
	return written;
}
#define WRITE(field, value) write_slot(offsetof(struct quota_slot, field), value)

static void quota_tell(const struct quota_view *view, uint64_t more)
{
	struct quota_seat at = seat_now();

	if (view->total != quota_smaller(accounting_state.quota.terms.total, QUOTA_MOST))
		quota_file_say_total(&at, view->total);
	/* A slot whose process has not come back counts as more than the total. */
	stats_set_share(view->total, quota_smaller(view->used + more, view->total), view->ranks);
	accounting_state.quota.terms.total = view->total;
	if (accounting_state.quota.terms.limit)
		atomic_store(accounting_state.quota.terms.limit, view->total);
}

/* ---- taking ---- */

/* Returns true if the share of a dead process came back. */
static bool quota_sweep(void)
{
	int saved = errno;
	struct quota_seat at = seat_now();
	unsigned n = quota_file_sweep(&at);

	if (n)
		stats_add(STAT_share_reclaimed, n);
	errno = saved;
	return n != 0;
}

/* The same for a process that is refused again and again: a sweep takes 20 to 40 us for each rank. */
static bool sweep_if_due(void)
{
	uint64_t now = clock_now();

	if (now - accounting_state.quota.last_sweep < accounting_state.quota.sweep_every)
		return false;
	accounting_state.quota.last_sweep = now;
	return quota_sweep();
}

/* Waits for others' claims. Returns false if that has lasted too long. */
static bool pause_from(uint64_t *since)
{
	uint64_t now = clock_now();

	if (!*since)
		*since = now;
	if (now - *since > accounting_state.quota.patience)
		return false;
	if (now - *since > CLAIM_LOOK)
		sweep_if_due();
	if (now - *since > CLAIM_YIELD)
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	else
		sched_yield();
	return true;
}

static bool is_lower_claim(void)
{
	struct quota_view view;

	return quota_look(&view) == QUOTA_GOOD && view.lower_claim;
}

/* The result of a try. */
enum taken { TAKEN, REFUSED, GONE, DAMAGED };

/* Called before the claim is withdrawn. */
static bool add_held(uint64_t bytes)
{
	struct quota_state *const quota = &accounting_state.quota;

	lock_take(&quota->publishing);
	bool written = quota_file_write(&quota->seat, QUOTA_SLOT(&quota->seat, used), quota->held + bytes);
	quota->held += written ? bytes : 0;
	lock_drop(&quota->publishing);
	return written;
}

static enum taken try_once(uint64_t bytes)
{
	enum taken result = REFUSED;
	uint64_t since = 0;
	struct quota_view view;

	/* A take that cannot succeed publishes no claim, so that it is not in the way of others. */
	if (quota_look(&view) == QUOTA_GOOD && !quota_view_fits(&view, view.used, bytes))
		return REFUSED;
	for (;;) {
		bool claimed = WRITE(claim, bytes);

		quota_file_fence();
		enum quota_looked looked = quota_look(&view);
		if (looked != QUOTA_GOOD || !claimed) {
			result = looked == QUOTA_NONSENSE ? DAMAGED : GONE;
			break;
		}
		if (quota_view_fits(&view, view.used + view.claimed, bytes)) {
			result = add_held(bytes) ? TAKEN : GONE;
			if (result == TAKEN)
				quota_tell(&view, bytes);
			break;
		}
		if (!quota_view_fits(&view, view.used, bytes))
			break;
		bool in_time = pause_from(&since);
		if (view.lower_claim) {
			WRITE(claim, 0);
			while (in_time && is_lower_claim())
				in_time = pause_from(&since);
		}
		if (!in_time)
			break;
	}
	WRITE(claim, 0);
	return result;
}

/* level: what we would have with what was refused. */
static void quota_want(uint64_t level)
{
	uint64_t until = clock_now() + accounting_state.quota.want_lasts;
	struct quota_seat at = seat_now();
	struct quota_head head;

	WRITE(wanted, level);
	WRITE(wanted_until, until);
	atomic_store(&accounting_state.quota.wanted_until, until);
	/* A time too far ahead would never pass. Two processes that write at once differ by microseconds. */
	if (quota_file_read_head(&at, &head) &&
	    (head.asked_until < until || head.asked_until > until + accounting_state.quota.want_lasts))
		quota_file_write(&at, QUOTA_HEAD(asked_until), until);
}

static void quota_refuse(uint64_t bytes)
{
	struct quota_view view;

	if (is_seated() && quota_look(&view) == QUOTA_GOOD) {
		quota_tell(&view, 0);
		/* Others leave to us what our part would serve. */
		if (quota_view_is_part(&view, bytes) && atomic_load(&accounting_state.quota.wanted_until) < clock_now())
			quota_want(view.mine + bytes);
	}
	atomic_fetch_add(&accounting_state.quota.refusals, 1);
	stats_add(STAT_share_refused, 1);
}

/*
 * Joins, or joins again after the file was lost. The process never gets a budget of its own if only the lock could
 * not be had, or if another version of this library has the file: other processes hold the memory. In the first case
 * one of them is stopped just where it holds the lock. Locking: the caller must hold `taking`.
 */
static void quota_join_file(void)
{
	struct quota_state *const quota = &accounting_state.quota;
	int before = atomic_load(&quota->state);
	bool again = before == SEATED;
	struct quota_seat next = quota->seat;

	lock_take(&quota->publishing);
	uint64_t now = quota->held;
	lock_drop(&quota->publishing);
	int error = quota_file_join(&quota->terms, &next, now, before != OUTSIDE);
	if (error == -EBUSY)
		log_once(
		    "a process of this user holds the file of the host budget that they share, and does not go on (is "
		    "it stopped?): until it does, or ends, this process gets no more host memory");
	if (error == -EBUSY || error == -EPROTONOSUPPORT) {
		atomic_compare_exchange_strong(&quota->state, &before, OUTSIDE);
		return;
	}
	if (error) {
		be_alone_for(error);
		return;
	}
	lock_take(&quota->publishing);
	quota->seat = next;
	/* Memory was given back meanwhile. */
	if (quota->held != now)
		quota_file_write(&quota->seat, QUOTA_SLOT(&quota->seat, used), quota->held);
	quota_file_write(&quota->seat, QUOTA_SLOT(&quota->seat, spare), quota->spare);
	lock_drop(&quota->publishing);
	atomic_compare_exchange_strong(&quota->state, &before, SEATED);
	if (again && user_dir_is_first_loss())
		log_line(USER_DIR_LOSS);
}

static enum taken try_to_take(uint64_t bytes)
{
	enum taken taken = GONE;

	for (unsigned i = 0; i < JOIN_TRIES && taken == GONE; i++) {
		if (i)
			quota_join_file();
		if (!is_seated())
			return REFUSED;
		taken = try_once(bytes);
		if (taken == REFUSED && sweep_if_due())
			taken = try_once(bytes);
	}
	return taken;
}

static bool take_locked(uint64_t bytes)
{
	struct quota_state *const quota = &accounting_state.quota;
	int now = atomic_load(&quota->state);

	if (now == ARRANGED || now == OUTSIDE)
		quota_join_file();
	now = atomic_load(&quota->state);
	if (now == ALONE)
		return true;
	if (now == LEFT)
		return false;
	enum taken taken = now == OUTSIDE ? REFUSED : try_to_take(bytes);
	if (taken == DAMAGED)
		be_alone("its file is damaged");
	if (atomic_load(&quota->state) == ALONE)
		return true;
	if (taken != TAKEN)
		quota_refuse(bytes);
	else if (atomic_exchange(&quota->wanted_until, 0))
		WRITE(wanted_until, 0);
	return taken == TAKEN;
}

bool quota_take(uint64_t bytes)
{
	int saved = errno;

	if (atomic_load_explicit(&accounting_state.quota.state, memory_order_relaxed) == NONE)
		return true;
	lock_take(&accounting_state.quota.taking);
	bool taken = take_locked(bytes);
	lock_drop(&accounting_state.quota.taking);
	errno = saved;
	return taken;
}

/* Writes `now` at that offset of the slot, if the slot is still ours. Locking: the caller must hold `publishing`. */
static void quota_publish(size_t offset, uint64_t now)
{
	struct quota_state *const quota = &accounting_state.quota;
	struct quota_slot slot;
	int at = atomic_load(&quota->state);

	if ((at == SEATED || at == LEFT) && quota_file_is_open(&quota->seat) &&
	    quota_file_read_slots(&quota->seat, quota->seat.index, 1, &slot) &&
	    quota_view_check_own(&quota->seat, &slot) == QUOTA_GOOD)
		quota_file_write(&quota->seat, QUOTA_SLOT(&quota->seat, stamp) + offset, now);
}

void quota_give(uint64_t bytes)
{
	struct quota_state *const quota = &accounting_state.quota;
	int now = atomic_load(&quota->state), saved = errno;

	if (now == NONE || now == ARRANGED || now == ALONE)
		return;
	lock_take(&quota->publishing);
	quota->held -= quota_smaller(bytes, quota->held);
	quota_publish(offsetof(struct quota_slot, used), quota->held);
	lock_drop(&quota->publishing);
	errno = saved;
}

uint64_t quota_left(void)
{
	struct quota_view view;

	if (!is_seated() || quota_look(&view) != QUOTA_GOOD)
		return UINT64_MAX;
	uint64_t room = quota_view_room(&view, view.used + view.claimed),
		 own = view.part > view.mine ? view.part - view.mine : 0;
	uint64_t beyond = room - quota_smaller(room, view.owed);
	return beyond > own ? beyond : quota_smaller(room, own);
}

uint64_t quota_enough(uint64_t bytes)
{
	struct quota_view view;

	if (!is_seated() || quota_look(&view) != QUOTA_GOOD || quota_view_fits(&view, view.used + view.claimed, bytes))
		return 0;
	bytes = quota_smaller(bytes, QUOTA_MOST);
	uint64_t gone = view.used + view.claimed, part = view.ranks * (view.mine + bytes);
	/* It fits with all that others want, or is our part of it. */
	return gone + bytes + (part > gone + bytes ? quota_smaller(view.wanted, part - gone - bytes) : 0);
}

uint64_t quota_refusals(void)
{
	return atomic_load_explicit(&accounting_state.quota.refusals, memory_order_relaxed);
}

/* ---- the spare ---- */

static void set_spare(uint64_t more, uint64_t less)
{
	struct quota_state *const quota = &accounting_state.quota;
	int saved = errno;

	if (!is_seated())
		return;
	lock_take(&quota->publishing);
	quota->spare += more;
	quota->spare -= quota_smaller(less, quota->spare);
	quota_publish(offsetof(struct quota_slot, spare), quota->spare);
	lock_drop(&quota->publishing);
	errno = saved;
}

void quota_spare_add(uint64_t bytes)
{
	set_spare(bytes, 0);
}

void quota_spare_sub(uint64_t bytes)
{
	set_spare(0, bytes);
}

bool quota_is_asked(void)
{
	struct quota_head head;
	int saved = errno;

	if (!is_seated())
		return false;
	struct quota_seat at = seat_now();
	bool asked = quota_file_read_head(&at, &head) && head.asked_until >= clock_now();
	errno = saved;
	return asked;
}

static uint64_t spare_now(void)
{
	lock_take(&accounting_state.quota.publishing);
	uint64_t now = accounting_state.quota.spare;
	lock_drop(&accounting_state.quota.publishing);
	return now;
}

uint64_t quota_owed(void)
{
	struct quota_view view;

	if (!quota_is_asked())
		return 0;
	uint64_t mine = spare_now();
	if (!mine || quota_look(&view) != QUOTA_GOOD)
		return 0;
	uint64_t room = quota_view_room(&view, view.used);
	if (view.wanted <= room)
		return 0;
	/* All ranks that have spare give some of it, in proportion. */
	unsigned __int128 share = (unsigned __int128)(view.wanted - room) * mine / (mine + view.spare);
	return quota_smaller(((uint64_t)share / UNIT + 1) * UNIT, mine);
}

void quota_returned(uint64_t bytes)
{
	stats_add(STAT_share_returned_bytes, bytes);
}

bool quota_wait(uint64_t bytes, unsigned *tries)
{
	struct quota_view view;

	if (!is_seated() || quota_look(&view) != QUOTA_GOOD)
		return false;
	bool waits = *tries < WAIT_TRIES && (view.spare || view.ending) && bytes <= view.total;
	/*
	 * A piece of it may have been said to be wanted: others are to know whether our part would serve all of it. It
	 * begins with what is spare.
	 */
	if (waits || atomic_load(&accounting_state.quota.wanted_until))
		quota_want(view.mine - quota_smaller(spare_now(), view.mine) + quota_smaller(bytes, QUOTA_MOST));
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
	struct quota_view view;
	struct quota_seat at = seat_now();

	if (atomic_load(&accounting_state.quota.state) == OUTSIDE || (is_seated() && !quota_file_is_there(&at)))
		quota_join_file();
	if (!is_seated())
		return;
	quota_sweep();
	enum quota_looked looked = quota_look(&view);
	if (looked == QUOTA_LOST) {
		quota_join_file();
		looked = is_seated() ? quota_look(&view) : QUOTA_LOST;
	}
	if (looked == QUOTA_GOOD)
		quota_tell(&view, 0);
}

void quota_tick(void)
{
	int saved = errno, now = atomic_load(&accounting_state.quota.state);

	/* A thread that takes just now does the same, as far as it matters. */
	if ((now != SEATED && now != OUTSIDE) || !lock_try(&accounting_state.quota.taking))
		return;
	tick_locked();
	lock_drop(&accounting_state.quota.taking);
	errno = saved;
}

void quota_leave(void)
{
	struct quota_state *const quota = &accounting_state.quota;
	int saved = errno, now = SEATED;

	if (!atomic_compare_exchange_strong(&quota->state, &now, LEFT)) {
		if (now == OUTSIDE)
			atomic_store(&quota->state, LEFT);
		return;
	}
	/* Waits for no thread: a thread that takes may have ended with the process. If one takes, the slot is kept. */
	bool quiet = lock_try(&quota->taking);
	bool still = quiet && lock_try(&quota->publishing);
	struct quota_seat at = quota->seat;
	bool empty = still && !quota->held;

	if (still)
		lock_drop(&quota->publishing);
	if (quiet) {
		quota_file_leave(&at, empty);
		lock_drop(&quota->taking);
	}
	errno = saved;
}

void quota_child(void)
{
	struct quota_state *const quota = &accounting_state.quota;
	atomic_store(&quota->state, NONE);
	quota->seat.fd = -1;
	/* This process has no children yet. */
	atomic_store(&accounting_state.has_forked, false);
}
