// SPDX-License-Identifier: Apache-2.0
/*
 * Writes the report for a terminal: the answer first, then the evidence, the longest table last.
 */
#include "tools/common/units.h"
#include "tools/common/grow.h"
#include "tools/common/wrap.h"
#include "tools/report/report.h"
#include "policy/policy.h"
#include "policy/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_ROOM = 201, VALUE_ROOM = 201, CELLS_MOST = 8 };

/* ---- tables ---- */

/* A name and figures. The first row is the heading. */
struct text_row {
	char name[NAME_ROOM], cells[CELLS_MOST][UNITS_TEXT];
	char note[UNITS_TEXT + 16]; /* "" or a remark, on a line of its own */
};

/*
 * Prints rows of n_cells figures. Columns are as wide as their widest figure, and the names get the rest of the line; a
 * name that is longer gets a line of its own.
 */
static void print_rows(const struct text_row *rows, size_t n_rows, unsigned n_cells)
{
	int widths[CELLS_MOST] = {0}, left = wrap_width();

	for (unsigned k = 0; k < n_cells; k++) {
		for (size_t i = 0; i < n_rows; i++) {
			int columns = wrap_columns(rows[i].cells[k], UNITS_TEXT);

			widths[k] = columns > widths[k] ? columns : widths[k];
		}
		left -= widths[k] + 1;
	}
	for (size_t i = 0; i < n_rows; i++) {
		int indent = i ? 2 : 0, columns = indent + wrap_columns(rows[i].name, NAME_ROOM);

		printf("%*s", indent, "");
		if (columns > left) {
			wrap_print(rows[i].name, indent, 4);
			columns = 0;
		} else {
			printf("%s", rows[i].name);
		}
		printf("%*s", left - columns, "");
		for (unsigned k = 0; k < n_cells; k++)
			printf(" %*s", widths[k], rows[i].cells[k]);
		printf("\n");
		if (*rows[i].note)
			printf("    %s\n", rows[i].note);
	}
}

uint64_t report_wall(const struct trace *trace, uint64_t time)
{
	return trace->start + (time - trace->clock);
}

/* Writes a name that is safe to print into the buffer. Returns the buffer. */
static char *report_name(const struct digest *digest, enum digest_by by, uint64_t number, char *room, size_t bytes)
{
	char made[64];

	return policy_printable(digest_group_name(digest, by, number, made, sizeof(made)), room, bytes);
}

/* Returns a value of the file's head, safe to print; "n/a" if it does not exist. */
static const char *text_head(const struct trace *trace, const char *key, char room[VALUE_ROOM])
{
	char value[VALUE_ROOM];

	trace_value(trace, key, value, sizeof(value));
	return value[0] ? policy_printable(value, room, VALUE_ROOM) : "n/a";
}

#define HEAD(trace, key) text_head(trace, key, (char[VALUE_ROOM]){0})

/* What became of the mode while the process ran, if anything did. */
static void add_changes(const struct trace *trace, char *text, size_t room)
{
	uint64_t last = POLICY_SPILL_COUNT;
	unsigned n = 0;

	for (size_t i = 0; i < trace->n_rows; i++)
		if (trace->rows[i].event.kind == TRACE_mode) {
			last = trace->rows[i].event.mode.mode;
			n++;
		}
	if (last < POLICY_SPILL_COUNT)
		snprintf(text, room, " (set %u time%s while it ran, at last to %s)", n, n == 1 ? "" : "s",
			 policy_spill_name((enum policy_spill)last));
	else
		*text = 0;
}

