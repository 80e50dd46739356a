// SPDX-License-Identifier: Apache-2.0
/*
 * shared_file.h: a small file by which the processes of one user agree on something, without a daemon: what they pin
 * together (quota.h), and who may have what of a GPU (gpu_account.h). It has a total, and a slot for each process.
 *
 * Where: in the user's private folder (user_dir.h), mode 0600. A file that is in use in another place where such a
 * folder may lie is taken: a user who logs out and in again has one. A file that no process uses is replaced, whatever
 * is in it.
 *
 * Access: by pread() and pwrite(), never mapped, because truncating a mapped file ends the processes that touch it; and
 * never beyond RLIMIT_FSIZE, which would end them, too. Each number is 8 bytes at a multiple of 8, which the kernel
 * copies whole. Several of them may be read while they change.
 *
 * Who writes what:
 *  - A slot is written by its own process, whole, at any time. Others write there only while they hold the lock of the
 *    file, to empty the slot of a process that has gone (with the lock of the slot as well, without which no process
 *    takes it), and to mark one that has ended as leaving; if its process lives, it writes that anew.
 *  - What is decided by the sum of all slots, and the head, are written under the lock of the file. (Not so
 *    quota_head.asked_until, which a process that reads it too late asks for again.)
 *  - Everything may be read without a lock. Then it says what was so a moment ago: it may lead to a wish, and to less,
 *    but never to more.
 *
 * The locks are open file description locks, which the kernel drops however a process ends:
 *  - The process in slot i holds byte 1 + i as long as it has the file open. Its children that did not exec have the
 *    lock, too, as they have its memory, on the device and pinned (docs/facts.md, Two processes).
 *  - A process that changes the file holds the byte of the lock whose number is in the head, for some microseconds. If
 *    the lock cannot be had for a second, its holder is stopped (SIGSTOP, a debugger): the next process takes the byte
 *    of another lock, and writes that number. After a write under a lock the process reads the number again, and undoes
 *    the write if that has changed: either the first wrote before the second read, or it sees the second one's number.
 *    So a stopped process keeps the others waiting for a second. Only one that is stopped while it makes the file,
 *    which has no head yet, keeps them out until it goes on or ends.
 *
 * What is in a slot counts while the slot's lock is held, or its process is known to live: a program may close all
 * descriptors. A pid says nothing in another PID namespace, nor a start time in another time namespace: from there, a
 * process that has closed them looks dead. After an exec() the slot counts for the others until the process enters
 * again, or ends. A process has *ended* if it is known to be gone while a child keeps its lock.
 *
 * Loss. A file that was removed, as by a log-out, or cut off, or whose head was overwritten is lost. Each process
 * notices that when it next looks, and enters the file of then with what it has. Nothing is published in between. In
 * detail:
 *  - Removed: the first process to enter a file looks for removed files of that name among the descriptors of this
 *    user's processes (/proc), and carries their slots over. A slot whose own process holds its lock replaces a copy
 *    that another process has carried. The slots count until their processes come, or end. A process that writes in a
 *    removed file notices that, and undoes the write; so the sum stays below the total. This fails for processes of
 *    other PID namespaces, and those whose descriptors cannot be read: what they have counts again once they have come.
 *  - Cut off or overwritten: nobody enters it before all that use it have left. What those have that have left counts
 *    again once they have come.
 *  - So for as long as it takes all to look once, which is a second (shared_settles()), the sum may be above the total,
 *    unless the users of the kind wait for that long, as those of gpu_account.h do. From then on nothing is given until
 *    it is below. What a process leaves to its children, and ends before it has entered, does not count any more.
 *
 * Versions. The first number of a file is its length, the second its version; each process that uses it holds the lock
 * of one of the first 256 bytes behind byte 0; nothing else is the same in all versions. One that another version uses
 * is not touched.
 *
 * A struct shared_file is used by one thread at a time. Locking: none. Leaves errno undefined. Cost: a change is some
 * ten system calls.
 */
#ifndef SPILLWAY_SHARED_FILE_H
#define SPILLWAY_SHARED_FILE_H

#include "shim/base/user_dir.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#define SHARED_SLOTS 256 /* at most */
#define SHARED_SLOT  512 /* bytes of a slot, at most */
/* Slots are read so many at a time, as all would take too much of a stack: each kind has a multiple of that. */
#define SHARED_READ 8
_Static_assert(SHARED_SLOTS % SHARED_READ == 0, "the last read has as many slots as the others");
/* More bytes than any machine has: a number above it is nonsense, and a sum of such numbers does not overflow. */
#define SHARED_MOST ((uint64_t)1 << 52)

struct shared_file;

struct shared_kind {
	uint64_t magic, version;
	unsigned slots;
	size_t head_bytes, slot_bytes;
	unsigned lock; /* byte of the lock of number 0: the same as in versions before, which may just make the file */
	/*
	 * Called under the lock before a slot is emptied, or gets another owner; NULL: nothing else in the file is its.
	 */
	bool (*clear)(const struct shared_file *file, unsigned slot);
};

