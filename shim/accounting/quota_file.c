/*
 * The file that the processes of a user share: made, entered, left, removed, and made again. Whoever joins or leaves holds
 * the lock of byte 0 meanwhile, so that a file is filled by one process, read by the others when it is whole, and not
 * removed while somebody enters. A process that is stopped there (SIGSTOP) keeps the others out: they are told so, and
 * have nothing of what is shared until it goes on or ends.
 *
 * Contents that are not ours are left alone as long as somebody has a slot (another version of this library may); where
 * nobody has, the file is replaced, not emptied: a process that has lost its lock with its descriptors may use it.
 */
#include "shim/base/clock.h"
#include "shim/accounting/quota_inside.h"
#include "shim/base/rundir.h"
#include "shim/stats/stats.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOCK_STEP   1000000     /* ns: joining takes less than that */
#define LEAVE_NS    100000000u  /* the end of a process is not held up longer */
#define OPEN_TRIES  100         /* each time the file was removed by who left in that moment */
#define CARRIED_NS  60000000000 /* a process comes to its carried slot within a second, unless it is stopped */
#define UNKNOWN_NS  3000000000  /* of a file that was truncated, and removed before its processes came back */
#define MOST_PIDS   4096        /* processes of the user that are looked at for a removed file */
#define MOST_FDS    4096        /* and descriptors of each */
#define PATH_LENGTH 300
#define PAGE_BYTES  ((off_t)sizeof(struct quota_page))

uint64_t quota_join_patience = 2000000000;

/* ---- reading and writing ---- */

/* By syscall(): pread() and pwrite() are cancellation points, and threads of the program come through here. */
static bool read_at(int fd, void *room, size_t bytes, size_t offset)
{
	return syscall(SYS_pread64, fd, room, bytes, (off_t)offset) == (long)bytes;
}

static bool write_at(int fd, const void *from, size_t bytes, size_t offset)
{
	struct rlimit limit;

	/* A write beyond the limit is a signal that ends the program, which may lower it at any time. */
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < (rlim_t)PAGE_BYTES)
		return false;
	return syscall(SYS_pwrite64, fd, from, bytes, (off_t)offset) == (long)bytes;
}

static size_t at_slot(unsigned index)
{
	return offsetof(struct quota_page, slot) + index * sizeof(struct quota_slot);
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
	       status.st_size == PAGE_BYTES;
}

bool quota_file_read_head(const struct quota_seat *seat, struct quota_head *ret_head)
{
	return seat->fd >= 0 && quota_file_is_whole(seat) && read_at(seat->fd, ret_head, sizeof(*ret_head), 0);
}

bool quota_file_read_slots(const struct quota_seat *seat, unsigned first, unsigned n, struct quota_slot *ret_slots)
{
	return read_at(seat->fd, ret_slots, n * sizeof(*ret_slots), at_slot(first));
}

/*
 * The copies that the kernel makes for us are plain loads and stores of this processor, or of one from which this thread
 * was moved, which is a barrier as well.
 */
void quota_file_fence(void)
{
	atomic_thread_fence(memory_order_seq_cst);
}

bool quota_file_write(const struct quota_seat *seat, size_t offset, uint64_t value)
{
	return quota_file_is_open(seat) && write_at(seat->fd, &value, sizeof(value), offset);
}

/* ---- locks ---- */

static int lock_byte(int fd, unsigned byte, short type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

	return fcntl(fd, F_OFD_SETLK, &lock) == 0 ? 0 : -errno;
}

static bool try_lock(int fd, unsigned byte)
{
	return lock_byte(fd, byte, F_WRLCK) == 0;
}

/* Returns -EBUSY if another has it all that time. */
static int lock_file(int fd, uint64_t patience)
{
	uint64_t end = clock_now() + patience;

	for (;;) {
		int error = lock_byte(fd, 0, F_WRLCK);

		if (error != -EAGAIN && error != -EACCES && error != -EINTR)
			return error;
		if (clock_now() >= end)
			return -EBUSY;
		nanosleep(&(struct timespec){.tv_nsec = LOCK_STEP}, NULL);
	}
}

/* Does another open file hold a lock there? False also where that cannot be told. */
static bool is_locked(int fd, unsigned byte, unsigned n)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = n};

	return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