static void print_heading(const struct digest *digest)
{
	const struct trace *trace = digest->trace;
	char path[VALUE_ROOM], room[VALUE_ROOM], changes[128];

	wrap_line(0, 4, "%s: %s", policy_printable(trace->path, path, sizeof(path)), HEAD(trace, "command"));
	trace_value(trace, "rank", room, VALUE_ROOM);
	wrap_line(2, 4, "process %s%s%.16s%s on %s, began %s, %s recorded, %s", HEAD(trace, "pid"),
		  *room ? " (rank " : "", room, *room ? ")" : "", HEAD(trace, "host"), text_date(trace->start),
		  text_time(digest->run_ns), trace->ended ? "ended by itself" : "did not end by itself, or still runs");
	add_changes(trace, changes, sizeof(changes));
	wrap_line(2, 4, "policy %s (%s), spill.mode %s%s, spillway %s", HEAD(trace, "policy"),
		  HEAD(trace, "policy_hash"), HEAD(trace, "mode"), changes, HEAD(trace, "spillway"));
	if (digest->trace->n_lost)
		wrap_line(2, 4, "NOT COMPLETE: %s events had no room and are missing", text_count(trace->n_lost));
	if (trace->cut)
		wrap_line(2, 4, "NOT COMPLETE: the end of the file is cut off, as a killed process leaves it");
	if (trace->damaged)
		wrap_line(2, 4, "NOT COMPLETE: the file is damaged, what comes behind is not shown: %s",
			  policy_printable(trace->problem, room, sizeof(room)));
	if (digest->n_strangers)
		wrap_line(2, 4, "NOT COMPLETE: %s events are of devices beyond number %d",
			  text_count(digest->n_strangers), DIGEST_DEVICES - 1);
}

static void print_answer(const struct digest *digest)
{
	printf("\n");
	wrap_print(digest->verdict, 0, 0);
	if (digest->n_costs)
		printf("\nWhat it cost, of %s:\n", text_time(digest->run_ns));
	for (unsigned i = 0; i < digest->n_costs; i++) {
		const struct digest_cost *cost = &digest->costs[i];
		int column = printf("  %9s %6s  %s: ", cost->known ? text_time(cost->ns) : "n/a",
				    cost->known ? text_share((double)cost->ns, (double)digest->run_ns) : "n/a",
				    digest_cost_names[cost->kind]);

		wrap_print(cost->evidence, column, 20);
	}
	if (digest->both_ns)
		wrap_line(2, 4, "%s of this is in two of them: a submission waited while the GPU was stopped",
			  text_time(digest->both_ns));
	for (unsigned i = 0; i < digest->n_advice; i++) {
		printf("%s", i ? "  - " : "\nAdvice:\n  - ");
		wrap_print(digest->advice[i], 4, 4);
	}
}

static void print_device(const struct digest *digest, unsigned number)
{
	const struct digest_device *device = &digest->devices[number];
	char peers[UNITS_TEXT + 24] = "";

	printf("\nDevice %u, bytes at their most%s:\n", number,
	       device->sampled ? "" : " (from the allocations; the trace has no samples)");
	if (device->peers)
		snprintf(peers, sizeof(peers), "on other GPUs %s, ", text_bytes(device->peers));
	wrap_line(2, 4, "on the device %s, on the host %s, %smanaged %s, system %s, driver %s",
		  text_bytes(device->device), text_bytes(device->host_alone), peers, text_bytes(device->managed),
		  text_bytes(device->system), text_bytes(device->driver));
	wrap_line(2, 4, "together %s, budget %s, the GPU has %s; something %s for %s of the run",
		  text_bytes(device->need), device->budget ? text_bytes(device->budget) : "n/a",
		  device->total ? text_bytes(device->total) : "n/a", digest_device_away(device),
		  text_share((double)device->over_ns, (double)digest->run_ns));
	if (device->lent)
		wrap_line(2, 4, "it lent %s to other GPUs", text_bytes(device->lent));
	if (device->moves_in || device->moves_out)
		wrap_line(2, 4, "moved in %s (%s pieces), out %s (%s pieces)", text_bytes(device->bytes_in),
			  text_count(device->moves_in), text_bytes(device->bytes_out), text_count(device->moves_out));
	if (device->peer_in || device->peer_out)
		wrap_line(2, 4, "of that from other GPUs %s, to them %s", text_bytes(device->peer_in),
			  text_bytes(device->peer_out));
	if (device->uncopied_in || device->uncopied_out)
		wrap_line(2, 4, "of that nothing was alive in %s in, %s out: those were not copied",
			  text_bytes(device->uncopied_in), text_bytes(device->uncopied_out));
	if (device->tells_alive)
		wrap_line(2, 4, "an allocator kept %s, of which %s were alive at most, and %s dead at most",
			  text_bytes(device->cache), text_bytes(device->cache_alive), text_bytes(device->cache_dead));
	if (device->faults_known)
		wrap_line(2, 4, "page faults: %s by the GPU, %s by the CPU; by them %s in, %s out",
			  text_count(device->faults_gpu), text_count(device->faults_cpu), text_bytes(device->fault_in),
			  text_bytes(device->fault_out));
	else
		wrap_line(2, 4, "page faults: n/a (the trace has no figures of them)");
	if (device->n_steps)
		wrap_line(2, 4, "%s steps of %s (%s to %s)", text_count(device->n_steps),
			  text_time(device->step_median), text_time(device->step_least), text_time(device->step_most));
}

