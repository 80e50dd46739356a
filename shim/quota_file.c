/*
 * The file that the processes of a user share: made, entered, left, removed. Whoever joins or leaves holds the lock of
 * byte 0 meanwhile, so that a file is filled by one process, read by the others when it is whole, and not removed while
 * somebody enters.
 *
 * Contents that are not ours are left alone as long as somebody has a slot (another version of this library may); where
 * nobody has, the file is replaced, not emptied: a process that has lost its lock with its descriptors may have it mapped.
 */
#include "shim/quota_inside.h"
#include "shim/rundir.h"
#include "shim/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK_TRIES 2000 /* of 1 ms: joining takes less than that, and there may be many who want to */
#define OPEN_TRIES 100  /* each time the file was removed by who left in that moment */

/* ---- locks ---- */

static int lock_byte(int fd, unsigned byte, short type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

	return fcntl(fd, F_OFD_SETLK, &lock) == 0 ? 0 : -errno;
}

static int lock_file(int fd)
{
	int error = -EAGAIN;

	for (unsigned i = 0; i < LOCK_TRIES; i++) {
		error = lock_byte(fd, 0, F_WRLCK);
		if (error != -EAGAIN && error != -EACCES && error != -EINTR)
			return error;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	return error;
}

/* Does another open file hold a lock there? False also where that cannot be told. */
static bool is_locked(int fd, unsigned byte, unsigned n)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = n};

	return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

/* Is the descriptor still that of the file? */
static bool is_open(const struct quota_seat *seat)
{
	struct stat status;

	return seat->fd >= 0 && fstat(seat->fd, &status) == 0 && status.st_dev == seat->device &&
	       status.st_ino == seat->inode;
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

bool quota_file_is_gone(const struct quota_seat *seat, unsigned index)
{
	const struct quota_slot *slot = &seat->page->slot[index];
	uint64_t pid = atomic_load(&slot->pid), space = atomic_load(&slot->space);

	if (!space || space != seat->space)
		return is_open(seat) && !is_locked(seat->fd, 1 + index, 1);
	/* Our own slot of before an exec(). */
	if (pid == (uint64_t)getpid())
		return true;
	return pid == 0 || pid > INT32_MAX || rundir_process_is_gone((pid_t)pid, atomic_load(&slot->started));
}

unsigned quota_file_sweep(const struct quota_seat *seat)
{
	unsigned n = 0;

	for (unsigned i = 0; i < QUOTA_SLOTS; i++) {
		_Atomic uint64_t *stamp = &seat->page->slot[i].stamp;
		uint64_t known = atomic_load(stamp);

		if (known && known != seat->stamp && quota_file_is_gone(seat, i))
			n += atomic_compare_exchange_strong(stamp, &known, 0);
	}
	return n;
}

/* ---- entering ---- */

static bool is_private(const struct stat *status)
{
	return S_ISREG(status->st_mode) && status->st_uid == geteuid() && (status->st_mode & 077) == 0;
}

/* All blocks of the file are taken at once: a store into a page without one could be a SIGBUS. */
static int fill(int fd)
{
	struct quota_page head = {.bytes = sizeof(head), .version = QUOTA_VERSION, .magic = QUOTA_MAGIC};
	struct rlimit limit;

	/* A file beyond the limit is a signal that ends the program. */
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < sizeof(head))
		return -EFBIG;
	int error = fchmod(fd, S_IRUSR | S_IWUSR) == 0 ? posix_fallocate(fd, 0, sizeof(head)) : errno;
	if (error)
		return -error;
	atomic_store(&head.next_stamp, 1);
	return pwrite(fd, &head, offsetof(struct quota_page, slot), 0) == offsetof(struct quota_page, slot) ? 0 : -EIO;
}

static bool is_ours(const struct quota_page *page)
{
	return page->bytes == sizeof(*page) && page->version == QUOTA_VERSION && page->magic == QUOTA_MAGIC &&
	       atomic_load(&page->total) <= QUOTA_MOST && atomic_load(&page->next_stamp) != 0;
}

/* The file, locked, whole and mapped. -ENOENT: it was removed meanwhile. */
static int map_locked(struct quota_seat *seat)
{
	struct stat status;
	int error = 0;

	if (fstat(seat->fd, &status) != 0)
		return -errno;
	if (!status.st_nlink)
		return -ENOENT;
	if (!status.st_size)
		error = fill(seat->fd);
	else if (status.st_size != sizeof(struct quota_page))
		error = -EPROTO;
	if (error)
		return error;
	void *at = mmap(NULL, sizeof(struct quota_page), PROT_READ | PROT_WRITE, MAP_SHARED, seat->fd, 0);
	if (at == MAP_FAILED)
		return -errno;
	if (!is_ours(at)) {
		munmap(at, sizeof(struct quota_page));
		return -EPROTO;
	}
	seat->page = at;
	seat->device = status.st_dev;
	seat->inode = status.st_ino;
	return 0;
}

