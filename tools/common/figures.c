// SPDX-License-Identifier: Apache-2.0
/*
 * Names, units and arithmetic of the figures of one page, and readings over time. Each reading searches for all files
 * again; a process is recognised by its identity (shim/base/user_dir.h) and its owner.
 *
 * The process id of a process in another PID namespace (a container) that shares a stats folder with the tool means
 * nothing to the tool. Such a process holds a lock on its file (user_dir.h). Older releases held none; for them, a
 * process counts as alive if its figures change between two readings.
 */
#include "tools/common/figures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/base/clock.h"

const struct figures_name figures_counters[STAT_COUNT] = {
#define STAT(name, unit, text) [STAT_##name] = {#name, FIGURES_##unit, false, text, NULL, 0},
#include "shim/stats/stats.def"
};

enum { KIND_COUNTER = false, KIND_GAUGE = true };
const struct figures_name figures_tables[FIGURE_COUNT] = {
#define FIGURE(name, kind, unit, text) [FIGURE_##name] = {#name, FIGURES_##unit, KIND_##kind, text, NULL, 0},
#include "shim/stats/stats.def"
};

const struct figures_name figures_histograms[HISTOGRAM_COUNT] = {
#define HISTOGRAM(name, text) [HISTOGRAM_##name] = {#name, FIGURES_NS, false, text, NULL, 0},
#include "shim/stats/stats.def"
};

const struct figures_name figures_places[PLACE_COUNT] = {
#define PLACE(NAME, name, text) [PLACE_##NAME] = {#name, FIGURES_BYTES, true, text, NULL, 0},
#include "shim/stats/stats.def"
};

const struct figures_name figures_faults[FAULT_COUNT] = {
#define FAULT(NAME, name, unit, text) [FAULT_##NAME] = {#name, FIGURES_##unit, false, text, NULL, 0},
#include "shim/stats/stats.def"
};

const struct figures_name figures_links[LINK_COUNT] = {
#define LINK(NAME, name, unit, text) [LINK_##NAME] = {#name, FIGURES_##unit, false, text, NULL, 0},
#include "shim/stats/stats.def"
};

#define OF_PROCESS(ROW)                                                                                                \
	ROW(host_budget, BYTES, "pinned host memory the heap may take", NULL)                                          \
	ROW(host_used, BYTES, "of that: used", NULL)                                                                   \
	ROW(share_total, BYTES, "pinned host memory that processes of the user may take together", NULL)               \
	ROW(share_used, BYTES, "of that: used, by all of them", NULL)                                                  \
	ROW(share_ranks, COUNT, "processes that share it", NULL)

static const struct figures_name figures_of_process[] = {
#define ROW(name, unit, text, prom) {#name, FIGURES_##unit, true, text, prom, offsetof(struct stats_page, name)},
    OF_PROCESS(ROW)
#undef ROW
};

#define OF_DEVICE(ROW)                                                                                                 \
	ROW(total, BYTES, "memory of the device", "capacity")                                                          \
	ROW(budget, BYTES, "device memory the heap may take", NULL)                                                    \
	ROW(used, BYTES, "of that: used", NULL)                                                                        \
	ROW(lent, BYTES, "memory of the device that it lends to others", NULL)                                         \
	ROW(most_lent, BYTES, "the most of it that ever was", "lent_peak")                                             \
	ROW(cache, BYTES, "memory of which the program's allocator reports births and deaths", NULL)                   \
	ROW(cache_alive, BYTES, "of that: alive", NULL)                                                                \
	ROW(cache_most_alive, BYTES, "the most of it that ever was alive", "cache_alive_peak")                         \
	ROW(cache_dead, BYTES, "of that: has died, and moves without a copy", NULL)

static const struct figures_name figures_of_device[] = {
#define ROW(name, unit, text, prom) {#name, FIGURES_##unit, true, text, prom, offsetof(struct stats_device, name)},
    OF_DEVICE(ROW)
#undef ROW
};

static const struct figures_name figures_of_places[] = {
    {"live", FIGURES_BYTES, true, "live bytes, by place", "place", 0},
    {"peak", FIGURES_BYTES, true, "the most live bytes there ever were, by place", "place_peak", 0},
};

