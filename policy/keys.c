/* The tables of keys and named values, made from keys.def, and the search in them, with hints for unknown keys. */
#include "policy/keys.h"

#include <stdio.h>
#include <string.h>

#include "policy/text.h"

#define POLICY_VALUE(set, value, name, help) {POLICY_SET_##set, value, name, help},
static const struct policy_value values[] = {
#include "policy/keys.def"
};

#define POLICY_KEY(name, type, set, field, standard, help)                                                             \
	{name, POLICY_TYPE_##type, POLICY_SET_##set, offsetof(struct policy_settings, field), standard, help},
static const struct policy_key file_keys[] = {
#include "policy/keys.def"
};

#define POLICY_RULE_KEY(name, type, set, field, standard, help)                                                        \
	{name, POLICY_TYPE_##type, POLICY_SET_##set, offsetof(struct policy_rule, field), standard, help},
static const struct policy_key rule_keys[] = {
#include "policy/keys.def"
};

#define POLICY_LIMIT_KEY(name, type, set, field, standard, help)                                                       \
	{name, POLICY_TYPE_##type, POLICY_SET_##set, offsetof(struct policy_settings, field), standard, help},
static const struct policy_key limit_keys[] = {
#include "policy/keys.def"
};

enum {
	N_VALUES = sizeof(values) / sizeof(*values),
	N_FILE_KEYS = sizeof(file_keys) / sizeof(*file_keys),
	N_RULE_KEYS = sizeof(rule_keys) / sizeof(*rule_keys),
	N_LIMIT_KEYS = sizeof(limit_keys) / sizeof(*limit_keys),
};
_Static_assert((int)N_FILE_KEYS <= (int)POLICY_MAX_KEYS && (int)N_RULE_KEYS <= (int)POLICY_MAX_KEYS,
	       "raise POLICY_MAX_KEYS");

_Static_assert((int)POLICY_JOB_BYTES == (int)POLICY_MAX_NAME + 1, "a text");

const struct policy_keys policy_file_keys = {file_keys, N_FILE_KEYS};
const struct policy_keys policy_rule_keys = {rule_keys, N_RULE_KEYS};
_Static_assert((int)N_LIMIT_KEYS == (int)POLICY_N_LIMITED, "a limit for each of enum policy_limit, and the mode");
const struct policy_keys policy_limit_keys = {limit_keys, N_LIMIT_KEYS};

const struct policy_value *policy_value_next(enum policy_set set, const struct policy_value *before)
{
	for (const struct policy_value *v = before ? before + 1 : values; v < values + N_VALUES; v++)
		if (v->set == set)
			return v;
	return NULL;
}

static const char *value_name(enum policy_set set, int value)
{
	const struct policy_value *v = NULL;

	while ((v = policy_value_next(set, v)))
		if (v->value == value)
			return v->name;
	return "?";
}

const char *policy_use_name(enum policy_use use)
{
	return value_name(POLICY_SET_USE, (int)use);
}

const char *policy_spill_name(enum policy_spill mode)
{
	return value_name(POLICY_SET_SPILL, (int)mode);
}

const char *policy_capacity_name(enum policy_capacity capacity)
{
	return value_name(POLICY_SET_CAPACITY, (int)capacity);
}

const char *policy_api_name(enum policy_api api)
{
	return value_name(POLICY_SET_API, (int)api);
}

const char *policy_movable_name(enum policy_movable movable)
{
	return value_name(POLICY_SET_MOVABLE, (int)movable);
}

const char *policy_place_name(enum policy_place_of place)
{
	return value_name(POLICY_SET_PLACE, (int)place);
}

const char *policy_prefetch_name(enum policy_prefetch prefetch)
{
	return value_name(POLICY_SET_PREFETCH, (int)prefetch);
}

const char *policy_advise_name(enum policy_advise advise)
{
	return value_name(POLICY_SET_ADVISE, (int)advise);
}

int policy_key_find(const struct policy_keys *keys, const char *name)
{
	for (size_t i = 0; i < keys->n; i++)
		if (strcmp(keys->keys[i].name, name) == 0)
			return (int)i;
	return -1;
}

bool policy_key_is_section(const struct policy_keys *keys, const char *name)
{
	size_t length = strlen(name);

	for (size_t i = 0; i < keys->n; i++)
		if (strncmp(keys->keys[i].name, name, length) == 0 && keys->keys[i].name[length] == '.')
			return true;
	return false;
}

void policy_why_append(char *text, const char *more)
{
	size_t length = strlen(text);

	snprintf(text + length, POLICY_MAX_WHY - length, "%s", more);
}

void policy_values_list(enum policy_set set, char *ret_why)
{
	const struct policy_value *v = policy_value_next(set, NULL);

	while (v) {
		const struct policy_value *next = policy_value_next(set, v);

		policy_why_append(ret_why, v->name);
		if (next)
			policy_why_append(ret_why, policy_value_next(set, next) ? ", " : " or ");
		v = next;
	}
}

/* Writes the part of a key between prefix and the next dot: what may be written at this level. */
static const char *level_name(const char *key, size_t n_prefix, char buffer[POLICY_MAX_KEY])
{
	snprintf(buffer, POLICY_MAX_KEY, "%.*s", (int)strcspn(key + n_prefix, "."), key + n_prefix);
	return buffer;
}

const char *policy_key_ending(const struct policy_keys *keys, const char *typed)
{
	for (size_t i = 0; i < keys->n; i++) {
		const char *last = strrchr(keys->keys[i].name, '.');

		if (last && policy_distance(last + 1, typed) == 0)
			return keys->keys[i].name;
	}
	return NULL;
}

static void list_level(const struct policy_keys *keys, const char *prefix, char *ret_hint)
{
	char level[POLICY_MAX_KEY], last[POLICY_MAX_KEY] = "";
	size_t n_prefix = strlen(prefix);

	snprintf(ret_hint, POLICY_MAX_WHY, "write one of: ");
	for (size_t i = 0; i < keys->n; i++) {
		if (strncmp(keys->keys[i].name, prefix, n_prefix) != 0)
			continue;
		level_name(keys->keys[i].name, n_prefix, level);
		if (strcmp(level, last) == 0)
			continue;
		if (*last)
			policy_why_append(ret_hint, ", ");
		policy_why_append(ret_hint, level);
		strcpy(last, level);
	}
}

void policy_key_hint(const struct policy_keys *keys, const char *prefix, const char *name, char *ret_hint)
{
	size_t n_prefix = strlen(prefix);
	struct policy_suggestion suggestion = {.typed = name + n_prefix};
	/* One buffer for each key, because the suggestion keeps pointers to the candidates. */
	char levels[POLICY_MAX_KEYS][POLICY_MAX_KEY];

	for (size_t i = 0; i < keys->n; i++) {
		if (strncmp(keys->keys[i].name, prefix, n_prefix) != 0)
			continue;
		policy_suggest(&suggestion, keys->keys[i].name + n_prefix);
		policy_suggest(&suggestion, level_name(keys->keys[i].name, n_prefix, levels[i]));
	}
	if (!suggestion.best && n_prefix == 0)
		suggestion.best = policy_key_ending(keys, name);
	if (suggestion.best)
		snprintf(ret_hint, POLICY_MAX_WHY, "did you mean \"%s\"?", suggestion.best);
	else
		list_level(keys, prefix, ret_hint);
}
