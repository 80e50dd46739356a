/*
 * Writes the text format of Prometheus. Each family of samples begins with a HELP and a TYPE line, followed by all its
 * samples, so the outer loop is over figures and the inner one over processes. The figures of one allocation occur in
 * several tables (the process, its devices, backends and rules). Each table has its own families, so that a sum over
 * one counts nothing twice. Sites have none: a process can have 255, and they change with the program.
 */
#include "tools/prom/prom.h"

#include <inttypes.h>
#include <stddef.h>

#include "policy/policy.h"
#include "shim/base/identity.h"
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
	char uuid[FIGURES_UUID];

	fprintf(out, ",device=\"%u\"", number);
	put_label(out, "uuid", figures_uuid(device->uuid, device->name, uuid));
}

/* ---- families ---- */

static void put_head(FILE *out, const char *name, const char *type, const char *text)
{
	fprintf(out, "# HELP %s ", name);
	for (; *text; text++)
		fprintf(out, *text == '\\' ? "\\\\" : "%c", *text);
	fprintf(out, "\n# TYPE %s %s\n", name, type);
}

static const char *type_of(const struct figures_name *name)
{
	return name->gauge ? "gauge" : "counter";
}

static void put_number(FILE *out, uint64_t value, enum figures_unit unit)
{
	if (unit == FIGURES_COUNT || unit == FIGURES_BYTES)
		fprintf(out, "} %" PRIu64 "\n", value);
	else
		fprintf(out, "} %.9g\n", (double)value * figures_prom_scale(unit));
}

/* Figures are shown of processes that exist and can be read. */
static bool is_shown(const struct page *page)
{
	return page->copy && page->alive;
}

static void put_counter(FILE *out, const struct figures *figures, enum stats_counter counter)
{
	const struct figures_name *name = &figures_counters[counter];
	char room[FIGURES_PROM];

	put_head(out, figures_prom_name(name, "", room), type_of(name), name->text);
	for (size_t i = 0; i < figures->n; i++) {
		const struct page *page = figures->process[i].page;

		if (!is_shown(page) || page_counter(page, counter) == STATS_NA)
			continue;
		fputs(room, out);
		put_process(out, page);
		put_number(out, page_counter(page, counter), name->unit);
	}
}

/* ---- tables: devices, backends, rules ---- */

enum table { TABLE_DEVICE, TABLE_BACKEND, TABLE_RULE, TABLE_COUNT };

static const struct {
	const char *prefix;
	unsigned n;
} tables[TABLE_COUNT] = {
    [TABLE_DEVICE] = {"device_", STATS_DEVICES},
    [TABLE_BACKEND] = {"backend_", STATS_BACKENDS},
    [TABLE_RULE] = {"rule_", STATS_RULES},
};

static const struct stats_figures *row_of(const struct stats_page *copy, enum table table, unsigned i)
{
	switch (table) {
	case TABLE_DEVICE:
		return copy->device[i].known ? &copy->device[i].figures : NULL;
	case TABLE_BACKEND:
		return &copy->backend[i];
	default:
		/* A rule without a name does not exist. */
		return *copy->rule[i].name ? &copy->rule[i].figures : NULL;
	}
}

static void put_row(FILE *out, const struct page *page, enum table table, unsigned i)
{
	char number[16];

	switch (table) {
	case TABLE_DEVICE:
		put_device(out, page, i);
		break;
	case TABLE_BACKEND:
		put_label(out, "backend", policy_use_name((enum policy_use)i));
		break;
	default:
		/* Two rules may have the same name, so that the number is a label, too. */
		snprintf(number, sizeof(number), "%u", i);
		put_label(out, "number", number);
		put_label(out, "rule", page->copy->rule[i].name);
	}
}

