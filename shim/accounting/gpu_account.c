/*
 * The account of one GPU. See gpu_account.h.
 *
 * The file is read and written by pread() and pwrite(), never mapped: truncating a mapped file ends the processes that
 * touch it. A process that changes what anybody may have, or the turn, holds the lock; the process in slot i holds that
 * of byte 1 + i.
 *
 * The lock is held for some microseconds. A process that is stopped (SIGSTOP) meanwhile would keep all others from
 * changing anything. So where it stays taken for LOCK_NS, the next one takes the lock of another byte, and says so in
 * the head: whoever looks for the lock from then on looks there. The process that was stopped finds that when it goes
 * on: who has changed what it may have looks at the head once more before it uses it, and takes it back if the lock is
 * another one by then. That is so of any two processes that have taken locks of different bytes at the same time:
 * either the first has written its change before the second has read what it changes, or it sees the second one's lock
 * in the head. Of the turn the last one written holds; a mistake there costs time only.
 */
#include "shim/accounting/accounting_state.h"
#include "shim/accounting/gpu_account_slot.h"
#include "shim/accounting/quota_slots.h"
#include "shim/base/clock.h"
#include "shim/base/identity.h"
#include "shim/base/log.h"
#include "shim/base/user_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ns: who uses a file that was lost has left it by then: it looks ten times a second. */
#define SETTLE_NS UINT64_C(1000000000)
#define TRIES     3 /* the file may be removed by the last process that leaves */

static bool read_head(int fd, struct account_head *ret_head)
{
	return quota_file_read_at(fd, ret_head, sizeof(*ret_head), 0) && account_head_is_ours(ret_head);
}

/* ---- the lock ---- */

/* ns, and tries: where it is taken for so long, its process is stopped. A wrong guess costs a try. */
#define LOCK_NS    1000000000u
#define LOCK_TRIES 4

static unsigned lock_byte(uint64_t lock)
{
	return GPU_ACCOUNT_LOCK + (unsigned)(lock % GPU_ACCOUNT_LOCKS);
}

/* Returns which lock the file says. */
static uint64_t lock_in_file(int fd)
{
	struct account_head head;

	return read_head(fd, &head) ? head.lock : 0;
}

static void account_unlock(struct gpu_account *account)
{
	quota_file_lock_byte(account->fd, lock_byte(account->lock), F_UNLCK);
}

/* Takes the lock of that number, if the file says `now` then. */
static bool try_to_lock(struct gpu_account *account, uint64_t lock, uint64_t now)
{
	if (!quota_file_try_lock(account->fd, lock_byte(lock)))
		return false;
	account->lock = lock;
	if (lock_in_file(account->fd) == now)
		return true;
	account_unlock(account);
	return false;
}

/* The holder is stopped: takes the next lock that nobody holds. */
static bool take_other_lock(struct gpu_account *account, uint64_t now)
{
	struct account_head head;
	unsigned i = 1;

	while (i < GPU_ACCOUNT_LOCKS && !try_to_lock(account, now + i, now))
		i++;
	if (i == GPU_ACCOUNT_LOCKS)
		return false;
	bool told =
	    read_head(account->fd, &head) && quota_file_write_at(account->fd, &account->lock, sizeof(account->lock),
								 offsetof(struct account_head, lock));
	if (!told)
		account_unlock(account);
	quota_file_fence();
	return told;
}

static bool account_lock(struct gpu_account *account)
{
	uint64_t lock = lock_in_file(account->fd);
	bool locked = try_to_lock(account, lock, lock);

	if (!locked && !account->busy++)
		account->busy_since = clock_now();
	if (!locked && account->busy >= LOCK_TRIES && clock_now() - account->busy_since >= LOCK_NS)
		locked = take_other_lock(account, lock);
	if (locked)
		account->busy = 0;
	return locked;
}

/* Returns false if this process was stopped, and another has taken the lock meanwhile. The caller has the lock. */
static bool is_still_locked(const struct gpu_account *account)
{
	quota_file_fence();
	return lock_in_file(account->fd) == account->lock;
}

static bool read_slots(int fd, unsigned first, struct account_slot ret_slots[ACCOUNT_SLOTS_READ])
{
	return quota_file_read_at(fd, ret_slots, ACCOUNT_SLOTS_READ * sizeof(*ret_slots), account_slot_at(first));
}

