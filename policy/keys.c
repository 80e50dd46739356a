#include "policy/keys.h"

#include <stdio.h>
#include <string.h>

#include "policy/size.h"
#include "policy/text.h"

#define POLICY_VALUE(set, value, name, help) {POLICY_SET_##set, value, name, help},
static const struct policy_value values[] = {
#include "policy/keys.def"
};

#define POLICY_KEY(name, type, set, field, standard, help)                                                             \
	{name, POLICY_TYPE_##type, POLICY_SET_##set, offsetof(struct policy, field), standard, help},
static const struct policy_key file_keys[] = {
#include "policy/keys.def"
};

#define POLICY_RULE_KEY(name, type, set, field, standard, help)                                                        \
	{name, POLICY_TYPE_##type, POLICY_SET_##set, offsetof(struct policy_rule, field), standard, help},
static const struct policy_key rule_keys[] = {
#include "policy/keys.def"
};

enum {
	N_VALUES = sizeof(values) / sizeof(*values),
	N_FILE_KEYS = sizeof(file_keys) / sizeof(*file_keys),
	N_RULE_KEYS = sizeof(rule_keys) / sizeof(*rule_keys),
};
_Static_assert((int)N_FILE_KEYS <= (int)POLICY_MAX_KEYS && (int)N_RULE_KEYS <= (int)POLICY_MAX_KEYS,
	       "raise POLICY_MAX_KEYS");

const struct policy_keys policy_file_keys = {file_keys, N_FILE_KEYS};
const struct policy_keys policy_rule_keys = {rule_keys, N_RULE_KEYS};

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

/* Append to a text in POLICY_MAX_WHY bytes; what does not fit is cut. */
static void append(char *text, const char *more)
{
	size_t length = strlen(text);

	snprintf(text + length, POLICY_MAX_WHY - length, "%s", more);
}

static void list_values(enum policy_set set, char *ret_why)
{
	const struct policy_value *v = policy_value_next(set, NULL);

	while (v) {
		const struct policy_value *next = policy_value_next(set, v);

		append(ret_why, v->name);
		if (next)
			append(ret_why, policy_value_next(set, next) ? ", " : " or ");
		v = next;
	}
}

static bool enum_parse(const struct policy_key *key, const char *text, int *ret_value, char *ret_why)
{
	struct policy_suggestion suggestion = {.typed = text};
	const struct policy_value *v = NULL;
	char quoted[POLICY_QUOTED_BYTES];

	while ((v = policy_value_next(key->set, v))) {
		if (strcmp(text, v->name) == 0) {
			*ret_value = v->value;
			return true;
		}
		policy_suggest(&suggestion, v->name);
	}
	if (!*text)
		snprintf(ret_why, POLICY_MAX_WHY, "has no value; write ");
	else if (suggestion.best)
		snprintf(ret_why, POLICY_MAX_WHY, "%s is unknown; did you mean %s? Write ", policy_quote(text, quoted),
			 suggestion.best);
	else
		snprintf(ret_why, POLICY_MAX_WHY, "%s is unknown; write ", policy_quote(text, quoted));
	list_values(key->set, ret_why);
	if (key->set == POLICY_SET_BOOL && policy_is_digit(*text))
		append(ret_why, " (a number is not taken as yes or no)");
	return false;
}

/* Names go into reports and logs, so they are whole printable text. */
static bool text_parse(const char *text, char *ret_text, char *ret_why)
{
	char printable[POLICY_MAX_NAME + 1];

	if (!*text) {
		snprintf(ret_why, POLICY_MAX_WHY, "has no value; write a short text or leave the key out");
		return false;
	}
	if (strlen(text) > POLICY_MAX_NAME) {
		snprintf(ret_why, POLICY_MAX_WHY, "is longer than %d bytes; write a shorter text", POLICY_MAX_NAME);
		return false;
	}
	if (strcmp(policy_printable(text, printable, sizeof(printable)), text) != 0) {
		snprintf(ret_why, POLICY_MAX_WHY,
			 "has line breaks or control characters in it; write one line of plain text");
		return false;
	}
	strcpy(ret_text, text);
	return true;
}

bool policy_value_parse(const struct policy_key *key, const char *text, void *target, char *ret_why)
{
	void *field = (char *)target + key->offset;

	switch (key->type) {
	case POLICY_TYPE_SIZE:
		return policy_size_parse(text, field, ret_why);
	case POLICY_TYPE_ENUM:
		return enum_parse(key, text, field, ret_why);
	case POLICY_TYPE_TEXT:
		return text_parse(text, field, ret_why);
	case POLICY_TYPE_CONDITION:
		return policy_condition_parse(text, field, ret_why);
	case POLICY_TYPE_RULES:
		break;
	}
	snprintf(ret_why, POLICY_MAX_WHY, "is a list; write it in a policy file");
	return false;
}

void policy_keys_standard(const struct policy_keys *keys, void *target)
{
	char why[POLICY_MAX_WHY];

	/* The table's own values are right: the test reads every one of them. "" leaves a text empty. */
	for (size_t i = 0; i < keys->n; i++)
		if (keys->keys[i].standard && *keys->keys[i].standard)
			policy_value_parse(&keys->keys[i], keys->keys[i].standard, target, why);
}

/* The part of a key behind prefix up to its first dot: what may be written at this level. */
static const char *level_name(const char *key, size_t n_prefix, char buffer[POLICY_MAX_KEY])
{
	snprintf(buffer, POLICY_MAX_KEY, "%.*s", (int)strcspn(key + n_prefix, "."), key + n_prefix);
	return buffer;
}

/* Some key whose last part is exactly this: "budget" for "device.budget". */
static const char *key_ending(const struct policy_keys *keys, const char *typed)
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
			append(ret_hint, ", ");
		append(ret_hint, level);
		strcpy(last, level);
	}
}

void policy_key_hint(const struct policy_keys *keys, const char *prefix, const char *name, char *ret_hint)
{
	size_t n_prefix = strlen(prefix);
	struct policy_suggestion suggestion = {.typed = name + n_prefix};
	/* One buffer a key: the suggestion keeps pointers to what it was offered. */
	char levels[POLICY_MAX_KEYS][POLICY_MAX_KEY];

	for (size_t i = 0; i < keys->n; i++) {
		if (strncmp(keys->keys[i].name, prefix, n_prefix) != 0)
			continue;
		policy_suggest(&suggestion, keys->keys[i].name + n_prefix);
		policy_suggest(&suggestion, level_name(keys->keys[i].name, n_prefix, levels[i]));
	}
	if (!suggestion.best && n_prefix == 0)
		suggestion.best = key_ending(keys, name);
	if (suggestion.best)
		snprintf(ret_hint, POLICY_MAX_WHY, "did you mean \"%s\"?", suggestion.best);
	else
		list_level(keys, prefix, ret_hint);
}
