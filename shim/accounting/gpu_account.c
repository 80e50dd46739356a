// SPDX-License-Identifier: Apache-2.0
/* The account of one GPU, and those of all, for jobs on several of them. See gpu_account.h. */
#include "shim/accounting/gpu_account.h"
#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/base/user_dir.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ns: who lives publishes something every 100 ms, unless it is stopped or waits for its mover. */
#define QUIET_NS UINT64_C(150000000)

static bool drop_turn_of_slot(const struct shared_file *file, unsigned slot);

static const struct shared_kind kind = {
    .magic = GPU_ACCOUNT_MAGIC,
    .version = GPU_ACCOUNT_VERSION,
    .slots = GPU_ACCOUNT_MOST,
    .head_bytes = sizeof(struct account_head),
    .slot_bytes = sizeof(struct gpu_account_member),
    .lock = GPU_ACCOUNT_LOCK,
    .clear = drop_turn_of_slot,
};
_Static_assert(sizeof(struct gpu_account_member) <= SHARED_SLOT && sizeof(struct gpu_account_member) % 64 == 0,
	       "a slot has room, and ends with a cache line");
_Static_assert(GPU_ACCOUNT_MOST % SHARED_READ == 0, "the last read has as many slots as the others");

/* ---- reading slots ---- */

enum slot_state {
	SLOT_FREE,
	SLOT_LIVES, /* or it is not known whether its process does */
	SLOT_ENDED, /* its process has ended, but a child keeps its memory on the device */
};

/* All slots of an open file, one after the other. */
struct walk {
	int fd;
	unsigned own;  /* the slot of this process there, or GPU_ACCOUNT_MOST */
	unsigned next; /* the one behind that of which `state` is */
	uint64_t now;
	enum slot_state state;
	bool failed;
	struct gpu_account_member read[SHARED_READ];
};

/* Cost: a system call for each member; some ten for one that has not published anything for some 0.1 s. */
static enum slot_state state_of(const struct walk *walk, unsigned slot, const struct gpu_account_member *member)
{
	uint64_t beat = member->claim.beat;

	if (slot == walk->own)
		return member->pid ? SLOT_LIVES : SLOT_FREE;
	if (!shared_counts(walk->fd, slot, &member->owner))
		return SLOT_FREE;
	bool quiet = walk->now > beat && walk->now - beat >= QUIET_NS;
	return member->owner.leaving || (quiet && shared_has_ended(&member->owner)) ? SLOT_ENDED : SLOT_LIVES;
}

/* Returns NULL after the last, or if it cannot be read. */
static const struct gpu_account_member *walk_on(struct walk *walk)
{
	unsigned slot = walk->next++;

	if (slot == GPU_ACCOUNT_MOST)
		return NULL;
	if (slot % SHARED_READ == 0 && !shared_read_slots(walk->fd, &kind, slot, SHARED_READ, walk->read)) {
		walk->failed = true;
		return NULL;
	}
	const struct gpu_account_member *member = &walk->read[slot % SHARED_READ];
	walk->state = state_of(walk, slot, member);
	return member;
}

/*
 * Returns what is left of a process that has ended: memory that nobody moves, for as long as a child of it keeps it.
 * How much that is nobody knows: all that it may have. It may have taken that since it published what it holds.
 */
static struct gpu_account_member left_by(const struct gpu_account_member *member)
{
	return (struct gpu_account_member){.pid = member->pid,
					   .may_have = member->may_have,
					   .holds = member->may_have,
					   .needs = member->may_have,
					   .stuck = member->may_have,
					   .worked = member->worked};
}

bool gpu_account_read(int fd, struct account_page *ret_page, bool ret_ended[GPU_ACCOUNT_MOST])
{
	struct walk walk = {.fd = fd, .own = GPU_ACCOUNT_MOST, .now = clock_now()};
	const struct gpu_account_member *member;

	if (!shared_read_head(fd, &kind, &ret_page->head))
		return false;
	for (unsigned i = 0; (member = walk_on(&walk)); i++) {
		ret_ended[i] = walk.state == SLOT_ENDED;
		ret_page->slot[i] = ret_ended[i] ? left_by(member) : *member;
		if (walk.state == SLOT_FREE)
			ret_page->slot[i].pid = 0;
	}
	return !walk.failed;
}

bool gpu_account_has_clock(const struct gpu_account_member *member, uint64_t clock)
{
	return !member->space || identity_space_clock(member->space) == clock;
}

