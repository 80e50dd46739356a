// SPDX-License-Identifier: Apache-2.0
/*
 * The summary: composes its lines from the statistics page. The first three always come: what was spilled, what it cost
 * as a share of the run, and one change, with the figures that support it. The cheapest change comes first: memory that
 * is free but beyond the budget, a cache that is dead in part, a mode that does not migrate, a mode that stops the GPU,
 * then the group of allocations that moves most. What the figures do not show is said to be not counted.
 */
#include "shim/stats/summary.h"
#include "shim/base/call_site.h"
#include "shim/base/log.h"

#include <stdarg.h>
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

enum { TEXT = 32, PART = 128, TEXTS = 8 };

/* A summary in the making: the page, what is added up of it, and room for texts while a line is made. */
struct draft {
	const struct stats_page *page;
	uint64_t now; /* CLOCK_MONOTONIC, ns */
	struct summary *summary;
	const struct stats_site *costliest; /* NULL: none */
	struct advice_figures of;
	double waited;              /* s: at least one submission waited */
	uint64_t cache, most_alive; /* bytes: what an allocator keeps that reports what is alive; the most that was */
	unsigned n_texts;
	char text[TEXTS][PART];
};

static unsigned long long counted(const struct draft *draft, enum stats_counter counter)
{
	return atomic_load(&draft->page->counter[counter]);
}

static uint64_t peak(const struct draft *draft, enum place place)
{
	return atomic_load(&draft->page->peak[place]);
}

static uint64_t figure_of(const struct stats_figures *figures, enum figure which)
{
	return atomic_load(&figures->figure[which]);
}

static double percent(double part, double whole)
{
	return whole > 0 ? 100 * part / whole : 0;
}

static double seconds(uint64_t us)
{
	return (double)us / 1e6;
}

/* Returns the bytes as text, valid for TEXTS more of them. */
static const char *size(struct draft *draft, uint64_t bytes)
{
	return log_bytes(draft->text[draft->n_texts++ % TEXTS], TEXT, bytes);
}

/* Returns part of a line, valid likewise; "" unless it is wanted. */
__attribute__((format(printf, 3, 4))) static const char *part_if(struct draft *draft, bool wanted, const char *format,
								 ...)
{
	char *room = draft->text[draft->n_texts++ % TEXTS];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(room, PART, wanted ? format : "", arguments);
	va_end(arguments);
	return room;
}

__attribute__((format(printf, 3, 4))) static void add(struct draft *draft, unsigned rank, const char *format, ...)
{
	struct summary *summary = draft->summary;
	va_list arguments;

	if (summary->n == sizeof(summary->line) / sizeof(summary->line[0]))
		return;
	struct summary_line *line = &summary->line[summary->n++];
	line->rank = rank;
	va_start(arguments, format);
	vsnprintf(line->text, sizeof(line->text), format, arguments);
	va_end(arguments);
}

bool summary_is_over(const struct stats_page *page)
{
	return atomic_load(&page->counter[STAT_spilled_allocations]) || atomic_load(&page->counter[STAT_moves_out]);
}

static struct draft draft_of(const struct stats_page *page, uint64_t now, struct summary *summary)
{
	const struct stats_site *site = summary_costliest(page);
	struct draft draft = {.page = page, .now = now, .summary = summary, .costliest = site};