static void print_moves(const struct digest *digest)
{
	uint64_t in = 0, out = 0;

	if (!digest->n_moves)
		return;
	for (int why = 0; why < TRACE_WHYS; why++) {
		in += digest->move_why[0][why];
		out += digest->move_why[1][why];
	}
	printf("\n");
	wrap_line(0, 4, "Moves: link busy %s, %s of the run, at %s in and out together", text_time(digest->link_ns),
		  text_share((double)digest->link_ns, (double)digest->run_ns), text_rate(in + out, digest->link_ns));
	for (int why = 0; why < TRACE_WHYS; why++)
		if (digest->move_why[0][why] || digest->move_why[1][why])
			printf("  %-8s %10s in %10s out\n", digest_why_name((unsigned)why),
			       text_bytes(digest->move_why[0][why]), text_bytes(digest->move_why[1][why]));
	if (digest->rest.bytes_in || digest->rest.bytes_out)
		wrap_line(2, 4, "of no allocation, but room in pieces that moved: %s in, %s out",
			  text_bytes(digest->rest.bytes_in), text_bytes(digest->rest.bytes_out));
	if (digest->moves_stayed || digest->moves_open)
		wrap_line(2, 4, "%s stayed where they were, of %s the trace has no end",
			  text_count(digest->moves_stayed), text_count(digest->moves_open));
}

static void put_way(struct text_row *row, unsigned cell, uint64_t bytes, uint64_t ns)
{
	units_bytes(bytes, row->cells[cell]);
	if (bytes && ns)
		units_rate(bytes, ns, row->cells[cell + 1]);
	else
		strcpy(row->cells[cell + 1], "n/a");
}

/* If memory runs out, the links are left out. */
static void print_links(const struct digest *digest)
{
	struct text_row *rows = calloc(digest->n_links + 1, sizeof(*rows));

	if (!rows || !digest->n_links) {
		free(rows);
		return;
	}
	snprintf(rows->name, NAME_ROOM,
		 "Links%s:", digest->trace->tells_peers ? "" : " (this trace does not tell other GPUs from the host)");
	for (unsigned k = 0; k < 4; k++)
		strcpy(rows->cells[k], k % 2 ? "at" : k ? "moved out" : "moved in");
	for (size_t i = 0; i < digest->n_links; i++) {
		const struct digest_link *link = &digest->links[i];
		struct text_row *row = &rows[i + 1];

		if (link->lender == DIGEST_HOST)
			snprintf(row->name, NAME_ROOM, "device %u and the host", link->device);
		else
			snprintf(row->name, NAME_ROOM, "device %u and device %u", link->device, link->lender);
		put_way(row, 0, link->bytes_in, link->in_ns);
		put_way(row, 2, link->bytes_out, link->out_ns);
	}
	printf("\n");
	print_rows(rows, digest->n_links + 1, 4);
	free(rows);
}

