/*
 * quota_slots.h: the slots and the locks of the shared file, for the files that make it, enter it and leave it
 * (quota_join.c, quota_carry.c).
 */
#ifndef SPILLWAY_QUOTA_SLOTS_H
#define SPILLWAY_QUOTA_SLOTS_H

#include "shim/accounting/quota_internal.h"
#include "shim/base/user_dir.h"

#include <sys/stat.h>

#define QUOTA_PAGE_BYTES ((off_t)sizeof(struct quota_page))
#define QUOTA_CARRIED_NS 60000000000 /* a process comes to its carried slot within a second, unless it is stopped */

static inline size_t quota_slot_at(unsigned index)
{
	return offsetof(struct quota_page, slot) + index * sizeof(struct quota_slot);
}

/*
 * The rule of all shared files: opens the folder in which the file is in use, of all places where it may lie, else that
 * for new files. They differ after a log-out, and when the user returns; and for processes without XDG_RUNTIME_DIR.
 * is_used(): returns true if a process uses the file in that folder. Returns 0 or a negative errno.
 */
typedef bool quota_file_is_used(const struct user_dir *folder, const void *file);
int quota_file_open_folder(quota_file_is_used *is_used, const void *file, struct user_dir *ret_folder);

/* Read or write all of these bytes, else return false. By syscall(): pread() and pwrite() are cancellation points. */
bool quota_file_read_at(int fd, void *room, size_t bytes, size_t offset);
bool quota_file_write_at(int fd, const void *from, size_t bytes, size_t offset);
/* Returns whether this process may write a file of so many bytes (RLIMIT_FSIZE): beyond that a signal would end it. */
bool quota_file_may_have(size_t bytes);

/* Sets a lock of the open file on one byte; type as in struct flock. Never waits. Returns 0 or a negative errno. */
int quota_file_lock_byte(int fd, unsigned byte, short type);
bool quota_file_try_lock(int fd, unsigned byte);
/* Takes the lock of byte 0. Returns -EBUSY if another process has it for all of `patience` (ns). */
int quota_file_lock(int fd, uint64_t patience);
/* Returns true if another open file holds a lock on these n bytes (0: on all from there on), or if that is unknown. */
bool quota_file_is_locked(int fd, unsigned byte, unsigned n);

/*
 * Whose a slot is, in any of the shared files (the quota's, and the account of a GPU, gpu_account.h). space: the PID
 * namespace of its pid; 0: the pid says nothing.
 */
struct quota_owner {
	uint64_t pid, started, space;
};
/*
 * The rule of all shared files: what is in slot i counts while its lock is held or its process is known to live. The
 * lock goes when the last process has closed the file: the one that took it, and its children that were forked since
 * and did not exec. It is the same with the memory of a process, on the device and pinned (docs/facts.md, Two
 * processes). A lock alone says too little: a program may close all descriptors. space: our own. The slot must not be
 * one that we use.
 */
bool quota_file_counts(int fd, unsigned index, const struct quota_owner *owner, uint64_t space);

/* Returns true if that slot of the seat's file does not count. The slot must not be our own. */
bool quota_slot_is_gone(const struct quota_seat *seat, unsigned index, const struct quota_slot *slot);
/* Returns true if its process is known to have ended. The slot counts still if a child keeps its lock. */
bool quota_slot_has_ended(const struct quota_seat *seat, const struct quota_slot *slot);
/* Visits each slot that is taken. Stops, and returns false, where visit() returns false. */
typedef bool quota_slot_visit(const struct quota_seat *seat, unsigned index, const struct quota_slot *slot,
			      void *argument);
bool quota_file_each_slot(const struct quota_seat *seat, quota_slot_visit *visit, void *argument);
/* Frees the slots of dead processes. Returns how many there were. locked: the caller holds the lock of byte 0. */
unsigned quota_file_sweep_by(const struct quota_seat *seat, bool locked);
/* Returns true if a living process has a slot in it. */
bool quota_file_any_rank(const struct quota_seat *seat);

/* Returns true if it is a regular file of this user, closed to all others. */
bool quota_file_is_private(const struct stat *status);
bool quota_head_is_ours(const struct quota_head *head);
/* Returns true if the head is that of a file of this length which another version of this library made. */
bool quota_head_is_foreign(const struct quota_head *head, off_t bytes);

/* ---- the caller holds the lock of byte 0 ---- */

/* Returns a stamp that was never used, or 0 on failure. */
uint64_t quota_file_next_stamp(const struct quota_seat *seat);
/* Writes the slot. The stamp comes last: from then on others count it. Returns 0 or a negative errno. */
int quota_file_put_slot(const struct quota_seat *seat, unsigned index, const struct quota_slot *slot);
/* Finds the slot with that ticket, and sets the rest of *finder. Returns false if there is none. */
struct quota_finder {
	uint64_t ticket;
	unsigned index;
	uint64_t stamp;
};
bool quota_file_find_ticket(const struct quota_seat *seat, struct quota_finder *finder);
/* Returns a free slot whose byte is not locked; locks it for us if asked. Returns QUOTA_SLOTS if there is none. */
unsigned quota_file_find_free(const struct quota_seat *seat, bool lock);

/* ---- quota_carry.c ---- */

/*
 * Visits each file of that name that was removed from one of its places, and that a process of this user still has
 * open; several times if several have.
 */
typedef void quota_removed_visit(int fd, const struct stat *status, void *argument);
void quota_each_removed(const char *name, quota_removed_visit *visit, void *argument);
/*
 * Carries over the contents of the file of `from`, which was removed, and marks that file as moved. first: no process
 * was in the new file yet; then its total becomes that of the old one. Returns 0 or a negative errno.
 */
int quota_carry_over(const struct quota_seat *from, const struct quota_seat *into, const struct quota_terms *terms,
		     bool first);
/* Does the same for each removed file that a process of this user still has open. */
int quota_carry_removed(const struct quota_seat *into, const struct quota_terms *terms);

#endif