/* ---- who is there ---- */

static uint64_t my_space(void)
{
	struct stat status;

	/* Without a /proc of this namespace a pid leads nowhere. */
	if (!rundir_process_started(getpid()) || stat("/proc/self/ns/pid", &status) != 0)
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

/* Has the process in that slot of the seat's file, not our own, gone? */
static bool is_gone(const struct quota_seat *seat, unsigned index, const struct quota_slot *slot)
{
	uint64_t pid = slot->pid, space = slot->space;

	if (slot->ticket && slot->ticket == seat->ticket)
		return false;
	if (!space || space != seat->space) {
		uint64_t until = slot->carried_until, now = clock_now();

		/* A time that lies too far ahead is none that this clock has given. */
		if (until > now && until <= now + CARRIED_NS)
			return false;
		return quota_file_is_open(seat) && !is_locked(seat->fd, 1 + index, 1);
	}
	/* Our own slot of before an exec(). */
	if (pid == (uint64_t)getpid())
		return true;
	return pid == 0 || pid > INT32_MAX || rundir_process_is_gone((pid_t)pid, slot->started);
}

/* Visit each slot that is taken. Stops where visit() returns false, and returns false then. */
typedef bool slot_visit(const struct quota_seat *seat, unsigned index, const struct quota_slot *slot, void *argument);

static bool each_slot(const struct quota_seat *seat, slot_visit *visit, void *argument)
{
	struct quota_slot slots[QUOTA_SLOTS_READ];
	uint64_t n;

	if (!read_at(seat->fd, &n, sizeof(n), QUOTA_HEAD(slots)))
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
 * Nobody takes a free slot without the lock of its byte, nor without that of byte 0. A dead process's lock may live on in
 * a child that has its descriptors.
 */
static bool free_slot(const struct quota_seat *seat, unsigned index, uint64_t stamp, bool locked)
{
	unsigned byte = try_lock(seat->fd, 1 + index) ? 1 + index : 0;
	uint64_t now, none = 0;

	if (!byte && !locked && !try_lock(seat->fd, 0))
		return false;
	bool freed = read_at(seat->fd, &now, sizeof(now), at_slot(index)) && now == stamp &&
		     write_at(seat->fd, &none, sizeof(none), at_slot(index));
	/* While we join byte 0 is ours, and stays so. */
	if (byte || !locked)
		lock_byte(seat->fd, byte, F_UNLCK);
	return freed;
}

struct sweep {
	bool locked; /* we hold byte 0 */
	unsigned n;
};

static bool sweep_one(const struct quota_seat *seat, unsigned index, const struct quota_slot *slot, void *argument)
{
	struct sweep *sweep = argument;

	/* Not our own, whatever it says: our lock would go with it. */
	if (index != seat->index && slot->ticket != seat->ticket && is_gone(seat, index, slot))
		sweep->n += free_slot(seat, index, slot->stamp, sweep->locked);
	return true;
}

static unsigned sweep_file(const struct quota_seat *seat, bool locked)
{
	struct sweep sweep = {.locked = locked};

	each_slot(seat, sweep_one, &sweep);
	return sweep.n;
}

unsigned quota_file_sweep(const struct quota_seat *seat)
{
	return quota_file_is_open(seat) ? sweep_file(seat, false) : 0;
}

static bool is_nobody(const struct quota_seat *seat, unsigned index, const struct quota_slot *slot, void *argument)
{
	(void)argument;
	return is_gone(seat, index, slot);
}

static bool any_rank(const struct quota_seat *seat)
{
	return !each_slot(seat, is_nobody, NULL);
}

/* ---- the file itself; we hold byte 0 ---- */

static bool is_private(const struct stat *status)
{
	return S_ISREG(status->st_mode) && status->st_uid == geteuid() && (status->st_mode & 077) == 0;
}

static bool is_ours(const struct quota_head *head)
{
	return head->bytes == sizeof(struct quota_page) && head->version == QUOTA_VERSION && head->magic == QUOTA_MAGIC;
}

/* A stamp that was never used. */
static uint64_t next_stamp(const struct quota_seat *seat)
{
	uint64_t stamp = 0, next;

	read_at(seat->fd, &stamp, sizeof(stamp), QUOTA_HEAD(next_stamp));
	next = stamp + 1;
	return stamp && write_at(seat->fd, &next, sizeof(next), QUOTA_HEAD(next_stamp)) ? stamp : 0;
}

/* The stamp comes last: from then on others count it. Returns 0 or a negative errno. */
static int put_slot(const struct quota_seat *seat, unsigned index, const struct quota_slot *slot)
{
	struct quota_slot without = *slot;
	uint64_t stamp = slot->stamp, slots = 0, more = index + 1;

	without.stamp = 0;
	read_at(seat->fd, &slots, sizeof(slots), QUOTA_HEAD(slots));
	if (slots < more && !write_at(seat->fd, &more, sizeof(more), QUOTA_HEAD(slots)))
		return -EIO;
	if (!stamp || !write_at(seat->fd, &without, sizeof(without), at_slot(index)) ||
	    !write_at(seat->fd, &stamp, sizeof(stamp), at_slot(index)))
		return -EIO;
	return 0;
}

/* All blocks of the file are taken at once: later there may be no room. */
static int fill(const struct quota_seat *seat)
{
	struct quota_head head = {.bytes = sizeof(struct quota_page),
				  .version = QUOTA_VERSION,
				  .magic = QUOTA_MAGIC,
				  .next_stamp = clock_now()}; /* above those of a file that was truncated */
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < (rlim_t)PAGE_BYTES)
		return -EFBIG;
	int error = fchmod(seat->fd, S_IRUSR | S_IWUSR) == 0 ? posix_fallocate(seat->fd, 0, PAGE_BYTES) : errno;
	if (error)
		return -error;
	return write_at(seat->fd, &head, sizeof(head), 0) ? 0 : -EIO;
}

/* It was truncated. Who holds the lock of a slot holds memory, and nobody but he knows how much. */
static int fill_again(const struct quota_seat *seat)
{
	int error = ftruncate(seat->fd, 0) == 0 ? fill(seat) : -errno;

	for (unsigned i = 0; i < QUOTA_SLOTS && !error; i++) {
		if (!is_locked(seat->fd, 1 + i, 1))
			continue;
		error = put_slot(seat, i, &(struct quota_slot){.stamp = next_stamp(seat), .used = QUOTA_MOST});
	}
	return error;
}

/*
 * Was it truncated? Behind its end it may have been written to since, by who had not noticed: there it has zeros. Another
 * version's has another head.
 */
static bool is_cut(const struct quota_head *head, off_t bytes)
{
	const struct quota_head whole = {
	    .bytes = sizeof(struct quota_page), .version = QUOTA_VERSION, .magic = QUOTA_MAGIC};
	const unsigned char *is = (const unsigned char *)head, *should = (const unsigned char *)&whole;
	size_t i = 0, n = offsetof(struct quota_head, total);

	while (i < n && is[i] == should[i])
		i++;
	bool any_cut = i < n || bytes < PAGE_BYTES || !head->next_stamp;
	while (i < n && !is[i])
		i++;
	return any_cut && i == n;
}

/*
 * The file is made whole, if it is ours. in_use: we have a slot there. *ret_filled: it has no total yet. -EAGAIN: it was removed meanwhile; -ESTALE: all
 * in it is elsewhere by now.
 */
static int prepare(struct quota_seat *seat, bool in_use, bool *ret_filled)
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
	*ret_filled = !status.st_size || (is_cut(&head, status.st_size) &&
					  (is_ours(&head) || in_use || is_locked(seat->fd, 1, QUOTA_SLOTS)));
	if (*ret_filled)
		return fill_again(seat);
	if (status.st_size != PAGE_BYTES || !is_ours(&head))
		return -EPROTO;
	if (head.moved)
		return -ESTALE;
	return head.total <= QUOTA_MOST ? 0 : -EPROTO;
}

