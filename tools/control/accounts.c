/*
 * Reads the accounts of shared GPUs (shim/accounting/gpu_account.h) in the folders of this user that its own environment
 * names. Those in other containers are not looked for.
 */
#include "tools/control/accounts.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shim/accounting/gpu_account_page.h"
#include "shim/base/user_dir.h"
#include "tools/common/units.h"

enum { MOST_FILES = 64 };

/* A process holds a lock on the byte of its slot as long as it lives. */
static bool is_alive(int fd, unsigned slot)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1 + slot, .l_len = 1};

	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static double seconds_since(uint64_t ns)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	double since = (double)now.tv_sec + (double)now.tv_nsec / 1e9 - (double)ns / 1e9;
	return since > 0 ? since : 0;
}

/* Writes whether it is the member's turn, or since when it waits for it. */
static void write_turn(const struct account_turn *turn, unsigned slot, const struct gpu_account_member *member,
		       char text[32])
{
	const struct gpu_turn_claim *claim = &member->claim;

	if (!turn->on || claim->kind == GPU_TURN_OFF)
		snprintf(text, 32, "-");
	else if (claim->moving)
		snprintf(text, 32, "moves");
	else if (turn->holder == slot + 1)
		snprintf(text, 32, "has it");
	else if (claim->waits)
		snprintf(text, 32, "waits %.1f s", seconds_since(claim->waits));
	else
		snprintf(text, 32, "idle");
}

static void print_member(const struct account_turn *turn, unsigned slot, const struct gpu_account_member *member)
{
	char may_have[UNITS_TEXT], holds[UNITS_TEXT], needs[UNITS_TEXT], stuck[UNITS_TEXT], idle[32] = "-", its[32];

	if (member->worked)
		snprintf(idle, sizeof(idle), "%.1f s", seconds_since(member->worked));
	write_turn(turn, slot, member, its);
	printf("%7llu  %10s  %10s  %10s  %11s  %8s", (unsigned long long)member->pid,
	       units_bytes(member->may_have, may_have), units_bytes(member->holds, holds),
	       units_bytes(member->needs, needs), units_bytes(member->stuck, stuck), idle);
	if (turn->on)
		printf("  %-12s  %5llu  %8.1f s  %6llu  %6.2f s", its, (unsigned long long)member->claim.n,
		       (double)member->claim.got / 1e9, (unsigned long long)member->claim.weight,
		       (double)member->claim.cost / 1e9);
	printf("\n");
}

static void print_account(const struct user_dir *folder, const char *name, void *argument)
{
	int fd = openat(folder->fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	struct account_page page;
	char total[UNITS_TEXT];
	bool any = false;

	(void)argument;
	if (fd < 0)
		return;
	bool good = pread(fd, &page, sizeof(page), 0) == (ssize_t)sizeof(page) && account_head_is_ours(&page.head);
	for (unsigned i = 0; good && i < GPU_ACCOUNT_MOST; i++) {
		if (!page.slot[i].member.pid || !is_alive(fd, i))
			continue;
		if (!any)
			printf("\nGPU %.8s, shared: %s in all\n%7s  %10s  %10s  %10s  %11s  %8s%s\n",
			       name + strlen("gpu-"), units_bytes(page.head.total, total), "PID", "MAY HAVE", "HOLDS",
			       "NEEDS", "CANNOT MOVE", "IDLE",
			       page.head.turn.on ? "  TURN          TURNS         GOT  WEIGHT    SWITCH" : "");
		any = true;
		print_member(&page.head.turn, i, &page.slot[i].member);
	}
	close(fd);
}

void accounts_print(void)
{
	struct user_dir folder;

	for (unsigned place = 0; place < USER_DIR_PLACES; place++) {
		if (user_dir_open_place(place, &folder) != 0)
			continue;
		user_dir_each_file(&folder, GPU_ACCOUNT_TAIL, MOST_FILES, print_account, NULL);
		user_dir_close(&folder, false);
	}
}
