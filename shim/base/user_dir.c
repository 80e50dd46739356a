// SPDX-License-Identifier: Apache-2.0
/*
 * The user's private folder: opens and checks it, lists and removes the files in it, and finds out whether the process
 * of a file still runs.
 */
#include "shim/base/user_dir.h"
#include "shim/base/base_state.h"
#include "shim/base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
	FRESH_SECONDS = 10, /* from bind to listen takes microseconds; allows for a stopped or starved process */
	KEPT_SECONDS = 24 * 60 * 60,
	MOST_LEFT = 64,   /* files kept of ended processes; many children may end by _exit() */
	MOST_SWEPT = 256, /* entries examined in one sweep, about 10 us each */
	RUN_LENGTH = 128,
	MAKE_TRIES = 100,
	FOLDER_FLAGS = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
};

static bool is_ours(int fd, mode_t open_to)
{
	struct stat status;

	return fstat(fd, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
	       (status.st_mode & open_to) == 0 && (status.st_mode & S_IRWXU) == S_IRWXU;
}

/*
 * Opens the folder `name` in parent. Leaves parent open. Returns 0 or a negative errno. make: it is made if need be,
 * and made again if it is removed meanwhile, as its last user does: elsewhere this process would not find the others.
 */
static int open_in(int parent, const char *name, bool make, struct user_dir *ret_folder)
{
	unsigned tries = make ? MAKE_TRIES : 1;
	int fd;

	do {
		if (make && mkdirat(parent, name, S_IRWXU) != 0 && errno != EEXIST)
			return -errno;
		/* O_NOFOLLOW: in /tmp any user may have created a link of this name. */
		fd = openat(parent, name, FOLDER_FLAGS | O_NOFOLLOW);
	} while (fd < 0 && errno == ENOENT && --tries);
	if (fd < 0)
		return errno == ELOOP || errno == ENOTDIR || errno == EACCES ? -EPERM : -errno;
	if (!is_ours(fd, S_IRWXG | S_IRWXO)) {
		close(fd);
		return -EPERM;
	}
	ret_folder->fd = fd;
	snprintf(ret_folder->name, sizeof(ret_folder->name), "%s", name);
	return 0;
}

/*
 * Opens the user's folder in the one that XDG_RUNTIME_DIR names. *ret_fit: that is as its specification promises, so a
 * failure is due to the folder inside it.
 */
static int open_xdg(const char *xdg, bool make, bool *ret_fit, struct user_dir *ret_folder)
{
	int parent = xdg && xdg[0] == '/' ? open(xdg, FOLDER_FLAGS | O_NOFOLLOW) : -1;

	*ret_fit = parent >= 0 && is_ours(parent, S_IRWXG | S_IRWXO);
	if (parent < 0)
		return xdg && xdg[0] == '/' ? -errno : -ENOENT;
	int error = *ret_fit ? open_in(parent, "spillway", make, ret_folder) : -EPERM;
	close(parent);
	return error;
}

static int open_tmp(const char *tmp, bool make, struct user_dir *ret_folder)
{
	char name[sizeof(ret_folder->name)];
	int parent = open(tmp, FOLDER_FLAGS);

	if (parent < 0)
		return -errno;
	snprintf(name, sizeof(name), "spillway-%u", (unsigned)geteuid());
	int error = open_in(parent, name, make, ret_folder);
	close(parent);
	return error;
}

static int make_folder(const char *fallback, struct user_dir *ret_folder)
{
	bool fit;
	int error = open_xdg(secure_getenv("XDG_RUNTIME_DIR"), true, &fit, ret_folder);

	return error == 0 || (fit && error == -EPERM) ? error : open_tmp(fallback, true, ret_folder);
}

int user_dir_make(struct user_dir *ret_folder)
{
	return make_folder(user_dir_fallback, ret_folder);
}

int user_dir_make_mapped(struct user_dir *ret_folder)
{
	int error = make_folder(user_dir_memory, ret_folder);

	return error == 0 || error == -EPERM ? error : make_folder(user_dir_fallback, ret_folder);
}

int user_dir_open_xdg(const char *xdg, struct user_dir *ret_folder)
{
	bool fit;

	return open_xdg(xdg, false, &fit, ret_folder);
}

int user_dir_open_tmp(const char *tmp, struct user_dir *ret_folder)
{
	return open_tmp(tmp, false, ret_folder);
}

/* Returns XDG_RUNTIME_DIR, or what it usually is. */
static const char *run_folder(char room[RUN_LENGTH])
{
	const char *xdg = secure_getenv("XDG_RUNTIME_DIR");

	snprintf(room, RUN_LENGTH, "%s/%u", user_dir_run, (unsigned)geteuid());
	return xdg ? xdg : room;
}

int user_dir_open_place(enum user_dir_place place, struct user_dir *ret_folder)
{
	char room[RUN_LENGTH];

	if (place == USER_DIR_XDG)
		return user_dir_open_xdg(run_folder(room), ret_folder);
	return user_dir_open_tmp(place == USER_DIR_MEMORY ? user_dir_memory : user_dir_fallback, ret_folder);
}

bool user_dir_name_place(enum user_dir_place place, char *room, size_t bytes)
{
	char run[RUN_LENGTH];

	if (place == USER_DIR_XDG)
		return (size_t)snprintf(room, bytes, "%s/spillway", run_folder(run)) < bytes;
	return (size_t)snprintf(room, bytes, "%s/spillway-%u",
				place == USER_DIR_MEMORY ? user_dir_memory : user_dir_fallback,
				(unsigned)geteuid()) < bytes;
}

bool user_dir_path_of(const struct user_dir *folder, const char *name, char *room, size_t bytes)
{
	char link[32];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", folder->fd);
	ssize_t n = readlink(link, room, bytes);
	return n > 0 && (size_t)n < bytes &&
	       (size_t)snprintf(room + n, bytes - (size_t)n, "/%s", name) < bytes - (size_t)n;
}

bool user_dir_leads_to(int folder, const char *name, dev_t device, ino_t inode)
{
	struct stat status;

	return fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && status.st_dev == device &&
	       status.st_ino == inode;
}

void user_dir_remove_own(const char *name, dev_t device, ino_t inode)
{
	struct user_dir folder;

	for (unsigned place = 0; place < USER_DIR_PLACES; place++) {
		if (user_dir_open_place(place, &folder) != 0)
			continue;
		bool here = user_dir_leads_to(folder.fd, name, device, inode);
		if (here)
			unlinkat(folder.fd, name, 0);
		user_dir_close(&folder, here);
	}
}

bool user_dir_is_first_loss(void)
{
	return !atomic_flag_test_and_set(&base_state.user_dir_loss);
}

void user_dir_close(struct user_dir *folder, bool remove_if_empty)
{
	int parent = remove_if_empty ? openat(folder->fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;

	if (parent >= 0) {
		unlinkat(parent, folder->name, AT_REMOVEDIR);
		close(parent);
	}
	close(folder->fd);
	folder->fd = -1;
}

/* The kernel reaches the folder by its descriptor; only the last part is looked up by name. */
static bool address_of(const struct user_dir *folder, const char *name, struct sockaddr_un *ret_address)
{
	const size_t room = sizeof(ret_address->sun_path);

	*ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
	return (size_t)snprintf(ret_address->sun_path, room, "/proc/self/fd/%d/%s", folder->fd, name) < room;
}

int user_dir_listen(const struct user_dir *folder, const char *name, int backlog)
{
	struct sockaddr_un address;

	if (!address_of(folder, name, &address))
		return -ENAMETOOLONG;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/* bind() gives the name the mode of the descriptor, so the name never has wider access, whatever the umask. */
	if (fchmod(fd, S_IRUSR | S_IWUSR) == 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0) {
		if (listen(fd, backlog) == 0)
			return fd;
		unlinkat(folder->fd, name, 0);
	}
	int error = -errno;
	close(fd);
	return error;
}

int user_dir_connect(const struct user_dir *folder, const char *name, unsigned wait_ms)
{
	const struct timeval wait = {.tv_sec = wait_ms / 1000, .tv_usec = wait_ms % 1000 * 1000};
	struct sockaddr_un address;

	if (!address_of(folder, name, &address))
		return -ENAMETOOLONG;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | (wait_ms ? 0 : SOCK_NONBLOCK), 0);
	if (fd < 0)
		return -errno;
	if (wait_ms)
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	int error = -errno;
	close(fd);
	return error;
}

static bool ends_so(const char *name, const char *tail)
{
	const size_t length = strlen(name), tail_length = strlen(tail);

	return name[0] != '.' && length > tail_length && !strcmp(name + length - tail_length, tail);
}

void user_dir_each_file(const struct user_dir *folder, const char *tail, unsigned most, user_dir_visit *visit,
			void *argument)
{
	/*
	 * Not readdir(), which allocates memory: at its first allocation the C library gives a thread a separate
	 * arena.
	 */
	char buffer[1024] __attribute__((aligned(__alignof__(struct dirent64))));
	ssize_t bytes;

	lseek(folder->fd, 0, SEEK_SET);
	while ((bytes = syscall(SYS_getdents64, folder->fd, buffer, sizeof(buffer))) > 0) {
		for (ssize_t at = 0; at < bytes;) {
			const struct dirent64 *entry = (const struct dirent64 *)(const void *)(buffer + at);

			at += entry->d_reclen;
			if (tail ? !ends_so(entry->d_name, tail) : entry->d_name[0] < '0' || entry->d_name[0] > '9')
				continue;
			if (most-- == 0)
				return;
			visit(folder, entry->d_name, argument);
		}
	}
}

/* Returns /proc/PID/stat from the third field on, or NULL if the process does not exist or is hidden. */
static const char *read_stat(pid_t pid, char *room, size_t bytes)
{
	snprintf(room, bytes, "/proc/%d/stat", (int)pid);
	int fd = open(room, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, room, bytes - 1) : -1;
	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return NULL;
	room[n] = 0;
	/* The second field is a name, which may contain blanks and parentheses. */
	const char *at = strrchr(room, ')');
	return at && at[1] == ' ' ? at + 2 : NULL;
}

static uint64_t stat_field(const char *third, int field)
{
	for (int i = 3; third && i < field; i++) {
		third = strchr(third, ' ');
		third += third != NULL;
	}
	return third ? strtoull(third, NULL, 10) : 0;
}

uint64_t user_dir_process_started(pid_t pid)
{
	char text[1024];

	return stat_field(read_stat(pid, text, sizeof(text)), 22);
}

/* Does not use kill(), so that no error here can end a process. */
static bool is_no_pid(pid_t pid)
{
	return getpgid(pid) < 0 && errno == ESRCH;
}

bool user_dir_process_is_gone(pid_t pid, uint64_t started)
{
	char text[1024];

	if (is_no_pid(pid))
		return true;
	const char *stat = read_stat(pid, text, sizeof(text));
	if (!stat) /* hidden, or it has just ended */
		return is_no_pid(pid);
	/* If the first thread has ended, the process shows as a zombie while other threads run. */
	return stat_field(stat, 22) != started || ((*stat == 'Z' || *stat == 'X') && stat_field(stat, 20) <= 1);
}

void user_dir_hold(int fd)
{
	struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	fcntl(fd, F_OFD_SETLK, &all);
}

bool user_dir_is_held(int fd)
{
	struct flock all = {.l_type = F_RDLCK, .l_whence = SEEK_SET};

	return fcntl(fd, F_OFD_GETLK, &all) == 0 && all.l_type != F_UNLCK;
}

static bool is_held(const struct user_dir *folder, const char *name)
{
	int fd = openat(folder->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	bool held = fd >= 0 && user_dir_is_held(fd);

	if (fd >= 0)
		close(fd);
	return held;
}

void user_dir_remove_left(const struct user_dir *folder, const char *name)
{
	if (!is_held(folder, name))
		unlinkat(folder->fd, name, 0);
}

struct sweep {
	unsigned n_left; /* files whose process has ended */
	time_t before;   /* files last written up to this time are removed */
};

static void sweep_file(const struct user_dir *folder, const char *name, void *argument)
{
	struct sweep *sweep = argument;
	struct stat status;
	char *rest;
	pid_t pid = (pid_t)strtol(name, &rest, 10);

	if (pid <= 0 || *rest != '-' || user_dir_process_started(pid) == strtoull(rest + 1, NULL, 10) ||
	    fstatat(folder->fd, name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode) ||
	    is_held(folder, name))
		return;
	sweep->n_left++;
	if (status.st_mtime <= sweep->before)
		unlinkat(folder->fd, name, 0);
}

void user_dir_sweep_files(const struct user_dir *folder, const char *tail)
{
	struct sweep sweep = {.before = time(NULL) - KEPT_SECONDS};

	user_dir_each_file(folder, tail, MOST_SWEPT, sweep_file, &sweep);
	if (sweep.n_left <= MOST_LEFT)
		return;
	sweep.before = time(NULL) - FRESH_SECONDS;
	user_dir_each_file(folder, tail, MOST_SWEPT, sweep_file, &sweep);
}

static bool is_old_socket(const struct user_dir *folder, const char *name)
{
	struct stat status;

	return fstatat(folder->fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(status.st_mode) &&
	       time(NULL) - status.st_mtime >= FRESH_SECONDS;
}

void user_dir_remove_stale(const struct user_dir *folder, const char *name)
{
	if (is_old_socket(folder, name))
		unlinkat(folder->fd, name, 0);
}

/* Fresh sockets, the caller's among them, are not even connected to. */
static void sweep_one(const struct user_dir *folder, const char *name, void *argument)
{
	(void)argument;
	if (!is_old_socket(folder, name))
		return;
	int fd = user_dir_connect(folder, name, 0);
	if (fd >= 0)
		close(fd);
	else if (fd == -ECONNREFUSED)
		unlinkat(folder->fd, name, 0);
}

void user_dir_sweep(const struct user_dir *folder, const char *tail)
{
	user_dir_each_file(folder, tail, MOST_SWEPT, sweep_one, NULL);
}

/* ---- a number of the process ---- */

/* The last step of splitmix64: a difference in any bit changes all bits. */
static uint64_t identity_mix(uint64_t value)
{
	value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
	return value ^ value >> 31;
}

/* The inode of the first time namespace, as the kernel has defined it. */
#define FIRST_TIME 0xEFFFFFFAu

static uint64_t space_of(pid_t pid)
{
	struct stat pids, times;
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
	if (stat(path, &pids) != 0)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/ns/time", (int)pid);
	uint64_t clock = stat(path, &times) == 0 && times.st_ino != FIRST_TIME ? (uint32_t)times.st_ino : 0;
	return clock << 32 | (uint32_t)pids.st_ino;
}

uint64_t identity_space(void)
{
	struct identity_state *const identity = &base_state.identity;
	int saved = errno;
	pid_t pid = getpid();

	if (atomic_load(&identity->space_owner) == pid)
		return atomic_load(&identity->space);
	uint64_t space = user_dir_process_started(pid) ? space_of(pid) : 0;
	if (space) {
		atomic_store(&identity->space, space);
		atomic_store(&identity->space_owner, pid);
	}
	errno = saved;
	return space;
}

static uint64_t identity_draw(void)
{
	uint64_t value;

	/*
	 * getrandom() has no data early at boot, and sandboxes refuse it: then mix values that differ between
	 * processes.
	 */
	if (getrandom(&value, sizeof(value), GRND_NONBLOCK) != (ssize_t)sizeof(value))
		value = identity_mix(
		    identity_space() ^
		    identity_mix((uint64_t)getpid() ^ identity_mix(clock_now() ^ identity_mix(clock_wall()))));
	return value ? value : 1;
}

/* The owner while a thread is about to write it, and how often another looks whether it has. */
enum { DRAWING = -1, PATIENCE = 1000 };

uint64_t identity_get(void)
{
	struct identity_state *const identity = &base_state.identity;
	int saved = errno;
	pid_t pid = getpid(), known = atomic_load(&identity->owner);

	/* If a fork came while another thread was drawing, no thread draws in the child: the wait is limited. */
	for (unsigned i = 0; known == DRAWING && i < PATIENCE; i++) {
		sched_yield();
		known = atomic_load(&identity->owner);
	}
	if (known != pid && atomic_compare_exchange_strong(&identity->owner, &known, DRAWING)) {
		atomic_store(&identity->number, identity_draw());
		atomic_store(&identity->owner, pid);
	}
	errno = saved;
	return known == pid || atomic_load(&identity->owner) == pid ? atomic_load(&identity->number) : identity_get();
}
