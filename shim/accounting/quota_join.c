/*
 * quota_join.c: how a process comes to the shared file, and leaves it: the file is made, entered, left, removed, and
 * made again. A process that joins or leaves holds the lock of byte 0 meanwhile, so that a file is filled by one
 * process, read by the others when it is whole, and not removed while another enters. A process that is stopped there
 * (SIGSTOP) keeps the others out: they log that, and have nothing of what is shared until it goes on or ends.
 *
 * Contents that are not ours are left alone as long as a process has a slot; if none has, the file is replaced, not
 * emptied: a process that has lost its lock with its descriptors may use it. A file that another version of this
 * library uses cannot be read here, so it is unknown how much of the total is left. A process that finds it gets
 * nothing of what is shared until that file is free; with a budget of its own the total would be given out twice.
 */
#include "shim/accounting/accounting_state.h"
#include "shim/accounting/quota_slots.h"
#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/base/user_dir.h"
#include "shim/stats/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LEAVE_NS   100000000u /* the end of a process is not delayed longer */
#define OPEN_TRIES 100        /* each time the file was removed by a process that left in that moment */

/* ---- this process ---- */

static uint64_t my_space(void)
{
	struct stat status;

	/* Without a /proc of this namespace a pid identifies nothing. */
	if (!user_dir_process_started(getpid()) || stat("/proc/self/ns/pid", &status) != 0)
		return 0;
	return status.st_ino;
}

static uint64_t new_ticket(void)
{
	uint64_t ticket;

	if (getrandom(&ticket, sizeof(ticket), GRND_NONBLOCK) != (ssize_t)sizeof(ticket))
		ticket = clock_now() ^ (uint64_t)getpid() << 40;
	return ticket ? ticket : 1;
}

/* ---- the file itself; we hold byte 0 ---- */

/* Allocates all blocks of the file at once: later the file system may be full. */
static int quota_join_fill(const struct quota_seat *seat)
{
	struct quota_head head = {.bytes = sizeof(struct quota_page),
				  .version = QUOTA_VERSION,
				  .magic = QUOTA_MAGIC,
				  .next_stamp = clock_now()}; /* above those of a file that was truncated */

	if (!quota_file_may_have(QUOTA_PAGE_BYTES))
		return -EFBIG;
	int error = fchmod(seat->fd, S_IRUSR | S_IWUSR) == 0 ? posix_fallocate(seat->fd, 0, QUOTA_PAGE_BYTES) : errno;
	if (error)
		return -error;
	return quota_file_write_at(seat->fd, &head, sizeof(head), 0) ? 0 : -EIO;
}

/* The file was truncated. A process that holds the lock of a slot holds memory, and it alone knows how much. */
static int fill_again(const struct quota_seat *seat)
{
	int error = ftruncate(seat->fd, 0) == 0 ? quota_join_fill(seat) : -errno;

	for (unsigned i = 0; i < QUOTA_SLOTS && !error; i++) {
		if (!quota_file_is_locked(seat->fd, 1 + i, 1))
			continue;
		error = quota_file_put_slot(
		    seat, i, &(struct quota_slot){.stamp = quota_file_next_stamp(seat), .used = QUOTA_MOST});
	}
	return error;
}

/*
 * Returns true if the file was truncated. A process that had not noticed may have written behind its end since;
 * before that it has zeros. A file of another version has another head.
 */
static bool is_cut(const struct quota_head *head, off_t bytes)
{
	const struct quota_head whole = {
	    .bytes = sizeof(struct quota_page), .version = QUOTA_VERSION, .magic = QUOTA_MAGIC};
	const unsigned char *is = (const unsigned char *)head, *should = (const unsigned char *)&whole;
	size_t i = 0, n = offsetof(struct quota_head, total);

	while (i < n && is[i] == should[i])
		i++;
	bool any_cut = i < n || bytes < QUOTA_PAGE_BYTES || !head->next_stamp;
	while (i < n && !is[i])
		i++;
	return any_cut && i == n;
}

/*
 * Makes the file whole, if it is ours. in_use: we have a slot there. *ret_filled: it has no total yet. Returns
 * -EAGAIN if the file was removed meanwhile, -ESTALE if its contents have been carried over into another file.
 */
