/*
 * Writes JSON to stdout: one object per reading, on one line. spillway-top(1) describes its members and
 * spillway-stats(5) the figures. A value that was not measured is null, and so is a rate before the second reading.
 * Members may be added; "schema" is incremented if one is removed or changes its meaning.
 */
#include "tools/top/top.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "policy/policy.h"
#include "shim/base/identity.h"
#include "tools/common/json.h"

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
	for (unsigned i = 0; i < PLACE_COUNT; i++) {
		json_open(json, figures_places[i].name, '{');
		put_number(json, "live", live[i]);
		put_number(json, "peak", peak[i]);
		json_close(json, '}');
	}
	json_close(json, '}');
}

/* Writes the numbers of a row, and the rates of those that grow. */
static void put_row(struct json *json, const struct figures_process *process, enum figures_group group, unsigned row,
		    const char *numbers, const char *rates)
{
	const struct figures_group_about *about = &figures_groups[group];

	json_open(json, numbers, '{');
	for (unsigned i = 0; i < about->n; i++)
		put_number(json, about->name[i].name, figures_get(process->page, group, row, i));
	json_close(json, '}');
	json_open(json, rates, '{');
	for (unsigned i = 0; i < about->n; i++)
		if (!about->name[i].gauge)
			put_real(json, about->name[i].name, figures_get_rate(process, group, row, i));
	json_close(json, '}');
}

/* The same of a row that is said once, among other members. */
static void put_once(struct json *json, const struct page *page, enum figures_group group, unsigned row)
{
	const struct figures_group_about *about = &figures_groups[group];

	for (unsigned i = 0; i < about->n; i++)
		put_number(json, about->name[i].name, figures_get(page, group, row, i));
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

static void put_histograms(struct json *json, const struct stats_page *copy)
{
	json_open(json, "histograms", '{');
	for (unsigned i = 0; i < HISTOGRAM_COUNT; i++)
		put_histogram(json, &figures_histograms[i], copy->histogram[i]);
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
	char uuid[FIGURES_UUID];

	json_open(json, "devices", '[');
	for (unsigned i = 0; i < STATS_DEVICES; i++) {
		const struct stats_device *device = &copy->device[i];

		if (!device->known)
			continue;
		json_open(json, NULL, '{');
		put_number(json, "number", i);
		json_text(json, "name", device->name);
		json_text(json, "uuid", figures_uuid(device->uuid, device->name, uuid));
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
	json_text(json, "backend",
		  site->backend < POLICY_USE_COUNT ? policy_use_name((enum policy_use)site->backend) : NULL);
	json_text(json, "rule", site->rule < STATS_RULES ? copy->rule[site->rule].name : NULL);
	put_number(json, "least_bytes", site->least_bytes);
	json_truth(json, "tensors", !site->least_bytes);
}

/* Writes all entries that were used, the costliest first. */
static void put_ranked(struct json *json, const struct figures_process *process, enum top_kind kind)
{
	struct top_entry entries[STATS_SITES];
	const struct stats_page *copy = process->page->copy;
	size_t n = top_rank(&process, 1, kind, entries, STATS_SITES);

	json_open(json, kind == TOP_RULES ? "rules" : "sites", '[');
	for (size_t i = 0; i < n; i++) {
		unsigned number = entries[i].number;

		json_open(json, NULL, '{');
		put_number(json, "number", number);
		if (kind == TOP_RULES)
			json_text(json, "name", copy->rule[number].name);
		else if (number && number != STATS_SMALL)
			put_place_in_program(json, copy, &copy->site[number]);
		else
			json_text(json, "text", number ? STATS_SMALL_TEXT : "all others");
		put_row(json, process, kind == TOP_RULES ? GROUP_RULES : GROUP_SITES, number, "figures", "rates");
		json_close(json, '}');
	}
	json_close(json, ']');
}

/* ---- a whole process ---- */

static void put_page(struct json *json, const struct figures_process *process)
{
	const struct stats_page *copy = process->page->copy;

	json_text(json, "command", copy->command);
	json_text(json, "policy", copy->policy);
	json_text(json, "policy_hash", copy->policy_hash);
	json_text(json, "mode", copy->mode);
	json_text(json, "spillway", copy->spillway);
	json_text(json, "rank", *copy->rank ? copy->rank : NULL);
	json_text(json, "local_rank", *copy->local_rank ? copy->local_rank : NULL);
	json_text(json, "job", *copy->job ? copy->job : NULL);
	put_number(json, "start_ns", copy->start_ns);
	put_real(json, "seconds", (double)page_age(process->page) / 1e9);
	json_text(json, "fault_source", *copy->fault_source ? copy->fault_source : NULL);
	put_once(json, process->page, GROUP_PROCESS, 0);
	put_places(json, copy->live, copy->peak);
	put_row(json, process, GROUP_FAULTS, 0, "faults", "fault_rates");
	put_row(json, process, GROUP_COUNTERS, 0, "counters", "rates");
	put_histograms(json, copy);
	put_devices(json, process);
	put_backends(json, process);
	put_ranked(json, process, TOP_RULES);
	put_ranked(json, process, TOP_SITES);
}

static void put_process(struct json *json, const struct figures_process *process)
{
	const struct page *page = process->page;
	char identity[IDENTITY_TEXT];

	json_open(json, NULL, '{');
	put_number(json, "pid", page->pid ? (uint64_t)page->pid : STATS_NA);
	json_text(json, "id", page->identity ? identity_text(page->identity, identity) : NULL);
	put_number(json, "own_pid", (uint64_t)page->own_pid);
	put_number(json, "started", page->started);
	put_number(json, "uid", page->owner);
	json_text(json, "state", page_state(page));
	put_number(json, "version", page->version ? page->version : STATS_NA);
	json_text(json, "problem", page->kind == PAGE_BROKEN ? page->problem : NULL);
	if (page->copy)
		put_page(json, process);
	json_close(json, '}');
}

static void put_device(struct json *json, const struct figures_device *device)
{
	char uuid[FIGURES_UUID];

	json_open(json, NULL, '{');
	put_number(json, "number", device->number);
	json_text(json, "name", device->name);
	json_text(json, "uuid", figures_uuid(device->uuid, device->name, uuid));
	put_number(json, "total", device->total);
	put_number(json, "processes", device->n_processes);
	put_number(json, "lent", device->lent);
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
	put_number(json, "schema", SCHEMA);
	put_number(json, "time_ns", figures->wall);
	put_real(json, "interval", figures->seconds > 0 ? figures->seconds : NAN);
	put_number(json, "gone", figures->n_gone);
	put_number(json, "refused", figures->n_refused);
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
