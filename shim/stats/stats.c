// SPDX-License-Identifier: Apache-2.0
/*
 * Counters, histograms and gauges of the statistics page, and the names of unknown entry points, for which nothing
 * takes a lock; figures by site; and wait times of submissions.
 */
#include "shim/stats/stats.h"
#include "shim/base/call_site.h"
#include "shim/base/clock.h"
#include "shim/base/lock.h"

#include <sched.h>
#include <string.h>

struct stats_page stats = {.bytes = sizeof(struct stats_page), .version = STATS_VERSION, .magic = STATS_MAGIC};
struct stats_stripe stats_stripes[STATS_STRIPES];
struct stats_file stats_file;
#define N_UNKNOWN     8
#define UNKNOWN_BYTES 64

/*
 * Names of entry points that are in no list. No lock: whoever counts a name in `n` alone writes its text, then `ready`;
 * whoever reads `ready` first sees all of the text.
 */
static struct {
	char name[N_UNKNOWN][UNKNOWN_BYTES];
	atomic_uint n; /* names that were recorded, and those that found no room */
	atomic_bool ready[N_UNKNOWN];
	_Atomic uint64_t calls; /* of such entry points, which have no row to be counted in */
} unknown;

/* No lock: any thread adds, with relaxed order, and no other memory depends on what is read. */
static struct {
	atomic_uint next_stripe; /* counts threads; modulo STATS_SHARED it is the stripe of the next one */
	atomic_uint n_own;       /* threads that asked for a stripe of their own */
	_Atomic uint64_t away;   /* bytes on the host and on devices that lend memory */
} counts;

__thread unsigned stats_my_stripe __attribute__((tls_model("initial-exec")));

unsigned stats_take_stripe(void)
{
	return stats_my_stripe =
		   atomic_fetch_add_explicit(&counts.next_stripe, 1, memory_order_relaxed) % STATS_SHARED + 1;
}

unsigned stats_own_stripe(void)
{
	unsigned n = atomic_load_explicit(&counts.n_own, memory_order_relaxed);

	do {
		if (n == STATS_STRIPES - STATS_SHARED)
			return 0;
	} while (!atomic_compare_exchange_weak_explicit(&counts.n_own, &n, n + 1, memory_order_relaxed,
							memory_order_relaxed));
	return stats_my_stripe = STATS_SHARED + n + 1;
}

static const enum hook_id submissions[] = {
#define HOOK_LAUNCH(name, params, args) HOOK_##name,
#include "shim/driver/hooks.def"
    HOOK_cuMemcpyAsync,        HOOK_cuMemcpyAsync_ptsz,
    HOOK_cuMemcpyHtoDAsync_v2, HOOK_cuMemcpyHtoDAsync_v2_ptsz,
    HOOK_cuMemcpyDtoHAsync_v2, HOOK_cuMemcpyDtoHAsync_v2_ptsz,
    HOOK_cuMemcpyDtoDAsync_v2, HOOK_cuMemcpyDtoDAsync_v2_ptsz,
    HOOK_cuMemsetD8Async,      HOOK_cuMemsetD8Async_ptsz,
};

uint64_t stats_submissions(unsigned stripe)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < sizeof(submissions) / sizeof(submissions[0]); i++)
		sum += atomic_load_explicit(&stats_stripes[stripe - 1].calls[submissions[i]], memory_order_relaxed);
	return sum;
}

uint64_t stats_submitted(void)
{
	static const enum hook_id all[] = {
#define HOOK_SUBMIT(name, params, args)      HOOK_##name,
#define HOOK_SUBMIT_SYNC(name, params, args) HOOK_##name,
#include "shim/driver/hooks.def"
	};
	unsigned n_taken = atomic_load_explicit(&counts.next_stripe, memory_order_relaxed),
		 n_own = atomic_load_explicit(&counts.n_own, memory_order_relaxed);
	uint64_t sum = atomic_load_explicit(&unknown.calls, memory_order_relaxed);

	for (unsigned stripe = 0; stripe < STATS_SHARED + n_own; stripe++) {
		if (stripe >= n_taken && stripe < STATS_SHARED)
			continue;
		for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
			sum += atomic_load_explicit(&stats_stripes[stripe].calls[all[i]], memory_order_relaxed);
	}
	return sum;
}

uint64_t stats_get(enum stats_counter stat)
{
	return stats_page_get(&stats, stat, clock_now());
}

