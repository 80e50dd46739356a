/*
 * Writes the report for a terminal: the answer first, then the evidence, the longest table last.
 */
#include "tools/report/report.h"
#include "tools/common/units.h"
#include "tools/common/wrap.h"

#include "policy/text.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_ROOM = 41, VALUE_ROOM = 201 };

uint64_t report_wall(const struct trace *trace, uint64_t time)
{
	return trace->start + (time - trace->clock);
}

char *report_name(const struct digest *digest, enum digest_by by, uint64_t number, char *room, size_t bytes)
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

static void print_heading(const struct digest *digest)
{
	const struct trace *trace = digest->trace;
	char path[VALUE_ROOM], room[VALUE_ROOM], time[UNITS_TEXT], n[UNITS_TEXT];

	printf("%s: %s\n", policy_printable(trace->path, path, sizeof(path)), text_head(trace, "command", room));
	printf("  process %s", text_head(trace, "pid", room));
	printf(" on %s, ", text_head(trace, "host", room));
	printf("began %s, ", units_date(trace->start, time));
	printf("%s recorded, ", units_time(digest->run_ns, time));
	printf("%s\n", trace->ended ? "ended by itself" : "did not end by itself, or still runs");
	printf("  policy %s", text_head(trace, "policy", room));
	printf(" (%s), ", text_head(trace, "policy_hash", room));
	printf("spill.mode %s, ", text_head(trace, "mode", room));
	printf("spillway %s\n", text_head(trace, "spillway", room));
	if (digest->trace->n_lost)
		printf("  NOT COMPLETE: %s events had no room and are missing\n", units_count(trace->n_lost, n));
	if (trace->cut)
		printf("  NOT COMPLETE: the end of the file is cut off, as a killed process leaves it\n");
	if (trace->damaged)
		printf("  NOT COMPLETE: the file is damaged, what comes behind is not shown: %s\n",
		       policy_printable(trace->problem, room, sizeof(room)));
	if (digest->n_strangers)
		printf("  NOT COMPLETE: %s events are of devices beyond number %d\n",
		       units_count(digest->n_strangers, n), DIGEST_DEVICES - 1);
}

static void print_answer(const struct digest *digest)
{
	char time[UNITS_TEXT], share[UNITS_TEXT];

	printf("\n");
	wrap_print(digest->verdict, 0, 0);
	if (digest->n_costs)
		printf("\nWhat it cost, of %s:\n", units_time(digest->run_ns, time));
	for (unsigned i = 0; i < digest->n_costs; i++) {
		const struct digest_cost *cost = &digest->costs[i];
		int column = printf("  %9s %6s  %s: ", cost->known ? units_time(cost->ns, time) : "n/a",
				    cost->known ? units_share((double)cost->ns, (double)digest->run_ns, share) : "n/a",
				    digest_cost_name(cost->kind));

		wrap_print(cost->evidence, column, 20);
	}
	for (unsigned i = 0; i < digest->n_advice; i++) {
		printf("%s", i ? "  - " : "\nAdvice:\n  - ");
		wrap_print(digest->advice[i], 4, 4);
	}
}