static void put_table(FILE *out, const struct figures *figures, enum table table, enum figure figure)
{
	const struct figures_name *name = &figures_tables[figure];
	char room[FIGURES_PROM];

	put_head(out, figures_prom_name(name, tables[table].prefix, room), type_of(name), name->text);
	for (size_t i = 0; i < figures->n; i++) {
		const struct page *page = figures->process[i].page;

		for (unsigned j = 0; is_shown(page) && j < tables[table].n; j++) {
			const struct stats_figures *row = row_of(page->copy, table, j);

			if (!row || row->figure[figure] == STATS_NA)
				continue;
			fputs(room, out);
			put_process(out, page);
			put_row(out, page, table, j);
			put_number(out, row->figure[figure], name->unit);
		}
	}
}

/* Faults are counted for the process; with several devices, some faults belong to none of them. */
static void put_fault(FILE *out, const struct figures *figures, enum stats_fault fault)
{
	const struct figures_name *name = &figures_faults[fault];
	char room[FIGURES_PROM];

	put_head(out, figures_prom_name(name, "", room), type_of(name), name->text);
	for (size_t i = 0; i < figures->n; i++) {
		const struct page *page = figures->process[i].page;

		if (!is_shown(page) || page->copy->fault[fault] == STATS_NA)
			continue;
		fputs(room, out);
		put_process(out, page);
		put_number(out, page->copy->fault[fault], name->unit);
	}
}

static void put_device_fault(FILE *out, const struct figures *figures, enum stats_fault fault)
{
	const struct figures_name *name = &figures_faults[fault];
	char room[FIGURES_PROM];

	put_head(out, figures_prom_name(name, "device_", room), type_of(name), name->text);
	for (size_t i = 0; i < figures->n; i++) {
		const struct page *page = figures->process[i].page;

		for (unsigned j = 0; is_shown(page) && j < STATS_DEVICES; j++) {
			if (!page->copy->device[j].known || page->copy->device[j].fault[fault] == STATS_NA)
				continue;
			fputs(room, out);
			put_process(out, page);
			put_device(out, page, j);
			put_number(out, page->copy->device[j].fault[fault], name->unit);
		}
	}
}

/* ---- links ---- */

static void put_links_of(FILE *out, const struct page *page, unsigned device, enum stats_link_figure figure,
			 const char *name)
{
	char lender[16];

	for (unsigned i = 0; i < STATS_DEVICES; i++) {
		const struct stats_link *link = &page->copy->device[device].link[i];

		if (!figures_link_is_known(link))
			continue;
		fputs(name, out);
		put_process(out, page);
		put_device(out, page, device);
		snprintf(lender, sizeof(lender), "%u", i);
		put_label(out, "lender", lender);
		put_label(out, "link", figures_link_kind(link->kind));
		put_number(out, link->figure[figure], figures_links[figure].unit);
	}
}

static void put_link(FILE *out, const struct figures *figures, enum stats_link_figure figure)
{
	const struct figures_name *name = &figures_links[figure];
	char room[FIGURES_PROM];

	put_head(out, figures_prom_name(name, "link_", room), type_of(name), name->text);
	for (size_t i = 0; i < figures->n; i++) {
		const struct page *page = figures->process[i].page;

		for (unsigned j = 0; is_shown(page) && j < STATS_DEVICES; j++)
			if (page->copy->device[j].known)
				put_links_of(out, page, j, figure, room);
	}
}

/* ---- places ---- */

static void put_places(FILE *out, const struct figures *figures, bool peak)
{
	const char *name = peak ? "spillway_place_peak_bytes" : "spillway_place_bytes";

	put_head(out, name, "gauge", peak ? "the most live bytes there ever were, by place" : "live bytes, by place");
	for (size_t i = 0; i < figures->n; i++) {
		const struct page *page = figures->process[i].page;

		for (unsigned place = 0; is_shown(page) && place < PLACE_COUNT; place++) {
			fputs(name, out);
			put_process(out, page);
			put_label(out, "place", figures_places[place].name);
			put_number(out, peak ? page->copy->peak[place] : page->copy->live[place], FIGURES_BYTES);
		}
	}
}

