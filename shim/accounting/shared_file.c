// SPDX-License-Identifier: Apache-2.0
/* How a shared file is made, entered, changed, left and lost. See shared_file.h. */
#include "shim/accounting/shared_file.h"
#include "shim/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TRIES 100 /* each time the file was removed by a process that left in that moment */
/* ns, and tries: where the lock is taken for so long, its holder is stopped. A wrong guess costs it a try. */
#define LOCK_NS    1000000000u
#define LOCK_TRIES 4
/* The bytes of locks of a number other than 0, behind those of slots. */
#define LOCK_BYTE  512
#define LOCKS      128
#define PROBE_BYTE (LOCK_BYTE + LOCKS)
#define YIELD_NS   50000     /* who waits for the lock for longer sleeps: its holder is not running */
#define NAP_NS     100000    /* so long, each time */
#define LEAVE_NS   100000000 /* the end of a process is not delayed longer */
/* ns: who uses a file that was lost has entered the next one by then: it looks once a second, or more often. */
#define SETTLE_NS    UINT64_C(1000000000)
#define VERSION_MOST 9999 /* a higher number is nonsense */
#define MOST_PIDS    4096 /* processes of the user that are searched for a removed file */
#define MOST_FDS     4096 /* descriptors searched of each */
#define PATH_LENGTH  300

static _Atomic bool has_forked; /* a child may have the shared files open (shared_forked()) */

/* ---- reading and writing ---- */

bool shared_read(int fd, void *room, size_t bytes, size_t offset)
{
	return syscall(SYS_pread64, fd, room, bytes, (off_t)offset) == (long)bytes;
}

static bool may_have(size_t bytes)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= bytes;
}

bool shared_write(int fd, const void *from, size_t bytes, size_t offset)
{
	/* The program may lower the limit at any time. */
	return may_have(offset + bytes) && syscall(SYS_pwrite64, fd, from, bytes, (off_t)offset) == (long)bytes;
}

static bool is_ours(const struct shared_kind *kind, const struct shared_head *head)
{
	return head->bytes == shared_bytes(kind) && head->version == kind->version && head->magic == kind->magic &&
	       head->total;
}

bool shared_read_head(int fd, const struct shared_kind *kind, void *ret_head)
{
	return shared_read(fd, ret_head, kind->head_bytes, 0) && is_ours(kind, ret_head);
}

bool shared_read_slots(int fd, const struct shared_kind *kind, unsigned first, unsigned n, void *ret_slots)
{
	return shared_read(fd, ret_slots, n * kind->slot_bytes, shared_slot_at(kind, first));
}

static bool read_owner(int fd, const struct shared_kind *kind, unsigned slot, struct shared_owner *ret_owner)
{
	return shared_read(fd, ret_owner, sizeof(*ret_owner), shared_slot_at(kind, slot));
}

static bool write_number(const struct shared_file *file, size_t offset, uint64_t number)
{
	return shared_write(file->fd, &number, sizeof(number), offset);
}

bool shared_publish(const struct shared_file *file, const void *slot)
{
	return shared_is_open(file) &&
	       shared_write(file->fd, slot, file->kind->slot_bytes, shared_slot_at(file->kind, file->slot));
}

static bool is_that(const struct shared_file *file, struct stat *ret_status)
{
	return file->open && fstat(file->fd, ret_status) == 0 && ret_status->st_dev == file->device &&
	       ret_status->st_ino == file->inode;
}

bool shared_is_open(const struct shared_file *file)
{
	struct stat status;

	return is_that(file, &status);
}

bool shared_is_whole(const struct shared_file *file)
{
	struct stat status;

	return is_that(file, &status) && status.st_nlink && status.st_size == (off_t)shared_bytes(file->kind);
}

bool shared_settles(const struct shared_head *head)
{
	uint64_t now = clock_now();

	/* A time that lies too far ahead was not given by this clock. */
	return head->settles > now && head->settles <= now + SETTLE_NS;
}

/* ---- the locks ---- */