static int quota_join_prepare(struct quota_seat *seat, bool in_use, bool *ret_filled)
{
	struct quota_head head = {0};
	struct stat status;

	if (fstat(seat->fd, &status) != 0)
		return -errno;
	if (!status.st_nlink)
		return -EAGAIN;
	seat->device = status.st_dev;
	seat->inode = status.st_ino;
	syscall(SYS_pread64, seat->fd, &head, sizeof(head), (off_t)0);
	*ret_filled = !status.st_size ||
		      (is_cut(&head, status.st_size) &&
		       (quota_head_is_ours(&head) || in_use || quota_file_is_locked(seat->fd, 1, QUOTA_SLOTS)));
	if (*ret_filled)
		return fill_again(seat);
	if (quota_head_is_foreign(&head, status.st_size))
		return -EPROTONOSUPPORT;
	if (status.st_size != QUOTA_PAGE_BYTES || !quota_head_is_ours(&head))
		return -EPROTO;
	if (head.moved)
		return -ESTALE;
	return head.total <= QUOTA_MOST ? 0 : -EPROTO;
}

/* ---- entering; we hold byte 0 ---- */

static bool is_same_file(const struct quota_seat *before, const struct quota_seat *seat)
{
	return before && before->device == seat->device && before->inode == seat->inode;
}

/* Returns true in the file of `before`, where we still have the lock of our slot, whatever happened to its contents. */
static bool is_still_ours(struct quota_seat *seat, const struct quota_seat *before)
{
	struct quota_slot slot;

	if (!is_same_file(before, seat) || !quota_file_read_slots(seat, before->index, 1, &slot) ||
	    (slot.stamp && slot.ticket && slot.ticket != seat->ticket))
		return false;
	seat->index = before->index;
	seat->stamp = slot.stamp ? (uint64_t)slot.stamp : quota_file_next_stamp(seat);
	return true;
}

/*
 * Chooses the slot: that of before, if the file was truncated; else the one in which others have recorded us; else a
 * free one.
 */
static int choose_slot(struct quota_seat *seat, const struct quota_seat *before)
{
	struct quota_finder finder = {.ticket = seat->ticket};

	if (is_still_ours(seat, before))
		return 0;
	if (quota_file_find_ticket(seat, &finder)) {
		if (!quota_file_try_lock(seat->fd, 1 + finder.index)) /* another process checks whether we are dead */
			return -EBUSY;
		seat->index = finder.index;
		seat->stamp = finder.stamp;
		return 0;
	}
	seat->index = quota_file_find_free(seat, true);
	if (seat->index == QUOTA_SLOTS)
		return -ENOSPC;
	seat->stamp = quota_file_next_stamp(seat);
	return 0;
}

static int sit_down(struct quota_seat *seat, const struct quota_seat *before, uint64_t held)
{
	int error = choose_slot(seat, before);

	if (error)
		return error;
	const struct quota_slot slot = {.stamp = seat->stamp,
					.pid = (uint64_t)getpid(),
					.started = user_dir_process_started(getpid()),
					.space = seat->space,
					.used = held,
					.ticket = seat->ticket};
	uint64_t stamp;
	/* In a slot that stood for us already, others count us all the time. */
	if (quota_file_read_at(seat->fd, &stamp, sizeof(stamp), quota_slot_at(seat->index)) && stamp == seat->stamp)
		return quota_file_write_at(seat->fd, &slot, sizeof(slot), quota_slot_at(seat->index)) ? 0 : -EIO;
	return quota_file_put_slot(seat, seat->index, &slot);
}

static int set_total(const struct quota_seat *seat, const struct quota_terms *terms, bool first)
{
	uint64_t given = 0, total[2] = {terms->total < QUOTA_MOST ? terms->total : QUOTA_MOST, terms->given};

	quota_file_read_at(seat->fd, &given, sizeof(given), QUOTA_HEAD(given));
	/* The first process sets the total; a total from a policy replaces one that was computed. */
	if (!first && !(terms->given && !given))
		return 0;
	return quota_file_write_at(seat->fd, total, sizeof(total), QUOTA_HEAD(total)) ? 0 : -EIO;
}

static bool is_same_open(const struct quota_seat *before, int fd)
{
	struct stat status;

	return fstat(fd, &status) == 0 && before->device == status.st_dev && before->inode == status.st_ino;
}

static bool is_whole(const struct quota_seat *seat)
{
	struct quota_head head;
	struct stat status;

	return quota_file_is_there(seat) && fstat(seat->fd, &status) == 0 && status.st_size == QUOTA_PAGE_BYTES &&
	       quota_file_read_at(seat->fd, &head, sizeof(head), 0) && quota_head_is_ours(&head);
}

static bool is_complete(const struct quota_seat *seat)
{
	struct quota_head head;

	return quota_file_read_at(seat->fd, &head, sizeof(head), 0) && head.complete;
}