static void put_device_places(FILE *out, const struct figures *figures)
{
	static const char name[] = "spillway_device_place_bytes";

	put_head(out, name, "gauge", "live bytes, by device and place");
	for (size_t i = 0; i < figures->n; i++) {
		const struct page *page = figures->process[i].page;

		for (unsigned j = 0; is_shown(page) && j < STATS_DEVICES; j++) {
			for (unsigned place = 0; page->copy->device[j].known && place < PLACE_COUNT; place++) {
				fputs(name, out);
				put_process(out, page);
				put_device(out, page, j);
				put_label(out, "place", figures_places[place].name);
				put_number(out, page->copy->device[j].live[place], FIGURES_BYTES);
			}
		}
	}
}

/* ---- what is said once of a process or of a device in it ---- */

enum once { ONCE_PROCESS, ONCE_DEVICE };

static const struct {
	const char *name, *text;
	enum once of;
	size_t at; /* offset of the number in the page or in the device */
} budgets[] = {
    {"spillway_host_budget_bytes", "pinned host memory the heap may take", ONCE_PROCESS,
     offsetof(struct stats_page, host_budget)},
    {"spillway_host_used_bytes", "of that: used", ONCE_PROCESS, offsetof(struct stats_page, host_used)},
    {"spillway_share_total_bytes", "pinned host memory that processes of the user may take together", ONCE_PROCESS,
     offsetof(struct stats_page, share_total)},
    {"spillway_share_used_bytes", "of that: used, by all of them", ONCE_PROCESS,
     offsetof(struct stats_page, share_used)},
    {"spillway_share_ranks", "processes that share it", ONCE_PROCESS, offsetof(struct stats_page, share_ranks)},
    {"spillway_device_capacity_bytes", "memory of the device", ONCE_DEVICE, offsetof(struct stats_device, total)},
    {"spillway_device_budget_bytes", "device memory the heap may take", ONCE_DEVICE,
     offsetof(struct stats_device, budget)},
    {"spillway_device_used_bytes", "of that: used", ONCE_DEVICE, offsetof(struct stats_device, used)},
    {"spillway_device_lent_bytes", "memory of the device that it lends to others", ONCE_DEVICE,
     offsetof(struct stats_device, lent)},
    {"spillway_device_lent_peak_bytes", "the most of it that ever was", ONCE_DEVICE,
     offsetof(struct stats_device, most_lent)},
    {"spillway_device_cache_bytes", "memory of which the program's allocator reports births and deaths", ONCE_DEVICE,
     offsetof(struct stats_device, cache)},
    {"spillway_device_cache_alive_bytes", "of that: alive", ONCE_DEVICE, offsetof(struct stats_device, cache_alive)},
    {"spillway_device_cache_alive_peak_bytes", "the most of it that ever was alive", ONCE_DEVICE,
     offsetof(struct stats_device, cache_most_alive)},
    {"spillway_device_cache_dead_bytes", "of that: has died, and moves without a copy", ONCE_DEVICE,
     offsetof(struct stats_device, cache_dead)},
};

static void put_budget(FILE *out, const struct figures *figures, size_t which)
{
	put_head(out, budgets[which].name, "gauge", budgets[which].text);
	for (size_t i = 0; i < figures->n; i++) {
		const struct page *page = figures->process[i].page;

		for (unsigned j = 0; is_shown(page) && j < (budgets[which].of == ONCE_PROCESS ? 1 : STATS_DEVICES);
		     j++) {
			const char *base = (const char *)page->copy;

			if (budgets[which].of == ONCE_DEVICE && !page->copy->device[j].known)
				continue;
			if (budgets[which].of == ONCE_DEVICE)
				base = (const char *)&page->copy->device[j];
			fputs(budgets[which].name, out);
			put_process(out, page);
			if (budgets[which].of == ONCE_DEVICE)
				put_device(out, page, j);
			put_number(out, *(const _Atomic uint64_t *)(const void *)(base + budgets[which].at),
				   FIGURES_BYTES);
		}
	}
}

/*
 * The state changes during the life of a process. It is a separate family, because a changed label makes a new series.
 */
