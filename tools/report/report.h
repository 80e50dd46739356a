// SPDX-License-Identifier: Apache-2.0
/*
 * report.h: the outputs of `spillway report`. Each function writes one digest (digest.h), or several, to stdout. Write
 * errors are detected at the end by main().
 */
#ifndef TOOLS_REPORT_H
#define TOOLS_REPORT_H

#include "tools/digest/digest.h"

void report_text(const struct digest *digest);
void report_json(const struct digest *digest);
/* One run, or two side by side. */
void report_html(const struct digest *digests, size_t n);
void report_perfetto(const struct digest *digest);

/* Shows several runs side by side. */
void report_compare_text(const struct digest *digests, size_t n);
void report_compare_json(const struct digest *digests, size_t n);

/* Returns the wall-clock time, in ns since 1970, of a time of the trace's clock. */
uint64_t report_wall(const struct trace *trace, uint64_t time);

/* Maximum length of lists, such as the largest blocks, in text and in JSON. */
enum { REPORT_LINES = 12, REPORT_LIST = 200 };
enum { RUNS_MOST = 16 }; /* that are put beside each other */

/*
 * Finds the costliest blocks: sorted by waiting, then by moved bytes, then by size. Stores at most `most` of them and
 * returns their number.
 */
size_t report_blocks(const struct digest *digest, uint32_t *ret_blocks, size_t most);

/*
 * ---- report_job.c: traces of the ranks of one job, shown as one. Only figures are kept of each, so that a job may
 * have many ranks.
 */

struct job_rank {
	char *path;
	char host[64], problem[160]; /* problem: why the trace could not be read; "" if it was */
	char job[64];
	uint64_t rank;
	uint64_t ranks; /* how many the launcher says there are; 0: not known */
	uint64_t run_ns, step_ns, steps, lost_ns, need, on_device, away, bytes_in, bytes_out, refused;
	bool has_rank, ended, whole; /* whole: nothing of the trace is missing */
};

struct report_job {
	struct job_rank *rank;
	size_t n, room;
};

/* Adds what is known of a run. Returns false if memory runs out. */
bool report_job_add(struct report_job *job, const struct digest *digest);
/* Adds a trace that could not be read. Returns false if memory runs out. */
bool report_job_add_unread(struct report_job *job, const char *path, const char *problem);
/*
 * Returns true if at least two traces were read, all of them have a rank, all another one, and none is of another job.
 * They are then sorted by rank.
 */
bool report_job_is(struct report_job *job);
/* Shows what report_job_is() has sorted. */
void report_job_text(const struct report_job *job);
void report_job_json(const struct report_job *job);
void report_job_free(struct report_job *job);

#endif
