// SPDX-License-Identifier: Apache-2.0
/*
 * Prints a reading to be read by people: a table that scripts can split by columns, and the details of one process; and
 * as JSON: one object per reading, on one line. spillway-top(1) describes its members and spillway-stats(5) the
 * figures. There a value that was not measured is null, and so is a rate before the second reading. Members may be
 * added; "schema" is incremented if one is removed or changes its meaning.
 */
#include "tools/top/top.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "policy/policy.h"
#include "shim/base/user_dir.h"
#include "tools/common/json.h"
#include "tools/common/shared.h"
#include "tools/common/units.h"

enum { MOST_RANKED = 5 };

/* ---- devices ---- */

static void print_devices(FILE *out, const struct figures *figures)
{
	if (!figures->n_devices)
		return;
	fprintf(out, "%-34s %6s %6s %6s %6s %6s %6s %6s %7s %6s %6s %6s\n", "GPU", "TOTAL", "HEAP", "DRIVER", "LENT",
		"FREE", "HOST", "PEER", "MANAGED", "SYSTEM", "PINNED", "PROCS");
	for (size_t i = 0; i < figures->n_devices; i++) {
		const struct figures_device *device = &figures->device[i];
		uint64_t used = device->live[PLACE_DEVICE] + device->live[PLACE_DRIVER] + device->lent;

		const uint64_t bytes[] = {device->total,
					  device->live[PLACE_DEVICE],
					  device->live[PLACE_DRIVER],
					  device->lent,
					  device->total > used ? device->total - used : 0,
					  device->live[PLACE_HOST],
					  device->live[PLACE_PEER],
					  device->live[PLACE_MANAGED],
					  device->live[PLACE_SYSTEM],
					  device->live[PLACE_PINNED]};

		fprintf(out, "%2" PRIu64 " %-31.31s", device->number, device->name);
		for (unsigned j = 0; j < sizeof(bytes) / sizeof(*bytes); j++)
			fprintf(out, " %*s", j == 7 ? 7 : 6, short_bytes((double)bytes[j]));
		fprintf(out, " %6u\n", device->n_processes);
	}
	fputc('\n', out);
}

static void print_links(FILE *out, const struct figures *figures)
{
	if (!figures->n_links)
		return;
	fprintf(out, "%-34s %-7s %6s %6s %6s %6s\n", "LINK", "KIND", "IN/s", "OUT/s", "IN", "OUT");
	for (size_t i = 0; i < figures->n_links; i++) {
		const struct figures_link *link = &figures->link[i];

		fprintf(out, "%2" PRIu64 " borrows of %-20" PRIu64 " %-7s", figures->device[link->device].number,
			figures->device[link->lender].number, figures_link_kind(link->kind));
		for (unsigned k = 0; k < LINK_COUNT; k++)
			fprintf(out, " %6s", short_bytes(figures_links_rate(figures, link, k)));
		for (unsigned k = 0; k < LINK_COUNT; k++)
			fprintf(out, " %6s", short_bytes((double)link->figure[k]));
		fputc('\n', out);
	}
	fputc('\n', out);
}

/* ---- processes ---- */

static void print_row(FILE *out, const struct figures_process *process)
{
	char room[256];

	for (unsigned i = 0; i < top_n_columns(); i++) {
		const struct top_column *column = &top_columns[i];
		const char *text = process ? top_cell(process, i, room, sizeof(room)) : column->title;

		fprintf(out, column->left ? "%s%-*s" : "%s%*s", i ? " " : "", column->width, text);
	}
	fputc('\n', out);
}

static void print_ranked(FILE *out, const struct figures_process *const *list, size_t n, enum figures_group group,
			 const char *title)
{
	struct top_entry entries[MOST_RANKED];
	size_t found = top_rank(list, n, group, entries, MOST_RANKED);
	char numbers[128], name[TOP_NAME];

	if (!found)
		return;
	fprintf(out, "\n%s  %s\n", TOP_RANK_HEAD, title);
	for (size_t i = 0; i < found; i++)
		fprintf(out, "%s  %s\n", top_entry_numbers(&entries[i], numbers, sizeof(numbers)),
			top_entry_name(&entries[i], name, sizeof(name)));
}

