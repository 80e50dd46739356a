/*
 * quota_internal.h: the shared file of quota.h, and finding a slot in it. For the quota*.c files and their tests.
 *
 * The file is host.quota, or host-DOMAIN.quota, mode 0600. Its first number is its size, the second the version, and
 * each process that uses it holds a lock on a byte behind the first; nothing else is promised between versions. It
 * belongs to the processes that have a slot in it; the last to leave removes it.
 *
 * It is read and written by pread() and pwrite(), never mapped: truncating a mapped file ends the processes that
 * touch it. Each number is 8 bytes, at a multiple of 8, and the kernel copies it whole on every processor we run on.
 * Each slot is written by its own process; by others only to free it or to carry it over, and then only under a lock
 * that its next owner needs.
 *
 * A slot is taken where its stamp is not 0, and a stamp is never used twice. A ticket names a process as long as it
 * shares, in any file: by its ticket a process finds the slot in which others have recorded what it holds.
 *
 * Kernel locks on the file (open file description locks): a process that joins or leaves holds byte 0 for a moment;
 * the process in slot i holds byte 1 + i as long as it lives. The kernel drops them with the process, however it
 * ends.
 *
 * A file can be lost: removed, as the whole folder is when its user logs out, or truncated. See quota_file_join().
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
	_Atomic uint64_t used;         /* bytes taken; this and all that follows is written by its process alone */
	_Atomic uint64_t claim;        /* bytes it is about to take: others count them as taken */
	_Atomic uint64_t spare;        /* of the bytes used: free for its next use */
	_Atomic uint64_t wanted;       /* bytes it would have with those that it was refused */
	_Atomic uint64_t wanted_until; /* CLOCK_MONOTONIC, ns: `wanted` is ignored after it */
	_Atomic uint64_t leaving;      /* it ends: no rank any more, but its bytes are still pinned */
	_Atomic uint64_t ticket; /* random; 0: only the lock shows that a process is alive, see quota_file_join() */
	_Atomic uint64_t carried_until; /* CLOCK_MONOTONIC, ns: until then it may be without its lock; 0: not carried */
} __attribute__((aligned(128)));

struct quota_head {
	_Atomic uint64_t bytes, version, magic;
	_Atomic uint64_t total, given; /* given: by a policy, not computed */
	_Atomic uint64_t next_stamp;
	_Atomic uint64_t asked_until; /* the latest wanted_until of all: once past, no slot wants anything */
	_Atomic uint64_t slots;       /* all slots that have ever been taken lie below; it only grows */
	_Atomic uint64_t complete;    /* not 0: the contents of removed files have been carried over into this one */
	_Atomic uint64_t moved; /* not 0: all slots have been carried over into another file; nothing is taken here */
} __attribute__((aligned(128)));

struct quota_page {
	struct quota_head head;
	struct quota_slot slot[QUOTA_SLOTS];
};

/* A place in the file. */
struct quota_seat {
	unsigned index;
	uint64_t stamp, ticket;
	uint64_t space;
	int fd;       /* -1: none */
	dev_t device; /* of the file: the program may have closed our descriptor, and reopened its number */
	ino_t inode;
	char name[40];
};

/*
 * Finds the file that is in use, in any of the places where it may lie (user_dir_open_place()), or makes one, and
 * takes a slot in it that says `held` bytes are taken. seat: as it was; if it is a seat in a file that was lost, that
 * seat is given up.
 *
 * Nothing that a process holds is forgotten on the way. The contents of a removed file are carried over, for all
 * processes that have a slot there, by the first of them that comes, or by a new process: it finds a removed file by
 * the descriptors of this user's processes in /proc (but not those of processes in other PID namespaces, or hidden).
 * The other processes with a slot there find `moved` when they next take or look, and follow. In a file that was
 * truncated the locks still show which slots are taken, and each of them counts as the whole total until its process
 * has come back.
 *
 * Returns 0, or a negative errno, with the seat as it was: -EBUSY if the lock of byte 0 could not be had in time, or
 * at once without `patient`; -EPROTO if the contents are not ours; -EPROTONOSUPPORT if another version of this
 * library uses the file, which has been logged; -ENOSPC if all slots are taken (or there is no space for the file).
 */
