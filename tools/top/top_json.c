/*
 * JSON, to stdout: one object a reading, on one line. Its members are described in spillway-top(1), the figures in it in
 * spillway-stats(5). What was not measured is null, and so is a rate before the second reading. New members may come;
 * "schema" counts up when one goes or changes its meaning.
 */
#include "tools/top/top.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "policy/policy.h"
#include "shim/base/identity.h"
#include "tools/common/json.h"

enum { SCHEMA = 2 };

/* ---- members; first: no comma before it ---- */

static void put_name(const char *name, bool first)
{
	if (!first)
		printf(", ");
	json_name(name);
}

static void put_number(const char *name, uint64_t value, bool first)
{
	put_name(name, first);
	if (value == STATS_NA)
		printf("null");
	else
		printf("%" PRIu64, value);
}

static void put_real(const char *name, double value, bool first)
{
	put_name(name, first);
	if (isnan(value))
		printf("null");
	else
		printf("%.*f", value < 1000 ? 3 : 0, value);
}

static void put_text(const char *name, const char *text, bool first)
{
	put_name(name, first);
	json_text(text);
}

/* ---- parts ---- */

static void put_places(const _Atomic uint64_t live[PLACE_COUNT], const _Atomic uint64_t peak[PLACE_COUNT])
{
	put_name("places", false);
	printf("{");
	for (unsigned i = 0; i < PLACE_COUNT; i++) {
		put_name(figures_places[i].name, i == 0);
		printf("{");
		put_number("live", live[i], true);
		put_number("peak", peak[i], false);
		printf("}");
	}
	printf("}");
}

/* Numbers and rates; before may be NULL. */
static void put_figures(const struct stats_figures *now, const struct stats_figures *before, double seconds)
{
	put_name("figures", false);
	printf("{");
	for (unsigned i = 0; i < FIGURE_COUNT; i++)
		put_number(figures_tables[i].name, now->figure[i], i == 0);
	printf("}");
	bool first = true;
	put_name("rates", false);
	printf("{");
	for (unsigned i = 0; i < FIGURE_COUNT; i++) {
		if (figures_tables[i].gauge)
			continue;
		put_real(figures_tables[i].name,
			 before ? figures_rate(now->figure[i], before->figure[i], seconds) : NAN, first);
		first = false;
	}
	printf("}");
}

static void put_faults(const _Atomic uint64_t fault[FAULT_COUNT], const _Atomic uint64_t *before, double seconds)
{
	put_name("faults", false);
	printf("{");
	for (unsigned i = 0; i < FAULT_COUNT; i++)
		put_number(figures_faults[i].name, fault[i], i == 0);
	printf("}");
	put_name("fault_rates", false);
	printf("{");
	for (unsigned i = 0; i < FAULT_COUNT; i++)
		put_real(figures_faults[i].name, before ? figures_rate(fault[i], before[i], seconds) : NAN, i == 0);
	printf("}");
}

static void put_counters(const struct figures_process *process)
{
	put_name("counters", false);
	printf("{");
	for (unsigned i = 0; i < STAT_COUNT; i++)
		put_number(figures_counters[i].name, page_counter(process->page, i), i == 0);
	printf("}");
	put_name("rates", false);
	printf("{");
	for (unsigned i = 0; i < STAT_COUNT; i++)
		put_real(figures_counters[i].name, figures_counter_rate(process, i), i == 0);
	printf("}");
}

static void put_histogram(const struct figures_name *name, const _Atomic uint64_t histogram[STATS_BUCKETS], bool first)
{
	bool first_bucket = true;

	put_name(name->name, first);
	printf("{");
	put_number("count", figures_measured(histogram), true);
	put_real("p50", figures_percentile(histogram, 0.5), false);
	put_real("p90", figures_percentile(histogram, 0.9), false);
	put_real("p99", figures_percentile(histogram, 0.99), false);
	put_real("max", figures_percentile(histogram, 1), false);
	put_name("buckets", false);
	printf("[");
	for (unsigned i = 0; i < STATS_BUCKETS; i++) {
		if (!histogram[i])
			continue;
		printf("%s[%" PRIu64 ", %" PRIu64 "]", first_bucket ? "" : ", ", stats_bucket_least(i),
		       (uint64_t)histogram[i]);
		first_bucket = false;
	}
	printf("]}");
}