static void print_head(FILE *out, const struct figures *figures, const struct top_view *view, size_t n)
{
	time_t seconds = (time_t)(figures->wall / 1000000000);
	struct tm now;
	char time[32];

	localtime_r(&seconds, &now);
	strftime(time, sizeof(time), "%Y-%m-%d %H:%M:%S", &now);
	fprintf(out, "spillway top, %s, %zu process%s", time, n, n == 1 ? "" : "es");
	if (figures->n_gone && !view->gone)
		fprintf(out, ", and %zu that left figures when killed (--gone)", figures->n_gone);
	else if (figures->n_gone > view->gone)
		fprintf(out, ", and %zu that were killed before (--gone=all)", figures->n_gone - view->gone);
	if (figures->n_refused)
		fprintf(out, ", %zu folder%s not looked into: open to others, or not its user's", figures->n_refused,
			figures->n_refused == 1 ? "" : "s");
	fprintf(out, "\n\n");
}

void top_print_text(FILE *out, const struct figures *figures, const struct top_view *view)
{
	size_t n;
	const struct figures_process **list = top_order(figures, view, &n);
	char *shared = list ? shared_text() : NULL;

	if (!list)
		return;
	print_head(out, figures, view, n);
	print_devices(out, figures);
	print_links(out, figures);
	if (shared) /* an empty line stands after each table instead of before it */
		fprintf(out, "%s\n", shared + 1);
	free(shared);
	if (n)
		print_row(out, NULL);
	for (size_t i = 0; i < n; i++)
		print_row(out, list[i]);
	if (view->details) {
		for (size_t i = 0; i < n; i++) {
			fputc('\n', out);
			top_print_details(out, list[i]);
		}
	} else {
		print_ranked(out, list, n, GROUP_RULES, "RULE");
		print_ranked(out, list, n, GROUP_SITES, "SITE");
	}
	free(list);
}

/* ---- details ---- */

/* Returns a value in its unit, formatted for people. */
static const char *text_amount(uint64_t value, enum figures_unit unit, char room[UNITS_TEXT])
{
	if (value == STATS_NA)
		return "n/a";
	switch (unit) {
	case FIGURES_BYTES:
		return units_bytes(value, room);
	case FIGURES_US:
		return value < UINT64_MAX / 1000 ? units_time(value * 1000, room) : "n/a";
	case FIGURES_NS:
		return units_time(value, room);
	case FIGURES_KIB_MS:
		snprintf(room, UNITS_TEXT, "%.1f GiB s", (double)value / 1024 / 1024 / 1000);
		return room;
	default:
		return units_count(value, room);
	}
}

static const char *amount_a_second(double rate, enum figures_unit unit, char room[UNITS_TEXT])
{
	if (isnan(rate))
		return "n/a";
	if (unit == FIGURES_COUNT) {
		snprintf(room, UNITS_TEXT, "%.1f", rate);
		return room;
	}
	return text_amount((uint64_t)rate, unit, room);
}

static void print_faults(FILE *out, const _Atomic uint64_t fault[FAULT_COUNT])
{
	char text[UNITS_TEXT];

	for (unsigned i = 0; i < FAULT_COUNT; i++)
		fprintf(out, "%s%s %s", i ? ", " : "", figures_faults[i].name,
			text_amount(fault[i], figures_faults[i].unit, text));
	fputc('\n', out);
}

static void print_about(FILE *out, const struct page *page)
{
	const struct stats_page *copy = page->copy;

	fprintf(out, "  command      %s\n", copy->command);
	fprintf(out, "  policy       %s (%s), spill.mode %s, spillway %s\n", copy->policy, copy->policy_hash,
		copy->mode, copy->spillway);
	fprintf(out, "  time         %s since its first use of CUDA memory\n", text_time(page_age(page)));
	fprintf(out, "  page faults  %s\n", *copy->fault_source ? copy->fault_source : "n/a: nothing counts them");
	fputs("               ", out);
	print_faults(out, copy->fault);
	fprintf(out, "  host budget  %s of %s used\n", text_bytes(copy->host_used), text_bytes(copy->host_budget));
	if (copy->share_ranks > 1)
		fprintf(out, "  host total   %s of %s used by %llu processes\n", text_bytes(copy->share_used),
			text_bytes(copy->share_total), (unsigned long long)copy->share_ranks);
}

static void print_places(FILE *out, const struct stats_page *copy)
{
	fprintf(out, "\n  %-24s %12s %12s\n", "PLACE", "LIVE", "PEAK");
	for (unsigned i = 0; i < PLACE_COUNT; i++)
		fprintf(out, "  %-24s %12s %12s\n", figures_places[i].name, text_bytes(copy->live[i]),
			text_bytes(copy->peak[i]));
}

