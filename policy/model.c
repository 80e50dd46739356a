/* Hashes and frees a policy. */
#include "policy/model.h"

#include <stdio.h>
#include <stdlib.h>

#include "policy/glob.h"
#include "policy/ranks.h"

void policy_hash_add(struct policy *policy, const char *text, size_t bytes)
{
	/* FNV-1a. The length goes first, so that two texts do not hash as one. */
	uint64_t hash = policy->hash ? policy->hash : 14695981039346656037u;

	hash = (hash ^ bytes) * 1099511628211u;
	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;
	policy->hash = hash;
	snprintf(policy->hash_text, sizeof(policy->hash_text), "%016llx", (unsigned long long)hash);
}

static void rule_free(struct policy_rule *rule)
{
	policy_globs_free(&rule->process);
	policy_globs_free(&rule->arguments);
	policy_ranks_free(&rule->ranks);
	for (int i = 0; i < POLICY_N_TEXTS; i++)
		policy_globs_free(&rule->text[i]);
}

void policy_free(struct policy *policy)
{
	if (!policy)
		return;
	free(policy->name);
	for (size_t i = 0; i < policy->n_rules; i++)
		rule_free(&policy->rules[i]);
	for (unsigned i = 0; i < policy->n_files; i++) {
		free(policy->files[i]);
		free(policy->real_paths[i]);
	}
	free(policy->rules);
	free(policy->tests);
	free(policy->libraries);
	free(policy->numbers);
	free(policy->more);
	free(policy);
}