static bool write_member(const struct gpu_account *account, const struct gpu_account_member *member)
{
	struct account_slot slot = {.member = *member};

	return quota_file_write_at(account->fd, &slot, sizeof(slot), account_slot_at(account->slot));
}

/* Returns true if the descriptor is still that of the file, and the file still has its name and its length. */
static bool is_whole(const struct gpu_account *account)
{
	struct stat status;

	return fstat(account->fd, &status) == 0 && status.st_dev == account->device &&
	       status.st_ino == account->inode && status.st_nlink &&
	       status.st_size == (off_t)sizeof(struct account_page);
}

static enum account_slot_state state_of(const struct gpu_account *account, unsigned slot,
					const struct gpu_account_member *member, uint64_t now)
{
	if (slot == account->slot)
		return member->pid ? ACCOUNT_SLOT_LIVES : ACCOUNT_SLOT_FREE;
	return account_slot_state(account->fd, slot, member, now);
}

/* Stores what all others may have, and what this process has published. Returns false if the file cannot be read. */
static bool read_others(const struct gpu_account *account, uint64_t *ret_sum, struct gpu_account_member *ret_own)
{
	struct account_slot slots[ACCOUNT_SLOTS_READ];

	uint64_t now = clock_now();

	*ret_sum = 0;
	for (unsigned i = 0; i < GPU_ACCOUNT_MOST; i++) {
		const struct gpu_account_member *member = &slots[i % ACCOUNT_SLOTS_READ].member;

		if (i % ACCOUNT_SLOTS_READ == 0 && !read_slots(account->fd, i, slots))
			return false;
		if (i == account->slot) {
			*ret_own = *member;
			continue;
		}
		enum account_slot_state is = account_slot_state(account->fd, i, member, now);
		uint64_t has = is == ACCOUNT_SLOT_FREE ? 0 : member->may_have;
		*ret_sum += has < QUOTA_MOST ? has : QUOTA_MOST;
	}
	return true;
}

/* ---- joining ---- */

/* Makes the file ours if nobody uses it. The caller has the lock. */
static bool prepare(struct gpu_account *account, uint64_t total)
{
	static const struct account_page empty; /* zeros, and large */
	struct account_head head;
	struct stat status;

	if (fstat(account->fd, &status) != 0 || !quota_file_is_private(&status) || !status.st_nlink ||
	    !quota_file_may_have(sizeof(empty)))
		return false;
	bool ours = status.st_size == (off_t)sizeof(empty) && read_head(account->fd, &head);
	if (!ours && quota_file_is_locked(account->fd, 1, GPU_ACCOUNT_MOST))
		return false;
	account->total = total;
	if (ours && account->keeps_total && quota_file_is_locked(account->fd, 1, GPU_ACCOUNT_MOST)) {
		account->total = head.total;
		return true;
	}
	if (ours)
		return quota_file_write_at(account->fd, &total, sizeof(total), offsetof(struct account_head, total));
	head = (struct account_head){.bytes = sizeof(empty),
				     .version = GPU_ACCOUNT_VERSION,
				     .magic = GPU_ACCOUNT_MAGIC,
				     .total = total,
				     .lock = account->lock};
	return ftruncate(account->fd, 0) == 0 && quota_file_write_at(account->fd, &empty, sizeof(empty), 0) &&
	       quota_file_write_at(account->fd, &head, sizeof(head), 0);
}

static bool write_turn(const struct gpu_account *account, const struct account_turn *turn)
{
	return quota_file_write_at(account->fd, turn, sizeof(*turn), offsetof(struct account_head, turn));
}

/* The turn of a process that had the slot before is not that of the next one. The caller has the lock. */
static bool drop_turn_of_slot(const struct gpu_account *account)
{
	struct account_head head;

	if (!read_head(account->fd, &head))
		return false;
	if (head.turn.holder != account->slot + 1)
		return true;
	head.turn.number++;
	head.turn.holder = 0;
	return write_turn(account, &head.turn);
}

/*
 * Takes the first slot that is free, and empties those that this process had before its descriptor was closed, or the
 * file was lost: others would count them as long as it lives. The caller has the lock.
 */