static void put_histograms(const struct stats_page *copy)
{
	put_name("histograms", false);
	printf("{");
	for (unsigned i = 0; i < HISTOGRAM_COUNT; i++)
		put_histogram(&figures_histograms[i], copy->histogram[i], i == 0);
	printf("}");
}

/* ---- links ---- */

/* As doctor's JSON says it. */
static void put_kind(uint64_t kind)
{
	static const char *const names[STATS_LINK_KINDS] = {
	    [STATS_LINK_NONE] = "none", [STATS_LINK_PCIE] = "pcie", [STATS_LINK_NVLINK] = "nvlink"};

	put_text("kind", kind < STATS_LINK_KINDS ? names[kind] : NULL, false);
}

static void put_link_figures(const _Atomic uint64_t *now, const double rate[LINK_COUNT])
{
	put_name("figures", false);
	printf("{");
	for (unsigned i = 0; i < LINK_COUNT; i++)
		put_number(figures_links[i].name, now[i], i == 0);
	printf("}");
	put_name("rates", false);
	printf("{");
	for (unsigned i = 0; i < LINK_COUNT; i++)
		put_real(figures_links[i].name, rate[i], i == 0);
	printf("}}");
}

static void put_links_of(const struct figures_process *process, unsigned device)
{
	const struct stats_device *of = &process->page->copy->device[device];
	double rate[LINK_COUNT];
	bool first = true;

	put_name("links", false);
	printf("[");
	for (unsigned i = 0; i < STATS_DEVICES; i++) {
		if (!figures_link_is_known(&of->link[i]))
			continue;
		for (unsigned k = 0; k < LINK_COUNT; k++)
			rate[k] = figures_link_rate(process, device, i, k);
		printf(first ? "{" : ", {");
		first = false;
		put_number("lender", i, true);
		put_kind(of->link[i].kind);
		put_link_figures(of->link[i].figure, rate);
	}
	printf("]");
}

/* ---- lists of a process ---- */

static void put_devices(const struct figures_process *process)
{
	const struct stats_page *copy = process->page->copy;
	char uuid[FIGURES_UUID];
	bool first = true;

	put_name("devices", false);
	printf("[");
	for (unsigned i = 0; i < STATS_DEVICES; i++) {
		const struct stats_device *device = &copy->device[i];
		const struct stats_device *before = process->before ? &process->before->copy->device[i] : NULL;

		if (!device->known)
			continue;
		printf(first ? "{" : ", {");
		first = false;
		put_number("number", i, true);
		put_text("name", device->name, false);
		put_text("uuid", figures_uuid(device->uuid, device->name, uuid), false);
		put_number("total", device->total, false);
		put_number("budget", device->budget, false);
		put_number("used", device->used, false);
		put_number("lent", device->lent, false);
		put_number("most_lent", device->most_lent, false);
		put_links_of(process, i);
		put_places(device->live, device->peak);
		put_faults(device->fault, before ? before->fault : NULL, process->seconds);
		put_figures(&device->figures, before ? &before->figures : NULL, process->seconds);
		printf("}");
	}
	printf("]");
}

static void put_backends(const struct figures_process *process)
{
	const struct stats_page *before = process->before ? process->before->copy : NULL;

	put_name("backends", false);
	printf("[");
	for (unsigned i = 0; i < STATS_BACKENDS; i++) {
		printf(i ? ", {" : "{");
		put_text("name", policy_use_name((enum policy_use)i), true);
		put_figures(&process->page->copy->backend[i], before ? &before->backend[i] : NULL, process->seconds);
		printf("}");
	}
	printf("]");
}

static void put_place_in_program(const struct stats_page *copy, const struct stats_site *site)
{
	char caller[32];

	snprintf(caller, sizeof(caller), "0x%" PRIx64, site->caller);
	put_text("caller", site->caller ? caller : NULL, false);
	put_text("text", *site->text ? site->text : NULL, false);
	put_number("device", site->device < STATS_DEVICES ? site->device : STATS_NA, false);
	put_text("backend", site->backend < POLICY_USE_COUNT ? policy_use_name((enum policy_use)site->backend) : NULL,
		 false);
	put_text("rule", site->rule < STATS_RULES ? copy->rule[site->rule].name : NULL, false);
	put_number("least_bytes", site->least_bytes, false);
}

