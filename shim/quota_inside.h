/*
 * quota_inside.h: the file that quota.h speaks of, and finding a place in it. For quota.c, quota_file.c and their tests.
 *
 * The file is host.quota, or host-DOMAIN.quota, mode 0600. Its first number is its size, the second the version; nothing
 * else is promised between versions. It belongs to those who have a slot in it; the last to leave removes it.
 *
 * A slot is taken where its stamp is not 0, and a stamp is never used twice: whoever finds its process gone changes the
 * stamp to 0 by compare-and-exchange, and that is all it takes to give its bytes back. What else is in it is set to 0 by
 * the next to take it.
 *
 * Kernel locks on the file (open file description locks): byte 0 is held for a moment by who joins or leaves, byte 1 + i
 * by the process in slot i as long as it lives. The kernel drops them with the process, however it ends.
 */
#ifndef SPILLWAY_QUOTA_INSIDE_H
#define SPILLWAY_QUOTA_INSIDE_H

#include "shim/quota.h"

#include <sys/types.h>

#define QUOTA_VERSION 1
#define QUOTA_MAGIC   0x5753514f54410a31u
#define QUOTA_SLOTS   256
#define QUOTA_TAIL    ".quota"
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
} __attribute__((aligned(128)));

struct quota_page {
	uint64_t bytes, version, magic;
	_Atomic uint64_t total, given; /* given: by a policy, not computed */
	_Atomic uint64_t next_stamp;
	_Atomic uint64_t
	    asked_until; /* the latest wanted_until of all: while it is past there is nothing to look for */
	struct quota_slot slot[QUOTA_SLOTS];
};

/*
 * ns: so long a claim of another is waited for; so long others know of a refusal (who still wants asks again); and so
 * often who is refused looks for the dead. Tests make the first two longer and the last one nothing.
 */
extern uint64_t quota_patience, quota_want_lasts, quota_sweep_every;

/* A place in the file. */
struct quota_seat {
	struct quota_page *page;
	unsigned index;
	uint64_t stamp;
	uint64_t space;
	int fd;
	dev_t device; /* of the file: the program may have closed our descriptor, and opened another of its number */
	ino_t inode;
	char name[40];
};

/*
 * Open the file, make it where there is none, and take a slot. 0, or a negative errno: -EPROTO its contents are none of
 * ours, -ENOSPC all slots are taken (or there is no room for the file). Frees the slots of the dead on the way.
 */
int quota_file_join(const struct quota_terms *terms, struct quota_seat *ret_seat);
/* Has the process in that slot, not our own, gone? */
bool quota_file_is_gone(const struct quota_seat *seat, unsigned index);
/* Free the slots of the dead; how many there were. */
unsigned quota_file_sweep(const struct quota_seat *seat);
/*
 * The end: the slot is freed, if it holds nothing and may_free, or marked as one of a process that ends; and the file goes
 * with the last of them.
 */
void quota_file_leave(struct quota_seat *seat, bool may_free);

#endif
