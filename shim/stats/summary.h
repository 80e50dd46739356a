/*
 * summary.h: what is said at the end of a run: did it take effect, where are the bytes, what did it cost, whose memory
 * costs most, what to change. From the figures alone (stats.h); no CUDA call.
 */
#ifndef SPILLWAY_SUMMARY_H
#define SPILLWAY_SUMMARY_H

#include "shim/stats/stats_page.h"

/* Lines at most; where there is more to say, what matters least is left out. */
#define SUMMARY_LINES 12
#define SUMMARY_LINE  400 /* bytes */

/* What helps where memory of the program's own making is too much, which the heap cannot move. */
#define SUMMARY_VMM_REMEDY "with vmm.spill: move it is memory of the heap, and does (spill.mode: exact)"

struct summary {
	unsigned n;
	struct summary_line {
		unsigned rank; /* the larger, the sooner it is left out */
		char text[SUMMARY_LINE];
	} line[SUMMARY_LINES + 13];
};

/*
 * The lines for a process with these figures at that time (CLOCK_MONOTONIC, ns). Pure. trace: the file that a trace was
 * written to, or NULL.
 */
void summary_make(const struct stats_page *page, uint64_t now, const char *trace, struct summary *ret_summary);

#endif
