// SPDX-License-Identifier: Apache-2.0
/*
 * quota.h: the quota: pinned host memory that the processes of one user share. Several processes are one job as a
 * rule, one for each GPU, and each of them would take half of the machine for itself.
 *
 * Who shares: the processes of one user that see the same private folder (user_dir.h) and live below the same memory
 * limit, which is that of the nearest cgroup above them that has one; without a limit, the machine's. They do by a
 * shared file (shared_file.h), host.quota or host-DOMAIN.quota, made with the first host memory. A process without host
 * memory has no slot in it, and nothing said here applies to it.
 *
 * What is promised, of processes that have a slot (ranks; n is their number, T the total):
 *  - The ranks together never take more than T, however many take at the same time. (A total that is lowered while
 *    they run takes nothing away; nothing more is given until the sum is below it.)
 *  - The exception: in the second after the file was lost a rank may be given what another holds that has not come back
 *    yet. Removed, as by a log-out: if that is in another PID namespace (a container that shares the folder), or its
 *    descriptors cannot be read in /proc. Truncated or overwritten: any. From then on nothing is given until the sum is
 *    below T. Who is stopped, or has `control: no`, comes back when it next takes, instead of within a second; while it
 *    holds its place in a truncated file nobody takes anything.
 *  - A rank that has no more than T/n, including what it asks for, is refused only while the bytes are not free. A
 *    rank that would have more is also refused the bytes that are owed to others: what they have lately (2 s) been
 *    refused, and with which they would have no more than T/n.
 *  - What a rank has pinned but does not use (its spare) goes back when another rank is short: at its next free, else
 *    within about a second, by its control thread (not with `control: no`). An allocation that would be out of memory
 *    waits for that, for 2.5 s at most, and only while others have spare, or are ending.
 *  - Memory in use is never taken away. So a rank that comes late may have to wait for what is owed to it until
 *    others free it, and what was taken while n was smaller stays.
 *  - The share of a process that is gone, killed or not, is looked for by ranks that are short, every 5 ms at most,
 *    and about once a second by all. A process that ends keeps its share until the kernel says that it is gone: its
 *    memory is pinned until then.
 *
 * A rank that is stopped while it takes keeps the others waiting for a second (shared_file.h). One that is stopped
 * while it makes the file keeps them out: they wait 2 s, log it once, and get no host memory until it goes on or ends.
 * None of them takes a budget of its own then.
 *
 * A file that another version of this library uses cannot be read, so it is unknown how much of the total is left.
 * This process then logs both versions once, and gets no host memory until the processes that use the file have
 * ended. Versions up to 2 take a budget of their own when they find a newer file.
 *
 * Any other fault of the file (nonsense in its slots, full, no file system for it) leaves this process its own budget,
 * and is logged once.
 *
 * The first take opens files. Not on the launch path. Changes errno: it is called by threads of the library, and inside
 * calls that restore it (enter_leave(), admit()). Cost: a take with its give is about thirty system calls on the file,
 * 15 us; changing the spare 2 to 3 us.
 *
 * Locking: takes QUOTA_TAKE and QUOTA_SEAT, among the threads of this process; QUOTA_SEAT is never held over a wait.
 * Other processes are waited for while they take, for microseconds.
 */
#ifndef SPILLWAY_QUOTA_H
#define SPILLWAY_QUOTA_H

#include "shim/accounting/shared_file.h"
#include "shim/base/lock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define QUOTA_VERSION 3
#define QUOTA_MAGIC   0x5753514f54410a31u
#define QUOTA_TAIL    ".quota"

/* The file. A total that a policy gives is fixed. */
struct quota_head {
	struct shared_head file;
	uint64_t asked_until; /* the latest wanted_until of all: once past, no slot wants anything */
};

