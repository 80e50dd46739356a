/*
 * quota_file.c: reads and changes the shared file of the quota, its locks and its slots. quota_join.c has how a
 * process comes to a file.
 */
#include "shim/accounting/quota_slots.h"
#include "shim/base/clock.h"
#include "shim/base/user_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOCK_STEP 1000000 /* ns: joining takes less than that */

/* ---- where it lies ---- */

int quota_file_open_folder(quota_file_is_used *is_used, const void *file, struct user_dir *ret_folder)
{
	for (unsigned place = 0; place < USER_DIR_PLACES; place++) {
		if (user_dir_open_place(place, ret_folder) != 0)
			continue;
		if (is_used(ret_folder, file))
			return 0;
		user_dir_close(ret_folder, false);
	}
	return user_dir_make_mapped(ret_folder);
}

/* ---- reading and writing ---- */

/* By syscall(): pread() and pwrite() are cancellation points, and threads of the program come through here. */
bool quota_file_read_at(int fd, void *room, size_t bytes, size_t offset)
{
	return syscall(SYS_pread64, fd, room, bytes, (off_t)offset) == (long)bytes;
}

bool quota_file_may_have(size_t bytes)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= bytes;
}

bool quota_file_write_at(int fd, const void *from, size_t bytes, size_t offset)
{
	/* The program may lower the limit at any time. */
	if (!quota_file_may_have(offset + bytes))
		return false;
	return syscall(SYS_pwrite64, fd, from, bytes, (off_t)offset) == (long)bytes;
}

bool quota_file_is_open(const struct quota_seat *seat)
{
	struct stat status;

	return seat->fd >= 0 && fstat(seat->fd, &status) == 0 && status.st_dev == seat->device &&
	       status.st_ino == seat->inode;
}

bool quota_file_is_there(const struct quota_seat *seat)
{
	struct stat status;

	return quota_file_is_open(seat) && fstat(seat->fd, &status) == 0 && status.st_nlink;
}

bool quota_file_is_whole(const struct quota_seat *seat)
{
	struct stat status;

	return fstat(seat->fd, &status) == 0 && status.st_dev == seat->device && status.st_ino == seat->inode &&
	       status.st_size == QUOTA_PAGE_BYTES;
}

bool quota_file_read_head(const struct quota_seat *seat, struct quota_head *ret_head)
{
	return seat->fd >= 0 && quota_file_is_whole(seat) &&
	       quota_file_read_at(seat->fd, ret_head, sizeof(*ret_head), 0);
}

bool quota_file_read_slots(const struct quota_seat *seat, unsigned first, unsigned n, struct quota_slot *ret_slots)
{
	return quota_file_read_at(seat->fd, ret_slots, n * sizeof(*ret_slots), quota_slot_at(first));
}

/*
 * The copies that the kernel makes for us are plain loads and stores of this processor, or of one from which this
 * thread was moved, which is a barrier as well.
 */
void quota_file_fence(void)
{
	atomic_thread_fence(memory_order_seq_cst);
}

bool quota_file_write(const struct quota_seat *seat, size_t offset, uint64_t value)
{
	return quota_file_is_open(seat) && quota_file_write_at(seat->fd, &value, sizeof(value), offset);
}

/* ---- locks ---- */

int quota_file_lock_byte(int fd, unsigned byte, short type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

	return fcntl(fd, F_OFD_SETLK, &lock) == 0 ? 0 : -errno;
}

bool quota_file_try_lock(int fd, unsigned byte)
{
	return quota_file_lock_byte(fd, byte, F_WRLCK) == 0;
}

int quota_file_lock(int fd, uint64_t patience)
{
	uint64_t end = clock_now() + patience;

	for (;;) {
		int error = quota_file_lock_byte(fd, 0, F_WRLCK);

		if (error != -EAGAIN && error != -EACCES && error != -EINTR)
			return error;
		if (clock_now() >= end)
			return -EBUSY;
		nanosleep(&(struct timespec){.tv_nsec = LOCK_STEP}, NULL);
	}
}

