/* gpu_account_slot.h: whose a slot of an account is (gpu_account.h), for the files that read the slots, and the tool. */
#ifndef SPILLWAY_GPU_ACCOUNT_SLOT_H
#define SPILLWAY_GPU_ACCOUNT_SLOT_H

#include "shim/accounting/gpu_account_page.h"
#include "shim/base/user_dir.h"

#include <sys/stat.h>

enum account_slot_state {
	ACCOUNT_SLOT_FREE,
	ACCOUNT_SLOT_LIVES, /* or it is not known whether its process does */
	ACCOUNT_SLOT_ENDED, /* its process has ended, but a child keeps its memory on the device */
};

/*
 * Returns what slot i of the open file is, which has that contents; it must not be the caller's own. now: clock_now().
 * Cost: a system call; some ten if the process has not published anything for some 0.1 s.
 */
enum account_slot_state account_slot_state(int fd, unsigned slot, const struct gpu_account_member *member,
					   uint64_t now);

/* Returns the clock (identity.h) that most members have; of two that as many have, that of the first of these members. */
uint64_t account_clock(const struct gpu_account_member *members, unsigned n);
/* Returns true also if its clock is not known. */
bool account_has_clock(const struct gpu_account_member *member, uint64_t clock);
/* Has members with another clock than that take no part in turns: the times that they publish say nothing to the others. */
void account_leave_out_clocks(struct gpu_account_view *view);
/* Returns true if both are of one process; it may have drawn another number meanwhile. */
bool account_same_process(const struct gpu_account_member *a, const struct gpu_account_member *b);
/*
 * Carries the slots of the removed file `from` that are in use over, without their locks, but for those of processes
 * that are in the other file. The caller has the lock of that. Returns true if any is in use.
 */
bool account_carry_over(int from, int into);
/* Returns true if another process, of any version of this library, uses the open file. */
bool account_is_used(int fd);
/*
 * Returns why the file could not be made or entered (error: a positive errno or 0, of what failed last; fd: -1 if it is
 * not open), if that lasts; else NULL.
 */
const char *account_why_not(int fd, int error);
/* Opens the file of that name, if it is used, and nobody else's. Returns a descriptor, or -1. */
int account_open_used(const struct user_dir *folder, const char *name, struct stat *ret_status);
/* Opens the folder of that file: that in which it is used, else that for new files. Returns 0 or a negative errno. */
int account_open_folder(const char *name, struct user_dir *ret_folder);

#endif
