/* The accounts of all GPUs, for jobs on several of them. See gpu_account.h. */
#include "shim/accounting/gpu_account_slot.h"
#include "shim/accounting/quota_slots.h"
#include "shim/base/clock.h"
#include "shim/base/rank.h"
#include "shim/base/user_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- files ---- */

static int open_account(const struct user_dir *folder, const char *name, struct stat *ret_status)
{
	int fd = account_open_used(folder, name, ret_status);

	if (fd < 0 || ret_status->st_size == (off_t)sizeof(struct account_page))
		return fd;
	close(fd);
	return -1;
}

/* Visits the files of all accounts, in all places where they may lie. */
static void each_file(user_dir_visit *visit, void *argument)
{
	struct user_dir folder;

	for (unsigned place = 0; place < USER_DIR_PLACES; place++) {
		if (user_dir_open_place(place, &folder) != 0)
			continue;
		user_dir_each_file(&folder, GPU_ACCOUNT_TAIL, GPU_ACCOUNT_FILES, visit, argument);
		user_dir_close(&folder, false);
	}
}

/*
 * Visits each slot of an account that has a process, dead or alive. Stops where visit() returns false. ret_head (may be
 * NULL): its head. Returns false if the account is not ours, or cannot be read.
 */
typedef bool visit_slot(unsigned slot, bool alive, const struct gpu_account_member *member, void *argument);

static bool each_slot(int fd, struct account_head *ret_head, visit_slot *visit, void *argument)
{
	struct account_slot slots[ACCOUNT_SLOTS_READ];
	struct account_head head;
	uint64_t now = clock_now();

	if (!quota_file_read_at(fd, &head, sizeof(head), 0) || !account_head_is_ours(&head))
		return false;
	if (ret_head)
		*ret_head = head;
	for (unsigned i = 0; i < GPU_ACCOUNT_MOST; i++) {
		const struct gpu_account_member *member = &slots[i % ACCOUNT_SLOTS_READ].member;

		if (i % ACCOUNT_SLOTS_READ == 0 && !quota_file_read_at(fd, slots, sizeof(slots), account_slot_at(i)))
			return false;
		if (member->pid &&
		    !visit(i, account_slot_state(fd, i, member, now) == ACCOUNT_SLOT_LIVES, member, argument))
			return true;
	}
	return true;
}

/* ---- the seats of all ---- */

struct found {
	char name[sizeof(((struct gpu_account *)0)->name)];
	int fd;
	dev_t device;
	ino_t inode;
};

struct accounts {
	unsigned n;
	struct found at[GPU_JOB_DEVICES];
};

static bool has_name(const struct accounts *accounts, const char *name)
{
	for (unsigned i = 0; i < accounts->n; i++)
		if (!strcmp(accounts->at[i].name, name))
			return true;
	return false;
}

/* Files are found in any order; they are to be in one that is the same for all, whichever of them are left out. */
static void add_file(const struct user_dir *folder, const char *name, void *argument)
{
	struct accounts *accounts = argument;
	struct found found;
	struct stat status;
	unsigned i = accounts->n;

	if (strlen(name) >= sizeof(found.name) || has_name(accounts, name) ||
	    (i == GPU_JOB_DEVICES && strcmp(accounts->at[GPU_JOB_DEVICES - 1].name, name) < 0))
		return;
	found.fd = open_account(folder, name, &status);
	if (found.fd < 0)
		return;
	snprintf(found.name, sizeof(found.name), "%s", name);
	found.device = status.st_dev;
	found.inode = status.st_ino;
	if (i == GPU_JOB_DEVICES)
		close(accounts->at[i = --accounts->n].fd);
	for (; i && strcmp(accounts->at[i - 1].name, name) > 0; i--)
		accounts->at[i] = accounts->at[i - 1];
	accounts->at[i] = found;
	accounts->n++;
}