static void print_device(const struct digest *digest, unsigned number)
{
	const struct digest_device *device = &digest->devices[number];
	char a[UNITS_TEXT], b[UNITS_TEXT], c[UNITS_TEXT], d[UNITS_TEXT], e[UNITS_TEXT];

	printf("\nDevice %u, bytes at their most%s:\n", number,
	       device->sampled ? "" : " (from the allocations; the trace has no samples)");
	printf("  on the device %s, on the host %s, ", units_bytes(device->device, a),
	       units_bytes(device->host_alone, b));
	if (device->peers)
		printf("on other GPUs %s, ", units_bytes(device->peers, a));
	printf("managed %s, system %s, driver %s\n", units_bytes(device->managed, c), units_bytes(device->system, d),
	       units_bytes(device->driver, e));
	printf("  together %s, budget %s, the GPU has %s; something %s for %s of the run\n",
	       units_bytes(device->need, a), device->budget ? units_bytes(device->budget, b) : "n/a",
	       device->total ? units_bytes(device->total, c) : "n/a", digest_device_away(device),
	       units_share((double)device->over_ns, (double)digest->run_ns, d));
	if (device->lent)
		printf("  it lent %s to other GPUs\n", units_bytes(device->lent, a));
	if (device->moves_in || device->moves_out)
		printf("  moved in %s (%s pieces), out %s (%s pieces)\n", units_bytes(device->bytes_in, a),
		       units_count(device->moves_in, b), units_bytes(device->bytes_out, c),
		       units_count(device->moves_out, d));
	if (device->peer_in || device->peer_out)
		printf("  of that from other GPUs %s, to them %s\n", units_bytes(device->peer_in, a),
		       units_bytes(device->peer_out, b));
	if (device->uncopied_in || device->uncopied_out)
		printf("  of that nothing was alive in %s in, %s out: those were not copied\n",
		       units_bytes(device->uncopied_in, a), units_bytes(device->uncopied_out, b));
	if (device->tells_alive)
		printf("  an allocator kept %s, of which %s were alive at most, and %s dead at most\n",
		       units_bytes(device->cache, a), units_bytes(device->cache_alive, b),
		       units_bytes(device->cache_dead, c));
	if (device->faults_known)
		printf("  page faults: %s by the GPU, %s by the CPU; by them %s in, %s out\n",
		       units_count(device->faults_gpu, a), units_count(device->faults_cpu, b),
		       units_bytes(device->fault_in, c), units_bytes(device->fault_out, d));
	else
		printf("  page faults: n/a (the trace has no figures of them)\n");
	if (device->n_steps)
		printf("  %s steps of %s (%s to %s)\n", units_count(device->n_steps, a),
		       units_time(device->step_median, b), units_time(device->step_least, c),
		       units_time(device->step_most, d));
}

static void print_moves(const struct digest *digest)
{
	char a[UNITS_TEXT], b[UNITS_TEXT], c[UNITS_TEXT], d[UNITS_TEXT];
	uint64_t in = 0, out = 0;

	if (!digest->n_moves)
		return;
	for (int why = 0; why < TRACE_WHYS; why++) {
		in += digest->move_why[0][why];
		out += digest->move_why[1][why];
	}
	printf("\nMoves: link busy %s, %s of the run, at %s in and out together\n", units_time(digest->link_ns, a),
	       units_share((double)digest->link_ns, (double)digest->run_ns, b),
	       units_rate(in + out, digest->link_ns, c));
	for (int why = 0; why < TRACE_WHYS; why++)
		if (digest->move_why[0][why] || digest->move_why[1][why])
			printf("  %-8s %10s in %10s out\n", digest_why_name((unsigned)why),
			       units_bytes(digest->move_why[0][why], a), units_bytes(digest->move_why[1][why], b));
	if (digest->moves_stayed || digest->moves_open)
		printf("  %s stayed where they were, of %s the trace has no end\n",
		       units_count(digest->moves_stayed, c), units_count(digest->moves_open, d));
}

static void print_way(uint64_t bytes, uint64_t ns)
{
	char size[UNITS_TEXT], rate[UNITS_TEXT];

	printf(" %10s at %-9s", units_bytes(bytes, size), bytes && ns ? units_rate(bytes, ns, rate) : "n/a");
}

static void print_links(const struct digest *digest)
{
	char name[48];

	if (digest->n_links)
		printf("\nLinks%s:\n",
		       digest->trace->tells_peers ? "" : " (this trace does not tell other GPUs from the host)");
	for (size_t i = 0; i < digest->n_links; i++) {
		const struct digest_link *link = &digest->links[i];

		if (link->lender == DIGEST_HOST)
			snprintf(name, sizeof(name), "device %u and the host", link->device);
		else
			snprintf(name, sizeof(name), "device %u and device %u", link->device, link->lender);
		printf("  %-24s", name);
		print_way(link->bytes_in, link->in_ns);
		printf(" in");
		print_way(link->bytes_out, link->out_ns);
		printf(" out\n");
	}
}