/* ---- what stands in a file that was removed ---- */

struct finder {
	uint64_t ticket;
	unsigned index;
	uint64_t stamp;
};

static bool has_other_ticket(const struct quota_seat *seat, unsigned index, const struct quota_slot *slot,
			     void *argument)
{
	struct finder *finder = argument;

	(void)seat;
	if (slot->ticket != finder->ticket)
		return true;
	finder->index = index;
	finder->stamp = slot->stamp;
	return false;
}

static bool find_ticket(const struct quota_seat *seat, struct finder *finder)
{
	return !each_slot(seat, has_other_ticket, finder);
}

/* A slot that is free, whose lock is nobody's; locked for us if asked. QUOTA_SLOTS: there is none. */
static unsigned find_free(const struct quota_seat *seat, bool lock)
{
	uint64_t stamp;

	for (unsigned i = 0; i < QUOTA_SLOTS; i++) {
		if (!read_at(seat->fd, &stamp, sizeof(stamp), at_slot(i)) || stamp)
			continue;
		if (lock ? try_lock(seat->fd, 1 + i) : !is_locked(seat->fd, 1 + i, 1))
			return i;
	}
	return QUOTA_SLOTS;
}

struct carry {
	const struct quota_seat *into;
	int error;
	unsigned n;
};

