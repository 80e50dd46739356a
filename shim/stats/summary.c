/*
 * The summary: composes its lines from the statistics page. The first three always come: what was spilled, what it cost
 * as a share of the run, and one change, with the figures that support it. The cheapest change comes first: memory that
 * is free but beyond the budget, a mode that does not migrate, a mode that stops the GPU, then the group of allocations
 * that moves most. What the figures do not show is said to be not counted.
 */
#include "shim/stats/summary.h"
#include "shim/base/call_site.h"
#include "shim/base/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* ---- advice ---- */

/* Bytes that a default budget leaves free on the device (device.c), for contexts, libraries and arrays. */
#define DEVICE_RESERVE ((uint64_t)1 << 30)
/* Of a device whose memory is not known: up to this multiple of the budget there may be room for all. */
#define LITTLE_OVER 1.1

static bool has_room(const struct advice_figures *figures)
{
	if (!figures->total)
		return figures->need > figures->budget &&
		       (double)figures->need <= (double)figures->budget * LITTLE_OVER;
	return figures->total > DEVICE_RESERVE && figures->need < figures->total - DEVICE_RESERVE;
}

unsigned advice_find(const struct advice_figures *figures, enum advice ret[ADVICES])
{
	bool cheap = figures->moved && figures->lost < ADVICE_WORTH_IT * figures->run;
	unsigned n = 0;

	if (figures->vmm > figures->need && (figures->over || figures->refused))
		ret[n++] = ADVICE_VMM;
	if (figures->refused && (!figures->over || figures->by_total))
		ret[n++] = ADVICE_REFUSED;
	if (!figures->over || cheap) {
		ret[n++] = figures->over ? ADVICE_CHEAP : ADVICE_NOTHING;
		return n;
	}
	if (has_room(figures))
		ret[n++] = ADVICE_BUDGET;
	if (figures->dead && figures->need > figures->budget && figures->need - figures->dead <= figures->budget)
		ret[n++] = ADVICE_CACHE;
	if (!figures->moved && !strcmp(figures->mode, "static"))
		ret[n++] = ADVICE_MOVE;
	if (!strcmp(figures->mode, "exact") && figures->stopped > ADVICE_WORTH_IT * figures->run)
		ret[n++] = ADVICE_FAST;
	if (2 * figures->worst_in > figures->moved_in && (figures->worst_by_rule || figures->worst_born))
		ret[n++] = figures->worst_by_rule ? ADVICE_SITE : ADVICE_LINE;
	if (!n)
		ret[n++] = figures->refused ? ADVICE_REFUSED : ADVICE_UNKNOWN;
	return n;
}

/* ---- figures ---- */

#define TEXT 32

struct totals {
	double run; /* s */
	/* need: bytes. waiting_us: time during which at least one submission waited. */
	uint64_t device_total, budget, need, waiting_us, gap_us;
	uint64_t cache, most_alive; /* bytes: what an allocator keeps that reports what is alive; the most that was */
	uint64_t away;              /* bytes on the host and on other devices, at most */
	uint64_t fault[FAULT_COUNT];
	bool over;  /* memory requested on the device was on the host */
	bool moved; /* and came to the device */
};

__attribute__((format(printf, 3, 4))) static void add(struct summary *summary, unsigned rank, const char *format, ...)
{
	struct summary_line *line = &summary->line[summary->n];
	va_list arguments;

	if (summary->n == sizeof(summary->line) / sizeof(*line))
		return;
	line->rank = rank;
	va_start(arguments, format);
	vsnprintf(line->text, sizeof(line->text), format, arguments);
	va_end(arguments);
	summary->n++;
}

static unsigned long long summary_get(const struct stats_page *page, enum stats_counter counter)
{
	return atomic_load(&page->counter[counter]);
}

static uint64_t summary_figure(const struct stats_figures *figures, enum figure which)
{
	return atomic_load(&figures->figure[which]);
}

static double summary_share(double part, double whole)
{
	return whole > 0 ? 100 * part / whole : 0;
}

bool summary_is_over(const struct stats_page *page)
{
	return summary_get(page, STAT_spilled_allocations) || summary_get(page, STAT_moves_out);
}

