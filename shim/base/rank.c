/*
 * The rank of this process in a distributed job, from the environment.
 */
#include "shim/base/rank.h"
#include "policy/policy.h"

#include <stdlib.h>
#include <string.h>

const char *rank_text(void)
{
	static const char *const variables[] = {"RANK", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"};

	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
		const char *value = secure_getenv(variables[i]);

		if (value && *value && strspn(value, "0123456789") == strlen(value) && strlen(value) < 12)
			return value;
	}
	return NULL;
}

int64_t rank_number(void)
{
	const char *text = rank_text();

	return text ? strtoll(text, NULL, 10) : POLICY_NO_RANK;
}