	draft.waited = seconds(stats_page_get(page, STAT_waiting_us, now));
	draft.of = (struct advice_figures){
	    .mode = page->mode,
	    .run = (double)(now - page->start_clock) / 1e9,
	    .stopped = seconds(counted(&draft, STAT_gap_us)),
	    .over = summary_is_over(page),
	    .moved = counted(&draft, STAT_moves_in) != 0,
	    .refused = counted(&draft, STAT_refused) > counted(&draft, STAT_limit_refused),
	    .by_total = atomic_load(&page->share_total) && counted(&draft, STAT_share_refused),
	    .need = figure_of(&page->backend[0], FIGURE_peak),
	    .vmm = counted(&draft, STAT_vmm_bytes),
	    .moved_in = counted(&draft, STAT_moved_in_bytes),
	    .worst_in = site ? figure_of(&site->figures, FIGURE_moved_in_bytes) : 0,
	    .worst_by_rule = site && site->least_bytes,
	    .worst_born = site && summary_is_of_tensors(site),
	};
	draft.of.lost = draft.waited > draft.of.stopped ? draft.waited : draft.of.stopped;
	for (unsigned i = 0; i < STATS_DEVICES; i++) {
		const struct stats_device *device = &page->device[i];

		/* Skip devices that were only queried: nothing was taken from their budget. */
		if (!atomic_load(&device->known) || !figure_of(&device->figures, FIGURE_peak))
			continue;
		draft.of.total += atomic_load(&device->total);
		draft.of.budget += atomic_load(&device->budget);
		draft.cache += atomic_load(&device->cache);
		draft.most_alive += atomic_load(&device->cache_most_alive);
	}
	if (draft.cache > draft.most_alive && !counted(&draft, STAT_stream_allocations))
		draft.of.dead = draft.cache - draft.most_alive;
	return draft;
}

/* Names the devices that were used: the first, and the number of further ones. */
static void say_who(struct draft *draft)
{
	const struct stats_page *page = draft->page;
	const char *first = "no device";
	unsigned n = 0;

	for (unsigned i = 0; i < STATS_DEVICES; i++)
		if (atomic_load(&page->device[i].known) && figure_of(&page->device[i].figures, FIGURE_allocations) &&
		    !n++)
			first = page->device[i].name;
	add(draft, 1, "  %.1f s, policy %s (%s), spill %s, %.63s%s", draft->of.run, page->policy, page->policy_hash,
	    page->mode, first, part_if(draft, n > 1, " and %u more", n - 1));
}

static void say_need(struct draft *draft)
{
	if (draft->of.need && draft->of.budget)
		add(draft, 1,
		    "  the heap held %s at most, %.2f of the device budget of %s (the device has %s); over it for "
		    "%.0f %% of the run",
		    size(draft, draft->of.need), (double)draft->of.need / (double)draft->of.budget,
		    size(draft, draft->of.budget), size(draft, draft->of.total),
		    percent(seconds(stats_page_get(draft->page, STAT_over_us, draft->now)), draft->of.run));
}

static void say_places(struct draft *draft)
{
	static const char *const names[] = {
#define PLACE(NAME, name, text) #name,
#include "shim/stats/stats.def"
	};

	for (unsigned place = 0; place < PLACE_COUNT; place++) {
		uint64_t limit = place == PLACE_DEVICE ? draft->of.budget
				 : place == PLACE_HOST ? atomic_load(&draft->page->host_budget)
						       : 0;

		if (peak(draft, place))
			add(draft, place <= PLACE_PEER ? 2 : 10 + place, "  %-7s %11s live at exit, %11s at most%s%s",
			    names[place], size(draft, atomic_load(&draft->page->live[place])),
			    size(draft, peak(draft, place)), limit ? ", budget " : "", limit ? size(draft, limit) : "");
	}
}

static void say_cache(struct draft *draft)
{
	if (draft->cache)
		add(draft, 5,
		    "  kept by the program's allocator: %s, of which at most %s were alive at once; what is dead moves "
		    "without a copy",
		    size(draft, draft->cache), size(draft, draft->most_alive));
}

/* Skips the line if host memory was neither shared nor short. */
static void say_share(struct draft *draft)
{
	const struct stats_page *page = draft->page;
	unsigned long long ranks = atomic_load(&page->share_most_ranks), refused = counted(draft, STAT_share_refused);

	if (page->share_total && (ranks > 1 || refused))
		add(draft, refused ? 3 : 7, "  host.total%s: %s of %s taken at most%s",
		    part_if(draft, ranks > 1, ", shared by %llu processes", ranks),
		    size(draft, atomic_load(&page->share_most_used)), size(draft, atomic_load(&page->share_total)),
		    part_if(draft, refused, "; there was no room for more %llu times", refused));
}

/* Skips the line if no allocation was refused. */
static void say_limit(struct draft *draft)
{
	unsigned long long refused = counted(draft, STAT_limit_refused);

	if (refused)
		add(draft, 3, "  refused by spill.limit: %llu allocations, %s", refused,
		    size(draft, counted(draft, STAT_limit_refused_bytes)));
}

