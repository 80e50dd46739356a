// SPDX-License-Identifier: Apache-2.0
/*
 * The rank of this process in a distributed job, from the environment.
 */
#include "shim/base/rank.h"
#include "policy/policy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* Returns the first of these variables that is a number. The list ends with NULL. */
static const char *number_of(const char *const *variables)
{
	for (; *variables; variables++) {
		const char *value = secure_getenv(*variables);

		if (value && *value && strspn(value, "0123456789") == strlen(value) && strlen(value) < 12)
			return value;
	}
	return NULL;
}

const char *rank_text(void)
{
	static const char *const variables[] = {"RANK",         "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
						"SLURM_PROCID", "LOCAL_RANK",           NULL};

	return number_of(variables);
}

int64_t rank_number(void)
{
	const char *text = rank_text();

	return text ? strtoll(text, NULL, 10) : POLICY_NO_RANK;
}

const char *rank_local(void)
{
	static const char *const variables[] = {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
						"SLURM_LOCALID", NULL};

	return number_of(variables);
}

const char *rank_world(void)
{
	static const char *const variables[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", NULL};

	return number_of(variables);
}

/* torchrun without --rdzv-id calls every job "none". Names are shown and typed, so they have no blanks. */
static bool is_job(const char *name)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:@+";
	size_t n = name ? strspn(name, letters) : 0;

	return n && !name[n] && n < RANK_JOB_BYTES && strcmp(name, "none") != 0;
}

char *rank_job_of(rank_variable *get, void *argument, char job[RANK_JOB_BYTES])
{
	static const char *const variables[] = {"SPILLWAY_JOB", "SLURM_JOB_ID", "PMIX_NAMESPACE", "TORCHELASTIC_RUN_ID",
						"RAY_JOB_ID"};

	*job = '\0';
	for (size_t i = 0; !*job && i < sizeof(variables) / sizeof(*variables); i++) {
		const char *value = get(variables[i], argument);

		if (is_job(value))
			snprintf(job, RANK_JOB_BYTES, "%s", value);
	}
	return job;
}

static const char *own(const char *name, void *argument)
{
	(void)argument;
	return secure_getenv(name);
}

char *rank_job(char job[RANK_JOB_BYTES])
{
	return rank_job_of(own, NULL, job);
}

uint64_t rank_hash(uint64_t number, const char *text)
{
	uint64_t hash = number ? number : UINT64_C(0xcbf29ce484222325);

	/* With the 0 at its end, so that "ab" and "c" are not "a" and "bc". */
	do
		hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
	while (*text++);
	return hash ? hash : 1;
}

/* Returns whether the address leads to the network namespace that it is used in. */
static bool is_loopback(const char *address)
{
	return address && (!strcasecmp(address, "localhost") || !strncmp(address, "127.", 4) ||
			   !strcmp(address, "::1") || !strcmp(address, "0.0.0.0"));
}

/* Returns the inode of this process's network namespace; 0: not known. */
static uint64_t network(void)
{
	struct stat status;
	int saved = errno;
	bool known = stat("/proc/self/ns/net", &status) == 0;

	errno = saved;
	return known ? status.st_ino : 0;
}

uint64_t rank_together(void)
{
	/* Ranks that differ in one of them were not started together. The first ones name what was started. */
	static const char *const variables[] = {"TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "SLURM_STEP_ID",
						"MASTER_PORT",         "MASTER_ADDR",    "SLURM_JOB_ID"};
	enum { NAMES = 4, ALL = sizeof(variables) / sizeof(*variables) };
	const char *world = rank_world();
	uint64_t hash = 0;
	bool named = false;

	if (!rank_text() || !world || strtoull(world, NULL, 10) < 2)
		return 0;
	for (size_t i = 0; i < ALL; i++) {
		const char *value = secure_getenv(variables[i]);

		/* torchrun without --rdzv-id: its port names it. */
		named |= i < NAMES && value && *value && (i || strcmp(value, "none") != 0);
		hash = rank_hash(hash, value ? value : "");
	}
	if (named && is_loopback(secure_getenv("MASTER_ADDR"))) {
		char text[24];

		snprintf(text, sizeof(text), "%llu", (unsigned long long)network());
		hash = rank_hash(hash, text);
	}
	return named ? hash : 0;
}

uint64_t rank_together_as(const char *name)
{
	return *name ? rank_hash(rank_hash(0, "share.job"), name) : rank_together();
}

bool rank_is_spread(void)
{
	/* The number of ranks here, and of all; the number of machines. */
	static const char *const counts[][2] = {{"LOCAL_WORLD_SIZE", "WORLD_SIZE"},
						{"OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"}};

	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		const char *here = number_of((const char *const[]){counts[i][0], NULL});
		const char *all = number_of((const char *const[]){counts[i][1], NULL});

		if (here && all)
			return strtoull(here, NULL, 10) < strtoull(all, NULL, 10);
	}
	const char *n = number_of((const char *const[]){"SLURM_STEP_NUM_NODES", NULL});
	return n && strtoull(n, NULL, 10) > 1 && rank_together();
}