/* Prints how much of the blocks of a reporting allocator is alive. */
static void print_cache(FILE *out, const struct stats_device *device)
{
	if (device->cache)
		fprintf(out, "    allocator's cache %s: alive %s, at most %s, dead %s\n", text_bytes(device->cache),
			text_bytes(device->cache_alive), text_bytes(device->cache_most_alive),
			text_bytes(device->cache_dead));
}

/* Prints the bytes that the device lends, and the moves between it and the devices that lend to it. */
static void print_lending(FILE *out, const struct figures_process *process, unsigned number)
{
	const struct stats_device *device = &process->page->copy->device[number];
	char text[UNITS_TEXT];

	if (device->most_lent)
		fprintf(out, "    lent to other GPUs %s, at most %s\n", text_bytes(device->lent),
			text_bytes(device->most_lent));
	for (unsigned i = 0; i < STATS_DEVICES; i++) {
		const struct stats_link *link = &device->link[i];

		if (!figures_link_is_known(link))
			continue;
		fprintf(out, "    borrows of GPU %u, link %s:", i, figures_link_kind(link->kind));
		for (unsigned k = 0; k < LINK_COUNT; k++) {
			fprintf(out, "%s %s %s", k ? "," : "", figures_links[k].name,
				text_amount(link->figure[k], figures_links[k].unit, text));
			fprintf(out, " (%s a second)",
				amount_a_second(figures_get_rate(process, GROUP_LINKS, number * STATS_DEVICES + i, k),
						figures_links[k].unit, text));
		}
		fputc('\n', out);
	}
}

static void print_page_devices(FILE *out, const struct figures_process *process)
{
	const struct stats_page *copy = process->page->copy;
	char uuid[FIGURES_UUID];

	for (unsigned i = 0; i < STATS_DEVICES; i++) {
		const struct stats_device *device = &copy->device[i];

		if (!device->known)
			continue;
		fprintf(out, "\n  GPU %u %s, %s\n", i, device->name, figures_uuid(device->uuid, device->name, uuid));
		fprintf(out, "    memory %s, budget %s, of that used %s\n", text_bytes(device->total),
			text_bytes(device->budget), text_bytes(device->used));
		fputs("   ", out);
		for (unsigned j = 0; j < PLACE_COUNT; j++)
			fprintf(out, " %s %s%s", figures_places[j].name, text_bytes(device->live[j]),
				j + 1 < PLACE_COUNT ? "," : "\n");
		print_lending(out, process, i);
		print_cache(out, device);
		fputs("    ", out);
		print_faults(out, device->fault);
	}
}

static void print_counters(FILE *out, const struct figures_process *process)
{
	char value[UNITS_TEXT], rate[UNITS_TEXT];

	fprintf(out, "\n  %-24s %12s %12s\n", "COUNTER", "SINCE START", "A SECOND");
	for (unsigned i = 0; i < STAT_COUNT; i++) {
		const struct figures_name *name = &figures_counters[i];

		fprintf(out, "  %-24s %12s %12s\n", name->name,
			text_amount(page_counter(process->page, i), name->unit, value),
			amount_a_second(figures_get_rate(process, GROUP_COUNTERS, 0, i), name->unit, rate));
	}
}

static void print_histograms(FILE *out, const struct stats_page *copy)
{
	static const double shares[] = {0.5, 0.9, 0.99, 1};

	fprintf(out, "\n  %-24s %12s %10s %10s %10s %10s\n", "HISTOGRAM", "COUNT", "50 %", "90 %", "99 %", "MOST");
	for (unsigned i = 0; i < HISTOGRAM_COUNT; i++) {
		fprintf(out, "  %-24s %12s", figures_histograms[i].name,
			text_count(figures_measured(copy->histogram[i])));
		for (unsigned j = 0; j < 4; j++) {
			double value = figures_percentile(copy->histogram[i], shares[j]);

			fprintf(out, " %10s", isnan(value) ? "n/a" : text_time((uint64_t)value));
		}
		fputc('\n', out);
	}
}

enum { NAME_WIDTH = 40 }; /* of a rule or a site */

static int figure_width(enum figure figure)
{
	int length = (int)strlen(figures_tables[figure].name);

	return length > 6 ? length : 6;
}

static void print_figures_head(FILE *out, const char *title)
{
	fprintf(out, "\n  %-*s", NAME_WIDTH, title);
	for (unsigned i = 0; i < FIGURE_COUNT; i++)
		fprintf(out, " %*s", figure_width(i), figures_tables[i].name);
	fputc('\n', out);
}