/* Skips the line if no allocation was backed on use. */
static void say_on_use(struct draft *draft)
{
	unsigned long long whole = counted(draft, STAT_on_use_whole), refused = counted(draft, STAT_on_use_refused);

	if (peak(draft, PLACE_UNUSED))
		add(draft, refused || whole ? 3 : 7, "  place: on-use: %s taken, %s unused at most%s%s",
		    size(draft, counted(draft, STAT_on_use_bytes)), size(draft, peak(draft, PLACE_UNUSED)),
		    part_if(draft, whole, "; %llu times all that was missing (%s), as the reach was not known", whole,
			    size(draft, counted(draft, STAT_on_use_whole_bytes))),
		    part_if(draft, refused, "; %llu submissions found no memory", refused));
}

static void say_allocations(struct draft *draft)
{
	unsigned long long spilled = counted(draft, STAT_spilled_allocations);

	/* If there is also a line about peers, this line is one of the first to be dropped. */
	add(draft, peak(draft, PLACE_PEER) ? 10 : 3,
	    "  %llu allocations, %llu frees, %llu refused, %llu left to the driver", counted(draft, STAT_allocations),
	    counted(draft, STAT_frees), counted(draft, STAT_refused), counted(draft, STAT_passed));
	if (spilled)
		add(draft, 4, "  spilled %s in %llu allocations%s; %llu would have been out of memory",
		    size(draft, counted(draft, STAT_spilled_bytes)), spilled,
		    draft->of.moved ? "" : ": GPU reads of it go over the link", counted(draft, STAT_rescues));
	else
		add(draft, 4, "  nothing was spilled");
}

static void say_moves(struct draft *draft)
{
	uint64_t in = counted(draft, STAT_moved_in_bytes), out = counted(draft, STAT_moved_out_bytes),
		 to_peers = counted(draft, STAT_peer_out_bytes),
		 not_copied = counted(draft, STAT_dead_bytes) + counted(draft, STAT_discarded_bytes);
	double link = seconds(counted(draft, STAT_link_us)),
	       gigabytes = (double)(in + out > not_copied ? in + out - not_copied : 0) / 1e9;
	unsigned long long pieces = counted(draft, STAT_moves_in) + counted(draft, STAT_moves_out),
			   gaps = counted(draft, STAT_gaps), given_up = counted(draft, STAT_gaps_given_up);

	if (!pieces)
		return;
	add(draft, 5,
	    "  moved %s to the device%s %s to the host%s, in %llu pieces, %slink busy %.2f s: %.1f GB/s both ways "
	    "together",
	    size(draft, in), to_peers ? "," : " and", size(draft, out > to_peers ? out - to_peers : 0),
	    part_if(draft, to_peers, " and %s to other GPUs", size(draft, to_peers)), pieces,
	    part_if(draft, not_copied, "%s not copied, ", size(draft, not_copied)), link,
	    link > 0 ? gigabytes / link : 0);
	add(draft, 6, "  %llu submissions waited, %.2f s in all, for %.0f %% of the run at least one%s",
	    counted(draft, STAT_waits), seconds(counted(draft, STAT_wait_us)), percent(draft->waited, draft->of.run),
	    part_if(draft, gaps + given_up, "; the GPU was stopped %llu times, %.2f s (%.0f %%), tries given up: %llu",
		    gaps, draft->of.stopped, percent(draft->of.stopped, draft->of.run), given_up));
}

/* Skips the line if the process has no memory that faults. Faults that are not counted are n/a, not 0. */
static void say_faults(struct draft *draft)
{
	static const char none[] = "none: "; /* would repeat the n/a */
	const _Atomic uint64_t *fault = draft->page->fault;
	char source[STATS_LINE];

	if (!peak(draft, PLACE_MANAGED) && !peak(draft, PLACE_SYSTEM))
		return;
	stats_page_line(draft->page, source);
	if (fault[FAULT_GPU] == STATS_NA)
		add(draft, 7, "  page faults n/a: %s",
		    !*source ? "nothing counts them here"
			     : source + (strncmp(source, none, sizeof(none) - 1) ? 0 : sizeof(none) - 1));
	else
		add(draft, 7, "  %llu page faults of the GPU, %llu of the CPU, %s in and %s out (%s)",
		    (unsigned long long)fault[FAULT_GPU], (unsigned long long)fault[FAULT_CPU],
		    size(draft, fault[FAULT_IN_BYTES]), size(draft, fault[FAULT_OUT_BYTES]), source);
}

