/*
 * job_links.h: the processes of this machine whose memory this one has opened, by cuIpcOpenMemHandle and its kin: they
 * are of one job with it (plan/gpu_job.h). Any thread may call these functions. Locking: none.
 */
#ifndef SPILLWAY_JOB_LINKS_H
#define SPILLWAY_JOB_LINKS_H

#include "shim/plan/gpu_job.h"

#include <stdint.h>
#include <sys/types.h>

/*
 * Returns the number by which that process of this PID namespace is known in accounts; start: user_dir_process_started().
 * Processes of other namespaces have other numbers, whatever their pids are.
 */
uint64_t job_links_number(pid_t pid, uint64_t start);
/* Remembers that this process has opened memory of that one. Logs once if there is no room for it. */
void job_links_add(pid_t pid, uint64_t start);
/* Adds those that are remembered to the claim. */
void job_links_put(struct gpu_job_claim *claim);
/* In the child of a fork: it has opened nothing. Async-signal-safe. */
void job_links_child(void);

#endif
