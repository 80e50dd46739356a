/*
 * quota_internal.h: the file that quota.h speaks of, and finding a place in it. For the files of quota.h and their
 * tests.
 *
 * The file is host.quota, or host-DOMAIN.quota, mode 0600. Its first number is its size, the second the version, and
 * each process that uses it holds a lock on a byte behind the first; nothing else is promised between versions. It belongs to those who have a slot in it; the last to leave removes it.
 *
 * It is read and written by pread() and pwrite(), never mapped: whoever truncates a mapped file ends the processes that
 * touch it. Each number is 8 bytes, at a multiple of 8, and the kernel copies it whole on every processor we run on. Each
 * slot is written by its own process; by others only to free it or to carry it over, and then only under a lock that its
 * next owner needs.
 *
 * A slot is taken where its stamp is not 0, and a stamp is never used twice. A ticket names a process for as long as it
 * shares, in whichever file: by it a process finds the slot in which others have put down what it holds.
 *
 * Kernel locks on the file (open file description locks): byte 0 is held for a moment by who joins or leaves, byte 1 + i
 * by the process in slot i as long as it lives. The kernel drops them with the process, however it ends.
 *
 * A file can be lost: removed, as all of the folder is when its user logs out, or truncated. See quota_file_join().
 */
#ifndef SPILLWAY_QUOTA_INTERNAL_H
#define SPILLWAY_QUOTA_INTERNAL_H

#include "shim/accounting/quota.h"

#include <stddef.h>
#include <sys/types.h>

#define QUOTA_VERSION      2
#define QUOTA_VERSION_MOST 9999 /* a higher number is nonsense */
#define QUOTA_MAGIC        0x5753514f54410a31u
#define QUOTA_SLOTS        256
#define QUOTA_TAIL         ".quota"
/* More bytes than any machine has: a number above it is nonsense, and a sum of such numbers does not overflow. */
#define QUOTA_MOST ((uint64_t)1 << 52)

struct quota_slot {
	_Atomic uint64_t stamp;        /* 0: free */
	_Atomic uint64_t pid, started; /* of the process; started: ticks of /proc/PID/stat */
	_Atomic uint64_t space;        /* its PID namespace; 0: the pid says nothing */
	_Atomic uint64_t used;         /* bytes taken; written by its process alone, as all that follows */
	_Atomic uint64_t claim;        /* bytes it is about to take: others count them as taken */
	_Atomic uint64_t spare;        /* of the bytes used: free for its next use */
	_Atomic uint64_t wanted;       /* bytes it was refused */
	_Atomic uint64_t wanted_until; /* CLOCK_MONOTONIC, ns: after that nobody cares */
	_Atomic uint64_t leaving;      /* it ends: no rank any more, but its bytes are still pinned */
	_Atomic uint64_t ticket; /* random; 0: only the lock says that there is a process, see quota_file_join() */
	_Atomic uint64_t carried_until; /* CLOCK_MONOTONIC, ns: until then it may be without its lock; 0: it is not */
} __attribute__((aligned(128)));

struct quota_head {
	_Atomic uint64_t bytes, version, magic;
	_Atomic uint64_t total, given; /* given: by a policy, not computed */
	_Atomic uint64_t next_stamp;
	_Atomic uint64_t
	    asked_until;           /* the latest wanted_until of all: while it is past there is nothing to look for */
	_Atomic uint64_t slots;    /* all that have ever been taken lie below; it only grows */
	_Atomic uint64_t complete; /* not 0: what stood in removed files has been carried over into this one */
	_Atomic uint64_t moved; /* not 0: all slots have been carried over into another file; nothing is taken here */
} __attribute__((aligned(128)));

struct quota_page {
	struct quota_head head;
	struct quota_slot slot[QUOTA_SLOTS];
};

/*
 * ns: so long a claim of another is waited for; so long others know of a refusal (who still wants asks again); so often
 * who is refused looks for the dead; and so long who joins waits for the lock of byte 0. Tests change them.
 */
extern uint64_t quota_patience, quota_want_lasts, quota_sweep_every, quota_join_patience;

/* A place in the file. */
struct quota_seat {
	unsigned index;
	uint64_t stamp, ticket;
	uint64_t space;
	int fd;       /* -1: none */
	dev_t device; /* of the file: the program may have closed our descriptor, and opened another of its number */
	ino_t inode;
	char name[40];
};