bool quota_file_is_locked(int fd, unsigned byte, unsigned n)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = n};

	return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

/* ---- which slots count ---- */

bool quota_file_counts(int fd, unsigned index, const struct quota_owner *owner, uint64_t space)
{
	if (quota_file_is_locked(fd, 1 + index, 1))
		return true;
	/* A slot of our own pid without its lock is from before an exec(), or before our descriptor was closed. */
	return owner->pid != (uint64_t)getpid() && space && owner->space == space && owner->pid &&
	       owner->pid <= INT32_MAX && !user_dir_process_is_gone((pid_t)owner->pid, owner->started);
}

static struct quota_owner owner_of(const struct quota_slot *slot)
{
	return (struct quota_owner){.pid = slot->pid, .started = slot->started, .space = slot->space};
}

bool quota_slot_has_ended(const struct quota_seat *seat, const struct quota_slot *slot)
{
	return slot->space && slot->space == seat->space && slot->pid <= INT32_MAX &&
	       user_dir_process_is_gone((pid_t)slot->pid, slot->started);
}

bool quota_slot_is_gone(const struct quota_seat *seat, unsigned index, const struct quota_slot *slot)
{
	uint64_t until = slot->carried_until, now = clock_now();
	const struct quota_owner owner = owner_of(slot);

	if (slot->ticket && slot->ticket == seat->ticket)
		return false;
	/* A time that lies too far ahead was not given by this clock. */
	if ((!owner.space || owner.space != seat->space) && until > now && until <= now + QUOTA_CARRIED_NS)
		return false;
	return quota_file_is_open(seat) && !quota_file_counts(seat->fd, index, &owner, seat->space);
}

bool quota_file_each_slot(const struct quota_seat *seat, quota_slot_visit *visit, void *argument)
{
	struct quota_slot slots[QUOTA_SLOTS_READ];
	uint64_t n;

	if (!quota_file_read_at(seat->fd, &n, sizeof(n), QUOTA_HEAD(slots)))
		return true;
	n = n < QUOTA_SLOTS ? n : QUOTA_SLOTS;
	for (unsigned i = 0; i < n; i += QUOTA_SLOTS_READ) {
		if (!quota_file_read_slots(seat, i, QUOTA_SLOTS_READ, slots))
			return true;
		for (unsigned j = 0; j < QUOTA_SLOTS_READ; j++)
			if (slots[j].stamp && !visit(seat, i + j, &slots[j], argument))
				return false;
	}
	return true;
}

/*
 * Writes one number of the slot of a process that has ended. A free slot is never taken without the lock of its byte,
 * nor without that of byte 0. The lock of the byte may be held by a child.
 */
static bool write_ended(const struct quota_seat *seat, unsigned index, uint64_t stamp, bool locked, size_t offset,
			uint64_t value)
{
	unsigned byte = quota_file_try_lock(seat->fd, 1 + index) ? 1 + index : 0;
	uint64_t now;

	if (!byte && !locked && !quota_file_try_lock(seat->fd, 0))
		return false;
	bool written = quota_file_read_at(seat->fd, &now, sizeof(now), quota_slot_at(index)) && now == stamp &&
		       quota_file_write_at(seat->fd, &value, sizeof(value), quota_slot_at(index) + offset);
	/* While we join we hold byte 0, and keep it. */
	if (byte || !locked)
		quota_file_lock_byte(seat->fd, byte, F_UNLCK);
	return written;
}

struct sweep {
	bool locked; /* we hold byte 0 */
	unsigned n;
};

static bool sweep_one(const struct quota_seat *seat, unsigned index, const struct quota_slot *slot, void *argument)
{
	struct sweep *sweep = argument;

	/* Never our own slot, whatever it says: our lock would go with it. */
	if (index == seat->index || slot->ticket == seat->ticket)
		return true;
	if (quota_slot_is_gone(seat, index, slot))
		sweep->n += write_ended(seat, index, slot->stamp, sweep->locked, offsetof(struct quota_slot, stamp), 0);
	else if (!slot->leaving && quota_slot_has_ended(seat, slot))
		/* A child keeps its memory, which nobody gives back before that ends, too. */
		write_ended(seat, index, slot->stamp, sweep->locked, offsetof(struct quota_slot, leaving), 1);
	return true;
}