static const struct figures_name figures_of_device_places[] = {
    {"live", FIGURES_BYTES, true, "live bytes, by device and place", "place", 0},
};

#define COUNT(list) (sizeof(list) / sizeof(*(list)))
const struct figures_group_about figures_groups[GROUPS] = {
    [GROUP_PROCESS] = {figures_of_process, COUNT(figures_of_process), 1, ""},
    [GROUP_DEVICE] = {figures_of_device, COUNT(figures_of_device), STATS_DEVICES, "device_"},
    [GROUP_PLACES] = {figures_of_places, COUNT(figures_of_places), PLACE_COUNT, ""},
    [GROUP_DEVICE_PLACES] = {figures_of_device_places, 1, STATS_DEVICES *PLACE_COUNT, "device_"},
    [GROUP_COUNTERS] = {figures_counters, STAT_COUNT, 1, ""},
    [GROUP_FAULTS] = {figures_faults, FAULT_COUNT, 1, ""},
    [GROUP_DEVICE_FAULTS] = {figures_faults, FAULT_COUNT, STATS_DEVICES, "device_"},
    [GROUP_LINKS] = {figures_links, LINK_COUNT, STATS_DEVICES *STATS_DEVICES, "link_"},
    [GROUP_DEVICES] = {figures_tables, FIGURE_COUNT, STATS_DEVICES, "device_"},
    [GROUP_BACKENDS] = {figures_tables, FIGURE_COUNT, STATS_BACKENDS, "backend_"},
    [GROUP_RULES] = {figures_tables, FIGURE_COUNT, STATS_RULES, "rule_"},
    [GROUP_SITES] = {figures_tables, FIGURE_COUNT, STATS_SITES, "site_"},
};

/* The suffix of a name in its own unit and in the base unit, and the value of one unit in base units. */
const struct figures_unit_about figures_units[] = {
    [FIGURES_COUNT] = {"", "", "", 1},
    [FIGURES_BYTES] = {"bytes", "_bytes", "_bytes", 1},
    [FIGURES_US] = {"microseconds", "_us", "_seconds", 1e-6},
    [FIGURES_KIB_MS] = {"KiB x ms", "", "_byte_seconds", 1.024},
    [FIGURES_NS] = {"nanoseconds", "_ns", "_duration_seconds", 1e-9}, /* a suffix that no counter of seconds has */
};

const char *figures_prom_name(const struct figures_name *name, const char *table, char room[FIGURES_PROM])
{
	const char *tail = figures_units[name->unit].tail, *text = name->prom ? name->prom : name->name;
	size_t length = strlen(text), tail_length = strlen(tail);

	if (length > tail_length && !strcmp(text + length - tail_length, tail))
		length -= tail_length;
	snprintf(room, FIGURES_PROM, "spillway_%s%.*s%s%s", table, (int)length, text,
		 figures_units[name->unit].base_tail, name->gauge || name->unit == FIGURES_NS ? "" : "_total");
	return room;
}

/* ---- one page ---- */

static uint64_t number_at(const void *base, enum figures_group group, unsigned i)
{
	return *(const _Atomic uint64_t *)((const char *)base + figures_groups[group].name[i].at);
}

/* row: of a device, or of a device and something else. */
static uint64_t get_of_device(const struct stats_page *copy, enum figures_group group, unsigned row, unsigned i)
{
	unsigned part = figures_groups[group].n_rows / STATS_DEVICES;
	const struct stats_device *device = &copy->device[row / part];

	if (!device->known)
		return STATS_NA;
	switch (group) {
	case GROUP_DEVICE:
		return number_at(device, group, i);
	case GROUP_DEVICE_PLACES:
		return device->live[row % part];
	case GROUP_DEVICE_FAULTS:
		return device->fault[i];
	case GROUP_LINKS:
		return figures_link_is_known(&device->link[row % part]) ? device->link[row % part].figure[i] : STATS_NA;
	default:
		return device->figures.figure[i];
	}
}