static bool take_slot(struct gpu_account *account, const struct gpu_account_member *member)
{
	static const struct gpu_account_member none;
	struct account_slot slots[ACCOUNT_SLOTS_READ];
	unsigned taken = GPU_ACCOUNT_MOST;
	uint64_t now = clock_now();

	for (unsigned i = 0; i < GPU_ACCOUNT_MOST; i++) {
		const struct gpu_account_member *before = &slots[i % ACCOUNT_SLOTS_READ].member;

		if (i % ACCOUNT_SLOTS_READ == 0 && !read_slots(account->fd, i, slots))
			return false;
		if (account_slot_state(account->fd, i, before, now) != ACCOUNT_SLOT_FREE)
			continue;
		bool mine = before->pid && account_same_process(before, member);
		account->slot = i;
		if (taken == GPU_ACCOUNT_MOST && quota_file_try_lock(account->fd, 1 + i))
			taken = i;
		if ((mine || taken == i) && !(drop_turn_of_slot(account) && write_member(account, &none)))
			return false;
	}
	account->slot = taken;
	return taken < GPU_ACCOUNT_MOST && write_member(account, member);
}

/* ---- a file that was lost; the caller has the lock ---- */

static bool settle(const struct gpu_account *account)
{
	uint64_t until = clock_now() + SETTLE_NS;

	return quota_file_write_at(account->fd, &until, sizeof(until), offsetof(struct account_head, settles));
}

/* Returns true if nobody may raise anything. A time that lies too far ahead was not given by this clock. */
static bool settles(const struct account_head *head)
{
	uint64_t now = clock_now();

	return head->settles > now && head->settles <= now + SETTLE_NS;
}

static void carry_over(int fd, const struct stat *status, void *argument)
{
	struct gpu_account *account = argument;

	(void)status;
	account->lost |= account_carry_over(fd, account->fd);
}

/* Who finds nobody there looks whether others use a file that was removed. */
static bool bring_in_lost(struct gpu_account *account)
{
	if (account->lost || !account_is_used(account->fd))
		quota_each_removed(account->name, carry_over, account);
	return !account->lost || settle(account);
}

static bool enter(struct gpu_account *account, const struct user_dir *folder, uint64_t total,
		  const struct gpu_account_member *member)
{
	struct stat status;

	errno = 0;
	account->slot = 0;
	account->fd = openat(folder->fd, account->name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
			     S_IRUSR | S_IWUSR);
	bool locked = account->fd >= 0 && account_lock(account);
	bool entered = locked && prepare(account, total) && fstat(account->fd, &status) == 0 &&
		       bring_in_lost(account) && take_slot(account, member) && is_still_locked(account);
	if (entered) {
		account->lost = false;
		account->device = status.st_dev;
		account->inode = status.st_ino;
	}
	if (!entered && (locked || account->fd < 0))
		account->lasting = account->slot == GPU_ACCOUNT_MOST ? "all its places are taken"
								     : account_why_not(account->fd, errno);
	if (locked)
		account_unlock(account);
	if (!entered && account->fd >= 0)
		close(account->fd);
	return entered;
}

static void write_name(char name[64], const unsigned char uuid[16])
{
	int at = snprintf(name, 64, "gpu-");

	for (unsigned i = 0; i < 16; i++)
		at += snprintf(name + at, 64 - (size_t)at, "%02x", uuid[i]);
	snprintf(name + at, 64 - (size_t)at, GPU_ACCOUNT_TAIL);
}

static void abandon(struct gpu_account *account)
{
	struct stat status;

	/* The program may have closed our descriptor, and reopened its number. Children may have it, too. */
	if (fstat(account->fd, &status) == 0 && status.st_dev == account->device && status.st_ino == account->inode) {
		quota_file_lock_byte(account->fd, 1 + account->slot, F_UNLCK);
		close(account->fd);
	}
	account->joined = false;
	account->lost = true;
}

/* Of several that have entered at the same time, those in the last place see the others, and follow them. */
static bool is_in_first_place(const struct gpu_account *account)
{
	struct user_dir folder;

	if (account_open_folder(account->name, &folder) != 0)
		return true;
	bool first = user_dir_leads_to(folder.fd, account->name, account->device, account->inode);
	user_dir_close(&folder, false);
	return first;
}

