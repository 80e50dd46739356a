/*
 * summary.h: makes the summary at the end of a run: whether the library took effect, where the bytes are, what it
 * cost, which allocations cost most, and what to change. It uses only the figures (stats.h) and makes no CUDA call.
 */
#ifndef SPILLWAY_SUMMARY_H
#define SPILLWAY_SUMMARY_H

#include "shim/stats/stats_page.h"

/* Most lines; if there are more, the least important ones are left out. */
#define SUMMARY_LINES 12
#define SUMMARY_LINE  400 /* bytes */

/* Advice if memory that the program maps itself, which the heap cannot move, is too much. */
#define SUMMARY_VMM_REMEDY                                                                                             \
	"with vmm.spill: move it is memory of the heap, and does (spill.mode: exact; in fast, what PyTorch reports)"

struct summary {
	unsigned n;
	struct summary_line {
		unsigned rank; /* lines with the largest rank are left out first */
		char text[SUMMARY_LINE];
	} line[SUMMARY_LINES + 13];
};

/*
 * Makes the lines for a process with these figures at time `now` (CLOCK_MONOTONIC, ns). Has no side effects. trace:
 * the trace file, or NULL.
 */
void summary_make(const struct stats_page *page, uint64_t now, const char *trace, struct summary *ret_summary);

#endif