/* It is there already: of two old files the later one says more, or the earlier one too much for a moment. */
static int raise_used(const struct quota_seat *into, unsigned index, uint64_t used)
{
	struct quota_slot slot;

	/* Its process has come to it: that knows best. */
	if (!quota_file_read_slots(into, index, 1, &slot) || !slot.carried_until || slot.used >= used)
		return 0;
	return write_at(into->fd, &used, sizeof(used), at_slot(index) + offsetof(struct quota_slot, used)) ? 0 : -EIO;
}

/* A slot of the old file, into the new one. */
static bool carry_slot(const struct quota_seat *from, unsigned index, const struct quota_slot *slot, void *argument)
{
	struct carry *carry = argument;
	struct finder finder = {.ticket = slot->ticket};
	struct quota_slot next;

	/* Ours we bring ourselves. */
	if (slot->ticket == carry->into->ticket || is_gone(from, index, slot))
		return true;
	/* A claim that is read before the bytes used may be counted twice, but never not at all (quota.c). */
	uint64_t claim = slot->claim;
	quota_file_fence();
	if (!read_at(from->fd, &next, sizeof(next), at_slot(index)))
		return true;
	uint64_t used = next.used, sum = claim <= QUOTA_MOST && used <= QUOTA_MOST - claim ? used + claim : QUOTA_MOST;
	if (find_ticket(carry->into, &finder)) {
		carry->error = raise_used(carry->into, finder.index, sum);
		return !carry->error;
	}
	unsigned at = find_free(carry->into, false);

	next.used = sum;
	next.claim = 0;
	next.spare = 0;
	next.wanted_until = 0;
	/* Who has no ticket cannot be told from his like: one slot stands for all of them until they have come. */
	next.carried_until = clock_now() + (next.ticket ? CARRIED_NS : UNKNOWN_NS);
	next.stamp = next_stamp(carry->into);
	carry->error = at == QUOTA_SLOTS ? -ENOSPC : put_slot(carry->into, at, &next);
	carry->n += !carry->error;
	return !carry->error;
}

/* It was truncated before it was removed. Who holds a lock there comes back within a second. */
static int carry_unknown(const struct quota_seat *from, const struct quota_seat *into)
{
	struct quota_slot slot = {.used = QUOTA_MOST, .carried_until = clock_now() + UNKNOWN_NS};
	struct finder finder = {0};

	if (!is_locked(from->fd, 1, QUOTA_SLOTS) || find_ticket(into, &finder))
		return 0;
	unsigned at = find_free(into, false);
	slot.stamp = next_stamp(into);
	return at == QUOTA_SLOTS ? -ENOSPC : put_slot(into, at, &slot);
}

/*
 * From now on nothing is taken there: whoever takes publishes its claim, and then looks whether this is set. So what it
 * took before we see here, as bytes used or as a claim. Stamps of the dead go with the file.
 */
static int carry_over(const struct quota_seat *from, const struct quota_seat *into, const struct quota_terms *terms,
		      bool first)
{
	struct carry carry = {.into = into};
	const uint64_t moved = 1;
	struct quota_head head;

	if (!read_at(from->fd, &head, sizeof(head), 0) || !is_ours(&head) || head.total > QUOTA_MOST)
		return carry_unknown(from, into);
	if (!write_at(from->fd, &moved, sizeof(moved), QUOTA_HEAD(moved)))
		return -EIO;
	quota_file_fence();
	each_slot(from, carry_slot, &carry);
	/* It is the same budget as before. */
	if (!carry.error && first && (carry.n || from->index < QUOTA_SLOTS) && (head.given || !terms->given)) {
		const uint64_t total[2] = {head.total, head.given};

		if (!write_at(into->fd, total, sizeof(total), QUOTA_HEAD(total)))
			return -EIO;
	}
	return carry.error;
}