bool gpu_account_join(struct gpu_account *account, const unsigned char uuid[16], uint64_t total,
		      const struct gpu_account_member *member)
{
	int saved = errno;
	struct user_dir folder;

	write_name(account->name, uuid);
	for (unsigned i = 0; i < TRIES && !account->joined; i++) {
		int error = account_open_folder(account->name, &folder);

		account->lasting = error ? account_why_not(-1, -error) : NULL;
		if (error)
			break;
		account->joined = enter(account, &folder, total, member);
		user_dir_close(&folder, false);
		/* Another process may have entered a file in another place at the same time. */
		if (account->joined && !is_in_first_place(account))
			abandon(account);
	}
	if (account->lasting)
		log_once("device.total: no account of the GPU (%s): this process goes by its own budget",
			 account->lasting);
	errno = saved;
	return account->joined;
}

/* ---- in the account ---- */

/*
 * Reads all members. Returns false if the file cannot be read, or this process is not in it. A turn whose process has
 * died is that of the first living one of its job, as long as no other has taken its slot.
 */
static bool read_view(const struct gpu_account *account, struct gpu_account_view *ret_view)
{
	struct gpu_job_claim dead = {0};
	struct account_slot slots[ACCOUNT_SLOTS_READ];
	struct account_head head;
	uint64_t now = clock_now();

	if (!read_head(account->fd, &head))
		return false;
	ret_view->total = head.total;
	ret_view->turn = (struct gpu_account_turn){
	    .number = head.turn.number, .on = head.turn.on, .holder = GPU_TURN_NOBODY, .since = head.turn.since};
	for (unsigned i = 0; i < GPU_ACCOUNT_MOST; i++) {
		if (i % ACCOUNT_SLOTS_READ == 0 && !read_slots(account->fd, i, slots))
			return false;
		const struct gpu_account_member *member = &slots[i % ACCOUNT_SLOTS_READ].member;
		enum account_slot_state is = state_of(account, i, member, now);
		bool lives = is == ACCOUNT_SLOT_LIVES, holds = head.turn.holder == i + 1;

		if (holds && !lives)
			dead = member->job;
		if (is == ACCOUNT_SLOT_FREE)
			continue;
		if (i == account->slot)
			ret_view->self = ret_view->n;
		if (holds && lives)
			ret_view->turn.holder = ret_view->n;
		ret_view->slots[ret_view->n] = (unsigned char)i;
		ret_view->members[ret_view->n++] = lives ? *member : account_left_by(member);
	}
	for (unsigned i = 0; i < ret_view->n && ret_view->turn.holder == GPU_TURN_NOBODY; i++)
		if (gpu_job_share(&dead, &ret_view->members[i].job))
			ret_view->turn.holder = i;
	account_leave_out_clocks(ret_view);
	/*
	 * Who is in the account is in the view. If something else has been written over its slot, the file is damaged.
	 */
	return account->slot == GPU_ACCOUNT_MOST || (ret_view->n && ret_view->slots[ret_view->self] == account->slot);
}

bool gpu_account_look(struct gpu_account *account, const struct gpu_account_member *member,
		      struct gpu_account_view *ret_view)
{
	int saved = errno;

	ret_view->n = ret_view->self = 0;
	bool good = is_whole(account) && write_member(account, member) && read_view(account, ret_view);
	if (!good)
		abandon(account);
	errno = saved;
	return good;
}

uint64_t gpu_account_raise(struct gpu_account *account, uint64_t now, uint64_t wanted)
{
	int saved = errno;
	uint64_t may_have = now;

	if (is_whole(account) && account_lock(account)) {
		struct gpu_account_member member;
		struct account_head head;
		uint64_t others;

		if (read_head(account->fd, &head) && !settles(&head) && read_others(account, &others, &member)) {
			uint64_t left = head.total > others ? head.total - others : 0;

			member.may_have = wanted < left ? wanted : left;
			if (member.may_have > now && write_member(account, &member))
				may_have = is_still_locked(account) ? member.may_have : now;
			if (member.may_have > may_have) {
				member.may_have = may_have;
				write_member(account, &member);
			}
		}
		account_unlock(account);
	}
	errno = saved;
	return may_have;
}

bool gpu_account_pass(struct gpu_account *account, const struct gpu_account_view *view, bool on, unsigned holder,
		      uint64_t now)
{
	int saved = errno;
	bool passed = false;

	if (is_whole(account) && account_lock(account)) {
		struct account_head head;

		if (read_head(account->fd, &head) && head.turn.number == view->turn.number &&
		    head.lock == account->lock) {
			head.turn = (struct account_turn){
			    .number = view->turn.number + 1,
			    .on = on,
			    .holder = holder < view->n ? view->slots[holder] + 1u : 0,
			    .since = now,
			};
			passed = write_turn(account, &head.turn) && is_still_locked(account);
		}
		account_unlock(account);
	}
	errno = saved;
	return passed;
}

