// SPDX-License-Identifier: Apache-2.0
/*
 * Reads a policy: the standard values, then the file, then the settings on top. A policy with an error is discarded
 * as a whole. Also the accessors of policy.h.
 */
#include "policy/keys.h"
#include "policy/parse.h"
#include "policy/text.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool policy_is_path(const char *name)
{
	const char *dot = strrchr(name, '.');

	return strchr(name, '/') || (dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0));
}

static void report_no_builtin(const char *name, struct policy_errors *errors)
{
	struct policy_suggestion suggestion = {.typed = name};
	char list[POLICY_MAX_WHY] = "", quoted[POLICY_QUOTED_BYTES];

	policy_quote(name, quoted);
	/* A file such as "heap-2" in the current folder, without "./" in front, looks like the name of a built-in. */
	if (access(name, F_OK) == 0) {
		policy_error_add(errors, name, POLICY_WHOLE,
				 "there is no built-in policy %s; write ./%s for the file of that name", quoted, name);
		return;
	}
	for (const char *const *n = policy_builtin_names(); *n; n++) {
		size_t length = strlen(list);

		policy_suggest(&suggestion, *n);
		snprintf(list + length, sizeof(list) - length, "%s%s", length ? ", " : "", *n);
	}
	if (suggestion.best)
		policy_error_add(errors, name, POLICY_WHOLE, "there is no built-in policy %s; did you mean \"%s\"?",
				 quoted, suggestion.best);
	else
		policy_error_add(
		    errors, name, POLICY_WHOLE,
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
		policy_error_add(errors, name, POLICY_WHOLE, POLICY_NO_MEMORY);
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
		policy_error_add(errors, name, POLICY_WHOLE, POLICY_NO_MEMORY);
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
	const char *builtin = policy_builtin_find(name, &bytes);
	if (builtin)
		return read_text(name, name, builtin, bytes, set, &limits, errors);
	text = NULL;
	if (!policy_is_path(name))
		report_no_builtin(name, errors);
	else if (!(text = policy_file_read(name, &bytes, why)))
		policy_error_add(errors, name, POLICY_WHOLE, "%s", why);
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

/*
 * ---- the built-in policies ---- The assembler reads the YAML files (CMake sets POLICY_FOLDER and rebuilds this object
 * if one changes), so the embedded text is the file that ships. A new one is a file and a row here.
 */

/* One row for each policy: ROW(symbol, name). */
#define BUILTINS(ROW)                                                                                                  \
	ROW(heap, "heap")                                                                                              \
	ROW(passthrough, "passthrough")                                                                                \
	ROW(managed, "managed")                                                                                        \
	ROW(managed_to_heap, "managed-to-heap")                                                                        \
	ROW(system, "system")                                                                                          \
	ROW(training, "training")                                                                                      \
	ROW(training_fast, "training-fast")                                                                            \
	ROW(inference, "inference")                                                                                    \
	ROW(observe, "observe")

#define EMBED(symbol, name)                                                                                            \
	__asm__(".pushsection .rodata\n"                                                                               \
		".hidden policy_builtin_" #symbol "\n"                                                                 \
		".hidden policy_builtin_" #symbol "_end\n"                                                             \
		".globl policy_builtin_" #symbol "\n"                                                                  \
		".globl policy_builtin_" #symbol "_end\n"                                                              \
		"policy_builtin_" #symbol ":\n"                                                                        \
		".incbin \"" POLICY_FOLDER "/" name ".yaml\"\n"                                                        \
		"policy_builtin_" #symbol "_end:\n"                                                                    \
		".popsection\n");                                                                                      \
	extern const char policy_builtin_##symbol[], policy_builtin_##symbol##_end[];
BUILTINS(EMBED)

static const struct builtin {
	const char *name, *begin, *end;
} builtins[] = {
#define ENTRY(symbol, name) {name, policy_builtin_##symbol, policy_builtin_##symbol##_end},
    BUILTINS(ENTRY)};

static const char *const names[] = {
#define NAME(symbol, name) name,
    BUILTINS(NAME) NULL};

const char *const *policy_builtin_names(void)
{
	return names;
}

const char *policy_builtin_find(const char *name, size_t *ret_bytes)
{
	for (size_t i = 0; i < sizeof(builtins) / sizeof(*builtins); i++) {
		if (strcmp(builtins[i].name, name) != 0)
			continue;
		*ret_bytes = (size_t)((uintptr_t)builtins[i].end - (uintptr_t)builtins[i].begin);
		return builtins[i].begin;
	}
	return NULL;
}

/* ---- problems: in the order of the file, the 100 most useful of them ---- */

static bool error_before(const struct policy_error *a, const struct policy_error *b)
{
	if (strcmp(a->file, b->file) != 0)
		return false;
	return a->line != b->line ? a->line < b->line : a->column < b->column;
}

/*
 * Makes room for one more problem in a full list: drops the last warning, or, without one, the last problem if the
 * new one comes before it. A warning never replaces an error. Returns false if the new problem must be dropped.
 */
static bool make_room(struct policy_errors *errors, const struct policy_error *problem)
{
	size_t warning = errors->n_kept, victim = errors->n_kept - 1;

	while (warning > 0 && !errors->kept[warning - 1].warning)
		warning--;
	if (warning > 0)
		victim = warning - 1;
	if ((problem->warning || warning == 0) && !error_before(problem, &errors->kept[victim]))
		return false;
	if (problem->warning && warning == 0)
		return false;
	memmove(errors->kept + victim, errors->kept + victim + 1, (--errors->n_kept - victim) * sizeof(*errors->kept));
	return true;
}

static void error_keep(struct policy_errors *errors, const struct policy_error *problem)
{
	if (!errors->kept)
		errors->kept = malloc(POLICY_MAX_ERRORS * sizeof(*errors->kept));
	if (!errors->kept)
		return;
	if (errors->n_kept == POLICY_MAX_ERRORS && !make_room(errors, problem))
		return;
	size_t at = errors->n_kept;
	/* Problems of one file stay together, also if problems of a file that it includes were added meanwhile. */
	while (at > 0 && strcmp(errors->kept[at - 1].file, problem->file) != 0)
		at--;
	if (at == 0)
		at = errors->n_kept;
	while (at > 0 && error_before(problem, &errors->kept[at - 1]))
		at--;
	memmove(errors->kept + at + 1, errors->kept + at, (errors->n_kept - at) * sizeof(*errors->kept));
	errors->kept[at] = *problem;
	errors->n_kept++;
}

/* Keeps the end of a long path, which says more than its beginning. */
static void copy_file(char *to, size_t bytes, const char *file)
{
	size_t length = strlen(file);

	if (length < bytes) {
		policy_printable(file, to, bytes);
		return;
	}
	memcpy(to, "...", 3);
	policy_printable(file + length - (bytes - 4), to + 3, bytes - 3);
}

void policy_problem_add(struct policy_errors *errors, bool warning, const char *file, struct policy_place place,
			const char *format, ...)
{
	struct policy_error problem = {.line = place.line, .column = place.column, .warning = warning};
	va_list arguments;

	copy_file(problem.file, sizeof(problem.file), file);
	va_start(arguments, format);
	vsnprintf(problem.text, sizeof(problem.text), format, arguments);
	va_end(arguments);
	errors->n++;
	errors->n_errors += !warning;
	error_keep(errors, &problem);
}

void policy_errors_free(struct policy_errors *errors)
{
	free(errors->kept);
	*errors = (struct policy_errors){0};
}

char *policy_error_format(const struct policy_error *error, char *buffer, size_t bytes)
{
	const char *kind = error->warning ? "warning" : "error";
	char place[32] = "";

	if (error->line)
		snprintf(place, sizeof(place), ":%u:%u", error->line, error->column);
	snprintf(buffer, bytes, "%s%s: %s: %s", error->file, place, kind, error->text);
	return buffer;
}

/* ---- variables of the environment that look like ours and are not ---- */

/* Those that the library or a command reads; also those that one sets for the other. */
static const char *const known[] = {"POLICY", "SET",    "TRACE",   "JOB",       "STRICT",
				    "DOORS",  "WARNED", "FIGURES", "SLURM_SET", "CHECK"};

/* Returns the key that is meant by DEVICE_BUDGET, or MODE; NULL if none is. */
static const char *key_meant(const char *name)
{
	struct policy_suggestion suggestion = {.typed = name};

	for (size_t i = 0; i < policy_file_keys.n; i++)
		policy_suggest(&suggestion, policy_file_keys.keys[i].name);
	return suggestion.best ? suggestion.best : policy_key_ending(&policy_file_keys, name);
}

static void look_at_variable(const char *name, struct policy_errors *errors)
{
	static const char place[] = "environment";
	struct policy_suggestion suggestion = {.typed = name};
	char safe[POLICY_QUOTED_BYTES];

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		if (!strcmp(known[i], name))
			return;
		policy_suggest(&suggestion, known[i]);
	}
	const char *key = suggestion.best ? NULL : key_meant(name), *meant = suggestion.best ? suggestion.best : key;
	policy_printable(name, safe, sizeof(safe));
	if (meant)
		policy_warning_add(errors, place, POLICY_WHOLE,
				   "nobody reads SPILLWAY_%s; did you mean SPILLWAY_%s%s%s?", safe, key ? "SET=" : "",
				   meant, key ? "=..." : "");
	else
		policy_warning_add(errors, place, POLICY_WHOLE,
				   "nobody reads SPILLWAY_%s; spillway(1) names the variables that are read", safe);
}

void policy_warn_environment(char *const *environment, struct policy_errors *errors)
{
	static const char ours[] = "SPILLWAY_";
	char name[128];

	for (; environment && *environment; environment++) {
		const char *rest = *environment + strlen(ours);

		if (strncmp(*environment, ours, strlen(ours)) != 0)
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(rest, "="), rest);
		look_at_variable(name, errors);
	}
}

/* ---- hashing and freeing ---- */

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
