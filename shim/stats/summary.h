/*
 * summary.h: makes the summary at the end of a run. Three lines come first: what was spilled, what it cost, and what to
 * change. The others are figures: where the bytes are, what moved, which allocations cost most. It uses only the
 * figures (stats_page.h) and makes no CUDA call.
 */
#ifndef SPILLWAY_SUMMARY_H
#define SPILLWAY_SUMMARY_H

#include "shim/stats/stats_page.h"

#define SUMMARY_SHORT 3 /* lines that always come, first */
/* Most lines with the figures; if there are more, the least important ones are left out. */
#define SUMMARY_LINES 14
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
 * Makes the first three lines for a process with these figures at time `now` (CLOCK_MONOTONIC, ns). Has no side
 * effects.
 */
void summary_make_short(const struct stats_page *page, uint64_t now, struct summary *ret_summary);
/* The same, followed by the figures. trace: the trace file, or NULL. */
void summary_make(const struct stats_page *page, uint64_t now, const char *trace, struct summary *ret_summary);

#endif