static bool set_byte(int fd, unsigned byte, short type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

	return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

bool shared_try_byte(int fd, unsigned byte)
{
	return set_byte(fd, byte, F_WRLCK);
}

/* Returns true if another open file holds a lock on these n bytes, or if that is unknown. */
static bool is_locked(int fd, unsigned byte, unsigned n)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = n};

	return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

static unsigned lock_byte(const struct shared_file *file, uint64_t lock)
{
	return lock % LOCKS ? LOCK_BYTE + (unsigned)(lock % LOCKS) : file->kind->lock;
}

/* Returns the number in the head; 0 if there is no head. */
static uint64_t lock_in_file(const struct shared_file *file)
{
	struct shared_head head;

	return shared_read(file->fd, &head, sizeof(head), 0) && is_ours(file->kind, &head) ? head.lock : 0;
}

void shared_unlock(const struct shared_file *file)
{
	set_byte(file->fd, lock_byte(file, file->lock), F_UNLCK);
}

/* Takes the lock of that number, if the file says `now` then. */
static bool try_to_lock(struct shared_file *file, uint64_t lock, uint64_t now)
{
	if (!shared_try_byte(file->fd, lock_byte(file, lock)))
		return false;
	file->lock = lock;
	if (lock_in_file(file) == now)
		return true;
	shared_unlock(file);
	return false;
}

/* The holder is stopped: takes the next lock that nobody holds. */
static bool take_other_lock(struct shared_file *file, uint64_t now)
{
	struct shared_head head;
	unsigned i = 1;

	while (i < LOCKS && !try_to_lock(file, now + i, now))
		i++;
	if (i == LOCKS)
		return false;
	bool told = shared_read(file->fd, &head, sizeof(head), 0) && is_ours(file->kind, &head) &&
		    write_number(file, offsetof(struct shared_head, lock), file->lock);
	if (!told)
		shared_unlock(file);
	atomic_thread_fence(memory_order_seq_cst);
	return told;
}

static bool lock_at_once(struct shared_file *file)
{
	uint64_t lock = lock_in_file(file);
	bool locked = try_to_lock(file, lock, lock);

	if (!locked && !file->busy++)
		file->busy_since = clock_now();
	if (!locked && file->busy >= LOCK_TRIES && clock_now() - file->busy_since >= LOCK_NS)
		locked = take_other_lock(file, lock);
	if (locked)
		file->busy = 0;
	return locked;
}

bool shared_lock(struct shared_file *file)
{
	uint64_t since = clock_now();

	while (!lock_at_once(file)) {
		uint64_t waited = clock_now() - since;

		if (waited >= file->patience)
			return false;
		if (waited < YIELD_NS)
			sched_yield();
		else
			nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
	}
	return true;
}

/*
 * The copies that the kernel makes for us are plain loads and stores of this processor, or of one from which this
 * thread was moved, which is a barrier as well.
 */
bool shared_held(const struct shared_file *file)
{
	atomic_thread_fence(memory_order_seq_cst);
	return shared_is_whole(file) && lock_in_file(file) == file->lock;
}

/* ---- who is in a file ---- */

bool shared_has_ended(const struct shared_owner *owner)
{
	return owner->started && owner->space && owner->space == identity_space() && owner->pid <= INT32_MAX &&
	       user_dir_process_is_gone((pid_t)owner->pid, owner->started);
}

bool shared_counts(int fd, unsigned slot, const struct shared_owner *owner)
{
	if (!owner->pid)
		return false;
	if (is_locked(fd, 1 + slot, 1))
		return true;
	/* A slot of our own pid without its lock is from before an exec(), or before our descriptor was closed. */
	return owner->pid != (uint64_t)getpid() && owner->pid <= INT32_MAX && owner->space &&
	       owner->space == identity_space() && !user_dir_process_is_gone((pid_t)owner->pid, owner->started);
}

static bool is_same_process(const struct shared_owner *a, const struct shared_owner *b)
{
	return a->pid == b->pid && a->started == b->started && a->space == b->space;
}

