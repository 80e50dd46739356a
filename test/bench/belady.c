/*
 * belady: the least a job's memory has to move, by Belady's rule on a recorded trace: what is used farthest in the future
 * goes out first. It is what the bars of spilling are measured against (docs/facts.md, Moving memory), and a reference,
 * not a bound: blocks differ in size, and finer grain may go below whole ones.
 *
 *   belady [--steps N] [--grain SIZE] [--need SIZE] [--reserve SIZE] [--budget SIZE]... [--ratio R]... [FILE]
 *
 * The trace is text (trace.h), from FILE or standard input.
 *
 * --need is what a ratio divides, by default the most that the trace has alive at once. --reserve is taken off each
 * budget. --grain 0 (the default) moves whole allocations; otherwise pieces of that size, and a pointer means what lies
 * between it and the next offset of its block that was named within the last step.
 *
 * Each budget gives a line
 *   belady grain G ratio R budget_mib B in_gb I out_gb O over V launches L
 * with I and O in 1e9 bytes per step, V submissions in the counted part that name more than fits, and L submissions a
 * step. Counted are whole steps of the second half of the trace. Their borders are a function that was submitted once a
 * step (the one with N submissions, or a few less, that is spaced most evenly); where there is none, the last half of the
 * submissions counts as N / 2 steps.
 *
 * How it works: belady.h.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/bench/trace.h"
#include "tools/common/belady.h"

static struct trace trace;

/*
 * Steps.
 */

static struct {
	uint64_t first, end; /* submissions that count */
	double n;            /* steps in them */
} window;

static int by_function(const void *a, const void *b)
{
	const struct launch *x = &trace.launches[*(const uint32_t *)a], *y = &trace.launches[*(const uint32_t *)b];

	if (x->function != y->function)
		return x->function < y->function ? -1 : 1;
	return (x > y) - (x < y);
}

/* How uneven are these n submissions spaced? The largest distance over the smallest. */
static double unevenness(const uint32_t *at, uint64_t n)
{
	uint32_t least = NEVER, most = 0;

	for (uint64_t i = 1; i < n; i++) {
		uint32_t distance = at[i] - at[i - 1];

		least = distance < least ? distance : least;
		most = distance > most ? distance : most;
	}
	return (double)most / least;
}

/* A record begins with the pressure, so the first steps may lack in it. */
#define LATE_STEPS 2

static void find_steps(uint64_t steps)
{
	uint32_t *order = zeros(trace.n_launches, sizeof(*order));
	double best = 2; /* twice as long a step is no step */

	window.first = trace.n_launches / 2;
	window.end = trace.n_launches;
	window.n = (double)steps / 2;
	for (uint32_t i = 0; i < trace.n_launches; i++)
		order[i] = i;
	qsort(order, trace.n_launches, sizeof(*order), by_function);
	for (uint64_t from = 0, to; steps > 2 && from < trace.n_launches; from = to) {
		for (to = from + 1; to < trace.n_launches; to++)
			if (trace.launches[order[to]].function != trace.launches[order[from]].function)
				break;
		uint64_t found = to - from;

		if (found > steps || found + LATE_STEPS < steps || found < 3 || unevenness(order + from, found) >= best)
			continue;
		best = unevenness(order + from, found);
		window.first = order[from + found / 2];
		window.end = order[to - 1];
		window.n = (double)(found - 1 - found / 2);
	}
	free(order);
}

/*
 * Pieces: what moves as one. Blocks follow each other without gaps; grain 0: a block is a piece.
 */

struct piece {
	uint32_t bytes, block; /* bytes in 512 B */
	uint32_t last;         /* the submission that used it last, + 1: to take each once a submission */
};

static struct piece *pieces;
static uint32_t *all_named; /* pieces */
static struct belady belady;
static uint64_t *first_named; /* of each submission, and one more */
static uint64_t n_pieces, n_named, room_named;