static struct totals add_up(const struct stats_page *page, uint64_t now)
{
	struct totals totals = {.run = (double)(now - page->start_clock) / 1e9};

	for (unsigned i = 0; i < FAULT_COUNT; i++)
		totals.fault[i] = atomic_load(&page->fault[i]);
	for (unsigned i = 0; i < STATS_DEVICES; i++) {
		const struct stats_device *device = &page->device[i];

		/* Skip devices that were only queried: nothing was taken from their budget. */
		if (!atomic_load(&device->known) || !summary_figure(&device->figures, FIGURE_peak))
			continue;
		totals.device_total += atomic_load(&device->total);
		totals.budget += atomic_load(&device->budget);
		totals.cache += atomic_load(&device->cache);
		totals.most_alive += atomic_load(&device->cache_most_alive);
	}
	totals.need = summary_figure(&page->backend[0], FIGURE_peak);
	totals.waiting_us = stats_page_get(page, STAT_waiting_us, now);
	totals.gap_us = summary_get(page, STAT_gap_us);
	totals.away = atomic_load(&page->peak[PLACE_HOST]) + atomic_load(&page->peak[PLACE_PEER]);
	totals.over = summary_is_over(page);
	totals.moved = summary_get(page, STAT_moves_in) != 0;
	return totals;
}

/* Names the devices that were used: the first, and the number of further ones. */
static void name_devices(const struct stats_page *page, char *room, size_t bytes)
{
	unsigned n = 0;

	snprintf(room, bytes, "no device");
	for (unsigned i = 0; i < STATS_DEVICES; i++) {
		if (!atomic_load(&page->device[i].known) ||
		    !summary_figure(&page->device[i].figures, FIGURE_allocations))
			continue;
		if (!n++)
			snprintf(room, bytes, "%.63s", page->device[i].name);
	}
	if (n > 1)
		snprintf(room + strlen(room), bytes - strlen(room), " and %u more", n - 1);
}

static void say_who(const struct stats_page *page, const struct totals *totals, struct summary *summary)
{
	char devices[STATS_TEXT + 24];

	name_devices(page, devices, sizeof(devices));
	add(summary, 1, "  %.1f s, policy %s (%s), spill %s, %s", totals->run, page->policy, page->policy_hash,
	    page->mode, devices);
}

static void say_need(const struct stats_page *page, uint64_t now, const struct totals *totals, struct summary *summary)
{
	char need[TEXT], budget[TEXT], total[TEXT];

	if (!totals->need || !totals->budget)
		return;
	add(summary, 1,
	    "  the heap held %s at most, %.2f of the device budget of %s (the device has %s); over it for %.0f %% of "
	    "the run",
	    log_bytes(need, sizeof(need), totals->need), (double)totals->need / (double)totals->budget,
	    log_bytes(budget, sizeof(budget), totals->budget), log_bytes(total, sizeof(total), totals->device_total),
	    summary_share((double)stats_page_get(page, STAT_over_us, now) / 1e6, totals->run));
}

static void say_places(const struct stats_page *page, const struct totals *totals, struct summary *summary)
{
	static const char *const names[] = {
#define PLACE(NAME, name, text) #name,
#include "shim/stats/stats.def"
	};
	char live[TEXT], peak[TEXT], most[TEXT];

	for (unsigned place = 0; place < PLACE_COUNT; place++) {
		uint64_t limit = place == PLACE_DEVICE ? totals->budget
				 : place == PLACE_HOST ? atomic_load(&page->host_budget)
						       : 0;

		if (!atomic_load(&page->peak[place]))
			continue;
		add(summary, place <= PLACE_PEER ? 2 : 10 + place, "  %-7s %11s live at exit, %11s at most%s%s",
		    names[place], log_bytes(live, sizeof(live), atomic_load(&page->live[place])),
		    log_bytes(peak, sizeof(peak), atomic_load(&page->peak[place])), limit ? ", budget " : "",
		    limit ? log_bytes(most, sizeof(most), limit) : "");
	}
}

static void say_cache(const struct totals *totals, struct summary *summary)
{
	char cache[TEXT], most[TEXT];

	if (!totals->cache)
		return;
	add(summary, 5,
	    "  kept by the program's allocator: %s, of which at most %s were alive at once; what is dead moves without "
	    "a copy",
	    log_bytes(cache, sizeof(cache), totals->cache), log_bytes(most, sizeof(most), totals->most_alive));
}

