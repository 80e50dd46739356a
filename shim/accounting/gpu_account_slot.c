/*
 * Whose a slot is. See gpu_account_slot.h. The lock of a slot says, as quota_file_counts() does, whether the memory of
 * its process is there, and the pid whether the process is.
 */
#include "shim/accounting/gpu_account_slot.h"
#include "shim/accounting/quota_slots.h"
#include "shim/base/clock.h"
#include "shim/base/identity.h"
#include "shim/base/user_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* ns: who lives publishes something every 100 ms, unless it is stopped or waits for its mover. */
#define QUIET_NS UINT64_C(150000000)

/* Returns whether the process has published nothing lately. now: CLOCK_MONOTONIC, ns. */
static bool account_is_quiet(const struct gpu_account_member *member, uint64_t now)
{
	return now > member->claim.beat && now - member->claim.beat >= QUIET_NS;
}

/* Returns whether the process is known to have ended, whatever its lock says. space: the caller's PID namespace. */
static bool account_has_ended(const struct gpu_account_member *member, uint64_t space)
{
	return member->started && member->space && member->space == space && member->pid <= INT32_MAX &&
	       user_dir_process_is_gone((pid_t)member->pid, member->started);
}

enum account_slot_state account_slot_state(int fd, unsigned slot, const struct gpu_account_member *member, uint64_t now)
{
	const struct quota_owner owner = {.pid = member->pid, .started = member->started, .space = member->space};

	if (!member->pid || !quota_file_counts(fd, slot, &owner, identity_space()))
		return ACCOUNT_SLOT_FREE;
	return account_is_quiet(member, now) && account_has_ended(member, identity_space()) ? ACCOUNT_SLOT_ENDED
											    : ACCOUNT_SLOT_LIVES;
}

bool account_has_clock(const struct gpu_account_member *member, uint64_t clock)
{
	return !member->space || identity_space_clock(member->space) == clock;
}

uint64_t account_clock(const struct gpu_account_member *members, unsigned n)
{
	uint64_t clock = 0;
	unsigned most = 0;

	for (unsigned i = 0; i < n && most <= n / 2; i++) {
		uint64_t its = identity_space_clock(members[i].space);
		unsigned same = 0;

		for (unsigned j = i; members[i].space && j < n; j++)
			same += members[j].space && account_has_clock(&members[j], its);
		if (same > most) {
			most = same;
			clock = its;
		}
	}
	return clock;
}

void account_leave_out_clocks(struct gpu_account_view *view)
{
	uint64_t clock = account_clock(view->members, view->n);

	for (unsigned i = 0; i < view->n; i++)
		if (!account_has_clock(&view->members[i], clock))
			view->members[i].claim.kind = GPU_TURN_OFF;
	view->other_clock = view->self < view->n && !account_has_clock(&view->members[view->self], clock);
}

bool account_same_process(const struct gpu_account_member *a, const struct gpu_account_member *b)
{
	return a->pid == b->pid && a->started == b->started && a->space == b->space;
}

static void carry_slot(int into, const struct account_slot *slot, uint64_t now)
{
	struct account_slot there;
	unsigned at = GPU_ACCOUNT_MOST;

	for (unsigned i = 0; i < GPU_ACCOUNT_MOST; i++) {
		if (!quota_file_read_at(into, &there, sizeof(there), account_slot_at(i)))
			return;
		bool used = account_slot_state(into, i, &there.member, now) != ACCOUNT_SLOT_FREE;
		if (used && account_same_process(&there.member, &slot->member))
			return;
		if (!used && at == GPU_ACCOUNT_MOST)
			at = i;
	}
	if (at < GPU_ACCOUNT_MOST)
		quota_file_write_at(into, slot, sizeof(*slot), account_slot_at(at));
}

bool account_carry_over(int from, int into)
{
	struct account_slot slot;
	uint64_t now = clock_now();
	bool any = false;

	for (unsigned i = 0; i < GPU_ACCOUNT_MOST; i++) {
		if (!quota_file_read_at(from, &slot, sizeof(slot), account_slot_at(i)))
			return any;
		if (account_slot_state(from, i, &slot.member, now) == ACCOUNT_SLOT_FREE)
			continue;
		any = true;
		carry_slot(into, &slot, now);
	}
	return any;
}

bool account_is_used(int fd)
{
	struct account_slot slots[ACCOUNT_SLOTS_READ];
	uint64_t now = clock_now();

	if (quota_file_is_locked(fd, 1, GPU_ACCOUNT_MOST))
		return true;
	for (unsigned i = 0; i < GPU_ACCOUNT_MOST; i++) {
		if (i % ACCOUNT_SLOTS_READ == 0 && !quota_file_read_at(fd, slots, sizeof(slots), account_slot_at(i)))
			return false;
		if (account_slot_state(fd, i, &slots[i % ACCOUNT_SLOTS_READ].member, now) != ACCOUNT_SLOT_FREE)
			return true;
	}
	return false;
}

const char *account_why_not(int fd, int error)
{
	struct account_head head = {0};
	struct stat status;

	if (error == ENOSPC || error == EDQUOT)
		return "there is no room for its file";
	if (fd < 0)
		return error == ENOENT || error == EMFILE || error == ENFILE ? NULL : "its file cannot be made";
	if (fstat(fd, &status) != 0 || !status.st_nlink)
		return NULL;
	if (!quota_file_is_private(&status))
		return "its file is not this user's alone";
	if (!quota_file_may_have(sizeof(struct account_page)))
		return "`ulimit -f` is too small for its file";
	quota_file_read_at(fd, &head, sizeof(head), 0);
	bool other = head.magic == GPU_ACCOUNT_MAGIC &&
		     (head.version != GPU_ACCOUNT_VERSION || head.bytes != sizeof(struct account_page));
	return other && quota_file_is_locked(fd, 1, GPU_ACCOUNT_MOST) ? "another version of Spillway uses it" : NULL;
}

int account_open_used(const struct user_dir *folder, const char *name, struct stat *ret_status)
{
	int fd = openat(folder->fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0 || (fstat(fd, ret_status) == 0 && quota_file_is_private(ret_status) && account_is_used(fd)))
		return fd;
	close(fd);
	return -1;
}

static bool is_used(const struct user_dir *folder, const void *name)
{
	struct stat status;
	int fd = account_open_used(folder, name, &status);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

int account_open_folder(const char *name, struct user_dir *ret_folder)
{
	return quota_file_open_folder(is_used, name, ret_folder);
}