uint64_t gpu_account_clock(const struct gpu_account_member *members, unsigned n)
{
	uint64_t clock = 0;
	unsigned most = 0;

	for (unsigned i = 0; i < n && most <= n / 2; i++) {
		uint64_t its = identity_space_clock(members[i].space);
		unsigned same = 0;

		for (unsigned j = i; members[i].space && j < n; j++)
			same += members[j].space && gpu_account_has_clock(&members[j], its);
		if (same > most) {
			most = same;
			clock = its;
		}
	}
	return clock;
}

static struct gpu_turn_member turn_member(const struct gpu_account_member *member)
{
	return (struct gpu_turn_member){
	    .needs = member->needs, .may_have = member->may_have, .stuck = member->stuck, .claim = member->claim};
}

void gpu_account_members(const struct gpu_account_view *view, struct gpu_turn_member *ret_members)
{
	for (unsigned i = 0; i < view->n; i++)
		ret_members[i] = turn_member(&view->members[i]);
}

/* Has members with another clock take no part in turns: the times that they publish say nothing to the others. */
static void leave_out_clocks(struct gpu_account_view *view)
{
	uint64_t clock = gpu_account_clock(view->members, view->n);

	for (unsigned i = 0; i < view->n; i++)
		if (!gpu_account_has_clock(&view->members[i], clock))
			view->members[i].claim.kind = GPU_TURN_OFF;
	view->other_clock = view->self < view->n && !gpu_account_has_clock(&view->members[view->self], clock);
}

/* ---- joining ---- */

static bool write_turn(const struct shared_file *file, const struct account_turn *turn)
{
	return shared_write(file->fd, turn, sizeof(*turn), offsetof(struct account_head, turn));
}

/* The turn of a process that had the slot before is not that of the next one. */
static bool drop_turn_of_slot(const struct shared_file *file, unsigned slot)
{
	struct account_head head;

	if (!shared_read_head(file->fd, &kind, &head))
		return false;
	if (head.turn.holder != slot + 1)
		return true;
	head.turn.number++;
	head.turn.holder = 0;
	return write_turn(file, &head.turn);
}

static void write_name(struct shared_file *file, const unsigned char uuid[16])
{
	int at = snprintf(file->name, sizeof(file->name), "gpu-");

	for (unsigned i = 0; i < 16; i++)
		at += snprintf(file->name + at, sizeof(file->name) - (size_t)at, "%02x", uuid[i]);
	snprintf(file->name + at, sizeof(file->name) - (size_t)at, GPU_ACCOUNT_TAIL);
	file->kind = &kind;
}

bool gpu_account_join(struct gpu_account *account, const unsigned char uuid[16], uint64_t total,
		      const struct gpu_account_member *member)
{
	const struct shared_terms terms = {.total = total, .replaces = !account->keeps_total};

	if (account->file.open)
		return true;
	write_name(&account->file, uuid);
	account->lasting = shared_why(shared_enter(&account->file, &terms, member));
	if (account->lasting)
		log_once("device.total: no account of the GPU (%s): this process goes by its own budget",
			 account->lasting);
	return account->file.open;
}

/* ---- in the account ---- */

/*
 * Reads all members. Returns false if the file cannot be read, or this process is not in it. own: its slot, or
 * GPU_ACCOUNT_MOST. A turn whose process has died is that of the first living one of its job, as long as no other has
 * taken its slot.
 */
static bool read_view(int fd, unsigned own, struct gpu_account_view *ret_view)
{
	const struct gpu_account_member *member;
	struct gpu_job_claim dead = {0};
	struct walk walk = {.fd = fd, .own = own, .now = clock_now()};
	struct account_head head;

	if (!shared_read_head(fd, &kind, &head))
		return false;
	ret_view->total = head.file.total;
	ret_view->turn = (struct gpu_account_turn){
	    .number = head.turn.number, .on = head.turn.on, .holder = GPU_TURN_NOBODY, .since = head.turn.since};
	for (unsigned i = 0; (member = walk_on(&walk)); i++) {
		bool lives = walk.state == SLOT_LIVES, holds = head.turn.holder == i + 1;

		if (holds && !lives)
			dead = member->job;
		if (walk.state == SLOT_FREE)
			continue;
		if (i == own)
			ret_view->self = ret_view->n;
		if (holds && lives)
			ret_view->turn.holder = ret_view->n;
		ret_view->slots[ret_view->n] = (unsigned char)i;
		ret_view->ended[ret_view->n] = !lives;
		ret_view->members[ret_view->n++] = lives ? *member : left_by(member);
	}
	for (unsigned i = 0; i < ret_view->n && ret_view->turn.holder == GPU_TURN_NOBODY; i++)
		if (gpu_job_share(&dead, &ret_view->members[i].job))
			ret_view->turn.holder = i;
	leave_out_clocks(ret_view);
	/* Who is in the account is in the view. If its slot has been written over, the file is damaged. */
	return !walk.failed && (own == GPU_ACCOUNT_MOST || (ret_view->n && ret_view->slots[ret_view->self] == own));
}