/* Skips the line if host memory was neither shared nor short. */
static void say_share(const struct stats_page *page, struct summary *summary)
{
	unsigned long long ranks = atomic_load(&page->share_most_ranks),
			   refused = summary_get(page, STAT_share_refused);
	char used[TEXT], total[TEXT], who[64] = "", full[64] = "";

	if (!page->share_total || (ranks < 2 && !refused))
		return;
	if (ranks > 1)
		snprintf(who, sizeof(who), ", shared by %llu processes", ranks);
	if (refused)
		snprintf(full, sizeof(full), "; there was no room for more %llu times", refused);
	add(summary, refused ? 3 : 7, "  host.total%s: %s of %s taken at most%s", who,
	    log_bytes(used, sizeof(used), atomic_load(&page->share_most_used)),
	    log_bytes(total, sizeof(total), atomic_load(&page->share_total)), full);
}

/* Skips the line if no allocation was backed on use. */
static void say_on_use(const struct stats_page *page, struct summary *summary)
{
	unsigned long long whole = summary_get(page, STAT_on_use_whole),
			   refused = summary_get(page, STAT_on_use_refused);
	char taken[TEXT], unused[TEXT], bytes[TEXT], all[128] = "", full[80] = "";

	if (!atomic_load(&page->peak[PLACE_UNUSED]))
		return;
	if (whole)
		snprintf(all, sizeof(all), "; %llu times all that was missing (%s), as the reach was not known", whole,
			 log_bytes(bytes, sizeof(bytes), summary_get(page, STAT_on_use_whole_bytes)));
	if (refused)
		snprintf(full, sizeof(full), "; %llu submissions found no memory", refused);
	add(summary, refused || whole ? 3 : 7, "  place: on-use: %s taken, %s unused at most%s%s",
	    log_bytes(taken, sizeof(taken), summary_get(page, STAT_on_use_bytes)),
	    log_bytes(unused, sizeof(unused), atomic_load(&page->peak[PLACE_UNUSED])), all, full);
}

static void say_allocations(const struct stats_page *page, struct summary *summary)
{
	char spilled[TEXT];

	/* If there is also a line about peers, this line is one of the first to be dropped. */
	add(summary, atomic_load(&page->peak[PLACE_PEER]) ? 10 : 3,
	    "  %llu allocations, %llu frees, %llu refused, %llu left to the driver",
	    summary_get(page, STAT_allocations), summary_get(page, STAT_frees), summary_get(page, STAT_refused),
	    summary_get(page, STAT_passed));
	if (summary_get(page, STAT_spilled_allocations))
		add(summary, 4, "  spilled %s in %llu allocations%s; %llu would have been out of memory",
		    log_bytes(spilled, sizeof(spilled), summary_get(page, STAT_spilled_bytes)),
		    summary_get(page, STAT_spilled_allocations),
		    summary_get(page, STAT_moves_in) ? "" : ": GPU reads of it go over the link",
		    summary_get(page, STAT_rescues));
	else
		add(summary, 4, "  nothing was spilled");
}