uint64_t figures_get(const struct page *page, enum figures_group group, unsigned row, unsigned i)
{
	const struct stats_page *copy = page->copy;

	if (!copy)
		return STATS_NA;
	switch (group) {
	case GROUP_PROCESS:
		return number_at(copy, group, i);
	case GROUP_PLACES:
		return i ? copy->peak[row] : copy->live[row];
	case GROUP_COUNTERS:
		return page_counter(page, i);
	case GROUP_FAULTS:
		return copy->fault[i];
	case GROUP_BACKENDS:
		return copy->backend[row].figure[i];
	case GROUP_RULES:
		return copy->rule[row].figures.figure[i];
	case GROUP_SITES:
		return copy->site[row].figures.figure[i];
	default:
		return get_of_device(copy, group, row, i);
	}
}

double figures_get_rate(const struct figures_process *process, enum figures_group group, unsigned row, unsigned i)
{
	if (!process->before)
		return NAN;
	return figures_rate(figures_get(process->page, group, row, i), figures_get(process->before, group, row, i),
			    process->seconds);
}

uint64_t figures_live(const struct page *page, enum place place)
{
	return page->copy ? page->copy->live[place] : STATS_NA;
}

double figures_rate(uint64_t now, uint64_t before, double seconds)
{
	if (now == STATS_NA || before == STATS_NA || !(seconds > 0))
		return NAN;
	/* Sums that grow with time are exact only to a rounding, and may seem to decrease. */
	return now > before ? (double)(now - before) / seconds : 0;
}

/* ---- histograms ---- */

static double figures_middle(unsigned bucket)
{
	return ((double)stats_bucket_least(bucket) + (double)stats_bucket_least(bucket + 1) - 1) / 2;
}

uint64_t figures_measured(const _Atomic uint64_t histogram[STATS_BUCKETS])
{
	uint64_t n = 0;

	for (unsigned i = 0; i < STATS_BUCKETS; i++)
		n += histogram[i];
	return n;
}

double figures_percentile(const _Atomic uint64_t histogram[STATS_BUCKETS], double share)
{
	double wanted = share * (double)figures_measured(histogram), n = 0;

	for (unsigned i = 0; i < STATS_BUCKETS; i++) {
		n += (double)histogram[i];
		if (histogram[i] && n >= wanted)
			return figures_middle(i);
	}
	return NAN;
}

double figures_sum(const _Atomic uint64_t histogram[STATS_BUCKETS])
{
	double sum = 0;

	for (unsigned i = 0; i < STATS_BUCKETS; i++)
		if (histogram[i])
			sum += (double)histogram[i] * figures_middle(i);
	return sum;
}