struct quota_slot {
	struct shared_owner owner;
	uint64_t number;       /* identity_get() */
	uint64_t used;         /* bytes taken */
	uint64_t spare;        /* of them: free for its next use */
	uint64_t wanted;       /* bytes it would have with those that it was refused */
	uint64_t wanted_until; /* CLOCK_MONOTONIC, ns: `wanted` is ignored after it */
};

struct quota_page {
	struct quota_head head;
	struct quota_slot slot[SHARED_SLOTS];
};

struct quota_terms {
	uint64_t total;          /* what all may pin, as far as this process knows; that of the first process holds */
	bool given;              /* by the policy: it replaces a total that was computed */
	uint64_t domain;         /* domain of the memory limit (hostmem.h); 0: the machine's */
	_Atomic uint64_t *limit; /* set to the total that holds; NULL: the process has a budget of its own as well */
};

/* Makes this process share on these terms from now on. Makes no file. Locking: called once, under START. */
void quota_arrange(const struct quota_terms *terms);

/*
 * Leaves terms.limit as it is from now on, because the process gets a budget of its own. Locking: takes QUOTA_TAKE.
 */
void quota_keep_limit(void);

/* Takes bytes of what is shared. Returns false if they do not fit; always true where nothing is shared. */
bool quota_take(uint64_t bytes);
void quota_give(uint64_t bytes);
/* Returns what could be taken now; UINT64_MAX where nothing is shared, or nothing has been taken yet. */
uint64_t quota_left(void);
/*
 * Returns the total with which that many bytes more would be given to this process, beside what others have and have
 * lately been refused; 0 if they would be given now, or nothing is shared.
 */
uint64_t quota_enough(uint64_t bytes);

/* Of what was taken, changes the bytes that are free, kept for the next use, by `more` less `less`, to 0 at least. */
void quota_spare(uint64_t more, uint64_t less);
/* Returns true if any rank has been refused lately (2 s). */
bool quota_is_asked(void);
/* Returns how much of the spare ought to go back because others are short. Cheap where that is 0. */
uint64_t quota_owed(void);

/*
 * An allocation that needs this many bytes of host memory in all was refused: publishes that to the others, and waits
 * a little. *tries: 0 the first time. Returns false if waiting (longer) is useless.
 */
bool quota_wait(uint64_t bytes, unsigned *tries);

/* About once a second: looks for processes that are gone, and renews the figures (stats.h). */
void quota_tick(void);
/* Gives up the share at the end of the process. */
void quota_leave(void);
/*
 * In the child of a fork: drops the share, which is the parent's. The descriptor stays open, and with it the lock,
 * because the parent's pinned memory is there as long as this process (docs/facts.md, Two processes).
 * Async-signal-safe.
 */
void quota_child(void);

/* ---- for quota.c and its tests ---- */

struct quota_state {
	/* enum state of quota.c. Written under `taking`, and by the end of the process; any thread reads it. */
	_Atomic int state;
	/* Set once, before state. `total` and `limit` in it: guarded by `taking` from then on. */
	struct quota_terms terms;
	/* QUOTA_TAKE. Held while joining, and for one take at a time. Taken by threads that take host memory. */
	struct lock taking;
	/* QUOTA_SEAT. Orders the writes of the slot. Never held over a wait. */
	struct lock publishing;
	struct shared_file seat; /* Guarded by `publishing`; replaced under both locks. */
	/*
	 * What this process has taken, wants and does not use, whatever happens to the file. Guarded by `publishing`.
	 */
	struct quota_slot mine;
	uint64_t last_sweep; /* clock_now() of the last sweep_if_due() that was due. Guarded by `taking`. */
	/* Times in ns, constant but in tests, which change them. */
	uint64_t want_lasts;  /* how long a refusal is known to others; a process that still wants asks again */
	uint64_t sweep_every; /* how often a refused process looks for the dead */
	uint64_t patience;    /* how long the lock of the file is waited for */
};

extern struct quota_state quota_state __attribute__((visibility("hidden")));

#endif
