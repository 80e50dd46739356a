/*
 * Compares several runs: a line for each figure, a column for each run and, for two runs, their difference. A value
 * that a trace does not contain is n/a and is not compared. This file also finds the costliest blocks.
 */
#include "tools/report/report.h"
#include "tools/common/units.h"
#include "tools/common/wrap.h"

#include "policy/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- the costliest blocks ---- */

static const struct digest *sorted; /* the argument of the comparison, because qsort() passes none */

static int by_cost(const void *a, const void *b)
{
	uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
	const struct trace_block *x = &sorted->trace->blocks[i], *y = &sorted->trace->blocks[k];

	if (sorted->block_wait_ns[i] != sorted->block_wait_ns[k])
		return sorted->block_wait_ns[i] < sorted->block_wait_ns[k] ? 1 : -1;
	if (x->bytes_in + x->bytes_out != y->bytes_in + y->bytes_out)
		return x->bytes_in + x->bytes_out < y->bytes_in + y->bytes_out ? 1 : -1;
	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	return (i > k) - (i < k);
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

struct figure {
	const char *name;
	enum unit unit;
	bool (*get)(const struct digest *digest, double *ret_value);
};

static uint64_t compare_sum(const struct digest *digest, size_t field)
{
	uint64_t total = 0;

	for (unsigned i = 0; i < DIGEST_DEVICES; i++)
		total += *(const uint64_t *)((const char *)&digest->devices[i] + field);
	return total;
}

static uint64_t compare_most(const struct digest *digest, size_t field)
{
	uint64_t found = 0;

	for (unsigned i = 0; i < DIGEST_DEVICES; i++) {
		uint64_t value = *(const uint64_t *)((const char *)&digest->devices[i] + field);

		found = value > found ? value : found;
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

/* FIGURE(name, known?, value) of `d`. */
#define FIGURE(name, known, value)                                                                                     \
	static bool name(const struct digest *d, double *ret_value)                                                    \
	{                                                                                                              \
		*ret_value = (double)(value);                                                                          \
		return known;                                                                                          \
	}
#define SUM(field)  compare_sum(d, offsetof(struct digest_device, field))
#define MOST(field) compare_most(d, offsetof(struct digest_device, field))
FIGURE(run_time, true, d->run_ns)
FIGURE(lost, d->run_ns, d->run_ns ? (double)d->lost_ns / (double)d->run_ns : 0)
FIGURE(step, MOST(step_median), MOST(step_median))
FIGURE(steps, MOST(n_steps), MOST(n_steps))
FIGURE(waiting, true, d->wait_ns)
FIGURE(gaps, true, d->gap_ns)
FIGURE(suspended, true, d->suspended_ns)
FIGURE(asking, true, d->ask_ns)
FIGURE(link_time, true, d->link_ns)
FIGURE(budget, MOST(budget), MOST(budget))
FIGURE(need, true, SUM(need))
FIGURE(on_device, true, SUM(device))
FIGURE(on_host, true, SUM(host_alone))
FIGURE(on_peers, d->trace->tells_peers, SUM(peers))
FIGURE(managed, true, SUM(managed))
FIGURE(bytes_in, true, SUM(bytes_in))
FIGURE(bytes_out, true, SUM(bytes_out))
FIGURE(peer_in, d->trace->tells_peers, SUM(peer_in))
FIGURE(peer_out, d->trace->tells_peers, SUM(peer_out))
FIGURE(bytes_in_step, MOST(n_steps), MOST(n_steps) ? SUM(bytes_in) / MOST(steps_begun) : 0)
FIGURE(refetches, true, d->total.refetches)
FIGURE(faults_gpu, faults_known(d), SUM(faults_gpu))
FIGURE(faults_cpu, faults_known(d), SUM(faults_cpu))
FIGURE(allocations, true, d->total.allocations)
FIGURE(refused, true, d->total.refused)
FIGURE(submissions, true, d->n_events[TRACE_submit])
#undef FIGURE

static const struct figure figures[] = {
    {"recorded", TIME, run_time},
    {"waited or stopped", SHARE, lost},
    {"step, in the middle", TIME, step},
    {"steps", COUNT, steps},
    {"waiting for memory", TIME, waiting},
    {"GPU stopped", TIME, gaps},
    {"suspended", TIME, suspended},
    {"making allocations", TIME, asking},
    {"link busy", TIME, link_time},
    {"device budget", BYTES, budget},
    {"needed at most", BYTES, need},
    {"on the device at most", BYTES, on_device},
    {"on the host at most", BYTES, on_host},
    {"on other GPUs at most", BYTES, on_peers},
    {"managed at most", BYTES, managed},
    {"moved in", BYTES, bytes_in},
    {"moved out", BYTES, bytes_out},
    {"  in from other GPUs", BYTES, peer_in},
    {"  out to other GPUs", BYTES, peer_out},
    {"moved in a step", BYTES, bytes_in_step},
    {"brought back within 10 s", COUNT, refetches},
    {"GPU page faults", COUNT, faults_gpu},
    {"CPU page faults", COUNT, faults_cpu},
    {"allocations", COUNT, allocations},
    {"refused", COUNT, refused},
    {"submissions", COUNT, submissions},
};

/* Doubles at the upper end of the range, which no integer can hold, are clamped. */
static uint64_t compare_whole(double value)
{
	return value < 18446744073709549568.0 ? (uint64_t)value : UINT64_MAX;
}

static void print_value(const struct figure *figure, const struct digest *digest)
{
	char room[UNITS_TEXT];
	double value;

	if (!figure->get(digest, &value)) {
		printf(" %14s", "n/a");
		return;
	}
	switch (figure->unit) {
	case TIME:
		units_time(compare_whole(value), room);
		break;
	case SHARE:
		units_share(value, 1, room);
		break;
	case BYTES:
		units_bytes(compare_whole(value), room);
		break;
	case COUNT:
		units_count(compare_whole(value), room);
		break;
	}
	printf(" %14s", room);
}

static void print_change(const struct figure *figure, const struct digest *a, const struct digest *b)
{
	double before, after;

	if (!figure->get(a, &before) || !figure->get(b, &after))
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
	printf("\n%-26s", "");
	for (size_t i = from; i < to; i++)
		printf(" %14zu", i + 1);
	printf("%s\n", with_change ? "     change" : "");
	for (size_t k = 0; k < sizeof(figures) / sizeof(*figures); k++) {
		printf("%-26s", figures[k].name);
		for (size_t i = from; i < to; i++)
			print_value(&figures[k], &digests[i]);
		if (with_change)
			print_change(&figures[k], &digests[0], &digests[1]);
		printf("\n");
	}
}

void report_compare_text(const struct digest *digests, size_t n)
{
	/* A line has a name of 26 columns and 15 for each run. */
	const size_t beside = (size_t)(wrap_width() - 26) / 15;
	char path[120], line[160];

	for (size_t i = 0; i < n; i++) {
		const struct trace *trace = digests[i].trace;

		snprintf(line, sizeof(line), "%zu: %s%s", i + 1, policy_printable(trace->path, path, sizeof(path)),
			 trace->damaged || trace->cut || trace->n_lost ? " (NOT COMPLETE)" : "");
		wrap_print(line, 0, 3);
		printf("   ");
		wrap_print(digests[i].verdict, 3, 3);
	}
	for (size_t from = 0; from < n; from += beside)
		print_runs(digests, from, n - from < beside ? n : from + beside, n == 2);
}