const char *figures_uuid(const unsigned char uuid[16], const char *name, char room[FIGURES_UUID])
{
	/* A MIG instance has an id of its own, which all tools write with the prefix MIG. */
	int n = snprintf(room, FIGURES_UUID, "%s-", strstr(name, " MIG ") ? "MIG" : "GPU");

	for (unsigned i = 0; i < 16; i++)
		n += snprintf(room + n, FIGURES_UUID - (size_t)n, "%s%02x",
			      i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
	return room;
}

/* ---- links ---- */

const char *figures_link_kind(uint64_t kind)
{
	static const char *const names[STATS_LINK_KINDS] = {
	    [STATS_LINK_UNASKED] = "unknown", [STATS_LINK_NONE] = "none",       [STATS_LINK_PCIE] = "PCIe",
	    [STATS_LINK_NVLINK] = "NVLink",   [STATS_LINK_UNKNOWN] = "unknown",
	};

	return kind < STATS_LINK_KINDS ? names[kind] : "unknown";
}

bool figures_link_is_known(const struct stats_link *link)
{
	return link->kind != STATS_LINK_UNASKED || link->figure[LINK_IN] || link->figure[LINK_OUT];
}

static struct figures_link *link_of(struct figures *figures, size_t device, size_t lender)
{
	for (size_t i = 0; i < figures->n_links; i++)
		if (figures->link[i].device == device && figures->link[i].lender == lender)
			return &figures->link[i];
	struct figures_link *room = realloc(figures->link, (figures->n_links + 1) * sizeof(*room));
	if (!room)
		return NULL;
	figures->link = room;
	room[figures->n_links] = (struct figures_link){.device = device, .lender = lender};
	return &room[figures->n_links++];
}

double figures_links_rate(const struct figures *figures, const struct figures_link *link, enum stats_link_figure figure)
{
	return link->has_before ? figures_rate(link->moved[figure], 0, figures->seconds) : NAN;
}

static void add_link(struct figures_link *sum, const struct stats_link *now, const struct stats_link *before)
{
	sum->kind = now->kind;
	sum->has_before |= before != NULL;
	for (unsigned i = 0; i < LINK_COUNT; i++) {
		sum->figure[i] += now->figure[i];
		if (before && now->figure[i] > before->figure[i])
			sum->moved[i] += now->figure[i] - before->figure[i];
	}
}

/* The i-th device of the process has index at[i] in the list. Returns false if memory runs out. */
static bool add_links(struct figures *figures, const struct figures_process *process, const size_t at[STATS_DEVICES])
{
	const struct stats_page *copy = process->page->copy;

	for (unsigned i = 0; i < STATS_DEVICES * STATS_DEVICES; i++) {
		unsigned device = i / STATS_DEVICES, lender = i % STATS_DEVICES;
		const struct stats_link *from = &copy->device[device].link[lender];

		if (!copy->device[device].known || !copy->device[lender].known || !figures_link_is_known(from))
			continue;
		struct figures_link *sum = link_of(figures, at[device], at[lender]);
		if (!sum)
			return false;
		add_link(sum, from, process->before ? &process->before->copy->device[device].link[lender] : NULL);
	}
	return true;
}

/* ---- history ---- */

static void remember(struct figures_history *history, double value)
{
	history->value[history->n++ % FIGURES_HISTORY] = (float)value;
}

double figures_ago(const struct figures_history *history, unsigned readings)
{
	if (readings >= history->n || readings >= FIGURES_HISTORY)
		return NAN;
	return (double)history->value[(history->n - 1 - readings) % FIGURES_HISTORY];
}

static void remember_flows(struct figures *figures)
{
	double sum[FLOW_COUNT] = {NAN, NAN, NAN};

	for (size_t i = 0; i < figures->n; i++) {
		struct figures_process *process = &figures->process[i];
		const double flow[FLOW_COUNT] = {
		    [FLOW_IN] = figures_get_rate(process, GROUP_COUNTERS, 0, STAT_moved_in_bytes),
		    [FLOW_OUT] = figures_get_rate(process, GROUP_COUNTERS, 0, STAT_moved_out_bytes),
		    [FLOW_FAULTS] = figures_get_rate(process, GROUP_FAULTS, 0, FAULT_GPU),
		};

		for (unsigned j = 0; j < FLOW_COUNT; j++) {
			remember(&process->flow[j], flow[j]);
			if (!isnan(flow[j]))
				sum[j] = isnan(sum[j]) ? flow[j] : sum[j] + flow[j];
		}
	}
	for (unsigned j = 0; j < FLOW_COUNT; j++)
		remember(&figures->flow[j], sum[j]);
}

/* ---- devices ---- */

/* Returns the device's index in the list, after adding it if necessary. */
static size_t device_like(struct figures *figures, const struct stats_device *device, uint64_t number)
{
	static const unsigned char none[16];

	for (size_t i = 0; i < figures->n_devices; i++) {
		struct figures_device *known = &figures->device[i];

		if (memcmp(known->uuid, device->uuid, 16) != 0)
			continue;
		/* A device without a UUID is recognised by its other properties. */
		if (memcmp(known->uuid, none, 16) != 0 ||
		    (known->number == number && !strcmp(known->name, device->name)))
			return i;
	}
	struct figures_device *fresh = &figures->device[figures->n_devices];
	*fresh = (struct figures_device){.number = number, .total = device->total};
	memcpy(fresh->name, device->name, STATS_TEXT);
	memcpy(fresh->uuid, device->uuid, 16);
	return figures->n_devices++;
}

static bool add_devices_of(struct figures *figures, const struct figures_process *process)
{
	size_t at[STATS_DEVICES] = {0};

	for (unsigned i = 0; i < STATS_DEVICES; i++) {
		const struct stats_device *device = &process->page->copy->device[i];

		if (!device->known)
			continue;
		at[i] = device_like(figures, device, i);
		struct figures_device *sum = &figures->device[at[i]];
		sum->n_processes++;
		sum->lent += device->lent;
		for (unsigned k = 0; k < PLACE_COUNT; k++)
			sum->live[k] += device->live[k];
	}
	return add_links(figures, process, at);
}

static bool add_devices(struct figures *figures)
{
	struct figures_device *room = realloc(figures->device, (figures->n * STATS_DEVICES + 1) * sizeof(*room));

	if (!room)
		return false;
	figures->device = room;
	figures->n_devices = figures->n_links = 0;
	for (size_t i = 0; i < figures->n; i++) {
		const struct figures_process *process = &figures->process[i];

		if (process->page->copy && process->page->alive && !add_devices_of(figures, process))
			return false;
	}
	return true;
}

/* ---- a reading ---- */

/* A process that was already matched has passed on its page, so that the page is NULL. */
static struct figures_process *find_process(const struct figures *figures, const struct page *page)
{
	for (size_t i = 0; i < figures->n; i++)
		if (figures->process[i].page && page_is_same(figures->process[i].page, page))
			return &figures->process[i];
	return NULL;
}

bool figures_is_named(const struct page *page, const struct process_name *name)
{
	return name->identity ? name->identity == page->identity : name->pid == page->pid;
}

static bool is_chosen(const struct page *page, const struct figures_choice *choice)
{
	for (size_t i = 0; i < choice->n; i++)
		if (figures_is_named(page, &choice->name[i]))
			return true;
	return choice->n == 0;
}

/* Continues the history of a known process: its last page becomes the previous one. */
static void go_on(struct figures_process *process, struct figures_process *old)
{
	memcpy(process->flow, old->flow, sizeof(process->flow));
	if (!process->page->copy || !old->page->copy)
		return;
	process->before = old->page;
	old->page = NULL;
	process->seconds = (double)(process->page->clock - process->before->clock) / 1e9;
	process->page->alive |=
	    memcmp((const void *)process->page->copy->counter, (const void *)process->before->copy->counter,
		   sizeof(process->page->copy->counter)) != 0;
}

static void free_process(struct figures_process *process)
{
	page_free(process->page);
	page_free(process->before);
}

bool figures_read(struct figures *figures, const struct figures_choice *choice)
{
	struct pages pages = {0};
	struct figures next = *figures;
	uint64_t clock = clock_now();

	if (!pages_read(&pages, choice->only))
		goto fail;
	next.process = calloc(pages.n + 1, sizeof(*next.process));
	if (!next.process)
		goto fail;
	next.n = next.n_gone = 0;
	for (size_t i = 0; i < pages.n; i++) {
		struct figures_process *process = &next.process[next.n], *old = find_process(figures, pages.page[i]);

		if (!is_chosen(pages.page[i], choice))
			continue;
		*process = (struct figures_process){.page = pages.page[i]};
		if (old)
			go_on(process, old);
		next.n_gone += !process->page->alive;
		pages.page[i] = NULL;
		next.n++;
	}
	next.n_refused = pages.n_refused;
	pages_free(&pages);
	for (size_t i = 0; i < figures->n; i++)
		free_process(&figures->process[i]);
	free(figures->process);
	next.seconds = figures->clock ? (double)(clock - figures->clock) / 1e9 : 0;
	next.clock = clock;
	next.wall = clock_wall();
	*figures = next;
	remember_flows(figures);
	return add_devices(figures);
fail:
	pages_free(&pages);
	return false;
}

void figures_free(struct figures *figures)
{
	for (size_t i = 0; i < figures->n; i++)
		free_process(&figures->process[i]);
	free(figures->process);
	free(figures->device);
	free(figures->link);
	*figures = (struct figures){0};
}