/* before: the seat in a file that was lost, or NULL. */
static int enter_locked(const struct quota_terms *terms, struct quota_seat *seat, const struct quota_seat *before,
			uint64_t held)
{
	const uint64_t yes = 1;
	bool filled;
	int error = quota_join_prepare(seat, before && is_same_open(before, seat->fd), &filled);

	if (error)
		return error;
	unsigned reclaimed = quota_file_sweep_by(seat, true);
	bool complete = is_complete(seat), first = !quota_file_any_rank(seat);
	error = set_total(seat, terms, first || filled);
	if (!error && before && quota_file_is_open(before) && before->inode != seat->inode)
		error = quota_carry_over(before, seat, terms, first);
	/*
	 * In a file that was truncated, a process has no slot before it has come to it; and the process that made
	 * this file may have been killed meanwhile.
	 */
	if (!error && (first || !complete))
		error = quota_carry_removed(seat, terms);
	if (!error && !quota_file_write_at(seat->fd, &yes, sizeof(yes), QUOTA_HEAD(complete)))
		error = -EIO;
	if (!error)
		error = sit_down(seat, before, held);
	/*
	 * The file may have been truncated; or removed before it was whole, and made again by a process that could
	 * not read it.
	 */
	if (!is_whole(seat))
		error = -EAGAIN;
	if (!error)
		stats_add(STAT_share_reclaimed, reclaimed);
	return error;
}

/* Returns true if the file says nothing that is still needed. error: that of quota_join_prepare(). */
static bool is_to_be_replaced(const struct quota_seat *seat, int error)
{
	return error == -ESTALE ||
	       ((error == -EPROTO || error == -EPROTONOSUPPORT) && !quota_file_is_locked(seat->fd, 1, 0));
}

static void log_foreign(const struct quota_seat *seat)
{
	uint64_t version = 0;

	quota_file_read_at(seat->fd, &version, sizeof(version), QUOTA_HEAD(version));
	log_once(
	    "processes of this user that run with %s version of Spillway share the host budget by a file of version "
	    "%llu, and this one knows version %d: until they end, this process gets no more host memory; start all "
	    "of them with the same version",
	    version < QUOTA_VERSION ? "an older" : "a newer", (unsigned long long)version, QUOTA_VERSION);
}

void quota_file_say_total(const struct quota_seat *seat, uint64_t total)
{
	uint64_t own = accounting_state.quota.terms.total;
	char holds[32], text[32];
	struct quota_head head;

	log_bytes(holds, sizeof(holds), total);
	if (accounting_state.quota.terms.given)
		log_once("host.total: %s is not in effect: other processes of this user have begun with %s, which "
			 "holds until they have ended",
			 log_bytes(text, sizeof(text), own), holds);
	else if (quota_file_read_head(seat, &head) && head.given)
		log_once("host.total: another process of this user has set it to %s, which holds for this one, too",
			 holds);
}

/* Takes the lock of byte 0. Each process that enters before us is waited for so long: on a busy machine they are many. */
static int lock_to_enter(int fd, uint64_t patience)
{
	uint64_t before, stamp = 0;
	int error;

	quota_file_read_at(fd, &stamp, sizeof(stamp), QUOTA_HEAD(next_stamp));
	do {
		before = stamp;
		error = quota_file_lock(fd, patience);
		quota_file_read_at(fd, &stamp, sizeof(stamp), QUOTA_HEAD(next_stamp));
	} while (error == -EBUSY && stamp != before);
	return error;
}

/* Returns -EAGAIN if the file that was opened has been removed; another one may exist. */
static int quota_join_enter(const struct user_dir *folder, const struct quota_terms *terms, struct quota_seat *seat,
			    const struct quota_seat *before, uint64_t held, uint64_t patience)
{
	struct stat status;

	seat->index = QUOTA_SLOTS;
	/* O_NONBLOCK: if the name is a pipe, the open does not wait for its other side. */
	seat->fd =
	    openat(folder->fd, seat->name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, S_IRUSR | S_IWUSR);
	if (seat->fd < 0)
		return -errno;
	int error = fstat(seat->fd, &status) != 0 ? -errno : quota_file_is_private(&status) ? 0 : -EPERM;
	if (!error && before && is_same_open(before, seat->fd)) {
		/* Locks belong to the open file: with a duplicate ours lasts, and we never seem to be dead. */
		close(seat->fd);
		seat->fd = fcntl(before->fd, F_DUPFD_CLOEXEC, 0);
		if (seat->fd < 0)
			return -errno;
		seat->index = before->index;
	}
	if (!error)
		error = lock_to_enter(seat->fd, patience);
	if (!error) {
		error = enter_locked(terms, seat, before, held);
		if (is_to_be_replaced(seat, error))
			error = unlinkat(folder->fd, seat->name, 0) == 0 ? -EAGAIN : -errno;
		if (error == -EPROTONOSUPPORT)
			log_foreign(seat);
		quota_file_lock_byte(seat->fd, 0, F_UNLCK);
	}
	if (error)
		close(seat->fd);
	return error;
}