void stats_time(enum histogram histogram, uint64_t ns)
{
	atomic_fetch_add_explicit(&stats.histogram[histogram][stats_bucket(ns)], 1, memory_order_relaxed);
}

void stats_set_budgets(int ordinal, uint64_t budget, uint64_t used, uint64_t host_budget, uint64_t host_used)
{
	atomic_store_explicit(&stats.host_budget, host_budget, memory_order_relaxed);
	atomic_store_explicit(&stats.host_used, host_used, memory_order_relaxed);
	if ((unsigned)ordinal >= STATS_DEVICES)
		return;
	atomic_store_explicit(&stats.device[ordinal].budget, budget, memory_order_relaxed);
	atomic_store_explicit(&stats.device[ordinal].used, used, memory_order_relaxed);
}

/*
 * Integrates bytes over time without a lock and without reading old values: bytes that arrive at time t subtract
 * bytes x t, bytes that leave add it, and stats_page_get() adds the present bytes x now. The sums may overflow; their
 * difference is still correct.
 */
static void stats_weigh(uint64_t bytes, bool comes)
{
	uint64_t before = comes ? atomic_fetch_add_explicit(&counts.away, bytes, memory_order_relaxed)
				: atomic_fetch_sub_explicit(&counts.away, bytes, memory_order_relaxed);
	uint64_t after = comes ? before + bytes : before - bytes;
	uint64_t clock = clock_now(), now = clock - stats.start_clock, weight = bytes / 1024 * (now / 1000000);

	atomic_store_explicit(&stats.last_clock, clock, memory_order_relaxed);
	stats_add(STAT_host_time, comes ? -weight : weight);
	if (!before && after)
		stats_add(STAT_over_us, -(now / 1000));
	else if (before && !after)
		stats_add(STAT_over_us, now / 1000);
}

void stats_live_add(int device, enum place place, uint64_t bytes)
{
	stats_raise(&stats.peak[place],
		    atomic_fetch_add_explicit(&stats.live[place], bytes, memory_order_relaxed) + bytes);
	if ((unsigned)device < STATS_DEVICES)
		stats_raise(&stats.device[device].peak[place],
			    atomic_fetch_add_explicit(&stats.device[device].live[place], bytes, memory_order_relaxed) +
				bytes);
	if ((place == PLACE_HOST || place == PLACE_PEER) && bytes)
		stats_weigh(bytes, true);
}

void stats_live_sub(int device, enum place place, uint64_t bytes)
{
	atomic_fetch_sub_explicit(&stats.live[place], bytes, memory_order_relaxed);
	if ((unsigned)device < STATS_DEVICES)
		atomic_fetch_sub_explicit(&stats.device[device].live[place], bytes, memory_order_relaxed);
	if ((place == PLACE_HOST || place == PLACE_PEER) && bytes)
		stats_weigh(bytes, false);
}

uint64_t stats_live(enum place place)
{
	return atomic_load_explicit(&stats.live[place], memory_order_relaxed);
}

uint64_t stats_peak(enum place place)
{
	return atomic_load_explicit(&stats.peak[place], memory_order_relaxed);
}

void stats_unknown_call(void)
{
	atomic_fetch_add_explicit(&unknown.calls, 1, memory_order_relaxed);
}

void stats_unknown(const char *name)
{
	unsigned n = atomic_load(&unknown.n);

	for (unsigned i = 0; i < n && i < N_UNKNOWN; i++)
		if (atomic_load(&unknown.ready[i]) && !strncmp(unknown.name[i], name, UNKNOWN_BYTES - 1))
			return;
	n = atomic_fetch_add(&unknown.n, 1);
	if (n >= N_UNKNOWN)
		return;
	stats_add(STAT_unknown_names, 1);
	snprintf(unknown.name[n], UNKNOWN_BYTES, "%s", name);
	atomic_store(&unknown.ready[n], true);
}

const char *stats_unknown_names(char *buffer, size_t bytes)
{
	size_t at = 0;

	buffer[0] = 0;
	for (unsigned i = 0; i < N_UNKNOWN; i++) {
		if (!atomic_load(&unknown.ready[i]))
			continue;
		int n = snprintf(buffer + at, bytes - at, "%s%s", at ? " " : "", unknown.name[i]);
		if (n < 0 || at + (size_t)n >= bytes)
			break;
		at += (size_t)n;
	}
	return buffer;
}