static void say_moves(const struct stats_page *page, const struct totals *totals, struct summary *summary)
{
	char in[TEXT], out[TEXT], lent[TEXT], dead[TEXT];
	unsigned long long moved_out = summary_get(page, STAT_moved_out_bytes),
			   to_peers = summary_get(page, STAT_peer_out_bytes);
	double link = (double)summary_get(page, STAT_link_us) / 1e6;
	unsigned long long not_copied = summary_get(page, STAT_dead_bytes) + summary_get(page, STAT_discarded_bytes),
			   all = summary_get(page, STAT_moved_in_bytes) + moved_out;
	double gigabytes = (double)(all > not_copied ? all - not_copied : 0) / 1e9;

	if (!summary_get(page, STAT_moves_in) && !summary_get(page, STAT_moves_out))
		return;
	add(summary, 5,
	    "  moved %s to the device%s %s to the host%s%s%s, in %llu pieces, %s%slink busy %.2f s: %.1f GB/s both "
	    "ways together",
	    log_bytes(in, sizeof(in), summary_get(page, STAT_moved_in_bytes)), to_peers ? "," : " and",
	    log_bytes(out, sizeof(out), moved_out > to_peers ? moved_out - to_peers : 0), to_peers ? " and " : "",
	    to_peers ? log_bytes(lent, sizeof(lent), to_peers) : "", to_peers ? " to other GPUs" : "",
	    summary_get(page, STAT_moves_in) + summary_get(page, STAT_moves_out),
	    not_copied ? log_bytes(dead, sizeof(dead), not_copied) : "", not_copied ? " not copied, " : "", link,
	    link > 0 ? gigabytes / link : 0);
	if (summary_get(page, STAT_gaps) + summary_get(page, STAT_gaps_given_up))
		add(summary, 6,
		    "  %llu submissions waited, %.2f s in all, for %.0f %% of the run at least one; the GPU was "
		    "stopped %llu times, %.2f s (%.0f %%), tries given up: %llu",
		    summary_get(page, STAT_waits), (double)summary_get(page, STAT_wait_us) / 1e6,
		    summary_share((double)totals->waiting_us / 1e6, totals->run), summary_get(page, STAT_gaps),
		    (double)totals->gap_us / 1e6, summary_share((double)totals->gap_us / 1e6, totals->run),
		    summary_get(page, STAT_gaps_given_up));
	else
		add(summary, 6, "  %llu submissions waited, %.2f s in all, for %.0f %% of the run at least one",
		    summary_get(page, STAT_waits), (double)summary_get(page, STAT_wait_us) / 1e6,
		    summary_share((double)totals->waiting_us / 1e6, totals->run));
}

/* Strips "none: " from the source's line, which would repeat the n/a. */
static const char *why_none(const char *source)
{
	static const char none[] = "none: ";

	if (!*source)
		return "nothing counts them here";
	return strncmp(source, none, sizeof(none) - 1) ? source : source + sizeof(none) - 1;
}

/* Skips the line if the process has no memory that faults. Faults that are not counted are n/a, not 0. */
static void say_faults(const struct stats_page *page, const struct totals *totals, struct summary *summary)
{
	char in[TEXT], out[TEXT], source[STATS_LINE];

	if (!atomic_load(&page->peak[PLACE_MANAGED]) && !atomic_load(&page->peak[PLACE_SYSTEM]))
		return;
	if (totals->fault[FAULT_GPU] == STATS_NA)
		add(summary, 7, "  page faults n/a: %s", why_none(stats_page_line(page, source)));
	else
		add(summary, 7, "  %llu page faults of the GPU, %llu of the CPU, %s in and %s out (%s)",
		    (unsigned long long)totals->fault[FAULT_GPU], (unsigned long long)totals->fault[FAULT_CPU],
		    log_bytes(in, sizeof(in), totals->fault[FAULT_IN_BYTES]),
		    log_bytes(out, sizeof(out), totals->fault[FAULT_OUT_BYTES]), stats_page_line(page, source));
}

/* ---- what costs most ---- */

bool summary_is_of_tensors(const struct stats_site *site)
{
	return !site->least_bytes && *site->text;
}

void summary_describe(const struct stats_page *page, const struct stats_site *site, char *room, size_t bytes)
{
	char least[TEXT], most[TEXT];
	bool is_line = summary_is_of_tensors(site);
	int n;

	if (site == &page->site[0] || site == &page->site[STATS_SMALL]) {
		snprintf(room, bytes, site == page->site ? "further allocations" : STATS_SMALL_TEXT);
		return;
	}
	if (is_line)
		n = snprintf(room, bytes, "tensors");
	else
		n = snprintf(room, bytes, "%llu allocations of %s to %s",
			     (unsigned long long)summary_figure(&site->figures, FIGURE_allocations),
			     log_bytes(least, sizeof(least), site->least_bytes),
			     log_bytes(most, sizeof(most), 2 * site->least_bytes));
	if (site->rule && site->rule < STATS_RULES && n > 0 && (size_t)n < bytes)
		n += snprintf(room + n, bytes - (size_t)n, " under rule %.63s", page->rule[site->rule].name);
	if (*site->text && n > 0 && (size_t)n < bytes)
		snprintf(room + n, bytes - (size_t)n, is_line ? " born at %.63s" : ", asked for at %.63s", site->text);
}