static bool takes_part(const struct gpu_account_member *member, uint64_t now)
{
	struct gpu_turn_member one = {
	    .needs = member->needs, .may_have = member->may_have, .stuck = member->stuck, .claim = member->claim};
	struct gpu_turn_view view = {.now = now, .members = &one, .n = 1, .holder = GPU_TURN_NOBODY};

	return gpu_turn_takes_part(&view, 0);
}

/* Returns the slot that has the turn: that of a living process, or of one of the job of a dead one. */
static uint32_t holder_of(const struct gpu_job_view *view, uint32_t first, const struct gpu_job_claim *dead,
			  uint32_t holder)
{
	for (uint32_t i = first; i < view->n; i++)
		if (view->seats[i].slot == holder)
			return holder;
	for (uint32_t i = first; i < view->n; i++)
		if (gpu_job_share(dead, &view->seats[i].claim))
			return view->seats[i].slot;
	return GPU_TURN_NOBODY;
}

struct seats {
	struct gpu_job_view *view;
	uint32_t device;
	const struct account_head *head;
	struct gpu_job_claim dead; /* of the process that has the turn, and has died */
};

static bool add_seat(unsigned slot, bool alive, const struct gpu_account_member *member, void *argument)
{
	struct seats *seats = argument;
	struct gpu_job_view *view = seats->view;

	if (!alive && seats->head->turn.holder == slot + 1)
		seats->dead = member->job;
	if (alive && view->n < GPU_JOB_SEATS)
		view->seats[view->n++] = (struct gpu_job_seat){
		    .device = seats->device,
		    .slot = slot,
		    .takes_part = takes_part(member, view->now),
		    .idle = member->claim.idle,
		    .claim = member->job,
		};
	return true;
}

static void add_account(int fd, uint32_t device, struct gpu_job_view *view)
{
	struct account_head head;
	struct seats seats = {.view = view, .device = device, .head = &head};
	uint32_t first = view->n;

	if (!each_slot(fd, &head, add_seat, &seats))
		return;
	view->turns[device] = (struct gpu_job_turn){
	    .on = head.turn.on,
	    .number = head.turn.number,
	    .holder = holder_of(view, first, &seats.dead,
				head.turn.holder ? (uint32_t)head.turn.holder - 1 : GPU_TURN_NOBODY),
	};
}

bool gpu_account_all(const struct gpu_account *account, uint64_t now, struct gpu_job_view *ret_view)
{
	int saved = errno;
	struct accounts accounts = {.n = 0};
	bool is_found = false;

	ret_view->now = now;
	ret_view->n = 0;
	memset(ret_view->turns, 0, sizeof(ret_view->turns));
	each_file(add_file, &accounts);
	for (unsigned i = 0; i < accounts.n; i++) {
		const struct found *found = &accounts.at[i];

		add_account(found->fd, i, ret_view);
		close(found->fd);
		bool own = found->device == account->device && found->inode == account->inode;
		for (uint32_t j = 0; own && j < ret_view->n; j++)
			if (ret_view->seats[j].device == i && ret_view->seats[j].slot == account->slot) {
				ret_view->self = j;
				is_found = true;
			}
	}
	errno = saved;
	return is_found;
}

/* ---- looking for a process ---- */

struct job_search {
	uint64_t name;
	bool found;
};

static bool is_of_job(unsigned slot, bool alive, const struct gpu_account_member *member, void *argument)
{
	struct job_search *search = argument;

	(void)slot;
	search->found = alive && member->job.name == search->name;
	return !search->found;
}

static void look_for_job(const struct user_dir *folder, const char *name, void *argument)
{
	struct job_search *search = argument;
	struct stat status;
	int fd = search->found ? -1 : open_account(folder, name, &status);

	if (fd < 0)
		return;
	each_slot(fd, NULL, is_of_job, search);
	close(fd);
}

bool gpu_account_has_job(uint64_t name)
{
	struct job_search search = {.name = name};
	int saved = errno;

	if (name)
		each_file(look_for_job, &search);
	errno = saved;
	return search.found;
}