static void print_table(const struct digest *digest, enum digest_by by)
{
	static const char *const columns[] = {"number", "at most", "moved in", "moved out", "submits", "waited"};
	const struct digest_table *table = &digest->tables[by];
	size_t n = table->n < REPORT_LINES ? table->n : REPORT_LINES;
	struct text_row rows[REPORT_LINES + 1] = {0};

	if (!table->n)
		return;
	snprintf(rows[0].name, NAME_ROOM, "Allocations by %s", digest_by_names[by]);
	for (unsigned k = 0; k < 6; k++)
		snprintf(rows[0].cells[k], UNITS_TEXT, "%s", columns[k]);
	for (size_t i = 0; i < n; i++) {
		const struct digest_group *group = &table->groups[i];
		struct text_row *row = &rows[i + 1];

		report_name(digest, by, group->number, row->name, NAME_ROOM);
		units_count(group->allocations, row->cells[0]);
		units_bytes(group->peak, row->cells[1]);
		units_bytes(group->bytes_in, row->cells[2]);
		units_bytes(group->bytes_out, row->cells[3]);
		units_count(group->submits, row->cells[4]);
		units_time(group->wait_ns, row->cells[5]);
		if (group->refused)
			snprintf(row->note, sizeof(row->note), "and %s refused", text_count(group->refused));
		else if (group->tensors)
			snprintf(row->note, sizeof(row->note), "and %s", text_number(group->tensors, "tensor"));
		else if (group->managed_used && !group->managed_touches && digest->tells_untouched)
			snprintf(row->note, sizeof(row->note), "not touched by the CPU after the GPU");
	}
	printf("\n");
	print_rows(rows, n + 1, 6);
	if (n < table->n)
		wrap_line(2, 4, "and %s more; --json has them", text_count(table->n - n));
}

/* Skipped if the trace does not say what GPUs used of managed memory. */
static void print_managed(const struct digest *digest)
{
	const struct digest_table *table = &digest->tables[DIGEST_BY_SITE];
	unsigned used = 0, touched = 0;

	for (size_t i = 0; i < table->n; i++) {
		touched += table->groups[i].managed_touches != 0;
		used += table->groups[i].managed_touches || table->groups[i].managed_used;
	}
	if (!used)
		return;
	printf("\n");
	printf("Managed memory that a GPU used, and what the CPU did after that:\n");
	if (touched)
		wrap_line(2, 4, "at %s it touched memory, and %s came back", text_number(touched, "site"),
			  text_bytes(digest->total.managed_back));
	if (used > touched)
		wrap_line(2, 4, "at %s %s", text_number(used - touched, "site"),
			  digest->tells_untouched ? "it touched nothing (use: heap may fit)"
						  : "that is not known, because events are missing");
}

static void print_functions(const struct digest *digest)
{
	char name[VALUE_ROOM];

	if (!digest->n_functions || !digest->functions[0].waits)
		return;
	printf("\nWhat waited:\n");
	for (size_t i = 0; i < digest->n_functions && i < 5 && digest->functions[i].waits; i++) {
		const struct digest_function *function = &digest->functions[i];

		int column = printf("  %9s in %s of %s submissions of ", text_time(function->wait_ns),
				    text_count(function->waits), text_count(function->submits));

		wrap_print(
		    policy_printable(trace_text(digest->trace, TRACE_FUNCTIONS, function->number), name, sizeof(name)),
		    column, 12);
	}
}

static void print_idle_rules(const struct digest *digest)
{
	char name[NAME_ROOM];

	if (digest->n_idle_rules)
		printf("\nRules that never matched:\n");
	for (size_t i = 0; i < digest->n_idle_rules && i < REPORT_LIST; i++)
		wrap_line(2, 4, "%s", report_name(digest, DIGEST_BY_RULE, digest->idle_rules[i], name, sizeof(name)));
}

static void print_curve(const struct digest *digest)
{
	uint64_t each = digest->curve_steps ? digest->curve_steps : 1;

	if (!digest->n_curve)
		return;
	printf("\n");
	wrap_line(
	    0, 0,
	    "With less device memory at least this would have to move%s (Belady's rule on whole allocations, over "
	    "the last %s submissions, %s):",
	    digest->curve_steps ? " in a step" : "", text_count(digest->curve_submits), text_time(digest->curve_ns));
	for (unsigned i = 0; i < digest->n_curve; i += 2) {
		const struct digest_point *point = &digest->curve[i];

		printf("  %3u %% %10s %12s in %12s out", point->percent, text_bytes(point->budget),
		       text_bytes(point->bytes_in / each), text_bytes(point->bytes_out / each));
		if (point->over)
			printf("\n%20s%s naming more than fits", "", text_number(point->over, "submission"));
		printf("\n");
	}
}

