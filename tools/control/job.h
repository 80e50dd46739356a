/*
 * job.h: the processes of a job on this machine.
 */
#ifndef TOOLS_JOB_H
#define TOOLS_JOB_H

#include "tools/common/process.h"

/* Returns true if the process is of this job. pid: 0: it cannot be seen, so that is not known. */
bool job_has(pid_t pid, const char *job);

struct job_list {
	struct process_name *name;
	size_t n, room;
};

/*
 * Finds the processes of this user that have a control socket and are of this job, by the environment that they were
 * started with (shim/base/rank.h). Returns false if memory runs out. The caller must free ret_list->name.
 */
bool job_find(const char *job, struct job_list *ret_list);

#endif