int quota_file_join(const struct quota_terms *terms, struct quota_seat *seat, uint64_t held, bool patient);
/* Says once why the total is another one than the policy's. Totals that were computed differ by chance. */
void quota_file_say_total(const struct quota_seat *seat, uint64_t total);
/* Returns true if the descriptor is still that of the file. */
bool quota_file_is_open(const struct quota_seat *seat);
/* As quota_file_is_open(), and the file has the length that it must have. */
bool quota_file_is_whole(const struct quota_seat *seat);
/* As quota_file_is_open(), and the file has a name. */
bool quota_file_is_there(const struct quota_seat *seat);

/*
 * Read the head, or n slots from number `first` on. Return false if the file is lost. As with relaxed atomics, the
 * order of the reads is not defined: quota_file_fence() between two reads, or a write and a read, orders them.
 */
#define QUOTA_SLOTS_READ 16 /* at once, at most: 2 KiB of the stack */
bool quota_file_read_head(const struct quota_seat *seat, struct quota_head *ret_head);
bool quota_file_read_slots(const struct quota_seat *seat, unsigned first, unsigned n, struct quota_slot *ret_slots);
void quota_file_fence(void);
/*
 * Writes one number of our own slot, or of the head: QUOTA_SLOT(seat, used), QUOTA_HEAD(asked_until). Returns false
 * on failure.
 */
bool quota_file_write(const struct quota_seat *seat, size_t offset, uint64_t value);
#define QUOTA_HEAD(field) offsetof(struct quota_head, field)
#define QUOTA_SLOT(seat, field)                                                                                        \
	(offsetof(struct quota_page, slot) + (seat)->index * sizeof(struct quota_slot) +                               \
	 offsetof(struct quota_slot, field))

/* Frees the slots of dead processes. Returns how many there were. */
unsigned quota_file_sweep(const struct quota_seat *seat);
/*
 * At the end of the process: frees the slot if it holds nothing (is_empty), else marks it as leaving. The last to
 * leave removes the file.
 */
void quota_file_leave(struct quota_seat *seat, bool is_empty);

/* ---- quota_view.c ---- */

struct quota_view {
	uint64_t total, used, claimed; /* claimed: by others */
	uint64_t mine;                 /* the bytes used by us */
	uint64_t part;                 /* what each rank may have in any case */
	uint64_t spare, ending;        /* spare: of others, unused; ending: pinned by processes that end */
	uint64_t owed;                 /* to others, whose part would serve what they were refused */
	uint64_t wanted;               /* by others, whatever they have and want */
	unsigned ranks, index;         /* index: of our own slot */
	bool lower_claim;              /* a process in a lower slot claims something */
};

static inline uint64_t quota_smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

enum quota_looked {
	QUOTA_GOOD,
	QUOTA_LOST,     /* the file, or our slot in it, is lost */
	QUOTA_NONSENSE, /* another process has written an impossible number */
};
/* Adds up all slots. Sets *ret_view only if it returns QUOTA_GOOD. */
enum quota_looked quota_view_look(const struct quota_seat *at, struct quota_view *ret_view);
/* Is the slot still ours? */
enum quota_looked quota_view_check_own(const struct quota_seat *at, const struct quota_slot *slot);
/* Returns what is left of the total. gone: bytes that are taken or count as taken. */
uint64_t quota_view_room(const struct quota_view *view, uint64_t gone);
/* Returns true if our part would serve that many bytes more. */
bool quota_view_is_part(const struct quota_view *view, uint64_t bytes);
/* Returns true if that many bytes fit, and are not owed to others. */
bool quota_view_fits(const struct quota_view *view, uint64_t gone, uint64_t bytes);

#endif