/* ---- figures by device, backend, rule and site ---- */

/*
 * A site is found by its key in a table of the page with open addressing.
 * A free entry is taken by a compare-and-swap, and its state says when it is complete. A table of 256 is rarely full:
 * sizes are rounded to powers of two, and programs allocate device memory in few places. An allocation that finds no
 * entry counts as site 0, "all others", but still for its device, backend and rule: a site's number contains these as
 * well as the index in the table.
 *
 * Lines at which tensors are born are sites, too, by the device, backend and rule of the memory that the tensors lie
 * in. They have one entry for tensors of all sizes: a step makes many sizes in a line.
 */

enum {
	FREE,
	TAKEN,      /* its key and text are being written */
	WRITTEN,    /* its key and text are complete */
	TRIES = 64, /* entries examined: a full table must not cost a walk through all of it */
};

/*
 * Layout of a site's number: index in the table, device + 1, backend + 1 (each 0 if it has no figures), rule, and
 * KNOWN, which says that the number is not 0.
 */
enum { DEVICE_SHIFT = 8, BACKEND_SHIFT = 13, RULE_SHIFT = 16, KNOWN = 1 << 22 };
_Static_assert(!(STATS_RULES & (STATS_RULES - 1)) && STATS_SITES <= 1 << DEVICE_SHIFT &&
		   STATS_DEVICES < 1 << (BACKEND_SHIFT - DEVICE_SHIFT) &&
		   STATS_BACKENDS < 1 << (RULE_SHIFT - BACKEND_SHIFT) && STATS_RULES << RULE_SHIFT <= KNOWN,
	       "all of it fits");

/* Finds or creates an entry of the table. Returns its place; 0: the table is full. least: as in struct stats_site. */
static unsigned place_of(uint64_t device, unsigned backend, uint64_t rule, const struct call_site *caller,
			 uint64_t least)
{
	uint64_t who = caller ? (uintptr_t)caller->address : 0;
	uint64_t hash = ((caller ? caller->hash : 0) ^ device << 56 ^ (uint64_t)backend << 52 ^ rule << 44 ^ least) *
			0x9E3779B97F4A7C15u; /* 2^64 / golden ratio: spreads keys that differ in few bits */
	char text[STATS_TEXT] = "";          /* as the page has it, cut off */

	if (caller)
		strncpy(text, caller->text, sizeof(text) - 1);
	for (unsigned i = 0; i < TRIES; i++) {
		unsigned at = 1 + (unsigned)((hash >> 32) + i) % (STATS_SMALL - 1);
		struct stats_site *site = &stats.site[at];
		uint64_t known = atomic_load_explicit(&site->known, memory_order_acquire);

		if (known == FREE && atomic_compare_exchange_strong(&site->known, &known, TAKEN)) {
			site->caller = who;
			site->device = device;
			site->backend = backend;
			site->rule = rule;
			site->least_bytes = least;
			memcpy(site->text, text, sizeof(text));
			atomic_store_explicit(&site->known, WRITTEN, memory_order_release);
			return at;
		}
		while (known == TAKEN) { /* lasts a moment, at most once for each site */
			sched_yield();
			known = atomic_load_explicit(&site->known, memory_order_acquire);
		}
		if (site->caller == who && !strcmp(site->text, text) && site->device == device &&
		    site->backend == backend && site->rule == rule && site->least_bytes == least)
			return at;
	}
	return 0;
}

unsigned stats_site(int device, unsigned backend, int rule, const struct call_site *caller, uint64_t bytes)
{
	unsigned its = rule < 0 ? 0 : rule + 1 < STATS_RULES ? (unsigned)rule + 1 : STATS_RULES - 1;
	uint64_t least = bytes ? 1ull << (63 - __builtin_clzll(bytes)) : 1;
	unsigned number = KNOWN | its << RULE_SHIFT | place_of((uint64_t)device, backend, its, caller, least);

	if ((unsigned)device < STATS_DEVICES)
		number |= ((unsigned)device + 1) << DEVICE_SHIFT;
	if (backend < STATS_BACKENDS)
		number |= (backend + 1) << BACKEND_SHIFT;
	return number;
}

unsigned stats_site_of_tensors(unsigned site, const struct call_site *line)
{
	const struct stats_site *its = &stats.site[stats_site_place(site)];

	/* Of "all others" the table does not have the device, nor the rule. */
	if (!line || !stats_site_place(site))
		return site;
	return (site & ~(STATS_SITES - 1u)) | place_of(its->device, (unsigned)its->backend, its->rule, line, 0);
}