void report_text(const struct digest *digest)
{
	print_heading(digest);
	print_answer(digest);
	for (unsigned i = 0; i < DIGEST_DEVICES; i++)
		if (digest->devices[i].seen)
			print_device(digest, i);
	print_moves(digest);
	print_links(digest);
	/* Chains of callers are for the page: they have no room in lines of 80 columns. */
	print_table(digest, DIGEST_BY_RULE);
	print_table(digest, DIGEST_BY_SITE);
	print_managed(digest);
	print_idle_rules(digest);
	print_functions(digest);
	print_curve(digest);
}

/*
 * Compares several runs: a line for each figure, a column for each run and, for two runs, their difference. A value
 * that a trace does not contain is n/a and is not compared. This file also finds the costliest blocks.
 */

/* ---- the costliest blocks ---- */

static const struct digest *sorted; /* the argument of the comparison, because qsort() passes none */

static int by_cost(const void *a, const void *b)
{
	uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
	const struct trace_block *x = &sorted->trace->blocks[i], *y = &sorted->trace->blocks[k];
	int order = ORDER(sorted->block_wait_ns[k], sorted->block_wait_ns[i]);

	order = order ?: ORDER(y->bytes_in + y->bytes_out, x->bytes_in + x->bytes_out);
	return order ?: ORDER(y->bytes, x->bytes) ?: ORDER(i, k);
}

/* If memory for sorting runs out, the result is empty; the tables still contain the sums. */
size_t report_blocks(const struct digest *digest, uint32_t *ret_blocks, size_t most)
{
	size_t n = digest->trace->n_blocks, kept = n < most ? n : most;
	uint32_t *order = malloc((n ? n : 1) * sizeof(*order));

	if (!order)
		return 0;
	for (size_t i = 0; i < n; i++)
		order[i] = (uint32_t)i;
	sorted = digest;
	qsort(order, n, sizeof(*order), by_cost);
	memcpy(ret_blocks, order, kept * sizeof(*order));
	free(order);
	return kept;
}

/* ---- figures ---- */

enum unit { TIME, SHARE, BYTES, COUNT };
enum { FIGURES = 26 };

struct figure {
	const char *name;
	enum unit unit;
	bool known;
	uint64_t value, of; /* of: the whole of a share */
};

/* Returns the largest value that a device has in this field, or the sum of them all. */
static uint64_t of_devices(const struct digest *digest, size_t field, bool sum)
{
	uint64_t found = 0;

	for (unsigned i = 0; i < DIGEST_DEVICES; i++) {
		uint64_t value = *(const uint64_t *)((const char *)&digest->devices[i] + field);

		found = sum ? found + value : value > found ? value : found;
	}
	return found;
}

static bool faults_known(const struct digest *digest)
{
	for (unsigned i = 0; i < DIGEST_DEVICES; i++)
		if (digest->devices[i].faults_known)
			return true;
	return false;
}

