/*
 * Reads a policy: the standard values, then the file, then the settings on top. A policy with an error is discarded
 * as a whole. Also the accessors of policy.h.
 */
#include "policy/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "policy/bind.h"
#include "policy/builtin.h"
#include "policy/keys.h"
#include "policy/machine.h"
#include "policy/model.h"
#include "policy/parse.h"
#include "policy/text.h"
#include "policy/whole.h"

static bool is_path(const char *name)
{
	const char *dot = strrchr(name, '.');

	return strchr(name, '/') || (dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0));
}

static void report_no_builtin(const char *name, struct policy_errors *errors)
{
	struct policy_suggestion suggestion = {.typed = name};
	char list[POLICY_MAX_WHY] = "", quoted[POLICY_QUOTED_BYTES];
	struct policy_place whole = {0};

	policy_quote(name, quoted);
	/* A file such as "heap-2" in the current folder, without "./" in front, looks like the name of a built-in. */
	if (access(name, F_OK) == 0) {
		policy_error_add(errors, name, whole,
				 "there is no built-in policy %s; write ./%s for the file of that name", quoted, name);
		return;
	}
	for (const char *const *n = policy_builtin_names(); *n; n++) {
		size_t length = strlen(list);

		policy_suggest(&suggestion, *n);
		snprintf(list + length, sizeof(list) - length, "%s%s", length ? ", " : "", *n);
	}
	if (suggestion.best)
		policy_error_add(errors, name, whole, "there is no built-in policy %s; did you mean \"%s\"?", quoted,
				 suggestion.best);
	else
		policy_error_add(
		    errors, name, whole,
		    "there is no built-in policy %s; write one of %s, or the path of a file (with a / or ending in "
		    ".yaml)",
		    quoted, list);
}

struct policy *policy_new(const char *name)
{
	struct policy *policy = calloc(1, sizeof(*policy));

	if (!policy)
		return NULL;
	policy->name = strdup(name);
	if (!policy->name) {
		free(policy);
		return NULL;
	}
	policy_keys_standard(&policy_file_keys, &policy->settings);
	policy_keys_standard(&policy_limit_keys, &policy->settings);
	return policy;
}

/*
 * text may be NULL: then its problem is already in errors, and only set is checked. real_path: identifies the file
 * among those that it includes, or NULL. limits: of the machine; NULL if the text is the machine's policy.
 */
static struct policy *read_text(const char *name, const char *real_path, const char *text, size_t bytes,
				const char *set, const struct policy_limits *limits, struct policy_errors *errors)
{
	struct policy *policy = policy_new(name);

	if (!policy) {
		policy_error_add(errors, name, (struct policy_place){0}, "out of memory while reading; try again");
		return NULL;
	}
	if (text)
		policy_parse(name, real_path, text, bytes, policy, errors);
	if (set && *set) {
		policy_hash_add(policy, set, strlen(set));
		policy_set_parse(set, policy, errors);
	}
	if (errors->n_errors == 0)
		policy_limits_apply(policy, limits ? limits : &policy->settings.limits, errors);
	if (errors->n_errors == 0)
		policy_check_whole(policy, errors);
	if (errors->n_errors == 0 && !policy_finish(policy))
		policy_error_add(errors, name, (struct policy_place){0}, "out of memory while reading; try again");
	if (errors->n_errors == 0)
		return policy;
	policy_free(policy);
	return NULL;
}

struct policy *policy_read_text(const char *name, const char *text, size_t bytes, const char *set,
				struct policy_errors *errors)
{
	*errors = (struct policy_errors){0};
	return read_text(name, NULL, text, bytes, set, &policy_no_limits, errors);
}

/* name: a path, or what was thought to be one. text: owned here; NULL if it could not be read. */
static struct policy *read_file(const char *name, char *text, size_t bytes, const char *set,
				const struct policy_limits *limits, struct policy_errors *errors)
{
	char *real_path = text ? realpath(name, NULL) : NULL;
	struct policy *policy = read_text(name, real_path, text, bytes, set, limits, errors);

	free(real_path);
	free(text);
	return policy;
}