static void print_figures(FILE *out, const struct top_entry *entry, const char *name)
{
	char time[UNITS_TEXT];

	fprintf(out, "  %-*s", NAME_WIDTH, name);
	for (unsigned i = 0; i < FIGURE_COUNT; i++) {
		const struct figures_name *about = &figures_tables[i];
		uint64_t value = figures_get(entry->process->page, entry->group, entry->row, i);
		const char *shown = value == STATS_NA              ? "n/a"
				    : about->unit == FIGURES_BYTES ? short_bytes((double)value)
				    : about->unit == FIGURES_US    ? text_amount(value, FIGURES_US, time)
								   : short_count((double)value);

		fprintf(out, " %*s", figure_width(i), shown);
	}
	fputc('\n', out);
}

static void print_all_ranked(FILE *out, const struct figures_process *process, enum figures_group group,
			     const char *title)
{
	struct top_entry entries[STATS_SITES];
	size_t n = top_rank(&process, 1, group, entries, STATS_SITES);
	char name[TOP_NAME];

	if (n)
		print_figures_head(out, title);
	for (size_t i = 0; i < n; i++)
		print_figures(out, &entries[i], top_entry_name(&entries[i], name, sizeof(name)));
}

static void print_backends(FILE *out, const struct figures_process *process)
{
	const struct stats_page *copy = process->page->copy;
	bool any = false;

	for (unsigned i = 0; i < STATS_BACKENDS; i++) {
		if (!copy->backend[i].figure[FIGURE_allocations] && !copy->backend[i].figure[FIGURE_refused])
			continue;
		if (!any)
			print_figures_head(out, "BACKEND");
		any = true;
		print_figures(out, &(struct top_entry){process, GROUP_BACKENDS, i},
			      policy_use_name((enum policy_use)i));
	}
}

void top_print_details(FILE *out, const struct figures_process *process)
{
	const struct page *page = process->page;
	char room[256], identity[IDENTITY_TEXT];

	if (page->pid)
		fprintf(out, "process %d, ", (int)page->pid);
	else
		fprintf(out, "process of another PID namespace, where it is %d, ", (int)page->own_pid);
	if (page->identity)
		fprintf(out, "id %s, ", identity_text(page->identity, identity));
	fprintf(out, "%s\n", page_state(page));
	if (!page->copy) {
		fprintf(out, "  %s\n", top_cell(process, top_n_columns() - 1, room, sizeof(room)));
		return;
	}
	print_about(out, page);
	print_places(out, page->copy);
	print_page_devices(out, process);
	print_all_ranked(out, process, GROUP_RULES, "RULE");
	print_all_ranked(out, process, GROUP_SITES, "SITE");
	print_backends(out, process);
	print_counters(out, process);
	print_histograms(out, page->copy);
}

/* ---- JSON ---- */

enum { SCHEMA = 2 };

static void put_number(struct json *json, const char *name, uint64_t value)
{
	json_number_or_null(json, name, value, value != STATS_NA);
}

static void put_real(struct json *json, const char *name, double value)
{
	json_real_or_null(json, name, value, value < 1000 ? 3 : 0, !isnan(value));
}

/* ---- parts ---- */

static void put_places(struct json *json, const _Atomic uint64_t live[PLACE_COUNT],
		       const _Atomic uint64_t peak[PLACE_COUNT])
{
	json_open(json, "places", '{');
	for (unsigned i = 0; i < PLACE_COUNT; i++)
		JSON_OBJECT(json, figures_places[i].name, {"live", live[i]}, {"peak", peak[i]});
	json_close(json, '}');
}

/* Writes the numbers of a row that is said once, among other members. */
static void put_once(struct json *json, const struct page *page, enum figures_group group, unsigned row)
{
	const struct figures_group_about *about = &figures_groups[group];

	for (unsigned i = 0; i < about->n; i++)
		put_number(json, about->name[i].name, figures_get(page, group, row, i));
}

/* Writes the numbers of a row, and the rates of those that grow. */
static void put_row(struct json *json, const struct figures_process *process, enum figures_group group, unsigned row,
		    const char *numbers, const char *rates)
{
	const struct figures_group_about *about = &figures_groups[group];

	json_open(json, numbers, '{');
	put_once(json, process->page, group, row);
	json_close(json, '}');
	json_open(json, rates, '{');
	for (unsigned i = 0; i < about->n; i++)
		if (!about->name[i].gauge)
			put_real(json, about->name[i].name, figures_get_rate(process, group, row, i));
	json_close(json, '}');
}