/* Each file begins with this, */
struct shared_head {
	uint64_t bytes, version, magic;
	uint64_t total;   /* not 0 */
	uint64_t fixed;   /* 1: the total holds until all have left */
	uint64_t lock;    /* number of the lock */
	uint64_t settles; /* CLOCK_MONOTONIC, ns: until then a process may not have come back after a loss */
};

/* and each slot with this. */
struct shared_owner {
	uint64_t pid; /* of its PID namespace: others may have the same. 0: the slot is free */
	uint64_t started,
	    space;        /* when that started, as in /proc/PID/stat; identity_space(), 0: the pid says nothing */
	uint64_t leaving; /* 1: it ends, or has ended */
};

struct shared_terms {
	uint64_t total;
	bool replaces; /* that of those who are there, unless that is fixed */
	bool fixed;
};

struct shared_file {
	/* Set by the caller before it enters. */
	const struct shared_kind *kind;
	char name[64];
	uint64_t patience; /* ns that the lock is waited for; 0: not at all */
	/* Zero at first. */
	bool open; /* fd, and if it has entered slot, are valid, unless the program has closed the descriptor */
	bool lost; /* it has left a file that was lost, and has not entered another since */
	int fd;
	unsigned slot;
	dev_t device; /* of the file */
	ino_t inode;
	uint64_t total;      /* as in the file when it entered */
	uint64_t version;    /* of the file, where another version of this library uses it */
	uint64_t lock;       /* number of the lock that it holds */
	unsigned busy;       /* tries to take the lock that failed, one after the other */
	uint64_t busy_since; /* ns: the first of them */
};

/*
 * Enters the file, or makes it. slot: what is to be in the slot; its owner is this process. The file must not be open.
 * Returns 0 or a negative errno, among them (shared_why() tells of the last of these alone):
 *   -EBUSY            the lock could not be had in time
 *   -EPROTO           the file was damaged, and others have not left it yet
 *   -EPROTONOSUPPORT  another version of this library uses it
 */
int shared_enter(struct shared_file *file, const struct shared_terms *terms, const void *slot);
/* Returns why the file cannot be entered, if that lasts, else NULL. error: of shared_enter(). */
const char *shared_why(int error);
/* Leaves a file that was lost. */
void shared_abandon(struct shared_file *file);
/*
 * At the end of the process: marks the slot as leaving, or frees it if it stands for nothing (is_empty). The last to
 * leave removes the file, unless a child may keep its slot. The lock of the slot stays until the process has ended.
 */
void shared_leave(const struct shared_file *file, bool is_empty);
/*
 * After a fork, in the parent: a child may keep the slots of this process; in the child: it has no children yet.
 * Async-signal-safe.
 */
void shared_forked(bool as_parent);
/* Opens the file without a slot, and makes it if there is none. Returns 0 or a negative errno. */
int shared_open(struct shared_file *file);

/* Returns true if the descriptor is still that of the file. The program may have closed it, and reopened its number. */
bool shared_is_open(const struct shared_file *file);
/* As shared_is_open(), and the file has its name and its length. */
bool shared_is_whole(const struct shared_file *file);
/* Takes the lock. Returns false if that takes longer than `patience`. */
bool shared_lock(struct shared_file *file);
void shared_unlock(const struct shared_file *file);
/* Returns whether what was written under the lock holds. Else the caller must take it back. */
bool shared_held(const struct shared_file *file);
/* Writes the slot of this process. */
bool shared_publish(const struct shared_file *file, const void *slot);
/*
 * Empties the slots of processes that are gone, and returns how many there were; marks those of processes that have
 * ended. Does nothing if another process has the lock.
 */
unsigned shared_sweep(const struct shared_file *file);
/* Returns whether processes that have lost a file may not have come back. */
bool shared_settles(const struct shared_head *head);

/* ---- reading any file ---- */

/* Read or write all of these bytes, else return false. By syscall(): pread() and pwrite() are cancellation points. */
bool shared_read(int fd, void *room, size_t bytes, size_t offset);
bool shared_write(int fd, const void *from, size_t bytes, size_t offset);
static inline size_t shared_slot_at(const struct shared_kind *kind, unsigned slot)
{
	return kind->head_bytes + slot * kind->slot_bytes;
}
static inline size_t shared_bytes(const struct shared_kind *kind)
{
	return shared_slot_at(kind, kind->slots);
}
/* Reads the head, of kind->head_bytes. Returns false if it is not one of this kind and version. */
bool shared_read_head(int fd, const struct shared_kind *kind, void *ret_head);
bool shared_read_slots(int fd, const struct shared_kind *kind, unsigned first, unsigned n, void *ret_slots);
/* Returns true if what is in the slot counts. It must not be one of the caller's own. */
bool shared_counts(int fd, unsigned slot, const struct shared_owner *owner);
/* Returns true if that process is known to have ended. Its slot counts still if a child keeps the lock. */
bool shared_has_ended(const struct shared_owner *owner);
/* Opens that file if it is this user's alone, and any process uses it. Returns a descriptor, or -1. */
int shared_open_used(const struct shared_kind *kind, const struct user_dir *folder, const char *name,
		     struct stat *ret_status);
/* Takes the lock of one byte if it is free. */
bool shared_try_byte(int fd, unsigned byte);

#endif