const struct stats_site *summary_costliest(const struct stats_page *page)
{
	const struct stats_site *most = NULL;

	for (unsigned i = 0; i < STATS_SITES; i++) {
		const struct stats_site *site = &page->site[i];

		if (summary_figure(&site->figures, FIGURE_moved_in_bytes) &&
		    (!most ||
		     summary_figure(&site->figures, FIGURE_wait_us) > summary_figure(&most->figures, FIGURE_wait_us)))
			most = site;
	}
	return most;
}

static void say_costliest(const struct stats_page *page, const struct stats_site *site, struct summary *summary)
{
	char what[240], in[TEXT];

	if (!site)
		return;
	summary_describe(page, site, what, sizeof(what));
	add(summary, 8, "  costs most: %s: %s brought in (%.0f %% of all), waited for %.2f s", what,
	    log_bytes(in, sizeof(in), summary_figure(&site->figures, FIGURE_moved_in_bytes)),
	    summary_share((double)summary_figure(&site->figures, FIGURE_moved_in_bytes),
			  (double)summary_get(page, STAT_moved_in_bytes)),
	    (double)summary_figure(&site->figures, FIGURE_wait_us) / 1e6);
}

/* ---- the first three lines ---- */

static void say_spilled(const struct stats_page *page, const struct totals *totals, struct summary *summary)
{
	char away[TEXT], need[TEXT], budget[TEXT], refused[96] = "", rank[32] = "";
	const char *where = !atomic_load(&page->peak[PLACE_PEER])   ? "on the host"
			    : !atomic_load(&page->peak[PLACE_HOST]) ? "on other devices"
								    : "on the host and on other devices";

	if (summary_get(page, STAT_refused))
		snprintf(refused, sizeof(refused), "; %llu request%s ended in out of memory",
			 summary_get(page, STAT_refused), summary_get(page, STAT_refused) == 1 ? "" : "s");
	if (*page->rank)
		snprintf(rank, sizeof(rank), " (rank %s)", page->rank);
	if (totals->over)
		add(summary, 0,
		    "summary of process %llu%s: spilled: %s lay %s at most, of %s in all; the device budget is %s%s",
		    (unsigned long long)page->pid, rank, log_bytes(away, sizeof(away), totals->away), where,
		    log_bytes(need, sizeof(need), totals->need), log_bytes(budget, sizeof(budget), totals->budget),
		    refused);
	else if (totals->need && totals->budget)
		add(summary, 0,
		    "summary of process %llu%s: nothing was spilled: the heap held %s at most; the device budget is "
		    "%s%s",
		    (unsigned long long)page->pid, rank, log_bytes(need, sizeof(need), totals->need),
		    log_bytes(budget, sizeof(budget), totals->budget), refused);
	else
		add(summary, 0, "summary of process %llu%s: nothing was spilled%s", (unsigned long long)page->pid, rank,
		    refused);
}

/* Seconds for which a submission waited or the GPU was stopped, whichever is more: the two overlap. */
static double seconds_lost(const struct totals *totals)
{
	return (double)(totals->waiting_us > totals->gap_us ? totals->waiting_us : totals->gap_us) / 1e6;
}

/* Time that kernels take longer because they read over the link is counted nowhere. */
static void say_cost(const struct stats_page *page, const struct totals *totals, struct summary *summary)
{
	double waited = (double)totals->waiting_us / 1e6, stopped = (double)totals->gap_us / 1e6,
	       still = (double)summary_get(page, STAT_unmoved_us) / 1e6;
	char gaps[64] = "", off[128] = "";

	if (totals->gap_us)
		snprintf(gaps, sizeof(gaps), ", the GPU was stopped for %.1f %%", summary_share(stopped, totals->run));
	if (still > ADVICE_WORTH_IT * totals->run)
		snprintf(
		    off, sizeof(off),
		    "; moving was switched off for %.0f %% of the run, what kernels read over the link then is not "
		    "counted",
		    still < totals->run ? summary_share(still, totals->run) : 100);
	if (totals->over && !totals->moved)
		add(summary, 0,
		    "  cost: not known: nothing was moved to the device; kernels read it over the link, which nobody "
		    "times");
	else if (totals->over)
		add(summary, 0,
		    "  cost: %.1f %% of the run: for %.1f of %.1f s at least one submission waited for memory%s%s",
		    summary_share(seconds_lost(totals), totals->run), waited, totals->run, gaps, off);
	else if (atomic_load(&page->peak[PLACE_MANAGED]) || atomic_load(&page->peak[PLACE_SYSTEM]))
		add(summary, 0,
		    "  cost: no submission waited for memory; faulting pages cost time, which is not counted");
	else
		add(summary, 0, "  cost: no submission waited for memory");
}