/* Returns true if a process other than the caller uses the open file, by this version or another. */
static bool is_used(int fd, const struct shared_kind *kind)
{
	uint64_t room[SHARED_READ * SHARED_SLOT / sizeof(uint64_t)];

	if (is_locked(fd, 1, SHARED_SLOTS))
		return true;
	bool ours = shared_read_head(fd, kind, room), used = false;
	for (unsigned i = 0; ours && !used && i < kind->slots; i++) {
		ours = i % SHARED_READ || shared_read_slots(fd, kind, i, SHARED_READ, room);
		used = ours && shared_counts(fd, i, (void *)((char *)room + i % SHARED_READ * kind->slot_bytes));
	}
	return used;
}

static bool is_private(const struct stat *status)
{
	return S_ISREG(status->st_mode) && status->st_uid == geteuid() && (status->st_mode & 077) == 0;
}

int shared_open_used(const struct shared_kind *kind, const struct user_dir *folder, const char *name,
		     struct stat *ret_status)
{
	/* O_NONBLOCK: if the name is a pipe, the open does not wait for its other side. */
	int fd = openat(folder->fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0 || (fstat(fd, ret_status) == 0 && is_private(ret_status) && is_used(fd, kind)))
		return fd;
	close(fd);
	return -1;
}

unsigned shared_sweep(const struct shared_file *file)
{
	const struct shared_kind *kind = file->kind;
	struct shared_file own = *file;
	struct shared_owner owner, again;
	unsigned n = 0;

	own.patience = 0;
	if (!shared_is_whole(&own) || !shared_lock(&own))
		return 0;
	for (unsigned i = 0; i < kind->slots && read_owner(own.fd, kind, i, &owner); i++) {
		size_t at = shared_slot_at(kind, i);

		if (i == own.slot || !owner.pid)
			continue;
		if (shared_counts(own.fd, i, &owner)) {
			if (!owner.leaving && shared_has_ended(&owner) && shared_held(&own))
				write_number(&own, at + offsetof(struct shared_owner, leaving), 1);
			continue;
		}
		if (!shared_try_byte(own.fd, 1 + i))
			continue;
		n += read_owner(own.fd, kind, i, &again) && is_same_process(&owner, &again) &&
		     write_number(&own, at + offsetof(struct shared_owner, pid), 0);
		set_byte(own.fd, 1 + i, F_UNLCK);
	}
	shared_unlock(&own);
	return n;
}

/* ---- removed files that processes of this user have open ---- */

struct search {
	struct shared_file *into;
	const struct shared_owner *own;
	struct shared_head *was; /* that of those whose slots were carried over, if nobody is in the file */
	unsigned pids;           /* of this user, still to be searched */
};

/* Returns true if it is the path of our file in one of its places, and that file was removed. */
static bool is_removed(const char *path, const char *name)
{
	char place[PATH_LENGTH], removed[2 * PATH_LENGTH];

	for (unsigned i = 0; i < USER_DIR_PLACES; i++) {
		if (!user_dir_name_place(i, place, sizeof(place)))
			continue;
		snprintf(removed, sizeof(removed), "%s/%s (deleted)", place, name);
		if (!strcmp(path, removed))
			return true;
	}
	return false;
}

/*
 * Writes the slot into a free one, without a lock, unless its process is in the file. is_its: the process itself was in
 * the file where it was found; what is carried from where another has carried it to is older.
 */
static void carry_slot(const struct shared_file *into, const void *slot, bool is_its)
{
	const struct shared_kind *kind = into->kind;
	const struct shared_owner *owner = slot;
	struct shared_owner there;
	unsigned at = kind->slots;

	for (unsigned i = 0; i < kind->slots && read_owner(into->fd, kind, i, &there); i++) {
		bool used = shared_counts(into->fd, i, &there);

		if (used && is_same_process(&there, owner)) {
			at = is_its && !is_locked(into->fd, 1 + i, 1) ? i : kind->slots;
			break;
		}
		if (!used && at == kind->slots)
			at = i;
	}
	if (at < kind->slots)
		shared_write(into->fd, slot, kind->slot_bytes, shared_slot_at(kind, at));
}

