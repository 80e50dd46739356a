// SPDX-License-Identifier: Apache-2.0
/*
 * Writes the text format of Prometheus. Each family of samples begins with a HELP and a TYPE line, followed by all its
 * samples, so the outer loop is over figures and the inner one over processes. The figures of one allocation occur in
 * several tables (the process, its devices, backends and rules). Each table has its own families, so that a sum over
 * one counts nothing twice. Sites have none: a process can have 255, and they change with the program.
 */
#include "tools/prom/prom.h"

#include <inttypes.h>

#include "policy/policy.h"
#include "shim/base/user_dir.h"
#include "tools/common/shared.h"

/*
 * Bounds of buckets are powers of two ns, which coincide with bounds of the library's histograms, so that no count is
 * estimated: from 1 us (2^10) to 69 s (2^36). Prometheus' bounds are inclusive and the library's are not, so that each
 * bound is one ns less.
 */
enum { LEAST_POWER = 10, MOST_POWER = 36 };

/* ---- labels ---- */

/* Writes a quoted label value. Printable text contains no line end, so only these two characters must be escaped. */
static void put_value(FILE *out, const char *text)
{
	fputc('"', out);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', out);
		fputc(*text, out);
	}
	fputc('"', out);
}

static void put_label(FILE *out, const char *name, const char *text)
{
	fprintf(out, ",%s=", name);
	put_value(out, text);
}

/*
 * Writes the labels that identify a process: its identity and owner. This pair is unique even if another user forges a
 * file. The process id is for people; "" if it is not visible here.
 */
static void put_process(FILE *out, const struct page *page)
{
	char program[PAGE_PROGRAM], identity[IDENTITY_TEXT];

	fprintf(out, "{id=\"%s\",uid=\"%u\"", identity_text(page->identity, identity), (unsigned)page->owner);
	fprintf(out, page->pid ? ",pid=\"%d\"" : ",pid=\"\"", (int)page->pid);
	put_label(out, "command", page_program(page, program));
}

static void put_device(FILE *out, const struct page *page, unsigned number)
{
	const struct stats_device *device = &page->copy->device[number];

	fprintf(out, ",device=\"%u\"", number);
	put_label(out, "uuid", figures_uuid_text(device->uuid, device->name));
}

/* ---- families ---- */

static void put_head(FILE *out, const char *name, const char *type, const char *text)
{
	fprintf(out, "# HELP %s ", name);
	for (; *text; text++)
		fprintf(out, *text == '\\' ? "\\\\" : "%c", *text);
	fprintf(out, "\n# TYPE %s %s\n", name, type);
}

/* Figures are shown of processes that exist and can be read. */
static bool is_shown(const struct page *page)
{
	return page->copy && page->alive;
}

/* The labels of a row, beside those of the process. */
static void put_row(FILE *out, const struct page *page, enum figures_group group, unsigned row)
{
	const struct stats_page *copy = page->copy;
	char number[16];

	if (group == GROUP_DEVICE || group == GROUP_DEVICE_FAULTS || group == GROUP_DEVICES) {
		put_device(out, page, row);
	} else if (group == GROUP_LINKS) {
		put_device(out, page, row / STATS_DEVICES);
		snprintf(number, sizeof(number), "%u", row % STATS_DEVICES);
		put_label(out, "lender", number);
		put_label(out, "link",
			  figures_link_kind(copy->device[row / STATS_DEVICES].link[row % STATS_DEVICES].kind));
	} else if (group == GROUP_DEVICE_PLACES) {
		put_device(out, page, row / PLACE_COUNT);
		put_label(out, "place", figures_places[row % PLACE_COUNT].name);
	} else if (group == GROUP_PLACES) {
		put_label(out, "place", figures_places[row].name);
	} else if (group == GROUP_BACKENDS) {
		put_label(out, "backend", policy_use_name((enum policy_use)row));
	} else if (group == GROUP_RULES) {
		/* Two rules may have the same name, so that the number is a label, too. */
		snprintf(number, sizeof(number), "%u", row);
		put_label(out, "number", number);
		put_label(out, "rule", copy->rule[row].name);
	}
}

static void put_family(FILE *out, const struct figures *figures, enum figures_group group, unsigned i)
{
	const struct figures_group_about *about = &figures_groups[group];
	const struct figures_name *name = &about->name[i];
	char room[FIGURES_PROM];

	put_head(out, figures_prom_name(name, about->prom, room), name->gauge ? "gauge" : "counter", name->text);
	for (size_t p = 0; p < figures->n; p++) {
		const struct page *page = figures->process[p].page;

		for (unsigned row = 0; is_shown(page) && row < about->n_rows; row++) {
			uint64_t value = figures_get(page, group, row, i);

			/* A rule without a name does not exist. */
			if (value == STATS_NA || (group == GROUP_RULES && !*page->copy->rule[row].name))
				continue;
			fputs(room, out);
			put_process(out, page);
			put_row(out, page, group, row);
			if (name->unit == FIGURES_COUNT || name->unit == FIGURES_BYTES)
				fprintf(out, "} %" PRIu64 "\n", value);
			else
				fprintf(out, "} %.9g\n", (double)value * figures_units[name->unit].scale);
		}
	}
}