bool gpu_account_look(struct gpu_account *account, const struct gpu_account_member *member,
		      struct gpu_account_view *ret_view)
{
	const struct shared_file *file = &account->file;

	ret_view->n = ret_view->self = 0;
	bool good = shared_is_whole(file) && shared_publish(file, member) && read_view(file->fd, file->slot, ret_view);
	if (!good)
		shared_abandon(&account->file);
	return good;
}

/* Stores what all others may have, and what this process has published. Returns false if the file cannot be read. */
static bool read_others(const struct shared_file *file, uint64_t *ret_sum, struct gpu_account_member *ret_own)
{
	struct walk walk = {.fd = file->fd, .own = file->slot, .now = clock_now()};
	const struct gpu_account_member *member;

	*ret_sum = 0;
	for (unsigned i = 0; (member = walk_on(&walk)); i++)
		if (i == file->slot)
			*ret_own = *member;
		else if (walk.state != SLOT_FREE)
			*ret_sum += member->may_have < SHARED_MOST ? member->may_have : SHARED_MOST;
	return !walk.failed;
}

uint64_t gpu_account_raise(struct gpu_account *account, uint64_t now, uint64_t wanted)
{
	struct gpu_account_member member;
	struct account_head head;
	uint64_t may_have = now, others;

	if (wanted <= now)
		return now;
	bool locked = shared_is_whole(&account->file) && shared_lock(&account->file);

	if (locked && shared_read_head(account->file.fd, &kind, &head) && !shared_settles(&head.file) &&
	    read_others(&account->file, &others, &member)) {
		uint64_t left = head.file.total > others ? head.file.total - others : 0;

		member.may_have = wanted < left ? wanted : left;
		if (member.may_have > now && shared_publish(&account->file, &member) && shared_held(&account->file)) {
			may_have = member.may_have;
		} else if (member.may_have > now) {
			member.may_have = now;
			shared_publish(&account->file, &member);
		}
	}
	if (locked)
		shared_unlock(&account->file);
	return may_have;
}

bool gpu_account_pass(struct gpu_account *account, const struct gpu_account_view *view, bool on, unsigned holder,
		      uint64_t now)
{
	struct account_head head;
	bool locked = shared_is_whole(&account->file) && shared_lock(&account->file), passed = false;

	if (locked && shared_read_head(account->file.fd, &kind, &head) && head.turn.number == view->turn.number &&
	    head.file.lock == account->file.lock) {
		head.turn = (struct account_turn){
		    .number = view->turn.number + 1,
		    .on = on,
		    .holder = holder < view->n ? view->slots[holder] + 1u : 0,
		    .since = now,
		};
		passed = write_turn(&account->file, &head.turn) && shared_held(&account->file);
	}
	if (locked)
		shared_unlock(&account->file);
	return passed;
}

uint64_t gpu_account_begin(struct gpu_account *account, const unsigned char uuid[16], uint64_t total, uint64_t used,
			   uint64_t limit)
{
	struct gpu_account_member member = {.pid = (uint64_t)getpid(),
					    .started = user_dir_process_started(getpid()),
					    .space = identity_space(),
					    .may_have = used,
					    .holds = used,
					    .needs = used,
					    .job.process = identity_get()};

	if (!gpu_account_join(account, uuid, total, &member))
		return !account->lasting ? used : limit < total ? limit : total;
	return gpu_account_raise(account, used, limit);
}

void gpu_account_leave(struct gpu_account *account)
{
	/* The control thread may be using the account still. */
	shared_leave(&account->file, false);
}

void gpu_account_child(struct gpu_account *account)
{
	account->file.open = false;
}

/* ---- in the line before it ---- */

void gpu_account_queue_end(struct shared_file *line)
{
	if (shared_is_open(line))
		close(line->fd);
	line->open = false;
}

