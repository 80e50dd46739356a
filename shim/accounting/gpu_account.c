/*
 * The account of one GPU. See gpu_account.h.
 *
 * The file is read and written by pread() and pwrite(), never mapped: truncating a mapped file ends the processes that
 * touch it. Byte 0 is locked by a process that changes what anybody may have, byte 1 + i by the process in slot i.
 */
#include "shim/accounting/gpu_account_page.h"
#include "shim/accounting/quota_slots.h"
#include "shim/base/user_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TRIES   3 /* the file may be removed by the last process that leaves */

static size_t slot_at(unsigned index)
{
	return offsetof(struct account_page, slot) + index * sizeof(struct account_slot);
}

static bool read_page(int fd, struct account_page *ret_page)
{
	return quota_file_read_at(fd, ret_page, sizeof(*ret_page), 0);
}

static bool write_member(const struct gpu_account *account, const struct gpu_account_member *member)
{
	struct account_slot slot = {.member = *member};

	return quota_file_write_at(account->fd, &slot, sizeof(slot), slot_at(account->slot));
}

/* Returns true if the descriptor is still that of the file, and the file still has its name and its length. */
static bool is_whole(const struct gpu_account *account)
{
	struct stat status;

	return fstat(account->fd, &status) == 0 && status.st_dev == account->device &&
	       status.st_ino == account->inode && status.st_nlink &&
	       status.st_size == (off_t)sizeof(struct account_page);
}

static bool is_alive(const struct gpu_account *account, unsigned slot)
{
	return slot == account->slot || quota_file_is_locked(account->fd, 1 + slot, 1);
}

/* Returns what all others may have. */
static uint64_t others_may_have(const struct gpu_account *account, const struct account_page *page)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < GPU_ACCOUNT_MOST; i++) {
		uint64_t may_have = page->slot[i].member.may_have;

		if (i != account->slot && page->slot[i].member.pid && is_alive(account, i))
			sum += may_have < QUOTA_MOST ? may_have : QUOTA_MOST;
	}
	return sum;
}

/* ---- joining ---- */

/* Makes the file ours if nobody uses it. The caller holds byte 0. */
static bool prepare(const struct gpu_account *account, uint64_t total)
{
	struct account_page page;
	struct stat status;

	if (fstat(account->fd, &status) != 0 || !quota_file_is_private(&status) || !status.st_nlink)
		return false;
	bool ours =
	    status.st_size == (off_t)sizeof(page) && read_page(account->fd, &page) && account_head_is_ours(&page.head);
	if (!ours && quota_file_is_locked(account->fd, 1, GPU_ACCOUNT_MOST))
		return false;
	if (!ours) {
		memset(&page, 0, sizeof(page));
		page.head = (struct account_head){
		    .bytes = sizeof(page), .version = GPU_ACCOUNT_VERSION, .magic = GPU_ACCOUNT_MAGIC};
	}
	page.head.total = total;
	return ours ? quota_file_write_at(account->fd, &page.head, sizeof(page.head), 0)
		    : ftruncate(account->fd, 0) == 0 && quota_file_write_at(account->fd, &page, sizeof(page), 0);
}

/* Takes the first slot whose process is gone. The caller holds byte 0. */
static bool take_slot(struct gpu_account *account, const struct gpu_account_member *member)
{
	for (account->slot = 0; account->slot < GPU_ACCOUNT_MOST; account->slot++)
		if (quota_file_try_lock(account->fd, 1 + account->slot))
			return write_member(account, member);
	return false;
}

static bool enter(struct gpu_account *account, const struct user_dir *folder, uint64_t total,
		  const struct gpu_account_member *member)
{
	struct stat status;

	account->fd = openat(folder->fd, account->name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
			     S_IRUSR | S_IWUSR);
	if (account->fd < 0)
		return false;
	bool locked = quota_file_try_lock(account->fd, 0);
	bool entered =
	    locked && prepare(account, total) && fstat(account->fd, &status) == 0 && take_slot(account, member);
	if (entered) {
		account->device = status.st_dev;
		account->inode = status.st_ino;
	}
	if (locked)
		quota_file_lock_byte(account->fd, 0, F_UNLCK);
	if (!entered)
		close(account->fd);
	return entered;
}