/* ---- one count, four tables ---- */

#define TABLES 4

/*
 * Returns the tables in which a site counts. Number 0, for chunks that small allocations share, has only STATS_SMALL.
 */
static unsigned tables_of(unsigned number, struct stats_figures *ret_tables[TABLES])
{
	unsigned device = number >> DEVICE_SHIFT & ((1u << (BACKEND_SHIFT - DEVICE_SHIFT)) - 1);
	unsigned backend = number >> BACKEND_SHIFT & ((1u << (RULE_SHIFT - BACKEND_SHIFT)) - 1);
	unsigned n = 0;

	ret_tables[n++] = &stats.site[number ? stats_site_place(number) : STATS_SMALL].figures;
	if (device)
		ret_tables[n++] = &stats.device[device - 1].figures;
	if (backend)
		ret_tables[n++] = &stats.backend[backend - 1];
	if (number & KNOWN)
		ret_tables[n++] = &stats.rule[number >> RULE_SHIFT & (STATS_RULES - 1)].figures;
	return n;
}

static void stats_site_add(struct stats_figures *figures, enum figure figure, uint64_t n)
{
	atomic_fetch_add_explicit(&figures->figure[figure], n, memory_order_relaxed);
}

struct change {
	enum figure figure;
	uint64_t n;
};

/* Adds to figures of a site, in all its tables. What lives may come to be more than ever. */
static void count_changes(unsigned site, const struct change *changes, size_t n_changes)
{
	struct stats_figures *tables[TABLES];

	for (unsigned n = tables_of(site, tables), i = 0; i < n; i++) {
		for (size_t j = 0; j < n_changes; j++) {
			_Atomic uint64_t *figure = tables[i]->figure;

			if (changes[j].figure == FIGURE_live && (int64_t)changes[j].n > 0)
				stats_raise(&figure[FIGURE_peak],
					    atomic_fetch_add_explicit(&figure[FIGURE_live], changes[j].n,
								      memory_order_relaxed) +
						changes[j].n);
			else if (changes[j].n)
				stats_site_add(tables[i], changes[j].figure, changes[j].n);
		}
	}
}
#define COUNT(site, ...)                                                                                               \
	count_changes(site, (const struct change[]){__VA_ARGS__},                                                      \
		      sizeof((const struct change[]){__VA_ARGS__}) / sizeof(struct change))

void stats_made(unsigned site, uint64_t bytes, uint64_t on_host)
{
	COUNT(site, {FIGURE_allocations, 1}, {FIGURE_allocated_bytes, bytes}, {FIGURE_spilled_bytes, on_host},
	      {FIGURE_live, bytes});
}

void stats_grown(unsigned site, uint64_t more)
{
	COUNT(site, {FIGURE_live, more});
}

void stats_reserved(unsigned site, uint64_t bytes)
{
	COUNT(site, {FIGURE_allocations, 1}, {FIGURE_allocated_bytes, bytes});
}

void stats_gone(unsigned site, uint64_t bytes)
{
	COUNT(site, {FIGURE_frees, 1}, {FIGURE_live, -bytes});
}

void stats_refused(unsigned site)
{
	COUNT(site, {FIGURE_refused, 1});
}

void stats_waited(unsigned site, uint64_t us)
{
	COUNT(site, {FIGURE_waits, 1}, {FIGURE_wait_us, us});
}

void stats_managed_used(unsigned site)
{
	COUNT(site, {FIGURE_managed_used, 1});
}

void stats_managed_touched(unsigned site, uint64_t back_bytes)
{
	COUNT(site, {FIGURE_managed_touches, 1}, {FIGURE_managed_back_bytes, back_bytes});
}

/* Returns the table of the site that has most of the piece. *ret_rest: bytes that no part has, which are `site`'s. */
static struct stats_figures *most_of(unsigned site, uint64_t bytes, const struct stats_part *parts, unsigned n,
				     uint64_t *ret_rest)
{
	struct stats_figures *tables[TABLES];
	uint64_t most = 0;
	unsigned whose = site;

	*ret_rest = bytes;
	for (unsigned i = 0; i < n; i++) {
		*ret_rest -= parts[i].bytes;
		if (parts[i].bytes > most) {
			most = parts[i].bytes;
			whose = parts[i].site;
		}
	}
	tables_of(*ret_rest >= most ? site : whose, tables);
	return tables[0];
}