/* Returns true if no process has entered the file yet; it has no head until the first of them writes it. */
static bool is_new(int fd)
{
	uint64_t bytes = 0;
	struct stat status;

	return fstat(fd, &status) == 0 && (!status.st_size || (shared_read(fd, &bytes, sizeof(bytes), 0) && !bytes));
}

enum gpu_account_place gpu_account_queue(struct shared_file *line, const unsigned char uuid[16],
					 struct gpu_account_view *ret_view)
{
	enum gpu_account_place place = GPU_ACCOUNT_EMPTY;
	struct stat status;

	/* The file may have been removed, and made again. */
	if (!shared_is_open(line) || fstat(line->fd, &status) != 0 || !status.st_nlink)
		gpu_account_queue_end(line);
	write_name(line, uuid);
	ret_view->n = 0;
	/* Made by the first of them: of several that start at the same time, one is the first in the line. */
	if ((line->open || shared_open(line) == 0) &&
	    (read_view(line->fd, GPU_ACCOUNT_MOST, ret_view) || is_new(line->fd))) {
		if (!shared_try_byte(line->fd, GPU_ACCOUNT_QUEUE))
			place = GPU_ACCOUNT_WAITS;
		else if (ret_view->n)
			place = GPU_ACCOUNT_FIRST;
	}
	ret_view->self = GPU_ACCOUNT_MOST;
	for (unsigned i = 0; i < ret_view->n; i++)
		if (ret_view->members[i].job.process == identity_get())
			ret_view->self = i;
	return place;
}

/* ---- all accounts ---- */

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

struct found {
	char name[48];
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
	found.fd = shared_open_used(&kind, folder, name, &status);
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

void gpu_account_seats(const struct gpu_account_view *view, uint32_t device, struct gpu_job_view *jobs)
{
	for (unsigned i = 0; i < view->n && jobs->n < GPU_JOB_SEATS; i++) {
		const struct gpu_account_member *member = &view->members[i];
		struct gpu_turn_member one = turn_member(member);
		struct gpu_turn_view alone = {.now = jobs->now, .members = &one, .n = 1, .holder = GPU_TURN_NOBODY};

		if (view->ended[i])
			continue;
		if (i == view->self)
			jobs->self = jobs->n;
		jobs->seats[jobs->n++] = (struct gpu_job_seat){
		    .device = device,
		    .slot = view->slots[i],
		    .takes_part = gpu_turn_takes_part(&alone, 0),
		    .idle = member->claim.idle,
		    .claim = member->job,
		};
	}
	jobs->turns[device] = (struct gpu_job_turn){
	    .on = view->turn.on,
	    .number = view->turn.number,
	    .holder = view->turn.holder < view->n ? view->slots[view->turn.holder] : GPU_TURN_NOBODY,
	};
}

bool gpu_account_all(const struct gpu_account *account, uint64_t now, struct gpu_account_view *scratch,
		     struct gpu_job_view *ret_view)
{
	struct accounts accounts = {.n = 0};

	ret_view->now = now;
	ret_view->n = 0;
	ret_view->self = GPU_JOB_SEATS;
	memset(ret_view->turns, 0, sizeof(ret_view->turns));
	each_file(add_file, &accounts);
	for (unsigned i = 0; i < accounts.n; i++) {
		const struct found *found = &accounts.at[i];
		bool own = found->device == account->file.device && found->inode == account->file.inode;

		scratch->n = 0;
		scratch->self = own ? 0 : GPU_ACCOUNT_MOST;
		if (read_view(found->fd, own ? account->file.slot : GPU_ACCOUNT_MOST, scratch))
			gpu_account_seats(scratch, i, ret_view);
		close(found->fd);
	}
	return ret_view->self < ret_view->n;
}

/* ---- looking for a process ---- */

struct job_search {
	uint64_t name;
	bool found;
};

static void look_for_job(const struct user_dir *folder, const char *name, void *argument)
{
	const struct gpu_account_member *member;
	struct job_search *search = argument;
	struct account_head head;
	struct stat status;
	struct walk walk = {.own = GPU_ACCOUNT_MOST, .now = clock_now()};

	walk.fd = shared_open_used(&kind, folder, name, &status);
	if (walk.fd < 0)
		return;
	bool ours = shared_read_head(walk.fd, &kind, &head);
	while (ours && (member = walk_on(&walk)))
		search->found |= walk.state == SLOT_LIVES && member->job.name == search->name;
	close(walk.fd);
}

bool gpu_account_has_job(uint64_t name)
{
	struct job_search search = {.name = name};

	if (name)
		each_file(look_for_job, &search);
	return search.found;
}