bool gpu_account_join(struct gpu_account *account, const unsigned char uuid[16], uint64_t total,
		      const struct gpu_account_member *member)
{
	int saved = errno, at = snprintf(account->name, sizeof(account->name), "gpu-");
	struct user_dir folder;

	for (unsigned i = 0; i < 16; i++)
		at += snprintf(account->name + at, sizeof(account->name) - (size_t)at, "%02x", uuid[i]);
	snprintf(account->name + at, sizeof(account->name) - (size_t)at, GPU_ACCOUNT_TAIL);
	for (unsigned i = 0; i < TRIES && !account->joined; i++) {
		if (user_dir_make_mapped(&folder) != 0)
			break;
		account->joined = enter(account, &folder, total, member);
		user_dir_close(&folder, false);
	}
	errno = saved;
	return account->joined;
}

/* ---- in the account ---- */

static void abandon(struct gpu_account *account)
{
	struct stat status;

	/* The program may have closed our descriptor, and reopened its number. */
	if (fstat(account->fd, &status) == 0 && status.st_dev == account->device && status.st_ino == account->inode)
		close(account->fd);
	account->joined = false;
}

bool gpu_account_look(struct gpu_account *account, const struct gpu_account_member *member,
		      struct gpu_account_view *ret_view)
{
	struct account_page page;
	int saved = errno;
	bool good = is_whole(account) && write_member(account, member) && read_page(account->fd, &page) &&
		    account_head_is_ours(&page.head);

	*ret_view = (struct gpu_account_view){.total = good ? page.head.total : 0};
	for (unsigned i = 0; good && i < GPU_ACCOUNT_MOST; i++) {
		if (!page.slot[i].member.pid || !is_alive(account, i))
			continue;
		if (i == account->slot)
			ret_view->self = ret_view->n;
		ret_view->members[ret_view->n++] = page.slot[i].member;
	}
	if (!good)
		abandon(account);
	errno = saved;
	return good;
}

uint64_t gpu_account_raise(struct gpu_account *account, uint64_t now, uint64_t wanted)
{
	struct account_page page;
	int saved = errno;
	uint64_t may_have = now;

	if (is_whole(account) && quota_file_try_lock(account->fd, 0)) {
		if (read_page(account->fd, &page) && account_head_is_ours(&page.head)) {
			uint64_t others = others_may_have(account, &page);
			uint64_t left = page.head.total > others ? page.head.total - others : 0;
			struct gpu_account_member member = page.slot[account->slot].member;

			member.may_have = wanted < left ? wanted : left;
			if (member.may_have > now && write_member(account, &member))
				may_have = member.may_have;
		}
		quota_file_lock_byte(account->fd, 0, F_UNLCK);
	}
	errno = saved;
	return may_have;
}

uint64_t gpu_account_begin(struct gpu_account *account, const unsigned char uuid[16], uint64_t total, uint64_t used,
			   uint64_t limit)
{
	struct gpu_account_member member = {.pid = (uint64_t)getpid(), .may_have = used, .holds = used, .needs = used};

	if (!account->joined && !gpu_account_join(account, uuid, total, &member))
		return used;
	return gpu_account_raise(account, used, limit);
}

void gpu_account_leave(struct gpu_account *account)
{
	struct account_page page;
	int saved = errno;

	if (account->joined && is_whole(account) && quota_file_try_lock(account->fd, 0)) {
		bool last = read_page(account->fd, &page);

		for (unsigned i = 0; i < GPU_ACCOUNT_MOST && last; i++)
			last = i == account->slot || !is_alive(account, i);
		if (last)
			user_dir_remove_own(account->name, account->device, account->inode);
		quota_file_lock_byte(account->fd, 0, F_UNLCK);
	}
	/* The lock of the slot stays with the descriptor until the process, and its device memory, have gone. */
	errno = saved;
}

void gpu_account_child(struct gpu_account *account)
{
	if (account->joined)
		abandon(account);
}
