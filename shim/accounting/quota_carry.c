/*
 * quota_carry.c: carries over the contents of a shared file that was removed into the one that takes its place. A
 * removed file is found by the descriptors of this user's processes in /proc.
 */
#include "shim/accounting/quota_slots.h"
#include "shim/base/clock.h"
#include "shim/base/libc.h"
#include "shim/base/user_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define UNKNOWN_NS  3000000000 /* for a file that was truncated, and removed before its processes came back */
#define MOST_PIDS   4096       /* processes of the user that are searched for a removed file */
#define MOST_FDS    4096       /* descriptors searched of each */
#define PATH_LENGTH 300

/* ---- slots of a removed file ---- */

struct carry {
	const struct quota_seat *into;
	int error;
	unsigned n;
};

/* The slot is there already: of two old files the later one says more, or the earlier one too much for a moment. */
static int raise_used(const struct quota_seat *into, unsigned index, uint64_t used)
{
	struct quota_slot slot;

	/* If its process has come to it, the process knows best. */
	if (!quota_file_read_slots(into, index, 1, &slot) || !slot.carried_until || slot.used >= used)
		return 0;
	return quota_file_write_at(into->fd, &used, sizeof(used),
				   quota_slot_at(index) + offsetof(struct quota_slot, used))
		   ? 0
		   : -EIO;
}

/* Carries a slot of the old file into the new one. */
static bool carry_slot(const struct quota_seat *from, unsigned index, const struct quota_slot *slot, void *argument)
{
	struct carry *carry = argument;
	struct quota_finder finder = {.ticket = slot->ticket};
	struct quota_slot next;

	/* We bring our own slot ourselves. */
	if (slot->ticket == carry->into->ticket || quota_slot_is_gone(from, index, slot))
		return true;
	/* A claim that is read before the bytes used may be counted twice, but is never missed (quota.c). */
	uint64_t claim = slot->claim;
	quota_file_fence();
	if (!quota_file_read_at(from->fd, &next, sizeof(next), quota_slot_at(index)))
		return true;
	uint64_t used = next.used, sum = claim <= QUOTA_MOST && used <= QUOTA_MOST - claim ? used + claim : QUOTA_MOST;
	if (quota_file_find_ticket(carry->into, &finder)) {
		carry->error = raise_used(carry->into, finder.index, sum);
		return !carry->error;
	}
	unsigned at = quota_file_find_free(carry->into, false);

	next.used = sum;
	next.claim = 0;
	next.spare = 0;
	next.wanted_until = 0;
	/* Its memory is kept by a child, which has the lock in the old file alone, and does not come. */
	if (quota_slot_has_ended(from, slot))
		next.space = 0;
	/* Processes without a ticket cannot be told apart: one slot stands for all of them until they have come. */
	next.carried_until = clock_now() + (next.ticket ? QUOTA_CARRIED_NS : UNKNOWN_NS);
	next.stamp = quota_file_next_stamp(carry->into);
	carry->error = at == QUOTA_SLOTS ? -ENOSPC : quota_file_put_slot(carry->into, at, &next);
	carry->n += !carry->error;
	return !carry->error;
}

/* The file was truncated before it was removed. A process that holds a lock there comes back within a second. */
static int carry_unknown(const struct quota_seat *from, const struct quota_seat *into)
{
	struct quota_slot slot = {.used = QUOTA_MOST, .carried_until = clock_now() + UNKNOWN_NS};
	struct quota_finder finder = {0};

	if (!quota_file_is_locked(from->fd, 1, QUOTA_SLOTS) || quota_file_find_ticket(into, &finder))
		return 0;
	unsigned at = quota_file_find_free(into, false);
	slot.stamp = quota_file_next_stamp(into);
	return at == QUOTA_SLOTS ? -ENOSPC : quota_file_put_slot(into, at, &slot);
}

/*
 * Once `moved` is set, nothing is taken in the old file: a process that takes publishes its claim, and then checks
 * `moved`. So whatever it took before that is visible here, as bytes used or as a claim. Stamps of the dead go with
 * the file.
 */
int quota_carry_over(const struct quota_seat *from, const struct quota_seat *into, const struct quota_terms *terms,
		     bool first)
{
	struct carry carry = {.into = into};
	const uint64_t moved = 1;
	struct quota_head head;

	/* Of a file that was cut behind its head, slots are missing. */
	if (!quota_file_read_head(from, &head) || !quota_head_is_ours(&head) || head.total > QUOTA_MOST)
		return carry_unknown(from, into);
	if (!quota_file_write_at(from->fd, &moved, sizeof(moved), QUOTA_HEAD(moved)))
		return -EIO;
	quota_file_fence();
	quota_file_each_slot(from, carry_slot, &carry);
	/* It is the same budget as before. */
	if (!carry.error && first && (carry.n || from->index < QUOTA_SLOTS) && (head.given || !terms->given)) {
		const uint64_t total[2] = {head.total, head.given};

		if (!quota_file_write_at(into->fd, total, sizeof(total), QUOTA_HEAD(total)))
			return -EIO;
	}
	return carry.error;
}

/* ---- processes that still have a removed file open ---- */

/* Visits each entry of an open folder of /proc whose name is a number. Takes no memory, see user_dir.c. */
typedef void number_visit(int folder, const char *name, void *argument);

static void each_number(int folder, unsigned most, number_visit *visit, void *argument)
{
	char buffer[1024] __attribute__((aligned(__alignof__(struct dirent64))));
	ssize_t bytes;

	while ((bytes = libc_getdents64(folder, buffer, sizeof(buffer))) > 0)
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
	const char *name; /* of the file */
	quota_removed_visit *visit;
	void *argument;
	unsigned pids; /* of this user, still to be searched */
};

/* Returns true if it is the path of our file in one of its places, and that file was removed. */
static bool is_removed(const char *path, const char *name)
{
	char place[PATH_LENGTH];

	for (unsigned i = 0; i < USER_DIR_PLACES; i++) {
		if (!user_dir_name_place(i, place, sizeof(place)))
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
	const struct search *search = argument;
	char path[PATH_LENGTH];
	struct stat status;
	ssize_t n = readlinkat(folder, name, path, sizeof(path));

	if (n <= 0 || (size_t)n >= sizeof(path))
		return;
	path[n] = 0;
	if (!is_removed(path, search->name))
		return;
	int fd = openat(folder, name, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return;
	if (fstat(fd, &status) == 0 && quota_file_is_private(&status) && !status.st_nlink)
		search->visit(fd, &status, search->argument);
	close(fd);
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

void quota_each_removed(const char *name, quota_removed_visit *visit, void *argument)
{
	struct search search = {.name = name, .visit = visit, .argument = argument, .pids = MOST_PIDS};
	int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (proc < 0)
		return;
	each_number(proc, UINT32_MAX, look_at_process, &search);
	close(proc);
}

struct removed {
	const struct quota_seat *into;
	const struct quota_terms *terms;
	int error;
};

static void carry_one(int fd, const struct stat *status, void *argument)
{
	struct removed *removed = argument;
	const struct quota_seat from = {.index = QUOTA_SLOTS,
					.space = removed->into->space,
					.fd = fd,
					.device = status->st_dev,
					.inode = status->st_ino};

	if (!removed->error)
		removed->error = quota_carry_over(&from, removed->into, removed->terms, true);
}

int quota_carry_removed(const struct quota_seat *into, const struct quota_terms *terms)
{
	struct removed removed = {.into = into, .terms = terms};

	quota_each_removed(into->name, carry_one, &removed);
	return removed.error;
}