uint64_t gpu_account_begin(struct gpu_account *account, const unsigned char uuid[16], uint64_t total, uint64_t used,
			   uint64_t limit)
{
	struct gpu_account_member member = {.pid = (uint64_t)getpid(),
					    .may_have = used,
					    .holds = used,
					    .needs = used,
					    .job.process = identity_get(),
					    .started = user_dir_process_started(getpid()),
					    .space = identity_space()};

	if (!account->joined && !gpu_account_join(account, uuid, total, &member))
		return !account->lasting ? used : limit < total ? limit : total;
	return gpu_account_raise(account, used, limit);
}

void gpu_account_leave(struct gpu_account *account)
{
	/* The control thread may be using the account still. */
	struct gpu_account own = {
	    .fd = account->fd, .slot = account->slot, .device = account->device, .inode = account->inode};
	int saved = errno;

	if (account->joined && is_whole(&own) && account_lock(&own)) {
		if (!account_is_used(own.fd) && !atomic_load(&accounting_state.has_forked))
			user_dir_remove_own(account->name, own.device, own.inode);
		account_unlock(&own);
	}
	/* The lock of the slot stays with the descriptor until the process, and its device memory, have gone. */
	errno = saved;
}

void gpu_account_forked(void)
{
	atomic_store(&accounting_state.has_forked, true);
}

void gpu_account_child(struct gpu_account *account)
{
	account->joined = false;
}

/* ---- in the line before it ---- */

static bool is_open_still(const struct gpu_account_queue *queue)
{
	struct stat status;

	return queue->open && fstat(queue->fd, &status) == 0 && status.st_dev == queue->device &&
	       status.st_ino == queue->inode;
}

void gpu_account_queue_end(struct gpu_account_queue *queue)
{
	int saved = errno;

	if (is_open_still(queue))
		close(queue->fd);
	queue->open = false;
	errno = saved;
}

static void queue_open(struct gpu_account_queue *queue, const unsigned char uuid[16])
{
	struct user_dir folder;
	struct stat status;
	char name[64];

	write_name(name, uuid);
	if (account_open_folder(name, &folder) != 0)
		return;
	/* Made by the first of them: of several that start at the same time, one is the first in the line. */
	queue->fd = openat(folder.fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, S_IRUSR | S_IWUSR);
	user_dir_close(&folder, false);
	if (queue->fd < 0)
		return;
	queue->open = fstat(queue->fd, &status) == 0 && quota_file_is_private(&status);
	queue->device = status.st_dev;
	queue->inode = status.st_ino;
	if (!queue->open)
		close(queue->fd);
}

/* Returns true if no process has entered the file yet; it has no head until the first of them writes it. */
static bool is_new(int fd)
{
	uint64_t bytes = 0;
	struct stat status;

	return fstat(fd, &status) == 0 &&
	       (!status.st_size || (quota_file_read_at(fd, &bytes, sizeof(bytes), 0) && !bytes));
}

enum gpu_account_place gpu_account_queue(struct gpu_account_queue *queue, const unsigned char uuid[16],
					 struct gpu_account_view *ret_view)
{
	enum gpu_account_place place = GPU_ACCOUNT_EMPTY;
	struct gpu_account account = {.slot = GPU_ACCOUNT_MOST};
	int saved = errno;
	struct stat status;

	/* The file may have been removed, and made again. */
	if (!is_open_still(queue) || fstat(queue->fd, &status) != 0 || !status.st_nlink)
		gpu_account_queue_end(queue);
	if (!queue->open)
		queue_open(queue, uuid);
	account.fd = queue->fd;
	ret_view->n = 0;
	if (queue->open && (read_view(&account, ret_view) || is_new(queue->fd))) {
		if (!quota_file_try_lock(queue->fd, GPU_ACCOUNT_QUEUE))
			place = GPU_ACCOUNT_WAITS;
		else if (ret_view->n)
			place = GPU_ACCOUNT_FIRST;
	}
	ret_view->self = GPU_ACCOUNT_MOST;
	for (unsigned i = 0; i < ret_view->n; i++)
		if (ret_view->members[i].job.process == identity_get())
			ret_view->self = i;
	errno = saved;
	return place;
}
