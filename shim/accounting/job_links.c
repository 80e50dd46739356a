/* Whose memory this process has opened. See job_links.h. */
#include "shim/accounting/job_links.h"
#include "shim/accounting/accounting_state.h"
#include "shim/base/log.h"
#include "shim/base/rank.h"

#include <stdio.h>
#include <sys/stat.h>

uint64_t job_links_number(pid_t pid, uint64_t start)
{
	struct stat space = {0};
	char text[80];

	if (stat("/proc/self/ns/pid", &space) != 0)
		space.st_ino = 0;
	snprintf(text, sizeof(text), "%d %llu %llu", (int)pid, (unsigned long long)start,
		 (unsigned long long)space.st_ino);
	return rank_hash(0, text);
}

void job_links_add(pid_t pid, uint64_t start)
{
	uint64_t number = job_links_number(pid, start);

	for (unsigned i = 0; i < GPU_JOB_LINKS; i++) {
		uint64_t found = 0;

		if (atomic_compare_exchange_strong(&accounting_state.links[i], &found, number) || found == number)
			return;
	}
	log_once(
	    "share: this process has opened memory of more than %d others: further ones are not taken to be of its "
	    "job (share.job names it)",
	    GPU_JOB_LINKS);
}

void job_links_put(struct gpu_job_claim *claim)
{
	for (unsigned i = 0; i < GPU_JOB_LINKS; i++)
		gpu_job_link(claim, atomic_load(&accounting_state.links[i]));
}

void job_links_child(void)
{
	for (unsigned i = 0; i < GPU_JOB_LINKS; i++)
		atomic_store(&accounting_state.links[i], 0);
}