static void put_groups(FILE *out, const struct figures *figures, enum figures_group first, enum figures_group last)
{
	for (enum figures_group group = first; group <= last; group++)
		for (unsigned i = 0; i < figures_groups[group].n; i++)
			put_family(out, figures, group, i);
}

/* ---- what is said of each process ---- */

/* Each writes what follows the labels of the process: others, and the value. */

static void put_info(FILE *out, const struct stats_page *copy)
{
	put_label(out, "policy", copy->policy);
	put_label(out, "policy_hash", copy->policy_hash);
	put_label(out, "mode", copy->mode);
	put_label(out, "version", copy->spillway);
	put_label(out, "rank", copy->rank);
	put_label(out, "local_rank", copy->local_rank);
	put_label(out, "job", copy->job);
	fputs("} 1\n", out);
}

static void put_suspended(FILE *out, const struct stats_page *copy)
{
	fprintf(out, "} %d\n", copy->state == STATS_SUSPENDED);
}

static void put_fault_source(FILE *out, const struct stats_page *copy)
{
	put_label(out, "fault_source", copy->fault_source);
	fputs("} 1\n", out);
}

static void put_start(FILE *out, const struct stats_page *copy)
{
	fprintf(out, "} %.3f\n", (double)copy->start_ns / 1e9);
}

/*
 * The state changes during the life of a process. It is a separate family, because a changed label makes a new series.
 */
static const struct {
	const char *name, *text;
	void (*put)(FILE *out, const struct stats_page *copy);
} abouts[] = {
    {"spillway_process_info", "always 1: the process, and how it runs", put_info},
    {"spillway_process_suspended", "1: the process is suspended", put_suspended},
    {"spillway_process_fault_source", "always 1: what counts page faults, or why nothing does", put_fault_source},
    {"spillway_process_start_time_seconds", "when the process first used CUDA memory, since 1970", put_start},
};

static void put_abouts(FILE *out, const struct figures *figures)
{
	for (size_t i = 0; i < sizeof(abouts) / sizeof(*abouts); i++) {
		put_head(out, abouts[i].name, "gauge", abouts[i].text);
		for (size_t p = 0; p < figures->n; p++) {
			const struct page *page = figures->process[p].page;

			if (!is_shown(page) || (abouts[i].put == put_fault_source && !*page->copy->fault_source))
				continue;
			fputs(abouts[i].name, out);
			put_process(out, page);
			abouts[i].put(out, page->copy);
		}
	}
}

static void put_totals(FILE *out, const struct figures *figures)
{
	size_t shown = 0, unread = 0;

	for (size_t i = 0; i < figures->n; i++) {
		shown += is_shown(figures->process[i].page);
		unread += figures->process[i].page->alive && !figures->process[i].page->copy;
	}
	put_head(out, "spillway_processes", "gauge", "processes under Spillway whose figures are here");
	fprintf(out, "spillway_processes %zu\n", shown);
	put_head(out, "spillway_processes_unreadable", "gauge",
		 "processes whose figures are not: of another version, or broken");
	fprintf(out, "spillway_processes_unreadable %zu\n", unread);
}

/* ---- GPUs that are shared ---- */

static const struct {
	const char *name, *text;
} shared_values[] = {
    {"spillway_shared_may_have_bytes", "what the process may have of a GPU that it shares"},
    {"spillway_shared_needs_bytes", "what it needs, there and elsewhere"},
    {"spillway_turn_holder", "1: it is its turn"},
    {"spillway_turn_waiting_seconds", "for how long it has been waiting for its turn; 0: it does not"},
    {"spillway_turn_share_ratio", "the part of the time of all turns that it has had"},
    {"spillway_turn_weight_ratio", "the part that its weight stands for"},
    {"spillway_turn_switch_seconds", "how long its memory takes to leave and to come back"},
};
enum { N_SHARED = sizeof(shared_values) / sizeof(*shared_values) };

struct put_shared {
	FILE *out;
	unsigned value; /* N_SHARED: what all of them may have */
};