enum summary_touch summary_touch(const struct stats_page *page, const struct stats_site *site)
{
	if (figure_of(&site->figures, FIGURE_managed_touches))
		return SUMMARY_TOUCHED;
	if (!figure_of(&site->figures, FIGURE_managed_used))
		return SUMMARY_UNUSED;
	return page->fault[FAULT_LOST] || page->state != STATS_ENDED ? SUMMARY_TOUCH_UNKNOWN : SUMMARY_UNTOUCHED;
}

/* Skips the line if the program asked for no managed memory. What is not known is not said to be untouched. */
static void say_managed(struct draft *draft)
{
	const struct stats_page *page = draft->page;
	uint64_t back = 0, lost = page->fault[FAULT_LOST];
	unsigned n[SUMMARY_TOUCHES] = {0};

	for (const struct stats_site *site = page->site; site < page->site + STATS_SITES; site++) {
		n[summary_touch(page, site)]++;
		back += figure_of(&site->figures, FIGURE_managed_back_bytes);
	}
	unsigned used = STATS_SITES - n[SUMMARY_UNUSED];
	if (counted(draft, STAT_managed_left) && lost == STATS_NA)
		add(draft, 8,
		    "  managed memory: not known whether the CPU touches it after the GPU's first use; faults: events "
		    "tells, where the driver does");
	else if (used)
		add(draft, 7, "  managed memory: a GPU used that of %u site%s%s%s%s", used, used == 1 ? "" : "s",
		    part_if(draft, n[SUMMARY_UNTOUCHED],
			    "; of %u the CPU touched nothing after that (use: heap may fit)", n[SUMMARY_UNTOUCHED]),
		    part_if(draft, n[SUMMARY_TOUCHED], "; of %u the CPU brought back %s", n[SUMMARY_TOUCHED],
			    size(draft, back)),
		    part_if(draft, n[SUMMARY_TOUCH_UNKNOWN], "; of %u that is not known: %s", n[SUMMARY_TOUCH_UNKNOWN],
			    lost ? "events were lost" : "the process has not ended by itself"));
}

/* ---- what costs most ---- */

bool summary_is_of_tensors(const struct stats_site *site)
{
	return !site->least_bytes && *site->text;
}

void summary_describe(const struct stats_page *page, const struct stats_site *site, char *room, size_t bytes)
{
	char least[TEXT], most[TEXT], what[PART] = "tensors", rule[PART] = "", where[PART] = "";
	bool is_line = summary_is_of_tensors(site);

	if (site == &page->site[0] || site == &page->site[STATS_SMALL]) {
		snprintf(room, bytes, site == page->site ? "further allocations" : STATS_SMALL_TEXT);
		return;
	}
	if (!is_line)
		snprintf(what, sizeof(what), "%llu allocations of %s to %s",
			 (unsigned long long)figure_of(&site->figures, FIGURE_allocations),
			 log_bytes(least, sizeof(least), site->least_bytes),
			 log_bytes(most, sizeof(most), 2 * site->least_bytes));
	if (site->rule && site->rule < STATS_RULES)
		snprintf(rule, sizeof(rule), " under rule %.63s", page->rule[site->rule].name);
	if (*site->text)
		snprintf(where, sizeof(where), is_line ? " born at %.63s" : ", asked for at %.63s", site->text);
	snprintf(room, bytes, "%s%s%s", what, rule, where);
}

const struct stats_site *summary_costliest(const struct stats_page *page)
{
	const struct stats_site *most = NULL;

	for (const struct stats_site *site = page->site; site < page->site + STATS_SITES; site++)
		if (figure_of(&site->figures, FIGURE_moved_in_bytes) &&
		    (!most || figure_of(&site->figures, FIGURE_wait_us) > figure_of(&most->figures, FIGURE_wait_us)))
			most = site;
	return most;
}