/* ---- processes that still have a removed file open ---- */

/* Visit each entry of an open folder of /proc whose name is a number. Takes no memory, see rundir.c. */
typedef void number_visit(int folder, const char *name, void *argument);

static void each_number(int folder, unsigned most, number_visit *visit, void *argument)
{
	char buffer[1024] __attribute__((aligned(__alignof__(struct dirent64))));
	ssize_t bytes;

	while ((bytes = getdents64(folder, buffer, sizeof(buffer))) > 0)
		for (ssize_t at = 0; at < bytes;) {
			const struct dirent64 *entry = (const struct dirent64 *)(const void *)(buffer + at);

			at += entry->d_reclen;
			if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
				continue;
			if (most-- == 0)
				return;
			visit(folder, entry->d_name, argument);
		}
}

struct search {
	const struct quota_seat *into;
	const struct quota_terms *terms;
	unsigned pids; /* of this user, still to be looked at */
	int error;
};

/* Is it the path of our file in one of its places, and removed? */
static bool is_removed(const char *path, const char *name)
{
	char place[PATH_LENGTH];

	for (unsigned i = 0; i < RUNDIR_PLACES; i++) {
		if (!rundir_name_place(i, place, sizeof(place)))
			continue;
		size_t length = strlen(place), name_length = strlen(name);

		if (!strncmp(path, place, length) && path[length] == '/' &&
		    !strncmp(path + length + 1, name, name_length) &&
		    !strcmp(path + length + 1 + name_length, " (deleted)"))
			return true;
	}
	return false;
}

