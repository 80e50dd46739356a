// SPDX-License-Identifier: Apache-2.0
/*
 * The statistics page as a file. The page begins as static memory, where counting starts before anything is known of
 * the process. When the process first uses CUDA memory, a file of the same size is filled with the counts and mapped
 * over it, at the same address; so counting never has to look up the page. Counts by other threads between the copy
 * and the mapping are lost; this is before the first allocation, so it can only affect refusals or unknown names.
 *
 * The mapping keeps the file's lock (user_dir_hold()); no descriptor stays open for it.
 *
 * All blocks of the file are allocated before it is mapped: in a full file system a write would raise SIGBUS.
 */
#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/base/rank.h"
#include "shim/base/user_dir.h"
#include "shim/stats/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

size_t stats_read_words(char *room, size_t bytes)
{
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, room, bytes - 1) : 0;

	if (fd >= 0)
		close(fd);
	room[n > 0 ? n : 0] = 0;
	size_t first = strlen(room);
	for (ssize_t i = 0; i + 1 < n; i++)
		if (!room[i])
			room[i] = ' ';
	return first;
}

void stats_read_command(char *room, size_t bytes)
{
	stats_read_words(room, bytes);
	for (; *room; room++)
		if ((unsigned char)*room < 0x20)
			*room = '?';
}

static void say_who(const struct stats_about *about)
{
	stats.pid = (uint64_t)getpid();
	stats.started = user_dir_process_started(getpid());
	stats.identity = identity_get();
	stats.space = identity_space_pids(identity_space());
	stats.start_ns = clock_wall();
	stats.start_clock = clock_now();
	stats_read_command(stats.command, sizeof(stats.command));
	snprintf(stats.policy, sizeof(stats.policy), "%s", about->policy);
	snprintf(stats.policy_hash, sizeof(stats.policy_hash), "%s", about->policy_hash);
	snprintf(stats.mode, sizeof(stats.mode), "%s", about->mode);
	snprintf(stats.spillway, sizeof(stats.spillway), "%s", about->spillway);
	_Static_assert(sizeof(stats.job) == RANK_JOB_BYTES, "a job's name fits");
	snprintf(stats.rank, sizeof(stats.rank), "%s", rank_text() ? rank_text() : "");
	snprintf(stats.local_rank, sizeof(stats.local_rank), "%s", rank_local() ? rank_local() : "");
	rank_job(stats.job);
	for (unsigned i = 0; i < FAULT_COUNT; i++)
		atomic_store(&stats.fault[i], STATS_NA);
	for (unsigned device = 0; device < STATS_DEVICES; device++)
		for (unsigned i = 0; i < FAULT_COUNT; i++)
			atomic_store(&stats.device[device].fault[i], STATS_NA);
}

/*
 * Maps the file over the page. Past the thread sanitizer, which takes a mapping for a write to all of it: other threads
 * count meanwhile, in the old memory or in the new.
 */