/* ---- what to change ---- */

static bool ran_out_of_shared(const struct stats_page *page)
{
	return atomic_load(&page->share_total) && summary_get(page, STAT_share_refused);
}

/* What a program that ends at its first refusal would have wanted next, a run that has enough shows. */
static void say_refused(const struct stats_page *page, struct summary *summary)
{
	char total[TEXT], needed[TEXT];
	uint64_t least = 0;

	if (!ran_out_of_shared(page)) {
		add(summary, 0, "  change: memory ran out: see what to raise, where \"out of memory\" was said");
		return;
	}
	for (unsigned i = 0; i < STATS_SITES; i++)
		if (summary_figure(&page->site[i].figures, FIGURE_refused) && page->site[i].least_bytes > least)
			least = page->site[i].least_bytes;
	add(summary, 0,
	    "  change: memory ran out at host.total, which was %s: at least %s are needed. Run once with host.total: "
	    "80%%: what %s",
	    log_bytes(total, sizeof(total), atomic_load(&page->share_total)),
	    log_bytes(needed, sizeof(needed), atomic_load(&page->share_most_used) + least),
	    atomic_load(&page->share_most_ranks) > 1 ? "report: full then says was taken at most is enough"
						     : "then lies on the host at most is enough");
}

/* Returns the first of what applies. */
static enum advice choose_change(const struct stats_page *page, const struct totals *totals)
{
	const struct stats_site *site = summary_costliest(page);
	struct advice_figures figures = {
	    .mode = page->mode,
	    .run = totals->run,
	    .lost = seconds_lost(totals),
	    .stopped = (double)totals->gap_us / 1e6,
	    .over = totals->over,
	    .moved = totals->moved,
	    .refused = summary_get(page, STAT_refused),
	    .by_total = ran_out_of_shared(page),
	    .need = totals->need,
	    .budget = totals->budget,
	    .total = totals->device_total,
	    .vmm = summary_get(page, STAT_vmm_bytes),
	    .dead = totals->cache > totals->most_alive && !summary_get(page, STAT_stream_allocations)
			? totals->cache - totals->most_alive
			: 0,
	    .moved_in = summary_get(page, STAT_moved_in_bytes),
	    .worst_in = site ? summary_figure(&site->figures, FIGURE_moved_in_bytes) : 0,
	    .worst_by_rule = site && site->least_bytes,
	    .worst_born = site && summary_is_of_tensors(site),
	};
	enum advice found[ADVICES];

	advice_find(&figures, found);
	return found[0];
}