static void put_shared_gpu(const struct shared_gpu *gpu, void *argument)
{
	const struct put_shared *put = argument;

	if (put->value == N_SHARED)
		fprintf(put->out, "spillway_shared_total_bytes{gpu=\"%s\"} %" PRIu64 "\n", gpu->uuid, gpu->total);
	for (unsigned i = 0; put->value < N_SHARED && i < gpu->n; i++) {
		const struct gpu_account_member *member = &gpu->member[i];
		/* In the order of shared_values. */
		const double values[N_SHARED] = {(double)member->may_have,        (double)member->needs,
						 gpu->turns && i == gpu->holder,  shared_waits(gpu, i),
						 shared_part(gpu, i, false),      shared_part(gpu, i, true),
						 (double)member->claim.cost / 1e9};

		fprintf(put->out, "%s{gpu=\"%s\",pid=\"%" PRIu64 "\"} %.15g\n", shared_values[put->value].name,
			gpu->uuid, member->pid, values[put->value]);
	}
}

/* Of this user's processes. A process that takes no turns has a share of 0. */
static void put_all_shared(FILE *out)
{
	struct put_shared put = {out, N_SHARED};

	put_head(out, "spillway_shared_total_bytes", "gauge", "what the processes that share a GPU may have together");
	shared_each(put_shared_gpu, &put);
	for (put.value = 0; put.value < N_SHARED; put.value++) {
		put_head(out, shared_values[put.value].name, "gauge", shared_values[put.value].text);
		shared_each(put_shared_gpu, &put);
	}
}

/* ---- histograms ---- */

static void put_buckets(FILE *out, const char *name, const struct page *page, enum histogram histogram)
{
	const _Atomic uint64_t *bucket = page->copy->histogram[histogram];
	uint64_t n = 0;
	unsigned at = 0;

	for (unsigned power = LEAST_POWER; power <= MOST_POWER + 1; power++) {
		uint64_t bound = power <= MOST_POWER ? (uint64_t)1 << power : UINT64_MAX;

		for (; at < STATS_BUCKETS && stats_bucket_least(at) < bound; at++)
			n += bucket[at];
		fprintf(out, "%s_bucket", name);
		put_process(out, page);
		fprintf(out, bound < UINT64_MAX ? ",le=\"%.11g\"} " : ",le=\"+Inf\"} ", (double)(bound - 1) / 1e9);
		fprintf(out, "%" PRIu64 "\n", n);
	}
	fprintf(out, "%s_sum", name);
	put_process(out, page);
	fprintf(out, "} %.9g\n%s_count", figures_sum(bucket) / 1e9, name);
	put_process(out, page);
	fprintf(out, "} %" PRIu64 "\n", n);
}

static void put_histogram(FILE *out, const struct figures *figures, enum histogram histogram)
{
	const struct figures_name *about = &figures_histograms[histogram];
	char name[FIGURES_PROM], text[256];

	figures_prom_name(about, "", name);
	snprintf(text, sizeof(text), "%s (the sum is within 6.25 %%)", about->text);
	put_head(out, name, "histogram", text);
	for (size_t i = 0; i < figures->n; i++)
		if (is_shown(figures->process[i].page))
			put_buckets(out, name, figures->process[i].page, histogram);
}

void prom_print(FILE *out, const struct figures *figures)
{
	put_totals(out, figures);
	put_abouts(out, figures);
	put_groups(out, figures, GROUP_PROCESS, GROUP_DEVICE_PLACES);
	put_all_shared(out);
	put_groups(out, figures, GROUP_COUNTERS, GROUP_RULES);
	for (unsigned i = 0; i < HISTOGRAM_COUNT; i++)
		put_histogram(out, figures, i);
}

/* ---- the list ---- */

static void text_list(FILE *out, const char *kind, const struct figures_name *names, unsigned n, const char *prefix)
{
	char room[FIGURES_PROM];

	for (unsigned i = 0; i < n; i++)
		fprintf(out, "%s\t%s\t%s\t%s\t%s\n", kind, names[i].name, figures_units[names[i].unit].name,
			figures_prom_name(&names[i], prefix, room), names[i].text);
}

void prom_print_list(FILE *out)
{
	text_list(out, "counter", figures_counters, STAT_COUNT, "");
	text_list(out, "figure", figures_tables, FIGURE_COUNT, "rule_");
	text_list(out, "fault", figures_faults, FAULT_COUNT, "");
	text_list(out, "link", figures_links, LINK_COUNT, "link_");
	text_list(out, "histogram", figures_histograms, HISTOGRAM_COUNT, "");
	for (unsigned i = 0; i < PLACE_COUNT; i++)
		fprintf(out, "place\t%s\t%s\tspillway_place_bytes{place=\"%s\"}\t%s\n", figures_places[i].name,
			figures_units[figures_places[i].unit].name, figures_places[i].name, figures_places[i].text);
}