/* All that were used, those that cost most first. */
static void put_ranked(const struct figures_process *process, enum top_kind kind)
{
	struct top_entry entries[STATS_SITES];
	const struct stats_page *copy = process->page->copy;
	size_t n = top_rank(&process, 1, kind, entries, STATS_SITES);

	put_name(kind == TOP_RULES ? "rules" : "sites", false);
	printf("[");
	for (size_t i = 0; i < n; i++) {
		unsigned number = entries[i].number;

		printf(i ? ", {" : "{");
		put_number("number", number, true);
		if (kind == TOP_RULES)
			put_text("name", copy->rule[number].name, false);
		else if (number && number != STATS_SMALL)
			put_place_in_program(copy, &copy->site[number]);
		else
			put_text("text", number ? STATS_SMALL_TEXT : "all others", false);
		put_figures(entries[i].now, entries[i].before, process->seconds);
		printf("}");
	}
	printf("]");
}

/* ---- a process, all ---- */

static void put_page(const struct figures_process *process)
{
	const struct stats_page *copy = process->page->copy;

	put_text("command", copy->command, false);
	put_text("policy", copy->policy, false);
	put_text("policy_hash", copy->policy_hash, false);
	put_text("mode", copy->mode, false);
	put_text("spillway", copy->spillway, false);
	put_number("start_ns", copy->start_ns, false);
	put_real("seconds", (double)page_age(process->page) / 1e9, false);
	put_text("fault_source", *copy->fault_source ? copy->fault_source : NULL, false);
	put_number("host_budget", copy->host_budget, false);
	put_number("host_used", copy->host_used, false);
	put_number("share_total", copy->share_total, false);
	put_number("share_used", copy->share_used, false);
	put_number("share_ranks", copy->share_ranks, false);
	put_places(copy->live, copy->peak);
	put_faults(copy->fault, process->before ? process->before->copy->fault : NULL, process->seconds);
	put_counters(process);
	put_histograms(copy);
	put_devices(process);
	put_backends(process);
	put_ranked(process, TOP_RULES);
	put_ranked(process, TOP_SITES);
}

static void put_process(const struct figures_process *process)
{
	const struct page *page = process->page;
	char identity[IDENTITY_TEXT];

	printf("{");
	put_number("pid", page->pid ? (uint64_t)page->pid : STATS_NA, true);
	put_text("id", page->identity ? identity_text(page->identity, identity) : NULL, false);
	put_number("own_pid", (uint64_t)page->own_pid, false);
	put_number("started", page->started, false);
	put_number("uid", page->owner, false);
	put_text("state", page_state(page), false);
	put_number("version", page->version ? page->version : STATS_NA, false);
	put_text("problem", page->kind == PAGE_BROKEN ? page->problem : NULL, false);
	if (page->copy)
		put_page(process);
	printf("}");
}

static void put_device(const struct figures_device *device)
{
	char uuid[FIGURES_UUID];

	printf("{");
	put_number("number", device->number, true);
	put_text("name", device->name, false);
	put_text("uuid", figures_uuid(device->uuid, device->name, uuid), false);
	put_number("total", device->total, false);
	put_number("processes", device->n_processes, false);
	put_number("lent", device->lent, false);
	put_name("places", false);
	printf("{");
	for (unsigned i = 0; i < PLACE_COUNT; i++)
		put_number(figures_places[i].name, device->live[i], i == 0);
	printf("}}");
}

void top_print_json(const struct figures *figures, const struct top_view *view)
{
	size_t n;
	const struct figures_process **list = top_order(figures, view, &n);

	if (!list)
		return;
	printf("{");
	put_number("schema", SCHEMA, true);
	put_number("time_ns", figures->wall, false);
	put_real("interval", figures->seconds > 0 ? figures->seconds : NAN, false);
	put_number("gone", figures->n_gone, false);
	put_number("refused", figures->n_refused, false);
	put_name("devices", false);
	printf("[");
	for (size_t i = 0; i < figures->n_devices; i++) {
		printf(i ? ", " : "");
		put_device(&figures->device[i]);
	}
	printf("]");
	put_name("processes", false);
	printf("[");
	for (size_t i = 0; i < n; i++) {
		printf(i ? ", " : "");
		put_process(list[i]);
	}
	printf("]}\n");
	free(list);
}