/*
 * Find the file that is in use, in any of the places where it may lie (user_dir_open_place()), or make one, and take a slot
 * in it that says `held` bytes are taken. seat: as it was; with a seat of before, whose file was lost, that is given up.
 *
 * Nothing that anybody holds is forgotten on the way. What stands in a file that was removed is carried over, for all
 * processes that have a slot there, by the first of them that comes, or by a new process: it finds a removed file by
 * the descriptors of this user's processes in /proc (but not those of processes in other PID namespaces, or hidden).
 * Who has a slot there finds `moved` when it next takes or looks, and comes after. In a file that was truncated the locks
 * still say which slots are taken, and each of them counts as the whole total until its process has come back.
 *
 * Returns 0, or a negative errno, with the seat as it was: -EBUSY the lock of byte 0 could not be had in time, or at once
 * without patience; -EPROTO its contents are none of ours; -EPROTONOSUPPORT another version of this library uses
 * it, which has been logged; -ENOSPC all slots are taken (or there is no room for the file).
 */
int quota_file_join(const struct quota_terms *terms, struct quota_seat *seat, uint64_t held, bool patient);
/* Is the descriptor still that of the file? */
bool quota_file_is_open(const struct quota_seat *seat);
/* The same, and has it the length that it must have? */
bool quota_file_is_whole(const struct quota_seat *seat);
/* Has the file a name as well? */
bool quota_file_is_there(const struct quota_seat *seat);

/*
 * Read the head, or n slots from the first-th on. Returns false if the file is lost. As with relaxed atomics nothing is said
 * of the order in which they are read: quota_file_fence() between two readings, or a writing and a reading, is what
 * orders them.
 */
#define QUOTA_SLOTS_READ 16 /* at once, at most: 2 KiB of the stack */
bool quota_file_read_head(const struct quota_seat *seat, struct quota_head *ret_head);
bool quota_file_read_slots(const struct quota_seat *seat, unsigned first, unsigned n, struct quota_slot *ret_slots);
void quota_file_fence(void);
/* One number of our own slot, or of the head: QUOTA_SLOT(used), QUOTA_HEAD(asked_until). Returns false if it could not. */
bool quota_file_write(const struct quota_seat *seat, size_t offset, uint64_t value);
#define QUOTA_HEAD(field) offsetof(struct quota_head, field)
#define QUOTA_SLOT(seat, field)                                                                                        \
	(offsetof(struct quota_page, slot) + (seat)->index * sizeof(struct quota_slot) +                               \
	 offsetof(struct quota_slot, field))

/* Free the slots of the dead; how many there were. */
unsigned quota_file_sweep(const struct quota_seat *seat);
/*
 * The end: the slot is freed, if it holds nothing (is_empty), or marked as one of a process that ends; and the file goes
 * with the last of them.
 */
void quota_file_leave(struct quota_seat *seat, bool is_empty);

/* ---- quota_view.c ---- */

struct quota_view {
	uint64_t total, used, claimed; /* claimed: by others */
	uint64_t mine;                 /* of the bytes used */
	uint64_t part;                 /* what each rank may have in any case */
	uint64_t spare, ending;        /* what others have and do not use, and what is pinned by those who end */
	uint64_t owed;                 /* to others below their part */
	uint64_t wanted;               /* by others, whatever they have */
	unsigned ranks, index;         /* index: of our own slot */
	bool lower_claim;              /* one in a lower slot claims something */
};

static inline uint64_t quota_smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

enum quota_looked {
	QUOTA_GOOD,
	QUOTA_LOST,     /* the file, or our slot in it */
	QUOTA_NONSENSE, /* another has written what cannot be */
};
/* Adds up what the slots say. *ret_view is set only if the answer is QUOTA_GOOD. */
enum quota_looked quota_view_look(const struct quota_seat *at, struct quota_view *ret_view);
/* Is the slot still ours? */
enum quota_looked quota_view_check_own(const struct quota_seat *at, const struct quota_slot *slot);
/* What is left of the total. gone: what is taken, or as good as. */
uint64_t quota_view_room(const struct quota_view *view, uint64_t gone);
/* Would that many bytes fit, and is it our turn? */
bool quota_view_fits(const struct quota_view *view, uint64_t gone, uint64_t bytes);

#endif