static void look_at_descriptor(int folder, const char *name, void *argument)
{
	struct search *search = argument;
	struct quota_seat from = {.index = QUOTA_SLOTS, .space = search->into->space};
	char path[PATH_LENGTH];
	struct stat status;
	ssize_t n = readlinkat(folder, name, path, sizeof(path));

	if (n <= 0 || (size_t)n >= sizeof(path) || search->error)
		return;
	path[n] = 0;
	if (!is_removed(path, search->into->name))
		return;
	from.fd = openat(folder, name, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (from.fd < 0)
		return;
	if (fstat(from.fd, &status) == 0 && is_private(&status) && !status.st_nlink) {
		from.device = status.st_dev;
		from.inode = status.st_ino;
		search->error = carry_over(&from, search->into, search->terms, true);
	}
	close(from.fd);
}

static void look_at_process(int proc, const char *pid, void *argument)
{
	struct search *search = argument;
	struct stat status;
	char path[32];

	if (fstatat(proc, pid, &status, 0) != 0 || status.st_uid != geteuid() || !search->pids)
		return;
	search->pids--;
	if ((size_t)snprintf(path, sizeof(path), "%.20s/fd", pid) >= sizeof(path))
		return;
	int folder = openat(proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0)
		return;
	each_number(folder, MOST_FDS, look_at_descriptor, search);
	close(folder);
}

/* The file is new: has there been another, and who shared it is still there? */
static int carry_removed(const struct quota_seat *into, const struct quota_terms *terms)
{
	struct search search = {.into = into, .terms = terms, .pids = MOST_PIDS};
	int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (proc < 0)
		return 0;
	each_number(proc, UINT32_MAX, look_at_process, &search);
	close(proc);
	return search.error;
}

/* ---- entering; we hold byte 0 ---- */

static bool is_same_file(const struct quota_seat *before, const struct quota_seat *seat)
{
	return before && before->device == seat->device && before->inode == seat->inode;
}

/* In the file of before, where we still have the lock of our slot, whatever has become of what stood in it. */
static bool is_still_ours(struct quota_seat *seat, const struct quota_seat *before)
{
	struct quota_slot slot;

	if (!is_same_file(before, seat) || !quota_file_read_slots(seat, before->index, 1, &slot) ||
	    (slot.stamp && slot.ticket && slot.ticket != seat->ticket))
		return false;
	seat->index = before->index;
	seat->stamp = slot.stamp ? (uint64_t)slot.stamp : next_stamp(seat);
	return true;
}

/* In which slot: that of before, if the file was truncated; the one in which others have put us down; a free one. */
static int choose_slot(struct quota_seat *seat, const struct quota_seat *before)
{
	struct finder finder = {.ticket = seat->ticket};

	if (is_still_ours(seat, before))
		return 0;
	if (find_ticket(seat, &finder)) {
		if (!try_lock(seat->fd, 1 + finder.index)) /* somebody looks whether we are dead */
			return -EBUSY;
		seat->index = finder.index;
		seat->stamp = finder.stamp;
		return 0;
	}
	seat->index = find_free(seat, true);
	if (seat->index == QUOTA_SLOTS)
		return -ENOSPC;
	seat->stamp = next_stamp(seat);
	return 0;
}

static int sit_down(struct quota_seat *seat, const struct quota_seat *before, uint64_t held)
{
	int error = choose_slot(seat, before);

	if (error)
		return error;
	const struct quota_slot slot = {.stamp = seat->stamp,
					.pid = (uint64_t)getpid(),
					.started = rundir_process_started(getpid()),
					.space = seat->space,
					.used = held,
					.ticket = seat->ticket};
	uint64_t stamp;
	/* In a slot that stood for us already others count us all the time. */
	if (read_at(seat->fd, &stamp, sizeof(stamp), at_slot(seat->index)) && stamp == seat->stamp)
		return write_at(seat->fd, &slot, sizeof(slot), at_slot(seat->index)) ? 0 : -EIO;
	return put_slot(seat, seat->index, &slot);
}

static int set_total(const struct quota_seat *seat, const struct quota_terms *terms, bool first)
{
	uint64_t given = 0, total[2] = {terms->total < QUOTA_MOST ? terms->total : QUOTA_MOST, terms->given};

	read_at(seat->fd, &given, sizeof(given), QUOTA_HEAD(given));
	/* The first says how much there is; what a policy says replaces what was computed. */
	if (!first && !(terms->given && !given))
		return 0;
	return write_at(seat->fd, total, sizeof(total), QUOTA_HEAD(total)) ? 0 : -EIO;
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

	return quota_file_is_there(seat) && fstat(seat->fd, &status) == 0 && status.st_size == PAGE_BYTES &&
	       read_at(seat->fd, &head, sizeof(head), 0) && is_ours(&head);
}

static bool is_complete(const struct quota_seat *seat)
{
	struct quota_head head;

	return read_at(seat->fd, &head, sizeof(head), 0) && head.complete;
}

/* before: the seat in a file that was lost, or NULL. */
static int enter_locked(const struct quota_terms *terms, struct quota_seat *seat, const struct quota_seat *before,
			uint64_t held)
{
	const uint64_t yes = 1;
	bool filled;
	int error = prepare(seat, before && is_same_open(before, seat->fd), &filled);

	if (error)
		return error;
	unsigned reclaimed = sweep_file(seat, true);
	bool complete = is_complete(seat), first = !any_rank(seat);
	error = set_total(seat, terms, first || filled);
	if (!error && before && quota_file_is_open(before) && before->inode != seat->inode)
		error = carry_over(before, seat, terms, first);
	/*
	 * In a file that was truncated nobody has a slot whose process had not come to it yet; and who made this one may
	 * have been killed at it.
	 */
	if (!error && (first || !complete))
		error = carry_removed(seat, terms);
	if (!error && !write_at(seat->fd, &yes, sizeof(yes), QUOTA_HEAD(complete)))
		error = -EIO;
	if (!error)
		error = sit_down(seat, before, held);
	/* It may have been removed before it was whole, and another made by who could not read it; or truncated. */
	if (!is_whole(seat))
		error = -EAGAIN;
	if (!error)
		stats_add(STAT_share_reclaimed, reclaimed);
	return error;
}

/* -EAGAIN: the file that was opened is no more, another may be there. */
static int enter(const struct rundir *folder, const struct quota_terms *terms, struct quota_seat *seat,
		 const struct quota_seat *before, uint64_t held, uint64_t patience)
{
	struct stat status;

	seat->index = QUOTA_SLOTS;
	/* O_NONBLOCK: nobody waits for the other side of a pipe of this name. */
	seat->fd =
	    openat(folder->fd, seat->name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, S_IRUSR | S_IWUSR);
	if (seat->fd < 0)
		return -errno;
	int error = fstat(seat->fd, &status) != 0 ? -errno : is_private(&status) ? 0 : -EPERM;
	if (!error && before && is_same_open(before, seat->fd)) {
		/* Locks belong to the open file: ours goes on without a moment in which we seem to be dead. */
		close(seat->fd);
		seat->fd = fcntl(before->fd, F_DUPFD_CLOEXEC, 0);
		if (seat->fd < 0)
			return -errno;
		seat->index = before->index;
	}
	if (!error)
		error = lock_file(seat->fd, patience);
	if (!error) {
		error = enter_locked(terms, seat, before, held);
		if (error == -ESTALE || (error == -EPROTO && !is_locked(seat->fd, 1, QUOTA_SLOTS)))
			error = unlinkat(folder->fd, seat->name, 0) == 0 ? -EAGAIN : -errno;
		lock_byte(seat->fd, 0, F_UNLCK);
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

/* Is the file in that folder used by anybody? */
static bool is_in_use(const struct rundir *folder, const struct quota_seat *seat)
{
	struct quota_seat there = *seat;
	struct quota_head head;
	struct stat status;

	there.fd = openat(folder->fd, seat->name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (there.fd < 0)
		return false;
	bool used = false;
	if (fstat(there.fd, &status) == 0 && is_private(&status) && read_at(there.fd, &head, sizeof(head), 0) &&
	    is_ours(&head) && !head.moved) {
		there.device = status.st_dev;
		there.inode = status.st_ino;
		used = any_rank(&there);
	}
	close(there.fd);
	return used;
}

/* Where it is in use, else where new files go: the places differ after a log-out, and when the user comes back. */
static int open_folder(const struct quota_seat *seat, struct rundir *ret_folder)
{
	for (unsigned place = 0; place < RUNDIR_PLACES; place++) {
		if (rundir_open_place(place, ret_folder) != 0)
			continue;
		if (is_in_use(ret_folder, seat))
			return 0;
		rundir_close(ret_folder, false);
	}
	return rundir_make_mapped(ret_folder);
}

/* It was removed or truncated while we were at it. */
static bool is_worth_a_try(int error)
{
	return error == -EAGAIN || error == -ENOENT || error == -EIO;
}

int quota_file_join(const struct quota_terms *terms, struct quota_seat *seat, uint64_t held, bool patient)
{
	struct quota_seat next = {.space = my_space(), .fd = -1, .ticket = seat->ticket ? seat->ticket : new_ticket()};
	const struct quota_seat *before = quota_file_is_open(seat) ? seat : NULL;
	struct rundir folder;
	int error = -EAGAIN;

	name_file(terms->domain, next.name, sizeof(next.name));
	for (unsigned i = 0; i < OPEN_TRIES && is_worth_a_try(error); i++) {
		/* The folder, too, goes with the last file in it. */
		error = open_folder(&next, &folder);
		if (error)
			return error;
		error = enter(&folder, terms, &next, before, held, patient ? quota_join_patience : 0);
		rundir_close(&folder, false);
	}
	if (error)
		return is_worth_a_try(error) ? -EBUSY : error;
	if (before) {
		/* Who still finds the old file is not to take this for what we hold. */
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
	return index == seat->index || slot->leaving || is_gone(seat, index, slot);
}

static void remove_file(const struct quota_seat *seat)
{
	struct rundir folder;
	struct stat status;

	for (unsigned place = 0; place < RUNDIR_PLACES; place++) {
		if (rundir_open_place(place, &folder) != 0)
			continue;
		bool here = fstatat(folder.fd, seat->name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
			    status.st_dev == seat->device && status.st_ino == seat->inode;
		if (here)
			unlinkat(folder.fd, seat->name, 0);
		rundir_close(&folder, here);
	}
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
	if (lock_file(seat->fd, LEAVE_NS) != 0)
		return;
	/* Of one that was truncated nobody knows who is there. */
	if (is_whole(seat) && each_slot(seat, is_no_rank, NULL))
		remove_file(seat);
	lock_byte(seat->fd, 0, F_UNLCK);
	/* The lock of the slot stays with the descriptor until the process has ended. */
}