static void print_table(const struct digest *digest, enum digest_by by)
{
	const struct digest_table *table = &digest->tables[by];
	char name[NAME_ROOM], a[UNITS_TEXT], b[UNITS_TEXT], c[UNITS_TEXT], d[UNITS_TEXT], e[UNITS_TEXT], f[UNITS_TEXT];
	size_t n = table->n < REPORT_LINES ? table->n : REPORT_LINES;

	if (!table->n)
		return;
	printf("\nAllocations by %-25s %9s %10s %10s %10s %10s %9s\n", digest_by_name(by), "number", "at most",
	       "moved in", "moved out", "submits", "waited");
	for (size_t i = 0; i < n; i++) {
		const struct digest_group *group = &table->groups[i];

		printf("  %-39s %9s %10s %10s %10s %10s %9s",
		       report_name(digest, by, group->number, name, sizeof(name)), units_count(group->allocations, a),
		       units_bytes(group->peak, b), units_bytes(group->bytes_in, c), units_bytes(group->bytes_out, d),
		       units_count(group->submits, e), units_time(group->wait_ns, f));
		if (group->refused)
			printf("  %s refused", units_count(group->refused, a));
		printf("\n");
	}
	if (n < table->n)
		printf("  and %s more; --csv=%s has all\n", units_count(table->n - n, a),
		       by == DIGEST_BY_RULE ? "rules" : "allocations");
}

static void print_functions(const struct digest *digest)
{
	char name[VALUE_ROOM], a[UNITS_TEXT], b[UNITS_TEXT], c[UNITS_TEXT];

	if (!digest->n_functions || !digest->functions[0].waits)
		return;
	printf("\nWhat waited:\n");
	for (size_t i = 0; i < digest->n_functions && i < 5 && digest->functions[i].waits; i++) {
		const struct digest_function *function = &digest->functions[i];

		printf("  %9s in %s of %s submissions of %s\n", units_time(function->wait_ns, a),
		       units_count(function->waits, b), units_count(function->submits, c),
		       policy_printable(trace_text(digest->trace, TRACE_FUNCTIONS, function->number), name, 80));
	}
}

static void print_idle_rules(const struct digest *digest)
{
	char name[NAME_ROOM];

	if (!digest->n_idle_rules)
		return;
	printf("\nRules that never matched:");
	for (size_t i = 0; i < digest->n_idle_rules && i < REPORT_LIST; i++)
		printf("%s %s", i ? "," : "",
		       report_name(digest, DIGEST_BY_RULE, digest->idle_rules[i], name, sizeof(name)));
	printf("\n");
}

static void print_curve(const struct digest *digest)
{
	char a[UNITS_TEXT], b[UNITS_TEXT], c[UNITS_TEXT], d[UNITS_TEXT];
	uint64_t each = digest->curve_steps ? digest->curve_steps : 1;

	if (!digest->n_curve)
		return;
	printf("\nWith less device memory at least this would have to move%s (Belady's rule on whole\n"
	       "allocations, over the last %s submissions, %s):\n",
	       digest->curve_steps ? " in a step" : "", units_count(digest->curve_submits, a),
	       units_time(digest->curve_ns, b));
	for (unsigned i = 0; i < digest->n_curve; i += 2) {
		const struct digest_point *point = &digest->curve[i];

		printf("  %3u %% %10s %12s in %12s out", point->percent, units_bytes(point->budget, a),
		       units_bytes(point->bytes_in / each, b), units_bytes(point->bytes_out / each, c));
		if (point->over)
			printf("; %s naming more than fits", units_number(point->over, "submission", d));
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
	for (int by = 0; by < DIGEST_TABLES; by++)
		print_table(digest, (enum digest_by)by);
	print_idle_rules(digest);
	print_functions(digest);
	print_curve(digest);
}