struct policy *policy_read(const char *name, const char *set, struct policy_errors *errors)
{
	struct policy_limits limits = policy_no_limits;
	const char *builtin;
	size_t bytes = 0;
	char *text, why[POLICY_MAX_WHY];

	*errors = (struct policy_errors){0};
	text = policy_machine_read(&bytes, errors);
	if (text && (!name || !*name))
		return read_file(policy_machine_path, text, bytes, set, NULL, errors);
	if (text)
		policy_machine_limits(text, bytes, &limits, errors);
	free(text);
	if (!name || !*name)
		name = policy_builtin_names()[0];
	builtin = policy_builtin_find(name, &bytes);
	if (builtin)
		return read_text(name, name, builtin, bytes, set, &limits, errors);
	text = NULL;
	if (!is_path(name))
		report_no_builtin(name, errors);
	else if (!(text = policy_file_read(name, &bytes, why)))
		policy_error_add(errors, name, (struct policy_place){0}, "%s", why);
	return read_file(name, text, bytes, set, &limits, errors);
}

const char *policy_hash(const struct policy *policy)
{
	return policy->hash_text;
}

const char *policy_name(const struct policy *policy)
{
	return policy->name;
}

bool policy_is_builtin(const struct policy *policy)
{
	for (const char *const *name = policy_builtin_names(); *name; name++)
		if (!strcmp(policy->name, *name))
			return true;
	return false;
}

bool policy_includes_files(const struct policy *policy)
{
	for (unsigned i = 1; i < policy->n_files; i++)
		if (policy->real_paths[i] && strchr(policy->real_paths[i], '/'))
			return true;
	return false;
}

const char *policy_rule_name(const struct policy *policy, int rule)
{
	return rule >= 0 && (size_t)rule < policy->n_rules ? policy->rules[rule].name : POLICY_NO_RULE;
}

size_t policy_n_rules(const struct policy *policy)
{
	return policy->n_rules;
}

bool policy_uses(const struct policy *policy, enum policy_use use)
{
	if (policy->settings.observe)
		return use == POLICY_USE_DRIVER;
	for (size_t i = 0; i < policy->n_rules; i++) {
		const struct policy_rule *rule = &policy->rules[i];

		if (rule->use == (int)use)
			return true;
		for (unsigned j = 0; j < rule->fallback.n; j++)
			if (rule->fallback.use[j] == use)
				return true;
	}
	return policy->settings.use == (int)use;
}

const struct policy_settings *policy_settings(const struct policy *policy)
{
	return &policy->settings;
}

enum policy_pdl policy_pdl(const struct policy *policy)
{
	return policy->settings.observe ? POLICY_PDL_KEEP : (enum policy_pdl)policy->settings.pdl;
}

unsigned policy_needs(const struct policy *policy)
{
	return policy->needs;
}

bool policy_decides(const struct policy *policy, enum policy_api api)
{
	return policy->decided & 1u << api;
}

enum policy_vmm policy_vmm_spill(const struct policy *policy)
{
	return policy->settings.observe ? POLICY_VMM_DRIVER : (enum policy_vmm)policy->settings.vmm_spill;
}

bool policy_vmm_moves(const struct policy *policy)
{
	bool moves = policy->settings.vmm_spill == POLICY_VMM_MOVES;

	for (size_t i = 0; i < policy->n_rules; i++)
		moves |= policy->rules[i].vmm_spill == POLICY_VMM_MOVES;
	return moves && !policy->settings.observe;
}

uint64_t policy_rule_cap(const struct policy *policy, int rule)
{
	return rule >= 0 && (size_t)rule < policy->n_rules ? policy_cap(&policy->rules[rule]) : POLICY_NO_CAP;
}
