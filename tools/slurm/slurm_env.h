// SPDX-License-Identifier: Apache-2.0
/*
 * slurm_env.h: from options of `srun` to the environment of a task. Pure: no Slurm, no files.
 */
#ifndef TOOLS_SLURM_ENV_H
#define TOOLS_SLURM_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SLURM_ENV_BYTES 8192

/* What the administrator wrote behind the plugin in plugstack.conf. */
struct slurm_site {
	const char *library, *tool; /* paths; never NULL once set by slurm_site_default() */
	unsigned shards;            /* GRES shards that one GPU has; 0: not told */
	bool budgets;               /* are budgets derived from what the job was given? */
};

/* The paths must outlive the site. */
void slurm_site_default(struct slurm_site *ret_site, const char *library, const char *tool);

/*
 * Reads one argument: library=PATH, tool=PATH, shards=N, budgets=yes|no. Returns false if it is none of these. The text
 * must outlive the site.
 */
bool slurm_site_argument(struct slurm_site *site, const char *argument);

/* What a task was given. Numbers that are not known are 0. */
struct slurm_task {
	uint64_t memory_mib;  /* of the step on this node, for all of its tasks here */
	unsigned tasks;       /* of the step on this node */
	unsigned gpus;        /* of the step on this node */
	unsigned shards;      /* GRES shards of the step on this node */
	unsigned mps_percent; /* of one GPU, as GRES mps gives it */
};

struct slurm_request {
	const char *policy;    /* of --spillway=POLICY; NULL: that of the environment */
	const char *set;       /* of --spillway-set; NULL: none */
	const char *inherited; /* SPILLWAY_SET of the job's environment; NULL: none */
	const char *preload;   /* LD_PRELOAD of the job's environment; NULL: none */
	struct slurm_task task;
};

/* Values of environment variables; an empty one need not be set. */
struct slurm_environment {
	char preload[SLURM_ENV_BYTES], policy[SLURM_ENV_BYTES], set[SLURM_ENV_BYTES];
};

/*
 * Adds an item of --spillway-set to those before it, separated by a comma. Returns false if it is no KEY=VALUE, or if
 * there is no room.
 */
bool slurm_set_add(char set[SLURM_ENV_BYTES], const char *item);

/*
 * Makes the environment of a task. Settings of the command line replace those of the same key in the job's environment,
 * and both replace the budgets:
 *   host.budget    half of the memory of the step on this node, in equal parts for its tasks. The other half is for
 *                  the program itself; it is the share that the library takes of a cgroup's limit, too.
 *   device.budget  where several tasks use one GPU, or the step has a part of one: nine tenths of the part, shared
 *                  equally. A tenth is left for contexts and libraries, which the budget does not count.
 * Returns false if a value is too long.
 */
bool slurm_environment_make(const struct slurm_site *site, const struct slurm_request *request,
			    struct slurm_environment *ret_environment);

#endif
