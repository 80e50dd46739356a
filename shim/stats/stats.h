// SPDX-License-Identifier: Apache-2.0
/*
 * stats.h: counts all figures of the process. stats.def lists them; stats_page.h defines the page that holds them.
 * Calls of entry points, which are counted on the launch path, are kept separately, in padded stripes by thread:
 * threads share 16 of them, and some have one of their own (stats_own_stripe).
 *
 * While the program runs, two counters need not be consistent with each other to the byte.
 *
 * Locking: the counters take no lock; they are relaxed atomics.
 */
#ifndef SPILLWAY_STATS_H
#define SPILLWAY_STATS_H

#include "shim/driver/real.h"
#include "shim/stats/stats_page.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

struct call_site;

#define STATS_SHARED  16 /* stripes that threads share; each of the others has one thread */
#define STATS_STRIPES 32

/* Written by the threads that have the stripe, read by any (stats_submissions() says in which order). */
struct stats_stripe {
	_Atomic uint64_t calls[HOOK_COUNT];
} __attribute__((aligned(64)));

/* The page. From stats_open() on it is a mapping of the file, at the same address. */
extern struct stats_page stats;
extern struct stats_stripe stats_stripes[STATS_STRIPES];
extern __thread unsigned stats_my_stripe __attribute__((tls_model("initial-exec"))); /* stripe + 1; 0 = none yet */

/*
 * The file of the page, for stats_file.c. Used by one thread at a time: under START at first, then by the thread that
 * looks once a second, and at the end.
 */
extern struct stats_file {
	bool is_there;
	pid_t owner;
	char name[64];
	char path[300];  /* path of the file at its creation; empty: not known */
	char leave[200]; /* SPILLWAY_FIGURES: where a copy is left at the end; empty: nowhere */
	dev_t device;
	ino_t inode;
} stats_file;

unsigned stats_take_stripe(void);

/* Counts a call of a hooked entry point. On the launch path: one thread-local load, one uncontended atomic add. */
static inline void stats_call(enum hook_id id)
{
	unsigned stripe = stats_my_stripe;

	if (__builtin_expect(!stripe, 0))
		stripe = stats_take_stripe();
	atomic_fetch_add_explicit(&stats_stripes[stripe - 1].calls[id], 1, memory_order_relaxed);
}

static inline void stats_add(enum stats_counter stat, uint64_t n)
{
	atomic_fetch_add_explicit(&stats.counter[stat], n, memory_order_relaxed);
}

/* Returns the bucket of a histogram (stats_page.h) that a value counts in. */
static inline unsigned stats_bucket(uint64_t value)
{
	if (value < 8)
		return (unsigned)value;
	unsigned power = 63 - (unsigned)__builtin_clzll(value);
	unsigned bucket = (power - 2) * 8 + (unsigned)(value >> (power - 3) & 7);
	return bucket < STATS_BUCKETS ? bucket : STATS_BUCKETS - 1;
}

/*
 * From now on this thread counts its calls in a stripe that no other thread has. Returns its number, which is not 0; or
 * 0 if none is left: they are not given back when threads end.
 */
unsigned stats_own_stripe(void);
/*
 * Returns how many submissions the thread of such a stripe has begun since it has the stripe: launches, and the most
 * usual copies and sets. Any thread may ask. What the thread did before a call is visible to whoever sees the call
 * counted and then issues an acquire fence, if the thread has issued a release fence in between.
 */
uint64_t stats_submissions(unsigned stripe);
/*
 * Returns how many calls that submit work have begun, of all kinds and threads: what the caller knows to have been
 * called is counted. Takes some 0.1 us for each stripe that is in use.
 */
uint64_t stats_submitted(void);

/* Raises the most that a figure ever was. */
static inline void stats_raise(_Atomic uint64_t *most, uint64_t now)
{
	uint64_t known = atomic_load_explicit(most, memory_order_relaxed);

	while (now > known &&
	       !atomic_compare_exchange_weak_explicit(most, &known, now, memory_order_relaxed, memory_order_relaxed))
		;
}

uint64_t stats_get(enum stats_counter stat);

/* Adds a time (ns) to a histogram. */
void stats_time(enum histogram histogram, uint64_t ns);

/* Live bytes by place. device: ordinal, or -1 for memory of no device. */
void stats_live_add(int device, enum place place, uint64_t bytes);
void stats_live_sub(int device, enum place place, uint64_t bytes);
uint64_t stats_live(enum place place);
uint64_t stats_peak(enum place place);

/*
 * ---- by device, backend, rule and site ----
 *
 * A site is a number for the combination of caller and size, rule (-1: none), backend (enum policy_use) and device. It
 * is found or created without a lock. If the table is full, its place in it is 0, "all others"; it still counts for
 * its device, backend and rule. caller NULL: not known. Site 0 is that of chunks that small
 * allocations share: it counts as STATS_SMALL only.
 */
unsigned stats_site(int device, unsigned backend, int rule, const struct call_site *caller, uint64_t bytes);
/*
 * Returns the site of tensors that were born at this line in memory that is counted for `site`; `site` itself if line
 * is NULL, or if its own place is 0.
 */