static void put_histogram(struct json *json, const struct figures_name *name,
			  const _Atomic uint64_t histogram[STATS_BUCKETS])
{
	json_open(json, name->name, '{');
	put_number(json, "count", figures_measured(histogram));
	put_real(json, "p50", figures_percentile(histogram, 0.5));
	put_real(json, "p90", figures_percentile(histogram, 0.9));
	put_real(json, "p99", figures_percentile(histogram, 0.99));
	put_real(json, "max", figures_percentile(histogram, 1));
	json_open(json, "buckets", '[');
	for (unsigned i = 0; i < STATS_BUCKETS; i++) {
		if (!histogram[i])
			continue;
		json_open(json, NULL, '[');
		json_number(json, NULL, stats_bucket_least(i));
		json_number(json, NULL, histogram[i]);
		json_close(json, ']');
	}
	json_close(json, ']');
	json_close(json, '}');
}

/* ---- links ---- */

/* The names are those of doctor's JSON. */
static void put_kind(struct json *json, uint64_t kind)
{
	static const char *const names[STATS_LINK_KINDS] = {
	    [STATS_LINK_NONE] = "none", [STATS_LINK_PCIE] = "pcie", [STATS_LINK_NVLINK] = "nvlink"};

	json_text(json, "kind", kind < STATS_LINK_KINDS ? names[kind] : NULL);
}

static void put_links_of(struct json *json, const struct figures_process *process, unsigned device)
{
	json_open(json, "links", '[');
	for (unsigned i = 0; i < STATS_DEVICES; i++) {
		const struct stats_link *link = &process->page->copy->device[device].link[i];

		if (!figures_link_is_known(link))
			continue;
		json_open(json, NULL, '{');
		put_number(json, "lender", i);
		put_kind(json, link->kind);
		put_row(json, process, GROUP_LINKS, device * STATS_DEVICES + i, "figures", "rates");
		json_close(json, '}');
	}
	json_close(json, ']');
}

/* ---- lists of a process ---- */

static void put_devices(struct json *json, const struct figures_process *process)
{
	const struct stats_page *copy = process->page->copy;

	json_open(json, "devices", '[');
	for (unsigned i = 0; i < STATS_DEVICES; i++) {
		const struct stats_device *device = &copy->device[i];

		if (!device->known)
			continue;
		json_open(json, NULL, '{');
		put_number(json, "number", i);
		json_text(json, "name", device->name);
		json_text(json, "uuid", figures_uuid_text(device->uuid, device->name));
		put_once(json, process->page, GROUP_DEVICE, i);
		put_links_of(json, process, i);
		put_places(json, device->live, device->peak);
		put_row(json, process, GROUP_DEVICE_FAULTS, i, "faults", "fault_rates");
		put_row(json, process, GROUP_DEVICES, i, "figures", "rates");
		json_close(json, '}');
	}
	json_close(json, ']');
}

static void put_backends(struct json *json, const struct figures_process *process)
{
	json_open(json, "backends", '[');
	for (unsigned i = 0; i < STATS_BACKENDS; i++) {
		json_open(json, NULL, '{');
		json_text(json, "name", policy_use_name((enum policy_use)i));
		put_row(json, process, GROUP_BACKENDS, i, "figures", "rates");
		json_close(json, '}');
	}
	json_close(json, ']');
}

static void put_place_in_program(struct json *json, const struct stats_page *copy, const struct stats_site *site)
{
	char caller[32];

	snprintf(caller, sizeof(caller), "0x%" PRIx64, site->caller);
	json_text(json, "caller", site->caller ? caller : NULL);
	json_text(json, "text", *site->text ? site->text : NULL);
	put_number(json, "device", site->device < STATS_DEVICES ? site->device : STATS_NA);
	JSON_TEXTS(
	    json,
	    {"backend", site->backend < POLICY_USE_COUNT ? policy_use_name((enum policy_use)site->backend) : NULL},
	    {"rule", site->rule < STATS_RULES ? copy->rule[site->rule].name : NULL});
	put_number(json, "least_bytes", site->least_bytes);
	json_truth(json, "tensors", !site->least_bytes);
}