static void carry_file(int fd, const struct search *search)
{
	const struct shared_kind *kind = search->into->kind;
	struct shared_head head;
	uint64_t slot[SHARED_SLOT / sizeof(uint64_t)];
	const struct shared_owner *owner = (const void *)slot;

	if (!shared_read(fd, &head, sizeof(head), 0) || !is_ours(kind, &head))
		return;
	for (unsigned i = 0; i < kind->slots && shared_read_slots(fd, kind, i, 1, slot); i++) {
		if (!shared_counts(fd, i, owner) || is_same_process(owner, search->own))
			continue;
		bool is_its = is_locked(fd, 1 + i, 1);

		search->into->lost = true;
		if (is_its && !search->was->total)
			*search->was = head;
		carry_slot(search->into, slot, is_its);
	}
}

static void look_at_descriptor(const struct user_dir *folder, const char *name, void *argument)
{
	const struct search *search = argument;
	char path[PATH_LENGTH];
	struct stat status;
	ssize_t n = readlinkat(folder->fd, name, path, sizeof(path) - 1);

	if (n <= 0)
		return;
	path[n] = 0;
	if (!is_removed(path, search->into->name))
		return;
	int fd = openat(folder->fd, name, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return;
	if (fstat(fd, &status) == 0 && is_private(&status) && !status.st_nlink)
		carry_file(fd, search);
	close(fd);
}

static void look_at_process(const struct user_dir *proc, const char *pid, void *argument)
{
	struct search *search = argument;
	struct stat status;
	char path[32];

	if (fstatat(proc->fd, pid, &status, 0) != 0 || status.st_uid != geteuid() || !search->pids)
		return;
	search->pids--;
	snprintf(path, sizeof(path), "%.20s/fd", pid);
	struct user_dir folder = {.fd = openat(proc->fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
	if (folder.fd < 0)
		return;
	user_dir_each_file(&folder, NULL, MOST_FDS, look_at_descriptor, search);
	close(folder.fd);
}

static void carry_over(struct search *search)
{
	struct user_dir proc = {.fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};

	if (proc.fd < 0)
		return;
	user_dir_each_file(&proc, NULL, UINT32_MAX, look_at_process, search);
	close(proc.fd);
}

/* ---- entering; the caller has the lock ---- */

/* Returns true if the head is that of a file of this length which another version of this library made. */
static bool is_foreign(const struct shared_kind *kind, const struct shared_head *head, off_t bytes)
{
	return head->bytes == (uint64_t)bytes && head->version && head->version <= VERSION_MOST &&
	       head->version != kind->version;
}

/* Makes the file ours if nobody uses it. ret_was: its head if anybody does, else its total is 0. */
static int prepare(struct shared_file *file, const struct shared_terms *terms, struct shared_head *ret_was)
{
	const struct shared_kind *kind = file->kind;
	struct shared_head head = {0};
	struct stat status;

	*ret_was = head;
	if (!is_that(file, &status) || !status.st_nlink)
		return -EAGAIN;
	if (!may_have(shared_bytes(kind)))
		return -EFBIG;
	shared_read(file->fd, &head, status.st_size < (off_t)sizeof(head) ? (size_t)status.st_size : sizeof(head), 0);
	if (status.st_size == (off_t)shared_bytes(kind) && is_ours(kind, &head)) {
		if (is_used(file->fd, kind))
			*ret_was = head;
		return 0;
	}
	file->version = head.version;
	if (is_locked(file->fd, 1, SHARED_SLOTS))
		return is_foreign(kind, &head, status.st_size) ? -EPROTONOSUPPORT : -EPROTO;
	head = (struct shared_head){.bytes = shared_bytes(kind),
				    .version = kind->version,
				    .magic = kind->magic,
				    .total = terms->total,
				    .lock = file->lock};
	if (ftruncate(file->fd, 0) != 0 || fchmod(file->fd, S_IRUSR | S_IWUSR) != 0)
		return -errno;
	/* Allocates all blocks of the file at once: later the file system may be full. */
	int error = posix_fallocate(file->fd, 0, (off_t)shared_bytes(kind));
	if (error)
		return -error;
	return shared_write(file->fd, &head, sizeof(head), 0) ? 0 : -EIO;
}

static bool set_total(struct shared_file *file, const struct shared_terms *terms, const struct shared_head *was)
{
	bool keeps = was->total && (was->fixed || !terms->replaces);
	const uint64_t total[2] = {keeps ? was->total : terms->total, keeps ? was->fixed : terms->fixed};

	file->total = total[0];
	return shared_write(file->fd, total, sizeof(total), offsetof(struct shared_head, total));
}

/*
 * Takes the first slot that is free, and empties those that this process had before its descriptor was closed, or the
 * file was lost: others would count them as long as it lives.
 */
static int take_slot(struct shared_file *file, const void *slot)
{
	static const struct shared_owner none;
	const struct shared_kind *kind = file->kind;
	struct shared_owner there;
	unsigned taken = kind->slots;

	for (unsigned i = 0; i < kind->slots; i++) {
		if (!read_owner(file->fd, kind, i, &there))
			return -EIO;
		if (shared_counts(file->fd, i, &there))
			continue;
		bool mine = there.pid && is_same_process(&there, slot);
		if (taken == kind->slots && shared_try_byte(file->fd, 1 + i))
			taken = i;
		if ((mine || taken == i) && ((kind->clear && !kind->clear(file, i)) ||
					     !shared_write(file->fd, &none, sizeof(none), shared_slot_at(kind, i))))
			return -EIO;
	}
	file->slot = taken;
	return taken == kind->slots ? -EUSERS : shared_publish(file, slot) ? 0 : -EIO;
}

static int enter_locked(struct shared_file *file, const struct shared_terms *terms, const void *slot)
{
	struct shared_head was;
	struct search search = {.into = file, .own = slot, .was = &was, .pids = MOST_PIDS};
	int error = prepare(file, terms, &was);

	if (error)
		return error;
	/* Who has made the file may have been killed before it had carried all over. Then it has no slot. */
	if (!is_locked(file->fd, 1, SHARED_SLOTS))
		carry_over(&search);
	/* This process may have been stopped for long, and the total may be another one. */
	if (!shared_held(file))
		return -EAGAIN;
	if ((file->lost && !write_number(file, offsetof(struct shared_head, settles), clock_now() + SETTLE_NS)) ||
	    !set_total(file, terms, &was))
		return -EIO;
	error = take_slot(file, slot);
	/* The file may have been lost meanwhile, or this process was stopped. */
	return error ? error : shared_held(file) ? 0 : -EAGAIN;
}

/* ---- entering and leaving ---- */

static void close_file(struct shared_file *file)
{
	if (shared_is_open(file))
		close(file->fd);
	file->open = false;
}

static int open_in(struct shared_file *file, const struct user_dir *folder)
{
	struct stat status;

	file->fd =
	    openat(folder->fd, file->name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, S_IRUSR | S_IWUSR);
	if (file->fd < 0)
		return -errno;
	int error = fstat(file->fd, &status) != 0 ? -errno : is_private(&status) ? 0 : -EPERM;
	if (error) {
		close(file->fd);
		return error;
	}
	file->open = true;
	file->device = status.st_dev;
	file->inode = status.st_ino;
	return 0;
}

/*
 * Opens the folder in which the file is in use, of all places where it may lie, else that for new files. They differ
 * after a log-out, and when the user returns; and for processes without XDG_RUNTIME_DIR.
 */
static int open_folder(const struct shared_file *file, struct user_dir *ret_folder)
{
	struct stat status;

	for (unsigned place = 0; place < USER_DIR_PLACES; place++) {
		if (user_dir_open_place(place, ret_folder) != 0)
			continue;
		int fd = shared_open_used(file->kind, ret_folder, file->name, &status);
		if (fd >= 0) {
			close(fd);
			return 0;
		}
		user_dir_close(ret_folder, false);
	}
	return user_dir_make_mapped(ret_folder);
}

int shared_open(struct shared_file *file)
{
	struct user_dir folder;
	int error = open_folder(file, &folder);

	if (error)
		return error;
	error = open_in(file, &folder);
	user_dir_close(&folder, false);
	return error;
}

/* Of several that have entered at the same time, those in the last place see the others, and follow them. */
static bool is_in_first_place(const struct shared_file *file)
{
	struct user_dir folder;

	if (open_folder(file, &folder) != 0)
		return true;
	bool first = user_dir_leads_to(folder.fd, file->name, file->device, file->inode);
	user_dir_close(&folder, false);
	return first;
}

int shared_enter(struct shared_file *file, const struct shared_terms *terms, const void *slot)
{
	/* The end of the process may come meanwhile: *file is never half entered. */
	struct shared_file next = *file;
	int error = -EAGAIN;

	/* The folder, too, is removed with the last file in it. */
	for (unsigned i = 0; i < TRIES && (error == -EAGAIN || error == -ENOENT || error == -EIO); i++) {
		error = shared_open(&next);
		if (error)
			continue;
		if (shared_lock(&next)) {
			error = enter_locked(&next, terms, slot);
			shared_unlock(&next);
		} else {
			/* Where a byte that nobody needs cannot be locked, there are no such locks. */
			error = shared_try_byte(next.fd, PROBE_BYTE) || errno == EAGAIN ? -EBUSY : -ENOLCK;
		}
		if (error)
			close_file(&next);
		else if (!is_in_first_place(&next)) {
			shared_abandon(&next);
			error = -EAGAIN;
		}
	}
	next.lost &= error != 0;
	*file = next;
	return error;
}

const char *shared_why(int error)
{
	switch (error) {
	case 0:
	case -EAGAIN:
	case -EBUSY:
	case -EIO:
	case -EMFILE:
	case -ENFILE:
	case -ENOENT:
	case -EPROTO:
		return NULL;
	case -EPROTONOSUPPORT:
		return "another version of Spillway uses it";
	case -ENOSPC:
	case -EDQUOT:
		return "there is no room for its file";
	case -EUSERS:
		return "all its places are taken";
	case -EFBIG:
		return "`ulimit -f` is too small for its file";
	case -ENOLCK:
		return "its file cannot be locked";
	case -EPERM:
		return "its file or folder is not this user's alone";
	default:
		return "its file cannot be made";
	}
}

void shared_abandon(struct shared_file *file)
{
	/* Children may have it open, too. */
	if (shared_is_open(file))
		set_byte(file->fd, 1 + file->slot, F_UNLCK);
	close_file(file);
	file->lost = true;
}

/* Returns true if a process is there that does not just end, or a child that keeps the slot of one that has. */
static bool others_stay(const struct shared_file *file)
{
	struct shared_owner owner;

	for (unsigned i = 0; i < file->kind->slots && read_owner(file->fd, file->kind, i, &owner); i++)
		if (i != file->slot && shared_counts(file->fd, i, &owner) &&
		    (!owner.leaving || shared_has_ended(&owner)))
			return true;
	return false;
}

void shared_leave(const struct shared_file *file, bool is_empty)
{
	struct shared_file own = *file;

	own.patience = LEAVE_NS;
	if (!shared_is_whole(&own))
		return;
	size_t at = shared_slot_at(own.kind, own.slot);
	write_number(&own, at + offsetof(struct shared_owner, leaving), 1);
	if (is_empty)
		write_number(&own, at + offsetof(struct shared_owner, pid), 0);
	if (!shared_lock(&own))
		return;
	if ((is_empty || !atomic_load(&has_forked)) && !others_stay(&own))
		user_dir_remove_own(own.name, own.device, own.inode);
	shared_unlock(&own);
}

void shared_forked(bool as_parent)
{
	atomic_store(&has_forked, as_parent);
}