unsigned stats_site_of_tensors(unsigned site, const struct call_site *line);
/* Returns the site's place in the page's table. */
static inline unsigned stats_site_place(unsigned site)
{
	return site & (STATS_SITES - 1);
}
/* Count an allocation of `bytes`, of which `on_host` were placed on the host, and a free. */
void stats_made(unsigned site, uint64_t bytes, uint64_t on_host);
void stats_gone(unsigned site, uint64_t bytes);
/* Counts an allocation that has no memory yet; stats_grown() counts what it gets. */
void stats_reserved(unsigned site, uint64_t bytes);
/* Counts an allocation that grew in place. */
void stats_grown(unsigned site, uint64_t more);
/* Counts a refused request. */
void stats_refused(unsigned site);
/* A part of a piece, which counts for a site of its own (stats_site_of_tensors). */
struct stats_part {
	unsigned site;
	uint64_t bytes;
};
/*
 * Counts a migrated piece of memory of this site. again: it is back on the device within 10 s. parts: what of the bytes
 * counts for other sites of the same device, backend and rule, each site once. The piece is one of the site that has
 * most of it.
 */
void stats_moved(unsigned site, bool in, uint64_t bytes, bool again, const struct stats_part *parts, unsigned n_parts);
/* Counts a piece that was fetched from, or evicted to, memory that another device lends. */
void stats_moved_lent(int device, int lender, bool in, uint64_t bytes);
/* Counts the wait of a submission for memory of the site. */
void stats_waited(unsigned site, uint64_t us);
/* Count that a GPU uses an allocation of managed memory for the first time, and that the CPU touches it after that. */
void stats_managed_used(unsigned site);
void stats_managed_touched(unsigned site, uint64_t back_bytes);

/* ---- the page (stats_file.c) ---- */

struct stats_about {
	const char *policy, *policy_hash, *mode, *spillway; /* mode: spill.mode, until stats_set_mode() */
};
/*
 * Called once, when the process first uses CUDA memory: writes its identity to the page and creates the file. A
 * failure does not affect the program. Locking: the caller must hold START.
 */
void stats_open(const struct stats_about *about);
/*
 * Reads the command line, its words separated by blanks, cut if it is long; "" if it cannot be read. Returns the length
 * of the first word.
 */
size_t stats_read_words(char *room, size_t bytes);
/* The same; control characters become '?'. */
void stats_read_command(char *room, size_t bytes);
/* Writes the constant data of a device; called once for each. */
void stats_know_device(int ordinal, const char *name, const unsigned char uuid[16], uint64_t total);
void stats_know_rule(int rule, const char *name);
/* Sets the budgets of a device and of the host, and what is used of them. */
void stats_set_budgets(int ordinal, uint64_t budget, uint64_t used, uint64_t host_budget, uint64_t host_used);
/*
 * Sets the bytes of the blocks of which an allocator reports births and deaths; of them, those that are alive, and
 * those that have died.
 */
void stats_set_cache(int ordinal, uint64_t bytes, uint64_t alive, uint64_t dead);
/* Sets the bytes that a device lends to others. */
void stats_set_lent(int ordinal, uint64_t bytes);
/* Sets the kind of link between a device and one that may lend to it. */
void stats_know_link(int ordinal, int lender, enum stats_link_kind kind);
/* Sets the shared host budget of the user's processes: its size, the bytes used by all, and their number. */
void stats_set_share(uint64_t total, uint64_t used, uint64_t ranks);
void stats_set_state(enum stats_process_state state);
/* Sets spill.mode, of at most 7 characters; who reads the page sees the old one or the new one. */
void stats_set_mode(const char *mode);
/* Sets the line about page faults (stats_page_line). Only one thread at a time may call it. */
void stats_set_line(const char *line);
/* Creates the file again if it was removed, as at a log-out. Called once a second, by one thread at a time. */
void stats_find_again(void);
/* Called when the process ends: removes the file. */
void stats_close(void);
/* Called in the child of a fork: its counts are separate from the parent's and not visible to other processes. */
void stats_child(void);

/* Records an entry point that is in no list; each name counts once. */
void stats_unknown(const char *name);
/* One is called: it may submit work (stats_submitted). */
void stats_unknown_call(void);
/* Returns the recorded names, separated by blanks, or "". */
const char *stats_unknown_names(char *buffer, size_t bytes);

/*
 * How long submissions wait for memory that is being fetched.
 *
 * Two figures come from here. Each submission's own wait (STAT_wait_us and those by site) is summed over all of them,
 * so two threads that wait together count twice. STAT_waiting_us is the time during which at least one submission
 * waited: never more than the time that has passed. It grows while somebody waits, not only once a wait has ended.
 *
 * A process that is stopped (SIGSTOP, a debugger, a frozen cgroup, a suspended machine) does not wait for memory. A
 * waiting thread therefore looks at the clock every WAITING_LOOK_NS, and time between two looks counts up to
 * WAITING_MOST_NS (stats_page.h): more has passed only where the thread could not run.
 *
 * Locking: takes WAITING. Makes no driver call.
 */

#define WAITING_LOOK_NS (WAITING_MOST_NS / 2)

/* The wait of one submission, owned by the thread that waits. */
struct waiting {
	uint64_t began, looked; /* CLOCK_MONOTONIC */
	uint64_t ns;            /* counted so far */
};

void waiting_begin(struct waiting *waiting);
/* The caller must call this at least every WAITING_LOOK_NS while it waits. */
void waiting_look(struct waiting *waiting);
/* Ends a wait and counts it, also for the sites. Returns the time left out because the process was stopped, ns. */
uint64_t waiting_end(struct waiting *waiting, const unsigned sites[], unsigned n);

#endif
