/*
 * stats.h: counting. What is counted is in stats.def, where it lies in stats_page.h. No lock: relaxed atomics. Calls of entry points, which are counted
 * on the launch path, lie apart, in one of 16 padded stripes by thread.
 *
 * Figures of two counters read at different moments need not fit together to the byte while the program runs.
 */
#ifndef SPILLWAY_STATS_H
#define SPILLWAY_STATS_H

#include "shim/driver/real.h"
#include "shim/stats/stats_page.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define STATS_STRIPES 16

struct stats_stripe {
	_Atomic uint64_t calls[HOOK_COUNT];
} __attribute__((aligned(64)));

/* The page. From stats_open() on it is the file's memory, at the same address. */
extern struct stats_page stats;
extern struct stats_stripe stats_stripes[STATS_STRIPES];
extern __thread unsigned stats_my_stripe __attribute__((tls_model("initial-exec"))); /* stripe + 1; 0 = none yet */

unsigned stats_take_stripe(void);

/* A hooked entry point was reached. On the launch path: one thread-local load, one uncontended atomic add. */
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

uint64_t stats_get(enum stats_counter stat);
uint64_t stats_calls(enum hook_id id);

/* Something that began then (clock_now) took until now: into a histogram. */
void stats_time(enum histogram histogram, uint64_t begin);
/* Something took so many ns. */
void stats_took(enum histogram histogram, uint64_t ns);

/* Live bytes by place. device: ordinal, of what is nobody's -1. */
void stats_live_add(int device, enum place place, uint64_t bytes);
void stats_live_sub(int device, enum place place, uint64_t bytes);
uint64_t stats_live(enum place place);
uint64_t stats_peak(enum place place);

/*
 * ---- by device, backend, rule and site (stats_site.c) ----
 *
 * A site is a number that stands for all four: who asks for so many bytes, under which rule (-1: none), served by which
 * backend (enum policy_use), on which device. Found or made without a lock. Where there is no room for one more its place
 * in the table is 0, "all others"; it counts for its device, backend and rule even so. caller NULL: not known. The first
 * time a caller is seen the loader is asked for its name. The number 0 is of chunks that small allocations share: it counts as STATS_SMALL alone.
 */
unsigned stats_site(int device, unsigned backend, int rule, void *caller, uint64_t bytes);
/* Its place in the page's table. */
static inline unsigned stats_site_place(unsigned site)
{
	return site & (STATS_SITES - 1);
}
/* An allocation of that many bytes, of which some were placed on the host; and its end. */
void stats_made(unsigned site, uint64_t bytes, uint64_t on_host);
void stats_gone(unsigned site, uint64_t bytes);
/* It became longer in place. */
void stats_grown(unsigned site, uint64_t more);
/* Nobody served it. */
void stats_refused(unsigned site);
/* A piece of it has moved. again: it is back on the device within 10 s. */
void stats_moved(unsigned site, bool in, uint64_t bytes, bool again);
/* That piece came from memory that another device lends, or went there. */
void stats_moved_lent(int device, int lender, bool in, uint64_t bytes);
/* A submission waited for it. */
void stats_waited(unsigned site, uint64_t us);

/* ---- the page (stats_file.c) ---- */

struct stats_about {
	const char *policy, *policy_hash, *mode, *spillway;
};
/*
 * The process uses CUDA memory: say who it is, and let others see it where that can be done. Once, under START; never
 * fails for the program. visible: make the file.
 */
void stats_open(const struct stats_about *about, bool visible);
/* What does not change of a device; once. */
void stats_know_device(int ordinal, const char *name, const unsigned char uuid[16], uint64_t total);
void stats_know_rule(int rule, const char *name);
void stats_set_budget(int ordinal, uint64_t budget, uint64_t used);
/* What it lends to others. */
void stats_set_lent(int ordinal, uint64_t bytes);
/* What lies between a device and another one that is to lend to it. */
void stats_know_link(int ordinal, int lender, enum stats_link_kind kind);
void stats_set_host_budget(uint64_t budget, uint64_t used);
/* Of the host memory that processes of the user share: all there is, what is taken by all, how many they are. */
void stats_set_share(uint64_t total, uint64_t used, uint64_t ranks);
void stats_set_state(enum stats_state state);
/* The line about page faults (stats_page_line); by one thread at a time. */
void stats_set_line(const char *line);
/* About once a second, by one thread at a time: a file that was removed, as at a log-out, is made again. */
void stats_find_again(void);
/* The process ends: the file goes. Returns for how long it was there, ns. */
uint64_t stats_close(void);
/* In the child of a fork: what the child counts is its own, and nobody sees it. */
void stats_child(void);

/* Remember an entry point that no list knows; each name counts once. */
void stats_unknown(const char *name);
/* The kept names, separated by blanks; "" when there are none. */
const char *stats_unknown_names(char *buffer, size_t bytes);

#endif