unsigned quota_file_sweep_by(const struct quota_seat *seat, bool locked)
{
	struct sweep sweep = {.locked = locked};

	quota_file_each_slot(seat, sweep_one, &sweep);
	return sweep.n;
}

unsigned quota_file_sweep(const struct quota_seat *seat)
{
	return quota_file_is_open(seat) ? quota_file_sweep_by(seat, false) : 0;
}

static bool is_nobody(const struct quota_seat *seat, unsigned index, const struct quota_slot *slot, void *argument)
{
	(void)argument;
	return quota_slot_is_gone(seat, index, slot);
}

bool quota_file_any_rank(const struct quota_seat *seat)
{
	return !quota_file_each_slot(seat, is_nobody, NULL);
}

/* ---- slots ---- */

bool quota_file_is_private(const struct stat *status)
{
	return S_ISREG(status->st_mode) && status->st_uid == geteuid() && (status->st_mode & 077) == 0;
}

bool quota_head_is_ours(const struct quota_head *head)
{
	return head->bytes == sizeof(struct quota_page) && head->version == QUOTA_VERSION && head->magic == QUOTA_MAGIC;
}

bool quota_head_is_foreign(const struct quota_head *head, off_t bytes)
{
	return head->bytes == (uint64_t)bytes && head->version && head->version <= QUOTA_VERSION_MOST &&
	       head->version != QUOTA_VERSION;
}

uint64_t quota_file_next_stamp(const struct quota_seat *seat)
{
	uint64_t stamp = 0, next;

	quota_file_read_at(seat->fd, &stamp, sizeof(stamp), QUOTA_HEAD(next_stamp));
	next = stamp + 1;
	return stamp && quota_file_write_at(seat->fd, &next, sizeof(next), QUOTA_HEAD(next_stamp)) ? stamp : 0;
}

int quota_file_put_slot(const struct quota_seat *seat, unsigned index, const struct quota_slot *slot)
{
	struct quota_slot without = *slot;
	uint64_t stamp = slot->stamp, slots = 0, more = index + 1;

	without.stamp = 0;
	quota_file_read_at(seat->fd, &slots, sizeof(slots), QUOTA_HEAD(slots));
	if (slots < more && !quota_file_write_at(seat->fd, &more, sizeof(more), QUOTA_HEAD(slots)))
		return -EIO;
	if (!stamp || !quota_file_write_at(seat->fd, &without, sizeof(without), quota_slot_at(index)) ||
	    !quota_file_write_at(seat->fd, &stamp, sizeof(stamp), quota_slot_at(index)))
		return -EIO;
	return 0;
}

static bool has_other_ticket(const struct quota_seat *seat, unsigned index, const struct quota_slot *slot,
			     void *argument)
{
	struct quota_finder *finder = argument;

	(void)seat;
	if (slot->ticket != finder->ticket)
		return true;
	finder->index = index;
	finder->stamp = slot->stamp;
	return false;
}

bool quota_file_find_ticket(const struct quota_seat *seat, struct quota_finder *finder)
{
	return !quota_file_each_slot(seat, has_other_ticket, finder);
}

unsigned quota_file_find_free(const struct quota_seat *seat, bool lock)
{
	uint64_t stamp;

	for (unsigned i = 0; i < QUOTA_SLOTS; i++) {
		if (!quota_file_read_at(seat->fd, &stamp, sizeof(stamp), quota_slot_at(i)) || stamp)
			continue;
		if (lock ? quota_file_try_lock(seat->fd, 1 + i) : !quota_file_is_locked(seat->fd, 1 + i, 1))
			return i;
	}
	return QUOTA_SLOTS;
}