static void put_states(FILE *out, const struct figures *figures)
{
	put_head(out, "spillway_process_suspended", "gauge", "1: the process is suspended");
	for (size_t i = 0; i < figures->n; i++) {
		const struct page *page = figures->process[i].page;

		if (!is_shown(page))
			continue;
		fputs("spillway_process_suspended", out);
		put_process(out, page);
		fprintf(out, "} %d\n", page->copy->state == STATS_SUSPENDED);
	}
	put_head(out, "spillway_process_fault_source", "gauge",
		 "always 1: what counts page faults, or why nothing does");
	for (size_t i = 0; i < figures->n; i++) {
		const struct page *page = figures->process[i].page;

		if (!is_shown(page) || !*page->copy->fault_source)
			continue;
		fputs("spillway_process_fault_source", out);
		put_process(out, page);
		put_label(out, "fault_source", page->copy->fault_source);
		fputs("} 1\n", out);
	}
}

static void put_info(FILE *out, const struct figures *figures)
{
	put_head(out, "spillway_process_info", "gauge", "always 1: the process, and how it runs");
	for (size_t i = 0; i < figures->n; i++) {
		const struct page *page = figures->process[i].page;

		if (!is_shown(page))
			continue;
		fputs("spillway_process_info", out);
		put_process(out, page);
		put_label(out, "policy", page->copy->policy);
		put_label(out, "policy_hash", page->copy->policy_hash);
		put_label(out, "mode", page->copy->mode);
		put_label(out, "version", page->copy->spillway);
		put_label(out, "rank", page->copy->rank);
		put_label(out, "local_rank", page->copy->local_rank);
		put_label(out, "job", page->copy->job);
		fputs("} 1\n", out);
	}
	put_states(out, figures);
	put_head(out, "spillway_process_start_time_seconds", "gauge",
		 "when the process first used CUDA memory, since 1970");
	for (size_t i = 0; i < figures->n; i++) {
		const struct page *page = figures->process[i].page;

		if (!is_shown(page))
			continue;
		fputs("spillway_process_start_time_seconds", out);
		put_process(out, page);
		fprintf(out, "} %.3f\n", (double)page->copy->start_ns / 1e9);
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

enum shared_value {
	SHARED_MAY_HAVE,
	SHARED_NEEDS,
	SHARED_TURN,
	SHARED_WAITS,
	SHARED_GOT,
	SHARED_DUE,
	SHARED_SWITCH,
	SHARED_COUNT
};

static const struct {
	const char *name, *text;
} shared_values[SHARED_COUNT] = {
    [SHARED_MAY_HAVE] = {"spillway_shared_may_have_bytes", "what the process may have of a GPU that it shares"},
    [SHARED_NEEDS] = {"spillway_shared_needs_bytes", "what it needs, there and elsewhere"},
    [SHARED_TURN] = {"spillway_turn_holder", "1: it is its turn"},
    [SHARED_WAITS] = {"spillway_turn_waiting_seconds", "for how long it has been waiting for its turn; 0: it does not"},
    [SHARED_GOT] = {"spillway_turn_share_ratio", "the part of the time of all turns that it has had"},
    [SHARED_DUE] = {"spillway_turn_weight_ratio", "the part that its weight stands for"},
    [SHARED_SWITCH] = {"spillway_turn_switch_seconds", "how long its memory takes to leave and to come back"},
};

struct put_shared {
	FILE *out;
	enum shared_value value;
};

static double shared_value(const struct shared_gpu *gpu, unsigned i, enum shared_value value)
{
	const struct gpu_account_member *member = &gpu->member[i];

	switch (value) {
	case SHARED_MAY_HAVE:
		return (double)member->may_have;
	case SHARED_NEEDS:
		return (double)member->needs;
	case SHARED_TURN:
		return gpu->turns && i == gpu->holder;
	case SHARED_WAITS:
		return shared_waits(gpu, i);
	case SHARED_GOT:
		return shared_got(gpu, i);
	case SHARED_DUE:
		return shared_due(gpu, i);
	default:
		return (double)member->claim.cost / 1e9;
	}
}

static void put_shared_gpu(const struct shared_gpu *gpu, void *argument)
{
	const struct put_shared *put = argument;

	if (put->value == SHARED_COUNT) /* of all of them */
		fprintf(put->out, "spillway_shared_total_bytes{gpu=\"%s\"} %" PRIu64 "\n", gpu->uuid, gpu->total);
	for (unsigned i = 0; put->value < SHARED_COUNT && i < gpu->n; i++)
		fprintf(put->out, "%s{gpu=\"%s\",pid=\"%" PRIu64 "\"} %.15g\n", shared_values[put->value].name,
			gpu->uuid, gpu->member[i].pid, shared_value(gpu, i, put->value));
}

/* Of this user's processes. A process that takes no turns has a share of 0. */
static void put_all_shared(FILE *out)
{
	struct put_shared put = {out, SHARED_COUNT};

	put_head(out, "spillway_shared_total_bytes", "gauge", "what the processes that share a GPU may have together");
	shared_each(put_shared_gpu, &put);
	for (put.value = 0; put.value < SHARED_COUNT; put.value++) {
		put_head(out, shared_values[put.value].name, "gauge", shared_values[put.value].text);
		shared_each(put_shared_gpu, &put);
	}
}

/* ---- histograms ---- */

static void put_buckets(FILE *out, const char *name, const struct page *page, enum histogram histogram)
{
	const _Atomic uint64_t *bucket = page->copy->histogram[histogram];
	uint64_t n = 0, all = 0;
	unsigned at = 0;

	for (unsigned power = LEAST_POWER; power <= MOST_POWER; power++) {
		uint64_t bound = (uint64_t)1 << power;

		for (; at < STATS_BUCKETS && stats_bucket_least(at) < bound; at++)
			n += bucket[at];
		fprintf(out, "%s_bucket", name);
		put_process(out, page);
		fprintf(out, ",le=\"%.11g\"} %" PRIu64 "\n", (double)(bound - 1) / 1e9, n);
	}
	all = figures_measured(bucket);
	fprintf(out, "%s_bucket", name);
	put_process(out, page);
	fprintf(out, ",le=\"+Inf\"} %" PRIu64 "\n%s_sum", all, name);
	put_process(out, page);
	fprintf(out, "} %.9g\n%s_count", figures_sum(bucket) / 1e9, name);
	put_process(out, page);
	fprintf(out, "} %" PRIu64 "\n", all);
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
	put_info(out, figures);
	for (size_t i = 0; i < sizeof(budgets) / sizeof(*budgets); i++)
		put_budget(out, figures, i);
	put_places(out, figures, false);
	put_places(out, figures, true);
	put_device_places(out, figures);
	put_all_shared(out);
	for (unsigned i = 0; i < STAT_COUNT; i++)
		put_counter(out, figures, i);
	for (unsigned i = 0; i < FAULT_COUNT; i++)
		put_fault(out, figures, i);
	for (unsigned i = 0; i < FAULT_COUNT; i++)
		put_device_fault(out, figures, i);
	for (unsigned i = 0; i < LINK_COUNT; i++)
		put_link(out, figures, i);
	for (unsigned table = 0; table < TABLE_COUNT; table++)
		for (unsigned i = 0; i < FIGURE_COUNT; i++)
			put_table(out, figures, table, i);
	for (unsigned i = 0; i < HISTOGRAM_COUNT; i++)
		put_histogram(out, figures, i);
}

/* ---- the list ---- */

static void text_list(FILE *out, const char *kind, const struct figures_name *names, unsigned n, const char *prefix)
{
	char room[FIGURES_PROM];

	for (unsigned i = 0; i < n; i++)
		fprintf(out, "%s\t%s\t%s\t%s\t%s\n", kind, names[i].name, figures_unit_name(names[i].unit),
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
			figures_unit_name(figures_places[i].unit), figures_places[i].name, figures_places[i].text);
}