static void name_file(uint64_t domain, char *room, size_t bytes)
{
	if (domain)
		snprintf(room, bytes, "host-%llx" QUOTA_TAIL, (unsigned long long)domain);
	else
		snprintf(room, bytes, "host" QUOTA_TAIL);
}

static bool is_in_use(const struct user_dir *folder, const void *file)
{
	struct quota_seat there = *(const struct quota_seat *)file;
	struct quota_head head;
	struct stat status;

	there.fd = openat(folder->fd, there.name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (there.fd < 0)
		return false;
	bool used = false;
	if (fstat(there.fd, &status) == 0 && quota_file_is_private(&status) &&
	    quota_file_read_at(there.fd, &head, sizeof(head), 0)) {
		there.device = status.st_dev;
		there.inode = status.st_ino;
		if (quota_head_is_foreign(&head, status.st_size))
			used = quota_file_is_locked(there.fd, 1, 0);
		else if (quota_head_is_ours(&head) && !head.moved)
			used = quota_file_any_rank(&there);
	}
	close(there.fd);
	return used;
}

/* The file was removed or truncated meanwhile. */
static bool is_worth_a_try(int error)
{
	return error == -EAGAIN || error == -ENOENT || error == -EIO;
}

int quota_file_join(const struct quota_terms *terms, struct quota_seat *seat, uint64_t held, bool patient)
{
	struct quota_seat next = {.space = my_space(), .fd = -1, .ticket = seat->ticket ? seat->ticket : new_ticket()};
	const struct quota_seat *before = quota_file_is_open(seat) ? seat : NULL;
	struct user_dir folder;
	int error = -EAGAIN;

	name_file(terms->domain, next.name, sizeof(next.name));
	for (unsigned i = 0; i < OPEN_TRIES && is_worth_a_try(error); i++) {
		/* The folder, too, is removed with the last file in it. */
		error = quota_file_open_folder(is_in_use, &next, &folder);
		if (error)
			return error;
		error = quota_join_enter(&folder, terms, &next, before, held,
					 patient ? accounting_state.quota.join_patience : 0);
		user_dir_close(&folder, false);
	}
	if (error)
		return is_worth_a_try(error) ? -EBUSY : error;
	if (before) {
		/* A process that still finds the old file must not take this for what we hold. */
		if (before->inode != next.inode)
			quota_file_write(before, QUOTA_SLOT(before, stamp), 0);
		close(before->fd);
	}
	*seat = next;
	return 0;
}

/* ---- leaving ---- */

static bool is_no_rank(const struct quota_seat *seat, unsigned index, const struct quota_slot *slot, void *argument)
{
	(void)argument;
	return index == seat->index || quota_slot_is_gone(seat, index, slot) ||
	       (slot->leaving && !quota_slot_has_ended(seat, slot));
}

void quota_file_leave(struct quota_seat *seat, bool is_empty)
{
	struct quota_slot slot;

	if (!quota_file_is_open(seat))
		return;
	if (quota_file_read_slots(seat, seat->index, 1, &slot) && slot.stamp == seat->stamp &&
	    slot.ticket == seat->ticket) {
		quota_file_write(seat, QUOTA_SLOT(seat, leaving), 1);
		if (is_empty)
			quota_file_write(seat, QUOTA_SLOT(seat, stamp), 0);
	}
	if (quota_file_lock(seat->fd, LEAVE_NS) != 0)
		return;
	/*
	 * In a file that was truncated it is unknown which processes are there. A child may keep our slot when we have
	 * ended.
	 */
	if ((is_empty || !atomic_load(&accounting_state.has_forked)) && is_whole(seat) &&
	    quota_file_each_slot(seat, is_no_rank, NULL))
		user_dir_remove_own(seat->name, seat->device, seat->inode);
	quota_file_lock_byte(seat->fd, 0, F_UNLCK);
	/* The lock of the slot stays with the descriptor until the process has ended. */
}
