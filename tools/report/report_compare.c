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
enum { FIGURES = 26 };

struct figure {
	const char *name;
	enum unit unit;
	bool known;
	uint64_t value, of; /* of: the whole of a share */
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

#define SUM(field)  compare_sum(d, offsetof(struct digest_device, field))
#define MOST(field) compare_most(d, offsetof(struct digest_device, field))
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
