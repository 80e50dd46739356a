/*
 * Readings over time. Each reading searches for all files again; a process is recognised by its identity
 * (shim/base/identity.h) and its owner.
 *
 * The process id of a process in another PID namespace (a container) that shares a stats folder with the tool means
 * nothing to the tool. Such a process holds a lock on its file (user_dir.h). Older releases held none; for them, a
 * process counts as alive if its figures change between two readings.
 */
#include "tools/common/figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- history ---- */

static void figures_watch_remember(struct figures_history *history, double value)
{
	history->value[history->n++ % FIGURES_HISTORY] = (float)value;
}

double figures_ago(const struct figures_history *history, unsigned readings)
{
	if (readings >= history->n || readings >= FIGURES_HISTORY)
		return NAN;
	return (double)history->value[(history->n - 1 - readings) % FIGURES_HISTORY];
}

double figures_counter_rate(const struct figures_process *process, enum stats_counter counter)
{
	if (!process->before)
		return NAN;
	return figures_rate(page_counter(process->page, counter), page_counter(process->before, counter),
			    process->seconds);
}

double figures_fault_rate(const struct figures_process *process, enum stats_fault fault)
{
	if (!process->before)
		return NAN;
	return figures_rate(figures_fault(process->page, fault), figures_fault(process->before, fault),
			    process->seconds);
}

static void remember_flows(struct figures *figures)
{
	double sum[FLOW_COUNT] = {NAN, NAN, NAN};

	for (size_t i = 0; i < figures->n; i++) {
		struct figures_process *process = &figures->process[i];
		const double flow[FLOW_COUNT] = {
		    [FLOW_IN] = figures_counter_rate(process, STAT_moved_in_bytes),
		    [FLOW_OUT] = figures_counter_rate(process, STAT_moved_out_bytes),
		    [FLOW_FAULTS] = figures_fault_rate(process, FAULT_GPU),
		};

		for (unsigned j = 0; j < FLOW_COUNT; j++) {
			figures_watch_remember(&process->flow[j], flow[j]);
			if (!isnan(flow[j]))
				sum[j] = isnan(sum[j]) ? flow[j] : sum[j] + flow[j];
		}
	}
	for (unsigned j = 0; j < FLOW_COUNT; j++)
		figures_watch_remember(&figures->flow[j], sum[j]);
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
	return figures_links_add(figures, process, at);
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
static struct figures_process *figures_watch_find(const struct figures *figures, const struct page *page)
{
	for (size_t i = 0; i < figures->n; i++) {
		const struct page *known = figures->process[i].page;

		if (known && page_is_same(known, page))
			return &figures->process[i];
	}
	return NULL;
}

static bool is_chosen(const struct page *page, const struct figures_choice *choice)
{
	for (size_t i = 0; i < choice->n_pids; i++)
		if (choice->pid[i] == page->pid)
			return true;
	for (size_t i = 0; i < choice->n_identities; i++)
		if (choice->identity[i] == page->identity)
			return true;
	return choice->n_pids + choice->n_identities == 0;
}

static bool has_changed(const struct page *page, const struct page *before)
{
	return memcmp((const void *)page->copy->counter, (const void *)before->copy->counter,
		      sizeof(page->copy->counter)) != 0;
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
	if (!process->page->alive && has_changed(process->page, process->before))
		process->page->alive = true;
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
	uint64_t clock = clock_ns(CLOCK_MONOTONIC);

	if (!pages_read(&pages, choice->only))
		goto fail;
	next.process = calloc(pages.n + 1, sizeof(*next.process));
	if (!next.process)
		goto fail;
	next.n = next.n_gone = 0;
	for (size_t i = 0; i < pages.n; i++) {
		struct figures_process *process = &next.process[next.n],
				       *old = figures_watch_find(figures, pages.page[i]);

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
	next.wall = clock_ns(CLOCK_REALTIME);
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