static void *map_over_page(int fd)
{
#ifdef __SANITIZE_THREAD__
	return (void *)syscall(SYS_mmap, &stats, sizeof(stats), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
#else
	return mmap(&stats, sizeof(stats), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
#endif
}

/* Fills the file with the present figures. `from`: buffer for a copy. Returns 0 or a negative errno. */
static int fill_file(int fd, char *from)
{
	size_t bytes = sizeof(stats), done = 0;
	struct rlimit limit;

	/* Writing beyond the limit raises a signal that ends the program. */
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes)
		return -EFBIG;
	int error = posix_fallocate(fd, 0, (off_t)bytes);
	if (error)
		return -error;
	/* Word by word: other threads change them meanwhile. */
	for (size_t i = 0; i < bytes / sizeof(uint64_t); i++)
		((uint64_t *)from)[i] = __atomic_load_n(&((const uint64_t *)&stats)[i], __ATOMIC_RELAXED);
	while (done < bytes) {
		ssize_t n = pwrite(fd, from + done, bytes - done, (off_t)done);

		if (n < 0 && errno != EINTR)
			return -errno;
		done += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

/*
 * Fills the file with the present figures and maps it over the page. `from`: buffer for a copy. Returns 0 or a
 * negative errno.
 */
static int put_in_place(int fd, char *from)
{
	size_t bytes = sizeof(stats);

	/* Some C libraries ignore the alignment that the linker requested. */
	if ((uintptr_t)&stats % STATS_ALIGN || sysconf(_SC_PAGESIZE) > STATS_ALIGN)
		return -ENOTSUP;
	int error = fill_file(fd, from);
	if (error)
		return error;
	/* Maps the old file's memory at a second address; the first time there is no old file. */
	void *before = stats_file.is_there ? mremap(&stats, 0, bytes, MREMAP_MAYMOVE) : MAP_FAILED;
	void *at = map_over_page(fd);
	if (before != MAP_FAILED) {
		/*
		 * Adds what was counted in the old memory after it was copied. No thread counts there any more, since
		 * the new mapping applies to all threads. So no count is lost when a file is created again.
		 */
		const uint64_t *was = before, *copied = (const uint64_t *)from;
		uint64_t *now = (uint64_t *)&stats;

		for (size_t i = 0; at != MAP_FAILED && i < bytes / sizeof(*now); i++)
			if (was[i] != copied[i])
				__atomic_fetch_add(&now[i], was[i] - copied[i], __ATOMIC_RELAXED);
		munmap(before, bytes);
	}
	return at == MAP_FAILED ? -errno : 0;
}

/* distinct: another process may have the same id and time. */
static void name_file(char room[sizeof(stats_file.name)], bool distinct)
{
	char identity[IDENTITY_TEXT + 1] = "-";

	if (distinct)
		identity_text(stats.identity, identity + 1);
	snprintf(room, sizeof(stats_file.name), "%llu-%llu%s" STATS_TAIL, (unsigned long long)stats.pid,
		 (unsigned long long)stats.started, distinct ? identity : "");
}

static int open_new(const struct user_dir *folder, const char *name)
{
	return openat(folder->fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
}

static void know_place(int fd, const struct user_dir *folder)
{
	struct stat status;

	stats_file.path[0] = 0;
	if (fstat(fd, &status) != 0)
		return;
	stats_file.device = status.st_dev;
	stats_file.inode = status.st_ino;
	if (!user_dir_path_of(folder, stats_file.name, stats_file.path, sizeof(stats_file.path)))
		stats_file.path[0] = 0;
}

static int make_file(void)
{
	struct user_dir folder;
	int error = user_dir_make_mapped(&folder);

	if (error)
		return error;
	user_dir_sweep_files(&folder, STATS_TAIL);
	/*
	 * A file that is there is this process's own from before an exec(), or that of a process in another PID
	 * namespace, which is held and stays. Example: in two containers that share the folder, both processes are PID
	 * 1, started in the same tick.
	 */
	int fd = -1;
	for (unsigned tries = 0; tries < 3; tries++) {
		name_file(stats_file.name, tries == 2);
		fd = open_new(&folder, stats_file.name);
		if (fd >= 0 || errno != EEXIST)
			break;
		user_dir_remove_left(&folder, stats_file.name);
		errno = EEXIST;
	}
	if (fd < 0) {
		error = -errno;
	} else {
		user_dir_hold(fd);
		void *copy = mmap(NULL, sizeof(stats), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		error = copy == MAP_FAILED ? -errno : put_in_place(fd, copy);
		if (copy != MAP_FAILED)
			munmap(copy, sizeof(stats));
		/* Read-only, since truncating the file would end this process by SIGBUS. The mapping stays writable. */
		if (!error && fchmod(fd, S_IRUSR) != 0)
			error = -errno;
		if (error)
			unlinkat(folder.fd, stats_file.name, 0);
		else
			know_place(fd, &folder);
		close(fd);
	}
	stats_file.is_there = !error;
	stats_file.owner = getpid();
	user_dir_close(&folder, false);
	return error;
}

/* Returns advice for the message about an errno. */
static const char *way_out(int error)
{
	switch (error) {
	case EPERM:
		return "the folder for it (spillway in XDG_RUNTIME_DIR, or spillway-UID in /dev/shm) is a link, "
		       "another "
		       "user's or open to others; remove it";
	case EFBIG:
		return "raise the limit on the size of files (ulimit -f)";
	case ENOSPC:
	case EDQUOT:
		return "make room in XDG_RUNTIME_DIR, or without it in /dev/shm";
	default:
		return "set XDG_RUNTIME_DIR to a folder that is yours alone (mode 0700), in memory";
	}
}

/* The figures are still counted, but other processes cannot see them. */
static void say_unseen(int error)
{
	log_once("`spillway top` cannot see process %d: no file of %zu KiB for its figures: %s; %s", (int)getpid(),
		 sizeof(stats) / 1024, strerror(error), way_out(error));
}

void stats_open(const struct stats_about *about)
{
	const char *leave = secure_getenv("SPILLWAY_FIGURES");
	int saved = errno;

	say_who(about);
	/* Kept now: the program may change its environment, or its folder. */
	if (leave && *leave == '/' && strlen(leave) < sizeof(stats_file.leave))
		strcpy(stats_file.leave, leave);
	int error = make_file();
	if (error)
		say_unseen(-error);
	errno = saved;
}

void stats_know_device(int ordinal, const char *name, const unsigned char uuid[16], uint64_t total)
{
	if ((unsigned)ordinal >= STATS_DEVICES)
		return;
	struct stats_device *device = &stats.device[ordinal];

	snprintf(device->name, sizeof(device->name), "%s", name);
	memcpy(device->uuid, uuid, sizeof(device->uuid));
	atomic_store(&device->total, total);
	atomic_store_explicit(&device->known, 1, memory_order_release);
}

void stats_know_rule(int rule, const char *name)
{
	/* The first entry is "no rule", the last all further rules. */
	if (rule < -1 || rule + 1 >= STATS_RULES)
		return;
	snprintf(stats.rule[rule + 1].name, STATS_TEXT, "%s", rule + 2 == STATS_RULES ? "all further rules" : name);
}

void stats_know_link(int ordinal, int lender, enum stats_link_kind kind)
{
	if ((unsigned)ordinal < STATS_DEVICES && (unsigned)lender < STATS_DEVICES)
		atomic_store_explicit(&stats.device[ordinal].link[lender].kind, kind, memory_order_relaxed);
}

void stats_set_lent(int ordinal, uint64_t bytes)
{
	if ((unsigned)ordinal >= STATS_DEVICES)
		return;
	atomic_store_explicit(&stats.device[ordinal].lent, bytes, memory_order_relaxed);
	stats_raise(&stats.device[ordinal].most_lent, bytes);
}

void stats_set_cache(int ordinal, uint64_t bytes, uint64_t alive, uint64_t dead)
{
	if ((unsigned)ordinal >= STATS_DEVICES)
		return;
	atomic_store_explicit(&stats.device[ordinal].cache, bytes, memory_order_relaxed);
	atomic_store_explicit(&stats.device[ordinal].cache_alive, alive, memory_order_relaxed);
	atomic_store_explicit(&stats.device[ordinal].cache_dead, dead, memory_order_relaxed);
	stats_raise(&stats.device[ordinal].cache_most_alive, alive);
}

void stats_set_share(uint64_t total, uint64_t used, uint64_t ranks)
{
	atomic_store_explicit(&stats.share_total, total, memory_order_relaxed);
	atomic_store_explicit(&stats.share_used, used, memory_order_relaxed);
	atomic_store_explicit(&stats.share_ranks, ranks, memory_order_relaxed);
	stats_raise(&stats.share_most_used, used);
	stats_raise(&stats.share_most_ranks, ranks);
}

void stats_set_state(enum stats_process_state state)
{
	atomic_store(&stats.state, state);
}

void stats_set_mode(const char *mode)
{
	char text[sizeof(uint64_t)] = "";
	uint64_t word;

	_Static_assert(offsetof(struct stats_page, mode) % sizeof(word) == 0, "one store");
	snprintf(text, sizeof(text), "%s", mode);
	memcpy(&word, text, sizeof(word));
	__atomic_store_n((uint64_t *)(void *)stats.mode, word, __ATOMIC_RELAXED);
}

void stats_set_line(const char *line)
{
	for (unsigned i = 0; i < STATS_LINE - 1; i++) {
		__atomic_store_n(&stats.fault_source[i], *line, __ATOMIC_RELAXED);
		line += *line != 0;
	}
}

void stats_find_again(void)
{
	int saved = errno;

	if (!stats_file.is_there || stats_file.owner != getpid() || !stats_file.path[0] ||
	    user_dir_leads_to(AT_FDCWD, stats_file.path, stats_file.device, stats_file.inode))
		return;
	int error = make_file();
	if (error)
		say_unseen(-error);
	else if (user_dir_is_first_loss())
		log_line(USER_DIR_LOSS);
	errno = saved;
}

/*
 * Leaves the last figures for the process that asked for them (SPILLWAY_FIGURES, `spillway run --fit`), in a folder
 * that is as private as the user's own. Fails silently: it is that process's to say that it got none.
 */
static void leave_figures(void)
{
	struct user_dir folder;
	char name[sizeof(stats_file.name)];

	if (!*stats_file.leave || stats.pid != (uint64_t)getpid() || user_dir_open_xdg(stats_file.leave, &folder) != 0)
		return;
	name_file(name, false);
	int fd = open_new(&folder, name);
	void *copy = mmap(NULL, sizeof(stats), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (fd >= 0 && (copy == MAP_FAILED || fill_file(fd, copy) != 0))
		unlinkat(folder.fd, name, 0);
	if (copy != MAP_FAILED)
		munmap(copy, sizeof(stats));
	if (fd >= 0)
		close(fd);
	user_dir_close(&folder, false);
}

void stats_close(void)
{
	atomic_store(&stats.state, STATS_ENDED);
	atomic_store(&stats.end_clock, clock_now());
	if (stats_file.is_there && stats_file.owner == getpid())
		user_dir_remove_own(stats_file.name, stats_file.device, stats_file.inode);
	leave_figures();
	stats_file.is_there = false;
}

void stats_child(void)
{
	if (!stats_file.is_there)
		return;
	/* A child of a fork may do little, so only map new memory. Its counts start at 0 and are in no file. */
	stats_file.is_there = false;
	mmap(&stats, sizeof(stats), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0);
}