/* Writes all entries that were used, the costliest first. */
static void put_ranked(struct json *json, const struct figures_process *process, enum figures_group group)
{
	struct top_entry entries[STATS_SITES];
	const struct stats_page *copy = process->page->copy;
	size_t n = top_rank(&process, 1, group, entries, STATS_SITES);

	json_open(json, group == GROUP_RULES ? "rules" : "sites", '[');
	for (size_t i = 0; i < n; i++) {
		unsigned number = entries[i].row;

		json_open(json, NULL, '{');
		put_number(json, "number", number);
		if (group == GROUP_RULES)
			json_text(json, "name", copy->rule[number].name);
		else if (number && number != STATS_SMALL)
			put_place_in_program(json, copy, &copy->site[number]);
		else
			json_text(json, "text", number ? STATS_SMALL_TEXT : "all others");
		put_row(json, process, group, number, "figures", "rates");
		json_close(json, '}');
	}
	json_close(json, ']');
}

/* ---- a whole process ---- */

static void put_page(struct json *json, const struct figures_process *process)
{
	const struct stats_page *copy = process->page->copy;

	JSON_TEXTS(json, {"command", copy->command}, {"policy", copy->policy}, {"policy_hash", copy->policy_hash},
		   {"mode", copy->mode}, {"spillway", copy->spillway}, {"rank", *copy->rank ? copy->rank : NULL},
		   {"local_rank", *copy->local_rank ? copy->local_rank : NULL}, {"job", *copy->job ? copy->job : NULL});
	put_number(json, "start_ns", copy->start_ns);
	put_real(json, "seconds", (double)page_age(process->page) / 1e9);
	json_text(json, "fault_source", *copy->fault_source ? copy->fault_source : NULL);
	put_once(json, process->page, GROUP_PROCESS, 0);
	put_places(json, copy->live, copy->peak);
	put_row(json, process, GROUP_FAULTS, 0, "faults", "fault_rates");
	put_row(json, process, GROUP_COUNTERS, 0, "counters", "rates");
	json_open(json, "histograms", '{');
	for (unsigned i = 0; i < HISTOGRAM_COUNT; i++)
		put_histogram(json, &figures_histograms[i], copy->histogram[i]);
	json_close(json, '}');
	put_devices(json, process);
	put_backends(json, process);
	put_ranked(json, process, GROUP_RULES);
	put_ranked(json, process, GROUP_SITES);
}

static void put_process(struct json *json, const struct figures_process *process)
{
	const struct page *page = process->page;
	char identity[IDENTITY_TEXT];

	json_open(json, NULL, '{');
	put_number(json, "pid", page->pid ? (uint64_t)page->pid : STATS_NA);
	json_text(json, "id", page->identity ? identity_text(page->identity, identity) : NULL);
	JSON_NUMBERS(json, {"own_pid", (uint64_t)page->own_pid}, {"started", page->started}, {"uid", page->owner});
	json_text(json, "state", page_state(page));
	put_number(json, "version", page->version ? page->version : STATS_NA);
	json_text(json, "problem", page->kind == PAGE_BROKEN ? page->problem : NULL);
	if (page->copy)
		put_page(json, process);
	json_close(json, '}');
}

static void put_device(struct json *json, const struct figures_device *device)
{
	json_open(json, NULL, '{');
	put_number(json, "number", device->number);
	json_text(json, "name", device->name);
	json_text(json, "uuid", figures_uuid_text(device->uuid, device->name));
	JSON_NUMBERS(json, {"total", device->total}, {"processes", device->n_processes}, {"lent", device->lent});
	json_open(json, "places", '{');
	for (unsigned i = 0; i < PLACE_COUNT; i++)
		put_number(json, figures_places[i].name, device->live[i]);
	json_close(json, '}');
	json_close(json, '}');
}

void top_print_json(const struct figures *figures, const struct top_view *view)
{
	struct json writer = JSON_WRITER, *json = &writer;
	size_t n;
	const struct figures_process **list = top_order(figures, view, &n);

	if (!list)
		return;
	json_open(json, NULL, '{');
	JSON_NUMBERS(json, {"schema", SCHEMA}, {"time_ns", figures->wall});
	put_real(json, "interval", figures->seconds > 0 ? figures->seconds : NAN);
	JSON_NUMBERS(json, {"gone", figures->n_gone}, {"refused", figures->n_refused});
	json_open(json, "devices", '[');
	for (size_t i = 0; i < figures->n_devices; i++)
		put_device(json, &figures->device[i]);
	json_close(json, ']');
	json_open(json, "processes", '[');
	for (size_t i = 0; i < n; i++)
		put_process(json, list[i]);
	json_close(json, ']');
	json_close(json, '}');
	putchar('\n');
	free(list);
}