static void say_costliest(struct draft *draft)
{
	const struct stats_site *site = draft->costliest;
	char what[240];

	if (!site)
		return;
	uint64_t in = figure_of(&site->figures, FIGURE_moved_in_bytes);
	summary_describe(draft->page, site, what, sizeof(what));
	add(draft, 8, "  costs most: %s: %s brought in (%.0f %% of all), waited for %.2f s", what, size(draft, in),
	    percent((double)in, (double)counted(draft, STAT_moved_in_bytes)),
	    seconds(figure_of(&site->figures, FIGURE_wait_us)));
}

/* ---- the first three lines ---- */

static void say_spilled(struct draft *draft)
{
	const char *where = !peak(draft, PLACE_PEER)   ? "on the host"
			    : !peak(draft, PLACE_HOST) ? "on other devices"
						       : "on the host and on other devices";
	unsigned long long n = counted(draft, STAT_refused);
	const char *refused = part_if(draft, n, "; %llu request%s ended in out of memory", n, n == 1 ? "" : "s");
	char spilled[240] = "nothing was spilled";

	if (draft->of.over)
		snprintf(spilled, sizeof(spilled), "spilled: %s lay %s at most, of %s in all; the device budget is %s",
			 size(draft, peak(draft, PLACE_HOST) + peak(draft, PLACE_PEER)), where,
			 size(draft, draft->of.need), size(draft, draft->of.budget));
	else if (draft->of.need && draft->of.budget)
		snprintf(spilled, sizeof(spilled),
			 "nothing was spilled: the heap held %s at most; the device budget is %s",
			 size(draft, draft->of.need), size(draft, draft->of.budget));
	add(draft, 0, "summary of process %llu%s: %s%s", (unsigned long long)draft->page->pid,
	    part_if(draft, *draft->page->rank, " (rank %s)", draft->page->rank), spilled, refused);
}

/* Time that kernels take longer because they read over the link is counted nowhere. */
static void say_cost(struct draft *draft)
{
	double off = seconds(counted(draft, STAT_unmoved_us));

	if (draft->of.over && !draft->of.moved)
		add(draft, 0,
		    "  cost: not known: nothing was moved to the device; kernels read it over the link, which nobody "
		    "times");
	else if (draft->of.over)
		add(draft, 0,
		    "  cost: %.1f %% of the run: for %.1f of %.1f s at least one submission waited for memory%s%s",
		    percent(draft->of.lost, draft->of.run), draft->waited, draft->of.run,
		    part_if(draft, draft->of.stopped > 0, ", the GPU was stopped for %.1f %%",
			    percent(draft->of.stopped, draft->of.run)),
		    part_if(draft, off > ADVICE_WORTH_IT * draft->of.run,
			    "; moving was switched off for %.0f %% of the run, what kernels read over the link then is "
			    "not counted",
			    off < draft->of.run ? percent(off, draft->of.run) : 100));
	else
		add(draft, 0, "  cost: no submission waited for memory%s",
		    peak(draft, PLACE_MANAGED) || peak(draft, PLACE_SYSTEM)
			? "; faulting pages cost time, which is not counted"
			: "");
}

/* ---- what to change ---- */

/* What a program that ends at its first refusal would have wanted next, a run that has enough shows. */
static void say_refused(struct draft *draft)
{
	const struct stats_page *page = draft->page;
	uint64_t least = 0;

	if (!draft->of.by_total) {
		add(draft, 0, "  change: memory ran out: see what to raise, where \"out of memory\" was said");
		return;
	}
	for (unsigned i = 0; i < STATS_SITES; i++)
		if (figure_of(&page->site[i].figures, FIGURE_refused) && page->site[i].least_bytes > least)
			least = page->site[i].least_bytes;
	add(draft, 0,
	    "  change: memory ran out at host.total, which was %s: at least %s are needed. Run once with host.total: "
	    "80%%: what %s",
	    size(draft, atomic_load(&page->share_total)), size(draft, atomic_load(&page->share_most_used) + least),
	    atomic_load(&page->share_most_ranks) > 1 ? "report: full then says was taken at most is enough"
						     : "then lies on the host at most is enough");
}

/* Returns the first of what applies. */
static enum advice choose_change(const struct draft *draft)
{
	enum advice found[ADVICES];

	advice_find(&draft->of, found);
	return found[0];
}