static void say_change(const struct stats_page *page, const struct totals *totals, struct summary *summary)
{
	char bytes[TEXT], total[TEXT], what[200];

	switch (choose_change(page, totals)) {
	case ADVICE_VMM:
		add(summary, 0,
		    "  change: %s is of the program's own cuMemCreate, which does not move; " SUMMARY_VMM_REMEDY,
		    log_bytes(bytes, sizeof(bytes), summary_get(page, STAT_vmm_bytes)));
		break;
	case ADVICE_REFUSED:
		say_refused(page, summary);
		break;
	case ADVICE_NOTHING:
		add(summary, 0, "  change: nothing");
		break;
	case ADVICE_CHEAP:
		add(summary, 0, "  change: nothing: it cost less than %.0f %% of the run", 100 * ADVICE_WORTH_IT);
		break;
	case ADVICE_BUDGET:
		add(summary, 0,
		    "  change: the device has %s and the heap needed %s: without device.budget nothing would have been "
		    "spilled, if nobody else needs that memory",
		    log_bytes(total, sizeof(total), totals->device_total),
		    log_bytes(bytes, sizeof(bytes), totals->need));
		break;
	case ADVICE_CACHE:
		add(summary, 0,
		    "  change: %s of PyTorch's cache were dead at any time; the rest would have fitted: try "
		    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or torch.cuda.empty_cache() where it is full",
		    log_bytes(bytes, sizeof(bytes), totals->cache - totals->most_alive));
		break;
	case ADVICE_MOVE:
		add(summary, 0,
		    "  change: spill.mode: exact moves memory to where it is used; with static kernels read %s over "
		    "the link, each time",
		    log_bytes(bytes, sizeof(bytes), totals->away));
		break;
	case ADVICE_FAST:
		add(summary, 0,
		    "  change: the GPU stood still for %.0f %% of the run; spill.mode: fast copies beside kernels (see "
		    "its limits in spillway-policy(5))",
		    summary_share((double)totals->gap_us / 1e6, totals->run));
		break;
	case ADVICE_SITE:
		summary_describe(page, summary_costliest(page), what, sizeof(what));
		add(summary, 0,
		    "  change: half of what moves is %s: if a step uses them once, a rule for them with place: host, "
		    "movable: no lets the rest stay; `spillway replay` of a trace says what it saves",
		    what);
		break;
	case ADVICE_LINE:
		summary_describe(page, summary_costliest(page), what, sizeof(what));
		add(summary, 0, "  change: half of what moves is %s%s", what,
		    call_site_names_backward(summary_costliest(page)->text)
			? ", which the backward pass makes: make them smaller, or free gradients earlier "
			  "(zero_grad(set_to_none=True))"
			: ": make them smaller, or free them earlier; `spillway report` of a trace says whether they "
			  "last from step to step");
		break;
	case ADVICE_UNKNOWN:
		add(summary, 0,
		    "  change: nothing that the figures show; `spillway run --trace job.trace ...` records what moves");
		break;
	}
}

enum advice summary_change(const struct stats_page *page, uint64_t now)
{
	struct totals totals = add_up(page, now);

	return choose_change(page, &totals);
}

double summary_lost(const struct stats_page *page, uint64_t now)
{
	struct totals totals = add_up(page, now);

	return seconds_lost(&totals);
}

static void say_more(const struct totals *totals, const char *trace, struct summary *summary)
{
	if (trace)
		add(summary, 9, "  more: spillway report %s", trace);
	else if (totals->over)
		add(summary, 20, "  more: spillway run --trace job.trace ..., then spillway report job.trace");
}

/* Drops the least important lines until SUMMARY_LINES are left. */
static void summary_shorten(struct summary *summary)
{
	while (summary->n > SUMMARY_LINES) {
		unsigned least = 0;

		for (unsigned i = 1; i < summary->n; i++)
			if (summary->line[i].rank > summary->line[least].rank)
				least = i;
		summary->n--;
		memmove(&summary->line[least], &summary->line[least + 1],
			(summary->n - least) * sizeof(summary->line[0]));
	}
}

void summary_make_short(const struct stats_page *page, uint64_t now, struct summary *ret_summary)
{
	struct totals totals = add_up(page, now);

	ret_summary->n = 0;
	say_spilled(page, &totals, ret_summary);
	say_cost(page, &totals, ret_summary);
	say_change(page, &totals, ret_summary);
}

void summary_make(const struct stats_page *page, uint64_t now, const char *trace, struct summary *ret_summary)
{
	struct totals totals = add_up(page, now);

	summary_make_short(page, now, ret_summary);
	say_who(page, &totals, ret_summary);
	say_need(page, now, &totals, ret_summary);
	say_places(page, &totals, ret_summary);
	say_share(page, ret_summary);
	say_on_use(page, ret_summary);
	say_cache(&totals, ret_summary);
	say_allocations(page, ret_summary);
	say_moves(page, &totals, ret_summary);
	say_faults(page, &totals, ret_summary);
	say_costliest(page, summary_costliest(page), ret_summary);
	say_more(&totals, trace, ret_summary);
	summary_shorten(ret_summary);
}
