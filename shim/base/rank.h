// SPDX-License-Identifier: Apache-2.0
/*
 * rank.h: the rank of this process in a distributed job, as its launcher says it. The environment is read at each call:
 * launchers set it before the program starts, but programs that start ranks themselves set it later.
 */
#ifndef SPILLWAY_RANK_H
#define SPILLWAY_RANK_H

#include <stdbool.h>
#include <stdint.h>

#define RANK_JOB_BYTES 64

/*
 * Returns the first of RANK, OMPI_COMM_WORLD_RANK, PMIX_RANK, PMI_RANK, SLURM_PROCID and LOCAL_RANK that is a number,
 * or NULL. In a batch script SLURM_PROCID is 0 for whatever another launcher starts there, so those of launchers go
 * first.
 */
const char *rank_text(void);

/* Returns the rank, or POLICY_NO_RANK if none is set. */
int64_t rank_number(void);

/* Returns the rank among those of the job on this machine, or NULL. */
const char *rank_local(void);

/* Returns the number of ranks of the job, or NULL. */
const char *rank_world(void);

/*
 * Writes the name of the job: the first of SPILLWAY_JOB, SLURM_JOB_ID, PMIX_NAMESPACE, TORCHELASTIC_RUN_ID and
 * RAY_JOB_ID that is one; "" if there is none. get: returns the value of a variable, or NULL. Returns job.
 */
typedef const char *rank_variable(const char *name, void *argument);
char *rank_job_of(rank_variable *get, void *argument, char job[RANK_JOB_BYTES]);
/* The same of this process. */
char *rank_job(char job[RANK_JOB_BYTES]);

/*
 * Returns a number of the ranks that were started together, of which this process is one: the same for all of them, and
 * another for all other processes; 0 if it is no such rank. A process is one if it has a rank, there are several, and
 * the launcher names what it has started: by TORCHELASTIC_RUN_ID, PMIX_NAMESPACE, SLURM_STEP_ID or MASTER_PORT.
 * MASTER_ADDR and SLURM_JOB_ID count, but do not suffice: a batch script may start several programs that have nothing
 * to do with each other. Where MASTER_ADDR is this machine's own (localhost), ranks meet in one network namespace. That
 * counts, too: each container has its own, and programs in several of them may use the same port.
 */
uint64_t rank_together(void);
/*
 * Returns the number of the job of that name, or, if it is empty, rank_together(). The number of a policy's name is not
 * that of a launcher's ranks.
 */
uint64_t rank_together_as(const char *name);
/* Returns whether ranks of its job run on other machines, as far as the launcher says. */
bool rank_is_spread(void);
/* Returns a number, not 0, for a text that goes on what `number` was made for (0: nothing); FNV-1a, 64 bits. */
uint64_t rank_hash(uint64_t number, const char *text);

#endif