static bool any_rank(const struct quota_page *page)
{
	for (unsigned i = 0; i < QUOTA_SLOTS; i++)
		if (atomic_load(&page->slot[i].stamp))
			return true;
	return false;
}

/* A free slot becomes ours. The stamp comes last: from then on others count it. */
static int sit_down(struct quota_seat *seat)
{
	struct quota_page *page = seat->page;
	unsigned i = 0;

	while (i < QUOTA_SLOTS && atomic_load(&page->slot[i].stamp))
		i++;
	if (i == QUOTA_SLOTS)
		return -ENOSPC;
	int error = lock_byte(seat->fd, 1 + i, F_WRLCK);
	if (error)
		return error;
	struct quota_slot *slot = &page->slot[i];
	atomic_store(&slot->used, 0);
	atomic_store(&slot->claim, 0);
	atomic_store(&slot->spare, 0);
	atomic_store(&slot->wanted, 0);
	atomic_store(&slot->wanted_until, 0);
	atomic_store(&slot->leaving, 0);
	atomic_store(&slot->pid, (uint64_t)getpid());
	atomic_store(&slot->started, rundir_process_started(getpid()));
	atomic_store(&slot->space, seat->space);
	seat->index = i;
	seat->stamp = atomic_fetch_add(&page->next_stamp, 1);
	atomic_store(&slot->stamp, seat->stamp);
	return 0;
}

static int enter_locked(const struct quota_terms *terms, struct quota_seat *seat)
{
	int error = map_locked(seat);

	if (error)
		return error;
	unsigned reclaimed = quota_file_sweep(seat);
	/* The first says how much there is; what a policy says replaces what was computed. */
	if (!any_rank(seat->page) || (terms->given && !atomic_load(&seat->page->given))) {
		atomic_store(&seat->page->total, terms->total < QUOTA_MOST ? terms->total : QUOTA_MOST);
		atomic_store(&seat->page->given, terms->given);
	}
	error = sit_down(seat);
	if (error)
		munmap(seat->page, sizeof(*seat->page));
	else
		stats_add(STAT_share_reclaimed, reclaimed);
	return error;
}

/* -EAGAIN: the file that was opened is no more, another may be there. */
static int enter(const struct rundir *folder, const struct quota_terms *terms, struct quota_seat *seat)
{
	struct stat status;

	/* O_NONBLOCK: nobody waits for the other side of a pipe of this name. */
	seat->fd =
	    openat(folder->fd, seat->name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, S_IRUSR | S_IWUSR);
	if (seat->fd < 0)
		return -errno;
	int error = fstat(seat->fd, &status) != 0 ? -errno : is_private(&status) ? lock_file(seat->fd) : -EPERM;
	if (!error) {
		error = enter_locked(terms, seat);
		if (error == -EPROTO && !is_locked(seat->fd, 1, QUOTA_SLOTS))
			error = unlinkat(folder->fd, seat->name, 0) == 0 ? -EAGAIN : -errno;
		else if (error == -ENOENT)
			error = -EAGAIN;
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

int quota_file_join(const struct quota_terms *terms, struct quota_seat *ret_seat)
{
	struct quota_seat seat = {.space = my_space(), .fd = -1};
	struct rundir folder;
	int error = -EAGAIN;

	name_file(terms->domain, seat.name, sizeof(seat.name));
	for (unsigned i = 0; i < OPEN_TRIES && (error == -EAGAIN || error == -ENOENT); i++) {
		/* The folder, too, goes with the last file in it. */
		error = rundir_make_mapped(&folder);
		if (error)
			return error;
		error = enter(&folder, terms, &seat);
		rundir_close(&folder, false);
	}
	if (!error)
		*ret_seat = seat;
	return error;
}

/* ---- leaving ---- */

static bool is_last(const struct quota_seat *seat)
{
	for (unsigned i = 0; i < QUOTA_SLOTS; i++) {
		const struct quota_slot *slot = &seat->page->slot[i];

		if (i != seat->index && atomic_load(&slot->stamp) && !atomic_load(&slot->leaving) &&
		    !quota_file_is_gone(seat, i))
			return false;
	}
	return true;
}

void quota_file_leave(struct quota_seat *seat, bool may_free)
{
	struct quota_slot *slot = &seat->page->slot[seat->index];
	uint64_t stamp = seat->stamp;
	struct stat status;
	struct rundir folder;

	atomic_store(&slot->leaving, 1);
	if (may_free && !atomic_load(&slot->used))
		atomic_compare_exchange_strong(&slot->stamp, &stamp, 0);
	if (!is_open(seat) || lock_file(seat->fd) != 0)
		return;
	if (is_last(seat) && rundir_make_mapped(&folder) == 0) {
		if (fstatat(folder.fd, seat->name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
		    status.st_dev == seat->device && status.st_ino == seat->inode)
			unlinkat(folder.fd, seat->name, 0);
		rundir_close(&folder, true);
	}
	lock_byte(seat->fd, 0, F_UNLCK);
	/* The lock of the slot stays with the descriptor until the process has ended. */
}