static void pieces_init(uint64_t grain)
{
	n_pieces = 0;
	for (uint64_t i = 0; i < trace.n_blocks; i++) {
		trace.blocks[i].first_piece = (uint32_t)n_pieces;
		n_pieces += grain ? (trace.blocks[i].bytes + grain - 1) / grain : 1;
	}
	pieces = zeros(n_pieces, sizeof(*pieces));
	for (uint64_t i = 0; i < trace.n_blocks; i++)
		for (uint64_t at = 0, p = trace.blocks[i].first_piece; at < trace.blocks[i].bytes; p++) {
			uint64_t left = trace.blocks[i].bytes - at, bytes = grain && grain < left ? grain : left;

			pieces[p].bytes = (uint32_t)((bytes + OFFSET_UNIT - 1) / OFFSET_UNIT);
			pieces[p].block = (uint32_t)i;
			at += bytes;
		}
}

/* The place of an offset among those of its block. */
static uint32_t place_of(const struct block *block, uint32_t offset)
{
	uint32_t low = 0, high = block->n_offsets;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (block->offsets[middle] <= offset)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/*
 * Where the tensor at this offset ends, in bytes, as far as pointers tell: at the next offset that was named within the
 * last step. Older ones belong to tensors that may be gone.
 */
static uint64_t end_of(const struct block *block, uint32_t offset, uint64_t launch)
{
	uint64_t step = (uint64_t)((double)(window.end - window.first) / window.n);

	for (uint32_t i = place_of(block, offset) + 1; i < block->n_offsets; i++)
		if (block->named[i] && block->named[i] + step > launch)
			return (uint64_t)block->offsets[i] * OFFSET_UNIT;
	return block->bytes;
}

static void name_offsets(const struct launch *launch, uint32_t number)
{
	for (uint32_t k = 0; k < launch->n; k++) {
		const struct submission *use = &trace.uses[launch->first + k];
		const struct block *block = &trace.blocks[use->block];

		block->named[place_of(block, use->offset)] = number;
	}
}

static void name_piece(uint64_t p, uint64_t launch)
{
	if (pieces[p].last == launch + 1)
		return;
	pieces[p].last = (uint32_t)launch + 1;
	all_named = grown(all_named, n_named, &room_named, sizeof(*all_named));
	all_named[n_named++] = (uint32_t)p;
}

static struct belady_names names_of(uint64_t l)
{
	return (struct belady_names){all_named + first_named[l], (uint32_t)(first_named[l + 1] - first_named[l]), 1};
}

/* Submissions by piece, each once, with the next use of each. */
static void find_uses(uint64_t grain)
{
	first_named = zeros(trace.n_launches + 1, sizeof(*first_named));
	n_named = 0;
	for (uint64_t l = 0; l < trace.n_launches; l++) {
		first_named[l] = n_named;
		name_offsets(&trace.launches[l], (uint32_t)l + 1);
		for (uint32_t k = 0; k < trace.launches[l].n; k++) {
			const struct submission *use = &trace.uses[trace.launches[l].first + k];
			const struct block *block = &trace.blocks[use->block];
			uint64_t at = (uint64_t)use->offset * OFFSET_UNIT;
			uint64_t end = grain ? end_of(block, use->offset, l) : 0;

			if (!grain)
				name_piece(block->first_piece, l);
			for (uint64_t p = grain ? at / grain : 1; grain && p * grain < end; p++)
				name_piece(block->first_piece + p, l);
		}
	}
	first_named[trace.n_launches] = n_named;

	if (!belady_start(&belady, n_pieces, n_named)) {
		fprintf(stderr, "belady: there is no memory for all of it\n");
		exit(1);
	}
	for (uint64_t p = 0; p < n_pieces; p++)
		belady.bytes[p] = (uint64_t)pieces[p].bytes * OFFSET_UNIT;
	for (uint64_t l = trace.n_launches; l-- > 0;)
		belady_look_ahead(&belady, names_of(l), (uint32_t)l);
}

/* Blocks that ended before submission l give their room back. Ends are in the order of submissions. */
static void bury(const uint32_t *ends, uint64_t *n_ended, uint64_t l)
{
	for (; *n_ended < trace.n_blocks && trace.blocks[ends[*n_ended]].died <= l; ++*n_ended) {
		const struct block *block = &trace.blocks[ends[*n_ended]];

		for (uint64_t p = block->first_piece; p < n_pieces && pieces[p].block == ends[*n_ended]; p++)
			belady_forget(&belady, (uint32_t)p);
	}
}

static int by_end(const void *a, const void *b)
{
	uint32_t x = trace.blocks[*(const uint32_t *)a].died, y = trace.blocks[*(const uint32_t *)b].died;

	return (x > y) - (x < y);
}

/* Traffic of the submissions from first up to end (exclusive), after all before them. */
static void run(uint64_t budget, uint64_t first, uint64_t end)
{
	uint32_t *ends = zeros(trace.n_blocks, sizeof(*ends));
	uint64_t n_ended = 0;

	for (uint32_t i = 0; i < trace.n_blocks; i++)
		ends[i] = i;
	qsort(ends, trace.n_blocks, sizeof(*ends), by_end);
	belady_rewind(&belady, budget);
	for (uint64_t l = 0; l < end; l++) {
		bury(ends, &n_ended, l);
		belady.counts = l >= first;
		belady_submit(&belady, names_of(l), (uint32_t)l);
	}
	free(ends);
}

static uint64_t size_of(const char *text)
{
	static const struct {
		const char *name;
		double bytes;
	} units[] = {{"", 1}, {"B", 1}, {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824}};
	char *unit;
	double value = strtod(text, &unit);

	for (unsigned i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (unit != text && !strcmp(unit, units[i].name) && value >= 0)
			return (uint64_t)(value * units[i].bytes);
	fprintf(stderr, "belady: '%s' is no size\n", text);
	exit(2);
}

static void report(uint64_t grain, double ratio, uint64_t bytes, uint64_t reserve)
{
	run(bytes > reserve ? bytes - reserve : 0, window.first, window.end);
	printf("belady grain %" PRIu64 " ratio %.3f budget_mib %.1f in_gb %.3f out_gb %.3f over %" PRIu64
	       " launches %.0f\n",
	       grain, ratio, (double)bytes / 1048576, (double)(belady.in + belady.missed) / window.n / 1e9,
	       (double)belady.out / window.n / 1e9, belady.over, (double)(window.end - window.first) / window.n);
	fflush(stdout);
}

static _Noreturn void usage(void)
{
	fprintf(stderr, "usage: belady [--steps N] [--grain SIZE] [--need SIZE] [--reserve SIZE] [--budget SIZE]... "
			"[--ratio R]... [FILE]\n");
	exit(2);
}

#define MOST_BUDGETS 32

int main(int argc, char **argv)
{
	uint64_t grain = 0, need = 0, reserve = 0, steps = 2, budgets[MOST_BUDGETS];
	double ratios[MOST_BUDGETS];
	unsigned n = 0;
	const char *path = NULL;
	FILE *file = stdin;

	for (int i = 1; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : NULL;

		if (argv[i][0] != '-' && !path) {
			path = argv[i];
			continue;
		}
		if (!value || n == MOST_BUDGETS)
			usage();
		else if (!strcmp(argv[i], "--steps"))
			steps = size_of(value);
		else if (!strcmp(argv[i], "--grain"))
			grain = size_of(value);
		else if (!strcmp(argv[i], "--need"))
			need = size_of(value);
		else if (!strcmp(argv[i], "--reserve"))
			reserve = size_of(value);
		else if (!strcmp(argv[i], "--budget"))
			ratios[n] = 0, budgets[n++] = size_of(value);
		else if (!strcmp(argv[i], "--ratio"))
			budgets[n] = 0, ratios[n++] = atof(value);
		else
			usage();
		i++;
	}
	if (path && !(file = fopen(path, "r"))) {
		perror(path);
		return 1;
	}
	trace_read(&trace, file);
	if (!trace.n_launches || !steps) {
		fprintf(stderr, "belady: there is no submission in this trace\n");
		return 1;
	}
	need = need ? need : trace.peak;
	pieces_init(grain);
	find_steps(steps);
	find_uses(grain);
	printf("trace blocks %" PRIu64 " launches %" PRIu64 " need_mib %.1f counted_steps %g\n", trace.n_blocks,
	       trace.n_launches, (double)need / 1048576, window.n);
	for (unsigned i = 0; i < n; i++) {
		uint64_t bytes = budgets[i] ? budgets[i] : ratios[i] > 0 ? (uint64_t)((double)need / ratios[i]) : 0;

		report(grain, bytes ? (double)need / (double)bytes : 0, bytes, reserve);
	}
	return 0;
}