#define SUM(field)  of_devices(d, offsetof(struct digest_device, field), true)
#define MOST(field) of_devices(d, offsetof(struct digest_device, field), false)
static void figures_of(const struct digest *d, struct figure ret[FIGURES])
{
	const bool peers = d->trace->tells_peers, faults = faults_known(d);
	const uint64_t steps = MOST(n_steps);
	const struct figure figures[] = {
	    {"recorded", TIME, true, d->run_ns, 0},
	    {"waited or stopped", SHARE, d->run_ns, d->lost_ns, d->run_ns},
	    {"step, in the middle", TIME, MOST(step_median), MOST(step_median), 0},
	    {"steps", COUNT, steps, steps, 0},
	    {"waiting for memory", TIME, true, d->wait_ns, 0},
	    {"GPU stopped", TIME, true, d->gap_ns, 0},
	    {"suspended", TIME, true, d->suspended_ns, 0},
	    {"making allocations", TIME, true, d->ask_ns, 0},
	    {"link busy", TIME, true, d->link_ns, 0},
	    {"device budget", BYTES, MOST(budget), MOST(budget), 0},
	    {"needed at most", BYTES, true, SUM(need), 0},
	    {"on the device at most", BYTES, true, SUM(device), 0},
	    {"on the host at most", BYTES, true, SUM(host_alone), 0},
	    {"on other GPUs at most", BYTES, peers, SUM(peers), 0},
	    {"managed at most", BYTES, true, SUM(managed), 0},
	    {"moved in", BYTES, true, SUM(bytes_in), 0},
	    {"moved out", BYTES, true, SUM(bytes_out), 0},
	    {"  in from other GPUs", BYTES, peers, SUM(peer_in), 0},
	    {"  out to other GPUs", BYTES, peers, SUM(peer_out), 0},
	    {"moved in a step", BYTES, steps, steps ? SUM(bytes_in) / MOST(steps_begun) : 0, 0},
	    {"brought back within 10 s", COUNT, true, d->total.refetches, 0},
	    {"GPU page faults", COUNT, faults, SUM(faults_gpu), 0},
	    {"CPU page faults", COUNT, faults, SUM(faults_cpu), 0},
	    {"allocations", COUNT, true, d->total.allocations, 0},
	    {"refused", COUNT, true, d->total.refused, 0},
	    {"submissions", COUNT, true, d->n_events[TRACE_submit], 0},
	};

	_Static_assert(sizeof(figures) / sizeof(*figures) == FIGURES, "all of them");
	memcpy(ret, figures, sizeof(figures));
}

static void print_value(const struct figure *figure)
{
	char room[UNITS_TEXT];

	if (!figure->known)
		snprintf(room, sizeof(room), "n/a");
	else if (figure->unit == TIME)
		units_time(figure->value, room);
	else if (figure->unit == SHARE)
		units_share((double)figure->value, (double)figure->of, room);
	else if (figure->unit == BYTES)
		units_bytes(figure->value, room);
	else
		units_count(figure->value, room);
	printf(" %14s", room);
}

static double compare_real(const struct figure *figure)
{
	return (double)figure->value / (figure->of ? (double)figure->of : 1);
}

static void print_change(const struct figure *a, const struct figure *b)
{
	double before = compare_real(a), after = compare_real(b);

	if (!a->known || !b->known)
		return;
	if (before == after)
		printf("           =");
	else if (before > 0 && after / before < 10)
		printf("    %+6.1f %%", (after / before - 1) * 100);
	else if (before > 0)
		printf("    x %.1f", after / before);
}

/* Prints the figures of the runs from..to - 1 beside each other. */
static void print_runs(const struct digest *digests, size_t from, size_t to, bool with_change)
{
	struct figure figures[RUNS_MOST][FIGURES];

	printf("\n%-26s", "");
	for (size_t i = from; i < to; i++) {
		printf(" %14zu", i + 1);
		figures_of(&digests[i], figures[i - from]);
	}
	printf("%s\n", with_change ? "     change" : "");
	for (size_t k = 0; k < FIGURES; k++) {
		printf("%-26s", figures[0][k].name);
		for (size_t i = 0; i < to - from; i++)
			print_value(&figures[i][k]);
		if (with_change)
			print_change(&figures[0][k], &figures[1][k]);
		printf("\n");
	}
}

void report_compare_text(const struct digest *digests, size_t n)
{
	/* A line has a name of 26 columns and 15 for each run. */
	const size_t beside = (size_t)(wrap_width() - 26) / 15;
	char path[120];

	for (size_t i = 0; i < n; i++) {
		const struct trace *trace = digests[i].trace;

		wrap_line(0, 3, "%zu: %s%s", i + 1, policy_printable(trace->path, path, sizeof(path)),
			  trace->damaged || trace->cut || trace->n_lost ? " (NOT COMPLETE)" : "");
		printf("   ");
		wrap_print(digests[i].verdict, 3, 3);
	}
	for (size_t from = 0; from < n; from += beside)
		print_runs(digests, from, n - from < beside ? n : from + beside, n == 2);
}
