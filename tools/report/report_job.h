/*
 * report_job.h: traces of the ranks of one job, shown as one. Only figures are kept of each, so that a job may have
 * many ranks.
 */
#ifndef TOOLS_REPORT_JOB_H
#define TOOLS_REPORT_JOB_H

#include "tools/digest/digest.h"

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
 */
bool report_job_is(const struct report_job *job);
/* Sorts by rank, and shows. report_job_is() must be true. */
void report_job_text(struct report_job *job);
void report_job_json(struct report_job *job);
void report_job_free(struct report_job *job);

#endif