void stats_moved(unsigned site, bool in, uint64_t bytes, bool again, const struct stats_part *parts, unsigned n_parts)
{
	const enum figure moves = in ? FIGURE_moves_in : FIGURE_moves_out;
	const enum figure moved = in ? FIGURE_moved_in_bytes : FIGURE_moved_out_bytes;
	struct stats_figures *tables[TABLES], *part[TABLES];
	unsigned n = tables_of(site, tables);
	uint64_t rest;

	for (unsigned i = 1; i < n; i++)
		stats_site_add(tables[i], moved, bytes);
	for (unsigned i = 0; i < n_parts; i++) {
		tables_of(parts[i].site, part);
		stats_site_add(part[0], moved, parts[i].bytes);
	}
	part[0] = tables[0];
	tables[0] = most_of(site, bytes, parts, n_parts, &rest);
	stats_site_add(part[0], moved, rest);
	for (unsigned i = 0; i < n; i++) {
		stats_site_add(tables[i], moves, 1);
		if (again)
			stats_site_add(tables[i], FIGURE_refetches, 1);
	}
	stats_add(in ? STAT_moved_in_bytes : STAT_moved_out_bytes, bytes);
	stats_add(in ? STAT_moves_in : STAT_moves_out, 1);
	if (again) {
		stats_add(STAT_refetches, 1);
		stats_add(STAT_refetched_bytes, bytes);
	}
}

void stats_moved_lent(int device, int lender, bool in, uint64_t bytes)
{
	stats_add(in ? STAT_peer_in_bytes : STAT_peer_out_bytes, bytes);
	if ((unsigned)device < STATS_DEVICES && (unsigned)lender < STATS_DEVICES)
		atomic_fetch_add_explicit(&stats.device[device].link[lender].figure[in ? LINK_IN : LINK_OUT], bytes,
					  memory_order_relaxed);
}

/* ---- wait times of submissions, and the time during which at least one waits ---- */

static struct {
	struct lock lock;   /* WAITING. Protects n_waiting and, for writers, stats.waiting_since with its counter. */
	unsigned n_waiting; /* submissions that wait */
} waits = {.lock = LOCK_INIT(LOCK_WAITING)};

static uint64_t waiting_counted(uint64_t since, uint64_t now)
{
	uint64_t ns = now > since ? now - since : 0;

	return ns < WAITING_MOST_NS ? ns : WAITING_MOST_NS;
}

/*
 * Changes the number of waiting threads, adds the time since the last check by any thread, and starts the next
 * interval. `since` is cleared first and set last: a reader in between sees a little less, and never counts time twice.
 * Returns the time. Locking: takes WAITING.
 */
static uint64_t waiting_count(int change)
{
	lock_take(&waits.lock);
	uint64_t now = clock_now(), since = atomic_load_explicit(&stats.waiting_since, memory_order_relaxed);
	waits.n_waiting += (unsigned)change;
	atomic_store(&stats.waiting_since, 0);
	if (since)
		stats_add(STAT_waiting_us, waiting_counted(since, now) / 1000);
	if (waits.n_waiting)
		atomic_store(&stats.waiting_since, now);
	lock_drop(&waits.lock);
	return now;
}

void waiting_begin(struct waiting *waiting)
{
	uint64_t now = waiting_count(1);

	*waiting = (struct waiting){.began = now, .looked = now};
}

static void look(struct waiting *waiting, int change)
{
	uint64_t now = waiting_count(change);

	waiting->ns += waiting_counted(waiting->looked, now);
	waiting->looked = now;
}

void waiting_look(struct waiting *waiting)
{
	look(waiting, 0);
}

uint64_t waiting_end(struct waiting *waiting, const unsigned sites[], unsigned n)
{
	look(waiting, -1);
	uint64_t us = waiting->ns / 1000;

	stats_add(STAT_waits, 1);
	stats_add(STAT_wait_us, us);
	atomic_fetch_add_explicit(&stats.histogram[HISTOGRAM_wait_ns][stats_bucket(waiting->ns)], 1,
				  memory_order_relaxed);
	for (unsigned i = 0; i < n; i++)
		stats_waited(sites[i], us);
	return waiting->looked - waiting->began - waiting->ns;
}