static void say_change(struct draft *draft)
{
	const struct stats_site *site = draft->costliest;
	char what[200] = "";

	if (site)
		summary_describe(draft->page, site, what, sizeof(what));
	switch (choose_change(draft)) {
	case ADVICE_VMM:
		add(draft, 0,
		    "  change: %s is of the program's own cuMemCreate, which does not move; " SUMMARY_VMM_REMEDY,
		    size(draft, counted(draft, STAT_vmm_bytes)));
		break;
	case ADVICE_REFUSED:
		say_refused(draft);
		break;
	case ADVICE_NOTHING:
		add(draft, 0, "  change: nothing");
		break;
	case ADVICE_CHEAP:
		add(draft, 0, "  change: nothing: it cost less than %.0f %% of the run", 100 * ADVICE_WORTH_IT);
		break;
	case ADVICE_BUDGET:
		add(draft, 0,
		    "  change: the device has %s and the heap needed %s: without device.budget nothing would have been "
		    "spilled, if nobody else needs that memory",
		    size(draft, draft->of.total), size(draft, draft->of.need));
		break;
	case ADVICE_CACHE:
		add(draft, 0,
		    "  change: %s of PyTorch's cache were dead at any time; the rest would have fitted: try "
		    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or torch.cuda.empty_cache() where it is full",
		    size(draft, draft->cache - draft->most_alive));
		break;
	case ADVICE_MOVE:
		add(draft, 0,
		    "  change: spill.mode: exact moves memory to where it is used; with static kernels read %s over "
		    "the link, each time",
		    size(draft, peak(draft, PLACE_HOST) + peak(draft, PLACE_PEER)));
		break;
	case ADVICE_FAST:
		add(draft, 0,
		    "  change: the GPU stood still for %.0f %% of the run; spill.mode: fast copies beside kernels (see "
		    "its limits in spillway-policy(5))",
		    percent(draft->of.stopped, draft->of.run));
		break;
	case ADVICE_SITE:
		add(draft, 0,
		    "  change: half of what moves is %s: if a step uses them once, a rule for them with place: host, "
		    "movable: no lets the rest stay; `spillway replay` of a trace says what it saves",
		    what);
		break;
	case ADVICE_LINE:
		add(draft, 0, "  change: half of what moves is %s%s", what,
		    call_site_names_backward(site->text)
			? ", which the backward pass makes: make them smaller, or free gradients earlier "
			  "(zero_grad(set_to_none=True))"
			: ": make them smaller, or free them earlier; `spillway report` of a trace says whether they "
			  "last from step to step");
		break;
	case ADVICE_UNKNOWN:
		add(draft, 0,
		    "  change: nothing that the figures show; `spillway run --trace job.trace ...` records what moves");
		break;
	}
}

enum advice summary_change(const struct stats_page *page, uint64_t now)
{
	struct draft draft = draft_of(page, now, NULL);

	return choose_change(&draft);
}

double summary_lost(const struct stats_page *page, uint64_t now)
{
	return draft_of(page, now, NULL).of.lost;
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

static struct draft first_lines(const struct stats_page *page, uint64_t now, struct summary *summary)
{
	struct draft draft = draft_of(page, now, summary);

	summary->n = 0;
	say_spilled(&draft);
	say_cost(&draft);
	say_change(&draft);
	return draft;
}

void summary_make_short(const struct stats_page *page, uint64_t now, struct summary *ret_summary)
{
	first_lines(page, now, ret_summary);
}

void summary_make(const struct stats_page *page, uint64_t now, const char *trace, struct summary *ret_summary)
{
	struct draft draft = first_lines(page, now, ret_summary);

	say_who(&draft);
	say_need(&draft);
	say_places(&draft);
	say_share(&draft);
	say_limit(&draft);
	say_on_use(&draft);
	say_cache(&draft);
	say_allocations(&draft);
	say_moves(&draft);
	say_faults(&draft);
	say_managed(&draft);
	say_costliest(&draft);
	if (trace)
		add(&draft, 9, "  more: spillway report %s", trace);
	else if (draft.of.over)
		add(&draft, 20, "  more: spillway run --trace job.trace ..., then spillway report job.trace");
	summary_shorten(ret_summary);
}
